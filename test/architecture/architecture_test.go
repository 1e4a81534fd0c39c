// Package architecture guards the rules of the house: which room may import
// which, and that everything that decides is pure.
package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/muster-dev/muster/"

// pure packages decide: they get a snapshot and return a verdict.
var pure = append(deciding(), "nodegroups", "kwok/pool", "kwok/scenario", "kwok/scenario/report", "deploy/document")

// deciding returns the packages of provisioning and queueing that decide: those that keep no cluster state, execute nothing, and do not
// run the scheduler's own allocator of devices.
func deciding() (out []string) {
	for half, rooms := range ordered {
		for _, room := range rooms {
			if !slices.Contains([]string{"model", "controller", "jobs", "devices", "fairqueue"}, room) {
				out = append(out, path.Join(half, room))
			}
		}
	}
	return out
}

// forbidden in pure packages, each with its why.
var forbidden = map[string]string{
	"context":                        "what takes a context may block; a decision does not",
	"log":                            "a verdict carries its reasons; the edge logs them",
	"log/slog":                       "a verdict carries its reasons; the edge logs them",
	"net/http":                       "a decision makes no calls",
	"os":                             "a decision depends on its input alone",
	"sync":                           "a decision runs in one goroutine and shares nothing",
	"k8s.io/client-go":               "a decision makes no calls",
	"k8s.io/utils/clock":             "time is a value in the snapshot",
	"sigs.k8s.io/controller-runtime": "a decision makes no calls",
	"github.com/prometheus":          "metrics are made from verdicts at the edge",
}

// forbiddenCalls in pure packages, each with its why.
var forbiddenCalls = map[string]string{
	"time.Now":   "time is a value in the snapshot",
	"time.Since": "time is a value in the snapshot",
	"time.Until": "time is a value in the snapshot",
	"time.Sleep": "a decision does not wait",
	"time.After": "a decision does not wait",
}

func TestDecisionsArePure(t *testing.T) {
	for _, dir := range pure {
		files := parse(t, dir)
		if len(files) == 0 {
			t.Errorf("%s has no files: is the list of pure packages out of date?", dir)
		}
		for name, file := range files {
			for _, path := range imports(t, file) {
				for bad, why := range forbidden {
					if path == bad || strings.HasPrefix(path, bad+"/") {
						t.Errorf("%s imports %s: %s", name, path, why)
					}
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					t.Errorf("%s starts a goroutine: a decision runs in one", name)
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok {
						if why := forbiddenCalls[x.Name+"."+n.Sel.Name]; why != "" {
							t.Errorf("%s uses %s.%s: %s", name, x.Name, n.Sel.Name, why)
						}
					}
				}
				return true
			})
		}
	}
}

// rooms in the order in which imports may point: a room may import those before
// it, never one after it. What stands around the house may be imported by cmd and
// test; the simulator's API types and engine also by their adapter.
var rooms = []string{"nodegroups", "cloudprovider", "provisioning", "queueing"}

// seams are the imports that the order does not cover, each with its why.
var seams = map[[2]string]string{
	{"cloudprovider/kwok", "kwok/v1alpha1"}: "the adapter creates the simulator's machines",
	{"cloudprovider/kwok", "kwok/pool"}:     "the adapter asks the simulator's engine what a launch gets",
	{"kwok/pool", "nodegroups/v1alpha1"}:    "the engine reads the script of a NodeGroup",
}

func TestImportsPointLeft(t *testing.T) {
	for i, room := range rooms {
		for _, dir := range folders(t, room) {
			for name, file := range parse(t, dir) {
				for _, path := range imports(t, file) {
					path, ours := strings.CutPrefix(path, module)
					if !ours || seams[[2]string{dir, path}] != "" {
						continue
					}
					top, _, _ := strings.Cut(path, "/")
					if j := slices.Index(rooms, top); j < 0 || j > i {
						t.Errorf("%s imports %s, but %s may only import %v", name, path, room, rooms[:i+1])
					}
				}
			}
		}
	}
}

// ordered has the rooms of provisioning and of queueing in the order in which they may
// import each other.
var ordered = map[string][]string{
	"provisioning": {"text", "when", "fit", "devices", "state", "spend", "nodeset", "planner", "purchases", "transaction", "scaledown",
		"cost", "", "model", "fairqueue", "controller"},
	"queueing": {
		"quota", "usage", "config", "preemption", "placement", "workload", "cache", "checks", "lifecycle", "scheduler", "status", "", "forecast",
		"history", "standing", "notify", "dispatch", "controller", "jobs",
	},
}

func TestRoomsImportInOrder(t *testing.T) {
	for half, rooms := range ordered {
		for _, dir := range folders(t, half) {
			room, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(dir, half), "/"), "/")
			at := slices.Index(rooms, room)
			if at < 0 && len(parse(t, dir)) > 0 {
				t.Errorf("%s has no place in the order of the rooms of %s: add it", dir, half)
			}
			for name, file := range parse(t, dir) {
				for _, path := range imports(t, file) {
					path, ours := strings.CutPrefix(path, module+half)
					if !ours {
						continue
					}
					other, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
					if slices.Index(rooms, other) > at {
						t.Errorf("%s imports %s%s, but it may only import %v", name, half, path, rooms[:max(at, 0)])
					}
				}
			}
		}
	}
}

// spoken are the functions of pure packages that compare messages, each with its why.
var spoken = map[string]string{
	"queueing/cache/workload.go:WaitingReason":      "says again what was said",
	"queueing/lifecycle/rules.go:Wait":              "writes nothing where the Workload says so already",
	"queueing/workload/status.go:Waiting":           "writes nothing where the Workload says so already",
	"queueing/checks/capacity.go:Write":             "writes nothing where the check says so already",
	"queueing/workload/checks.go:DescribeChecks":    "puts messages into one",
	"queueing/lifecycle/podsrefused.go:podsRefused": "adds a hint to the message",
}

// TestDecisionsReadNoProse: messages are for people, and their wording may change at any
// time. What is decided on is a reason, a field or an annotation.
func TestDecisionsReadNoProse(t *testing.T) {
	message := func(e ast.Expr) bool {
		sel, ok := e.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Message"
	}
	for _, dir := range pure {
		for name, file := range parse(t, dir) {
			for _, d := range file.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || spoken[name+":"+fn.Name.Name] != "" {
					continue
				}
				ast.Inspect(fn, func(n ast.Node) bool {
					reads := false
					switch n := n.(type) {
					case *ast.BinaryExpr:
						reads = n.Op != token.ADD && (message(n.X) || message(n.Y))
					case *ast.SwitchStmt:
						reads = n.Tag != nil && message(n.Tag)
					case *ast.CallExpr:
						sel, ok := n.Fun.(*ast.SelectorExpr)
						pkg, named := (*ast.Ident)(nil), false
						if ok {
							pkg, named = sel.X.(*ast.Ident)
						}
						reads = named && (pkg.Name == "strings" || pkg.Name == "regexp") && slices.ContainsFunc(n.Args, message)
					}
					if reads {
						t.Errorf("%s: %s decides by the wording of a message", name, fn.Name.Name)
					}
					return true
				})
			}
		}
	}
}

// personal are words for people. Comments are about Workloads, requests and processes, and
// name these by their nouns.
var personal = regexp.MustCompile(`(?i)\b(who|whom|whoever|nobody|somebody|anybody|everybody|anew|he|his)\b`)

func TestCommentsNameObjectsByTheirNouns(t *testing.T) {
	for _, top := range slices.Concat(rooms, []string{"cmd", "deploy", "kwok", "test"}) {
		for _, dir := range folders(t, top) {
			for _, file := range parseIf(t, dir, func(string) bool { return true }) {
				for _, group := range file.Comments {
					for _, c := range group.List {
						if word := personal.FindString(c.Text); word != "" {
							t.Errorf("%s: the comment has %q: name the object, as in \"a Workload that\"", fset.Position(c.Pos()), word)
						}
					}
				}
			}
		}
	}
}

// TestTextsNameObjectsByTheirNouns holds what users and maintainers read beside code to the
// same words: manifests, stages, scenarios, and the scripts of the page.
func TestTextsNameObjectsByTheirNouns(t *testing.T) {
	judged := 0
	for _, top := range slices.Concat(rooms, []string{"cmd", "deploy", "kwok", "test"}) {
		err := filepath.WalkDir(filepath.Join("..", "..", top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !isText(path) {
				return err
			}
			text, err := os.ReadFile(path) //nolint:gosec // a file of this project
			if err != nil {
				return err
			}
			judged++
			for i, line := range strings.Split(string(text), "\n") {
				if word := personal.FindString(line); word != "" {
					t.Errorf("%s:%d has %q: name the object, as in \"a Workload that\"", path, i+1, word)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if judged == 0 {
		t.Error("no text was found")
	}
}

// isText reports whether a file is written by hand for people to read, and is no Go. CRDs have the words of the comments of their types.
func isText(path string) bool {
	dir, name := filepath.Split(filepath.ToSlash(path))
	switch {
	case strings.Contains(dir, "/crds/") || strings.Contains(dir, "/uplot/") || strings.HasPrefix(name, "zz_"):
		return false
	case filepath.Ext(name) == "":
		return strings.Contains(dir, "/testdata/")
	}
	return slices.Contains([]string{".yaml", ".txt", ".js", ".tpl"}, filepath.Ext(name))
}

// compiled are the only folders whose tests may import Kubernetes itself, each with
// its why: compiling it takes minutes.
var compiled = map[string]string{
	"test/oracle": "compares verdicts with the scheduler's own",
}

func TestTestsDoNotCompileKubernetes(t *testing.T) {
	for _, top := range slices.Concat(rooms, []string{"cmd", "deploy", "kwok", "test"}) {
		for _, dir := range folders(t, top) {
			for name, file := range parseIf(t, dir, func(name string) bool { return strings.HasSuffix(name, "_test.go") }) {
				for _, path := range imports(t, file) {
					if strings.HasPrefix(path, "k8s.io/kubernetes/") && compiled[dir] == "" {
						t.Errorf("%s imports %s: only %v may", name, path, slices.Sorted(maps.Keys(compiled)))
					}
				}
			}
		}
	}
}

// sdks of the clouds take minutes to compile. So each is imported in one package, and
// that in few others: by users, each with its why.
var sdks = []string{"github.com/aws/", "cloud.google.com/", "google.golang.org/api/"}

var users = map[string]map[string]string{
	"sdk": {
		"cloudprovider/aws": "is the adapter", "cloudprovider/aws/api": "makes its calls", "cloudprovider/aws/prices": "reads prices",
		"cloudprovider/aws/asg": "reads Auto Scaling groups", "cloudprovider/aws/inventory": "reads what there is",
		"cloudprovider/aws/discover": "reads templates and types", "cloudprovider/aws/placement": "makes placement groups",
		"cloudprovider/aws/launch": "makes machines", "cloudprovider/aws/terminate": "ends them",
		"cloudprovider/aws/advice": "reads placement scores", "cloudprovider/aws/permissions": "tries calls",
		"cloudprovider/aws/quotas": "reads quotas", "cloudprovider/gcp/quotas": "reads quotas",
		"cloudprovider/gcp/api": "makes its calls", "cloudprovider/gcp/prices": "reads prices",
		"cloudprovider/gcp/inventory": "reads what there is", "cloudprovider/gcp/template": "reads instance templates",
		"cloudprovider/gcp/placement": "makes placement policies", "cloudprovider/gcp/discover": "reads groups",
		"cloudprovider/gcp/launch": "makes machines", "cloudprovider/gcp/terminate": "ends them",
		"cloudprovider/gcp/advice": "reads obtainability",
	},
	"cloudprovider/aws": {
		"cmd/muster/clouds":                 "connects it",
		"provisioning/controller/scaledown": "its test restores etcd on the simulated cloud",
		"kwok/sandbox":                      "its test discovers what a sandbox has",
		"test/brownouts":                    "plays the clouds' bad days",
	},
	"cloudprovider/aws/asg": {
		"cloudprovider/aws/inventory": "lists groups", "cloudprovider/aws/discover": "judges groups",
		"cloudprovider/aws/launch":    "judges them again",
		"cloudprovider/aws/terminate": "takes machines out of groups", "cloudprovider/aws/advice": "reads subnets",
		"cloudprovider/aws/permissions": "tries calls on a group", "cloudprovider/aws": "is the adapter",
	},
	"cloudprovider/aws/inventory": {
		"cloudprovider/aws/placement": "tags and finds", "cloudprovider/aws/discover": "claims groups",
		"cloudprovider/aws/launch":    "counts machines",
		"cloudprovider/aws/terminate": "finds machines", "cloudprovider/aws/permissions": "finds what to try",
		"cloudprovider/aws": "is the adapter",
	},
	"cloudprovider/aws/placement": {
		"cloudprovider/aws/discover": "warns of lost placement groups", "cloudprovider/aws/launch": "launches into them",
		"cloudprovider/aws/permissions": "finds what to try", "cloudprovider/aws": "is the adapter",
	},
	"cloudprovider/aws/terminate":   {"cloudprovider/aws/launch": "ends what a launch has left", "cloudprovider/aws": "is the adapter"},
	"cloudprovider/aws/discover":    {"cloudprovider/aws": "is the adapter"},
	"cloudprovider/aws/launch":      {"cloudprovider/aws": "is the adapter"},
	"cloudprovider/aws/advice":      {"cloudprovider/aws": "is the adapter"},
	"cloudprovider/aws/permissions": {"cloudprovider/aws": "is the adapter", "deploy/generate/clouds": "writes them"},
	"cloudprovider/gcp/api": {
		"cloudprovider/gcp": "is the adapter", "cloudprovider/gcp/prices": "reads prices",
		"cloudprovider/gcp/inventory": "lists machines", "cloudprovider/gcp/template": "reads instance templates",
		"cloudprovider/gcp/placement": "makes placement policies", "cloudprovider/gcp/discover": "reads groups",
		"cloudprovider/gcp/launch": "makes machines", "cloudprovider/gcp/terminate": "ends them",
		"cloudprovider/gcp/advice": "reads obtainability", "cloudprovider/gcp/permissions": "tests permissions",
		"cloudprovider/gcp/quotas": "reads quotas",
	},
	"cloudprovider/gcp/template": {
		"cloudprovider/gcp": "is the adapter", "cloudprovider/gcp/placement": "decides by it",
		"cloudprovider/gcp/discover": "makes a NodeGroup of it", "cloudprovider/gcp/launch": "launches from it",
		"cloudprovider/gcp/advice": "names the Spot model",
	},
	"cloudprovider/gcp/inventory": {
		"cloudprovider/gcp": "is the adapter", "cloudprovider/gcp/placement": "counts neighbours",
		"cloudprovider/gcp/discover": "knows which NodeGroups there are", "cloudprovider/gcp/launch": "names machines",
		"cloudprovider/gcp/terminate": "finds machines",
	},
	"cloudprovider/gcp/placement": {
		"cloudprovider/gcp": "is the adapter", "cloudprovider/gcp/discover": "warns of what it could not do",
		"cloudprovider/gcp/launch": "launches into it",
	},
	"cloudprovider/gcp/prices":      {"cloudprovider/gcp": "is the adapter", "cloudprovider/gcp/discover": "tells prices"},
	"cloudprovider/gcp/discover":    {"cloudprovider/gcp": "is the adapter"},
	"cloudprovider/gcp/launch":      {"cloudprovider/gcp": "is the adapter"},
	"cloudprovider/gcp/terminate":   {"cloudprovider/gcp": "is the adapter"},
	"cloudprovider/gcp/advice":      {"cloudprovider/gcp": "is the adapter"},
	"cloudprovider/gcp/permissions": {"cloudprovider/gcp": "is the adapter", "deploy/generate/clouds": "writes the role"},
	"cloudprovider/gcp": {
		"cmd/muster/clouds":                 "connects it",
		"provisioning/controller/scaledown": "its test restores etcd on the simulated cloud",
		"kwok/sandbox":                      "its test discovers what a sandbox has",
		"test/brownouts":                    "plays the clouds' bad days",
	},
	"cmd/muster/clouds": {"cmd/muster": "talks to clouds", "cmd/muster-sandbox": "has muster in it"},
}

func TestFewCompileTheSDKsOfClouds(t *testing.T) {
	for _, top := range slices.Concat(rooms, []string{"cmd", "deploy", "kwok", "test"}) {
		for _, dir := range folders(t, top) {
			for name, file := range parseIf(t, dir, func(string) bool { return true }) {
				for _, path := range imports(t, file) {
					what, ours := strings.CutPrefix(path, module)
					if slices.ContainsFunc(sdks, func(sdk string) bool { return strings.HasPrefix(path, sdk) }) {
						what, ours = "sdk", true
					}
					if may := users[what]; ours && may != nil && may[dir] == "" && dir != what {
						t.Errorf("%s imports %s: only %v may", name, path, slices.Sorted(maps.Keys(may)))
					}
				}
			}
		}
	}
}

var fset = token.NewFileSet()

// parse reads the Go files of one folder, tests and generated files left out.
func parse(t *testing.T, dir string) map[string]*ast.File {
	t.Helper()
	return parseIf(t, dir, func(name string) bool {
		return !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "zz_generated")
	})
}

func parseIf(t *testing.T, dir string, wanted func(name string) bool) map[string]*ast.File {
	t.Helper()
	root := filepath.Join("..", "..")
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*ast.File{}
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || !strings.HasSuffix(name, ".go") || !wanted(name) {
			continue
		}
		file, err := parser.ParseFile(fset, filepath.Join(root, dir, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		out[dir+"/"+name] = file
	}
	return out
}

// folders are the room and all folders in it, as paths from the top.
func folders(t *testing.T, room string) (out []string) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(filepath.Join(root, room), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() != "testdata" {
			rel, _ := filepath.Rel(root, path)
			out = append(out, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func imports(t *testing.T, file *ast.File) (out []string) {
	t.Helper()
	for _, i := range file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, path)
	}
	return out
}

// Package docs keeps the documents true: links, files, functions, tests and make targets
// that they name exist.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// mostLines of the README: what is longer belongs in docs.
const mostLines = 120

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	fence    = regexp.MustCompile("(?ms)^```.*?^```$")
	goFile   = regexp.MustCompile(`\b[\w./-]+\.go\b`)
	// declared is one or more names with the file that declares them: `A`, `B` in [x.go](x.go).
	declared = regexp.MustCompile("((?:`[\\w.]+`(?:,|,? and)?\\s+)+)in\\s+(?:\\[[^\\]]*\\]\\(|`)([\\w./-]+\\.go)")
	testName = regexp.MustCompile(`^(?:Test|Benchmark|Fuzz)[A-Z]\w*$`)
	command  = regexp.MustCompile(`^make ([a-z0-9-]+)`)
	target   = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
	tested   = regexp.MustCompile(`go test \./([\w/-]+)`)
)

// documents are all Markdown files by their path, with their text.
func documents(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "deploy/monitoring/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			out[path] = read(t, path)
		}
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestREADMEIsShort(t *testing.T) {
	if n := strings.Count(read(t, filepath.Join(root, "README.md")), "\n"); n > mostLines {
		t.Errorf("README.md has %d lines, at most %d: move what is about one subject to docs", n, mostLines)
	}
}

func TestLinksLead(t *testing.T) {
	all := documents(t)
	for path, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, m[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(all[to]), anchor) {
				t.Errorf("%s links to %s, which has no such heading", path, m[1])
			}
		}
	}
}

// anchors returns the anchors of a document's headings, as on GitHub.
func anchors(text string) (out []string) {
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		out = append(out, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z':
				return r
			}
			return -1
		}, strings.ToLower(m[1])))
	}
	return out
}

// TestFilesAndFunctionsExist finds Go files by their path from the top, or from the
// document if they are linked.
func TestFilesAndFunctionsExist(t *testing.T) {
	for path, text := range documents(t) {
		for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
			for _, file := range goFile.FindAllString(m[1], -1) {
				if _, err := os.Stat(filepath.Join(root, file)); err != nil && strings.Contains(file, "/") {
					t.Errorf("%s names %s, which does not exist", path, file)
				}
			}
		}
		for _, m := range declared.FindAllStringSubmatch(text, -1) {
			file := filepath.Join(filepath.Dir(path), m[2])
			if _, err := os.Stat(file); err != nil {
				file = filepath.Join(root, m[2])
			}
			names := namesIn(t, file)
			for _, name := range codeSpan.FindAllStringSubmatch(m[1], -1) {
				if !slices.Contains(names, name[1]) {
					t.Errorf("%s names %s in %s, which does not declare it", path, name[1], m[2])
				}
			}
		}
	}
}

// namesIn returns what a file declares at its top level; methods by their name alone and
// with that of their type, as in State.Cycle.
func namesIn(t *testing.T, path string) (out []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			out = append(out, d.Name.Name)
			if d.Recv != nil {
				of := d.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				if of, ok := of.(*ast.Ident); ok {
					out = append(out, of.Name+"."+d.Name.Name)
				}
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					out = append(out, s.Name.Name)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						out = append(out, name.Name)
					}
				}
			}
		}
	}
	return out
}

// TestFixesOfKueueAreJudged: each row of the table has a number of its own, says what went wrong, and has one of the three
// verdicts; held and mended name a test. TestTestsAndTargetsExist checks that the test exists.
func TestFixesOfKueueAreJudged(t *testing.T) {
	judged := regexp.MustCompile("^(does not apply: \\S.*|(held|mended): `Test[A-Z]\\w*`.*)$")
	cases := regexp.MustCompile("`(queueing/[a-z]+/testdata/[^`]+)`")
	numbers := map[string]bool{}
	for line := range strings.SplitSeq(read(t, filepath.Join(root, "docs/kueue-fixes.md")), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || cells[0] == "number" || cells[0] == "---" {
			continue
		}
		if len(cells) != 3 || cells[1] == "" || !judged.MatchString(cells[2]) || numbers[cells[0]] {
			t.Errorf("the row is none, or its number is there twice: %s", line)
			continue
		}
		numbers[cells[0]] = true
		for _, m := range cases.FindAllStringSubmatch(line, -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", cells[0], m[1])
			}
		}
	}
	if len(numbers) < 200 {
		t.Errorf("the table has %d rows", len(numbers))
	}
}

// TestKueuesCasesOfDevicesAreJudged: each table of the page has a row for each case, numbered from 1, with one of the four verdicts;
// held names a test. TestTestsAndTargetsExist checks that the test exists.
func TestKueuesCasesOfDevicesAreJudged(t *testing.T) {
	judged := regexp.MustCompile("^((does not apply|differs): \\S.*|held: `Test[A-Z]\\w*`.*|not tried)$")
	var rows []int
	for line := range strings.SplitSeq(read(t, filepath.Join(root, "docs/kueue-dra.md")), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		switch {
		case !strings.HasPrefix(line, "| ") || cells[0] == "---":
			continue
		case cells[0] == "number":
			rows = append(rows, 0)
			continue
		}
		rows[len(rows)-1]++
		if len(cells) != 3 || cells[1] == "" || !judged.MatchString(cells[2]) || cells[0] != strconv.Itoa(rows[len(rows)-1]) {
			t.Errorf("the row is none, or its number is not the next: %s", line)
		}
	}
	// The last table has cases of other suites.
	if want := []int{13, 8, 7, 56}; len(rows) != 5 || !slices.Equal(rows[:4], want) {
		t.Errorf("the tables have %v rows, want %v and those of other suites", rows, want)
	}
}

// TestTestsAndTargetsExist looks for tests, tested packages and make targets that documents
// name.
func TestTestsAndTargetsExist(t *testing.T) {
	tests := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "." && d.Name() != "..":
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			for _, name := range namesIn(t, path) {
				tests[name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, m := range target.FindAllStringSubmatch(read(t, filepath.Join(root, "Makefile")), -1) {
		targets = append(targets, m[1])
	}
	for path, text := range documents(t) {
		for _, m := range tested.FindAllStringSubmatch(text, -1) {
			if found, err := filepath.Glob(filepath.Join(root, m[1])); err != nil || len(found) == 0 {
				t.Errorf("%s names the package %s, which does not exist", path, m[1])
			}
		}
		for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
			if name := m[1]; testName.MatchString(name) && !tests[name] {
				t.Errorf("%s names %s: there is no such test", path, name)
			}
			if m := command.FindStringSubmatch(m[1]); m != nil && !slices.Contains(targets, m[1]) {
				t.Errorf("%s names %s: there is no such target in the Makefile", path, m[0])
			}
		}
	}
}

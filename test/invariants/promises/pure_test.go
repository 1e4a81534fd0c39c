package promises

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/jobs"
)

// forbidden imports, each with its why.
var forbidden = map[string]string{
	"k8s.io/client-go":               "the edge talks to the cluster",
	"sigs.k8s.io/controller-runtime": "the edge talks to the cluster",
	"context":                        "a judgement does not wait",
	"sync":                           "a Checker is for one goroutine",
	"os":                             "a judgement depends on events alone",
}

func TestCheckerIsPure(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			for bad, why := range forbidden {
				if path := strings.Trim(i.Path.Value, `"`); path == bad || strings.HasPrefix(path, bad+"/") {
					t.Errorf("%s imports %s: %s", name, path, why)
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine: a Checker is for one", name)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && (n.Sel.Name == "Now" || n.Sel.Name == "Since") {
					t.Errorf("%s reads the clock: time comes with the events", name)
				}
			}
			return true
		})
	}
}

// What is written down here since its home is not pure must stay the same there.
func TestNamesAreThoseOfTheirHomes(t *testing.T) {
	if queueLabel != jobs.QueueLabel || breakGlassAnnotation != jobs.BreakGlassAnnotation || processorParameter != transaction.ParamProcessor {
		t.Error("the names of labels, annotations and parameters are out of date")
	}
	classes := DefaultConfig().Classes
	if strings.Join(classes, " ") != strings.Join(transaction.KnownClasses, " ") {
		t.Errorf("classes are %v, the model knows %v", classes, transaction.KnownClasses)
	}
}

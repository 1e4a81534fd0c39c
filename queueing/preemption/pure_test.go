package preemption

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// forbidden imports, each with its why.
var forbidden = map[string]string{
	"context":                        "a decision does not wait",
	"sync":                           "a tree is for one goroutine",
	"os":                             "a decision depends on the question alone",
	"k8s.io/client-go":               "the edge talks to the cluster",
	"sigs.k8s.io/controller-runtime": "the edge talks to the cluster",
}

// TestDecisionsArePure looks at this package and the two that it goes with.
func TestDecisionsArePure(t *testing.T) {
	for _, folder := range []string{".", "../quota", "../usage"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", folder, len(files), err)
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
					t.Errorf("%s starts a goroutine: a tree is for one", name)
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && (n.Sel.Name == "Now" || n.Sel.Name == "Since") {
						t.Errorf("%s reads the clock: time comes with the question", name)
					}
				}
				return true
			})
		}
	}
}

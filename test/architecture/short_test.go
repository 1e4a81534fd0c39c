package architecture

import (
	"go/ast"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatIsShortIsRunInFull: each package that `make test` runs with -short is run in full by another target of the Makefile.
func TestWhatIsShortIsRunInFull(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	whole := map[string]bool{}
	for command := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		if !strings.Contains(command, "go test") || strings.Contains(command, "-short") || strings.Contains(command, "-run") {
			continue
		}
		for _, word := range strings.Fields(command) {
			if pattern, ok := strings.CutPrefix(word, "./"); ok {
				whole[pattern] = true
			}
		}
	}
	found := 0
	for _, dir := range folders(t, ".") {
		for name, f := range parseIf(t, dir, func(name string) bool { return strings.HasSuffix(name, "_test.go") }) {
			if !callsShort(f) {
				continue
			}
			found++
			room, _, _ := strings.Cut(dir, "/")
			if !whole[dir] && !whole[room+"/..."] {
				t.Errorf("%s does less with -short, and no target of the Makefile runs %s without it", name, dir)
			}
		}
	}
	if found == 0 {
		t.Error("no test does less with -short: this one shows nothing")
	}
}

func callsShort(f *ast.File) (calls bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Short" {
			x, ok := s.X.(*ast.Ident)
			calls = calls || ok && x.Name == "testing"
		}
		return !calls
	})
	return calls
}

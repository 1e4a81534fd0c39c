package v1alpha1

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The API server refuses a constant that the marker of its type does not list.
func TestEnumsListTheirConstants(t *testing.T) {
	const marker = "// +kubebuilder:validation:Enum="
	enums, constants := map[string][]string{}, map[string][]string{}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), "_types.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range decl.Specs {
				switch spec := s.(type) {
				case *ast.TypeSpec:
					if decl.Doc == nil {
						continue
					}
					for _, line := range decl.Doc.List {
						if values, ok := strings.CutPrefix(line.Text, marker); ok {
							enums[spec.Name.Name] = slices.Sorted(strings.SplitSeq(values, ";"))
						}
					}
				case *ast.ValueSpec:
					if of, ok := spec.Type.(*ast.Ident); ok && decl.Tok == token.CONST {
						value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
						if err != nil {
							t.Fatal(err)
						}
						constants[of.Name] = append(constants[of.Name], value)
					}
				}
			}
		}
	}
	if len(enums) == 0 {
		t.Fatal("no type has a marker for its values")
	}
	for name, listed := range enums {
		slices.Sort(constants[name])
		if !slices.Equal(listed, constants[name]) {
			t.Errorf("%s lists %q, its constants are %q", name, listed, constants[name])
		}
	}
}

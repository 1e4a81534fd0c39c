package architecture

import (
	"go/ast"
	"go/token"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is how long a line may be. A tab is one column.
const maxColumns = 140

// TestLinesAreShort, since a longer one is not seen whole. Rows of tables may be longer, since they are read by columns, and so may what
// cannot be broken: texts of several lines, tags of fields, and comments that programs read.
func TestLinesAreShort(t *testing.T) {
	for _, dir := range folders(t, ".") {
		for name, f := range parseIf(t, dir, func(string) bool { return true }) {
			if ast.IsGenerated(f) {
				continue
			}
			text, err := os.ReadFile(fset.File(f.Pos()).Name())
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(string(text), "\n")
			may := mayBeLong(f, lines)
			for i, line := range lines {
				if n := utf8.RuneCountInString(line); n > maxColumns && !may[i+1] {
					t.Errorf("%s:%d has %d columns; %d are allowed", name, i+1, n, maxColumns)
				}
			}
		}
	}
}

// mayBeLong are the lines of a file that may have any length.
func mayBeLong(f *ast.File, lines []string) map[int]bool {
	out := map[int]bool{}
	line := func(p token.Pos) int { return fset.Position(p).Line }
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			switch n.Type.(type) {
			case *ast.ArrayType, *ast.MapType:
				for _, row := range n.Elts {
					if at := fset.Position(row.Pos()); strings.TrimSpace(lines[at.Line-1][:at.Column-1]) == "" {
						out[at.Line] = true
					}
				}
			}
		case *ast.BasicLit:
			if from, to := line(n.Pos()), line(n.End()); from != to {
				for l := from; l <= to; l++ {
					out[l] = true
				}
			}
		case *ast.Field:
			if n.Tag != nil {
				out[line(n.Tag.Pos())] = true
			}
		}
		return true
	})
	for _, group := range f.Comments {
		for _, c := range group.List {
			if !strings.HasPrefix(c.Text, "// ") || strings.HasPrefix(c.Text, "// +") {
				out[line(c.Pos())] = true
			}
		}
	}
	return out
}

package architecture

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A type that does everything, and files that all reach each other, are what makes a
// package hard to change; lines per function do not show it.
const (
	// maxMethods is how many methods a type may have. Kueue's widest has 76.
	maxMethods = 60
	// maxKnot is how many files of a package may all reach each other.
	maxKnot = 8
	// maxLines is how many lines a package may have, without tests and generated code.
	maxLines = 3500
)

func TestShape(t *testing.T) {
	for _, dir := range slices.Concat(folders(t, "provisioning"), folders(t, "queueing")) {
		p := resolve(t, dir)
		for name, n := range p.methods {
			if n > maxMethods {
				t.Errorf("%s.%s has %d methods; %d are allowed: give some of what it does to another type", dir, name, n, maxMethods)
			}
		}
		if knot := p.knot(); len(knot) > maxKnot {
			t.Errorf("%s: %d files all reach each other; %d may: %s", dir, len(knot), maxKnot, strings.Join(knot, ", "))
		}
		if p.lines > maxLines {
			t.Errorf("%s has %d lines; %d are allowed: it is more than one package", dir, p.lines, maxLines)
		}
	}
}

// shape is what a package looks like, its tests and generated files left out.
type shape struct {
	// methods are counted by the type, lines over all files.
	methods map[string]int
	lines   int
	// reaches has the files that a file uses something of.
	reaches map[string]map[string]bool
}

func resolve(t *testing.T, dir string) shape {
	t.Helper()
	out := shape{methods: map[string]int{}, reaches: map[string]map[string]bool{}}
	var files []*ast.File
	for name, f := range parse(t, dir) {
		if strings.HasSuffix(name, "_test.go") || ast.IsGenerated(f) {
			continue
		}
		files = append(files, f)
		file := fset.File(f.Pos())
		out.lines += file.LineCount()
		out.reaches[filepath.Base(file.Name())] = map[string]bool{}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				out.methods[receiver(fn)]++
			}
		}
	}
	// What other packages declare is not needed to see which file uses which, so they
	// are taken to be empty, and what is missing of them is no error.
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Error: func(error) {}, Importer: empty{}}
	_, _ = conf.Check(dir, fset, files, info)
	at := func(p token.Pos) string { return filepath.Base(fset.Position(p).Filename) }
	for id, o := range info.Uses {
		if from, to := at(id.Pos()), at(o.Pos()); o.Pos().IsValid() && from != to && out.reaches[to] != nil {
			out.reaches[from][to] = true
		}
	}
	return out
}

func receiver(fn *ast.FuncDecl) string {
	switch x := fn.Recv.List[0].Type.(type) {
	case *ast.StarExpr:
		return fmt.Sprint(x.X)
	default:
		return fmt.Sprint(x)
	}
}

// knot is the largest set of files that all reach each other.
func (s shape) knot() (largest []string) {
	for _, a := range slices.Sorted(maps.Keys(s.reaches)) {
		from := s.from(a)
		knot := []string{a}
		for b := range from {
			if b != a && s.from(b)[a] {
				knot = append(knot, b)
			}
		}
		if slices.Sort(knot); len(knot) > len(largest) {
			largest = knot
		}
	}
	return largest
}

// from has all files that are reached from one.
func (s shape) from(a string) map[string]bool {
	seen := map[string]bool{}
	next := []string{a}
	for len(next) > 0 {
		last := next[len(next)-1]
		next = next[:len(next)-1]
		for b := range s.reaches[last] {
			if !seen[b] {
				seen[b] = true
				next = append(next, b)
			}
		}
	}
	return seen
}

// empty imports every package as an empty one.
type empty struct{}

func (empty) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return importer.Default().Import(path)
	}
	p := types.NewPackage(path, path[strings.LastIndex(path, "/")+1:])
	p.MarkComplete()
	return p, nil
}

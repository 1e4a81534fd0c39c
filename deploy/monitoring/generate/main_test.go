package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheDashboardsAreThoseOfTheCode(t *testing.T) {
	read := func(folder string) map[string]string {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(folder, "*"))
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			out[filepath.Base(f)] = string(text)
		}
		return out
	}
	fresh := filepath.Join(t.TempDir(), "dashboards")
	if err := run(fresh); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(read("../../charts/muster/files/dashboards"), read(fresh)); diff != "" {
		t.Errorf("the dashboards are out of date; run make generate (-written +true)\n%s", diff)
	}
}

// TestRowsFillTheirWidth: panels that leave a gap, or do not fit, are laid out badly.
func TestRowsFillTheirWidth(t *testing.T) {
	for _, b := range boards {
		titles := map[string]bool{}
		for _, r := range b.rows {
			var width uint32
			for _, p := range r.panels {
				if width += p.width; width > 24 {
					t.Errorf("%s: panel %q does not fit beside those before it: they are %d columns wide, of 24", b.name, p.title, width)
				}
				width %= 24
				if titles[p.title] {
					t.Errorf("%s has two panels %q", b.name, p.title)
				}
				titles[p.title] = true
				for _, q := range p.queries {
					if q.legend == "" && p.kind != number {
						t.Errorf("%s: series of panel %q have no name", b.name, p.title)
					}
				}
			}
			if width != 0 {
				t.Errorf("%s: row %q leaves %d columns empty", b.name, r.title, 24-width)
			}
		}
	}
}

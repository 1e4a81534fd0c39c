package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// panel of a dashboard as Grafana reads it.
type panel struct {
	Type    string `json:"type"`
	Title   string `json:"title"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

// dashboards are the panels with queries, by the name of the dashboard.
func dashboards(t *testing.T) map[string][]panel {
	t.Helper()
	files, err := filepath.Glob("../../deploy/charts/muster/files/dashboards/*.json")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]panel{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Panels []panel `json:"panels"`
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for _, p := range board.Panels {
			if p.Type != "row" {
				out[filepath.Base(f)] = append(out[filepath.Base(f)], p)
			}
		}
	}
	return out
}

func TestPanelsQueryMetricsThatExist(t *testing.T) {
	all := dashboards(t)
	if len(all) == 0 {
		t.Fatal("there are no dashboards")
	}
	for name, panels := range all {
		for _, p := range panels {
			if len(p.Targets) == 0 {
				t.Errorf("%s: panel %q asks for nothing", name, p.Title)
			}
			for _, target := range p.Targets {
				exists(t, name+" "+p.Title, target.Expr)
			}
		}
	}
}

package main

import (
	_ "embed"
	"strings"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"
)

//go:embed krew/muster.yaml
var krewManifest string

// TestTheKrewManifestIsWhole once a release has filled it in.
func TestTheKrewManifestIsWhole(t *testing.T) {
	parsed, err := template.New("").Funcs(template.FuncMap{"addURIAndSha": func(address, tag string) string {
		return "uri: " + strings.ReplaceAll(address, "{{ .TagName }}", tag) + "\n    sha256: " + strings.Repeat("a", 64)
	}}).Parse(krewManifest)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := parsed.Execute(&text, map[string]string{"TagName": "v1.2.3"}); err != nil {
		t.Fatal(err)
	}
	var plugin struct {
		Metadata struct{ Name string }
		Spec     struct {
			Version, ShortDescription string
			Platforms                 []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, Sha256, Bin string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(text.String()), &plugin); err != nil {
		t.Fatalf("%v in\n%s", err, text.String())
	}
	if plugin.Metadata.Name != "muster" || plugin.Spec.Version != "v1.2.3" || plugin.Spec.ShortDescription == "" ||
		len(plugin.Spec.Platforms) == 0 {
		t.Errorf("it lacks something: %+v", plugin)
	}
	for _, p := range plugin.Spec.Platforms {
		labels := p.Selector.MatchLabels
		want := "https://github.com/muster-dev/muster/releases/download/v1.2.3/kubectl-muster-" + labels["os"] + "-" + labels["arch"] + ".tar.gz"
		if p.URI != want || !strings.HasPrefix(p.Bin, "kubectl-muster") || len(p.Sha256) != 64 {
			t.Errorf("platform %v: %+v, want the archive %s", labels, p, want)
		}
	}
}

package operators

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

// TestDocumentedVersionsAreTested. Kinds without an operator have no version.
func TestDocumentedVersionsAreTested(t *testing.T) {
	for _, d := range definitions {
		for _, kind := range d.kinds {
			if of, known := kinds.OperatorOf(kind); !known || of.Version != d.version {
				t.Errorf("of %s users are told version %q, and %s is tested with %s", kind, of.Version, d.name, d.version)
			}
		}
	}
	if of, known := kinds.OperatorOf("Job"); known {
		t.Errorf("a Job needs %s", of.Name)
	}
}

func TestChoose(t *testing.T) {
	all := definitions
	t.Cleanup(func() { definitions = all })
	definitions = []definition{{name: "ground"}, {name: "house", needs: []string{"ground"}}, {name: "roof", needs: []string{"house"}}}
	cases := map[string]struct {
		names, want []string
		refuse      string
	}{
		"none":                            {},
		"one":                             {names: []string{"ground"}, want: []string{"ground"}},
		"what is needed comes first":      {names: []string{"roof"}, want: []string{"ground", "house", "roof"}},
		"each once":                       {names: []string{"house", "ground", "house"}, want: []string{"ground", "house"}},
		"an unknown one":                  {names: []string{"ground", "cellar"}, refuse: `no operator "cellar": the operators are ground, house, roof`},
		"an empty name, as of \"house,\"": {names: []string{""}, refuse: `no operator ""`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			chosen, err := choose(c.names)
			if c.refuse != "" {
				if err == nil || !strings.Contains(err.Error(), c.refuse) {
					t.Fatalf("error %v, want one that says %q", err, c.refuse)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range chosen {
				got = append(got, d.name)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("chosen %v, want %v", got, c.want)
			}
		})
	}
}

func TestAKindLacksItsOperator(t *testing.T) {
	for name, c := range map[string]struct {
		kind string
		with []string
		want string
	}{
		"it runs":                      {"JobSet", []string{"jobset"}, ""},
		"another needs it":             {"JobSet", []string{"trainer"}, ""},
		"another runs":                 {"MPIJob", []string{"kubeflow"}, "mpi"},
		"none runs":                    {"RayJob", nil, "ray"},
		"a name that there is not":     {"RayJob", []string{"rai"}, "ray"},
		"a kind that has no operators": {"Job", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Lacking(c.kind, c.with); got != c.want {
				t.Errorf("%q is lacking, want %q", got, c.want)
			}
		})
	}
}

func TestWhatIsNeededIsThere(t *testing.T) {
	if _, err := choose(Names()); err != nil {
		t.Error(err)
	}
	for _, d := range definitions {
		if len(d.manifests) == 0 || !strings.HasPrefix(d.sum, "h1:") || len(d.components) == 0 {
			t.Errorf("%s has the manifests %v, the sum %q and %d components, want some of each", d.name, d.manifests, d.sum, len(d.components))
		}
	}
}

func TestOnlyWebhooksForPodsAreNarrowed(t *testing.T) {
	configuration := &unstructured.Unstructured{Object: map[string]any{"webhooks": []any{
		map[string]any{"name": "mjobset.kb.io", "rules": []any{map[string]any{"resources": []any{"jobsets"}}}},
		map[string]any{"name": "mpod.kb.io", "rules": []any{map[string]any{"resources": []any{"pods"}}}},
	}}}
	if err := forPodsOf("label", []*unstructured.Unstructured{configuration}); err != nil {
		t.Fatal(err)
	}
	var narrowed []string
	err := eachWebhook(configuration, func(webhook map[string]any) {
		if webhook["objectSelector"] != nil {
			narrowed = append(narrowed, webhook["name"].(string))
		}
	})
	if err != nil || !slices.Equal(narrowed, []string{"mpod.kb.io"}) {
		t.Errorf("narrowed %v (%v), want the one for pods", narrowed, err)
	}
}

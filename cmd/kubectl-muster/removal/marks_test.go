package removal

import (
	"testing"

	"github.com/muster-dev/muster/cmd/muster/migration"
)

// TestCRDsAreMarkedAsKueues by what installs Kueue, until Muster's chart may have them.
func TestCRDsAreMarkedAsKueues(t *testing.T) {
	for _, tc := range []struct {
		name, label, release string
		want                 bool
	}{
		{"by Helm", "kueue", "kueue", true},
		{"by kubectl", "kueue", "", true},
		{"taken over from either", "kueue", "muster-crds", false},
		{"by muster manifests", "", "", false},
	} {
		crd := migration.NewCRD()
		if tc.label != "" {
			crd.SetLabels(map[string]string{nameLabel: tc.label})
		}
		if tc.release != "" {
			crd.SetAnnotations(map[string]string{releaseAnnotation: tc.release})
		}
		if got := isOfKueue(crd); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

package cloudprovider

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

type listedAt time.Time

func (l listedAt) ListedAt(*v1alpha1.NodeGroup) time.Time { return time.Time(l) }

func TestListsAt(t *testing.T) {
	created := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name         string
		listed, want time.Time
	}{
		{"listed since it was created", created.Add(time.Minute), created.Add(time.Minute)},
		{"new, and its cloud is watched for long", created.Add(-time.Hour), created},
		{"not known", time.Time{}, time.Time{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := &v1alpha1.NodeGroup{Spec: v1alpha1.NodeGroupSpec{Provider: v1alpha1.ProviderGCP}}
			g.CreationTimestamp = metav1.NewTime(created)
			if got := (Lists{v1alpha1.ProviderGCP: listedAt(tc.listed)}).At(g); !got.Equal(tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	if got := (Lists{}).At(&v1alpha1.NodeGroup{}); !got.IsZero() {
		t.Errorf("a group of a cloud that is not listed was listed at %s", got)
	}
}

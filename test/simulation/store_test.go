package simulation

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// TestStore holds the store against what a real API server does with the writes
// that Muster makes.
func TestStore(t *testing.T) {
	const stale = "1"
	for _, tt := range []struct {
		name  string
		patch string
		part  part
		// want is what is wrong with the patch.
		want func(error) bool
		// written: there is a new version, and all watches see it.
		written bool
		check   func(t *testing.T, before, after *v1alpha1.NodeGroup)
	}{
		{
			name: "a patch changes what it names and nothing else", patch: `{"spec":{"maxNodes":9}}`, written: true,
			check: func(t *testing.T, before, after *v1alpha1.NodeGroup) {
				want := before.DeepCopy()
				want.Spec.MaxNodes, want.Generation, want.ResourceVersion = 9, 2, after.ResourceVersion
				if diff := cmp.Diff(want, after); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			},
		},
		{
			name: "null takes a key away", patch: `{"metadata":{"annotations":{"a":null,"b":"2"}}}`, written: true,
			check: func(t *testing.T, _, after *v1alpha1.NodeGroup) {
				if diff := cmp.Diff(map[string]string{"b": "2"}, after.Annotations); diff != "" {
					t.Errorf("annotations (-want +got):\n%s", diff)
				}
			},
		},
		{
			name: "lists are replaced as a whole",
			patch: `{"status":{"conditions":[` +
				`{"type":"New","status":"True","reason":"R","message":"m","lastTransitionTime":"2000-01-01T00:00:00Z"}]}}`,
			part: status, written: true,
			check: func(t *testing.T, _, after *v1alpha1.NodeGroup) {
				if n := len(after.Status.Conditions); n != 1 || after.Status.Conditions[0].Type != "New" {
					t.Errorf("conditions are %v", after.Status.Conditions)
				}
			},
		},
		{name: "a patch of the object leaves its status alone", patch: `{"status":{"machines":7}}`},
		{name: "a patch of the status leaves the object alone", patch: `{"spec":{"maxNodes":9},"metadata":{"labels":{"x":"y"}}}`, part: status},
		{
			name: "a status is no generation", patch: `{"status":{"machines":7}}`, part: status, written: true,
			check: func(t *testing.T, _, after *v1alpha1.NodeGroup) {
				if after.Generation != 1 || after.Status.Machines != 7 {
					t.Errorf("generation %d, machines %d", after.Generation, after.Status.Machines)
				}
			},
		},
		{name: "what changes nothing is not written", patch: `{"spec":{"maxNodes":4}}`},
		{name: "an old version conflicts", patch: `{"metadata":{"resourceVersion":"` + stale + `"},"spec":{"maxNodes":9}}`, want: apierrors.IsConflict},
		{name: "an old version conflicts also where nothing changes", patch: `{"metadata":{"resourceVersion":"` + stale + `"}}`, part: status, want: apierrors.IsConflict},
		{name: "the newest version does not conflict", patch: `{"metadata":{"resourceVersion":"2"},"spec":{"maxNodes":9}}`, written: true},
		{name: "a label that is none is refused", patch: `{"metadata":{"labels":{"x":"a value with blanks"}}}`, want: apierrors.IsInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore()
			var versions []string
			s.onChange = func(o client.Object, _ bool) { versions = append(versions, o.GetResourceVersion()) }
			made := newGroup("group", func(g *v1alpha1.NodeGroup) {
				g.Annotations = map[string]string{"a": "1"}
				g.Status.Conditions = []metav1.Condition{{Type: "Old"}}
			})
			must(t, s, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
			must(t, s, made)
			before := find[*v1alpha1.NodeGroup](s, "", "group")
			_, err := s.patch(made, []byte(tt.patch), tt.part)
			if tt.want == nil && err != nil || tt.want != nil && !tt.want(err) {
				t.Fatalf("the patch ended with %v", err)
			}
			after := find[*v1alpha1.NodeGroup](s, "", "group")
			want := []string{"1", "2"}
			if tt.written {
				want = append(want, "3")
			}
			if diff := cmp.Diff(want, versions); diff != "" || (after.ResourceVersion == "3") != tt.written {
				t.Errorf("versions told (-want +got):\n%s", diff)
			}
			if tt.check != nil {
				tt.check(t, before, after)
			}
		})
	}
}

func must(t *testing.T, s *store, o client.Object) {
	t.Helper()
	if _, err := s.create(o); err != nil {
		t.Fatal(err)
	}
}

func TestStoreMakesAndDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		deleted := ""
		s.onChange = func(o client.Object, gone bool) {
			if gone {
				deleted = o.GetResourceVersion()
			}
		}
		<-time.After(1500 * time.Millisecond)
		r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"}}
		must(t, s, r)
		first := find[*provreq.ProvisioningRequest](s, "ns", "r")
		if r.UID != "" || first.UID == "" || first.CreationTimestamp.Nanosecond() != 0 || first.CreationTimestamp.Unix() != time.Now().Unix() {
			t.Errorf("made %+v of %+v", first.ObjectMeta, r.ObjectMeta)
		}
		if _, err := s.create(r); !apierrors.IsAlreadyExists(err) {
			t.Errorf("making it again ended with %v", err)
		}
		if err := s.delete(r); err != nil {
			t.Fatal(err)
		}
		if version, _ := strconv.Atoi(deleted); version != 2 {
			t.Errorf("the version of the deletion is %q, want 2", deleted)
		}
		if err := s.delete(r); !apierrors.IsNotFound(err) {
			t.Errorf("deleting it again ended with %v", err)
		}
		if _, err := s.patch(r, []byte(`{}`), object); !apierrors.IsNotFound(err) {
			t.Errorf("patching it ended with %v", err)
		}
		must(t, s, r)
		if again := find[*provreq.ProvisioningRequest](s, "ns", "r"); again.UID == first.UID {
			t.Errorf("made again, it has the UID %s of the one before", again.UID)
		}
	})
}

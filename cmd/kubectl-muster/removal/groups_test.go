package removal

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestWorkloadsOfGroupsAreAsKueueMakesThem: what is controlled by another than the pods is no Workload of theirs to Kueue, which then stops
// them. Others stay as they are.
func TestWorkloadsOfGroupsAreAsKueueMakesThem(t *testing.T) {
	controlled := func(name, kind string) *kueue.Workload {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		w.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "serve", UID: types.UID(name),
			Controller: new(true)}}
		return w
	}
	scheme, err := view.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(controlled("set", "StatefulSet"),
		controlled("group", "LeaderWorkerSet"), controlled("job", "Job")).Build()
	m := &Migration{Removal: Removal{Kube: kube}}
	items, err := m.groups(t.Context())
	if err != nil || len(items) != 2 || items[1].what != "make Workload default/set one of a group of pods" {
		t.Fatalf("%d items: %+v (%v)", len(items), items, err)
	}
	for _, i := range items {
		if err := i.do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for name, isGroup := range map[string]bool{"set": true, "group": true, "job": false} {
		w := &kueue.Workload{}
		if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, w); err != nil {
			t.Fatal(err)
		}
		if workload.IsGroup(w) != isGroup || (metav1.GetControllerOf(w) == nil) != isGroup || len(w.OwnerReferences) != 1 {
			t.Errorf("Workload %s is of a group: %v, owners %v", name, workload.IsGroup(w), w.OwnerReferences)
		}
	}
	if items, err := m.groups(t.Context()); len(items) > 0 || err != nil {
		t.Errorf("a second time %d items are left (%v)", len(items), err)
	}
}

package podgroup

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// prebuild creates a Workload of three pods for a group, as a user may.
func prebuild(g *rig, annotations map[string]string) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ring", UID: "prebuilt", Annotations: annotations}}
	w.Spec.QueueName, w.Spec.Priority = "main", new(int32(7))
	like := &corev1.Pod{}
	like.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
	}}}
	w.Spec.PodSets = []kueue.PodSet{{Name: kueue.PodSetReference(roleOf(like)), Count: 3}}
	w.Spec.PodSets[0].Template.Spec.Containers = like.Spec.Containers
	if err := g.c.Create(g.t.Context(), w); err != nil {
		g.t.Fatal(err)
	}
	return w
}

// byPrebuilt are the annotations of a group of three that names its Workload.
var byPrebuilt = append([]string{workload.PrebuiltLabel, "ring"}, inGroup...)

// TestAPrebuiltGroup waits for its pods, whether or not it says that it is of a group, and is what they run by.
func TestAPrebuiltGroup(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"as users write it": nil, "marked as Kueue's own are": {workload.GroupAnnotation: "true"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			prebuild(g, annotations)
			g.settle(ringKey())
			g.is("none is there", " | 3")
			g.pod("a", "1", byPrebuilt...)
			g.pod("b", "1", byPrebuilt...)
			g.settle(ringKey())
			g.is("one is missing", "a held, b held | 3")
			g.pod("c", "1", byPrebuilt...)
			g.settle(ringKey())
			g.is("all are there", "a held, b held, c held | 3")
			w := g.workload()
			if w.UID != "prebuilt" || len(w.OwnerReferences) != 3 || *w.Spec.Priority != 7 || !workload.IsGroup(w) {
				t.Errorf("it is %s with the priority %d, owned by %v", w.UID, *w.Spec.Priority, w.OwnerReferences)
			}
			g.admit()
			g.settle(ringKey())
			g.is("they start", "a open, b open, c open | 3 QuotaReserved Admitted")
		})
	}
}

// TestAPrebuiltGroupThatIsAdmittedFirst starts its pods as soon as all are there.
func TestAPrebuiltGroupThatIsAdmittedFirst(t *testing.T) {
	g := newRig(t)
	prebuild(g, nil)
	g.admit()
	g.settle(ringKey())
	g.is("none is there", " | 3 QuotaReserved Admitted")
	for _, name := range []string{"a", "b", "c"} {
		g.pod(name, "1", byPrebuilt...)
		g.settle(ringKey())
	}
	g.is("all are there", "a open, b open, c open | 3 QuotaReserved Admitted")
}

// TestAPrebuiltGroupIsAwaited: pods that name a Workload get no other.
func TestAPrebuiltGroupIsAwaited(t *testing.T) {
	g := newRig(t)
	for _, name := range []string{"a", "b", "c"} {
		g.pod(name, "1", byPrebuilt...)
	}
	g.settle(ringKey())
	g.is("it is not there", "a held, b held, c held |")
	w := prebuild(g, nil)
	if keys := g.r.gangOfWorkload(t.Context(), w); len(keys) != 1 || keys[0] != ringKey() {
		t.Errorf("its event asks for %v", keys)
	}
	g.settle(ringKey())
	if g.is("it is", "a held, b held, c held | 3"); g.workload().UID != "prebuilt" {
		t.Error("it is another one")
	}
}

// TestAPrebuiltGroupForOtherPods is finished.
func TestAPrebuiltGroupForOtherPods(t *testing.T) {
	g := newRig(t)
	prebuild(g, nil)
	g.pod("a", "1", byPrebuilt...)
	g.pod("b", "1", byPrebuilt...)
	g.pod("c", "2", byPrebuilt...)
	g.settle(ringKey())
	g.is("one is larger", "a held, b held, c held | 3 Finished")
}

// TestAGroupLosesItsPods: a Workload that Muster made goes with them, also where they leave it without owners.
func TestAGroupLosesItsPods(t *testing.T) {
	for name, owned := range map[string]bool{"deleted": true, "deleted with --cascade=orphan": false} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			for _, name := range []string{"a", "b", "c"} {
				g.pod(name, "1", inGroup...)
			}
			g.settle(ringKey())
			g.is("it queues", "a held, b held, c held | 3")
			if w := g.workload(); !owned {
				w.OwnerReferences = nil
				if err := g.c.Update(t.Context(), w); err != nil {
					t.Fatal(err)
				}
			}
			g.set("", "a", "b", "c")
			g.settle(ringKey())
			g.is("it goes", " |")
		})
	}
}

// TestAWorkloadOfNoPods that has the name of a group is not changed, and an event reports that on the pods.
func TestAWorkloadOfNoPods(t *testing.T) {
	g := newRig(t)
	prebuild(g, nil)
	g.pod("a", "1", inGroup...)
	if _, err := g.r.Reconcile(t.Context(), ringKey()); err == nil {
		t.Error("pods that do not name it take it")
	}
	g.is("it stays", "a held | 3")
}

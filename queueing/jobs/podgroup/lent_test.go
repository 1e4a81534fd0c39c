package podgroup

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// record has the Workload say in which clusters copies may be.
func (g *rig) record(clusters ...string) {
	g.t.Helper()
	w := g.workload()
	record := dispatch.Record{In: clusters}
	metav1.SetMetaDataAnnotation(&w.ObjectMeta, dispatch.Annotation, record.Encode())
	if err := g.c.Update(g.t.Context(), w); err != nil {
		g.t.Fatal(err)
	}
}

// TestPodsThatRunElsewhere stay gated in the manager, and keep their quota until no cluster has anything of them.
func TestPodsThatRunElsewhere(t *testing.T) {
	g := newRig(t)
	for _, name := range []string{"a", "b", "c"} {
		g.pod(name, "1", inGroup...)
	}
	g.settle(ringKey())
	g.record("west")
	g.admit()
	g.status(func(s *kueue.WorkloadStatus) { s.ClusterName = new("west") })
	g.settle(ringKey())
	g.is("a cluster has them", "a held, b held, c held | 3 QuotaReserved Admitted PodsReady")
	g.set(corev1.PodSucceeded, "a")
	g.settle(ringKey())
	g.is("one has run there", "a held, b held, c held | 3-1 QuotaReserved Admitted PodsReady")
	g.evict()
	g.status(func(s *kueue.WorkloadStatus) { s.ClusterName = nil })
	g.settle(ringKey())
	g.is("it is evicted, and the cluster still has some", "a held, b held, c held | 3-1 QuotaReserved Admitted PodsReady Evicted")
	g.record()
	g.settle(ringKey())
	g.is("none has any more", "a held, b held, c held | 3-1 Evicted")
}

// TestPodsOfACopy run by it: it is there before them, and they do not delete it.
func TestPodsOfACopy(t *testing.T) {
	theirs := func(name string, annotations map[string]string) *kueue.Workload {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: "copy", Labels: map[string]string{kueue.MultiKueueOriginLabel: "multikueue"},
			Annotations: annotations,
		}}
		w.Spec.QueueName = "main"
		w.Spec.PodSets = []kueue.PodSet{{Name: kueue.DefaultPodSetName, Count: 1}}
		w.Spec.PodSets[0].Template.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}}}
		return w
	}
	by := func(name string) []string { return []string{workload.PrebuiltLabel, name} }
	fromManager := func(g *rig, o client.Object) {
		g.t.Helper()
		o.SetLabels(map[string]string{jobs.QueueLabel: "main", workload.ManagedLabel: "true", kueue.MultiKueueOriginLabel: "multikueue"})
		if err := g.c.Update(g.t.Context(), o); err != nil {
			g.t.Fatal(err)
		}
	}
	t.Run("group", func(t *testing.T) {
		w := theirs("ring", map[string]string{workload.GroupAnnotation: "true"})
		w.Spec.PodSets[0].Count = 3
		g := newRig(t, w)
		g.settle(ringKey())
		g.is("it waits for its pods", " | 3")
		g.admit()
		for i, name := range []string{"a", "b", "c"} {
			fromManager(g, g.pod(name, "1", append(by("ring"), inGroup...)...))
			if g.settle(ringKey()); i == 1 {
				g.is("until all are there", "a held, b held | 3 QuotaReserved Admitted")
			}
		}
		g.is("all are", "a open, b open, c open | 3 QuotaReserved Admitted")
		if owners := g.workload().OwnerReferences; len(owners) != 3 {
			t.Errorf("it is owned by %v", owners)
		}
	})
	t.Run("pod", func(t *testing.T) {
		g := newRig(t, theirs("pod-train-00000", nil))
		p := g.pod("train", "1", by("pod-train-00000")...)
		fromManager(g, p)
		k, _ := keyOf(p)
		g.settle(k)
		g.is("it queues by the copy", "train held | 1")
		if !metav1.IsControlledBy(g.workload(), p) {
			t.Errorf("the copy is owned by %v", g.workload().OwnerReferences)
		}
		g.admit()
		g.settle(k)
		g.is("it starts", "train open | 1 QuotaReserved Admitted")
	})
	t.Run("pod before its copy is seen", func(t *testing.T) {
		g := newRig(t)
		p := g.pod("train", "1", by("pod-train-00000")...)
		fromManager(g, p)
		k, _ := keyOf(p)
		g.settle(k)
		g.is("it makes none", "train held |")
	})
	t.Run("StatefulSet", func(t *testing.T) {
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "db", UID: "uid-db", Labels: map[string]string{jobs.QueueLabel: "main",
				kueue.MultiKueueOriginLabel: "multikueue"},
			Annotations: map[string]string{workload.PrebuiltLabel: "statefulset-db-00000"},
		}}
		set.Spec.Replicas = new(int32(1))
		set.Spec.Template.Annotations = map[string]string{parentAnnotation: statefulSetParent}
		g := newRig(t, set, theirs("statefulset-db-00000", nil))
		k := gangOfStatefulSet(t.Context(), set)[0]
		g.settle(k)
		g.admit()
		p := g.pod("db-0", "1", parentAnnotation, statefulSetParent)
		controlledBySet(p, "db")
		if err := g.c.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		g.settle(k)
		g.is("it runs by the copy", "db-0 open | 1 QuotaReserved Admitted")
		if owner := metav1.GetControllerOf(g.workload()); owner == nil || owner.UID != "uid-db" {
			t.Errorf("the copy is owned by %v", owner)
		}
	})
}

// TestGroupsOfACopy: those of a LeaderWorkerSet of another cluster's manager run by copies that are named after the one there, and there
// are no others. One that loses its copy is stopped.
func TestGroupsOfACopy(t *testing.T) {
	object := aLeaderWorkerSet()
	object.SetLabels(map[string]string{jobs.QueueLabel: "main", kueue.MultiKueueOriginLabel: "multikueue"})
	object.SetAnnotations(map[string]string{kueue.MultiKueueOriginUIDAnnotation: "uid-there"})
	named := &unstructured.Unstructured{}
	named.SetName("llm-1")
	named.SetUID("uid-there")
	k := gangsOfLeaderWorkerSet(t.Context(), object)[1]
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: jobs.WorkloadName(leaderWorkerSetKind, named), UID: "copy",
		Labels: map[string]string{kueue.MultiKueueOriginLabel: "multikueue"},
		// As a stock Kueue marks it.
		Annotations: map[string]string{workload.GroupIndexAnnotation: "1", workload.GroupAnnotation: "true"},
	}}
	w.Spec.QueueName = "main"
	set, err := leaderWorkerGroupOf(k, object)
	if err != nil {
		t.Fatal(err)
	}
	w.Spec.PodSets = set.podSets
	t.Run("no copy", func(t *testing.T) {
		g := newRig(t, object.DeepCopy())
		g.settle(k)
		g.is("it makes none", " |")
	})
	g := newRig(t, object.DeepCopy(), w)
	g.settle(k)
	g.is("it queues by the copy", " | 1 2")
	if owner := metav1.GetControllerOf(g.workload()); owner == nil || owner.UID != "uid-llm" {
		t.Errorf("the copy is owned by %v", g.workload().OwnerReferences)
	}
	if got, ok := keyOfWorkload(g.workload()); got != k || !ok {
		t.Errorf("the copy is that of %v", got)
	}
	g.admit()
	g.leaderWorkerPods("1", 0, 3)
	g.settle(k)
	g.is("it starts", "llm-1-0 open, llm-1-1 open, llm-1-2 open | 1 2 QuotaReserved Admitted")
	if err := g.c.Delete(t.Context(), g.workload()); err != nil {
		t.Fatal(err)
	}
	g.settle(k)
	g.is("its copy is gone", " |")
}

// TestAPodShowsWhatAnotherDoes, except for conditions about scheduling while it has no node.
func TestAPodShowsWhatAnotherDoes(t *testing.T) {
	pod := func(phase, scheduled, reason string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": phase, "conditions": []any{
			map[string]any{"type": "Ready", "status": "False"},
			map[string]any{"type": "PodScheduled", "status": scheduled, "reason": reason},
		}}}}
	}
	here := pod("Running", "False", "SchedulingGated")
	for _, c := range []struct {
		name  string
		there *unstructured.Unstructured
		want  string
	}{
		{"it has no node", pod("Pending", "False", "Unschedulable"), "Pending False SchedulingGated 2"},
		{"it has one", pod("Running", "True", ""), "Running True  2"},
		{"it is gone", nil, "Pending False SchedulingGated 1"},
	} {
		if c.there == nil {
			here = pod("Running", "True", "")
		}
		status := Lendable{podKind}.Shown(here, c.there).(map[string]any)
		got := fmt.Sprint(status["phase"])
		conditions := status["conditions"].([]any)
		for _, x := range conditions {
			if isScheduled(x) {
				got += fmt.Sprintf(" %v %v %d", x.(map[string]any)["status"], x.(map[string]any)["reason"], len(conditions))
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.name, diff)
		}
	}
	if got := (Lendable{statefulSetKind}).Shown(here, pod("", "", "")); got != nil {
		t.Errorf("a StatefulSet, which has its own controller here, shows %v", got)
	}
}

// TestAPodIsMadeElsewhereAsItsUserWroteIt: what was resolved by the classes of this cluster is not its user's.
func TestAPodIsMadeElsewhereAsItsUserWroteIt(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "train", UID: types.UID("u")}}
	pod.Spec.PriorityClassName, pod.Spec.Priority = "high", new(int32(100))
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: Gate}, {Name: topologyGate}}
	Lendable{podKind}.Delegate(pod)
	if pod.Spec.Priority != nil || pod.Spec.PriorityClassName != "high" || len(pod.Spec.SchedulingGates) != 1 || !isGated(pod) {
		t.Errorf("it is made as %+v", pod.Spec)
	}
}

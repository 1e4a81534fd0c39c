package controller

import (
	"fmt"
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

var leaderWorkerSets = schema.GroupVersionKind{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"}

// serving creates a LeaderWorkerSet with so many groups. Their Workloads have quota in the manager, and are named after the set and the
// number of the group.
func (s *shop) serving(groups int) *unstructured.Unstructured {
	s.Helper()
	set := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(groups)}}}
	set.SetGroupVersionKind(leaderWorkerSets)
	set.SetNamespace("team-a")
	set.SetName("llm")
	if err := s.manager.Create(s.Context(), set); err != nil {
		s.Fatal(err)
	}
	for i := range groups {
		name := fmt.Sprint("llm-", i)
		s.queued(name)
		w := s.workload(name)
		w.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, leaderWorkerSets)}
		metav1.SetMetaDataAnnotation(&w.ObjectMeta, workload.GroupIndexAnnotation, fmt.Sprint(i))
		if err := s.manager.Update(s.Context(), w); err != nil {
			s.Fatal(err)
		}
	}
	return set
}

func (s *shop) workload(name string) *kueue.Workload {
	s.Helper()
	w := &kueue.Workload{}
	if err := s.manager.Get(s.Context(), client.ObjectKey{Namespace: "team-a", Name: name}, w); err != nil {
		s.Fatal(err)
	}
	return w
}

// servingIn returns the LeaderWorkerSet in a worker, or nil.
func (s *shop) servingIn(i int) *unstructured.Unstructured {
	s.Helper()
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(leaderWorkerSets)
	err := s.workers[i].Get(s.Context(), client.ObjectKey{Namespace: "team-a", Name: "llm"}, set)
	if client.IgnoreNotFound(err) != nil {
		s.Fatal(err)
	} else if err != nil {
		return nil
	}
	return set
}

func (s *shop) evicted(name string) {
	s.Helper()
	s.status(s.manager, name, func(w *kueue.Workload) {
		is(w, kueue.WorkloadEvicted)
		w.Status.ClusterName = nil
	})
	s.dispatch(name)
}

// TestGroupsOfALeaderWorkerSetRunInOneCluster: the first chooses it, and the others follow. The object stays as long as one group runs: a
// group that leaves earlier is stopped through its copy.
func TestGroupsOfALeaderWorkerSetRunInOneCluster(t *testing.T) {
	s := newShop(t, 2)
	set := s.serving(2)
	s.dispatch("llm-1")
	if got := s.record("llm-1"); !strings.Contains(got.Waits, "worker-0 lacks the first group of LeaderWorkerSet llm") || len(got.In) > 0 {
		t.Errorf("before the first group has a cluster, the record of the second is %+v", got)
	}
	byName := s.copies.workers.byName
	byName[workerName(0)].connected = false
	if at := s.admitted("llm-0"); at != 1 {
		t.Fatalf("worker %d has it", at)
	}
	byName[workerName(0)].connected = true
	there := s.servingIn(1)
	if there == nil || prebuiltOf(there) != "" || there.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation] != string(set.GetUID()) ||
		there.GetLabels()[kueue.MultiKueueOriginLabel] != "multikueue" {
		t.Fatalf("it is made as %+v", there)
	}
	if got := s.copyIn(1, "llm-0").Annotations[workload.GroupAnnotation]; got != "true" {
		t.Errorf("its copy is of a group: %q", got)
	}
	byName[workerName(1)].connected = false
	s.dispatch("llm-1")
	if got := s.record("llm-1"); !strings.Contains(got.Waits,
		"worker-0 lacks the other groups of LeaderWorkerSet llm, which run in worker-1") {
		t.Errorf("while that cluster cannot be reached, the record of the second is %+v", got)
	}
	byName[workerName(1)].connected = true
	if at := s.admitted("llm-1"); at != 1 {
		t.Errorf("the second group is in worker %d", at)
	}

	if err := unstructured.SetNestedField(set.Object, int64(3), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	if err := s.manager.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	s.dispatch("llm-0")
	if n, _, _ := unstructured.NestedInt64(s.servingIn(1).Object, "spec", "replicas"); n != 3 {
		t.Errorf("once it has three groups here, it has %d there", n)
	}

	s.evicted("llm-1")
	theirs := s.copyIn(1, "llm-1")
	if theirs == nil || workload.IsActive(theirs) || s.servingIn(1) == nil {
		t.Fatalf("a group leaves, its copy is %+v, and the LeaderWorkerSet is there: %t", theirs, s.servingIn(1) != nil)
	}
	if got := s.record("llm-1"); len(got.In) != 1 {
		t.Errorf("while its pods stop, its record is %+v", got)
	}
	s.status(s.workers[1], "llm-1", func(w *kueue.Workload) {
		w.Status.Admission = nil
		apimeta.RemoveStatusCondition(&w.Status.Conditions, kueue.WorkloadQuotaReserved)
	})
	s.dispatch("llm-1")
	s.dispatch("llm-1")
	if got := s.record("llm-1"); s.copyIn(1, "llm-1") != nil || len(got.In) > 0 || s.servingIn(1) == nil {
		t.Errorf("it has left, its record is %+v, the LeaderWorkerSet is there: %t", got, s.servingIn(1) != nil)
	}
	if w := s.workload("llm-0"); ptr.Deref(w.Status.ClusterName, "") != workerName(1) || s.copyIn(1, "llm-0") == nil {
		t.Errorf("the other has the status %+v", w.Status)
	}

	s.evicted("llm-0")
	s.dispatch("llm-0")
	if got := s.record("llm-0"); s.copyIn(1, "llm-0") != nil || len(got.In) > 0 || s.servingIn(1) != nil {
		t.Errorf("the last has left, its record is %+v, the LeaderWorkerSet is there: %t", got, s.servingIn(1) != nil)
	}
}

// TestALeaderWorkerSetThatIsDeletedGoesAtOnce, and one that loses a group in the manager does not.
func TestALeaderWorkerSetThatIsDeletedGoesAtOnce(t *testing.T) {
	for name, deleted := range map[string]bool{"deleted": true, "scaled down": false} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, 2)
			set := s.serving(2)
			at := s.admitted("llm-0")
			s.admitted("llm-1")
			if deleted {
				if err := s.manager.Delete(t.Context(), set); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.manager.Delete(t.Context(), s.workload("llm-1")); err != nil {
				t.Fatal(err)
			}
			s.dispatch("llm-1")
			if theirs := s.copyIn(at, "llm-1"); theirs != nil && workload.IsActive(theirs) {
				t.Errorf("its group runs on by %+v", theirs)
			}
			if left := s.servingIn(at) != nil; left == deleted {
				t.Errorf("it is left in the worker: %t", left)
			}
		})
	}
}

// TestGroupsThatLeaveTogether leave nothing behind: each reads the record of the other live.
func TestGroupsThatLeaveTogether(t *testing.T) {
	s := newShop(t, 2)
	s.serving(2)
	at := s.admitted("llm-0")
	s.admitted("llm-1")
	for range 3 {
		for _, name := range []string{"llm-0", "llm-1"} {
			s.evicted(name)
			if s.copyIn(at, name) == nil {
				continue
			}
			s.status(s.workers[at], name, func(w *kueue.Workload) {
				w.Status.Admission = nil
				apimeta.RemoveStatusCondition(&w.Status.Conditions, kueue.WorkloadQuotaReserved)
			})
		}
	}
	if s.servingIn(at) != nil || s.copyIn(at, "llm-0") != nil || s.copyIn(at, "llm-1") != nil {
		t.Errorf("there are %v, %v and %v", s.servingIn(at), s.copyIn(at, "llm-0"), s.copyIn(at, "llm-1"))
	}
}

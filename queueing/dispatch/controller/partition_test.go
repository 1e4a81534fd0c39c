package controller

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// TestAJobThatEndsWhileItsClusterIsCutOffHasEnded: it is not started again, and its status is copied once the cluster is back.
func TestAJobThatEndsWhileItsClusterIsCutOffHasEnded(t *testing.T) {
	s := newShop(t, 2)
	s.train("train")
	at := s.admitted("train")
	key := client.ObjectKey{Namespace: "team-a", Name: "train"}
	job := &batchv1.Job{}
	if err := s.manager.Get(t.Context(), key, job); err != nil {
		t.Fatal(err)
	}
	job.Spec.Suspend = new(false)
	if err := s.manager.Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	there := s.copies.workers.byName[workerName(at)]
	there.connected = false
	theirs := &batchv1.Job{}
	if err := s.workers[at].Get(t.Context(), key, theirs); err != nil {
		t.Fatal(err)
	}
	theirs.Status.Succeeded = 1
	if err := s.workers[at].Status().Update(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	s.status(s.workers[at], "train", func(w *kueue.Workload) { is(w, kueue.WorkloadFinished) })
	s.dispatch("train")
	standing := func() *kueue.Workload {
		w := &kueue.Workload{}
		if err := s.manager.Get(t.Context(), key, w); err != nil {
			t.Fatal(err)
		}
		return w
	}
	if w := standing(); workload.IsFinished(w) || ptr.Deref(w.Status.ClusterName, "") != workerName(at) {
		t.Errorf("while it is cut off: %+v", w.Status)
	}
	there.connected = true
	s.clock.Step(showEvery)
	s.dispatch("train")
	s.dispatch("train")
	if err := s.manager.Get(t.Context(), key, job); err != nil || job.Status.Succeeded != 1 || !workload.IsFinished(standing()) {
		t.Errorf("once it is back: %+v, %+v, %v", job.Status, standing().Status, err)
	}
	if s.copyIn(0, "train") != nil || s.copyIn(1, "train") != nil {
		t.Error("a copy is left, or another was made")
	}
}

// TestAJobLeavesAClusterThatIsCutOffBeforeItsGrant for another one at once: its copy has a gate, and is deleted once it is observed. An
// granted job stays, and so does one where a new process does not know about a grant.
func TestAJobLeavesAClusterThatIsCutOffBeforeItsGrant(t *testing.T) {
	for name, c := range map[string]struct {
		granted, restarted, moves bool
	}{
		"before":                    {moves: true},
		"after":                     {granted: true},
		"before, and a new process": {restarted: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, 2)
			s.train("train")
			first := s.copies.workers.byName[workerName(0)]
			s.created = func(server string) {
				if server != workerName(0) {
					return
				}
				if first.connected = c.granted; c.restarted {
					s.copies.named = newNamed()
				}
			}
			s.dispatch("train")
			first.connected = false
			s.dispatch("train")
			if moved := s.copyIn(1, "train") != nil; moved != c.moves {
				t.Fatalf("the other cluster has a copy: %t, want %t", moved, c.moves)
			}
			if gated := s.copyIn(0, "train").Annotations[workload.GatedByAnnotation] != ""; gated == c.granted {
				t.Errorf("the copy in the first has a gate: %t", gated)
			}
			s.created, first.connected = nil, true
			s.dispatch("train")
			s.dispatch("train")
			if at := s.workerWithCopy("train"); at == 1 != c.moves {
				t.Errorf("worker %d has the copy once all are connected", at)
			}
		})
	}
}

// TestAJobThatItsWorkerEvictsKeepsItsPlace: it queues in the manager again and may go to another cluster. Its next copy keeps the time
// since the job was queued.
func TestAJobThatItsWorkerEvictsKeepsItsPlace(t *testing.T) {
	s := newShop(t, 2)
	s.train("train")
	since := s.clock.Now()
	at := s.admitted("train")
	s.clock.Step(time.Hour)
	s.status(s.workers[at], "train", func(w *kueue.Workload) {
		w.Status.Admission = nil
		w.Status.Conditions = nil
		is(w, kueue.WorkloadEvicted)
	})
	s.dispatch("train")
	w := s.workload("train")
	if state := w.Status.AdmissionChecks[0]; state.State != kueue.CheckStateRetry ||
		state.Message != `Workload evicted on worker cluster: "worker-0", resetting for re-admission` {
		t.Errorf("its check is %+v", state)
	}
	s.status(s.manager, "train", func(w *kueue.Workload) { w.Status.ClusterName = nil }) // as the queue of the manager does
	s.dispatch("train")
	if s.copyIn(at, "train") != nil || len(s.record("train").In) > 0 {
		t.Errorf("its copy is left, or is on record: %+v", s.record("train"))
	}
	s.status(s.manager, "train", func(w *kueue.Workload) {
		w.Status.AdmissionChecks[0].State, w.Status.Conditions = kueue.CheckStatePending, nil
		is(w, kueue.WorkloadQuotaReserved)
	})
	s.copies.workers.byName[workerName(at)].connected = false
	s.dispatch("train")
	next := s.copyIn(1-at, "train")
	if next == nil || next.Annotations[workload.QueuedSinceAnnotation] != since.UTC().Format(time.RFC3339) {
		t.Errorf("the copy in the other cluster is %+v, want one that waits since %s", next, since)
	}
}

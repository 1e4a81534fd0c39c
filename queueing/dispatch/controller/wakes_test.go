package controller

import (
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
)

// train queues a Job of that name, to run in a worker.
func (s *shop) train(name string) {
	s.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
	job.Spec.ManagedBy, job.Spec.Suspend = new(string(kueue.MultiKueueControllerName)), new(true)
	s.queued(name, job)
}

// TestAJobGoesOnWhereItsClusterIsDeclaredDead, and only there: a new process has not connected to all clusters yet.
func TestAJobGoesOnWhereItsClusterIsDeclaredDead(t *testing.T) {
	for name, c := range map[string]struct {
		exists, listed bool
		retried        bool
	}{
		"its MultiKueueCluster was deleted":                       {false, true, true},
		"its MultiKueueCluster was deleted, its place before":     {false, false, true},
		"it is not looked after yet":                              {true, true, false},
		"it is not looked after yet, and was taken out of before": {true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, 2)
			s.train("train")
			at := workerName(s.admitted("train"))
			delete(s.copies.workers.byName, at)
			if c.exists {
				if err := s.manager.Create(t.Context(), &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: at}}); err != nil {
					t.Fatal(err)
				}
			}
			if !c.listed {
				config := &kueue.MultiKueueConfig{}
				if err := s.manager.Get(t.Context(), client.ObjectKey{Name: "all"}, config); err != nil {
					t.Fatal(err)
				}
				config.Spec.Clusters = slices.DeleteFunc(config.Spec.Clusters, func(n string) bool { return n == at })
				if err := s.manager.Update(t.Context(), config); err != nil {
					t.Fatal(err)
				}
			}
			s.dispatch("train")
			s.dispatch("train")
			w := &kueue.Workload{}
			if err := s.manager.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "train"}, w); err != nil {
				t.Fatal(err)
			}
			record, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation])
			if err != nil {
				t.Fatal(err)
			}
			retried := w.Status.AdmissionChecks[0].State == kueue.CheckStateRetry
			if retried != c.retried || (len(record.In) == 0) != c.retried {
				t.Errorf("its check is %s, its cluster %q, its record %+v", w.Status.AdmissionChecks[0].State, ptr.Deref(w.Status.ClusterName, ""),
					record)
			}
		})
	}
}

// TestEventsOfWorkersEnqueueJobs: a worker that connects or disconnects enqueues the jobs that wait for a cluster, and the owners of
// its copies, which may be deleted in the manager. A LocalQueue of a worker enqueues the jobs of that queue.
func TestEventsOfWorkersEnqueueJobs(t *testing.T) {
	s := newShop(t, 2)
	w := s.copies.workers
	w.changed, w.connections = make(chan event.GenericEvent, 10), make(chan event.GenericEvent, 10)
	s.train("waits")
	other := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "other"}}
	other.Spec.QueueName = "other"
	if err := s.manager.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	s.status(s.manager, "other", func(w *kueue.Workload) {
		w.Status.Admission = &kueue.Admission{ClusterQueue: "cq"}
		is(w, kueue.WorkloadQuotaReserved)
	})
	createCopy(s, s.workers[0], "gone")
	looked := func() (out []string) {
		for {
			select {
			case e := <-w.changed:
				out = append(out, e.Object.GetName())
			case e := <-w.connections:
				for _, r := range s.copies.open(t.Context(), e.Object) {
					out = append(out, r.Name)
				}
			default:
				slices.Sort(out)
				return out
			}
		}
	}
	want := func(when string, names ...string) {
		t.Helper()
		if got := looked(); !slices.Equal(got, names) {
			t.Errorf("%s, %v are looked at, want %v", when, got, names)
		}
	}
	w.enqueueOwners(t.Context(), w.find(workerName(0)))
	want("once a cluster is connected", "gone", "other", "waits")
	send(t.Context(), w.connections, &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "main"}})
	want("once it has a queue", "waits")
	w.enqueueOpen(t.Context(), &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "gpus"}})
	want("once it has a template of claims", "other", "waits")
	w.enqueueOpen(t.Context(), &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "gpus"}})
	want("once it has one of another namespace")
	for _, name := range []string{workerName(0), workerName(1)} {
		w.find(name).stop = func() {}
	}
	w.keep(t.Context(), []kueue.MultiKueueCluster{{ObjectMeta: metav1.ObjectMeta{Name: workerName(0)}}})
	want("once one is gone for good", "other", "waits")
}

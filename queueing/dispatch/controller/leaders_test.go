package controller

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

var (
	musterLease = types.NamespacedName{Namespace: "muster-system", Name: "muster"}
	kueueLease  = types.NamespacedName{Namespace: "kueue-system", Name: "c1f6bfd2.kueue.x-k8s.io"}
)

// renew renews the Lease in a worker, with the time of a clock that is wrong.
func (s *shop) renew(i int, key types.NamespacedName) {
	s.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err := s.workers[i].Get(s.Context(), key, lease)
	if client.IgnoreNotFound(err) != nil {
		s.Fatal(err)
	}
	lease.Spec.RenewTime = new(metav1.NewMicroTime(s.clock.Now().Add(-48 * time.Hour)))
	lease.Spec.LeaseDurationSeconds = new(int32(15))
	write := func() error { return s.workers[i].Update(s.Context(), lease) }
	if err != nil {
		write = func() error { return s.workers[i].Create(s.Context(), lease) }
	}
	if err := write(); err != nil {
		s.Fatal(err)
	}
}

// polls lets the dispatcher poll a worker for a time, while the leaders of these Leases renew them.
func (s *shop) polls(i int, lasts time.Duration, renewed ...types.NamespacedName) {
	s.Helper()
	w := s.copies.workers.byName[workerName(i)]
	for range lasts / pollEvery {
		for _, key := range renewed {
			s.renew(i, key)
		}
		w.idle = s.copies.workers.idle(s.Context(), w.connection)
		s.clock.Step(pollEvery)
	}
}

// leading gives the workers Leases that are renewed.
func leading(t *testing.T, workersNumber int) *shop {
	s := newShop(t, workersNumber)
	s.copies.workers.leases = []types.NamespacedName{musterLease, kueueLease}
	for i := range s.workers {
		s.polls(i, time.Minute, musterLease)
	}
	return s
}

// TestAWorkerIsIdleOnceNoLeaseIsRenewed. A Lease that cannot be read does not make a worker idle.
func TestAWorkerIsIdleOnceNoLeaseIsRenewed(t *testing.T) {
	const long = 3 * time.Minute
	for name, c := range map[string]struct {
		happens func(s *shop)
		idle    bool
	}{
		"no Lease is there":             {func(s *shop) { s.polls(0, long) }, false},
		"Muster renews it":              {func(s *shop) { s.polls(0, long, musterLease) }, false},
		"Muster has stopped":            {func(s *shop) { s.polls(0, long, musterLease); s.polls(0, 2*time.Minute) }, true},
		"it has for less than a minute": {func(s *shop) { s.polls(0, long, musterLease); s.polls(0, 40*time.Second) }, false},
		"Kueue has stopped":             {func(s *shop) { s.polls(0, long, kueueLease); s.polls(0, 2*time.Minute) }, true},
		"it is back": {func(s *shop) {
			s.polls(0, long, musterLease)
			s.polls(0, long)
			s.polls(0, 30*time.Second, musterLease)
		}, false},
		"Kueue was replaced by Muster":             {func(s *shop) { s.polls(0, long, kueueLease); s.polls(0, long, musterLease) }, false},
		"a Lease is left that nothing had renewed": {func(s *shop) { s.renew(0, kueueLease); s.polls(0, long) }, false},
		"the Lease was deleted":                    {func(s *shop) { s.polls(0, long, musterLease); s.deleteLease(0); s.polls(0, long) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, 1)
			s.copies.workers.leases = []types.NamespacedName{musterLease, kueueLease}
			w := s.copies.workers.byName[workerName(0)]
			c.happens(s)
			if idle := w.idle != ""; idle != c.idle {
				t.Errorf("it is idle: %t, because %q", idle, w.idle)
			}
		})
	}
}

func (s *shop) deleteLease(i int) {
	s.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: musterLease.Namespace, Name: musterLease.Name}}
	if err := s.workers[i].Delete(s.Context(), lease); err != nil {
		s.Fatal(err)
	}
}

// TestLeasesAreReadNowAndThen: not with every poll of the worker.
func TestLeasesAreReadNowAndThen(t *testing.T) {
	s := leading(t, 1)
	s.calls = map[string]int{}
	s.polls(0, 5*time.Minute, musterLease)
	if n := s.calls[workerName(0)+" read"]; n > 2*5*3 {
		t.Errorf("in 5 minutes they were read %d times", n)
	}
}

// TestAJobLeavesAWorkerInWhichNothingQueues even if it has quota there. Its copy is deleted before the next is created.
func TestAJobLeavesAWorkerInWhichNothingQueues(t *testing.T) {
	s := leading(t, 2)
	s.queued("job-train", delegatedJob())
	s.dispatch("job-train")
	at := s.workerWithCopy("job-train")
	s.status(s.workers[at], "job-train", func(w *kueue.Workload) {
		w.Status.Admission = &kueue.Admission{ClusterQueue: "cq"}
		is(w, kueue.WorkloadQuotaReserved)
	})
	s.dispatch("job-train")
	if s.workerWithCopy("job-train") != at {
		t.Fatal("it has left at once")
	}
	s.polls(at, 2*time.Minute)
	s.created = func(server string) {
		if s.copyIn(at, "job-train") != nil {
			t.Errorf("%s gets a copy while the first has one", server)
		}
	}
	for range 4 {
		s.dispatch("job-train")
	}
	if s.workerWithCopy("job-train") == at {
		t.Fatal("it waits for a worker in which nothing queues")
	}
	last := s.record("job-train").Refusals
	if len(last) != 1 || last[0].Cluster != workerName(at) || last[0].Reason != dispatch.Late ||
		!strings.Contains(last[0].Message, "has renewed the Lease muster-system/muster for 1m0s") {
		t.Errorf("its record has %+v", last)
	}
}

// TestAJobThatIsNotStartedLeavesAWorkerInWhichNothingQueues. A job that has started keeps running.
func TestAJobThatIsNotStartedLeavesAWorkerInWhichNothingQueues(t *testing.T) {
	for name, c := range map[string]struct{ pod, started bool }{
		"a Job that is suspended": {}, "a Job that runs": {started: true},
		"a pod that is gated": {pod: true}, "a pod that runs": {pod: true, started: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := leading(t, 2)
			var o client.Object = delegatedJob()
			if c.pod {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "train"}}
				pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
				o = pod
			}
			s.queued("job-train", o)
			at := s.admitted("job-train")
			if err := s.workers[at].Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
			if c.started {
				switch o := o.(type) {
				case *batchv1.Job:
					o.Spec.Suspend = new(false)
				case *corev1.Pod:
					o.Spec.SchedulingGates = nil
				}
				if err := s.workers[at].Update(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			s.polls(at, 2*time.Minute)
			s.dispatch("job-train")
			w := s.workload("job-train")
			state := w.Status.AdmissionChecks[0]
			if retried := state.State == kueue.CheckStateRetry; retried == c.started ||
				retried && !strings.Contains(state.Message, "does not start the job: no process there has renewed the Lease") {
				t.Errorf("its check is %+v", state)
			}
			if c.started {
				return
			}
			s.status(s.manager, "job-train", func(w *kueue.Workload) {
				is(w, kueue.WorkloadEvicted)
				w.Status.ClusterName = nil
			})
			for range 4 {
				s.dispatch("job-train")
			}
			err := s.workers[at].Get(t.Context(), client.ObjectKeyFromObject(o), o)
			if !workload.IsEvicted(s.workload("job-train")) || s.copyIn(at, "job-train") != nil || client.IgnoreNotFound(err) != nil || err == nil {
				t.Errorf("left are the copy %t, and the job: %v", s.copyIn(at, "job-train") != nil, err)
			}
		})
	}
}

// TestAMultiKueueClusterSaysThatNothingQueues: its condition reports an idle worker.
func TestAMultiKueueClusterSaysThatNothingQueues(t *testing.T) {
	s := leading(t, 1)
	s.named()
	s.polls(0, 2*time.Minute)
	s.copies.workers.report(t.Context(), s.copies.workers.byName[workerName(0)], nil)
	mkc := &kueue.MultiKueueCluster{}
	if err := s.manager.Get(t.Context(), client.ObjectKey{Name: workerName(0)}, mkc); err != nil {
		t.Fatal(err)
	}
	active := apimeta.FindStatusCondition(mkc.Status.Conditions, kueue.MultiKueueClusterActive)
	if active == nil || active.Status != metav1.ConditionTrue ||
		!strings.Contains(active.Message, "no job is given to the cluster now: no process") {
		t.Errorf("its condition is %+v", active)
	}
}

package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

// named creates the MultiKueueClusters of the workers, and gives each cluster a UID.
func (s *shop) named() {
	s.Helper()
	s.copies.workers.writer = s.manager
	for i, worker := range s.workers {
		system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
		if err := worker.Create(s.Context(), system); err != nil {
			s.Fatal(err)
		}
		mkc := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: workerName(i),
			CreationTimestamp: metav1.NewTime(s.clock.Now().Add(time.Duration(i) * time.Minute))}}
		if err := s.manager.Create(s.Context(), mkc); err != nil {
			s.Fatal(err)
		}
	}
}

// leadsTo replaces the kubeconfig of a worker by that of another cluster, and returns the error.
func (s *shop) leadsTo(name, cluster int) string {
	s.Helper()
	err := s.copies.workers.confirmCluster(s.Context(), workerName(name), s.workers[cluster])
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestAKubeconfigThatLeadsElsewhereIsRefused: otherwise the job in the first cluster would count as gone, and be started again.
func TestAKubeconfigThatLeadsElsewhereIsRefused(t *testing.T) {
	s := newShop(t, 3)
	s.named()
	for i := range 2 {
		if why := s.leadsTo(i, i); why != "" {
			t.Fatalf("worker %d: %s", i, why)
		}
	}
	for what, c := range map[string]struct {
		name, cluster int
		want          string
	}{
		"as it was":                    {0, 0, ""},
		"that of another":              {0, 1, "leads to another cluster"},
		"one that nobody knows":        {0, 2, "leads to another cluster"},
		"a second name for a cluster":  {2, 0, "leads to the cluster of MultiKueueCluster worker-0"},
		"the other one of two swapped": {1, 0, "leads to another cluster"},
	} {
		if why := s.leadsTo(c.name, c.cluster); c.want == "" && why != "" || !strings.Contains(why, c.want) {
			t.Errorf("%s: %q, want %q", what, why, c.want)
		}
	}
	// An admin confirms that the cluster was replaced.
	mkc := &kueue.MultiKueueCluster{}
	if err := s.manager.Get(t.Context(), client.ObjectKey{Name: workerName(0)}, mkc); err != nil {
		t.Fatal(err)
	}
	delete(mkc.Annotations, dispatch.ClusterUIDAnnotation)
	if err := s.manager.Update(t.Context(), mkc); err != nil {
		t.Fatal(err)
	}
	if why := s.leadsTo(0, 2); why != "" {
		t.Errorf("after the annotation was removed: %s", why)
	}
	if why := s.leadsTo(0, 0); !strings.Contains(why, "leads to another cluster") {
		t.Errorf("the former one: %q", why)
	}
}

func delegatedJob() *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "train"}}
	job.Spec.ManagedBy, job.Spec.Suspend = new(string(kueue.MultiKueueControllerName)), new(true)
	return job
}

// has reports whether a worker has the job and its copy.
func (s *shop) has(i int, job *batchv1.Job) (hasJob, hasCopy bool) {
	s.Helper()
	err := s.workers[i].Get(s.Context(), client.ObjectKeyFromObject(job), &batchv1.Job{})
	if client.IgnoreNotFound(err) != nil {
		s.Fatal(err)
	}
	return err == nil, s.copyIn(i, "job-train") != nil
}

// TestWhatWasMadeThroughAnotherNameIsTheManagersOwn: a cluster may get another name, and the owner of a copy does not change by that.
func TestWhatWasMadeThroughAnotherNameIsTheManagersOwn(t *testing.T) {
	s := newShop(t, 2)
	s.queued("job-train", delegatedJob())
	at := s.admitted("job-train")
	byName := s.copies.workers.byName
	other := byName[workerName(1-at)].connection
	other.client, other.cache = byName[workerName(at)].connection.client, asIs{client: s.workers[at]}
	delete(byName, workerName(at)) // it was declared dead, and is listed by its other name
	s.status(s.manager, "job-train", func(w *kueue.Workload) {
		is(w, kueue.WorkloadEvicted)
		w.Status.ClusterName = nil
	})
	for range 4 {
		s.dispatch("job-train")
	}
	if job, its := s.has(at, delegatedJob()); job || its {
		t.Errorf("left is the job %t, the copy %t", job, its)
	}
}

// TestMarksThatAreEditedInAWorker: a user of the worker edits the labels and annotations of a copy. The copy still belongs to the
// manager: it does not run twice, and it is deleted at the end.
func TestMarksThatAreEditedInAWorker(t *testing.T) {
	unlabel := func(o client.Object) { o.SetLabels(nil) }
	relabel := func(o client.Object) { o.SetLabels(map[string]string{kueue.MultiKueueOriginLabel: "other"}) }
	strip := func(o client.Object) {
		o.SetLabels(nil)
		annotations := o.GetAnnotations()
		delete(annotations, dispatch.ManagerAnnotation)
		delete(annotations, dispatch.OriginAnnotation)
		o.SetAnnotations(annotations)
	}
	for name, tc := range map[string]struct {
		kind client.Object
		edit func(client.Object)
	}{
		"a job without its label":       {&batchv1.Job{}, unlabel},
		"a job with another label":      {&batchv1.Job{}, relabel},
		"a job without any mark":        {&batchv1.Job{}, strip},
		"a Workload without its label":  {&kueue.Workload{}, unlabel},
		"a Workload with another label": {&kueue.Workload{}, relabel},
		"a Workload without any mark":   {&kueue.Workload{}, strip},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, 2)
			job := delegatedJob()
			s.queued("job-train", job)
			at := s.admitted("job-train")
			job.Spec.Suspend = new(false)
			if err := s.manager.Update(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			kind, key := tc.kind, client.ObjectKeyFromObject(job)
			if _, ofQueues := kind.(*kueue.Workload); ofQueues {
				key.Name = "job-train"
			}
			s.ownedThere(at, "job-train", job)
			edit := func() {
				if err := s.workers[at].Get(t.Context(), key, kind); err != nil {
					t.Fatal(err)
				}
				tc.edit(kind)
				if err := s.workers[at].Update(t.Context(), kind); err != nil {
					t.Fatal(err)
				}
			}
			edit()
			uid := kind.GetUID()
			worker := s.copies.workers.byName[workerName(at)].connection
			worker.cache = labelled{asIs{client: s.workers[at]}}
			for range 2 {
				s.clock.Step(showEvery)
				s.dispatch("job-train")
			}
			if hasJob, hasCopy := s.has(1-at, job); hasJob || hasCopy {
				t.Errorf("the other worker has the job %t, the copy %t", hasJob, hasCopy)
			}
			if err := s.workers[at].Get(t.Context(), key, kind); err != nil || !s.copies.workers.self.owns(kind) || kind.GetUID() != uid ||
				kind.GetLabels()[kueue.MultiKueueOriginLabel] != s.copies.workers.self.origin {
				t.Errorf("it has the labels %v and the annotations %v: %v", kind.GetLabels(), kind.GetAnnotations(), err)
			}
			edit()
			s.status(s.manager, "job-train", func(w *kueue.Workload) {
				is(w, kueue.WorkloadEvicted)
				w.Status.ClusterName = nil
			})
			for range 4 {
				s.dispatch("job-train")
			}
			if hasJob, hasCopy := s.has(at, job); hasJob || hasCopy {
				t.Errorf("left is the job %t, the copy %t", hasJob, hasCopy)
			}
		})
	}
}

// ownedThere makes the job in a worker the owner of its copy, as the kind's controller does.
func (s *shop) ownedThere(i int, name string, job *batchv1.Job) {
	s.Helper()
	there := &batchv1.Job{}
	if err := s.workers[i].Get(s.Context(), client.ObjectKeyFromObject(job), there); err != nil {
		s.Fatal(err)
	}
	c := s.copyIn(i, name)
	c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(there, batchv1.SchemeGroupVersion.WithKind("Job"))}
	if err := s.workers[i].Update(s.Context(), c); err != nil {
		s.Fatal(err)
	}
}

// TestAWorkloadStaysUntilNoClusterHasIt: it holds the quota for pods that may still run.
func TestAWorkloadStaysUntilNoClusterHasIt(t *testing.T) {
	s := newShop(t, 2)
	s.queued("job-train", delegatedJob())
	at := s.admitted("job-train")
	w := &kueue.Workload{}
	key := types.NamespacedName{Namespace: "team-a", Name: "job-train"}
	there := func() bool {
		err := s.manager.Get(t.Context(), key, w)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return err == nil
	}
	if !there() {
		t.Fatal("it is gone")
	}
	if err := s.manager.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	worker := s.copies.workers.byName[workerName(at)]
	worker.connected = false
	s.dispatch("job-train")
	if !there() || !workload.HasQuota(w) {
		t.Fatal("it is gone while its cluster cannot be reached")
	}
	worker.connected = true
	for range 4 {
		s.dispatch("job-train")
	}
	if hasJob, hasCopy := s.has(at, delegatedJob()); hasJob || hasCopy || there() {
		t.Errorf("left is the job %t, the copy %t, the Workload %t", hasJob, hasCopy, there())
	}
}

// TestACopyHasThePriorityOfItsJob: the value in the manager, not that of the worker's priority class, even after a change.
func TestACopyHasThePriorityOfItsJob(t *testing.T) {
	s := newShop(t, 1)
	s.queued("job-train", delegatedJob())
	prioritize := func(to int32) {
		w := &kueue.Workload{}
		if err := s.manager.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "job-train"}, w); err != nil {
			t.Fatal(err)
		}
		w.Spec.Priority, w.Spec.PriorityClassRef = &to, kueue.NewWorkloadPriorityClassRef("high")
		if err := s.manager.Update(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	prioritize(7)
	s.admitted("job-train")
	if c := s.copyIn(0, "job-train"); ptr.Deref(c.Spec.Priority, -1) != 7 || c.Spec.PriorityClassRef != nil {
		t.Errorf("the copy has the priority %v of class %v", c.Spec.Priority, c.Spec.PriorityClassRef)
	}
	prioritize(100)
	s.dispatch("job-train")
	if c := s.copyIn(0, "job-train"); ptr.Deref(c.Spec.Priority, -1) != 100 {
		t.Errorf("after a change the copy has the priority %v", *c.Spec.Priority)
	}
	c := s.copyIn(0, "job-train")
	c.Spec.Priority = new(int32(3)) // the worker overrides it, and would do so again
	if err := s.workers[0].Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	before, _ := s.writes()
	s.dispatch("job-train")
	if after, _ := s.writes(); after != before {
		t.Errorf("its worker and its manager write in turn: %v", s.calls)
	}
}

// TestNoCopyComesWhereAnotherJobHasTheName: otherwise machines would be launched in vain.
func TestNoCopyComesWhereAnotherJobHasTheName(t *testing.T) {
	s := newShop(t, 2)
	job := delegatedJob()
	local := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}}
	if err := s.workers[0].Create(t.Context(), local); err != nil {
		t.Fatal(err)
	}
	s.queued("job-train", job)
	for range 4 {
		s.dispatch("job-train")
	}
	if n := s.calls[workerName(0)+" write"]; s.workerWithCopy("job-train") != 1 || n > 0 {
		t.Errorf("worker %d was asked, after %d writes to the first", s.workerWithCopy("job-train"), n)
	}
}

// TestAClusterThatDoesNotTakeTheJobIsLeftAlone, even after another admission: its machines were launched in vain.
func TestAClusterThatDoesNotTakeTheJobIsLeftAlone(t *testing.T) {
	s := newShop(t, 2)
	job := delegatedJob()
	s.queued("job-train", job)
	at := s.admitted("job-train")
	there := &batchv1.Job{}
	if err := s.workers[at].Get(t.Context(), client.ObjectKeyFromObject(job), there); err != nil {
		t.Fatal(err)
	}
	s.status(s.workers[at], "job-train", func(w *kueue.Workload) {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue,
			Reason: kueue.WorkloadFinishedReasonOutOfSync, Message: "they differ in template.spec.containers"})
	})
	s.dispatch("job-train")
	w := &kueue.Workload{}
	if err := s.manager.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "job-train"}, w); err != nil {
		t.Fatal(err)
	}
	record, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation])
	if err != nil || w.Status.AdmissionChecks[0].State != kueue.CheckStateRetry || len(record.Refusals) != 1 ||
		record.Refusals[0].Cluster != workerName(at) || record.Refusals[0].Reason != dispatch.Rejected {
		t.Errorf("its check says %s, and its record %+v: %v", w.Status.AdmissionChecks[0].State, record, err)
	}
}

// deleted deletes the MultiKueueCluster of a worker and reconciles. It reports whether the object still exists.
func (s *shop) deleted(i int) (stays bool) {
	s.Helper()
	mkc := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: workerName(i)}}
	if err := s.manager.Delete(s.Context(), mkc); client.IgnoreNotFound(err) != nil {
		s.Fatal(err)
	}
	return s.keeps(i)
}

// keeps reconciles the MultiKueueClusters, and reports whether that of a worker still exists.
func (s *shop) keeps(i int) (stays bool) {
	s.Helper()
	list := &kueue.MultiKueueClusterList{}
	if err := s.manager.List(s.Context(), list); err != nil {
		s.Fatal(err)
	}
	s.copies.workers.keep(s.Context(), list.Items)
	return slices.ContainsFunc(list.Items, func(c kueue.MultiKueueCluster) bool { return c.Name == workerName(i) })
}

// TestAMultiKueueClusterThatIsCreatedAgainAtOnce is used again, although the dispatcher has not observed the deletion.
func TestAMultiKueueClusterThatIsCreatedAgainAtOnce(t *testing.T) {
	s := newShop(t, 2)
	s.named()
	for i := range s.workers {
		if why := s.leadsTo(i, i); why != "" {
			t.Fatal(why)
		}
	}
	workers := s.copies.workers
	workers.connections = make(chan event.GenericEvent, 10)
	there := workers.find(workerName(0))
	if !s.deleted(0) || !there.isDeleted() {
		t.Fatal("the deletion is not noticed")
	}
	if err := workers.release(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	if err := s.manager.Create(t.Context(), &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: there.name}}); err != nil {
		t.Fatal(err)
	}
	if !s.keeps(0) || workers.find(there.name).isDeleted() {
		t.Error("the new one counts as deleted")
	}
}

// TestAClusterWhoseMultiKueueClusterIsDeleted is cleared before its jobs start elsewhere, even by a new process. A cluster that does not
// answer counts as dead after a while.
func TestAClusterWhoseMultiKueueClusterIsDeleted(t *testing.T) {
	for name, c := range map[string]struct{ reached, restarted bool }{
		"it is reached":                           {true, false},
		"it is reached, by a new process":         {true, true},
		"it cannot be reached":                    {false, false},
		"it cannot be reached, and a new process": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, 2)
			s.named()
			for i := range s.workers {
				if why := s.leadsTo(i, i); why != "" {
					t.Fatal(why)
				}
				s.copies.workers.byName[workerName(i)].stop = func() {}
			}
			s.queued("job-train", delegatedJob())
			at := s.admitted("job-train")
			workers := s.copies.workers
			workers.connections = make(chan event.GenericEvent, 10)
			there := workers.find(workerName(at))
			if there.connected = c.reached; !s.deleted(at) {
				t.Fatal("its MultiKueueCluster is gone at once")
			}
			if c.restarted {
				delete(workers.byName, there.name)
				s.dispatch("job-train")
				if state := s.workload("job-train").Status.AdmissionChecks[0].State; state != kueue.CheckStateReady {
					t.Errorf("a new process says %s before it looks after the worker", state)
				}
				again := &worker{name: there.name, stop: func() {}, connection: there.connection, connected: c.reached,
					foreign: map[types.NamespacedName]time.Time{}, refused: map[types.NamespacedName]refusal{}}
				workers.byName[there.name], there = again, again
				s.keeps(at)
			}
			if !there.isDeleted() || len(workers.connections) == 0 {
				t.Fatal("the deletion is not noticed")
			}
			lost := time.Time{}
			if !c.reached {
				lost = s.clock.Now()
			}
			another := ours("another")
			another.Spec.QueueName = "main"
			if lacks := workers.view(t.Context(), there.name, another).Lacks; c.reached && !strings.Contains(lacks, "MultiKueueCluster") {
				t.Errorf("another job may be given to it: it lacks %q", lacks)
			}
			if workers.isCleared(t.Context(), there, lost) {
				t.Fatal("it counts as cleared")
			}
			for range 4 {
				s.dispatch("job-train")
			}
			if hasJob, hasCopy := s.has(at, delegatedJob()); c.reached == (hasJob || hasCopy) {
				t.Errorf("left is the job %t, the copy %t", hasJob, hasCopy)
			}
			if !c.reached {
				s.clock.Step(deadAfter)
			}
			if !workers.isCleared(t.Context(), there, lost) {
				t.Fatal("it does not count as cleared")
			}
			if err := workers.release(t.Context(), there); err != nil {
				t.Fatal(err)
			}
			if s.keeps(at) {
				t.Error("its MultiKueueCluster stays")
			}
			for range 4 {
				s.dispatch("job-train")
			}
			if state := s.workload("job-train").Status.AdmissionChecks[0].State; state != kueue.CheckStateRetry {
				t.Errorf("its check says %s", state)
			}
		})
	}
}

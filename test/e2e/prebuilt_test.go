package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const prebuiltKey = "kueue.x-k8s.io/prebuilt-workload-name"

func naming(workload string) func(*batchv1.Job) {
	return func(j *batchv1.Job) { metav1.SetMetaDataLabel(&j.ObjectMeta, prebuiltKey, workload) }
}

// prebuilt is a Workload for a Job's pods that is not made yet.
func (s *site) prebuilt(name string, like *batchv1.Job, change ...func(*kueue.Workload)) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name}}
	w.Spec.QueueName = kueue.LocalQueueName(s.Name)
	w.Spec.PodSets = []kueue.PodSet{{Name: "pods", Count: *like.Spec.Parallelism, Template: *like.Spec.Template.DeepCopy()}}
	for _, f := range change {
		f(w)
	}
	return w
}

// hasEvent waits for an event of a Job.
func (s *site) hasEvent(j *batchv1.Job, reason, words string) {
	s.Helper()
	var notes []string
	s.Eventually(fmt.Sprintf("Job %s is told %s", j.Name, reason), func() bool {
		var list eventsv1.EventList
		if err := s.Kube.List(s.Context(), &list, client.InNamespace(s.Name)); err != nil {
			return false
		}
		notes = nil
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			if e.Regarding.Name != j.Name {
				return false
			}
			notes = append(notes, e.Reason+": "+e.Note)
			return e.Reason == reason && strings.Contains(e.Note, words)
		})
	}, func() string { return fmt.Sprint(notes) })
}

// TestPrebuiltWorkloads: a Job runs by a Workload that another client has created.
func TestPrebuiltWorkloads(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	j := s.plainJob("train", 2, "1h", naming("mine"))
	s.hasEvent(j, "WaitingForWorkload", "mine")
	if !s.Get(j) || !*j.Spec.Suspend || s.Workload(j) != nil {
		t.Fatalf("suspended: %v, Workload %v", *j.Spec.Suspend, s.Workload(j))
	}
	w := s.prebuilt("mine", j)
	s.Create(w)
	s.runs(j)
	if s.Get(w); !metav1.IsControlledBy(w, j) || w.Labels["kueue.x-k8s.io/job-uid"] != string(j.UID) {
		t.Errorf("owners %v, labels %v", w.OwnerReferences, w.Labels)
	}
	if podSet := j.Spec.Template.Labels["kueue.x-k8s.io/podset"]; podSet != "pods" {
		t.Errorf("the pods are of podSet %q", podSet)
	}

	thief := s.plainJob("thief", 2, "1h", naming("mine"))
	s.hasEvent(thief, "ForeignWorkload", "belongs to Job train")
	if !s.Get(thief) || !*thief.Spec.Suspend {
		t.Error("two Jobs run by one Workload")
	}

	// Its Workload is admitted before the Job comes, for much less than the Job takes.
	small := s.prebuilt("small", thief, func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 1 })
	s.Create(small)
	s.workloadIs(small, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	big := s.plainJob("big", 2, "1h", naming("small"))
	s.hasEvent(big, "OutOfSync", "they differ in spec.podSets[0].count")
	if c := s.workloadIs(small, kueue.WorkloadFinished, metav1.ConditionTrue); c.Reason != kueue.WorkloadFinishedReasonOutOfSync {
		t.Errorf("finished as %s: %s", c.Reason, c.Message)
	}
	if !s.Get(big) || !*big.Spec.Suspend {
		t.Error("a Job runs by the quota of a smaller one")
	}

	s.stopPolicy(kueue.HoldAndDrain)
	s.Eventually("the Job is stopped", func() bool { return s.Get(j) && *j.Spec.Suspend && s.Get(w) && w.Status.Admission == nil },
		func() string { return fmt.Sprint(w.Status.Conditions) })
	s.stopPolicy(kueue.None)
	s.runs(j)
	if again := s.Workload(j); again == nil || again.UID != w.UID {
		t.Errorf("it runs by another Workload: %v", again)
	}
	s.Delete(j)
	s.Eventually("the Workload goes with its Job", func() bool { return !s.Get(w) }, func() string { return fmt.Sprint(w.ObjectMeta) })
	s.Delete(thief)
	s.Delete(big)
}

// TestAPrebuiltWorkloadIsThereBeforeItsJob, which finishes it.
func TestAPrebuiltWorkloadIsThereBeforeItsJob(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	like := s.newPlainJob("train", 2, "1s")
	if err := s.tried(like); err != nil { // with what the API server adds
		t.Fatal(err)
	}
	w := s.prebuilt(strings.Repeat("long.", 20)+"name", like)
	s.Create(w)
	s.workloadIs(w, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	j := s.plainJob("train", 2, "1s", annotated(prebuiltKey, w.Name))
	s.complete(j)
	if c := s.workloadIs(w, kueue.WorkloadFinished, metav1.ConditionTrue); c.Reason != kueue.WorkloadFinishedReasonSucceeded {
		t.Errorf("finished as %s: %s", c.Reason, c.Message)
	}
	if meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadEvicted) {
		t.Error("it was evicted")
	}
	s.Delete(j)
}

// TestAPriorityClassReachesWorkloadsThatOthersMade, with quota and without.
func TestAPriorityClassReachesWorkloadsThatOthersMade(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Value: 10}
	s.Create(class)
	of := func(count int32) func(*kueue.Workload) {
		return func(w *kueue.Workload) {
			w.Spec.PodSets[0].Count = count
			w.Spec.PriorityClassRef, w.Spec.Priority = kueue.NewWorkloadPriorityClassRef(class.Name), new(class.Value)
		}
	}
	like := s.newPlainJob("", 1, "")
	holds, waits := s.prebuilt("holds", like, of(1)), s.prebuilt("waits", like, of(100))
	s.Create(holds, waits)
	s.workloadIs(holds, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	s.workloadIs(waits, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	s.edit(class, func() { class.Value = 20 })
	for _, w := range []*kueue.Workload{holds, waits} {
		s.Eventually("the priority of "+w.Name, func() bool { return s.Get(w) && *w.Spec.Priority == 20 },
			func() string { return fmt.Sprint(*w.Spec.Priority) })
		s.Delete(w)
	}
}

package queues

import (
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// The samples are the examples of Kueue's documentation, in YAML of our own. Each test follows the instructions at the top of its
// queues.yaml.

func TestSampleOfASingleQueue(t *testing.T) {
	t.Parallel()
	s := newSite(t, "single")
	s.apply("queues.yaml")
	s.active("single")
	// The first ends 5 s after its pods run, so the last is created before that.
	var jobs []*batchv1.Job
	for range 3 {
		j := s.job("job.yaml")
		s.condition(j, kueue.WorkloadAdmitted, metav1.ConditionTrue)
		jobs = append(jobs, j)
	}
	last := s.job("job.yaml")
	s.waits(last, "cpu")
	for _, j := range append(jobs, last) {
		s.completes(j)
	}
}

func TestSampleOfACohort(t *testing.T) {
	t.Parallel()
	s := newSite(t, "cohort")
	s.apply("queues.yaml")
	s.active("cohort-a")
	s.active("cohort-b")
	own := s.job("a-own.yaml")
	s.runs(own)
	borrows := s.job("a-borrows.yaml")
	s.runs(borrows)
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cohort-a"}}
	s.Eventually("ClusterQueue cohort-a tells that it borrows 4", func() bool {
		return s.Get(cq) && len(cq.Status.FlavorsUsage) == 1 && cq.Status.FlavorsUsage[0].Resources[0].Borrowed.Value() == 4
	}, func() string { return fmt.Sprint(cq.Status.FlavorsUsage) })
	waits := s.job("a-waits.yaml")
	s.waits(waits, "borrow")

	all := s.job("b.yaml")
	s.runs(all)
	s.preempted(borrows, kueue.InCohortReclamationReason)
	s.admitted(own)
	s.completes(all)
	s.runs(borrows)
}

func TestSampleOfPartialAdmission(t *testing.T) {
	t.Parallel()
	s := newSite(t, "partial")
	s.apply("queues.yaml")
	s.active("partial")
	j := s.job("job.yaml")
	w, _ := s.condition(j, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	if got := w.Status.Admission.PodSetAssignments[0]; got.Count == nil || *got.Count != 9 || got.ResourceUsage.Cpu().Value() != 9 {
		t.Errorf("admitted with %+v, want 9 pods", got)
	}
	s.Eventually("the Job runs 9 pods at once", func() bool { return s.Get(j) && *j.Spec.Parallelism == 9 && j.Status.Active == 9 },
		func() string { return s.standing(j) })
	s.completes(j)
	if j.Status.Succeeded != 20 {
		t.Errorf("%d pods have succeeded, want 20", j.Status.Succeeded)
	}
}

func TestSampleOfPriorities(t *testing.T) {
	t.Parallel()
	s := newSite(t, "priority")
	s.apply("queues.yaml")
	s.active("priority")
	low := s.job("low.yaml")
	s.runs(low)
	high := s.job("high.yaml")
	s.runs(high)
	s.preempted(low, kueue.InClusterQueueReason)
	s.completes(high)
	s.completes(low)
}

func TestSampleOfFairSharing(t *testing.T) {
	t.Parallel()
	s := newSite(t, "fair")
	s.apply("queues.yaml")
	// Team a has all while it is alone, and gives up what is too much when the
	// others come.
	for _, step := range []struct {
		team string
		want []int32
	}{
		{"fair-a", []int32{21, 0, 0}},
		{"fair-b", []int32{7, 14, 0}},
		{"fair-c", []int32{3, 6, 12}},
	} {
		s.active(step.team)
		for i := range 21 {
			s.oneCPU(step.team, "team", fmt.Sprintf("job-%02d", i), time.Hour)
		}
		var got []int32
		s.Eventually(fmt.Sprintf("the teams have %v", step.want), func() bool {
			got = nil
			for _, team := range []string{"fair-a", "fair-b", "fair-c"} {
				cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: team}}
				s.Get(cq)
				got = append(got, cq.Status.AdmittedWorkloads)
			}
			return slices.Equal(got, step.want)
		}, func() string { return fmt.Sprint("They have ", got) })
	}
}

func TestSampleOfACheck(t *testing.T) {
	t.Parallel()
	s := newSite(t, "check")
	s.apply("queues.yaml")
	// From here on we are the check's controller.
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "approval"}}
	s.Get(check)
	patch := client.MergeFrom(check.DeepCopy())
	meta.SetStatusCondition(&check.Status.Conditions, metav1.Condition{Type: kueue.AdmissionCheckActive,
		Status: metav1.ConditionTrue, Reason: "Active"})
	if err := s.Kube.Status().Patch(t.Context(), check, patch); err != nil {
		t.Fatal(err)
	}
	s.active("check")
	j := s.job("job.yaml")
	s.condition(j, kueue.WorkloadQuotaReserved, metav1.ConditionTrue)
	s.calm()
	if w := s.Workload(j); meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted) || !s.Get(j) || !*j.Spec.Suspend {
		t.Errorf("it was started before the check is ready: %s", s.standing(j))
	}
	s.answer(j, kueue.CheckStateReady)
	s.runs(j)
	s.completes(j)
}

func TestSampleOfProvisioning(t *testing.T) {
	t.Parallel()
	s := newSite(t, "provisioning")
	s.apply("queues.yaml")
	s.active("provisioning")
	j := s.job("job.yaml")
	w := s.runs(j)
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: w.Name + "-machines-1"}}
	if !s.Get(r) || !meta.IsStatusConditionTrue(r.Status.Conditions, provreq.Provisioned) {
		t.Fatalf("it runs without its machines: %+v", r.Status.Conditions)
	}
	provisioned := meta.FindStatusCondition(r.Status.Conditions, provreq.Provisioned).LastTransitionTime
	admitted := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime
	if admitted.Before(&provisioned) {
		t.Errorf("it was admitted at %s, its machines were there at %s", admitted, provisioned)
	}
	s.completes(j)
}

// answer sets the state of the only check of the Job's Workload.
func (s *site) answer(j *batchv1.Job, state kueue.CheckState) {
	s.Helper()
	s.Eventually("the check is answered", func() bool {
		w := s.Workload(j)
		if w == nil || len(w.Status.AdmissionChecks) != 1 {
			return false
		}
		patch := client.MergeFromWithOptions(w.DeepCopy(), client.MergeFromWithOptimisticLock{})
		w.Status.AdmissionChecks[0].State, w.Status.AdmissionChecks[0].Message = state, "By the test"
		return s.Kube.Status().Patch(s.Context(), w, patch) == nil // Muster may have written meanwhile
	}, func() string { return s.standing(j) })
}

// admitted checks that the Job has never been evicted.
func (s *site) admitted(j *batchv1.Job) {
	s.Helper()
	w := s.Workload(j)
	if w == nil || !meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted) ||
		meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted) != nil {
		s.Errorf("Job %s was disturbed: %s", j.Name, s.standing(j))
	}
}

// preempted waits until the Job has left its place for that reason.
func (s *site) preempted(j *batchv1.Job, reason string) {
	s.Helper()
	w, evicted := s.condition(j, kueue.WorkloadEvicted, metav1.ConditionTrue)
	if evicted.Reason != kueue.WorkloadEvictedByPreemption {
		s.Errorf("Job %s was evicted for %s: %s", j.Name, evicted.Reason, evicted.Message)
	}
	if c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPreempted); c == nil ||
		c.Status != metav1.ConditionTrue || c.Reason != reason {
		s.Errorf("Job %s: condition Preempted is %+v, want reason %s", j.Name, c, reason)
	}
	s.stopped(j)
}

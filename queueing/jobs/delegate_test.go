package jobs_test

import (
	"context"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/jobs/batch"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestAJobOfAnotherCluster is one from its creation here until that cluster has nothing of it any more.
func TestAJobOfAnotherCluster(t *testing.T) {
	job := suspendedJob(func(j *batchv1.Job) {
		j.Spec.ManagedBy, j.Spec.Completions = new(kueue.MultiKueueControllerName), new(int32(3))
		j.Labels["kueue.x-k8s.io/priority-class"] = "steady"
	})
	template := job.Spec.Template.DeepCopy()
	g := newRig(t, job)
	*g.r.PodsReady() = true
	for name, value := range map[string]int32{"steady": 7, "urgent": 100} {
		class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		if err := g.c.Create(t.Context(), class); err != nil {
			t.Fatal(err)
		}
	}
	g.settle()
	first := g.workload()
	if first.Annotations[workload.RefusedAnnotation] != "" || first.Annotations[workload.DelegatedAnnotation] != "true" {
		t.Fatalf("its Workload has the annotations %v", first.Annotations)
	}
	g.status(func(s *kueue.WorkloadStatus) { admit(s); s.ClusterName = new("far") })
	g.settle()
	if j := g.job(); isSuspended(j) || len(j.Spec.Template.Spec.NodeSelector) != len(template.Spec.NodeSelector) {
		t.Errorf("once admitted it is suspended %t, and its pods select nodes by %v", isSuspended(j), j.Spec.Template.Spec.NodeSelector)
	}

	// The status that it has there comes here: fewer pods are left than it has quota for.
	g.updateJob(func(j *batchv1.Job) {
		j.Status.Active, j.Status.Succeeded, j.Status.StartTime = 1, 2, new(metav1.NewTime(now))
	})
	g.settle()
	if w := g.workload(); w == nil || w.UID != first.UID || !workload.IsAdmitted(w) || !workload.IsTrue(w, kueue.WorkloadPodsReady) ||
		isSuspended(g.job()) {
		t.Fatalf("while its pods end it is suspended %t, by Workload %+v", isSuspended(g.job()), w)
	}

	// Its copy there gets the priority that its Workload has here.
	g.updateJob(func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/priority-class"] = "urgent" })
	g.settle()
	if w := g.workload(); workload.Priority(w) != 100 || !workload.IsAdmitted(w) {
		t.Errorf("with another class it has priority %d, admitted %t", workload.Priority(w), workload.IsAdmitted(w))
	}

	in := func(clusters ...string) {
		w := g.workload()
		patch := client.MergeFrom(w.DeepCopy())
		w.Annotations[dispatch.Annotation] = (&dispatch.Record{In: clusters}).Encode()
		if err := g.c.Patch(context.Background(), w, patch); err != nil {
			t.Fatal(err)
		}
		g.settle()
	}
	in("far")
	g.status(func(s *kueue.WorkloadStatus) { evict(s); s.ClusterName = nil })
	g.settle()
	if w := g.workload(); !isSuspended(g.job()) || !workload.HasQuota(w) {
		t.Errorf("evicted, while a cluster may have it, it is suspended %t, and has quota %t", isSuspended(g.job()), workload.HasQuota(w))
	}
	in()
	if w := g.workload(); workload.HasQuota(w) || w.Spec.PodSets[0].Count != first.Spec.PodSets[0].Count {
		t.Errorf("once no cluster has it, it has quota %t, and queues for %d pods", workload.HasQuota(w), w.Spec.PodSets[0].Count)
	}
}

// TestWhatIsDelegated is a Job as a user would create it, for the Job controller of another cluster.
func TestWhatIsDelegated(t *testing.T) {
	job := suspendedJob(func(j *batchv1.Job) {
		j.Spec.ManagedBy = new(kueue.MultiKueueControllerName)
		j.Spec.TTLSecondsAfterFinished = new(int32(0))
		j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: "1"}}
		j.Spec.Template.Labels = map[string]string{
			"app": "train", "controller-uid": "1", batchv1.ControllerUidLabel: "1", "job-name": "train", batchv1.JobNameLabel: "train",
		}
	})
	batch.Kind{}.Delegate(job)
	if job.Spec.TTLSecondsAfterFinished != nil {
		t.Error("it would be deleted before its end is observed")
	}
	if job.Spec.ManagedBy != nil || job.Spec.Selector != nil || len(job.Spec.Template.Labels) != 1 {
		t.Errorf("it has managedBy %v, selector %v and labels %v", job.Spec.ManagedBy, job.Spec.Selector, job.Spec.Template.Labels)
	}
	manual := suspendedJob(func(j *batchv1.Job) {
		j.Spec.ManualSelector, j.Spec.Selector = new(true), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "train"}}
	})
	batch.Kind{}.Delegate(manual)
	if manual.Spec.Selector == nil {
		t.Error("a selector of the user's own is gone")
	}
}

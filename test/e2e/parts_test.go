package e2e

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ownedByJob has a Job say that another controls it.
func ownedByJob(parent *batchv1.Job) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(parent, batchv1.SchemeGroupVersion.WithKind("Job"))}
	}
}

// TestAJobOfAQueuedJobGoesWithIt, as in Kueue: it has no Workload, and runs while the other does.
// One of a Job that is in no queue queues by itself.
func TestAJobOfAQueuedJobGoesWithIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	free := s.plainJob("free", 1, "1h", noQueue, s.here)
	own := s.plainJob("of-free", 3, "1h", ownedByJob(free))
	s.runs(own)
	if s.Workload(own) == nil {
		t.Error("a Job of one in no queue runs without quota")
	}
	launcher := s.plainJob("launcher", 1, "1h")
	part := s.plainJob("part", 3, "1h", ownedByJob(launcher), s.here)
	s.runs(part)
	late := s.plainJob("late", 3, "1h", ownedByJob(launcher), s.here)
	s.runs(late)
	if w := s.Workload(part); w != nil {
		t.Errorf("a Job of a queued Job has the Workload %s", w.Name)
	}
	w := s.Workload(launcher)
	s.edit(w, func() { w.Spec.Active = new(false) })
	s.Eventually("it stops with the other", func() bool { return s.Get(part) && *part.Spec.Suspend && part.Status.Active == 0 },
		func() string { return fmt.Sprintf("suspended: %v, %+v", *part.Spec.Suspend, part.Status) })
	s.Delete(launcher)
}

// TestAnOwnerInNoQueueExcusesNothing: a Job that claims one is stopped, whatever may start it then.
func TestAnOwnerInNoQueueExcusesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	s.runs(s.plainJob("first", 8, "1h"))
	j := s.plainJob("claims", 1, "1h", owner("jobset.x-k8s.io/v1alpha2", "JobSet"))
	waits := func() bool {
		w := s.Workload(j)
		return s.Get(j) && *j.Spec.Suspend && w != nil && meta.FindStatusCondition(w.Status.Conditions, "QuotaReserved") != nil
	}
	s.Eventually("it waits for quota", waits, func() string { return fmt.Sprintf("suspended: %v; %v", *j.Spec.Suspend, s.Workload(j)) })
	// As the controller of JobSets does at each of its turns.
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"suspend": false}}`))
	if err := s.Kube.Patch(s.Context(), j, patch); err != nil || !*j.Spec.Suspend {
		t.Errorf("its owner's controller starts it: suspended %v, error %v", *j.Spec.Suspend, err)
	}
}

// TestPodsOfAJobInNoQueueQueueOneByOne where its pod template has the label of a queue, as in Kueue. Those of a Job that is in a queue
// go with it, also where an administrator lets it run outside of that.
func TestPodsOfAJobInNoQueueQueueOneByOne(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	labelled := func(j *batchv1.Job) {
		metav1.SetMetaDataLabel(&j.Spec.Template.ObjectMeta, "kueue.x-k8s.io/queue-name", s.Name)
	}
	queued := s.plainJob("queued", 7, "1h", labelled)
	s.runs(queued)
	if all := s.workloads(); len(all) != 1 {
		t.Errorf("the Workloads of a queued Job with its pods are %v", all)
	}
	// A Job without labels gets those of its pod template, by the API server.
	s.plainJob("free", 2, "1h", labelled, func(j *batchv1.Job) { j.Labels = map[string]string{"app": "free"} })
	count := func(phase string) (n int) {
		for name, p := range s.pods() {
			if p == phase && strings.HasPrefix(name, "free-") {
				n++
			}
		}
		return n
	}
	state := func() string { return fmt.Sprint(s.pods(), s.workloads()) }
	s.Eventually("one has quota, and the other waits behind its gate", func() bool {
		return count("Running") == 1 && count("Gated") == 1 && len(s.workloads()) == 3
	}, state)
	exempt := s.newPlainJob("exempt", 1, "1h", labelled)
	exempt.Annotations = map[string]string{"muster.dev/break-glass": "a test"}
	s.Create(exempt)
	patch := client.MergeFrom(exempt.DeepCopy())
	exempt.Spec.Suspend = new(false) // it was created suspended
	if err := s.Kube.Patch(t.Context(), exempt, patch); err != nil {
		t.Fatal(err)
	}
	s.runs(exempt)
	s.Delete(queued, client.PropagationPolicy(metav1.DeletePropagationBackground))
	s.Eventually("both have quota, and run", func() bool { return count("Running") == 2 && len(s.workloads()) == 2 }, state)
}

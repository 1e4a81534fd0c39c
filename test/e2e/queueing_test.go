package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func TestStoryQueuedJobStartsWhenItsMachinesAreThere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	s.queue(g)
	j := s.job("train", 8, func(j *batchv1.Job) { j.Spec.Template.Annotations = map[string]string{"muster.dev/kept": "yes"} })
	if !s.Get(j) || j.Spec.Suspend == nil || !*j.Spec.Suspend {
		t.Error("the Job was not suspended at its creation")
	}
	s.complete(j)
	w := s.Workload(j)
	if w == nil || !meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted) {
		t.Fatalf("workload %v was not admitted", w)
	}
	s.Eventually("the workload is finished", func() bool {
		w = s.Workload(j)
		return w != nil && meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished)
	}, func() string { return fmt.Sprint(w.Status.Conditions) })
	var pods corev1.PodList
	if err := s.Kube.List(t.Context(), &pods, client.InNamespace(s.Name)); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.Spec.NodeSelector[v1alpha1.NodeGroupLabel] != g.Name || p.Annotations["muster.dev/kept"] != "yes" {
			t.Errorf("pod %s has node selector %v and annotations %v", p.Name, p.Spec.NodeSelector, p.Annotations)
		}
	}
	s.Empty(g.Name)
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	s.Eventually("the quota is back", func() bool {
		return s.Get(cq) && cq.Status.ReservingWorkloads == 0 && cq.Status.AdmittedWorkloads == 0
	}, func() string {
		return fmt.Sprintf("%d reserve, %d are admitted", cq.Status.ReservingWorkloads, cq.Status.AdmittedWorkloads)
	})
}

func TestStoryAfterAStockoutTheNextFlavorIsTried(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	holds := int32(7)
	spot := s.Group("-spot", func(g *v1alpha1.NodeGroup) { g.Spec.CapacityType, g.Spec.Kwok.Holds = v1alpha1.Spot, &holds })
	steady := s.Group("-steady", nil)
	s.queue(spot, steady)
	j := s.job("sweep", 8, nil)
	s.complete(j)
	if w := s.Workload(j); w == nil || w.Status.Admission == nil ||
		w.Status.Admission.PodSetAssignments[0].Flavors["nvidia.com/gpu"] != kueue.ResourceFlavorReference(steady.Name) {
		t.Errorf("the workload was admitted as %v, want flavor %s", w, steady.Name)
	}
	s.Empty(spot.Name)
	s.Empty(steady.Name)
}

// TestAJobThatAUserSuspendsGoesOnInItsTurn: the booking of its first attempt is used up, so that it queues for other machines for its
// remaining pods.
func TestAJobThatAUserSuspendsGoesOnInItsTurn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	s.queue(g)
	j := s.job("paused", 2, func(j *batchv1.Job) { j.Spec.Completions = new(int32(7)) })
	s.Eventually("some of the Job's pods have succeeded", func() bool { return s.Get(j) && j.Status.Succeeded > 0 },
		func() string { return fmt.Sprint(j.Status) })
	requests := func() map[types.UID]bool {
		var list provreq.ProvisioningRequestList
		if err := s.Kube.List(t.Context(), &list, client.InNamespace(s.Name)); err != nil {
			t.Fatal(err)
		}
		out := map[types.UID]bool{}
		for i := range list.Items {
			out[list.Items[i].UID] = true
		}
		return out
	}
	first := requests()
	patch := client.MergeFrom(j.DeepCopy())
	j.Spec.Suspend = new(true)
	if err := s.Kube.Patch(t.Context(), j, patch); err != nil {
		t.Fatal(err)
	}
	s.Eventually("another request for capacity", func() bool {
		for uid := range requests() {
			if !first[uid] {
				return true
			}
		}
		return false
	}, func() string { return fmt.Sprint("requests: ", requests()) })
	s.complete(j)
	s.Empty(g.Name)
}

func TestStoryQuotaIsAWallAndAQueue(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) { g.Spec.MaxNodes = 20 })
	s.queue(g) // quota for 8 machines
	first, second := s.job("first", 5, nil), s.job("second", 5, nil)
	s.complete(first)
	s.complete(second)
	tooBig := s.job("too-big", 9, nil)
	s.pending(tooBig, "nvidia.com/gpu", "64")
	s.Delete(tooBig)
	s.Empty(g.Name)
}

func TestAJobWithoutAnExistingQueueWaitsAndSaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	j := s.job("lost", 1, nil)
	s.pending(j, s.Name, "LocalQueue")
	s.queue(s.Group("", nil))
	s.complete(j)
	s.Empty(s.Name)
}

func TestAGangLargerThanItsPoolsWaitsAndSaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.queue(s.Group("", func(g *v1alpha1.NodeGroup) { g.Spec.MaxNodes = 4 }))
	j := s.job("wide", 6, nil)
	s.pending(j, "maxNodes", "2 short")
	if left := s.Left(s.Name); len(left) > 0 {
		t.Errorf("%v were launched for a gang that does not fit", left)
	}
	// An admin makes the pool larger, and the job starts.
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	s.Get(g)
	patch := client.MergeFrom(g.DeepCopy())
	g.Spec.MaxNodes = 6
	if err := s.Kube.Patch(t.Context(), g, patch); err != nil {
		t.Fatal(err)
	}
	s.complete(j)
	s.Empty(s.Name)
}

// TestOnlyMusterStartsAQueuedJob: a user cannot start one, as `kubectl apply` of a manifest
// with suspend: false tries to. An admin can.
func TestOnlyMusterStartsAQueuedJob(t *testing.T) {
	s := newSite(t)
	j := s.job("impatient", 1, nil)
	user := s.user()
	start := func(c client.Client) error {
		s.Get(j)
		patch := client.MergeFrom(j.DeepCopy())
		j.Spec.Suspend = new(false)
		return c.Patch(t.Context(), j, patch)
	}
	for name, c := range map[string]client.Client{"a user": user, "an admin who does not break the glass": s.Kube} {
		if err := start(c); err != nil || !*j.Spec.Suspend {
			t.Errorf("%s started the Job: %v, error %v; want it suspended, without an error", name, !*j.Spec.Suspend, err)
		}
	}
	breakGlass := func(c client.Client) error {
		s.Get(j)
		patch := client.MergeFrom(j.DeepCopy())
		j.Annotations = map[string]string{"muster.dev/break-glass": "the queue is broken and this must run"}
		return c.Patch(t.Context(), j, patch)
	}
	if err := breakGlass(user); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "muster-break-glass") {
		t.Errorf("a user who breaks the glass is told %v", err)
	}
	if err := breakGlass(s.Kube); err != nil {
		t.Fatal(err)
	}
	if err := start(user); err != nil || !*j.Spec.Suspend {
		t.Errorf("a user started the Job on the word of an admin: %v, error %v", !*j.Spec.Suspend, err)
	}
	if err := start(s.Kube); err != nil || *j.Spec.Suspend {
		t.Errorf("break-glass does not help the admin: suspended %v, error %v", *j.Spec.Suspend, err)
	}
	s.Delete(j)
}

// TestJobsThatCannotBeQueuedAreRefusedAtOnce.
func TestJobsThatCannotBeQueuedAreRefusedAtOnce(t *testing.T) {
	s := newSite(t)
	for name, change := range map[string]func(*batchv1.Job){
		"which no LocalQueue can be called":  func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/queue-name"] = "Not_A_Name" },
		"muster.dev/started is Muster's own": func(j *batchv1.Job) { j.Annotations = map[string]string{"muster.dev/started": "{}"} },
	} {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "refused",
			Labels: map[string]string{"kueue.x-k8s.io/queue-name": s.Name}}}
		j.Spec.Template.Spec = s.podSpec()
		change(j)
		if err := s.Kube.Create(t.Context(), j); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one that says %q", err, name)
		}
	}
}

// TestARunningJobMayNotGrow: its quota and machines are for what it was.
func TestARunningJobMayNotGrow(t *testing.T) {
	s := newSite(t)
	j := s.job("grower", 2, func(j *batchv1.Job) {
		j.Spec.CompletionMode = new(batchv1.IndexedCompletion)
		j.Spec.Parallelism = new(int32(10))
		j.Annotations = map[string]string{"muster.dev/break-glass": "no queue is needed here"}
	})
	patch := client.MergeFrom(j.DeepCopy())
	j.Spec.Suspend = new(false)
	if err := s.Kube.Patch(t.Context(), j, patch); err != nil {
		t.Fatal(err)
	}
	s.Get(j)
	patch = client.MergeFrom(j.DeepCopy())
	j.Spec.Completions = new(int32(10))
	if err := s.user().Patch(t.Context(), j, patch); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "from 2 to 10 pods") {
		t.Errorf("the Job grew by its completions: %v", err)
	}
	s.Delete(j)
}

// user may edit Jobs in the site and is no admin.
func (s *site) user() client.Client {
	s.Helper()
	return s.as("user", rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"})
}

// pending waits until the job's Workload says why it waits, in a message with the words. The first one may be of a moment in which
// Muster had not seen all that the test has created.
func (s *site) pending(j *batchv1.Job, words ...string) metav1.Condition {
	s.Helper()
	var c *metav1.Condition
	s.Eventually(fmt.Sprintf("job %s says why it waits, with %q", j.Name, words), func() bool {
		w := s.Workload(j)
		if w == nil {
			return false
		}
		c = meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
		return c != nil && c.Status == metav1.ConditionFalse && c.Message != "" &&
			!slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(c.Message, word) })
	}, func() string { return fmt.Sprint(c) })
	return *c
}

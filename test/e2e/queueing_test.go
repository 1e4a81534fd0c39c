package e2e

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func TestQueuedJobStartsWhenItsMachinesAreThere(t *testing.T) {
	s := newSite(t)
	g := s.group("", nil)
	s.queue(g)
	j := s.job("train", 8, func(j *batchv1.Job) { j.Spec.Template.Annotations = map[string]string{"muster.dev/kept": "yes"} })
	if !s.get(j) || j.Spec.Suspend == nil || !*j.Spec.Suspend {
		t.Error("the Job was not suspended at its creation")
	}
	s.complete(j)
	w := s.workload(j)
	if w == nil || !meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted) {
		t.Fatalf("workload %v was not admitted", w)
	}
	s.eventually("the workload is finished", func() bool {
		w = s.workload(j)
		return w != nil && meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished)
	}, func() string { return fmt.Sprint(w.Status.Conditions) })
	var pods corev1.PodList
	if err := kube.List(t.Context(), &pods, client.InNamespace(s.name)); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.Spec.NodeSelector[v1alpha1.NodeGroupLabel] != g.Name || p.Annotations["muster.dev/kept"] != "yes" {
			t.Errorf("pod %s has node selector %v and annotations %v", p.Name, p.Spec.NodeSelector, p.Annotations)
		}
	}
	s.empty(g.Name)
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	s.eventually("the quota is back", func() bool {
		return s.get(cq) && cq.Status.ReservingWorkloads == 0 && cq.Status.AdmittedWorkloads == 0
	}, func() string {
		return fmt.Sprintf("%d reserve, %d are admitted", cq.Status.ReservingWorkloads, cq.Status.AdmittedWorkloads)
	})
}

func TestAfterAStockoutTheNextFlavorIsTried(t *testing.T) {
	s := newSite(t)
	holds := int32(7)
	spot := s.group("-spot", func(g *v1alpha1.NodeGroup) { g.Spec.CapacityType, g.Spec.Kwok.Holds = v1alpha1.Spot, &holds })
	steady := s.group("-steady", nil)
	s.queue(spot, steady)
	j := s.job("sweep", 8, nil)
	s.complete(j)
	if w := s.workload(j); w == nil || w.Status.Admission == nil ||
		w.Status.Admission.PodSetAssignments[0].Flavors["nvidia.com/gpu"] != kueue.ResourceFlavorReference(steady.Name) {
		t.Errorf("the workload was admitted as %v, want flavor %s", w, steady.Name)
	}
	s.empty(spot.Name)
	s.empty(steady.Name)
}

func TestQuotaIsAWallAndAQueue(t *testing.T) {
	s := newSite(t)
	g := s.group("", func(g *v1alpha1.NodeGroup) { g.Spec.MaxNodes = 20 })
	s.queue(g) // quota for 8 machines
	first, second := s.job("first", 5, nil), s.job("second", 5, nil)
	s.complete(first)
	s.complete(second)
	tooBig := s.job("too-big", 9, nil)
	c := s.pending(tooBig)
	if !strings.Contains(c.Message, "nvidia.com/gpu") || !strings.Contains(c.Message, "64") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	s.delete(tooBig)
	s.empty(g.Name)
}

func TestAJobWithoutAnExistingQueueWaitsAndSaysSo(t *testing.T) {
	s := newSite(t)
	j := s.job("lost", 1, nil)
	if c := s.pending(j); !strings.Contains(c.Message, s.name) || !strings.Contains(c.Message, "LocalQueue") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	s.queue(s.group("", nil))
	s.complete(j)
	s.empty(s.name)
}

func TestAGangLargerThanItsPoolsWaitsAndSaysSo(t *testing.T) {
	s := newSite(t)
	s.queue(s.group("", func(g *v1alpha1.NodeGroup) { g.Spec.MaxNodes = 4 }))
	j := s.job("wide", 6, nil)
	if c := s.pending(j); !strings.Contains(c.Message, "maxNodes") || !strings.Contains(c.Message, "2 short") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	if left := s.left(s.name); len(left) > 0 {
		t.Errorf("%v were launched for a gang that does not fit", left)
	}
	// An admin makes the pool larger, and the job starts.
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	s.get(g)
	patch := client.MergeFrom(g.DeepCopy())
	g.Spec.MaxNodes = 6
	if err := kube.Patch(t.Context(), g, patch); err != nil {
		t.Fatal(err)
	}
	s.complete(j)
	s.empty(s.name)
}

func TestOnlyMusterStartsAQueuedJob(t *testing.T) {
	s := newSite(t)
	j := s.job("impatient", 1, nil)
	start := func() error {
		s.get(j)
		patch := client.MergeFrom(j.DeepCopy())
		run := false
		j.Spec.Suspend = &run
		return kube.Patch(t.Context(), j, patch)
	}
	if err := start(); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		t.Errorf("a user could start the Job: %v", err)
	} else if !strings.Contains(err.Error(), "muster.dev/break-glass") {
		t.Errorf("the refusal does not say what to do: %v", err)
	}
	s.get(j)
	patch := client.MergeFrom(j.DeepCopy())
	j.Annotations = map[string]string{"muster.dev/break-glass": "the queue is broken and this must run"}
	if err := kube.Patch(t.Context(), j, patch); err != nil {
		t.Fatal(err)
	}
	if err := start(); err != nil {
		t.Errorf("break-glass does not help: %v", err)
	}
	s.delete(j)
}

// pending waits until the job's workload says why it has no quota.
func (s *site) pending(j *batchv1.Job) metav1.Condition {
	s.Helper()
	var c *metav1.Condition
	s.eventually("job "+j.Name+" says why it waits", func() bool {
		w := s.workload(j)
		if w == nil {
			return false
		}
		c = meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
		return c != nil && c.Status == metav1.ConditionFalse && c.Message != ""
	}, func() string { return fmt.Sprint(c) })
	return *c
}

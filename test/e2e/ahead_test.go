package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	workloads "github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/pressure"
	"github.com/muster-dev/muster/test/testbed"
)

// contested is a queue with quota for two machines of any group. The gang low uses all
// of it until it is evicted; high needs it for machines of another group.
func (s *site) contested(wanted func(*v1alpha1.NodeGroup)) (low, high *batchv1.Job) {
	s.Helper()
	old, young := s.Group("-old", nil), s.Group("-young", wanted)
	s.queue(old)
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	flavor.Spec.NodeLabels = map[string]string{testbed.SiteLabel: s.Name}
	s.Create(flavor)
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	s.edit(cq, func() {
		cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
		group := &cq.Spec.ResourceGroups[0]
		group.Flavors[0].Name = kueue.ResourceFlavorReference(s.Name)
		group.Flavors[0].Resources[1].NominalQuota = *amount("16")
	})
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Value: 1000}
	s.Create(class)
	s.Cleanup(func() { _ = s.Kube.Delete(s.cleanup(), class) })
	on := func(g *v1alpha1.NodeGroup, runFor string) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Spec.Template.Annotations = map[string]string{kwokv1alpha1.RunForAnnotation: runFor}
			j.Spec.Template.Spec.NodeSelector[v1alpha1.NodeGroupLabel] = g.Name
			if g == young {
				j.Labels["kueue.x-k8s.io/priority-class"] = class.Name
			}
		}
	}
	low = s.job("low", 2, on(old, "1h"))
	s.runs(low)
	return low, s.job("high", 2, on(young, "1s"))
}

// untilEvicted waits for the job's eviction, for at most so long, and returns whether it was evicted.
func (s *site) untilEvicted(j *batchv1.Job, most time.Duration, each func()) bool {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	ctx, cancel := pressure.WithTimeout(s.Context(), most)
	defer cancel()
	for ; ctx.Err() == nil; <-ticker.C {
		if w := s.Workload(j); w != nil && meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadEvicted) {
			return true
		}
		each()
	}
	return false
}

// TestStoryVictimsRunUntilTheMachinesOfTheNewcomerAreBooked: a gang that runs has to leave
// its quota to one of higher priority, but not before the machines of that one are
// there, which takes three seconds.
func TestStoryVictimsRunUntilTheMachinesOfTheNewcomerAreBooked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	low, high := s.contested(func(g *v1alpha1.NodeGroup) { g.Spec.Kwok.BootDelay = metav1.Duration{Duration: 3 * time.Second} })
	waited := false
	evicted := s.untilEvicted(low, testbed.Patience, func() {
		w := s.Workload(high)
		if w == nil {
			return
		}
		if w.Status.Admission != nil {
			t.Fatal("high has quota while low runs")
		}
		c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
		waited = waited || c != nil && strings.Contains(c.Message, "low") && strings.Contains(c.Message, "16 nvidia.com/gpu")
	})
	if !evicted || !waited {
		t.Fatalf("low is stopped: %v; high has said before for whom and for how much it waits: %v", evicted, waited)
	}
	// It is read after the eviction was observed. It may have changed since, so its timestamps are compared.
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Workload(high).Name + "-capacity-1"}}
	provisioned := s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	left := meta.FindStatusCondition(s.Workload(low).Status.Conditions, kueue.WorkloadEvicted)
	if left.LastTransitionTime.Before(&provisioned.LastTransitionTime) {
		t.Errorf("low had to stop at %s, the machines were booked at %s", left.LastTransitionTime, provisioned.LastTransitionTime)
	}
	uid := r.UID
	s.complete(high)
	if s.Get(r) && r.UID != uid {
		t.Error("high has started with another request than the one that was made ahead of its quota")
	}
	s.Delete(low)
	s.Delete(high)
	s.Empty(s.Name + "-old")
	s.Empty(s.Name + "-young")
}

// TestNoPreemptionForMachinesThatCannotBeHad: the pool of the preemptor is dry. Its Workload
// says so, and the running gang is not evicted.
func TestNoPreemptionForMachinesThatCannotBeHad(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	low, high := s.contested(func(g *v1alpha1.NodeGroup) { g.Spec.Kwok.Holds = new(int32(1)) })
	tried := 0
	evicted := s.untilEvicted(low, 20*time.Second, func() {
		var list provreq.ProvisioningRequestList
		if w := s.Workload(high); w != nil && w.Status.SchedulingStats != nil &&
			s.Kube.List(t.Context(), &list, client.InNamespace(s.Name)) == nil {
			for _, e := range w.Status.SchedulingStats.Evictions {
				tried = max(tried, int(e.Count))
			}
		}
	})
	w := s.Workload(high)
	if evicted || tried == 0 {
		t.Errorf("low is stopped: %v, after %d attempts of high: %v", evicted, tried, w.Status.Conditions)
	}
	c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	if c.Status != metav1.ConditionFalse || c.Reason != workloads.ReasonWaitingForCapacity {
		t.Errorf("high waits because of %s: %s", c.Reason, c.Message)
	}
	// Between two attempts the message is one for all Workloads like this one, of any namespace, and names no job.
	s.Eventually("high says whose quota stays in use", func() bool {
		c = meta.FindStatusCondition(s.Workload(high).Status.Conditions, kueue.WorkloadQuotaReserved)
		return strings.Contains(c.Message, "16 nvidia.com/gpu") && strings.Contains(c.Message, "keep running")
	}, func() string { return fmt.Sprint(c) })
	var pods corev1.PodList
	if err := s.Kube.List(t.Context(), &pods, client.InNamespace(s.Name)); err != nil || len(pods.Items) != 2 {
		t.Errorf("there are %d pods, want the two of low; error %v", len(pods.Items), err)
	}
	s.Delete(high)
	s.Delete(low)
	s.Empty(s.Name + "-old")
	s.Empty(s.Name + "-young")
}

package kueue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/test/testbed"
)

func TestAJobStartsOnceAllOfItsMachinesAreBooked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const late = 3 * time.Second
	s.group("", 8, v1alpha1.KwokFault{Type: v1alpha1.FaultLateDevices, Machines: []int64{1}, After: testbed.After(late)})
	j := s.job("train", 4, 3*time.Second)
	r, provisioned := s.condition(j, provreq.Provisioned, metav1.ConditionTrue)
	// Conditions have whole seconds.
	if took := provisioned.LastTransitionTime.Sub(r.CreationTimestamp.Time); took < late-time.Second {
		t.Errorf("Provisioned after %s, before the GPUs of all machines can have been there", took)
	}
	if _, c := s.condition(j, provreq.BookingExpired, metav1.ConditionTrue); c.Reason != transaction.ReasonBookingConsumed {
		t.Errorf("the booking ended by %s: %s", c.Reason, c.Message)
	}
	s.complete(j)
	if j.Status.StartTime.Before(&provisioned.LastTransitionTime) {
		t.Errorf("the job started at %s, its machines were booked at %s", j.Status.StartTime, provisioned.LastTransitionTime)
	}
	s.empty()
	if evictions := s.evictions(j); len(evictions) > 0 {
		t.Errorf("it was stopped on its way: %v", evictions)
	}
}

// outage is more than Kueue is away for in a test: the successor of a dead leader waits
// for its lease of 15 s to expire.
const outage = 30 * time.Second

// TestAMachineLostBeforeKueueObservesIt: Kueue dies before the machines join, and is back when one of them is lost again. It is
// the only test that is not parallel, because no other test can run without Kueue.
func TestAMachineLostBeforeKueueObservesIt(t *testing.T) {
	s := newSite(t)
	g := s.newGroup("", 8)
	g.Spec.Kwok.BootDelay.Duration = 2 * time.Second
	s.Create(g)
	j := s.job("train", 3, time.Second)
	s.Eventually("Kueue asks for machines", func() bool { return s.request(j) != nil }, func() string { return s.standing(j) })
	shared.Watcher.StandStill(time.Now().Add(outage))
	stock.Kill()
	s.BreakDown(s.joined(3)[0].Name)
	if err := stock.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.complete(j)
	s.empty()
}

// TestAMachineLostBeforeThePodsCome: Kueue has started the job, and does not read its request any more.
func TestAMachineLostBeforeThePodsCome(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("", 8)
	noPods := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "no-pods"}}
	noPods.Spec.Hard = corev1.ResourceList{"pods": resource.MustParse("0")}
	s.Create(noPods)
	s.Eventually("the namespace's quota is in force", func() bool { return s.Get(noPods) && len(noPods.Status.Hard) > 0 },
		func() string { return fmt.Sprint(noPods.Status) })
	j := s.job("train", 3, time.Second)
	s.Eventually("the job is started", func() bool { return s.Get(j) && !*j.Spec.Suspend }, func() string { return s.standing(j) })
	s.BreakDown(s.joined(3)[0].Name)
	s.Delete(noPods)
	s.complete(j)
	s.empty()
}

// TestMachinesLostAgainAndAgain: another check of the queue takes its time, and
// meanwhile every machine that has been booked is lost, over and over, until the
// request has bought twice what it needs and stops. To Kueue, a request whose
// booking is over has failed, and the fourth to fail would deactivate the job. Once
// an administrator accepts what was bought, it starts.
func TestMachinesLostAgainAndAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("", 8, v1alpha1.KwokFault{Type: v1alpha1.FaultReclaim, After: testbed.After(3 * time.Second),
		Until: testbed.After(20 * time.Second)})
	slow := s.secondCheck()
	j := s.job("train", 2, time.Second)
	s.answer(j, slow, kueue.CheckStatePending, "takes its time")
	var list provreq.ProvisioningRequestList
	s.Eventually("the request buys nothing more", func() bool {
		s.List(&list, client.InNamespace(s.Name))
		return slices.ContainsFunc(list.Items, func(r provreq.ProvisioningRequest) bool {
			return slices.ContainsFunc(r.Status.Conditions, func(c metav1.Condition) bool {
				return strings.Contains(c.Message, "4 machines were bought for a gang that needs 2")
			})
		})
	}, func() string { return s.standing(j) })
	if n := len(s.machines()); n > 4 {
		t.Errorf("%d machines were bought for a gang that needs 2", n)
	}
	s.active(j)
	s.answer(j, slow, kueue.CheckStateReady, "")
	s.Eventually("the faults are over, and what was bought is accepted", func() bool {
		s.List(&list, client.InNamespace(s.Name))
		for i := range list.Items {
			r := &list.Items[i]
			patch := client.MergeFrom(r.DeepCopy())
			metav1.SetMetaDataAnnotation(&r.ObjectMeta, v1alpha1.AcceptedPurchasesAnnotation, "100")
			if err := s.Kube.Patch(s.Context(), r, patch); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
		return s.IsComplete(j)
	}, func() string { return s.standing(j) })
	s.complete(j)
	s.empty()
}

// TestAMachineLostWhileTheJobRuns: the pod that replaces the lost one gets the
// machine of another that has ended.
func TestAMachineLostWhileTheJobRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	// The pods end before Kueue's recoveryTimeout is over.
	s.group("", 8)
	j := s.job("train", 3, 14*time.Second)
	s.loseWithPod(j)
	s.complete(j)
	if j.Status.Failed == 0 {
		t.Errorf("the pod of the lost machine did not count as failed: %+v", j.Status)
	}
	s.empty()
}

// TestAGangThatCannotGoOnWithoutTheLostMachineStartsAgain: its pods run for too long to wait for each other's machines. Kueue stops it
// and creates a request with the same name.
func TestAGangThatCannotGoOnWithoutTheLostMachineStartsAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("", 8)
	j := s.job("train", 3, 20*time.Second)
	s.loseWithPod(j)
	s.complete(j)
	if got, want := s.evictions(j), []string{kueue.WorkloadEvictedByPodsReadyTimeout}; !slices.Equal(got, want) {
		t.Errorf("it was stopped for %v, want %v", got, want)
	}
	s.empty()
}

func TestAStockoutMakesTheJobWait(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("-dry", 8, v1alpha1.KwokFault{Type: v1alpha1.FaultDry})
	j := s.job("train", 3, time.Second)
	if _, c := s.condition(j, provreq.Provisioned, metav1.ConditionFalse); c.Reason != transaction.ReasonCapacityIsNotFound {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	s.Eventually("Kueue repeats why the job waits", func() bool {
		w := s.Workload(j)
		return w != nil && len(w.Status.AdmissionChecks) == 1 && w.Status.AdmissionChecks[0].State == kueue.CheckStatePending &&
			strings.Contains(w.Status.AdmissionChecks[0].Message, string(v1alpha1.Stockout))
	}, func() string { return s.standing(j) })
	s.active(j)
	s.group("-full", 8)
	s.complete(j)
	s.empty()
	if evictions := s.evictions(j); len(evictions) > 0 {
		t.Errorf("it was stopped on its way: %v", evictions)
	}
}

// TestTwoJobsRaceForTheLastMachines: there are machines for one of them at a time. The other gets none, not even some of them, and runs
// when the first has ended.
func TestTwoJobsRaceForTheLastMachines(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("", 4)
	one, two := s.job("one", 3, 2*time.Second), s.job("two", 3, 2*time.Second)
	s.complete(one)
	s.complete(two)
	if one.Status.CompletionTime.After(two.Status.StartTime.Time) && two.Status.CompletionTime.After(one.Status.StartTime.Time) {
		t.Errorf("there were machines for one of them, and both ran: %s to %s and %s to %s",
			one.Status.StartTime, one.Status.CompletionTime, two.Status.StartTime, two.Status.CompletionTime)
	}
	s.empty()
}

// TestAJobDeletedWhileItsMachinesBoot leaves nothing: its request goes with it.
func TestAJobDeletedWhileItsMachinesBoot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.newGroup("", 8)
	g.Spec.Kwok.BootDelay.Duration = 2 * testbed.Patience
	s.Create(g)
	j := s.job("train", 4, time.Second)
	s.Eventually("its machines boot", func() bool { return len(s.machines()) == 4 }, func() string { return s.standing(j) })
	s.Delete(j, client.PropagationPolicy(metav1.DeletePropagationBackground))
	s.empty()
}

// secondCheck is another check of the site's queue, which the test answers.
func (s *site) secondCheck() string {
	s.Helper()
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-second"}}
	check.Spec.ControllerName = "muster.dev/test"
	s.Create(check)
	patch := client.MergeFrom(check.DeepCopy())
	check.Status.Conditions = []metav1.Condition{{
		Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", LastTransitionTime: metav1.Now(),
	}}
	if err := s.Kube.Status().Patch(s.Context(), check, patch); err != nil {
		s.Fatal(err)
	}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	s.Get(cq)
	patch = client.MergeFrom(cq.DeepCopy())
	checks := &cq.Spec.AdmissionChecksStrategy.AdmissionChecks
	*checks = append(*checks, kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(check.Name)})
	if err := s.Kube.Patch(s.Context(), cq, patch); err != nil {
		s.Fatal(err)
	}
	return check.Name
}

// answer sets the state of a check of the job's workload, once the check is there.
func (s *site) answer(j *batchv1.Job, check string, state kueue.CheckState, message string) {
	s.Helper()
	s.Eventually("the answer of check "+check, func() bool {
		w := s.Workload(j)
		if w == nil {
			return false
		}
		i := slices.IndexFunc(w.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return string(c.Name) == check })
		if i < 0 {
			return false
		}
		patch := client.MergeFromWithOptions(w.DeepCopy(), client.MergeFromWithOptimisticLock{})
		w.Status.AdmissionChecks[i].State, w.Status.AdmissionChecks[i].Message = state, message
		return s.Kube.Status().Patch(s.Context(), w, patch) == nil // Kueue may have written meanwhile
	}, func() string { return s.standing(j) })
}

// loseWithPod waits until all pods of the job run, takes the machine of one away, and deletes that pod, as the garbage collector of pods
// does after 40 s.
func (s *site) loseWithPod(j *batchv1.Job) {
	s.Helper()
	s.Eventually("all pods run", func() bool { return s.Get(j) && j.Status.Ready != nil && *j.Status.Ready == *j.Spec.Parallelism },
		func() string { return s.standing(j) })
	var pods corev1.PodList
	s.List(&pods, client.InNamespace(s.Name))
	i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	s.BreakDown(pods.Items[i].Spec.NodeName)
	s.Delete(&pods.Items[i], client.GracePeriodSeconds(0))
}

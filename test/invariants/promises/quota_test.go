package promises

import (
	"fmt"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	workloads "github.com/muster-dev/muster/queueing/workload"
)

// gpus is a quota of GPUs of flavor h100.
type gpus struct {
	nominal            int
	borrowing, lending *int
}

func (g gpus) groups() []kueue.ResourceGroup {
	limit := func(n *int) *resource.Quantity {
		if n == nil {
			return nil
		}
		return resourceOf(int64(*n))
	}
	return []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{gpu},
		Flavors: []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{{
			Name: gpu, NominalQuota: *resourceOf(int64(g.nominal)), BorrowingLimit: limit(g.borrowing), LendingLimit: limit(g.lending),
		}}}}}}
}

// member shows a ClusterQueue of a cohort; empty is none.
func (c *course) member(name, cohort string, g gpus) *kueue.ClusterQueue {
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	q.Spec.CohortName, q.Spec.ResourceGroups = kueue.CohortReference(cohort), g.groups()
	c.show(q)
	return q
}

// cohort shows a Cohort; without GPUs it has no quota of its own.
func (c *course) cohort(name, parent string, g *gpus) *kueue.Cohort {
	o := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.ParentName = kueue.CohortReference(parent)
	if g != nil {
		o.Spec.ResourceGroups = g.groups()
	}
	c.show(o)
	return o
}

// settled lets what admins have changed become old.
func (c *course) settled() { c.pass(3 * time.Second) }

// admitted is a workload of pods with one GPU each that runs in a queue.
func (c *course) admitted(name, queue string, pods int) *kueue.Workload {
	w := newWorkload(name, pods, 1)
	c.admit(w, queue, pods)
	return w
}

// admit shows the workload with quota for so many of its pods.
func (c *course) admit(w *kueue.Workload, queue string, pods int) {
	reserve(w, pods)
	w.Status.Admission.ClusterQueue = kueue.ClusterQueueReference(queue)
	w.Status.Admission.PodSetAssignments[0].Count = new(int32(pods))
	condition(&w.Status.Conditions, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "The workload is admitted")
	c.show(w)
}

// slices are two of a Job: the small one has quota for 4 pods, and then the grown one for
// so many. It returns the small one.
func (c *course) slices(pods int) *kueue.Workload {
	small, _ := c.bothSlices(pods)
	return small
}

// bothSlices returns them both.
func (c *course) bothSlices(pods int) (small, grown *kueue.Workload) {
	job := newJob("accordion")
	small, grown = newWorkload("small", 4, 1), newWorkload("grown", pods, 1)
	controlledBy(small, "Job", job)
	controlledBy(grown, "Job", job)
	grown.Annotations = map[string]string{workloads.ReplacementAnnotation: namespace + "/small"}
	c.admit(small, "a", 4)
	c.show(grown)
	c.admit(grown, "a", pods)
	return small, grown
}

// release takes the quota of a workload back.
func (c *course) release(w *kueue.Workload) {
	w.Status.Admission = nil
	condition(&w.Status.Conditions, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "PendingEvaluation", "Nothing of it runs")
	condition(&w.Status.Conditions, kueue.WorkloadAdmitted, metav1.ConditionFalse, "NoReservation", "The workload has no reservation")
	c.show(w)
}

func (c *course) reclaimable(w *kueue.Workload, pods int) {
	w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: int32(pods)}}
	c.show(w)
}

func TestBorrowedQuotaIsBroken(t *testing.T) {
	runBroken(t, []brokenCase{
		{"a queue borrows more than its cohort has", func(c *course) {
			c.member("a", "all", gpus{nominal: 4})
			c.member("b", "all", gpus{nominal: 2})
			c.admitted("one", "b", 1)
			c.admitted("two", "a", 6)
		}, []string{"P4 quota: Cohort all", "7 nvidia.com/gpu of flavor h100 is reserved, nominal quota is 6, so 1 is too much",
			"Workload team/two took it there with 6", "team/one 1, team/two 6"}},
		{"a queue borrows beyond its borrowing limit", func(c *course) {
			c.member("a", "all", gpus{nominal: 4, borrowing: new(1)})
			c.member("b", "all", gpus{nominal: 8})
			c.admitted("one", "a", 6)
		},
			[]string{"P4 quota: ClusterQueue a",
				"6 nvidia.com/gpu of flavor h100 is reserved, nominal quota is 4, borrowing limit 1, so 1 is too much"}},
		{"a queue borrows what another does not lend", func(c *course) {
			c.member("a", "all", gpus{nominal: 4})
			c.member("b", "all", gpus{nominal: 8, lending: new(3)})
			c.admitted("one", "a", 8)
		},
			[]string{"P4 quota: Cohort all", "8 nvidia.com/gpu",
				"nominal quota is 12, 5 of the quota is kept back by lending limits, so 1 is too much"}},
		{"a queue without a cohort borrows", func(c *course) {
			c.member("a", "", gpus{nominal: 4, borrowing: new(9)})
			c.member("b", "", gpus{nominal: 8})
			c.admitted("one", "a", 5)
		}, []string{"P4 quota: ClusterQueue a", "nominal quota is 4, so 1 is too much"}},
		{"a queue borrows a flavor that it does not list", func(c *course) {
			c.member("a", "all", gpus{nominal: 4})
			other := c.member("b", "all", gpus{nominal: 8})
			other.Spec.ResourceGroups[0].Flavors[0].Name = "a100"
			c.show(other)
			c.settled()
			w := newWorkload("one", 1, 1)
			reserve(w, 1)
			w.Status.Admission.ClusterQueue = "a"
			w.Status.Admission.PodSetAssignments[0].Flavors[gpu] = "a100"
			condition(&w.Status.Conditions, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "The workload is admitted")
			c.show(w)
		}, []string{"P4 quota: ClusterQueue a", "1 nvidia.com/gpu of flavor a100"}},
		{"a cohort borrows beyond its limit, three levels up", func(c *course) {
			c.cohort("root", "", nil)
			c.cohort("left", "root", &gpus{nominal: 1, borrowing: new(2)})
			c.cohort("right", "root", &gpus{nominal: 100})
			c.cohort("low", "left", nil)
			c.member("a", "low", gpus{nominal: 4})
			c.admitted("one", "a", 8)
		}, []string{"P4 quota: Cohort left", "8 nvidia.com/gpu", "nominal quota is 5, borrowing limit 2, so 1 is too much"}},
		{"a cohort does not lend, three levels up", func(c *course) {
			c.cohort("root", "", nil)
			c.cohort("left", "root", nil)
			c.cohort("right", "root", &gpus{nominal: 2, lending: new(3)})
			c.member("a", "left", gpus{nominal: 4})
			c.member("b", "right", gpus{nominal: 5})
			c.admitted("one", "a", 8)
		}, []string{"P4 quota: Cohort root", "nominal quota is 11, 4 of the quota is kept back by lending limits, so 1 is too much"}},
		{"a cohort without an object borrows from nobody", func(c *course) {
			c.member("a", "all", gpus{nominal: 4})
			c.member("b", "others", gpus{nominal: 8})
			c.admitted("one", "a", 5)
		}, []string{"P4 quota: Cohort all"}},
		{"cohorts in a circle lend nothing", func(c *course) {
			c.cohort("x", "y", &gpus{nominal: 9})
			c.cohort("y", "x", &gpus{nominal: 9})
			c.member("a", "x", gpus{nominal: 4})
			c.settled()
			c.admitted("one", "a", 5)
		}, []string{"P4 quota: ClusterQueue a", "nominal quota is 4, so 1 is too much"}},
		{"what was lent is taken back before it is free", func(c *course) {
			c.member("a", "all", gpus{nominal: 4})
			c.member("b", "all", gpus{nominal: 4})
			preempt(c.admitted("guest", "a", 8))
			c.admitted("owner", "b", 1)
		}, []string{"P4 quota: Cohort all", "Workload team/owner took it there with 1"}},
		{"a queue was moved to a poorer cohort a while ago", func(c *course) {
			c.member("a", "rich", gpus{nominal: 4})
			c.member("b", "rich", gpus{nominal: 4})
			c.member("a", "poor", gpus{nominal: 4})
			c.settled()
			c.admitted("one", "a", 5)
		}, []string{"P4 quota: Cohort poor", "5 nvidia.com/gpu"}},
		{"a quota was lowered under use a while ago, and another queue takes more", func(c *course) {
			c.member("a", "all", gpus{nominal: 4})
			c.member("b", "all", gpus{nominal: 4})
			c.admitted("one", "a", 6)
			c.member("b", "all", gpus{nominal: 1})
			c.settled()
			c.admitted("two", "b", 1)
		}, []string{"P4 quota: Cohort all", "7 nvidia.com/gpu", "nominal quota is 5, so 2 is too much", "Workload team/two"}},
		{"a quota was lowered under use and raised again, and more than that is taken", func(c *course) {
			c.member("a", "", gpus{nominal: 8})
			c.admitted("one", "a", 6)
			c.member("a", "", gpus{nominal: 4})
			c.member("a", "", gpus{nominal: 8})
			c.settled()
			c.admitted("two", "a", 4)
		}, []string{"P4 quota: ClusterQueue a", "10 nvidia.com/gpu", "nominal quota is 8, so 2 is too much"}},
		{"a part of what was found beyond the quota was given back, and is taken again", func(c *course) {
			c.member("a", "", gpus{nominal: 8})
			c.admitted("one", "a", 5)
			w := c.admitted("two", "a", 2)
			c.member("a", "", gpus{nominal: 4})
			c.settled()
			c.remove(w)
			c.admitted("three", "a", 2)
		}, []string{"P4 quota: ClusterQueue a", "7 nvidia.com/gpu", "Workload team/three"}},
		{"a cohort was deleted a while ago", func(c *course) {
			root := c.cohort("root", "", &gpus{nominal: 4})
			c.member("a", "root", gpus{nominal: 1})
			c.remove(root)
			c.settled()
			c.admitted("one", "a", 2)
		}, []string{"P4 quota: Cohort root", "nominal quota is 1"}},
		{"what an adopted workload was let have is taken again once that has ended", func(c *course) {
			c.member("a", "", gpus{nominal: 4})
			w := newWorkload("old", 6, 1)
			w.Status = *workloads.Adopted(w, workloads.RanBefore, c.now)
			c.admit(w, "a", 6)
			c.remove(w)
			c.admitted("new", "a", 6)
		}, []string{"P4 quota: ClusterQueue a", "Workload team/new took it there with 6"}},
		{"a workload says by itself that it ran before Muster came", func(c *course) {
			c.member("a", "", gpus{nominal: 4})
			w := newWorkload("forged", 6, 1)
			w.Annotations = map[string]string{workloads.AdoptedAnnotation: "true"}
			c.admit(w, "a", 6)
		}, []string{"P4 quota: ClusterQueue a", "Workload team/forged took it there with 6"}},
		{"others take more beside an adopted workload", func(c *course) {
			c.member("a", "", gpus{nominal: 4})
			w := newWorkload("old", 6, 1)
			w.Status = *workloads.Adopted(w, workloads.RanBefore, c.now)
			c.admit(w, "a", 6)
			c.admitted("new", "a", 1)
		}, []string{"P4 quota: ClusterQueue a", "7 nvidia.com/gpu", "Workload team/new took it there with 1"}},
		{"an adopted workload was evicted and queues like any other", func(c *course) {
			c.member("a", "", gpus{nominal: 4})
			w := newWorkload("old", 6, 1)
			w.Status = *workloads.Adopted(w, workloads.RanBefore, c.now)
			c.admit(w, "a", 6)
			preempt(w)
			c.release(w)
			condition(&w.Status.Conditions, kueue.WorkloadEvicted, metav1.ConditionFalse, "QuotaReserved", "Previously: preempted")
			c.admit(w, "a", 6)
		}, []string{"P4 quota: ClusterQueue a", "Workload team/old took it there with 6"}},
		{"more is given out than pods are reclaimable", func(c *course) {
			c.member("a", "", gpus{nominal: 4})
			c.reclaimable(c.admitted("one", "a", 4), 1)
			c.admitted("two", "a", 2)
		}, []string{"P4 quota: ClusterQueue a", "5 nvidia.com/gpu", "team/one 3, team/two 2"}},
		{"pods that were reclaimable before the admission are given back a second time", func(c *course) {
			c.member("a", "", gpus{nominal: 8})
			w := newWorkload("one", 10, 1)
			c.reclaimable(w, 2)
			c.admit(w, "a", 8)
			c.admitted("two", "a", 2)
		}, []string{"P4 quota: ClusterQueue a", "10 nvidia.com/gpu", "team/one 8, team/two 2"}},
		{"a workload that is admitted in part takes more than its part", func(c *course) {
			c.member("a", "", gpus{nominal: 4})
			w := newWorkload("one", 10, 1)
			c.admit(w, "a", 5)
		}, []string{"P4 quota: ClusterQueue a", "5 nvidia.com/gpu"}},
		{"a workload that is admitted in part counts less than its part", func(c *course) {
			c.member("a", "", gpus{nominal: 4})
			w := newWorkload("one", 10, 1)
			reserve(w, 3)
			w.Status.Admission.ClusterQueue = "a"
			w.Status.Admission.PodSetAssignments[0].Count = new(int32(4))
			condition(&w.Status.Conditions, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "The workload is admitted")
			c.show(w)
		}, []string{"P4 quota: Workload team/one", "the 4 pods ask for nvidia.com/gpu 4"}},
		{"a workload slice comes beside one of another job that it says to replace", func(c *course) {
			c.member("a", "", gpus{nominal: 6})
			c.admitted("small", "a", 4)
			w := newWorkload("grown", 6, 1)
			w.Annotations = map[string]string{workloads.ReplacementAnnotation: namespace + "/small"}
			c.admit(w, "a", 6)
		}, []string{"P4 quota: ClusterQueue a", "team/grown 6, team/small 4"}},
		{"a workload slice that gave its quota back still counts in the one that it was to replace", func(c *course) {
			c.member("a", "", gpus{nominal: 6})
			_, grown := c.bothSlices(6)
			c.release(grown)
			c.admitted("other", "a", 4)
		}, []string{"P4 quota: ClusterQueue a", "team/other 4, team/small 4"}},
		{"a workload slice is larger than the quota", func(c *course) {
			c.member("a", "", gpus{nominal: 6})
			c.slices(7)
		}, []string{"P4 quota: ClusterQueue a", "team/grown 7"}},
	})
}

func TestBorrowedQuotaRaisesNoFalseAlarm(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*course)
	}{
		{"a workload slice comes before the one that it replaces is finished", func(c *course) {
			c.member("a", "", gpus{nominal: 6})
			small := c.slices(6)
			c.show(small)
			condition(&small.Status.Conditions, kueue.WorkloadFinished, metav1.ConditionTrue, kueue.WorkloadSliceReplaced, "Replaced")
			c.show(small)
		}},
		{"a workload slice comes in the place of one that gave its quota back", func(c *course) {
			c.member("a", "", gpus{nominal: 6})
			small, grown := c.bothSlices(6)
			c.release(grown)
			c.remove(grown)
			again := newWorkload("again", 5, 1)
			again.OwnerReferences = small.OwnerReferences
			again.Annotations = map[string]string{workloads.ReplacementAnnotation: namespace + "/small"}
			c.show(again)
			c.admit(again, "a", 5)
		}},
		{"a queue borrows all that its cohort has", func(c *course) {
			c.member("a", "all", gpus{nominal: 4})
			c.member("b", "all", gpus{nominal: 4})
			c.admitted("one", "a", 8)
		}},
		{"a quota that is too large for an int64 is never used up", func(c *course) {
			c.member("a", "all", gpus{nominal: math.MaxInt64})
			c.member("b", "all", gpus{nominal: 4})
			for _, name := range []string{"one", "two"} {
				c.admit(newWorkload(name, 1, math.MaxInt64/2), "a", math.MaxInt64/2)
			}
			c.admitted("four", "b", 8)
		}},
		{"limits are used up on all levels", func(c *course) {
			c.cohort("root", "", &gpus{nominal: 1})
			c.cohort("left", "root", &gpus{nominal: 1, borrowing: new(3)})
			c.cohort("right", "root", &gpus{nominal: 1, lending: new(2)})
			c.member("a", "left", gpus{nominal: 4, borrowing: new(4)})
			c.member("b", "right", gpus{nominal: 8, lending: new(5)})
			c.admitted("one", "a", 8)
			c.admitted("two", "b", 7)
		}},
		{"what a queue does not lend is its own, whatever its cohort has run up", func(c *course) {
			c.member("a", "all", gpus{nominal: 4})
			c.member("b", "all", gpus{nominal: 4, lending: new(2)})
			c.admitted("one", "a", 6)
			c.member("a", "all", gpus{nominal: 1})
			c.settled()
			c.admitted("two", "b", 2)
		}},
		{"a quota is lowered a moment before another queue borrows it", func(c *course) {
			c.member("a", "all", gpus{nominal: 4})
			c.member("b", "all", gpus{nominal: 4})
			c.settled()
			c.member("b", "all", gpus{nominal: 1})
			w := c.admitted("one", "a", 8)
			c.settled()
			c.show(w)
		}},
		{"quotas are lowered twice in a moment", func(c *course) {
			c.member("a", "all", gpus{nominal: 4})
			c.member("b", "all", gpus{nominal: 4})
			c.settled()
			c.member("b", "all", gpus{nominal: 1})
			c.member("a", "all", gpus{nominal: 1})
			c.admitted("one", "a", 8)
		}},
		{"a cohort is taken away a moment before it lends", func(c *course) {
			root := c.cohort("root", "", &gpus{nominal: 4})
			c.member("a", "root", gpus{nominal: 1})
			c.settled()
			c.remove(root)
			c.admitted("one", "a", 5)
			c.pass(time.Minute)
		}},
		{"a queue that has borrowed is moved to a poorer cohort", func(c *course) {
			c.member("a", "rich", gpus{nominal: 4})
			c.member("b", "rich", gpus{nominal: 4})
			w := c.admitted("one", "a", 8)
			c.member("a", "poor", gpus{nominal: 4})
			c.settled()
			c.show(w)
		}},
		{"a circle is closed under what was borrowed", func(c *course) {
			c.cohort("x", "y", &gpus{nominal: 4})
			y := c.cohort("y", "", &gpus{nominal: 4})
			c.member("a", "x", gpus{nominal: 1})
			w := c.admitted("one", "a", 9)
			y.Spec.ParentName = "x"
			c.show(y)
			c.settled()
			c.show(w)
		}},
		{"quota is lent again once the one that borrowed it was preempted and stopped", func(c *course) {
			c.member("a", "all", gpus{nominal: 4})
			c.member("b", "all", gpus{nominal: 4})
			guest := c.admitted("guest", "a", 8)
			preempt(guest)
			c.show(guest)
			c.release(guest)
			c.admitted("owner", "b", 4)
			c.admitted("another", "a", 4)
		}},
		{"a workload ran before Muster came", func(c *course) {
			c.member("a", "", gpus{nominal: 4})
			w := newWorkload("old", 6, 1)
			w.Status = *workloads.Adopted(w, workloads.RanBefore, c.now)
			c.admit(w, "a", 6)
			c.pass(time.Minute)
			c.show(w)
		}},
		{"reclaimable pods are given back", func(c *course) {
			c.member("a", "", gpus{nominal: 4})
			c.reclaimable(c.admitted("one", "a", 4), 3)
			c.admitted("two", "a", 3)
		}},
		{"a workload that was admitted in part gives pods back", func(c *course) {
			c.member("a", "", gpus{nominal: 4})
			w := newWorkload("one", 10, 1)
			c.admit(w, "a", 4)
			c.reclaimable(w, 1)
			c.admitted("two", "a", 1)
		}},
		{"an elastic workload shrinks", func(c *course) {
			c.member("a", "", gpus{nominal: 4})
			w := c.admitted("one", "a", 4)
			c.admit(w, "a", 1)
			c.admitted("two", "a", 3)
		}},
		{"a workload slice takes over from one that is finished", func(c *course) {
			c.member("a", "", gpus{nominal: 6})
			old := c.admitted("small", "a", 4)
			condition(&old.Status.Conditions, kueue.WorkloadFinished, metav1.ConditionTrue, kueue.WorkloadSliceReplaced, "Replaced by grown")
			c.show(old)
			w := newWorkload("grown", 6, 1)
			w.Annotations = map[string]string{workloads.ReplacementAnnotation: namespace + "/small"}
			c.admit(w, "a", 6)
		}},
		{"a workload is evicted, waits for its time and is deactivated", func(c *course) {
			c.member("a", "", gpus{nominal: 4})
			w := c.admitted("one", "a", 4)
			condition(&w.Status.Conditions, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPodsReadyTimeout,
				"Not ready within 30m")
			c.show(w)
			c.pass(time.Minute)
			c.release(w)
			c.pass(time.Minute)
			c.admit(w, "a", 4)
			w.Spec.Active = new(false)
			condition(&w.Status.Conditions, kueue.WorkloadEvicted, metav1.ConditionTrue, "DeactivatedDueToRequeuingLimitExceeded", "Too often")
			c.release(w)
			c.pass(time.Minute)
		}},
		{"quotas are as large as they can be", func(c *course) {
			c.member("a", "all", gpus{nominal: 1 << 62})
			c.member("b", "all", gpus{nominal: 1 << 62})
			c.member("c", "all", gpus{nominal: 1 << 62})
			c.settled()
			c.admitted("one", "a", 1<<30)
		}},
		{"a quota is absurd by an edit by hand", func(c *course) {
			c.member("a", "", gpus{nominal: 4})
			w := newWorkload("garbage", 1, 1)
			w.Status = *workloads.Adopted(w, workloads.RanBefore, c.now)
			c.admit(w, "a", 1)
			for _, text := range []string{"7E", "-1", "-9E"} {
				w.Status.Admission.PodSetAssignments[0].ResourceUsage[gpu] = resource.MustParse(text)
				c.show(w)
			}
			c.remove(c.admitted("meanwhile", "a", 4))
			c.remove(w)
			c.admitted("one", "a", 4)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCourse(t)
			tt.do(c)
			if got := c.verdict(); got != "" {
				t.Errorf("false alarms:\n%s", got)
			}
		})
	}
}

// Usage that exists when the Checker starts is never a violation, whatever the order of
// the lists.
func TestComingLateToBorrowedQuota(t *testing.T) {
	c := newCourse(t)
	c.admitted("one", "a", 7)
	c.member("a", "left", gpus{nominal: 4})
	c.cohort("left", "root", nil)
	c.member("b", "root", gpus{nominal: 4})
	c.member("b", "root", gpus{nominal: 1})
	for i := range len(c.exists) {
		t.Run(fmt.Sprint("lists from ", i), func(t *testing.T) {
			late := &course{world: &world{T: t, now: c.now, revision: c.revision,
				exists: append(c.exists[i:len(c.exists):len(c.exists)], c.exists[:i]...)}}
			late.restart()
			late.settled()
			if v := late.Violations(); len(v) > 0 {
				t.Errorf("what was there already is blamed on somebody: %v", v)
			}
			if late.admitted("two", "b", 1); late.verdict() == "" {
				t.Error("what comes on top was not seen")
			}
			if n := len(late.Violations()); n != 1 {
				t.Errorf("%d violations, want 1:\n%s", n, late.verdict())
			}
		})
	}
}

func TestPreemptionAndBorrowingAreCounted(t *testing.T) {
	c := newCourse(t)
	c.member("a", "all", gpus{nominal: 4})
	c.member("b", "all", gpus{nominal: 4})
	c.admitted("modest", "b", 2)
	guest := c.admitted("guest", "a", 6)
	preempt(guest)
	c.show(guest)
	c.show(guest)
	want := map[Check]int{Reservations: 2, Borrowings: 1, Evictions: 1, Preemptions: 1}
	for check, n := range want {
		if got := c.Stats().Judged[check]; got != n {
			t.Errorf("%s: judged %d times, want %d", check, got, n)
		}
	}
}

// TestEachQuotaViolationIsReported: overuse is reported once, and again if it has ended in between.
func TestEachQuotaViolationIsReported(t *testing.T) {
	c := newCourse(t)
	c.member("a", "all", gpus{nominal: 4})
	w := c.admitted("one", "a", 5)
	c.show(w)
	c.settled()
	c.remove(w)
	c.show(w)
	c.settled()
	if n := len(c.Violations()); n != 2 {
		t.Errorf("%d violations, want 2:\n%s", n, c.verdict())
	}
}

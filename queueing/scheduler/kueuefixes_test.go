package scheduler_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// TestAResourceThatNoFlavorHas (15304) is reported as NoMatchingFlavor, as in Kueue.
func TestAResourceThatNoFlavorHas(t *testing.T) {
	w := queues.WithOneQueue(t)
	w.Set(w.Workload(t, "job", map[string]string{"cpu": "1", "example.com/other": "1"}))
	w.Cycles(t)
	for _, c := range w.Find(t, "job").Status.Conditions {
		if c.Type == kueue.WorkloadQuotaReserved && c.Reason != kueue.WorkloadQuotaReservedReasonNoMatchingFlavor {
			t.Errorf("it waits since %s: %s", c.Reason, c.Message)
		}
	}
}

// TestMuchRoomForLittle (13528): a node has room for more pods than an int32 counts.
func TestMuchRoomForLittle(t *testing.T) {
	w := queues.New()
	w.Set(&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{
		{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}}}})
	w.Set(queues.Flavor("spot", map[string]string{"topology": "racks"}))
	w.Nodes(t, "a", map[string]string{"pool": "spot", "rack": "r1", "memory": "4Ti"})
	w.Set(queues.ClusterQueue(t, "team", nil, "spot memory=8Ti"))
	w.Set(queues.LocalQueue("main", "team", ""))
	w.Set(w.Workload(t, "job", map[string]string{"memory": "1", "topology": "required:rack"}))
	w.Cycles(t)
	if !w.HasQuota(t, "job") {
		t.Errorf("it waits: %v", w.Find(t, "job").Status.Conditions)
	}
}

// TestAFlavorWithoutVictimsIsNotPreferred (13616), where preemption is preferred over borrowing: nothing of it may be preempted.
func TestAFlavorWithoutVictimsIsNotPreferred(t *testing.T) {
	w := queues.New()
	w.Set(queues.Flavor("one", nil))
	w.Set(queues.Flavor("two", nil))
	w.Set(queues.ClusterQueue(t, "team", map[string]string{"cohort": "all", "within": "LowerPriority", "whenCanBorrow": "TryNextFlavor",
		"whenCanPreempt": "TryNextFlavor", "prefers": "PreemptionOverBorrowing"}, "one cpu=4/0\ntwo cpu=0"))
	w.Set(queues.ClusterQueue(t, "other", map[string]string{"cohort": "all"}, "two cpu=4"))
	w.Set(queues.LocalQueue("main", "team", ""))
	w.Set(w.Workload(t, "runs", map[string]string{"cpu": "4", "select": "one"}))
	w.Cycles(t)
	w.Set(w.Workload(t, "next", map[string]string{"cpu": "4"}))
	w.Cycles(t)
	next := w.Find(t, "next")
	if !workload.HasQuota(next) || next.Status.Admission.PodSetAssignments[0].Flavors["cpu"] != "two" {
		t.Errorf("it has %+v: %v", next.Status.Admission, next.Status.Conditions)
	}
}

// TestAnElasticJobOfNoPods (15444, 16400) has a flavor that suits it, and another one once it has pods for which that has no quota.
func TestAnElasticJobOfNoPods(t *testing.T) {
	w := queues.New()
	w.Set(queues.Flavor("tainted", map[string]string{"taint": "gpu:yes"}))
	w.Set(queues.Flavor("small", nil))
	w.Set(queues.Flavor("large", nil))
	w.Set(queues.ClusterQueue(t, "team", nil, "tainted cpu=8\nsmall cpu=1\nlarge cpu=8"))
	w.Set(queues.LocalQueue("main", "team", ""))
	first := w.Workload(t, "first", map[string]string{"cpu": "1", "count": "0"})
	first.Annotations = map[string]string{workload.ElasticAnnotation: "true"}
	w.Set(first)
	w.Cycles(t)
	if a := w.Find(t, "first").Status.Admission; a == nil || a.PodSetAssignments[0].Flavors["cpu"] == "tainted" {
		t.Errorf("without pods it has %+v", a)
	}
	second := w.Workload(t, "second", map[string]string{"cpu": "1", "count": "2"})
	second.Annotations = map[string]string{workload.ElasticAnnotation: "true", workload.ReplacementAnnotation: "default/first",
		kueue.WorkloadSliceNameAnnotation: "first"}
	w.Set(second)
	w.Cycles(t)
	if a := w.Find(t, "second").Status.Admission; a == nil || a.PodSetAssignments[0].Flavors["cpu"] != "large" {
		t.Errorf("with pods it has %+v: %v", a, w.Find(t, "second").Status.Conditions)
	}
}

// TestEachHasVictimsOfItsOwn (13863): of two that preempt in a cycle, the second finds others than those of the first.
func TestEachHasVictimsOfItsOwn(t *testing.T) {
	w := queues.New()
	w.Set(queues.Flavor("spot", nil))
	for _, name := range []string{"a", "b", "victims"} {
		nominal := map[string]string{"victims": "spot cpu=0"}[name]
		if nominal == "" {
			nominal = "spot cpu=4"
		}
		w.Set(queues.ClusterQueue(t, name, map[string]string{"cohort": "all", "reclaim": "Any"}, nominal))
		w.Set(queues.LocalQueue(name, name, ""))
	}
	for i := range 8 {
		w.Set(w.Workload(t, fmt.Sprint("victim-", i), map[string]string{"cpu": "1", "lq": "victims"}))
	}
	w.Cycles(t)
	w.Set(w.Workload(t, "large", map[string]string{"cpu": "4", "lq": "a"}))
	w.Set(w.Workload(t, "others", map[string]string{"cpu": "4", "lq": "b"}))
	evicted := 0
	for _, v := range w.State.Cycle(w.Now) {
		if v.Action == lifecycle.Evict {
			evicted++
		}
	}
	if evicted != 8 {
		t.Errorf("%d are evicted in a cycle, want all of 8", evicted)
	}
}

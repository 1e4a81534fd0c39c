package queueing

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// These are faults that Kueue 0.20 mended, see docs/kueue-fixes.md.

// team has one queue of a flavor.
func team(t *testing.T) *world {
	w := newWorld()
	w.set(flavor("spot", nil))
	w.set(clusterQueue(t, "team", nil, "spot cpu=1"))
	w.set(localQueueTo("main", "team", ""))
	return w
}

func (w *world) hasQuota(t *testing.T, name string) bool { return workload.HasQuota(w.find(t, name)) }

// TestEditedFlavorsWakeWhatWaits (13734): for a toleration that it has now, or a label.
func TestEditedFlavorsWakeWhatWaits(t *testing.T) {
	for name, edit := range map[string]func(*kueue.ResourceFlavor){
		"a toleration": func(f *kueue.ResourceFlavor) {
			f.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
		},
		"a label":  func(f *kueue.ResourceFlavor) { f.Spec.NodeLabels = map[string]string{"pool": "wanted"} },
		"no taint": func(f *kueue.ResourceFlavor) { f.Spec.NodeTaints = nil },
	} {
		w := team(t)
		f := flavor("spot", map[string]string{"taint": "gpu:yes"})
		if name == "a label" {
			f = flavor("spot", nil)
		}
		w.set(f)
		args := map[string]string{"cpu": "1"}
		if name == "a label" {
			args["select"] = "wanted"
		}
		w.set(w.workload(t, "job", args))
		w.cycles(t)
		if w.hasQuota(t, "job") {
			t.Fatalf("%s: it has quota before", name)
		}
		f = f.DeepCopy()
		edit(f)
		w.set(f)
		w.cycles(t)
		if !w.hasQuota(t, "job") {
			t.Errorf("%s: it waits on: %v", name, w.find(t, "job").Status.Conditions)
		}
	}
}

// TestAFlavorThatIsMadeAgainIsInUse (13606): its quota and its places are taken by what runs.
func TestAFlavorThatIsMadeAgainIsInUse(t *testing.T) {
	w := newWorld()
	w.set(&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{
		{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}}}})
	f := flavor("spot", map[string]string{"topology": "racks"})
	w.set(f)
	w.nodes(t, "a", map[string]string{"pool": "spot", "rack": "r1", "cpu": "4"})
	w.set(clusterQueue(t, "team", nil, "spot cpu=8"))
	w.set(localQueueTo("main", "team", ""))
	w.set(w.workload(t, "runs", map[string]string{"cpu": "4", "topology": "required:rack"}))
	w.cycles(t)
	if !w.hasQuota(t, "runs") {
		t.Fatalf("it does not run: %v", w.find(t, "runs").Status.Conditions)
	}
	w.s.Delete(f)
	w.cycles(t)
	w.set(f.DeepCopy())
	w.set(w.workload(t, "more", map[string]string{"cpu": "4", "topology": "required:rack"}))
	w.cycles(t)
	if w.hasQuota(t, "more") {
		t.Error("two have the place of one")
	}
	if got := w.s.Report(w.now); len(got.ClusterQueues) > 0 {
		if u := got.ClusterQueues["team"].FlavorsReservation[0].Resources[0].Total; u.Cmp(resource.MustParse("4")) != 0 {
			t.Errorf("it uses %s", &u)
		}
	}
}

// TestALocalQueueWithoutItsClusterQueue (13708) has no figures of before.
func TestALocalQueueWithoutItsClusterQueue(t *testing.T) {
	w := team(t)
	w.set(w.workload(t, "runs", map[string]string{"cpu": "1"}))
	w.set(w.workload(t, "waits", map[string]string{"cpu": "1"}))
	w.cycles(t)
	main := types.NamespacedName{Namespace: "default", Name: "main"}
	if st := w.s.Report(w.now).LocalQueues[main]; st.AdmittedWorkloads != 1 || st.PendingWorkloads != 1 {
		t.Fatalf("at first it has the status %+v", st)
	}
	w.s.Delete(w.s.Queues["team"].Object)
	w.cycles(t)
	w.s.MarkAllDirty()
	st := w.s.Report(w.now).LocalQueues[main]
	if st.ReservingWorkloads != 0 || st.AdmittedWorkloads != 0 || len(st.FlavorsReservation)+len(st.FlavorsUsage) != 0 {
		t.Errorf("its status is %+v", st)
	}
}

// TestARequestHasNoPodSetsWithoutPods (13975): the API refuses a podSet of no pods.
func TestARequestHasNoPodSetsWithoutPods(t *testing.T) {
	w := newWorld()
	w.set(flavor("spot", nil))
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "machines"}}
	ac.Spec.ControllerName = "muster.dev/capacity"
	w.set(ac)
	w.set(clusterQueue(t, "team", map[string]string{"check": "machines"}, "spot cpu=8"))
	w.set(localQueueTo("main", "team", ""))
	w.machines["spot"] = 4
	object := w.workload(t, "job", map[string]string{"cpu": "1", "launcher": "cpu:1"})
	object.Spec.PodSets[1].Count = 0
	w.set(object)
	seen := 0
	for range 5 {
		for _, v := range w.s.Cycle(w.now) {
			if v.Create != nil {
				seen++
				for _, ps := range v.Create.Object.Spec.PodSets {
					if ps.Count < 1 {
						t.Errorf("the request has the podSet %+v", ps)
					}
				}
			}
			w.apply(&v, nil)
		}
	}
	if seen == 0 {
		t.Errorf("no request was made: %v", w.find(t, "job").Status.Conditions)
	}
}

// TestAResourceThatNoFlavorHas (15304) is reported as NoMatchingFlavor, as in Kueue.
func TestAResourceThatNoFlavorHas(t *testing.T) {
	w := team(t)
	w.set(w.workload(t, "job", map[string]string{"cpu": "1", "example.com/other": "1"}))
	w.cycles(t)
	for _, c := range w.find(t, "job").Status.Conditions {
		if c.Type == kueue.WorkloadQuotaReserved && c.Reason != kueue.WorkloadQuotaReservedReasonNoMatchingFlavor {
			t.Errorf("it waits since %s: %s", c.Reason, c.Message)
		}
	}
}

// TestAClassThatIsGoneIsNotWritten (14565): its Workloads keep their priority, and nothing is written again and again.
func TestAClassThatIsGoneIsNotWritten(t *testing.T) {
	w := team(t)
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 5}
	w.set(class)
	w.set(w.workload(t, "runs", map[string]string{"cpu": "1", "class": "high"}))
	w.set(w.workload(t, "waits", map[string]string{"cpu": "1", "class": "high"}))
	w.cycles(t)
	w.s.Delete(class)
	if out := w.cycles(t); out != "" {
		t.Errorf("it is written: %s", out)
	}
	w.now = w.now.Add(time.Hour)
	if out := w.cycles(t); out != "" {
		t.Errorf("an hour later it is written: %s", out)
	}
	if p := workload.Priority(w.find(t, "waits")); p != 5 {
		t.Errorf("its priority is %d", p)
	}
}

// TestANewClassReachesSlices (13780): pending ones and running ones.
func TestANewClassReachesSlices(t *testing.T) {
	w := team(t)
	w.set(&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 5})
	first := w.workload(t, "first", map[string]string{"cpu": "1", "class": "high"})
	first.Annotations = map[string]string{workload.ElasticAnnotation: "true"}
	w.set(first)
	w.cycles(t)
	second := w.workload(t, "second", map[string]string{"cpu": "1", "count": "2", "class": "high"})
	second.Annotations = map[string]string{workload.ElasticAnnotation: "true", workload.ReplacementAnnotation: "default/first"}
	w.set(second)
	w.cycles(t)
	w.set(&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 7})
	w.cycles(t)
	for _, name := range []string{"first", "second"} {
		if p := workload.Priority(w.find(t, name)); p != 7 {
			t.Errorf("%s has the priority %d", name, p)
		}
	}
}

// TestMuchRoomForLittle (13528): a node has room for more pods than an int32 counts.
func TestMuchRoomForLittle(t *testing.T) {
	w := newWorld()
	w.set(&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{
		{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}}}})
	w.set(flavor("spot", map[string]string{"topology": "racks"}))
	w.nodes(t, "a", map[string]string{"pool": "spot", "rack": "r1", "memory": "4Ti"})
	w.set(clusterQueue(t, "team", nil, "spot memory=8Ti"))
	w.set(localQueueTo("main", "team", ""))
	w.set(w.workload(t, "job", map[string]string{"memory": "1", "topology": "required:rack"}))
	w.cycles(t)
	if !w.hasQuota(t, "job") {
		t.Errorf("it waits: %v", w.find(t, "job").Status.Conditions)
	}
}

// TestPenaltiesEnd (12786, 14153): what a reservation costs its LocalQueue ahead counts once, with checks and after a second admission.
func TestPenaltiesEnd(t *testing.T) {
	w := newWorldWith(config.Config{AdmissionFairSharing: &kueueconfig.AdmissionFairSharing{
		UsageHalfLifeTime: metav1.Duration{Duration: time.Hour}, UsageSamplingInterval: metav1.Duration{Duration: time.Minute}}})
	w.set(flavor("spot", nil))
	w.set(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "approve"},
		Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/approve"}})
	for _, have := range w.s.Checks {
		ac := have.DeepCopy()
		ac.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
		w.set(ac)
	}
	w.set(clusterQueue(t, "team", map[string]string{"byusage": "", "check": "approve"}, "spot cpu=1"))
	w.set(localQueueTo("main", "team", ""))
	w.set(w.workload(t, "job", map[string]string{"cpu": "1"}))
	usage := func() float64 { return w.s.LocalQueues[types.NamespacedName{Namespace: "default", Name: "main"}].Usage }
	w.cycles(t)
	once := usage()
	if once == 0 || !w.hasQuota(t, "job") {
		t.Fatalf("a reservation costs %v", once)
	}
	for range 3 { // a check sends it back, and it gets quota again
		object := w.find(t, "job")
		object.Status.AdmissionChecks[0].State = kueue.CheckStateRetry
		w.set(object)
		w.cycles(t)
		w.cycles(t)
	}
	if got := usage(); got > 4.5*once {
		t.Errorf("after three attempts more it has cost %v, one is %v", got, once)
	}
	w.s.Delete(w.s.Workloads[w.find(t, "job").UID].Object)
	for range 60 * 24 {
		w.now = w.now.Add(time.Minute)
		w.s.Cycle(w.now)
	}
	if got := usage(); got > once/100 {
		t.Errorf("a day later %v is left of %v", got, once)
	}

}

// TestUsageCountsFromTheReservationOn (15000), also while a check decides.
func TestUsageCountsFromTheReservationOn(t *testing.T) {
	w := newWorldWith(config.Config{AdmissionFairSharing: &kueueconfig.AdmissionFairSharing{
		UsageHalfLifeTime: metav1.Duration{Duration: time.Hour}, UsageSamplingInterval: metav1.Duration{Duration: time.Minute}}})
	w.set(flavor("spot", nil))
	w.set(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "approve"},
		Spec:   kueue.AdmissionCheckSpec{ControllerName: "example.com/approve"},
		Status: kueue.AdmissionCheckStatus{Conditions: []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}}})
	w.set(clusterQueue(t, "team", map[string]string{"byusage": "", "check": "approve"}, "spot cpu=1"))
	w.set(localQueueTo("main", "team", ""))
	w.set(w.workload(t, "job", map[string]string{"cpu": "1"}))
	w.cycles(t)
	if !w.hasQuota(t, "job") || workload.IsAdmitted(w.find(t, "job")) {
		t.Fatal("it does not wait for its check")
	}
	for range 60 * 10 {
		w.now = w.now.Add(time.Minute)
		w.s.Cycle(w.now)
	}
	if got := w.s.LocalQueues[types.NamespacedName{Namespace: "default", Name: "main"}].Usage; got < 0.9 {
		t.Errorf("after ten hours of one CPU, it has used %v", got)
	}
}

// TestAFlavorWithoutVictimsIsNotPreferred (13616), where preemption is preferred over borrowing: nothing of it may be preempted.
func TestAFlavorWithoutVictimsIsNotPreferred(t *testing.T) {
	w := newWorld()
	w.set(flavor("one", nil))
	w.set(flavor("two", nil))
	w.set(clusterQueue(t, "team", map[string]string{"cohort": "all", "within": "LowerPriority", "whenCanBorrow": "TryNextFlavor",
		"whenCanPreempt": "TryNextFlavor", "prefers": "PreemptionOverBorrowing"}, "one cpu=4/0\ntwo cpu=0"))
	w.set(clusterQueue(t, "other", map[string]string{"cohort": "all"}, "two cpu=4"))
	w.set(localQueueTo("main", "team", ""))
	w.set(w.workload(t, "runs", map[string]string{"cpu": "4", "select": "one"}))
	w.cycles(t)
	w.set(w.workload(t, "next", map[string]string{"cpu": "4"}))
	w.cycles(t)
	next := w.find(t, "next")
	if !workload.HasQuota(next) || next.Status.Admission.PodSetAssignments[0].Flavors["cpu"] != "two" {
		t.Errorf("it has %+v: %v", next.Status.Admission, next.Status.Conditions)
	}
}

// TestAnElasticJobOfNoPods (15444, 16400) has a flavor that suits it, and another one once it has pods for which that has no quota.
func TestAnElasticJobOfNoPods(t *testing.T) {
	w := newWorld()
	w.set(flavor("tainted", map[string]string{"taint": "gpu:yes"}))
	w.set(flavor("small", nil))
	w.set(flavor("large", nil))
	w.set(clusterQueue(t, "team", nil, "tainted cpu=8\nsmall cpu=1\nlarge cpu=8"))
	w.set(localQueueTo("main", "team", ""))
	first := w.workload(t, "first", map[string]string{"cpu": "1", "count": "0"})
	first.Annotations = map[string]string{workload.ElasticAnnotation: "true"}
	w.set(first)
	w.cycles(t)
	if a := w.find(t, "first").Status.Admission; a == nil || a.PodSetAssignments[0].Flavors["cpu"] == "tainted" {
		t.Errorf("without pods it has %+v", a)
	}
	second := w.workload(t, "second", map[string]string{"cpu": "1", "count": "2"})
	second.Annotations = map[string]string{workload.ElasticAnnotation: "true", workload.ReplacementAnnotation: "default/first",
		kueue.WorkloadSliceNameAnnotation: "first"}
	w.set(second)
	w.cycles(t)
	if a := w.find(t, "second").Status.Admission; a == nil || a.PodSetAssignments[0].Flavors["cpu"] != "large" {
		t.Errorf("with pods it has %+v: %v", a, w.find(t, "second").Status.Conditions)
	}
}

// TestEachHasVictimsOfItsOwn (13863): of two that preempt in a cycle, the second finds others than those of the first.
func TestEachHasVictimsOfItsOwn(t *testing.T) {
	w := newWorld()
	w.set(flavor("spot", nil))
	for _, name := range []string{"a", "b", "victims"} {
		nominal := map[string]string{"victims": "spot cpu=0"}[name]
		if nominal == "" {
			nominal = "spot cpu=4"
		}
		w.set(clusterQueue(t, name, map[string]string{"cohort": "all", "reclaim": "Any"}, nominal))
		w.set(localQueueTo(name, name, ""))
	}
	for i := range 8 {
		w.set(w.workload(t, fmt.Sprint("victim-", i), map[string]string{"cpu": "1", "lq": "victims"}))
	}
	w.cycles(t)
	w.set(w.workload(t, "large", map[string]string{"cpu": "4", "lq": "a"}))
	w.set(w.workload(t, "others", map[string]string{"cpu": "4", "lq": "b"}))
	evicted := 0
	for _, v := range w.s.Cycle(w.now) {
		if v.Action == lifecycle.Evict {
			evicted++
		}
	}
	if evicted != 8 {
		t.Errorf("%d are evicted in a cycle, want all of 8", evicted)
	}
}

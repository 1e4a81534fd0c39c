package cache_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// TestEditedFlavorsWakeWhatWaits (13734): for a toleration that it has now, or a label.
func TestEditedFlavorsWakeWhatWaits(t *testing.T) {
	for name, edit := range map[string]func(*kueue.ResourceFlavor){
		"a toleration": func(f *kueue.ResourceFlavor) {
			f.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
		},
		"a label":  func(f *kueue.ResourceFlavor) { f.Spec.NodeLabels = map[string]string{"pool": "wanted"} },
		"no taint": func(f *kueue.ResourceFlavor) { f.Spec.NodeTaints = nil },
	} {
		w := queues.WithOneQueue(t)
		f := queues.Flavor("spot", map[string]string{"taint": "gpu:yes"})
		if name == "a label" {
			f = queues.Flavor("spot", nil)
		}
		w.Set(f)
		args := map[string]string{"cpu": "1"}
		if name == "a label" {
			args["select"] = "wanted"
		}
		w.Set(w.Workload(t, "job", args))
		w.Cycles(t)
		if w.HasQuota(t, "job") {
			t.Fatalf("%s: it has quota before", name)
		}
		f = f.DeepCopy()
		edit(f)
		w.Set(f)
		w.Cycles(t)
		if !w.HasQuota(t, "job") {
			t.Errorf("%s: it waits on: %v", name, w.Find(t, "job").Status.Conditions)
		}
	}
}

// TestAFlavorThatIsMadeAgainIsInUse (13606): its quota and its places are taken by what runs.
func TestAFlavorThatIsMadeAgainIsInUse(t *testing.T) {
	w := queues.New()
	w.Set(&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{
		{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}}}})
	f := queues.Flavor("spot", map[string]string{"topology": "racks"})
	w.Set(f)
	w.Nodes(t, "a", map[string]string{"pool": "spot", "rack": "r1", "cpu": "4"})
	w.Set(queues.ClusterQueue(t, "team", nil, "spot cpu=8"))
	w.Set(queues.LocalQueue("main", "team", ""))
	w.Set(w.Workload(t, "runs", map[string]string{"cpu": "4", "topology": "required:rack"}))
	w.Cycles(t)
	if !w.HasQuota(t, "runs") {
		t.Fatalf("it does not run: %v", w.Find(t, "runs").Status.Conditions)
	}
	w.Delete(f)
	w.Cycles(t)
	w.Set(f.DeepCopy())
	w.Set(w.Workload(t, "more", map[string]string{"cpu": "4", "topology": "required:rack"}))
	w.Cycles(t)
	if w.HasQuota(t, "more") {
		t.Error("two have the place of one")
	}
	if got := w.State.Report(w.Now); len(got.ClusterQueues) > 0 {
		if u := got.ClusterQueues["team"].FlavorsReservation[0].Resources[0].Total; u.Cmp(resource.MustParse("4")) != 0 {
			t.Errorf("it uses %s", &u)
		}
	}
}

// TestPenaltiesEnd (12786, 14153): what a reservation costs its LocalQueue ahead counts once, with checks and after a second admission.
func TestPenaltiesEnd(t *testing.T) {
	w := queues.NewWith(config.Config{AdmissionFairSharing: &kueueconfig.AdmissionFairSharing{
		UsageHalfLifeTime: metav1.Duration{Duration: time.Hour}, UsageSamplingInterval: metav1.Duration{Duration: time.Minute}}})
	w.Set(queues.Flavor("spot", nil))
	w.Set(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "approve"},
		Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/approve"}})
	for _, have := range w.State.Checks {
		ac := have.DeepCopy()
		ac.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
		w.Set(ac)
	}
	w.Set(queues.ClusterQueue(t, "team", map[string]string{"byusage": "", "check": "approve"}, "spot cpu=1"))
	w.Set(queues.LocalQueue("main", "team", ""))
	w.Set(w.Workload(t, "job", map[string]string{"cpu": "1"}))
	usage := func() float64 {
		return w.State.LocalQueues[types.NamespacedName{Namespace: "default", Name: "main"}].Usage
	}
	w.Cycles(t)
	once := usage()
	if once == 0 || !w.HasQuota(t, "job") {
		t.Fatalf("a reservation costs %v", once)
	}
	for range 3 { // a check sends it back, and it gets quota again
		object := w.Find(t, "job")
		object.Status.AdmissionChecks[0].State = kueue.CheckStateRetry
		w.Set(object)
		w.Cycles(t)
		w.Cycles(t)
	}
	if got := usage(); got > 4.5*once {
		t.Errorf("after three attempts more it has cost %v, one is %v", got, once)
	}
	w.Delete(w.State.Workloads[w.Find(t, "job").UID].Object)
	for range 60 * 24 {
		w.Now = w.Now.Add(time.Minute)
		w.State.Cycle(w.Now)
	}
	if got := usage(); got > once/100 {
		t.Errorf("a day later %v is left of %v", got, once)
	}

}

// TestUsageCountsFromTheReservationOn (15000), also while a check decides.
func TestUsageCountsFromTheReservationOn(t *testing.T) {
	w := queues.NewWith(config.Config{AdmissionFairSharing: &kueueconfig.AdmissionFairSharing{
		UsageHalfLifeTime: metav1.Duration{Duration: time.Hour}, UsageSamplingInterval: metav1.Duration{Duration: time.Minute}}})
	w.Set(queues.Flavor("spot", nil))
	w.Set(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "approve"},
		Spec:   kueue.AdmissionCheckSpec{ControllerName: "example.com/approve"},
		Status: kueue.AdmissionCheckStatus{Conditions: []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}}})
	w.Set(queues.ClusterQueue(t, "team", map[string]string{"byusage": "", "check": "approve"}, "spot cpu=1"))
	w.Set(queues.LocalQueue("main", "team", ""))
	w.Set(w.Workload(t, "job", map[string]string{"cpu": "1"}))
	w.Cycles(t)
	if !w.HasQuota(t, "job") || workload.IsAdmitted(w.Find(t, "job")) {
		t.Fatal("it does not wait for its check")
	}
	for range 60 * 10 {
		w.Now = w.Now.Add(time.Minute)
		w.State.Cycle(w.Now)
	}
	if got := w.State.LocalQueues[types.NamespacedName{Namespace: "default", Name: "main"}].Usage; got < 0.9 {
		t.Errorf("after ten hours of one CPU, it has used %v", got)
	}
}

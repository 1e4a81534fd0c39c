package cache

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/workload"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func limitRange(name string, items ...corev1.LimitRangeItem) *corev1.LimitRange {
	return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: corev1.LimitRangeSpec{Limits: items}}
}

// TestLimitRangesOfANamespace: a pod has to satisfy all of them, so the strictest bounds count. The defaults are those of
// the first one by name.
func TestLimitRangesOfANamespace(t *testing.T) {
	got := rulesOf(map[string]*corev1.LimitRange{
		"a": limitRange("a",
			corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: list("cpu", "4", "memory", "1Gi"), Min: list("cpu", "1"),
				MaxLimitRequestRatio: list("cpu", "3"), Default: list("cpu", "2"), DefaultRequest: list("cpu", "1")},
			corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: list("cpu", "8")},
			corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Max: list("storage", "1Gi")}),
		"b": limitRange("b",
			corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: list("cpu", "3", "memory", "2Gi", "gpu", "8"),
				Min: list("cpu", "2", "gpu", "1"), MaxLimitRequestRatio: list("cpu", "2"),
				Default: list("cpu", "3", "memory", "1Gi"), DefaultRequest: list("cpu", "2")}),
	})
	want := PodRules{
		Container: corev1.LimitRangeItem{Max: list("cpu", "3", "memory", "1Gi", "gpu", "8"), Min: list("cpu", "2", "gpu", "1"),
			MaxLimitRequestRatio: list("cpu", "2"), Default: list("cpu", "2", "memory", "1Gi"), DefaultRequest: list("cpu", "1")},
		Pod: corev1.LimitRangeItem{Max: list("cpu", "8"), Min: list(), MaxLimitRequestRatio: list(), Default: list(), DefaultRequest: list()},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("combined (-want +got)\n%s", diff)
	}
}

// TestDefaultsOfANamespace: queues count what a pod requests once the API server has created it, also of pods that wait since before.
func TestDefaultsOfANamespace(t *testing.T) {
	s := New(config.Config{})
	object := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "1"}}
	object.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1}}
	object.Spec.PodSets[0].Template.Spec.Containers = []corev1.Container{{Name: "c"}}
	s.Set(object)
	expect := func(when string, cpu int64) {
		t.Helper()
		if got := s.Workloads["1"].Pod[0]["cpu"]; got != cpu {
			t.Errorf("%s a pod requests %d thousandths of a CPU, want %d", when, got, cpu)
		}
	}
	expect("without a LimitRange", 0)
	limits := limitRange("limits", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, DefaultRequest: list("cpu", "1")})
	s.Set(limits)
	expect("with a default", 1000)
	edited := limits.DeepCopy()
	edited.Spec.Limits[0].DefaultRequest = list("cpu", "2")
	s.Set(edited)
	expect("with another default", 2000)
	s.Delete(edited)
	expect("once it is deleted", 0)
	if len(s.Namespaces) > 0 {
		t.Errorf("namespaces without objects are kept: %v", s.Namespaces)
	}
}

// TestStopPolicies: None is what resumes a queue.
func TestStopPolicies(t *testing.T) {
	for _, tc := range []struct {
		policy         *kueue.StopPolicy
		stopped, drain bool
	}{
		{nil, false, false},
		{new(kueue.None), false, false},
		{new(kueue.Hold), true, false},
		{new(kueue.HoldAndDrain), true, true},
	} {
		if stopped, drains := IsStopped(tc.policy), Drains(tc.policy); stopped != tc.stopped || drains != tc.drain {
			t.Errorf("policy %v: stopped %v, drains %v; want %v, %v", tc.policy, stopped, drains, tc.stopped, tc.drain)
		}
	}
}

// TestPlaceAfterAnEviction: a Workload whose attempt failed by itself goes to the back of its queue. One that was preempted
// keeps its place.
func TestPlaceAfterAnEviction(t *testing.T) {
	created, evicted := metav1.Unix(1000, 0), metav1.Unix(2000, 0)
	byCreation := config.Config{WaitForPodsReady: &kueueconfig.WaitForPodsReady{
		RequeuingStrategy: &kueueconfig.RequeuingStrategy{Timestamp: new(kueueconfig.CreationTimestamp)}}}
	byEviction := config.Config{WaitForPodsReady: &kueueconfig.WaitForPodsReady{
		RequeuingStrategy: &kueueconfig.RequeuingStrategy{Timestamp: new(kueueconfig.EvictionTimestamp)}}}
	for _, tc := range []struct {
		name   string
		config config.Config
		reason string
		status metav1.ConditionStatus
		want   metav1.Time
	}{
		{"preempted", config.Config{}, kueue.WorkloadEvictedByPreemption, metav1.ConditionTrue, created},
		{"by a check", config.Config{}, kueue.WorkloadEvictedByAdmissionCheck, metav1.ConditionTrue, evicted},
		{"by a check, and it got quota again", config.Config{}, kueue.WorkloadEvictedByAdmissionCheck, metav1.ConditionFalse, created},
		{"by a check, ordered by creation", byCreation, kueue.WorkloadEvictedByAdmissionCheck, metav1.ConditionTrue, evicted},
		{"its pods were late", config.Config{}, kueue.WorkloadEvictedByPodsReadyTimeout, metav1.ConditionTrue, evicted},
		{"its pods were late, no strategy", config.Config{WaitForPodsReady: &kueueconfig.WaitForPodsReady{}},
			kueue.WorkloadEvictedByPodsReadyTimeout, metav1.ConditionTrue, evicted},
		{"its pods were late, no timestamp", config.Config{WaitForPodsReady: &kueueconfig.WaitForPodsReady{
			RequeuingStrategy: &kueueconfig.RequeuingStrategy{}}}, kueue.WorkloadEvictedByPodsReadyTimeout, metav1.ConditionTrue, evicted},
		{"its pods were late, ordered by eviction", byEviction, kueue.WorkloadEvictedByPodsReadyTimeout, metav1.ConditionTrue, evicted},
		{"its pods were late, ordered by creation", byCreation, kueue.WorkloadEvictedByPodsReadyTimeout, metav1.ConditionTrue, created},
		{"its pods were rejected", config.Config{}, workload.ReasonPodsRefused, metav1.ConditionTrue, evicted},
		{"its pods were rejected, ordered by creation", byCreation, workload.ReasonPodsRefused, metav1.ConditionTrue, created},
	} {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: created}}
		w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadEvicted, Status: tc.status, Reason: tc.reason, LastTransitionTime: evicted}}
		if got := New(tc.config).NewWorkload(w).Since; !got.Equal(tc.want.Time) {
			t.Errorf("%s: it waits since %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestReplace: an equal object saves memory only if it is equal to the current one.
func TestReplace(t *testing.T) {
	s := New(config.Config{})
	version := func(v string) *kueue.Workload {
		return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "1", ResourceVersion: v}}
	}
	first, second, shared := version("1"), version("2"), version("2")
	s.Replace(first, shared) // it does not exist yet
	s.Set(first)
	s.Set(second)
	if s.Replace(first, shared); s.Workloads["1"].Object != second {
		t.Error("an outdated object was replaced")
	}
	if s.Replace(second, shared); s.Workloads["1"].Object != shared {
		t.Error("the current object was not replaced")
	}
}

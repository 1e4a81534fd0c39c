package scheduler_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

func cpus(v string) corev1.ResourceList {
	if v == "" {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(v)}
}

func limitRange(items ...corev1.LimitRangeItem) *corev1.LimitRange {
	out := &corev1.LimitRange{}
	out.Namespace, out.Name, out.Spec.Limits = "default", "range", items
	return out
}

// TestPodsThatTheAPIServerWouldRefuse get no quota, and their Workload reports why. Workloads of other clients count with what the API
// server will add.
func TestPodsThatTheAPIServerWouldRefuse(t *testing.T) {
	container := func(change func(*corev1.LimitRangeItem)) *corev1.LimitRange {
		item := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer}
		change(&item)
		return limitRange(item)
	}
	pod := func(most, least string) *corev1.LimitRange {
		return limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: cpus(most), Min: cpus(least)})
	}
	for name, tt := range map[string]struct {
		request, limit string
		podRequest     string
		overhead       string
		rule           *corev1.LimitRange
		// want is what a pod counts, or a part of why it does not.
		want string
	}{
		"nothing is asked for or added":         {want: ""},
		"a request":                             {request: "2", want: "2"},
		"a limit is the request":                {limit: "3", want: "3"},
		"a request above its limit":             {request: "3", limit: "2", want: `resources validation failed: spec.podSets[0].template.spec.containers[0]: Invalid value: ["cpu"]: requests must not exceed its limits`},
		"a pod's request below its containers'": {request: "3", podRequest: "2", want: `resources validation failed: spec.podSets[0].template.spec.resources: Invalid value: ["cpu"]: must not be less than the requests of all containers`},
		"a pod's request above its containers'": {request: "3", podRequest: "4", overhead: "1", want: "5"},
		"an overhead":                           {request: "2", overhead: "1", want: "3"},
		"a default request":                     {rule: container(func(i *corev1.LimitRangeItem) { i.DefaultRequest = cpus("2") }), want: "2"},
		"a request goes before a default":       {request: "1", rule: container(func(i *corev1.LimitRangeItem) { i.DefaultRequest = cpus("2") }), want: "1"},
		"a limit goes before a default":         {limit: "3", rule: container(func(i *corev1.LimitRangeItem) { i.DefaultRequest = cpus("2") }), want: "3"},
		"a request above the default limit":     {request: "3", rule: container(func(i *corev1.LimitRangeItem) { i.Default = cpus("2") }), want: "requests must not exceed its limits"},
		"at the max":                            {limit: "4", rule: container(func(i *corev1.LimitRangeItem) { i.Max = cpus("4") }), want: "4"},
		"above the max": {limit: "5", rule: container(func(i *corev1.LimitRangeItem) { i.Max = cpus("4") }),
			want: `resources didn't satisfy LimitRange constraints: spec.podSets[0].template.spec.containers[0]: Invalid value: ["cpu"]: ` +
				`requests must not be above the limitRange max`},
		"no limit under a max":             {request: "1", rule: container(func(i *corev1.LimitRangeItem) { i.Max = cpus("4") }), want: "above the limitRange max"},
		"the default limit is under a max": {request: "1", rule: container(func(i *corev1.LimitRangeItem) { i.Max, i.Default = cpus("4"), cpus("4") }), want: "1"},
		"below the min":                    {request: "1", rule: container(func(i *corev1.LimitRangeItem) { i.Min = cpus("2") }), want: "requests must not be below the limitRange min"},
		"at the min":                       {request: "2", rule: container(func(i *corev1.LimitRangeItem) { i.Min = cpus("2") }), want: "2"},
		"no request over a min":            {rule: container(func(i *corev1.LimitRangeItem) { i.Min = cpus("2") }), want: "below the limitRange min"},
		"within the ratio":                 {request: "1", limit: "2", rule: container(func(i *corev1.LimitRangeItem) { i.MaxLimitRequestRatio = cpus("2") }), want: "1"},
		"above the ratio":                  {request: "1", limit: "3", rule: container(func(i *corev1.LimitRangeItem) { i.MaxLimitRequestRatio = cpus("2") }), want: "maxLimitRequestRatio"},
		"a pod at its max":                 {limit: "4", rule: pod("4", ""), want: "4"},
		"a pod above its max":              {limit: "5", rule: pod("4", ""), want: `spec.podSets[0].template.spec: Invalid value: ["cpu"]: requests must not be above the limitRange max`},
		"a pod without a limit":            {request: "1", rule: pod("4", ""), want: "above the limitRange max"},
		"a pod below its min":              {limit: "1", rule: pod("", "2"), want: "below the limitRange min"},
		"overhead is no part of the bound": {limit: "4", overhead: "1", rule: pod("4", ""), want: "5"},
		"the strictest of several": {limit: "4", rule: limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cpus("5")},
			corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cpus("3")}), want: "above the limitRange max"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, late := range []bool{false, true} {
				w := queues.New()
				w.Set(queues.Flavor("spot", nil))
				w.Set(queues.LocalQueue("main", "queue", ""))
				w.Set(queues.ClusterQueue(t, "queue", nil, "spot cpu=10"))
				object := w.Workload(t, "one", map[string]string{"cpu": "1", "count": "1"})
				spec := &object.Spec.PodSets[0].Template.Spec
				spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: cpus(tt.request), Limits: cpus(tt.limit)}
				if tt.podRequest != "" {
					spec.Resources = &corev1.ResourceRequirements{Requests: cpus(tt.podRequest)}
				}
				rules := func() {
					if tt.rule != nil {
						w.State.Set(tt.rule)
					}
					if tt.overhead != "" {
						class := &nodev1.RuntimeClass{Overhead: &nodev1.Overhead{PodFixed: cpus(tt.overhead)}}
						class.Name = "gvisor"
						w.State.Set(class)
					}
				}
				if tt.overhead != "" {
					spec.RuntimeClassName = new("gvisor")
				}
				if !late {
					rules()
				}
				w.Set(object)
				if late {
					w.State.Rebuild()
					rules()
				}
				w.Cycles(t)
				one := w.State.Workloads[object.UID]
				if got := workload.UsageOf(one.Object); workload.HasQuota(one.Object) {
					var sum int64
					for _, v := range got {
						sum += v
					}
					if have := resource.NewMilliQuantity(sum, resource.DecimalSI).String(); have != tt.want && (tt.want != "" || sum > 0) {
						t.Errorf("late %v: a pod counts %s, want %s", late, have, tt.want)
					}
				} else if one.Reason != kueue.WorkloadQuotaReservedReasonMisconfigured || !strings.Contains(one.Message, tt.want) || tt.want == "" {
					t.Errorf("late %v: it waits: %s: %s, want %s", late, one.Reason, one.Message, tt.want)
				}
				if tt.rule == nil || workload.HasQuota(one.Object) {
					continue
				}
				// The rule is lifted.
				w.Delete(tt.rule)
				w.Cycles(t)
				if !workload.HasQuota(w.State.Workloads[object.UID].Object) {
					t.Errorf("late %v: without the LimitRange it waits: %s", late, one.Message)
				}
			}
		})
	}
}

// TestANamespaceThatComesAgain: its deletion may be observed after objects of the next namespace of its name, since each kind has its own
// watch.
func TestANamespaceThatComesAgain(t *testing.T) {
	w := queues.New()
	namespace := &corev1.Namespace{}
	namespace.Name, namespace.Labels = "default", map[string]string{"team": "a"}
	w.Set(limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: cpus("1")}))
	quota := &corev1.ResourceQuota{}
	quota.Namespace, quota.Name = "default", "quota"
	w.Set(quota)
	w.Delete(namespace)
	if labels := w.State.Namespaces.LabelsOf("default"); len(labels) > 0 {
		t.Errorf("it is gone, and has the labels %v", labels)
	}
	w.Set(namespace)
	if ns := w.State.Namespaces["default"]; len(ns.Rules.Pod.Max) == 0 || len(ns.Quotas) == 0 {
		t.Errorf("its LimitRange and its ResourceQuota are forgotten: %+v", ns)
	}
	w.Delete(namespace)
	w.Delete(limitRange())
	w.Delete(quota)
	if ns := w.State.Namespaces["default"]; ns != nil {
		t.Errorf("all is gone, and it is kept: %+v", ns)
	}
}

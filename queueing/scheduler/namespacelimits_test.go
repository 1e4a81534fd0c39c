package scheduler_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// TestManyOfOneCycleCountTogether: admissions that no usage shows yet.
func TestManyOfOneCycleCountTogether(t *testing.T) {
	w := queues.New()
	w.State.Config.NamespaceQuota = true
	w.Set(queues.Flavor("f", nil))
	w.Set(queues.ClusterQueue(t, "team", nil, "f cpu=100"))
	w.Set(queues.LocalQueue("main", "team", ""))
	w.Set(queues.ResourceQuota("team", map[string]string{"pods": "5"}))
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		w.Set(w.Workload(t, name, map[string]string{"cpu": "1"}))
	}
	w.Cycles(t)
	admitted := 0
	for _, x := range w.State.Workloads {
		if workload.IsAdmitted(x.Object) {
			admitted++
		}
	}
	if admitted != 5 {
		t.Errorf("%d workloads of one pod are admitted, where 5 pods may be", admitted)
	}
}

// TestDefaultLimitsOfANamespaceCount: pods get them that name none, or not all.
func TestDefaultLimitsOfANamespaceCount(t *testing.T) {
	limits := func(name string, kind corev1.LimitType, cpu, memory string) *corev1.LimitRange {
		return &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: kind, Default: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)},
			}}},
		}
	}
	for name, c := range map[string]struct {
		ranges []*corev1.LimitRange
		gone   string
		quota  map[string]string
		scope  corev1.ResourceQuotaScope
		waits  bool
	}{
		"without a LimitRange":              {quota: map[string]string{"limits.cpu": "7"}},
		"its default for each container":    {ranges: []*corev1.LimitRange{limits("a", corev1.LimitTypeContainer, "4", "1Gi")}, quota: map[string]string{"limits.cpu": "7"}, waits: true},
		"as much as there is":               {ranges: []*corev1.LimitRange{limits("a", corev1.LimitTypeContainer, "4", "1Gi")}, quota: map[string]string{"limits.cpu": "8"}},
		"what the pods say comes first":     {ranges: []*corev1.LimitRange{limits("a", corev1.LimitTypeContainer, "1", "9Gi")}, quota: map[string]string{"limits.memory": "4Gi"}},
		"of several the first by its name":  {ranges: []*corev1.LimitRange{limits("b", corev1.LimitTypeContainer, "9", "1Gi"), limits("a", corev1.LimitTypeContainer, "3", "1Gi")}, quota: map[string]string{"limits.cpu": "6"}},
		"another one without defaults":      {ranges: []*corev1.LimitRange{limits("a", corev1.LimitTypeContainer, "4", "1Gi"), {ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer}}}}}, quota: map[string]string{"limits.cpu": "7"}, waits: true},
		"one that is gone":                  {ranges: []*corev1.LimitRange{limits("a", corev1.LimitTypeContainer, "4", "1Gi")}, gone: "a", quota: map[string]string{"limits.cpu": "7"}},
		"one for pods gives nothing":        {ranges: []*corev1.LimitRange{limits("a", corev1.LimitTypePod, "4", "1Gi")}, quota: map[string]string{"limits.cpu": "7"}},
		"they are the requests, too":        {ranges: []*corev1.LimitRange{limits("a", corev1.LimitTypeContainer, "4", "1Gi")}, quota: map[string]string{"requests.cpu": "7"}, waits: true},
		"with limits they are not the best": {ranges: []*corev1.LimitRange{limits("a", corev1.LimitTypeContainer, "4", "1Gi")}, quota: map[string]string{"pods": "0"}, scope: corev1.ResourceQuotaScopeNotBestEffort, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := queues.New()
			w.State.Config.NamespaceQuota = true
			w.Set(queues.Flavor("f", nil))
			w.Set(queues.ClusterQueue(t, "team", nil, "f cpu=100 gpu=100 memory=100Gi"))
			w.Set(queues.LocalQueue("main", "team", ""))
			q := queues.ResourceQuota("team", c.quota)
			if c.scope != "" {
				q.Spec.Scopes = []corev1.ResourceQuotaScope{c.scope}
			}
			w.Set(q)
			for _, r := range c.ranges {
				w.Set(r)
				if r.Name == c.gone {
					w.Delete(r)
				}
			}
			object := w.Workload(t, "train", map[string]string{"gpu": "1", "count": "2"})
			if _, ok := c.quota["limits.memory"]; ok {
				object.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("2Gi")}
			}
			w.Set(object)
			w.Cycles(t)
			if admitted := workload.IsAdmitted(w.Find(t, "train")); admitted == c.waits {
				t.Errorf("it is admitted: %v, want %v; told %v", admitted, !c.waits, w.Find(t, "train").Status.Conditions)
			}
		})
	}
}

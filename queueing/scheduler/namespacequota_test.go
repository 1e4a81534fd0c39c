package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/config"
)

// TestWhatAResourceQuotaCounts is one podSet of three pods, each with 2 CPU and a
// limit of 4, 1Gi and one GPU, under each key of a quota.
func TestWhatAResourceQuotaCounts(t *testing.T) {
	list := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi"), "nvidia.com/gpu": resource.MustParse("1")}
	}
	spec := corev1.PodSpec{
		Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("2"), Limits: list("4")}}},
		Overhead:   corev1.ResourceList{"memory": resource.MustParse("1Gi")},
	}
	object := &kueue.Workload{}
	object.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 4, Template: corev1.PodTemplateSpec{Spec: spec}}}
	object.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}}
	admission := &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(4))}}}
	for name, want := range map[corev1.ResourceName]string{
		"pods": "3", "count/pods": "3", "cpu": "6", "requests.cpu": "6", "limits.cpu": "12", "memory": "6Gi", "limits.memory": "6Gi",
		"requests.nvidia.com/gpu": "3", "limits.nvidia.com/gpu": "3", "requests.ephemeral-storage": "0", "hugepages-2Mi": "0",
		"services": "", "count/jobs.batch": "", "requests.storage": "", "persistentvolumeclaims": "",
	} {
		m, ok := measureOf(name)
		if ok != (want != "") {
			t.Errorf("%s is looked at: %v", name, ok)
		}
		if want == "" {
			continue
		}
		if got := m.of(cache.New(config.Config{}), &corev1.ResourceQuota{}, object, admission); got != m.amount(resource.MustParse(want)) {
			t.Errorf("%s: %d, want %s", name, got, want)
		}
	}
}

func TestScopesOfAResourceQuota(t *testing.T) {
	burstable := corev1.PodSpec{Containers: []corev1.Container{
		{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}}
	gpuOnly := corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}}}
	deadline := corev1.PodSpec{ActiveDeadlineSeconds: new(int64(60))}
	high := corev1.PodSpec{PriorityClassName: "high"}
	class := func(op corev1.ScopeSelectorOperator, values ...string) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{
			ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
				{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: op, Values: values},
			}}}}
	}
	scoped := func(scopes ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Scopes: scopes}}
	}
	for name, c := range map[string]struct {
		quota *corev1.ResourceQuota
		spec  corev1.PodSpec
		want  bool
	}{
		"no scope is for all pods":        {scoped(), burstable, true},
		"with a deadline":                 {scoped(corev1.ResourceQuotaScopeTerminating), deadline, true},
		"without a deadline":              {scoped(corev1.ResourceQuotaScopeTerminating), burstable, false},
		"not terminating":                 {scoped(corev1.ResourceQuotaScopeNotTerminating), burstable, true},
		"not terminating, but a deadline": {scoped(corev1.ResourceQuotaScopeNotTerminating), deadline, false},
		"only a GPU is best effort":       {scoped(corev1.ResourceQuotaScopeBestEffort), gpuOnly, true},
		"CPU is not best effort":          {scoped(corev1.ResourceQuotaScopeBestEffort), burstable, false},
		"not best effort":                 {scoped(corev1.ResourceQuotaScopeNotBestEffort), burstable, true},
		"all scopes have to hold":         {scoped(corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopeTerminating), burstable, false},
		"of the class":                    {class(corev1.ScopeSelectorOpIn, "high"), high, true},
		"of another class":                {class(corev1.ScopeSelectorOpIn, "low"), high, false},
		"of no class, though one is due":  {class(corev1.ScopeSelectorOpIn, "low"), burstable, false},
		"not of the class":                {class(corev1.ScopeSelectorOpNotIn, "high"), high, false},
		"of any class":                    {class(corev1.ScopeSelectorOpExists), high, true},
		"of no class":                     {class(corev1.ScopeSelectorOpDoesNotExist), high, false},
		"what a template does not tell":   {scoped(corev1.ResourceQuotaScopeCrossNamespacePodAffinity), high, false},
	} {
		if got := inScope(c.quota, &c.spec); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

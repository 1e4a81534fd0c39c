package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// object is one that is created as it should not be, with its twin as it should.
type object struct {
	name      string
	bad, good client.Object
	// want are words of the refusal: the field, its value and what to do.
	want []string
}

func amount(v string) *resource.Quantity {
	q := resource.MustParse(v)
	return &q
}

// clusterQueue has quota of CPU and memory in two flavors, and a cohort.
func clusterQueue(change func(*kueue.ClusterQueue)) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "objects"}}
	cq.Spec.CohortName = "objects"
	cq.Spec.ResourceGroups = resourceGroups()
	if change != nil {
		change(cq)
	}
	return cq
}

func resourceGroups() []kueue.ResourceGroup {
	quotas := func() []kueue.ResourceQuota {
		return []kueue.ResourceQuota{{Name: "cpu", NominalQuota: *amount("10")}, {Name: "memory", NominalQuota: *amount("10Gi")}}
	}
	return []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu", "memory"}, Flavors: []kueue.FlavorQuotas{
		{Name: "spot", Resources: quotas()}, {Name: "steady", Resources: quotas()},
	}}}
}

// quota of CPU in the first flavor.
func quota(cq *kueue.ClusterQueue) *kueue.ResourceQuota {
	return &cq.Spec.ResourceGroups[0].Flavors[0].Resources[0]
}

func cohort(change func(*kueue.Cohort)) *kueue.Cohort {
	c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "objects"}}
	c.Spec.ParentName = "parent"
	c.Spec.ResourceGroups = resourceGroups()
	if change != nil {
		change(c)
	}
	return c
}

func flavor(change func(*kueue.ResourceFlavor)) *kueue.ResourceFlavor {
	f := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "objects"}}
	f.Spec.NodeLabels = map[string]string{"example.com/pool": "spot"}
	f.Spec.NodeTaints = []corev1.Taint{{Key: "example.com/spot", Effect: corev1.TaintEffectNoSchedule}}
	if change != nil {
		change(f)
	}
	return f
}

func localQueue(change func(*kueue.LocalQueue)) *kueue.LocalQueue {
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "objects"}}
	lq.Spec.ClusterQueue = "objects"
	if change != nil {
		change(lq)
	}
	return lq
}

func requestConfig(change func(*kueue.ProvisioningRequestConfig)) *kueue.ProvisioningRequestConfig {
	c := &kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: "objects"}}
	c.Spec.ProvisioningClassName = "atomic-scale-up.muster.dev"
	c.Spec.RetryStrategy = &kueue.ProvisioningRequestRetryStrategy{}
	if change != nil {
		change(c)
	}
	return c
}

// workload is of no queue: a driver, and four workers of one CPU.
func workload(change func(*kueue.Workload)) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "objects"}}
	for name, count := range map[kueue.PodSetReference]int32{"driver": 1, "workers": 4} {
		ps := kueue.PodSet{Name: name, Count: count}
		ps.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
			Name: "main", Image: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": *amount("1")}},
		}}}
		w.Spec.PodSets = append(w.Spec.PodSets, ps)
	}
	slices.SortFunc(w.Spec.PodSets, func(a, b kueue.PodSet) int { return strings.Compare(string(a.Name), string(b.Name)) })
	if change != nil {
		change(w)
	}
	return w
}

// requests of the workers.
func requests(w *kueue.Workload) corev1.ResourceList {
	return w.Spec.PodSets[1].Template.Spec.Containers[0].Resources.Requests
}

func gated(by string) *kueue.Workload {
	return workload(func(w *kueue.Workload) {
		w.Annotations = map[string]string{"kueue.x-k8s.io/admission-gated-by": by}
	})
}

func selects(s metav1.LabelSelectorRequirement) *kueue.ClusterQueue {
	return clusterQueue(func(cq *kueue.ClusterQueue) {
		cq.Spec.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{s}}
	})
}

// objects are objects that Kueue's webhooks and schemas refuse.
var objects = []object{
	{"a flavor that leaves out a resource",
		clusterQueue(func(cq *kueue.ClusterQueue) {
			f := &cq.Spec.ResourceGroups[0].Flavors[1]
			f.Resources = f.Resources[:1]
		}), clusterQueue(nil), []string{"spec.resourceGroups[0]", "list all of coveredResources, in their order"}},
	{"resources in another order",
		clusterQueue(func(cq *kueue.ClusterQueue) { slices.Reverse(cq.Spec.ResourceGroups[0].Flavors[1].Resources) }), clusterQueue(nil),
		[]string{"spec.resourceGroups", `flavor "steady" lists the resources memory, cpu`, "in their order: cpu, memory"}},
	{"a resource that pods cannot ask for",
		clusterQueue(func(cq *kueue.ClusterQueue) {
			cq.Spec.ResourceGroups[0].CoveredResources[0] = "a b"
			for i := range cq.Spec.ResourceGroups[0].Flavors {
				cq.Spec.ResourceGroups[0].Flavors[i].Resources[0].Name = "a b"
			}
		}), clusterQueue(nil), []string{"coveredResources", `"a b"`, "give the name that pods use"}},
	{"a resource in two groups",
		clusterQueue(func(cq *kueue.ClusterQueue) {
			again := resourceGroups()[0]
			again.Flavors[0].Name, again.Flavors[1].Name = "third", "fourth"
			cq.Spec.ResourceGroups = append(cq.Spec.ResourceGroups, again)
		}), clusterQueue(nil), []string{"coveredResources", `resource "cpu"`, "take it out of the others"}},
	{"a flavor in two groups",
		clusterQueue(func(cq *kueue.ClusterQueue) {
			again := resourceGroups()[0]
			again.CoveredResources = []corev1.ResourceName{"example.com/a", "example.com/b"}
			for i := range again.Flavors {
				again.Flavors[i].Resources[0].Name, again.Flavors[i].Resources[1].Name = "example.com/a", "example.com/b"
			}
			cq.Spec.ResourceGroups = append(cq.Spec.ResourceGroups, again)
		}), clusterQueue(nil), []string{"spec.resourceGroups", `flavor "spot"`, "make another ResourceFlavor"}},
	{"less than no quota",
		clusterQueue(func(cq *kueue.ClusterQueue) { quota(cq).NominalQuota = *amount("-1") }),
		clusterQueue(func(cq *kueue.ClusterQueue) { quota(cq).NominalQuota = *amount("0") }),
		[]string{`flavor "spot"`, "nominalQuota of cpu is -1", "give an amount of 0 or more"}},
	{"less than nothing to borrow",
		clusterQueue(func(cq *kueue.ClusterQueue) { quota(cq).BorrowingLimit = amount("-500m") }),
		clusterQueue(func(cq *kueue.ClusterQueue) { quota(cq).BorrowingLimit = amount("0") }),
		[]string{"borrowingLimit of cpu is -500m", "give an amount of 0 or more"}},
	{"less than nothing to lend",
		clusterQueue(func(cq *kueue.ClusterQueue) { quota(cq).LendingLimit = amount("-1") }),
		clusterQueue(func(cq *kueue.ClusterQueue) { quota(cq).LendingLimit = amount("0") }),
		[]string{"lendingLimit of cpu is -1", "give an amount of 0 or more"}},
	{"more to lend than there is",
		clusterQueue(func(cq *kueue.ClusterQueue) { quota(cq).LendingLimit = amount("11") }),
		clusterQueue(func(cq *kueue.ClusterQueue) { quota(cq).LendingLimit = amount("10000m") }),
		[]string{"lendingLimit of cpu is 11", "at most the nominalQuota of 10"}},
	{"a limit of borrowing without a cohort",
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.CohortName, quota(cq).BorrowingLimit = "", amount("1") }),
		clusterQueue(func(cq *kueue.ClusterQueue) { quota(cq).BorrowingLimit = amount("1") }),
		[]string{"spec", "a borrowingLimit has no effect without a cohort; set cohortName"}},
	{"a limit of lending without a cohort",
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.CohortName, quota(cq).LendingLimit = "", amount("1") }),
		clusterQueue(func(cq *kueue.ClusterQueue) { quota(cq).LendingLimit = amount("1") }),
		[]string{"lendingLimit of cpu is 1", "set spec.cohortName, or remove the limit"}},
	{"a check on a flavor of another queue",
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.AdmissionChecksStrategy = checkOn("golden") }),
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.AdmissionChecksStrategy = checkOn("spot") }),
		[]string{"spec.admissionChecksStrategy", `flavor "golden"`, "choose among spot, steady"}},
	{"borrowing that reclaims from nobody",
		clusterQueue(func(cq *kueue.ClusterQueue) {
			cq.Spec.Preemption = &kueue.ClusterQueuePreemption{BorrowWithinCohort: &kueue.BorrowWithinCohort{
				Policy: kueue.BorrowWithinCohortPolicyLowerPriority}}
		}),
		clusterQueue(func(cq *kueue.ClusterQueue) {
			cq.Spec.Preemption = &kueue.ClusterQueuePreemption{
				ReclaimWithinCohort: kueue.PreemptionPolicyAny,
				BorrowWithinCohort:  &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority},
			}
		}), []string{"spec.preemption", "set reclaimWithinCohort to Any or LowerPriority"}},
	{"a preference that never comes to be asked",
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.FlavorFungibility = fungibility(kueue.MayStopSearch) }),
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.FlavorFungibility = fungibility(kueue.TryNextFlavor) }),
		[]string{"spec.flavorFungibility", "set whenCanBorrow and whenCanPreempt to TryNextFlavor"}},
	{"a strategy that there is not",
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.QueueingStrategy = "Random" }), clusterQueue(nil),
		[]string{"spec.queueingStrategy", `"Random"`, "StrictFIFO"}},
	{"a weight below nothing",
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.FairSharing = weight("-1") }),
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.FairSharing = weight("0") }),
		[]string{"spec.fairSharing.weight is -1", "give 0"}},
	{"a weight next to nothing",
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.FairSharing = weight("1n") }),
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.FairSharing = weight("2n") }),
		[]string{"spec.fairSharing.weight is 1n", "more than 1n"}},
	{"an operator that there is not",
		selects(metav1.LabelSelectorRequirement{Key: "a", Operator: "Near"}),
		selects(metav1.LabelSelectorRequirement{Key: "a", Operator: "Exists"}),
		[]string{"spec.namespaceSelector", `"Near"`, "choose among In, NotIn"}},
	{"in nothing",
		selects(metav1.LabelSelectorRequirement{Key: "a", Operator: "In"}),
		selects(metav1.LabelSelectorRequirement{Key: "a", Operator: "In", Values: []string{"b"}}),
		[]string{"spec.namespaceSelector", `operator In of key "a" has no values`, "list at least one"}},
	{"exists as something",
		selects(metav1.LabelSelectorRequirement{Key: "a", Operator: "Exists", Values: []string{"b"}}),
		selects(metav1.LabelSelectorRequirement{Key: "a", Operator: "NotIn", Values: []string{"b"}}),
		[]string{"spec.namespaceSelector", "operator Exists", "take them out"}},
	{"a key of no label",
		selects(metav1.LabelSelectorRequirement{Key: "a b", Operator: "Exists"}),
		selects(metav1.LabelSelectorRequirement{Key: "a.b/c", Operator: "Exists"}),
		[]string{"spec.namespaceSelector", `"a b" is no key of a label`, "correct it"}},
	{"a value of no label",
		selects(metav1.LabelSelectorRequirement{Key: "a", Operator: "In", Values: []string{"-"}}),
		selects(metav1.LabelSelectorRequirement{Key: "a", Operator: "In", Values: []string{"x-y"}}),
		[]string{"spec.namespaceSelector", `"-" is no value of a label`, "correct it"}},
	{"too many flavors",
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.ResourceGroups = manyFlavors(5, 52, 1) }),
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.ResourceGroups = manyFlavors(4, 64, 1) }),
		[]string{"260 flavors", "256 are the most", "several ClusterQueues"}},
	{"too many resources",
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.ResourceGroups = manyFlavors(5, 1, 52) }),
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.ResourceGroups = manyFlavors(4, 8, 64) }),
		[]string{"260 resources", "256 are the most", "several ClusterQueues"}},
	{"too many of both",
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.ResourceGroups = manyFlavors(1, 27, 19) }),
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Spec.ResourceGroups = manyFlavors(4, 32, 16) }),
		[]string{"more than 512 pairs", "split it"}},

	{"a cohort with less than no quota",
		cohort(func(c *kueue.Cohort) { c.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = *amount("-1") }), cohort(nil),
		[]string{"nominalQuota of cpu is -1"}},
	{"a cohort that lends without a parent",
		cohort(func(c *kueue.Cohort) {
			c.Spec.ParentName, c.Spec.ResourceGroups[0].Flavors[0].Resources[0].LendingLimit = "", amount("1")
		}),
		cohort(func(c *kueue.Cohort) { c.Spec.ResourceGroups[0].Flavors[0].Resources[0].LendingLimit = amount("100") }),
		[]string{"lendingLimit of cpu is 1", "set spec.parentName, or remove the limit"}},
	{"a cohort of a weight below nothing",
		cohort(func(c *kueue.Cohort) { c.Spec.FairSharing = weight("-1") }), cohort(func(c *kueue.Cohort) { c.Spec.FairSharing = weight("2") }),
		[]string{"spec.fairSharing.weight is -1"}},
	{"a cohort with resources in another order",
		cohort(func(c *kueue.Cohort) { slices.Reverse(c.Spec.ResourceGroups[0].CoveredResources) }), cohort(nil),
		[]string{`flavor "spot" lists the resources cpu, memory`, "in their order: memory, cpu"}},

	{"a label that no node can bear",
		flavor(func(f *kueue.ResourceFlavor) { f.Spec.NodeLabels = map[string]string{"a b": "c"} }), flavor(nil),
		[]string{"spec.nodeLabels", `key "a b"`, "give the key that the nodes bear"}},
	{"a value that no node can bear",
		flavor(func(f *kueue.ResourceFlavor) { f.Spec.NodeLabels = map[string]string{"a": "b c"} }), flavor(nil),
		[]string{"spec.nodeLabels", `value "b c"`, "give the value that the nodes bear"}},
	{"a taint that no node can have",
		flavor(func(f *kueue.ResourceFlavor) { f.Spec.NodeTaints[0].Key = "/" }), flavor(nil), []string{"spec.nodeTaints", `key "/"`}},
	{"a taint with a value that it cannot have",
		flavor(func(f *kueue.ResourceFlavor) { f.Spec.NodeTaints[0].Value = "b c" }), flavor(nil), []string{"spec.nodeTaints", `value "b c"`}},
	{"a taint twice",
		flavor(func(f *kueue.ResourceFlavor) {
			f.Spec.NodeTaints = append(f.Spec.NodeTaints, corev1.Taint{Key: "example.com/spot", Value: "x", Effect: corev1.TaintEffectNoSchedule})
		}),
		flavor(func(f *kueue.ResourceFlavor) {
			f.Spec.NodeTaints = append(f.Spec.NodeTaints, corev1.Taint{Key: "example.com/spot", Value: "x", Effect: corev1.TaintEffectNoExecute})
		}), []string{"spec.nodeTaints", `"example.com/spot" with effect NoSchedule`, "keep one"}},
	{"a taint without a known effect",
		flavor(func(f *kueue.ResourceFlavor) { f.Spec.NodeTaints[0].Effect = "Scare" }), flavor(nil), []string{"spec.nodeTaints", "NoSchedule"}},
	{"a toleration of what cannot be",
		flavor(func(f *kueue.ResourceFlavor) {
			f.Spec.Tolerations = []corev1.Toleration{{Key: "a b", Operator: corev1.TolerationOpExists}}
		}),
		flavor(func(f *kueue.ResourceFlavor) {
			f.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}), []string{"spec.tolerations", `key "a b"`}},
	{"a topology of no nodes",
		flavor(func(f *kueue.ResourceFlavor) {
			f.Spec.TopologyName, f.Spec.NodeLabels = new(kueue.TopologyReference("t")), nil
		}),
		flavor(func(f *kueue.ResourceFlavor) { f.Spec.TopologyName = new(kueue.TopologyReference("t")) }),
		[]string{"spec", "a topology needs nodeLabels that select its nodes"}},

	{"a LocalQueue of a weight below nothing",
		localQueue(func(lq *kueue.LocalQueue) { lq.Spec.FairSharing = weight("-1") }),
		localQueue(func(lq *kueue.LocalQueue) { lq.Spec.FairSharing = weight("500m") }), []string{"spec.fairSharing.weight is -1", "give 0"}},
	{"a LocalQueue of a ClusterQueue that cannot be",
		localQueue(func(lq *kueue.LocalQueue) { lq.Spec.ClusterQueue = "A" }), localQueue(nil), []string{"spec.clusterQueue", `"A"`}},

	{"attempts below none",
		requestConfig(func(c *kueue.ProvisioningRequestConfig) { c.Spec.RetryStrategy.BackoffLimitCount = new(int32(-1)) }),
		requestConfig(func(c *kueue.ProvisioningRequestConfig) { c.Spec.RetryStrategy.BackoffLimitCount = new(int32(0)) }),
		[]string{"spec.retryStrategy.backoffLimitCount is -1", "give 0 or more"}},
	{"a pause below none",
		requestConfig(func(c *kueue.ProvisioningRequestConfig) { c.Spec.RetryStrategy.BackoffBaseSeconds = new(int32(-60)) }), requestConfig(nil),
		[]string{"spec.retryStrategy.backoffBaseSeconds is -60", "give 0 or more"}},
	{"a class that cannot be",
		requestConfig(func(c *kueue.ProvisioningRequestConfig) { c.Spec.ProvisioningClassName = "A" }), requestConfig(nil),
		[]string{"spec.provisioningClassName", `"A"`}},

	{"a check without a controller that can be",
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "objects"}},
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "objects"},
			Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/budget"}}, []string{"spec.controllerName"}},
	{"parameters of no kind",
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "objects"}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/budget",
			Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: "example.com", Name: "a"}}},
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "objects"}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/budget",
			Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: "example.com", Kind: "Budget", Name: "a"}}},
		[]string{"spec.parameters.kind"}},

	{"fewer pods than none",
		workload(func(w *kueue.Workload) { w.Spec.PodSets[1].Count = -1 }), workload(nil), []string{"spec.podSets[1].count", "-1"}},
	{"more at least than at most",
		workload(func(w *kueue.Workload) { w.Spec.PodSets[1].MinCount = new(int32(5)) }),
		workload(func(w *kueue.Workload) { w.Spec.PodSets[1].MinCount = new(int32(4)) }),
		[]string{"spec.podSets[1]", "minCount must be from 1 to count; lower it"}},
	{"two podSets that may shrink",
		workload(func(w *kueue.Workload) {
			w.Spec.PodSets[0].MinCount, w.Spec.PodSets[1].MinCount = new(int32(1)), new(int32(1))
		}),
		workload(func(w *kueue.Workload) { w.Spec.PodSets[1].MinCount = new(int32(1)) }),
		[]string{"spec.podSets: driver, workers have a minCount", "take it out of the others"}},
	{"an elastic one that may shrink",
		workload(func(w *kueue.Workload) {
			w.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"}
			w.Spec.PodSets[1].MinCount = new(int32(1))
		}),
		workload(func(w *kueue.Workload) { w.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"} }),
		[]string{"spec.podSets: workers has a minCount", "take one out"}},
	{"pods that ask for less than nothing",
		workload(func(w *kueue.Workload) { requests(w)["memory"] = *amount("-1Gi") }),
		workload(func(w *kueue.Workload) { requests(w)["memory"] = *amount("0") }),
		[]string{"spec.podSets: a pod asks for -1Gi of memory", "give an amount of 0 or more"}},
	{"pods limited to less than nothing",
		workload(func(w *kueue.Workload) {
			w.Spec.PodSets[0].Template.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "i", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{"cpu": *amount("-1")}}}}
		}), workload(nil), []string{"asks for -1 of cpu"}},
	{"pods that together ask for less than nothing",
		workload(func(w *kueue.Workload) {
			w.Spec.PodSets[0].Template.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": *amount("-2")}}
		}), workload(nil), []string{"asks for -2 of cpu"}},
	{"pods that ask for pods",
		workload(func(w *kueue.Workload) { requests(w)["pods"] = *amount("1") }), workload(nil), []string{"the resource pods", "take it out"}},
	{"pods with a label that cannot be",
		workload(func(w *kueue.Workload) { w.Spec.PodSets[0].Template.Labels = map[string]string{"a b": "c"} }),
		workload(func(w *kueue.Workload) { w.Spec.PodSets[0].Template.Labels = map[string]string{"a": "c"} }),
		[]string{"spec.podSets", `label key "a b"`, "correct it in the template"}},
	{"pods with a value that cannot be",
		workload(func(w *kueue.Workload) { w.Spec.PodSets[0].Template.Labels = map[string]string{"a": "b c"} }), workload(nil),
		[]string{"spec.podSets", `value "b c" of label a`}},
	{"pods with an annotation that cannot be",
		workload(func(w *kueue.Workload) { w.Spec.PodSets[0].Template.Annotations = map[string]string{"a b": "c"} }),
		workload(func(w *kueue.Workload) {
			w.Spec.PodSets[0].Template.Annotations = map[string]string{"A.b/C": "any thing"}
		}),
		[]string{"spec.podSets", `annotation key "a b"`}},
	{"slices without a size",
		workload(func(w *kueue.Workload) { w.Spec.PodSets[1].TopologyRequest = sliced("rack", nil) }),
		workload(func(w *kueue.Workload) { w.Spec.PodSets[1].TopologyRequest = sliced("rack", new(int32(2))) }),
		[]string{"podSetSliceRequiredTopology and podSetSliceSize", "give both or none"}},
	{"slices of nothing",
		workload(func(w *kueue.Workload) { w.Spec.PodSets[1].TopologyRequest = sliced("rack", new(int32(0))) }), workload(nil),
		[]string{"slice of 0 or fewer pods", "give a size of 1 or more"}},
	{"a class without a priority",
		workload(func(w *kueue.Workload) {
			w.Spec.PriorityClassRef = &kueue.PriorityClassRef{Group: "kueue.x-k8s.io", Kind: "WorkloadPriorityClass", Name: "high"}
		}),
		workload(func(w *kueue.Workload) {
			w.Spec.Priority = new(int32(10))
			w.Spec.PriorityClassRef = &kueue.PriorityClassRef{Group: "kueue.x-k8s.io", Kind: "WorkloadPriorityClass", Name: "high"}
		}), []string{"spec", "set priority, too, to the value of the class"}},
	{"a gate without a domain", gated("budget"), gated("example.com/budget"), []string{"admission-gated-by", `"budget"`, "give names such as example.com/budget"}},
	{"a gate without a name", gated("example.com/a,"), gated("example.com/a, example.com/b"), []string{"admission-gated-by", `""`}},
	{"a gate twice", gated("example.com/a,example.com/a"), gated(""), []string{"admission-gated-by", "example.com/a,example.com/a", "name each once"}},
	{"a gate of a long name", gated("example.com/" + strings.Repeat("a", 52)), gated("example.com/" + strings.Repeat("a", 51)),
		[]string{"admission-gated-by", "63 characters at most"}},
}

func checkOn(flavor kueue.ResourceFlavorReference) *kueue.AdmissionChecksStrategy {
	return &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "budget",
		OnFlavors: []kueue.ResourceFlavorReference{flavor}}}}
}

func fungibility(whenCanBorrow kueue.FlavorFungibilityPolicy) *kueue.FlavorFungibility {
	return &kueue.FlavorFungibility{
		WhenCanBorrow: whenCanBorrow, WhenCanPreempt: kueue.TryNextFlavor, Preference: new(kueue.BorrowingOverPreemption),
	}
}

func weight(v string) *kueue.FairSharing { return &kueue.FairSharing{Weight: amount(v)} }

func sliced(topology string, size *int32) *kueue.PodSetTopologyRequest {
	return &kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: &topology, PodSetSliceSize: size}
}

// manyFlavors are groups, each of flavors with quota of as many resources.
func manyFlavors(groups, flavors, resources int) (out []kueue.ResourceGroup) {
	for g := range groups {
		var group kueue.ResourceGroup
		for r := range resources {
			group.CoveredResources = append(group.CoveredResources, corev1.ResourceName(fmt.Sprintf("example.com/r-%d-%d", g, r)))
		}
		for f := range flavors {
			flavor := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(fmt.Sprintf("f-%d-%d", g, f))}
			for _, r := range group.CoveredResources {
				flavor.Resources = append(flavor.Resources, kueue.ResourceQuota{
					Name: r, NominalQuota: *amount("10"), BorrowingLimit: amount("5"), LendingLimit: amount("5"),
				})
			}
			group.Flavors = append(group.Flavors, flavor)
		}
		out = append(out, group)
	}
	return out
}

// TestObjectsThatCannotBeMeantAreRefused and their twins are not. Nothing is
// kept: kube-apiserver only says what it would do.
func TestObjectsThatCannotBeMeantAreRefused(t *testing.T) {
	for _, o := range objects {
		t.Run(o.name, func(t *testing.T) {
			refused(t, clusterOf(t).Kube.Create(t.Context(), o.bad, client.DryRunAll), o.want)
			if err := clusterOf(t).Kube.Create(t.Context(), o.good, client.DryRunAll); err != nil {
				t.Errorf("its twin is refused: %v", err)
			}
		})
	}
}

func refused(t *testing.T, err error, want []string) {
	t.Helper()
	if err == nil {
		t.Error("it is accepted")
		return
	}
	if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		t.Errorf("it fails in another way: %v", err)
	}
	for _, word := range want {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the refusal does not say %q: %v", word, err)
		}
	}
}

// TestWhatNoProgramCanReadIsRefused: one object of such a kind, and no informer
// of the kind would have a list any more.
func TestWhatNoProgramCanReadIsRefused(t *testing.T) {
	s := newSite(t)
	kept := workload(func(w *kueue.Workload) { w.Namespace, w.Spec.Active = s.Name, new(false) })
	s.Create(kept)
	for _, tc := range []struct {
		name  string
		patch string
		on    client.Object
		sub   string
		want  string
	}{
		{"half an exponent", `{"spec":{"fairSharing":{"weight":"1e1.5"}}}`, localQueue(nil), "", "spec.fairSharing.weight"},
		{"an exponent that takes minutes", `{"spec":{"fairSharing":{"weight":"1e999999999"}}}`, localQueue(nil), "", "spec.fairSharing.weight"},
		{"an exponent in a template", `{"spec":{"podSets":[{"name":"main","template":{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"1e1.5"}}}]}}}]}}`, kept, "", "requests"},
		{"more pods than 32 bits", `{"spec":{"podSets":[{"name":"main","count":3000000000,"template":{"spec":{"containers":[{"name":"a"}]}}}]}}`, kept, "", "spec.podSets[0].count"},
		{"a time in lower case", `{"status":{"requeueState":{"count":1,"requeueAt":"2006-01-02t15:04:05z"}}}`, kept, "status", "status.requeueState.requeueAt"},
		{"a time without a zone", `{"status":{"requeueState":{"count":1,"requeueAt":"2006-01-02T15:04:05"}}}`, kept, "status", "status.requeueState.requeueAt"},
		{"a day that never was", `{"status":{"requeueState":{"count":1,"requeueAt":"2006-02-32T15:04:05Z"}}}`, kept, "status", "status.requeueState.requeueAt"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := tc.on.DeepCopyObject().(client.Object)
			o.SetNamespace(s.Name)
			if err := clusterOf(t).Kube.Create(t.Context(), o); err == nil {
				defer s.Delete(o)
			}
			patch := client.RawPatch(types.MergePatchType, []byte(tc.patch))
			var err error
			if tc.sub == "" {
				err = clusterOf(t).Kube.Patch(t.Context(), o, patch, client.DryRunAll)
			} else {
				err = clusterOf(t).Kube.SubResource(tc.sub).Patch(t.Context(), o, patch,
					&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
			}
			refused(t, err, []string{tc.want})
		})
	}
}

// TestQueuesAndFlavorsAreBornWithTheirFinalizer so that no controller has to add it.
func TestQueuesAndFlavorsAreBornWithTheirFinalizer(t *testing.T) {
	for _, o := range []client.Object{
		clusterQueue(nil), flavor(nil),
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "born"}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/check"}},
		clusterQueue(func(cq *kueue.ClusterQueue) { cq.Finalizers = []string{"example.com/mine"} }),
		flavor(func(f *kueue.ResourceFlavor) { f.Finalizers = []string{kueue.ResourceInUseFinalizerName} }),
	} {
		brought := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == kueue.ResourceInUseFinalizerName })
		if err := clusterOf(t).Kube.Create(t.Context(), o, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		if want := append(brought, kueue.ResourceInUseFinalizerName); !slices.Equal(o.GetFinalizers(), want) {
			t.Errorf("%T has the finalizers %v, want %v", o, o.GetFinalizers(), want)
		}
	}
}

// TestPoliciesKnowTheFieldsOfTheirKinds: kube-controller-manager compares them
// with the schemas.
func TestPoliciesKnowTheFieldsOfTheirKinds(t *testing.T) {
	s := newSite(t)
	var list admissionv1.ValidatingAdmissionPolicyList
	s.Eventually("all policies are compared", func() bool {
		return clusterOf(t).Kube.List(t.Context(), &list) == nil &&
			!slices.ContainsFunc(list.Items, func(p admissionv1.ValidatingAdmissionPolicy) bool {
				return p.Status.TypeChecking == nil
			})
	}, func() string { return "" })
	for _, p := range list.Items {
		for _, w := range p.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("%s %s: %s", p.Name, w.FieldRef, w.Warning)
		}
	}
}

// change is one of an object that exists, as it should not be made, with its twin
// as it may.
type change struct {
	name      string
	bad, good func(client.Object)
	want      []string
}

// changes tries each, and keeps none.
func changes(t *testing.T, o client.Object, write func(client.Object, client.Patch) error, list []change) {
	t.Helper()
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			try := func(edit func(client.Object)) error {
				changed := o.DeepCopyObject().(client.Object)
				edit(changed)
				return write(changed, client.MergeFrom(o))
			}
			refused(t, try(c.bad), c.want)
			if err := try(c.good); err != nil {
				t.Errorf("its twin is refused: %v", err)
			}
		})
	}
}

// of is a change of an object of one kind.
func of[T client.Object](edit func(T)) func(client.Object) {
	return func(o client.Object) { edit(o.(T)) }
}

func trial(t *testing.T) func(client.Object, client.Patch) error {
	return func(o client.Object, p client.Patch) error {
		return clusterOf(t).Kube.Patch(t.Context(), o, p, client.DryRunAll)
	}
}

func statusTrial(t *testing.T) func(client.Object, client.Patch) error {
	return func(o client.Object, p client.Patch) error {
		return clusterOf(t).Kube.Status().Patch(t.Context(), o, p, client.DryRunAll)
	}
}

func TestWhatStaysAsItWasCreated(t *testing.T) {
	s := newSite(t)
	cq := clusterQueue(func(cq *kueue.ClusterQueue) {
		cq.Name, cq.Spec.ResourceGroups = s.Name, nil
		cq.Spec.ConcurrentAdmissionPolicy = &kueue.ConcurrentAdmissionPolicy{
			Migration: kueue.ConcurrentAdmissionMigration{Mode: kueue.ConcurrentAdmissionTryPreferredFlavors}}
	})
	lq := localQueue(func(lq *kueue.LocalQueue) { lq.Namespace = s.Name })
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/budget"}}
	rf := flavor(func(f *kueue.ResourceFlavor) { f.Name, f.Spec.TopologyName = s.Name, new(kueue.TopologyReference("t")) })
	w := gated("example.com/a,example.com/b")
	w.Namespace = s.Name
	s.Create(cq, lq, ac, rf, w)
	changes(t, cq, trial(t), []change{{"the variants of a queue",
		of(func(cq *kueue.ClusterQueue) { cq.Spec.ConcurrentAdmissionPolicy = nil }),
		of(func(cq *kueue.ClusterQueue) { cq.Spec.StopPolicy = new(kueue.Hold) }),
		[]string{"spec.concurrentAdmissionPolicy", "delete the ClusterQueue"}}})
	changes(t, lq, trial(t), []change{{"the ClusterQueue of a LocalQueue",
		of(func(lq *kueue.LocalQueue) { lq.Spec.ClusterQueue = "another" }),
		of(func(lq *kueue.LocalQueue) { lq.Spec.StopPolicy = new(kueue.Hold) }),
		[]string{"spec.clusterQueue", `"another"`, "delete the object and create it again"}}})
	changes(t, ac, trial(t), []change{{"the controller of a check",
		of(func(ac *kueue.AdmissionCheck) { ac.Spec.ControllerName = "example.com/other" }),
		of(func(ac *kueue.AdmissionCheck) {
			ac.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: "example.com", Kind: "Budget", Name: "a"}
		}),
		[]string{"spec.controllerName", `"example.com/other"`, "delete the object and create it again"}}})
	changes(t, rf, trial(t), []change{{"the topology of a flavor",
		of(func(f *kueue.ResourceFlavor) { f.Spec.TopologyName = nil }),
		of(func(f *kueue.ResourceFlavor) {
			f.Spec.NodeTaints, f.Spec.NodeLabels = nil, map[string]string{"pool": "other"}
		}),
		[]string{"topologyName is immutable", "create another ResourceFlavor"}}})
	setGates := func(to string) func(client.Object) {
		return func(o client.Object) { o.SetAnnotations(map[string]string{"kueue.x-k8s.io/admission-gated-by": to}) }
	}
	changes(t, w, trial(t), []change{
		{"a gate more", setGates("example.com/a,example.com/b,example.com/c"), setGates("example.com/b"), []string{"example.com/c", "taken away", "when it is created"}},
		{"a gate in place of another", setGates("example.com/c"), setGates(""), []string{"example.com/c", "taken away"}},
	})
}

// TestAWorkloadWithQuotaMayNotBeEdited by clients other than Muster. The check is
// another controller's, whose part the test plays.
func TestAWorkloadWithQuotaMayNotBeEdited(t *testing.T) {
	s := newSite(t)
	w := s.reserved()
	changes(t, w, trial(t), []change{
		{"its template",
			of(func(w *kueue.Workload) { w.Spec.PodSets[1].Template.Spec.Containers[0].Image = "another" }),
			of(func(w *kueue.Workload) { w.Labels = map[string]string{"a": "b"} }),
			[]string{"spec.podSets may not change while quota is reserved", "set spec.active to false"}},
		{"its requests",
			of(func(w *kueue.Workload) { requests(w)["cpu"] = *amount("100m") }), of(func(w *kueue.Workload) { w.Spec.Active = new(false) }),
			[]string{"spec.podSets may not change"}},
		{"more pods",
			of(func(w *kueue.Workload) { w.Spec.PodSets[1].Count = 5 }), of(func(w *kueue.Workload) { w.Spec.PodSets[1].Count = 3 }),
			[]string{"spec.podSets may not change"}},
		{"its queue",
			of(func(w *kueue.Workload) { w.Spec.QueueName = "another" }), of(func(w *kueue.Workload) { w.Spec.Priority = new(int32(7)) }),
			[]string{"queueName is immutable while quota is reserved; set active to false first"}},
		{"its class",
			of(func(w *kueue.Workload) {
				w.Spec.PriorityClassRef = &kueue.PriorityClassRef{Group: "kueue.x-k8s.io", Kind: "WorkloadPriorityClass", Name: "high"}
			}), of(func(w *kueue.Workload) { w.Spec.Priority = new(int32(7)) }),
			[]string{"priorityClassRef cannot be added or removed while quota is reserved"}},
	})
	changes(t, w, statusTrial(t), []change{
		{"another queue's quota",
			of(func(w *kueue.Workload) { w.Status.Admission.ClusterQueue = "another" }), of(func(w *kueue.Workload) { evicted(w) }),
			[]string{"status.admission may be set or removed, but not edited"}},
		{"another flavor",
			of(func(w *kueue.Workload) { w.Status.Admission.PodSetAssignments[1].Flavors["cpu"] = "another" }),
			of(func(w *kueue.Workload) { evicted(w) }), []string{"status.admission", "not edited"}},
		{"less use",
			of(func(w *kueue.Workload) {
				w.Status.Admission.PodSetAssignments[1].ResourceUsage["cpu"] = *amount("400m")
			}), of(func(w *kueue.Workload) { evicted(w) }),
			[]string{"status.admission", "not edited"}},
		{"quota of nothing",
			of(func(w *kueue.Workload) { w.Status.Admission = nil }), of(func(w *kueue.Workload) { evicted(w) }),
			[]string{"status.admission is missing while condition QuotaReserved is True"}},
		{"pods given back that it does not have",
			of(func(w *kueue.Workload) {
				w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "workers", Count: 5}}
			}),
			of(func(w *kueue.Workload) {
				w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "workers", Count: 4}}
			}),
			[]string{"status.reclaimablePods", `5 pods of podSet "workers"`, "with their counts at most"}},
		{"pods given back of nowhere",
			of(func(w *kueue.Workload) {
				w.Status.ReclaimablePods = append(w.Status.ReclaimablePods, kueue.ReclaimablePod{Name: "x", Count: 1})
			}),
			of(func(w *kueue.Workload) {
				w.Status.ReclaimablePods = append(w.Status.ReclaimablePods, kueue.ReclaimablePod{Name: "driver", Count: 1})
			}),
			[]string{"status.reclaimablePods", `podSet "x"`}},
		{"fewer pods given back",
			of(func(w *kueue.Workload) { w.Status.ReclaimablePods = nil }),
			of(func(w *kueue.Workload) { w.Status.ReclaimablePods[0].Count = 3 }),
			[]string{"status.reclaimablePods had 1 pods", "leave them in"}},
		{"other updates of a check that is Ready",
			of(func(w *kueue.Workload) { w.Status.AdmissionChecks[0].PodSetUpdates[0].Labels["a"] = "c" }),
			of(func(w *kueue.Workload) {
				w.Status.AdmissionChecks[0].PodSetUpdates[0].Labels["a"] = "c"
				w.Status.AdmissionChecks[0].State = kueue.CheckStatePending
			}),
			[]string{"podSetUpdates of", "may not change while its state stays Ready", "set another state first"}},
		{"updates of another podSet", updates(kueue.PodSetUpdate{Name: "x"}), updates(kueue.PodSetUpdate{Name: "driver"}),
			[]string{"status.admissionChecks", `"x"`, "choose among driver, workers"}},
		{"updates with a key that cannot be", updates(kueue.PodSetUpdate{Name: "driver", NodeSelector: map[string]string{"a b": "c"}}),
			updates(kueue.PodSetUpdate{Name: "driver", NodeSelector: map[string]string{"a": "c"}}), []string{"status.admissionChecks", `key "a b"`}},
		{"updates with a value that cannot be", updates(kueue.PodSetUpdate{Name: "driver", Labels: map[string]string{"a": "b c"}}),
			updates(kueue.PodSetUpdate{Name: "driver", Annotations: map[string]string{"a": "b c"}}),
			[]string{"status.admissionChecks", `value "b c"`}},
		{"updates that tolerate what cannot be", updates(kueue.PodSetUpdate{Name: "driver", Tolerations: []corev1.Toleration{{Key: "a b", Operator: corev1.TolerationOpExists}}}),
			updates(kueue.PodSetUpdate{Name: "driver", Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}),
			[]string{"status.admissionChecks", `key "a b"`}},
		{"a cluster that nobody named",
			of(func(w *kueue.Workload) { w.Status.ClusterName = new("far") }),
			of(func(w *kueue.Workload) { w.Status.NominatedClusterNames = []string{"far"} }),
			[]string{"status.clusterName", `"far"`, "choose one of those"}},
	})
}

// updates are those of a check that waits again.
func updates(u ...kueue.PodSetUpdate) func(client.Object) {
	return of(func(w *kueue.Workload) {
		w.Status.AdmissionChecks[0].State, w.Status.AdmissionChecks[0].PodSetUpdates = kueue.CheckStatePending, u
	})
}

// evicted has lost its quota.
func evicted(w *kueue.Workload) {
	w.Status.Admission = nil
	meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved,
		Status: metav1.ConditionFalse, Reason: "Pending"})
	meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionFalse,
		Reason: "NoReservation"})
}

// TestQuotaIsReservedAsItShouldBe by clients that do it in Muster's place.
func TestQuotaIsReservedAsItShouldBe(t *testing.T) {
	s := newSite(t)
	w := workload(func(w *kueue.Workload) { w.Namespace, w.Spec.Active = s.Name, new(false) })
	s.Create(w)
	reserve := func(edit func(*kueue.Admission)) func(client.Object) {
		return of(func(w *kueue.Workload) {
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue,
				Reason: "QuotaReserved"})
			w.Status.Admission = &kueue.Admission{ClusterQueue: "objects"}
			for _, ps := range w.Spec.PodSets {
				used := resource.NewQuantity(int64(ps.Count), resource.DecimalSI)
				w.Status.Admission.PodSetAssignments = append(w.Status.Admission.PodSetAssignments, kueue.PodSetAssignment{
					Name: ps.Name, Count: new(ps.Count), ResourceUsage: corev1.ResourceList{"cpu": *used, "memory": *amount("4Gi")},
				})
			}
			if edit != nil {
				edit(w.Status.Admission)
			}
		})
	}
	changes(t, w, statusTrial(t), []change{
		{"for a podSet that it has not", reserve(func(a *kueue.Admission) { a.PodSetAssignments[0].Name = "x" }), reserve(nil),
			[]string{"status.admission.podSetAssignments", `"x"`, "choose among driver, workers"}},
		{"for fewer podSets than it has", reserve(func(a *kueue.Admission) { a.PodSetAssignments = a.PodSetAssignments[:1] }), reserve(nil),
			[]string{"status.admission.podSetAssignments must have one item for each of spec.podSets"}},
		{"of CPU that pods cannot share", reserve(func(a *kueue.Admission) { a.PodSetAssignments[1].ResourceUsage["cpu"] = *amount("4001m") }),
			reserve(func(a *kueue.Admission) { a.PodSetAssignments[1].ResourceUsage["cpu"] = *amount("2280m") }),
			[]string{`podSet "workers" uses 4001m of cpu for 4 pods`, "give a multiple"}},
		{"of GPUs that pods cannot share", reserve(func(a *kueue.Admission) { a.PodSetAssignments[1].ResourceUsage["nvidia.com/gpu"] = *amount("6") }),
			reserve(func(a *kueue.Admission) { a.PodSetAssignments[1].ResourceUsage["nvidia.com/gpu"] = *amount("8") }),
			[]string{`podSet "workers" uses 6 of nvidia.com/gpu for 4 pods`, "give a multiple"}},
	})
}

// reserved returns an admitted Workload with a check of another controller that is Ready, and one reclaimable pod.
func (s *site) reserved() *kueue.Workload {
	s.Helper()
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/budget"}}
	rf := flavor(func(f *kueue.ResourceFlavor) { *f = kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name}} })
	cq := clusterQueue(func(cq *kueue.ClusterQueue) {
		cq.Name, cq.Spec.CohortName, cq.Spec.NamespaceSelector = s.Name, "", &metav1.LabelSelector{}
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{
			AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(s.Name)}}}
		cq.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{
			{Name: kueue.ResourceFlavorReference(s.Name), Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: *amount("10")}}},
		}}}
	})
	lq := localQueue(func(lq *kueue.LocalQueue) {
		lq.Namespace, lq.Name, lq.Spec.ClusterQueue = s.Name, s.Name, kueue.ClusterQueueReference(s.Name)
	})
	w := workload(func(w *kueue.Workload) { w.Namespace, w.Spec.QueueName = s.Name, kueue.LocalQueueName(s.Name) })
	s.Create(ac)
	patch := client.MergeFrom(ac.DeepCopy())
	meta.SetStatusCondition(&ac.Status.Conditions, metav1.Condition{Type: kueue.AdmissionCheckActive,
		Status: metav1.ConditionTrue, Reason: "Active"})
	if err := s.Kube.Status().Patch(s.Context(), ac, patch); err != nil {
		s.Fatal(err)
	}
	s.Create(rf, cq, lq, w)
	s.Eventually("the Workload has quota", func() bool {
		return s.Get(w) && meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved) && len(w.Status.AdmissionChecks) == 1
	}, func() string { return fmt.Sprint(w.Status.Conditions) })
	patch = client.MergeFrom(w.DeepCopy())
	w.Status.AdmissionChecks[0].State = kueue.CheckStateReady
	w.Status.AdmissionChecks[0].PodSetUpdates = []kueue.PodSetUpdate{{Name: "workers", Labels: map[string]string{"a": "b"}}}
	w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "workers", Count: 1}}
	if err := s.Kube.Status().Patch(s.Context(), w, patch); err != nil {
		s.Fatal(err)
	}
	s.Eventually("the Workload is admitted", func() bool {
		return s.Get(w) && meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted)
	}, func() string { return fmt.Sprint(w.Status.Conditions, w.Status.AdmissionChecks) })
	return w
}

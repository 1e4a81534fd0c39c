package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// ReasonWaitingForNamespaceQuota is the reason of QuotaReserved=False if a ResourceQuota of the namespace would reject
// the pods. Kueue does not check ResourceQuotas and so has no reason for it.
const ReasonWaitingForNamespaceQuota = "WaitingForNamespaceQuota"

// overNamespaceQuota blocks a Workload whose pods a ResourceQuota of its namespace would reject. Others may pass it,
// because no other namespace can use the quota. A ResourceQuota with a scope that a pod template does not determine is
// ignored.
func (s *Cycle) overNamespaceQuota(w *cache.Workload, p *Assignment) *blocker {
	ns := s.cache.Namespaces[w.Object.Namespace]
	if !s.cache.Config.NamespaceQuota || ns == nil || len(ns.Quotas) == 0 {
		return nil
	}
	next := s.cache.ExpiredExpectations(ns, s.now)
	var short []string
	for _, name := range slices.Sorted(maps.Keys(ns.Quotas)) {
		short = append(short, s.exceeded(ns, ns.Quotas[name], w, p)...)
	}
	if len(short) == 0 {
		return nil
	}
	if ns.Short == nil {
		ns.Short = map[types.UID]*cache.Workload{}
	}
	ns.Short[w.Object.UID] = w
	return &blocker{reason: ReasonWaitingForNamespaceQuota, message: strings.Join(short, "; ") +
		"; this changes when pods of the namespace end or the quota is raised", until: next, letsOthersPass: true}
}

// exceeded lists the limits of a ResourceQuota that the pods of a Workload would exceed.
func (s *Cycle) exceeded(ns *cache.Namespace, q *corev1.ResourceQuota, w *cache.Workload, p *Assignment) (out []string) {
	hard := q.Status.Hard
	if hard == nil {
		hard = q.Spec.Hard
	}
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		m, ok := measureOf(name)
		if !ok {
			continue
		}
		want := m.of(s.cache, q, w.Object, p.admission)
		if p.replaces != nil {
			want -= m.of(s.cache, q, p.replaces.Object, p.replaces.Object.Status.Admission)
		}
		if want <= 0 {
			continue
		}
		var coming int64
		for uid, c := range ns.Expected {
			if uid != w.Object.UID {
				coming = nodegroups.Plus(coming, m.of(s.cache, q, c.Object, c.Admission))
			}
		}
		limit := m.amount(hard[name])
		free := max(0, limit-m.amount(q.Status.Used[name])-coming)
		if want <= free {
			continue
		}
		show := func(v int64) string { return nodegroups.Quantity(m.resource, v) }
		text := fmt.Sprintf("ResourceQuota %s of namespace %s: %s: %s more needed than the %s free of %s",
			q.Name, q.Namespace, name, show(want-free), show(free), show(limit))
		if coming > 0 {
			text += fmt.Sprintf(" (%s is kept for workloads whose pods are about to be created)", show(coming))
		}
		out = append(out, text)
	}
	return out
}

// quotaMeasure is what a ResourceQuota limits: the number of pods, or the sum of their requests or limits of one
// resource.
type quotaMeasure struct {
	resource corev1.ResourceName
	limits   bool
}

// measureOf parses a key of a ResourceQuota; ok is false if it does not limit pods.
func measureOf(name corev1.ResourceName) (m quotaMeasure, ok bool) {
	if base, found := strings.CutPrefix(string(name), "limits."); found {
		return quotaMeasure{resource: corev1.ResourceName(base), limits: true}, true
	}
	if base, found := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix); found {
		return quotaMeasure{resource: corev1.ResourceName(base)}, base != string(corev1.ResourceStorage)
	}
	switch name {
	case corev1.ResourcePods, "count/pods":
		return quotaMeasure{resource: corev1.ResourcePods}, true
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return quotaMeasure{resource: name}, true
	}
	return quotaMeasure{resource: name}, strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// of returns how much of a ResourceQuota the pods of an admission use.
func (m quotaMeasure) of(s *cache.Cache, q *corev1.ResourceQuota, w *kueue.Workload, admission *kueue.Admission) (sum int64) {
	for i := range admission.PodSetAssignments {
		assignment := &admission.PodSetAssignments[i]
		spec := s.CompletePodSpec(w.Namespace, &workload.FindPodSet(w, assignment.Name).Template.Spec)
		if inScope(q, spec) {
			sum = nodegroups.Plus(sum, nodegroups.Times(m.perPod(spec), int64(workload.PodsLeft(w, assignment))))
		}
	}
	return sum
}

func (m quotaMeasure) perPod(spec *corev1.PodSpec) int64 {
	if m.resource == corev1.ResourcePods {
		return 1
	}
	if m.limits {
		return nodegroups.ResourcesFrom(podLimits(spec))[m.resource]
	}
	return workload.PodRequests(spec)[m.resource]
}

func podLimits(spec *corev1.PodSpec) corev1.ResourceList {
	return resourcehelper.PodLimits(&corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
}

func (m quotaMeasure) amount(q resource.Quantity) int64 {
	return nodegroups.ResourcesFrom(corev1.ResourceList{m.resource: q})[m.resource]
}

// inScope reports whether a ResourceQuota applies to the pods of a spec.
func inScope(q *corev1.ResourceQuota, spec *corev1.PodSpec) bool {
	for _, scope := range q.Spec.Scopes {
		if !scopeMatches(corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}, spec) {
			return false
		}
	}
	return q.Spec.ScopeSelector == nil || !slices.ContainsFunc(q.Spec.ScopeSelector.MatchExpressions,
		func(r corev1.ScopedResourceSelectorRequirement) bool { return !scopeMatches(r, spec) })
}

// scopeMatches evaluates one scope; unknown scopes match no pod.
func scopeMatches(r corev1.ScopedResourceSelectorRequirement, spec *corev1.PodSpec) bool {
	terminating := spec.ActiveDeadlineSeconds != nil
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort(spec)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort(spec)
	case corev1.ResourceQuotaScopePriorityClass:
		class, named := spec.PriorityClassName, spec.PriorityClassName != ""
		switch r.Operator {
		case corev1.ScopeSelectorOpExists:
			return named
		case corev1.ScopeSelectorOpDoesNotExist:
			return !named
		case corev1.ScopeSelectorOpIn:
			return named && slices.Contains(r.Values, class)
		case corev1.ScopeSelectorOpNotIn:
			return !slices.Contains(r.Values, class)
		}
	}
	return false
}

// isBestEffort reports whether pods request neither CPU nor memory.
func isBestEffort(spec *corev1.PodSpec) bool {
	requests, limits := workload.PodRequests(spec), nodegroups.ResourcesFrom(podLimits(spec))
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if requests[name] > 0 || limits[name] > 0 {
			return false
		}
	}
	return true
}

package queueing

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

// ReasonWaitingForNamespaceQuota is the reason of QuotaReserved=False where the
// ResourceQuota of the namespace would have the pods rejected. Kueue does not look
// at it and so has no word for it.
const ReasonWaitingForNamespaceQuota = "WaitingForNamespaceQuota"

// podsCome is how long the pods of an admitted Workload are taken not to be in the
// usage of a ResourceQuota yet, unless PodsReady says that they are. For so long
// some may count twice, which is better than to have half a gang rejected.
const podsCome = 30 * time.Second

// comer is a Workload with quota whose pods a ResourceQuota may not have counted.
type comer struct {
	*Workload
	admission *kueue.Admission
}

// setRange takes in a LimitRange, and deleteRange takes it out.
func (s *Cache) setRange(o *corev1.LimitRange) {
	ns := s.namespace(o.Namespace)
	if ns.ranges == nil {
		ns.ranges = map[string]*corev1.LimitRange{}
	}
	ns.ranges[o.Name] = o
	s.ranged(o.Namespace)
}

func (s *Cache) deleteRange(o *corev1.LimitRange) {
	delete(s.namespace(o.Namespace).ranges, o.Name)
	s.ranged(o.Namespace)
}

// ranged works out what the LimitRanges of a namespace say, and has its Workloads
// looked at again.
func (s *Cache) ranged(name string) {
	s.namespaces[name].rules = rulesOf(s.namespaces[name].ranges)
	s.reread(func(w *Workload) bool { return w.Object.Namespace == name })
}

// withDefaults is a list with what is missing in it.
func withDefaults(list, defaults corev1.ResourceList) corev1.ResourceList {
	out := make(corev1.ResourceList, len(list)+len(defaults))
	maps.Copy(out, defaults)
	maps.Copy(out, list)
	return out
}

// setQuota takes in a ResourceQuota, and has those looked at that wait for one.
func (s *Cache) setQuota(o *corev1.ResourceQuota) {
	ns := s.namespace(o.Namespace)
	if ns.quotas == nil {
		ns.quotas = map[string]*corev1.ResourceQuota{}
	}
	ns.quotas[o.Name] = o
	s.touchShort(ns)
}

func (s *Cache) deleteQuota(o *corev1.ResourceQuota) {
	ns := s.namespace(o.Namespace)
	delete(ns.quotas, o.Name)
	s.touchShort(ns)
}

func (s *Cache) touchShort(ns *namespace) {
	for uid := range ns.short {
		s.touch(uid)
	}
	clear(ns.short)
}

// comes notes that pods of a Workload will come.
func (s *Cache) comes(w *Workload, admission *kueue.Admission) {
	ns := s.namespaces[w.Object.Namespace]
	if !s.config.NamespaceQuota || ns == nil || len(ns.quotas) == 0 {
		return
	}
	if ns.coming == nil {
		ns.coming = map[types.UID]comer{}
	}
	ns.coming[w.Object.UID] = comer{w, admission}
}

// arrived forgets those whose pods have come or never will, and says when to look
// again; zero if there is nobody left.
func (s *Cache) arrived(ns *namespace, now time.Time) (next time.Time) {
	for uid, c := range ns.coming {
		w := c.Workload
		switch {
		case s.workloads[uid] == w && w.assumed != nil:
			next = earliest(next, now.Add(podsCome))
		case s.workloads[uid] != w || w.place != holding || IsEvicted(w.Object) || isTrue(w.Object, kueue.WorkloadPodsReady):
			delete(ns.coming, uid)
		case IsAdmitted(w.Object):
			over := admittedSince(w.Object).Add(podsCome)
			if !now.Before(over) {
				delete(ns.coming, uid)
				continue
			}
			next = earliest(next, over)
		default:
			next = earliest(next, now.Add(podsCome))
		}
	}
	return next
}

// overNamespaceQuota holds a Workload back whose pods a ResourceQuota of its
// namespace would have rejected. It steps aside, since the quota is nobody else's.
// A ResourceQuota with a scope of which a pod template does not tell whether it
// holds is not looked at.
func (s *Cycle) overNamespaceQuota(w *Workload, p *proposal) *hold {
	ns := s.namespaces[w.Object.Namespace]
	if !s.config.NamespaceQuota || ns == nil || len(ns.quotas) == 0 {
		return nil
	}
	next := s.arrived(ns, s.now)
	var short []string
	for _, name := range slices.Sorted(maps.Keys(ns.quotas)) {
		short = append(short, s.lacking(ns, ns.quotas[name], w, p)...)
	}
	if len(short) == 0 {
		return nil
	}
	if ns.short == nil {
		ns.short = map[types.UID]*Workload{}
	}
	ns.short[w.Object.UID] = w
	return &hold{reason: ReasonWaitingForNamespaceQuota, message: strings.Join(short, "; ") +
		"; when pods of the namespace end or the quota grows", until: next, aside: true}
}

// lacking lists what of a ResourceQuota is not enough for the pods of a Workload.
func (s *Cache) lacking(ns *namespace, q *corev1.ResourceQuota, w *Workload, p *proposal) (out []string) {
	hard := q.Status.Hard
	if hard == nil {
		hard = q.Spec.Hard
	}
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		m, ok := measureOf(name)
		if !ok {
			continue
		}
		want := m.of(s, q, w.Object, p.admission)
		if p.replaces != nil {
			want -= m.of(s, q, p.replaces.Object, p.replaces.Object.Status.Admission)
		}
		if want <= 0 {
			continue
		}
		var coming int64
		for uid, c := range ns.coming {
			if uid != w.Object.UID {
				coming = nodegroups.Plus(coming, m.of(s, q, c.Object, c.admission))
			}
		}
		limit := m.amount(hard[name])
		free := max(0, limit-m.amount(q.Status.Used[name])-coming)
		if want <= free {
			continue
		}
		show := func(v int64) string { return nodegroups.Quantity(m.resource, v) }
		text := fmt.Sprintf("ResourceQuota %s of namespace %s: %s: %s more needed than the %s that are free of %s",
			q.Name, q.Namespace, name, show(want-free), show(free), show(limit))
		if coming > 0 {
			text += fmt.Sprintf(" (%s is kept for workloads whose pods are about to come)", show(coming))
		}
		out = append(out, text)
	}
	return out
}

// measure is what a ResourceQuota limits of pods: how many there are, or the sum
// of their requests or limits of one resource.
type measure struct {
	resource corev1.ResourceName
	limits   bool
}

// measureOf reads a key of a ResourceQuota; ok is false if it is not about pods.
func measureOf(name corev1.ResourceName) (m measure, ok bool) {
	if base, found := strings.CutPrefix(string(name), "limits."); found {
		return measure{resource: corev1.ResourceName(base), limits: true}, true
	}
	if base, found := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix); found {
		return measure{resource: corev1.ResourceName(base)}, base != string(corev1.ResourceStorage)
	}
	switch name {
	case corev1.ResourcePods, "count/pods":
		return measure{resource: corev1.ResourcePods}, true
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return measure{resource: name}, true
	}
	return measure{resource: name}, strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// of is how much of a ResourceQuota the pods of an admission use.
func (m measure) of(s *Cache, q *corev1.ResourceQuota, w *kueue.Workload, admission *kueue.Admission) (sum int64) {
	for i := range admission.PodSetAssignments {
		assignment := &admission.PodSetAssignments[i]
		spec := s.complete(w.Namespace, &findPodSet(w, assignment.Name).Template.Spec)
		if inScope(q, spec) {
			sum = nodegroups.Plus(sum, nodegroups.Times(m.perPod(spec), int64(podsLeft(w, assignment))))
		}
	}
	return sum
}

func (m measure) perPod(spec *corev1.PodSpec) int64 {
	if m.resource == corev1.ResourcePods {
		return 1
	}
	if m.limits {
		return nodegroups.ResourcesFrom(podLimits(spec))[m.resource]
	}
	return podRequests(spec)[m.resource]
}

func podLimits(spec *corev1.PodSpec) corev1.ResourceList {
	return resourcehelper.PodLimits(&corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
}

func (m measure) amount(q resource.Quantity) int64 {
	return nodegroups.ResourcesFrom(corev1.ResourceList{m.resource: q})[m.resource]
}

// inScope says that a ResourceQuota is about the pods of a spec.
func inScope(q *corev1.ResourceQuota, spec *corev1.PodSpec) bool {
	for _, scope := range q.Spec.Scopes {
		if !holdsFor(corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}, spec) {
			return false
		}
	}
	return q.Spec.ScopeSelector == nil || !slices.ContainsFunc(q.Spec.ScopeSelector.MatchExpressions,
		func(r corev1.ScopedResourceSelectorRequirement) bool { return !holdsFor(r, spec) })
}

// holdsFor judges one scope; those that it does not know hold for no pod.
func holdsFor(r corev1.ScopedResourceSelectorRequirement, spec *corev1.PodSpec) bool {
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

// isBestEffort says that pods ask for neither CPU nor memory.
func isBestEffort(spec *corev1.PodSpec) bool {
	requests, limits := podRequests(spec), nodegroups.ResourcesFrom(podLimits(spec))
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if requests[name] > 0 || limits[name] > 0 {
			return false
		}
	}
	return true
}

package cache

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// setRange stores a LimitRange, and deleteRange deletes it.
func (s *Cache) setRange(o *corev1.LimitRange) {
	ns := s.Namespaces.At(o.Namespace)
	if ns.ranges == nil {
		ns.ranges = map[string]*corev1.LimitRange{}
	}
	ns.ranges[o.Name] = o
	s.rulesChanged(o.Namespace)
}

func (s *Cache) deleteRange(o *corev1.LimitRange) {
	if ns := s.Namespaces[o.Namespace]; ns != nil {
		delete(ns.ranges, o.Name)
		s.rulesChanged(o.Namespace)
		s.Namespaces.forgetEmpty(o.Namespace)
	}
}

// rulesChanged recomputes the rules of a namespace and evaluates its Workloads again.
func (s *Cache) rulesChanged(name string) {
	s.Namespaces[name].Rules = rulesOf(s.Namespaces[name].ranges)
	s.rereadPods(func(w *Workload) bool { return w.Object.Namespace == name })
}

// setQuota stores a ResourceQuota and evaluates the Workloads again that wait for one.
func (s *Cache) setQuota(o *corev1.ResourceQuota) {
	ns := s.Namespaces.At(o.Namespace)
	if ns.Quotas == nil {
		ns.Quotas = map[string]*corev1.ResourceQuota{}
	}
	ns.Quotas[o.Name] = o
	s.markShortDue(ns)
}

func (s *Cache) deleteQuota(o *corev1.ResourceQuota) {
	if ns := s.Namespaces[o.Namespace]; ns != nil {
		delete(ns.Quotas, o.Name)
		s.markShortDue(ns)
		s.Namespaces.forgetEmpty(o.Namespace)
	}
}

func (s *Cache) markShortDue(ns *Namespace) {
	for uid := range ns.Short {
		s.MarkDue(uid)
	}
	clear(ns.Short)
}

// setRuntime stores a RuntimeClass, and deleteRuntime deletes it.
func (s *Cache) setRuntime(o *nodev1.RuntimeClass) {
	s.runtimes[o.Name] = o
	s.rereadPods(func(w *Workload) bool { return runsBy(w, o.Name) })
}

func (s *Cache) deleteRuntime(o *nodev1.RuntimeClass) {
	delete(s.runtimes, o.Name)
	s.rereadPods(func(w *Workload) bool { return runsBy(w, o.Name) })
}

func runsBy(w *Workload, class string) bool {
	return slices.ContainsFunc(w.Object.Spec.PodSets, func(ps kueue.PodSet) bool {
		name := ps.Template.Spec.RuntimeClassName
		return name != nil && *name == class
	})
}

// rereadPods recomputes the requests of Workloads. Those with quota keep their usage until they queue again.
func (s *Cache) rereadPods(of func(*Workload) bool) {
	for uid, w := range s.Workloads {
		if !of(w) {
			continue
		}
		s.remove(w)
		s.selects(w.Keys, -1)
		w.Pod = nil
		s.read(w, w.Object)
		s.selects(w.Keys, +1)
		s.add(w)
		s.Due[uid] = w
	}
}

package cache

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// Namespace is what the queues want to know of one.
type Namespace struct {
	Labels labels.Set
	Quotas map[string]*corev1.ResourceQuota
	Ranges map[string]*corev1.LimitRange
	// Rules are what the ranges say together.
	Rules PodRules
	// Expected are Workloads whose pods the quotas may not have counted yet, short
	// those that wait for one of the quotas.
	Expected map[types.UID]expectation
	Short    map[types.UID]*Workload
}

func (s *Cache) Namespace(name string) *Namespace {
	ns := s.Namespaces[name]
	if ns == nil {
		ns = &Namespace{}
		s.Namespaces[name] = ns
	}
	return ns
}

// LabelsOf are those of a namespace; none if it is not known.
func (s *Cache) LabelsOf(name string) labels.Set {
	if ns := s.Namespaces[name]; ns != nil {
		return ns.Labels
	}
	return nil
}

// podsExpectedFor is how long the pods of an admitted Workload are taken not to be in the
// usage of a ResourceQuota yet, unless PodsReady says that they are. For so long
// some may count twice, which is better than to have half a gang rejected.
const podsExpectedFor = 30 * time.Second

// expectation is a Workload with quota whose pods a ResourceQuota may not have counted.
type expectation struct {
	*Workload
	Admission *kueue.Admission
}

// setRange takes in a LimitRange, and deleteRange takes it out.
func (s *Cache) setRange(o *corev1.LimitRange) {
	ns := s.Namespace(o.Namespace)
	if ns.Ranges == nil {
		ns.Ranges = map[string]*corev1.LimitRange{}
	}
	ns.Ranges[o.Name] = o
	s.rulesChanged(o.Namespace)
}

func (s *Cache) deleteRange(o *corev1.LimitRange) {
	delete(s.Namespace(o.Namespace).Ranges, o.Name)
	s.rulesChanged(o.Namespace)
}

// rulesChanged works out what the LimitRanges of a namespace say, and has its Workloads
// looked at again.
func (s *Cache) rulesChanged(name string) {
	s.Namespaces[name].Rules = rulesOf(s.Namespaces[name].Ranges)
	s.rereadPods(func(w *Workload) bool { return w.Object.Namespace == name })
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
	ns := s.Namespace(o.Namespace)
	if ns.Quotas == nil {
		ns.Quotas = map[string]*corev1.ResourceQuota{}
	}
	ns.Quotas[o.Name] = o
	s.markShortDue(ns)
}

func (s *Cache) deleteQuota(o *corev1.ResourceQuota) {
	ns := s.Namespace(o.Namespace)
	delete(ns.Quotas, o.Name)
	s.markShortDue(ns)
}

func (s *Cache) markShortDue(ns *Namespace) {
	for uid := range ns.Short {
		s.MarkDue(uid)
	}
	clear(ns.Short)
}

// ExpectPods notes that pods of a Workload will come.
func (s *Cache) ExpectPods(w *Workload, admission *kueue.Admission) {
	ns := s.Namespaces[w.Object.Namespace]
	if !s.Config.NamespaceQuota || ns == nil || len(ns.Quotas) == 0 {
		return
	}
	if ns.Expected == nil {
		ns.Expected = map[types.UID]expectation{}
	}
	ns.Expected[w.Object.UID] = expectation{w, admission}
}

// ExpiredExpectations forgets those whose pods have come or never will, and says when to look
// again; zero if there is nobody left.
func (s *Cache) ExpiredExpectations(ns *Namespace, now time.Time) (next time.Time) {
	for uid, c := range ns.Expected {
		w := c.Workload
		switch {
		case s.Workloads[uid] == w && w.Assumed != nil:
			next = workload.Earliest(next, now.Add(podsExpectedFor))
		case s.Workloads[uid] != w || w.Place != Reserving || workload.IsEvicted(w.Object) || workload.IsTrue(w.Object, kueue.WorkloadPodsReady):
			delete(ns.Expected, uid)
		case workload.IsAdmitted(w.Object):
			over := workload.AdmittedSince(w.Object).Add(podsExpectedFor)
			if !now.Before(over) {
				delete(ns.Expected, uid)
				continue
			}
			next = workload.Earliest(next, over)
		default:
			next = workload.Earliest(next, now.Add(podsExpectedFor))
		}
	}
	return next
}

package cache

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// podsExpectedFor is how long the pods of an admitted Workload are taken not to be in the
// usage of a ResourceQuota yet, unless PodsReady says that they are. For so long
// some may count twice, which is better than to have half a gang rejected.
const podsExpectedFor = 30 * time.Second

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
// again; zero if there is none left.
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

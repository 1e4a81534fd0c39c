package cache

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// podsExpectedFor is how long the pods of an admitted Workload are assumed to be missing in the usage of a
// ResourceQuota, unless PodsReady is true. Meanwhile some may count twice, which is better than having some pods of a
// gang rejected.
const podsExpectedFor = 30 * time.Second

// ExpectPods records that the pods of a Workload are about to be created.
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

// ExpiredExpectations deletes the expectations whose pods were created or never will be. It returns when to check
// again; zero if none remains.
func (s *Cache) ExpiredExpectations(ns *Namespace, now time.Time) (next time.Time) {
	for uid, c := range ns.Expected {
		w := c.Workload
		switch {
		case s.Workloads[uid] == w && w.Assumed != nil:
			next = workload.Earliest(next, now.Add(podsExpectedFor))
		case s.Workloads[uid] != w || w.Phase != Reserving || workload.IsEvicted(w.Object) || workload.IsTrue(w.Object, kueue.WorkloadPodsReady):
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

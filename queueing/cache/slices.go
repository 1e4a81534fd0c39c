package cache

import (
	"github.com/muster-dev/muster/queueing/workload"
)

// ReplacedBy is the Workload whose place a slice takes; nil if there is none that
// could be taken. Only slices of one job replace each other.
func (s *Cache) ReplacedBy(q *ClusterQueue, w *Workload) *Workload {
	key := workload.ReplacedKey(w.Object)
	if key.Name == "" {
		return nil
	}
	for _, old := range q.WithQuota {
		if workload.KeyOf(old.Object) == key && !old.Busy && workload.IsAdmitted(old.Object) &&
			!workload.IsEvicted(old.Object) && workload.SameJob(old.Object, w.Object) {
			return old
		}
	}
	return nil
}

// UpdateReplacement takes in whether a slice has quota, be it only assumed. As long as it has, the
// Workload that it replaces counts nowhere: its quota is part of the slice's, and it gets
// none.
func (s *Cache) UpdateReplacement(w *Workload, has bool) {
	key := workload.ReplacedKey(w.Object)
	if key.Name == "" {
		return
	}
	switch by := s.Replacements[key]; {
	case has && by == nil:
		s.Replacements[key] = w
	case !has && by == w:
		delete(s.Replacements, key)
	default:
		// The one that it replaces may end now.
		s.MarkDue(w.Replaces)
		return
	}
	for uid, old := range s.Workloads {
		if workload.KeyOf(old.Object) == key && workload.SameJob(old.Object, w.Object) {
			w.Replaces = uid
			s.remove(old)
			s.add(old)
			s.Due[uid] = old
		}
	}
}

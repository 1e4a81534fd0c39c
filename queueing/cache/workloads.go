package cache

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// SelectedKeys returns the node labels that Workloads and flavors select on, sorted.
func (s *Cache) SelectedKeys() []string { return slices.Sorted(maps.Keys(s.selected)) }

func (s *Cache) selects(keys []string, by int) {
	for _, k := range keys {
		if s.selected[k] += by; s.selected[k] == 0 {
			delete(s.selected, k)
		}
	}
}

func flavorKeys(f *kueue.ResourceFlavor) []string {
	if f == nil {
		return nil
	}
	return slices.Collect(maps.Keys(f.Spec.NodeLabels))
}

// setWorkload adds or updates a Workload. It is not evaluated again unless something relevant has changed.
func (s *Cache) setWorkload(object *kueue.Workload) {
	w := s.Workloads[object.UID]
	if w == nil {
		w = s.NewWorkload(object)
		w.PriorityUnchecked = true
		s.Workloads[object.UID] = w
		s.Slices.join(w)
		s.selects(w.Keys, +1)
		s.add(w)
		s.UpdateReplacement(w, workload.HasQuota(object))
		s.Due[object.UID] = w
		return
	}
	old := w.Object
	if old.ResourceVersion == object.ResourceVersion && old.ResourceVersion != "" || differsInReasonOnly(old, object) {
		w.Object = object
		return
	}
	before := w.held()
	if workload.HasQuota(old) && !workload.IsFinished(old) && (!workload.HasQuota(object) || workload.IsFinished(object)) {
		defer s.Slices.disinherit(w)
	}
	w.PriorityUnchecked = w.PriorityUnchecked || ClassOf(old) != ClassOf(object)
	s.remove(w)
	s.selects(w.Keys, -1)
	s.Slices.leave(w)
	s.read(w, object)
	s.Slices.join(w)
	s.selects(w.Keys, +1)
	if workload.HasQuota(object) {
		// The object shows the assumed quota now.
		w.Assumed, w.AssumedUsage, w.AssumedTopologyUsage = nil, nil, nil
	}
	s.add(w)
	w.QuotaRestored = w.Phase == Reserving && (w.QuotaRestored || workload.TookBack(old, object))
	s.UpdateReplacement(w, w.Assumed != nil || workload.HasQuota(object))
	s.Slices.wake(w)
	s.Due[object.UID] = w
	if before.queue != nil && before != w.held() {
		// Inadmissible Workloads may be able to preempt or replace it now.
		before.queue.Tree.QuotaReleased = true
	}
}

// Replace keeps an equal object instead of the current one.
func (s *Cache) Replace(kept, equal *kueue.Workload) {
	if w := s.Workloads[kept.UID]; w != nil && w.Object == kept {
		w.Object = equal
	}
}

// differsInReasonOnly reports whether two versions of a Workload without quota differ at most in the reason why it
// waits and in its resourceRequests.
func differsInReasonOnly(a, b *kueue.Workload) bool {
	if a.Generation != b.Generation || workload.HasQuota(a) || workload.HasQuota(b) ||
		a.DeletionTimestamp.IsZero() != b.DeletionTimestamp.IsZero() ||
		!maps.Equal(a.Annotations, b.Annotations) || !maps.Equal(a.Labels, b.Labels) ||
		!equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) {
		return false
	}
	rest := func(w *kueue.Workload) *kueue.WorkloadStatus {
		status := w.Status
		status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c metav1.Condition) bool {
			return c.Type == kueue.WorkloadQuotaReserved && c.Status == metav1.ConditionFalse
		})
		status.ResourceRequests = nil
		return &status
	}
	return equality.Semantic.DeepEqual(rest(a), rest(b))
}

// forget removes a deleted Workload, even if a verdict on it is not settled yet.
func (s *Cache) forget(w *Workload) {
	if w.Assumed != nil {
		s.unassume(w)
	}
	s.remove(w)
	s.charge(w)
	s.selects(w.Keys, -1)
	s.Slices.disinherit(w)
	s.Slices.wake(w)
	uid := w.Object.UID
	delete(s.Workloads, uid)
	delete(s.Due, uid)
	s.UpdateReplacement(w, false)
	s.Slices.leave(w)
	w.wakeAt = time.Time{}
}

// Settle reports the outcome of a verdict that changes a Workload: the current Workload, or nil if nothing was written.
// Until then the Workload is not evaluated again, and assumed quota stays assumed.
func (s *Cache) Settle(uid types.UID, now *kueue.Workload) {
	w := s.Workloads[uid]
	if w == nil {
		return
	}
	w.Busy, w.ProvisionFirst = false, nil
	if w.Assumed != nil && (now == nil || !workload.HasQuota(now)) {
		s.unassume(w)
	}
	if w.Phase == Reserving && w.Queue != nil && w.Queue.Tree.HasReservations {
		// A Workload that could not preempt it while it was busy may wait for it.
		w.Queue.Tree.QuotaReleased = true
	}
	s.Due[uid] = w
	if now != nil {
		s.setWorkload(now)
	} else {
		s.Nodes.Move(w, s.usesOf(w))
	}
	s.UpdateReplacement(w, workload.HasQuota(w.Object))
}

package cache

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// Slices are the Workloads of elastic jobs, of which one takes the place of another.
type Slices struct {
	cache *Cache
	// awaited are the Workloads that slices wait for to replace them, by namespace and name.
	awaited map[types.NamespacedName][]types.UID
	// ofJob are all Workloads by the UID of what controls them, those of one job together.
	ofJob map[types.UID][]*Workload
}

func newSlices(cache *Cache) *Slices {
	return &Slices{cache: cache, awaited: map[types.NamespacedName][]types.UID{}, ofJob: map[types.UID][]*Workload{}}
}

// join and leave keep ofJob. A Workload leaves before its object is another one.
func (s *Slices) join(w *Workload) {
	if job := metav1.GetControllerOfNoCopy(w.Object); job != nil {
		s.ofJob[job.UID] = append(s.ofJob[job.UID], w)
	}
}

func (s *Slices) leave(w *Workload) {
	job := metav1.GetControllerOfNoCopy(w.Object)
	if job == nil {
		return
	}
	left := slices.DeleteFunc(s.ofJob[job.UID], func(other *Workload) bool { return other == w })
	if s.ofJob[job.UID] = left; len(left) == 0 {
		delete(s.ofJob, job.UID)
	}
}

// Beside are the other Workloads of the job of a slice.
func (s *Slices) Beside(w *Workload) (out []*Workload) {
	job := metav1.GetControllerOfNoCopy(w.Object)
	if job == nil {
		return nil
	}
	for _, other := range s.ofJob[job.UID] {
		if other != w && workload.SameJob(other.Object, w.Object) {
			out = append(out, other)
		}
	}
	return out
}

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

// RunsBy is the slice by which the job of a slice runs until that is admitted; nil if it runs by
// none.
func (s *Slices) RunsBy(w *Workload) *Workload {
	if workload.ReplacedKey(w.Object).Name == "" {
		return nil
	}
	old := s.cache.Workloads[w.Replaces]
	if old == nil && w.Queue != nil {
		old = s.cache.ReplacedBy(w.Queue, w)
	}
	if old == nil || workload.IsFinished(old.Object) || !workload.HasQuota(old.Object) || !workload.IsAdmitted(old.Object) ||
		workload.IsEvicted(old.Object) {
		return nil
	}
	return old
}

// Inherited are the requests of earlier slices on whose machines pods of the job of a slice may
// run. They are kept for as long as one of its slices has quota.
func (s *Slices) Inherited(w *Workload) (out []*autoscaling.ProvisioningRequest) {
	if first := w.Object.Annotations[kueue.WorkloadSliceNameAnnotation]; first == "" || first == w.Object.Name {
		return nil
	}
	for owner, requests := range s.cache.Requests {
		if old := s.cache.Workloads[owner]; old != nil && old != w && workload.IsFinished(old.Object) && workload.SameJob(old.Object, w.Object) {
			out = append(out, requests...)
		}
	}
	slices.SortFunc(out, func(a, b *autoscaling.ProvisioningRequest) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// HasHeir reports whether the job of a slice that is over runs on by another.
func (s *Slices) HasHeir(w *Workload) bool {
	if !workload.IsElastic(w.Object) {
		return false
	}
	return slices.ContainsFunc(s.Beside(w), func(other *Workload) bool {
		return workload.HasQuota(other.Object) && !workload.IsFinished(other.Object)
	})
}

// wakeHeirs has the slices looked at that may have inherited the requests of a Workload.
func (s *Slices) wakeHeirs(of types.UID) {
	if w := s.cache.Workloads[of]; w != nil && workload.IsFinished(w.Object) {
		for _, heir := range s.Beside(w) {
			s.cache.MarkDue(heir.Object.UID)
		}
	}
}

// disinherit has the requests of earlier slices looked at, now that the job of a slice may have
// none with quota.
func (s *Slices) disinherit(w *Workload) {
	for _, r := range s.Inherited(w) {
		s.cache.MarkDue(ownerOf(r))
	}
}

// Await has a slice looked at again once the Workload that it replaces changes.
func (s *Slices) Await(w *Workload) {
	key := workload.ReplacedKey(w.Object)
	if !slices.Contains(s.awaited[key], w.Object.UID) {
		s.awaited[key] = append(s.awaited[key], w.Object.UID)
	}
}

// wake has those looked at that wait for a Workload to change.
func (s *Slices) wake(of *Workload) {
	key := workload.KeyOf(of.Object)
	for _, uid := range s.awaited[key] {
		s.cache.MarkDue(uid)
	}
	delete(s.awaited, key)
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
	for _, old := range s.Slices.Beside(w) {
		if workload.KeyOf(old.Object) == key {
			w.Replaces = old.Object.UID
			s.remove(old)
			s.add(old)
			s.Due[old.Object.UID] = old
		}
	}
}

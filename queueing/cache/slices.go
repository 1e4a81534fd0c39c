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

// Slices index the Workloads of elastic jobs, which replace each other.
type Slices struct {
	cache *Cache
	// awaited are the slices that wait for a Workload to change, by the key of that Workload.
	awaited map[types.NamespacedName][]types.UID
	// ofJob are the Workloads of each job, by the UID of their controller.
	ofJob map[types.UID][]*Workload
}

func newSlices(cache *Cache) *Slices {
	return &Slices{cache: cache, awaited: map[types.NamespacedName][]types.UID{}, ofJob: map[types.UID][]*Workload{}}
}

// join and leave maintain ofJob. Call leave before the object changes.
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

// Beside returns the other Workloads of the job of a slice.
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

// ReplacedBy returns the Workload that a slice replaces; nil if there is none that can be replaced. Only slices of one
// job replace each other.
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

// RunsBy returns the slice whose quota the job uses until this slice is admitted; nil if there is none.
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

// Inherited returns the requests of earlier slices, whose machines may still run pods of the job. They are kept as long
// as a slice of the job has quota.
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

// HasHeir reports whether the job of a finished slice continues with another slice.
func (s *Slices) HasHeir(w *Workload) bool {
	if !workload.IsElastic(w.Object) {
		return false
	}
	return slices.ContainsFunc(s.Beside(w), func(other *Workload) bool {
		return workload.HasQuota(other.Object) && !workload.IsFinished(other.Object)
	})
}

// disinherit evaluates the earlier slices again, because no slice of the job may have quota any more.
func (s *Slices) disinherit(w *Workload) {
	for _, r := range s.Inherited(w) {
		s.cache.MarkDue(ownerOf(r))
	}
}

// Await evaluates a slice again once the Workload that it replaces changes.
func (s *Slices) Await(w *Workload) {
	key := workload.ReplacedKey(w.Object)
	if !slices.Contains(s.awaited[key], w.Object.UID) {
		s.awaited[key] = append(s.awaited[key], w.Object.UID)
	}
}

// wake evaluates the slices that wait for a Workload to change.
func (s *Slices) wake(of *Workload) {
	key := workload.KeyOf(of.Object)
	for _, uid := range s.awaited[key] {
		s.cache.MarkDue(uid)
	}
	delete(s.awaited, key)
}

// UpdateReplacement records whether a slice has quota, including assumed quota. As long as it has, the Workload that it
// replaces counts nowhere, because its quota is part of the slice's.
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
		// The replaced Workload may be finished now.
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

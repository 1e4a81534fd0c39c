// Package growth keeps apart what the admission checks of the slices of an elastic job have
// prepared: each for the pods by which it is larger than the slice before it.
package growth

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs/templates"
	"github.com/muster-dev/muster/queueing/workload"
)

// Slice is one slice of a job, and how many pods of each pod set have quota by it.
type Slice struct {
	*kueue.Workload
	Granted []int32
}

// Chain returns a slice and those that it has replaced, one by the other, since the job was started. The newest is first. A slice that
// had finished before the next one was admitted belongs to an earlier start.
func Chain(w *kueue.Workload, all []*kueue.Workload, granted func(*kueue.Workload) []int32) (out []Slice) {
	for next := w; next != nil && len(out) <= len(all); {
		out = append(out, Slice{next, granted(next)})
		by, replaced := next, workload.ReplacedKey(next)
		next = nil
		for _, o := range all {
			if workload.KeyOf(o) == replaced && o.Status.Admission != nil && len(o.Spec.PodSets) == len(w.Spec.PodSets) && ranUntil(o, by) {
				next = o
			}
		}
	}
	return out
}

// ranUntil reports whether a job ran by a slice until the next one was admitted.
func ranUntil(w, by *kueue.Workload) bool {
	over := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
	admitted := apimeta.FindStatusCondition(by.Status.Conditions, kueue.WorkloadAdmitted)
	return over == nil || admitted == nil || !over.LastTransitionTime.Before(&admitted.LastTransitionTime)
}

// Room is where the pods of a job can be sent yet. A pod that is made in the place of a lost one
// goes where that had its machine, which the job keeps until it stops.
type Room struct {
	slices []Slice
	// left is for how many pods of each pod set more, by slice.
	left [][]int32
}

// New is the room that a chain of slices leaves beside the pods that have been sent.
func New(chain []Slice, sent []*corev1.Pod, podSetOf func(*corev1.Pod) int) *Room {
	r := &Room{slices: chain}
	for i, s := range chain {
		left := slices.Clone(s.Granted)
		for j := range left {
			if i+1 < len(chain) {
				left[j] -= chain[i+1].Granted[j]
			}
		}
		r.left = append(r.left, left)
	}
	for _, pod := range sent {
		at := podSetOf(pod)
		if i := slices.IndexFunc(chain, func(s Slice) bool { return templates.IsSent(pod, s.updates(at)) }); i >= 0 {
			r.left[i][at]--
		}
	}
	return r
}

func (s Slice) updates(podSet int) []kueue.PodSetUpdate {
	return templates.UpdatesOf(s.Workload, s.Spec.PodSets[podSet].Name)
}

// Take takes the room of one more pod of a pod set, of the newest slice that has some, and returns
// what was prepared for it.
func (r *Room) Take(podSet int) []kueue.PodSetUpdate {
	i := max(0, slices.IndexFunc(r.left, func(left []int32) bool { return left[podSet] > 0 }))
	r.left[i][podSet]--
	return r.slices[i].updates(podSet)
}

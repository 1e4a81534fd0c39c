package queueing

import (
	"encoding/json"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/queueing/preemption"
	"github.com/muster-dev/muster/queueing/quota"
)

// Workload is a Workload object with what a cycle needs of it, worked out once,
// and its place in the State.
type Workload struct {
	// Object is shared and not to be changed.
	Object *kueue.Workload
	// Pod is what counts of one pod of each podSet, by the index of the podSet.
	Pod []nodegroups.Resources
	// Keys are the node labels that its pods select or depend on.
	Keys []string
	// Usage is the quota that the Workload has reserved; empty without one.
	Usage quota.Amounts

	// candidate is what preemption has to know of it while it holds quota.
	candidate preemption.Workload
	// shape is the same for Workloads whose podSets are the same.
	shape uint64
	// asks: annotations of its job say on what terms it is to have machines.
	asks bool
	// priority and since are where it stands in its queue.
	priority int32
	since    time.Time

	// place, queue and local are where the State counts it.
	place    place
	queue    *queue
	local    *localQueue
	admitted bool
	// busy: a verdict on it is being carried out.
	busy bool
	// unpriced: its priority may not be that of its WorkloadPriorityClass. pricing: a
	// verdict on that is being carried out, beside all others.
	unpriced, pricing bool
	// trial is the object as it would be with the quota ahead of which machines are
	// just being asked for.
	trial      *kueue.Workload
	unobtained unobtained
	// assumed is the queue whose quota a verdict gave it, before the object shows it.
	assumed      *queue
	assumedUsage quota.Amounts
	// succeeds is the Workload whose place this slice has taken; empty for others.
	succeeds types.UID
	// charged is the queue in whose usage the Workload is counted, with what; unseen says
	// that its object does not show that yet.
	charged *queue
	charge  quota.Amounts
	unseen  bool
	// claimed: in this cycle a Workload of higher rank waits for its quota, whether it
	// leaves by now or not.
	claimed bool
	// owed says that victims have been asked to leave for it, by the last judgement. It
	// comes before all others once: else they would have what the victims leave, and the
	// next ones were to leave for it.
	owed bool
	// wakeAt is when it is looked at again; zero if only events can do that.
	wakeAt time.Time
	// reason and message are why it waits, as the last verdict said.
	reason, message string
}

// as is the Workload as it would be with another object: a view, which the Cache does
// not know.
func (w *Workload) as(object *kueue.Workload) *Workload {
	view := *w
	view.Object = object
	return &view
}

// place is where a Workload counts.
type place int

const (
	nowhere place = iota
	// waiting: it is active and has no quota.
	waiting
	// holding: it has quota.
	holding
	// over: it is finished, and there until it is deleted.
	over
)

// newWorkload reads a Workload object.
func (s *Cache) newWorkload(object *kueue.Workload) *Workload {
	w := &Workload{}
	s.read(w, object)
	return w
}

// read takes in a version of the object. What depends only on the spec is worked
// out once.
func (s *Cache) read(w *Workload, object *kueue.Workload) {
	old := w.Object
	w.Object = object
	w.priority, w.since = priority(object), s.queuedSince(object)
	w.asks = false
	for name := range object.Annotations {
		w.asks = w.asks || strings.HasPrefix(name, ParameterPrefix)
	}
	if old == nil || old.UID != object.UID || old.Generation != object.Generation || len(w.Pod) != len(object.Spec.PodSets) {
		w.Pod, w.Keys = nil, nil
		for i := range object.Spec.PodSets {
			template := &object.Spec.PodSets[i].Template
			w.Pod = append(w.Pod, s.counted(podRequests(s.complete(object.Namespace, &template.Spec))))
			w.Keys = append(w.Keys, fit.SelectedKeys(&template.Spec)...)
		}
		w.shape = shapeOf(object.Spec.PodSets, w.Pod)
	}
	w.Usage = usageOf(object)
}

// podRequests is what a pod of the spec asks for, including init and sidecar
// containers and overhead. A container that has a limit and no request gets the
// limit as request when its pod is created, so it counts.
func podRequests(spec *corev1.PodSpec) nodegroups.Resources {
	pod := &corev1.Pod{Spec: *fit.WithRequests(spec)}
	return nodegroups.ResourcesFrom(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
}

func shapeOf(podSets []kueue.PodSet, pods []nodegroups.Resources) uint64 {
	h := fnv.New64a()
	// Encoding API types cannot fail, and a wrong hash only costs time.
	_ = json.NewEncoder(h).Encode(podSets)
	_ = json.NewEncoder(h).Encode(pods)
	return h.Sum64()
}

// usageOf reads the reservation of a Workload that holds one. Pods that will not
// run any more use nothing.
func usageOf(w *kueue.Workload) quota.Amounts {
	if !HasQuota(w) {
		return nil
	}
	u := quota.Amounts{}
	for i := range w.Status.Admission.PodSetAssignments {
		ps := &w.Status.Admission.PodSetAssignments[i]
		count, left := countOf(ps), podsLeft(w, ps)
		for name, v := range nodegroups.ResourcesFrom(ps.ResourceUsage) {
			flavor, ok := ps.Flavors[name]
			if !ok {
				continue
			}
			if left < count {
				v = v / int64(count) * int64(left)
			}
			if v > 0 {
				fr := quota.FlavorResource{Flavor: flavor, Resource: name}
				u[fr] = nodegroups.Plus(u[fr], v)
			}
		}
	}
	return u
}

// podsLeft is how many of the admitted pods of a podSet may still run. Pods that will
// not run any more are counted from the spec, so that those which were left out of the
// admission for it are not taken off twice.
func podsLeft(w *kueue.Workload, ps *kueue.PodSetAssignment) int32 {
	if over := reclaimable(w, ps.Name); over > 0 {
		return min(countOf(ps), max(0, findPodSet(w, ps.Name).Count-over))
	}
	return countOf(ps)
}

// reclaimable is how many pods of a podSet will not run any more.
func reclaimable(w *kueue.Workload, podSet kueue.PodSetReference) int32 {
	for _, r := range w.Status.ReclaimablePods {
		if r.Name == podSet {
			return max(0, r.Count)
		}
	}
	return 0
}

// HasQuota says that the Workload holds a reservation that counts.
func HasQuota(w *kueue.Workload) bool {
	return w.Status.Admission != nil && isTrue(w, kueue.WorkloadQuotaReserved) && !IsFinished(w)
}

// IsAdmitted says that the Workload may run.
func IsAdmitted(w *kueue.Workload) bool { return isTrue(w, kueue.WorkloadAdmitted) }

// IsFinished says that the Workload is over and uses no quota.
func IsFinished(w *kueue.Workload) bool { return isTrue(w, kueue.WorkloadFinished) }

// IsEvicted says that the Workload has to stop, or had to.
func IsEvicted(w *kueue.Workload) bool { return isTrue(w, kueue.WorkloadEvicted) }

// IsActive says that nobody has deactivated the Workload.
func IsActive(w *kueue.Workload) bool { return w.Spec.Active == nil || *w.Spec.Active }

func isTrue(w *kueue.Workload, condition string) bool {
	return apimeta.IsStatusConditionTrue(w.Status.Conditions, condition)
}

func priority(w *kueue.Workload) int32 {
	if w.Spec.Priority == nil {
		return 0
	}
	return *w.Spec.Priority
}

// queuedSince is where the Workload stands in its queue among its priority: an
// attempt that an admission check ended sends it to the back, and one that ended
// because its pods were refused or not ready does unless the configuration keeps its place.
func (s *Cache) queuedSince(w *kueue.Workload) time.Time {
	evicted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted)
	if evicted != nil && evicted.Status == metav1.ConditionTrue {
		switch evicted.Reason {
		case kueue.WorkloadEvictedByAdmissionCheck:
			return evicted.LastTransitionTime.Time
		case kueue.WorkloadEvictedByPodsReadyTimeout, ReasonPodsRefused:
			if !s.keepsPlace() {
				return evicted.LastTransitionTime.Time
			}
		}
	}
	return w.CreationTimestamp.Time
}

// keepsPlace says that Workloads whose pods were not ready in time are queued by
// their creation.
func (s *Cache) keepsPlace() bool {
	c := s.config.WaitForPodsReady
	return c != nil && c.RequeuingStrategy != nil && c.RequeuingStrategy.Timestamp != nil &&
		*c.RequeuingStrategy.Timestamp == kueueconfig.CreationTimestamp
}

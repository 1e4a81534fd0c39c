package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
)

func attemptOf(r *provreq.ProvisioningRequest) provisioning.Attempt {
	a, _ := provisioning.DecodeAttempt(string(r.Status.ProvisioningClassDetails[provisioning.AttemptDetail]))
	return a
}

func isTrue(r *provreq.ProvisioningRequest, kind string) bool {
	return meta.IsStatusConditionTrue(r.Status.Conditions, kind)
}

// over says that a request has come to its end.
func over(r *provreq.ProvisioningRequest) bool {
	return isTrue(r, provreq.Failed) || isTrue(r, provreq.BookingExpired) || isTrue(r, provreq.CapacityRevoked)
}

// left says what is left at the end of a story that should not be.
func (s *simulator) left() (out []string) {
	complain := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	requests := map[types.UID]*provreq.ProvisioningRequest{}
	waiting := false
	consumers := map[string]bool{}
	for _, r := range all[*provreq.ProvisioningRequest](s.store) {
		requests[r.UID] = r
		name := r.Namespace + "/" + r.Name
		switch c := meta.FindStatusCondition(r.Status.Conditions, provreq.Provisioned); {
		case over(r):
		case isTrue(r, provreq.Provisioned):
			complain("request %s is still Provisioned: its booking neither was consumed nor expired", name)
		case attemptOf(r).InFlight():
			complain("request %s still has an attempt in flight: %+v", name, attemptOf(r))
		case c == nil || c.Reason == "" || c.Message == "":
			complain("request %s waits without a reason", name)
		default:
			waiting = true
		}
	}
	busy := map[string]bool{}
	for _, p := range all[*corev1.Pod](s.store) {
		if finished(p) {
			continue
		}
		if name, ok := p.Annotations[provreq.ProvisioningRequestPodAnnotationKey]; ok {
			consumers[p.Namespace+"/"+provisioning.BookingKey(name)] = true
		}
		if metav1.GetControllerOf(p) == nil {
			busy[p.Spec.NodeName] = true
		}
	}
	sizes := map[string]int{}
	for _, n := range all[*corev1.Node](s.store) {
		needed := busy[n.Name]
		for _, b := range provisioning.BookingsOn(n.Labels, n.Annotations) {
			r := requests[b.UID]
			needed = needed || r != nil && !over(r)
			if r == nil && !consumers[b.Namespace+"/"+b.Key] {
				complain("node %s still has the booking label of %s/%s, which is gone", n.Name, b.Namespace, b.Key)
			}
		}
		if mark := n.Annotations[v1alpha1.CordonedAnnotation]; mark != "" && !needed {
			complain("node %s still has the mark of the cordon %q, which serves nobody", n.Name, mark)
		}
		sizes[n.Labels[v1alpha1.NodeGroupLabel]]++
	}
	for _, m := range all[*kwokv1alpha1.Machine](s.store) {
		n := find[*corev1.Node](s.store, "", m.Name)
		g := find[*v1alpha1.NodeGroup](s.store, "", m.Spec.Group)
		switch {
		case m.Status.Phase == kwokv1alpha1.MachineTerminated:
		case n == nil:
			complain("machine %s has no node and nobody waits for it", m.Name)
		case busy[m.Name] || n.Spec.Unschedulable && n.Annotations[v1alpha1.CordonedAnnotation] == "":
		case g == nil && waiting: // who waits may book it now and then, so it is not idle
		case g == nil:
			complain("machine %s is left of NodeGroup %s, which was deleted", m.Name, m.Spec.Group)
		case sizes[g.Name] > int(g.Spec.MinNodes):
			complain("machine %s is idle, and its group %s has %d machines, more than its least of %d", m.Name, g.Name, sizes[g.Name], g.Spec.MinNodes)
		}
	}
	return out
}

// digest is how the story has ended, in words that are the same however often
// muster crashed.
func (s *simulator) digest() []string {
	var lines []string
	for _, r := range all[*provreq.ProvisioningRequest](s.store) {
		var conditions []string
		for _, c := range r.Status.Conditions {
			conditions = append(conditions, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
		}
		slices.Sort(conditions)
		lines = append(lines, fmt.Sprintf("request %s/%s: %s", r.Namespace, r.Name, strings.Join(conditions, ", ")))
	}
	machines, nodes := map[string]int{}, map[string]int{}
	for _, m := range all[*kwokv1alpha1.Machine](s.store) {
		if m.Status.Phase != kwokv1alpha1.MachineTerminated {
			machines[m.Spec.Group]++
		}
	}
	for _, n := range all[*corev1.Node](s.store) {
		nodes[n.Labels[v1alpha1.NodeGroupLabel]]++
		var bookings []string
		for _, b := range provisioning.BookingsOn(n.Labels, n.Annotations) {
			bookings = append(bookings, b.Namespace+"/"+b.Key)
		}
		lines = append(lines, fmt.Sprintf("a node of %q: cordoned %t, marked %q, booked by %v",
			n.Labels[v1alpha1.NodeGroupLabel], n.Spec.Unschedulable, n.Annotations[v1alpha1.CordonedAnnotation], bookings))
	}
	for _, g := range all[*v1alpha1.NodeGroup](s.store) {
		lines = append(lines, fmt.Sprintf("group %s: %d machines, %d nodes; its status says %d machines, %d nodes ready, %d booked", g.Name,
			machines[g.Name], nodes[g.Name], g.Status.Machines, g.Status.ReadyNodes, g.Status.BookedNodes))
	}
	pods := map[corev1.PodPhase]int{}
	for _, p := range all[*corev1.Pod](s.store) {
		pods[p.Status.Phase]++
	}
	lines = append(lines, fmt.Sprintf("pods: %v", pods))
	slices.Sort(lines)
	return lines
}

// calm is how long after the story everything may take to come to its end: the
// longest booking, backoff and join timeout, one after the other.
const calm = 30 * time.Minute

// restTime is for how long nothing may be due before muster counts as at rest.
const restTime = 30 * time.Second

// rest waits until muster has nothing to do for a while and then has it start
// anew: all must stay as it is, save for the wording of messages. Else it rested
// though there was something to do, or had not written what it knew.
func (s *simulator) rest() {
	for range 60 {
		if s.broken() {
			return
		}
		next := time.Now().Add(restTime)
		for _, t := range s.muster.allTimers() {
			if t.at.Before(next) {
				next = t.at
			}
		}
		if !next.Before(time.Now().Add(restTime)) {
			break
		}
		s.run(next.Add(time.Second))
	}
	before := s.digest()
	s.note("muster is at rest and starts anew")
	s.bury(0)
	s.run(time.Now().Add(restTime))
	if diff := cmp.Diff(before, s.digest()); diff != "" {
		s.unrest = "muster was at rest, but one that starts anew changes this (-before +after):\n" + diff
	}
}

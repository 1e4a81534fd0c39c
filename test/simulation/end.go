package simulation

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/provisioning/when"
)

func attemptOf(r *provreq.ProvisioningRequest) transaction.Attempt {
	a, _ := transaction.DecodeAttempt(string(r.Status.ProvisioningClassDetails[transaction.AttemptDetail]))
	return a
}

func isTrue(r *provreq.ProvisioningRequest, kind string) bool {
	return meta.IsStatusConditionTrue(r.Status.Conditions, kind)
}

// over says that a request has come to its end.
func over(r *provreq.ProvisioningRequest) bool {
	return isTrue(r, provreq.Failed) || isTrue(r, provreq.BookingExpired) || isTrue(r, provreq.CapacityRevoked)
}

// longestAttempt is more than any group's joinTimeout, and a rollback.
const longestAttempt = 3 * time.Minute

// inFlight says that machines of the request may still come.
func inFlight(r *provreq.ProvisioningRequest) bool {
	return r != nil && !over(r) && attemptOf(r).InFlight()
}

// remains are what a scenario has left, with the requests and gangs that may still need it.
type remains struct {
	store *store
	// requests by UID, and whether any of them is pending.
	requests map[types.UID]*provreq.ProvisioningRequest
	waiting  bool
	// consumers are the gangs, by namespace and booking key, that have pods which are
	// not finished; busy are the nodes that run pods of no DaemonSet.
	consumers, busy map[string]bool
	wrong           []string
}

// left says what is left at the end of a scenario that should not be.
func (s *simulator) left() []string {
	r := &remains{
		store: s.store, requests: map[types.UID]*provreq.ProvisioningRequest{}, consumers: map[string]bool{}, busy: map[string]bool{},
	}
	for _, p := range all[*corev1.Pod](s.store) {
		if finished(p) {
			continue
		}
		if name, ok := p.Annotations[provreq.ProvisioningRequestPodAnnotationKey]; ok {
			r.consumers[p.Namespace+"/"+state.BookingKey(name)] = true
		}
		if owner := metav1.GetControllerOf(p); owner == nil || owner.Kind != "DaemonSet" {
			r.busy[p.Spec.NodeName] = true
		}
	}
	r.judgeRequests()
	sizes := r.judgeNodes()
	r.judgeMachines(sizes)
	return r.wrong
}

func (r *remains) complain(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// judgeRequests: each has come to an end, or says why it waits.
func (r *remains) judgeRequests() {
	for _, q := range all[*provreq.ProvisioningRequest](r.store) {
		r.requests[q.UID] = q
		name := q.Namespace + "/" + q.Name
		if over(q) {
			continue
		}
		r.waiting = true
		switch c := meta.FindStatusCondition(q.Status.Conditions, provreq.Provisioned); {
		case isTrue(q, provreq.Provisioned):
			r.complain("request %s is still Provisioned: its booking neither was consumed nor expired", name)
		case attemptOf(q).InFlight() && time.Since(attemptOf(q).Started) > longestAttempt:
			r.complain("request %s still has an attempt in flight: %+v", name, attemptOf(q))
		case c == nil || c.Reason == "" || c.Message == "":
			r.complain("request %s waits without a reason", name)
		}
	}
}

// awaited says that an attempt in flight waits for what the launch has made.
func (r *remains) awaited(launch string) bool {
	return inFlight(r.requests[state.TokenUID(launch)])
}

// judgeNodes: every cordon of Muster's serves a request, and no label is of a request that
// is gone together with its pods. It returns how many nodes each group has.
func (r *remains) judgeNodes() map[string]int {
	sizes := map[string]int{}
	for _, n := range all[*corev1.Node](r.store) {
		if outlives(n) {
			listed := find[*v1alpha1.NodeGroup](r.store, "", n.Labels[v1alpha1.NodeGroupLabel]) != nil
			if listed && time.Since(n.Status.Conditions[0].LastTransitionTime.Time) > state.LostAfter+2*time.Minute {
				r.complain("node %s is left of a machine that has ended", n.Name)
			}
			continue
		}
		sizes[n.Labels[v1alpha1.NodeGroupLabel]]++
		needed := r.busy[n.Name] || r.awaited(n.Annotations[v1alpha1.LaunchAnnotation])
		for _, b := range state.BookingsOn(n.Labels, n.Annotations) {
			q := r.requests[b.UID]
			needed = needed || q != nil && !over(q)
			if q == nil && !r.consumers[b.Namespace+"/"+b.Key] {
				r.complain("node %s still has the booking of %s/%s, which is gone", n.Name, b.Namespace, b.Key)
			}
		}
		mark := n.Annotations[v1alpha1.CordonedAnnotation]
		if mark != "" && !needed {
			r.complain("node %s still has the mark of the cordon %q, which serves no request", n.Name, mark)
		}
	}
	return sizes
}

// judgeMachines: no unneeded machine is left beyond the minimum of its group.
func (r *remains) judgeMachines(sizes map[string]int) {
	for _, m := range all[*kwokv1alpha1.Machine](r.store) {
		n := find[*corev1.Node](r.store, "", m.Name)
		g := find[*v1alpha1.NodeGroup](r.store, "", m.Spec.Group)
		switch {
		case m.Status.Phase == kwokv1alpha1.MachineTerminated || r.awaited(m.Spec.Launch):
		case n == nil:
			r.complain("machine %s has no node and no request waits for it", m.Name)
		case r.busy[m.Name] || n.Spec.Unschedulable && n.Annotations[v1alpha1.CordonedAnnotation] == "":
		case r.waiting: // a waiting request books it now and then, so it is not idle
		case g != nil && g.Spec.CapacityType == v1alpha1.Reserved: // it is paid for
		case g == nil:
			r.complain("machine %s is left of NodeGroup %s, which was deleted", m.Name, m.Spec.Group)
		case sizes[g.Name] > int(g.Spec.MinNodes):
			r.complain("machine %s is idle, and its group %s has %d machines, more than its least of %d", m.Name, g.Name,
				sizes[g.Name], g.Spec.MinNodes)
		}
	}
}

// digest is how the scenario has ended, in words that are the same however often
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
		for _, b := range state.BookingsOn(n.Labels, n.Annotations) {
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

// calm is how long after the scenario everything may take to come to its end: the
// longest booking, backoff and join timeout, one after the other.
const calm = 30 * time.Minute

// restTime is for how long nothing may be due before muster counts as at rest.
const restTime = 30 * time.Second

// mostRounds is how often something may be due until a scenario that is tried again and again is left at that.
const mostRounds = 600

// booked is until when gangs may hold what is booked for them: where nothing else is said, for ten minutes from whenever they had
// their turn. It is zero where nothing is.
func (s *simulator) booked() (until time.Time) {
	for _, r := range all[*provreq.ProvisioningRequest](s.store) {
		if c := meta.FindStatusCondition(r.Status.Conditions, provreq.Provisioned); isTrue(r, provreq.Provisioned) && !over(r) {
			for _, since := range []time.Time{c.LastTransitionTime.Time, transaction.RepairOf(r).Started} {
				until = when.Latest(until, since.Add(v1alpha1.DefaultBookingTimeout+restTime))
			}
		}
	}
	return until
}

// hasOrphans reports whether NodeGroups that were deleted still have machines. Idle ones stay for the default idle time.
func (s *simulator) hasOrphans() bool {
	return slices.ContainsFunc(all[*kwokv1alpha1.Machine](s.store), func(m *kwokv1alpha1.Machine) bool {
		return m.Status.Phase != kwokv1alpha1.MachineTerminated && find[*v1alpha1.NodeGroup](s.store, "", m.Spec.Group) == nil
	})
}

// rest waits until muster and the world have nothing to do for a while and then restarts it. All
// objects must stay as they are, except for the wording of messages. Otherwise muster
// was idle though there was something to do, or had not written what it knew.
func (s *simulator) rest() {
	var quiet time.Time // since when nothing is due, and nothing booked
	for rounds := 0; ; rounds++ {
		synctest.Wait()
		if s.broken() || rounds == mostRounds {
			return
		}
		next := time.Now().Add(restTime)
		if options, at := s.options(); len(options) > 0 {
			next = time.Now()
		} else if !at.IsZero() && at.Before(next) {
			next = at
		}
		if !next.Before(time.Now().Add(restTime)) {
			// The bounds are those of the API and not muster's timers, which may be wrong.
			if next = s.booked(); !next.IsZero() {
				quiet = time.Time{}
			} else if s.hasOrphans() {
				if quiet.IsZero() {
					quiet = time.Now()
				}
				next = quiet.Add(nodegroups.DefaultIdleTimeout + restTime)
			}
			if !time.Now().Before(next) {
				break
			}
		}
		s.run(next.Add(time.Second))
	}
	if slices.ContainsFunc(all[*provreq.ProvisioningRequest](s.store), inFlight) {
		return // one that is tried again from time to time just is
	}
	before := s.digest()
	s.note("muster is at rest and restarts")
	s.awaitEnd(0)
	s.run(time.Now().Add(restTime))
	if diff := cmp.Diff(before, s.digest()); diff != "" {
		s.unrest = "muster was at rest, but changes this after a restart (-before +after):\n" + diff
	}
}

package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/workload"
)

// nodesLookAgain is how long a Workload that does not fit on its booked nodes waits before it is evaluated again; watch
// events of the nodes may be late. The wait ends with the booking.
const nodesLookAgain = time.Second

// nodesArrive is how much later than the booking the watch events of the booked nodes may arrive.
const nodesArrive = 2 * time.Second

// placeOnBooked writes the topology assignments of a Workload whose machines are booked to its admission; why says why
// it does not fit.
func (s Rules) placeOnBooked(w *cache.Workload, e *workload.Editor) (why string) {
	switch {
	case slices.ContainsFunc(e.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return s.cache.IsDelegating(c.Name) }):
		// The cluster that has admitted it assigns its topology.
	case s.cache.Nodes.BookedUnseen:
	case !s.cache.Nodes.Known:
		return "The nodes of the cluster are being read"
	default:
		topologies := s.topologiesOf(w, e.Status.AdmissionChecks)
		requests := s.cache.NewTopologyRequests(w, e.Status.Admission, e.Status.AdmissionChecks, topologies)
		if requests == nil {
			break
		}
		placed, reason, _ := requests.FindAssignments()
		if reason != "" {
			return "No place on the nodes that are booked: " + reason
		}
		cache.SetTopologyAssignments(placed, e.Status.Admission)
		if topologies != s.cache.Nodes.TopologyCache {
			fillNodes(w, e, placed)
		}
	}
	for i := range e.Status.Admission.PodSetAssignments {
		if a := &e.Status.Admission.PodSetAssignments[i]; a.DelayedTopologyRequest != nil {
			a.DelayedTopologyRequest = new(kueue.DelayedTopologyRequestStateReady)
		}
	}
	return ""
}

// fillNodes marks podSets that fill their booked nodes completely and that alone select them: the selector suffices, so
// no pod has to be assigned to a node. The podSetUpdates of a Ready check are immutable.
func fillNodes(w *cache.Workload, e *workload.Editor, placed []cache.PodSetPlacement) {
	for _, p := range placed {
		name := w.Object.Spec.PodSets[p.PodSet].Name
		for i := range e.Status.AdmissionChecks {
			c := &e.Status.AdmissionChecks[i]
			if before := workload.FindCheck(w.Object.Status.AdmissionChecks, c.Name); !p.Fills ||
				before != nil && before.State == kueue.CheckStateReady {
				continue
			}
			for j := range c.PodSetUpdates {
				u := &c.PodSetUpdates[j]
				isBooked := func(label string) bool { return strings.HasPrefix(label, v1alpha1.BookedLabelPrefix) }
				if u.Name == name && slices.ContainsFunc(slices.Collect(maps.Keys(u.NodeSelector)), isBooked) {
					annotations := map[string]string{workload.FillsNodesAnnotation: "true"}
					maps.Copy(annotations, u.Annotations)
					u.Annotations = annotations
				}
			}
		}
	}
}

// topologiesOf returns the nodes booked for a Workload: those of its requests, which take no other pods, or all nodes
// if Muster did not book them. Bookings are matched by request, whichever check created it.
func (s Rules) topologiesOf(w *cache.Workload, checks []kueue.AdmissionCheckState) *placement.TopologyCache {
	requests, certain := s.bookedFor(w, checks)
	if len(requests) == 0 {
		return s.cache.Nodes.TopologyCache
	}
	found := false
	topologies := s.cache.Nodes.ForNodes(func(n *corev1.Node) (reserved []nodegroups.Resources, ok bool) {
		for _, b := range state.BookingsOn(n.Labels, n.Annotations) {
			if uid, own := requests[b.Key]; own && uid == string(b.UID) {
				ok, found = true, true
			} else {
				reserved = append(reserved, b.Booked)
			}
		}
		return reserved, ok
	})
	if !found && !certain {
		return s.cache.Nodes.TopologyCache
	}
	return topologies
}

// bookedFor returns the UIDs of the Workload's requests that may have booked nodes, by the keys of their bookings. It
// is certain if Muster launched machines for one, or if pods select its booking. A booking of existing nodes is
// recorded only on these nodes.
func (s Rules) bookedFor(w *cache.Workload, checks []kueue.AdmissionCheckState) (requests map[string]string, certain bool) {
	selected := map[string]bool{}
	for i := range checks {
		for _, u := range checks[i].PodSetUpdates {
			for label := range u.NodeSelector {
				selected[label] = true
			}
		}
	}
	requests = map[string]string{}
	for _, r := range s.cache.Requests[w.Object.UID] {
		label := state.BookingLabel(r.Name)
		recorded := r.Status.ProvisioningClassDetails[transaction.AttemptDetail] != ""
		if selected[label] || recorded || slices.Contains(transaction.KnownClasses, r.Spec.ProvisioningClassName) {
			requests[strings.TrimPrefix(label, v1alpha1.BookedLabelPrefix)] = string(r.UID)
		}
		recent := apimeta.IsStatusConditionTrue(r.Status.Conditions, autoscaling.Provisioned) &&
			s.now.Sub(transaction.ProvisionedAt(r)) < nodesArrive
		certain = certain || selected[label] || recorded || len(requests) > 0 && recent
	}
	return requests, certain
}

// vanishedLookAgain is the interval at which vanished nodes are checked again.
const vanishedLookAgain = 10 * time.Second

// mostUnhealthy is the maximum number of nodes in status.unhealthyNodes.
const mostUnhealthy = 8

// replaceNodes replaces lost nodes in the topology assignment, in the same domain if one is required. The running pods
// stay. If Muster booked the machines, it launches others and the Workload waits for them; otherwise the Workload is
// evicted if there are no nodes for the pods.
func (s Rules) replaceNodes(w *cache.Workload) *Verdict {
	if !s.cache.Nodes.Known || len(w.TopologyUsage) == 0 {
		return nil
	}
	lost := s.cache.LostHosts(w)
	if workload.IsOfOnePod(w.Object) {
		lost = nil // the pod would not move to another node
	}
	e := workload.Edit(w.Object, s.now)
	names := slices.Sorted(maps.Keys(lost))
	if len(lost) == 0 {
		if len(w.Object.Status.UnhealthyNodes) == 0 {
			return nil
		}
		e.Status.UnhealthyNodes = nil
		return &Verdict{Workload: w, Action: Advance, Status: e.Status, Reason: reasonNodesReplaced,
			Message: "All nodes of the workload are there again"}
	}
	switch soon, many := s.cache.Nodes.MayReturn(lost); {
	case many:
		s.cache.Wake(w, s.now.Add(vanishedLookAgain))
		return unhealthy(w, e, names, "NodesVanished", fmt.Sprintf("Nodes have gone (%s), and so many with them whose machines run, by word of "+
			"the cloud, that the workload goes on until they are back, their machines have ended, or a person decides: the condition %s of "+
			"their NodeGroup says how", strings.Join(names, ", "), v1alpha1.ConditionNodesPresent))
	case soon:
		s.cache.Wake(w, s.now.Add(nodesLookAgain))
		return nil
	}
	topologies := s.topologiesOf(w, e.Status.AdmissionChecks)
	reason := "no flavor of it has a Topology any more"
	if requests := s.cache.NewTopologyRequests(w, e.Status.Admission, e.Status.AdmissionChecks, topologies); requests != nil {
		var placed []cache.PodSetPlacement
		if placed, reason = requests.Repair(e.Status.Admission, lost); reason == "" {
			cache.SetTopologyAssignments(placed, e.Status.Admission)
			e.Status.UnhealthyNodes = nil
			s.cache.Nodes.Move(w, cache.UsageOf(placed))
			return &Verdict{Workload: w, Action: Advance, Status: e.Status, Reason: reasonNodesReplaced,
				Message: fmt.Sprintf("The pods of lost nodes have new places (%s)", strings.Join(names, ", "))}
		}
	}
	if topologies == s.cache.Nodes.TopologyCache || len(lost) > mostUnhealthy {
		return s.Evict(w, kueue.WorkloadEvictedDueToNodeFailures,
			fmt.Sprintf("Workload was evicted as there was no replacement for the failed nodes %s: %s",
				strings.Join(names, ", "), reason), kueue.WorkloadQuotaReservedReasonPendingEvaluation, time.Time{})
	}
	return unhealthy(w, e, names, "NodesLost", fmt.Sprintf("Nodes were lost (%s); their pods get new places once other machines are there: %s",
		strings.Join(names, ", "), reason))
}

// unhealthy sets status.unhealthyNodes, so that no pod is assigned to lost nodes meanwhile; nil if it is already set.
func unhealthy(w *cache.Workload, e *workload.Editor, names []string, reason, message string) *Verdict {
	shown := names[:min(len(names), mostUnhealthy)]
	if slices.EqualFunc(w.Object.Status.UnhealthyNodes, shown, func(u kueue.UnhealthyNode, name string) bool { return u.Name == name }) {
		return nil
	}
	e.Status.UnhealthyNodes = nil
	for _, name := range shown {
		e.Status.UnhealthyNodes = append(e.Status.UnhealthyNodes, kueue.UnhealthyNode{Name: name})
	}
	return &Verdict{Workload: w, Action: Advance, Status: e.Status, Reason: reason, Message: message}
}

// reasonNodesReplaced is the reason if lost nodes were replaced or are back.
const reasonNodesReplaced = "NodesReplaced"

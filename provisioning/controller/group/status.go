package group

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/provisioning/when"
)

// nodeCount counts the nodes of a group.
type nodeCount struct {
	booked int32
	// ready are the Ready nodes.
	ready []nodegroups.SeenNode
	// doubt is the scale-down's doubt about the group's machines.
	doubt scaledown.Doubt
}

// count counts the nodes of all groups in one pass.
func count(f *scaledown.Fleet) map[string]nodeCount {
	s, counts := f.Snapshot, map[string]nodeCount{}
	for name, doubt := range scaledown.InDoubt(f) {
		counts[name] = nodeCount{doubt: doubt}
	}
	for n := range s.Nodes.All() {
		if n.Group == "" {
			continue
		}
		c := counts[n.Group]
		if len(n.Bookings) > 0 {
			c.booked++
		}
		if n.Ready {
			c.ready = append(c.ready, seen(n))
		}
		counts[n.Group] = c
	}
	return counts
}

// seen converts a node to the form from which its group learns. Its amounts exclude devices of ResourceClaims.
func seen(n *state.Node) nodegroups.SeenNode {
	out := nodegroups.SeenNode{Name: n.Name, Registered: n.Created, Labels: n.Labels, Taints: n.Taints, Allocatable: n.Allocatable}
	if n.Published == nil {
		return out
	}
	out.Inventory, out.Devices = n.Published.Key(), n.Published.Describe()
	out.Allocatable = n.Allocatable.Clone()
	for name := range n.Published.Amounts() {
		delete(out.Allocatable, name)
	}
	return out
}

// renew updates the status of a group and returns the time of its next change; zero if there is none. The decay of the ledger is no
// change: its amounts carry their own time.
func renew(g *v1alpha1.NodeGroup, nodes nodeCount, now time.Time) (again time.Time) {
	g.Status = nodegroups.Amended(g.Status, g)
	g.Status.ReadyNodes, g.Status.BookedNodes = int32(len(nodes.ready)), nodes.booked
	if g.Status.USDPerHour = ""; g.Spec.PricePerHour != nil {
		g.Status.USDPerHour = text.USD(nodegroups.MicroUSD(g.Spec.PricePerHour))
	}
	g.Status.Shape = nodegroups.LearnShape(g.Status.Shape, g.Spec.Template, nodes.ready, now)
	return when.Earliest(
		setObtainable(g, now),
		setTemplateMatches(g, nodes.ready, now),
		setNodesPresent(g, nodes.doubt, now),
		setScaleDownAllowed(g, nodes.doubt, now),
		nodegroups.ForgottenAt(g.Status.Shape),
		nodegroups.LearnsAt(g, nodes.ready, now),
	)
}

// setObtainable sets whether the next launch may use the group, and returns when that changes. What a person must fix is reported until a
// launch succeeds, even while launches are retried.
func setObtainable(g *v1alpha1.NodeGroup, now time.Time) (again time.Time) {
	var told []v1alpha1.Backoff
	for _, b := range g.Status.Backoffs {
		if b.Until.After(now) {
			again = when.Earliest(again, b.Until.Time)
		}
		// A backoff that also stops smaller launches, and for longer, covers this one.
		telling := func(o v1alpha1.Backoff) bool {
			return o.Class == b.Class && o.AtLeast < b.AtLeast && !o.Until.Before(&b.Until)
		}
		if (b.Until.After(now) || nodegroups.NeedsPerson(&b)) && !slices.ContainsFunc(g.Status.Backoffs, telling) {
			told = append(told, b)
		}
	}
	// The order: what a person must fix, then what stops most launches, then the longest wait, then the class.
	urgency := func(b v1alpha1.Backoff) int {
		if nodegroups.NeedsPerson(&b) {
			return 0
		}
		return 1
	}
	slices.SortFunc(told, func(a, b v1alpha1.Backoff) int {
		return cmp.Or(cmp.Compare(urgency(a), urgency(b)), cmp.Compare(a.AtLeast, b.AtLeast),
			b.Until.Compare(a.Until.Time), cmp.Compare(a.Class, b.Class))
	})
	condition := metav1.Condition{
		Type: v1alpha1.ConditionObtainable, Status: metav1.ConditionTrue, Reason: "Healthy",
		Message: "The next launch may use this group", ObservedGeneration: g.Generation,
		LastTransitionTime: metav1.NewTime(now),
	}
	if len(told) > 0 {
		messages := make([]string, len(told))
		for i := range told {
			when := "The next launch tries again after"
			if until := told[i].Until; until.After(now) {
				when = fmt.Sprintf("Launches wait until %s:", until.UTC().Format(time.RFC3339))
			}
			messages[i] = when + " " + nodegroups.WhyBackoff(&told[i])
		}
		condition.Status, condition.Reason = metav1.ConditionFalse, string(told[0].Class)
		condition.Message = strings.Join(messages, ". ")
	}
	meta.SetStatusCondition(&g.Status.Conditions, condition)
	return again
}

// setTemplateMatches sets whether the nodes match the template. It returns the time when the youngest node is old enough to be evidence.
func setTemplateMatches(g *v1alpha1.NodeGroup, ready []nodegroups.SeenNode, now time.Time) (again time.Time) {
	for i := range ready {
		if at := nodegroups.SettledAt(g, ready[i].Registered); at.After(now) {
			again = when.Earliest(again, at)
		}
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionTemplateMatches, Status: metav1.ConditionTrue, Reason: "NodesMatch",
		Message: "The nodes of the group match the NodeGroup", ObservedGeneration: g.Generation,
		LastTransitionTime: metav1.NewTime(now),
	}
	differences, told := nodegroups.Differences(g, g.Status.Shape, ready, now)
	old := meta.FindStatusCondition(g.Status.Conditions, condition.Type)
	switch shape := g.Status.Shape; {
	case len(differences) > 0:
		messages := make([]string, len(differences))
		for i := range differences {
			messages[i] = differences[i].Message
		}
		condition.Status, condition.Reason = metav1.ConditionFalse, string(differences[0].Kind)
		condition.Message = strings.Join(messages, ". ")
	case shape == nil || len(shape.Allocatable) == 0:
		condition.Status, condition.Reason = metav1.ConditionUnknown, "NoNodes"
		condition.Message = "No node has offered all resources of spec.template yet"
		if shape != nil && shape.Since != nil {
			condition.Message += "; those older than its last change, at " + shape.Since.UTC().Format(time.RFC3339) + ", do not count"
		}
	case !told && old != nil && old.Status == metav1.ConditionFalse && old.Reason != string(nodegroups.LessThanPromised):
		// Nodes lacked labels or taints, and no node has had them since.
		condition.Status, condition.Reason, condition.Message = old.Status, old.Reason, old.Message
	}
	meta.SetStatusCondition(&g.Status.Conditions, condition)
	return again
}

// setNodesPresent sets whether machines that seem lost are terminated.
func setNodesPresent(g *v1alpha1.NodeGroup, d scaledown.Doubt, now time.Time) (again time.Time) {
	setBrake(g, d.Braked(), metav1.Condition{
		Type: v1alpha1.ConditionNodesPresent, Reason: "ManyMissing", Message: d.String(), LastTransitionTime: metav1.NewTime(now),
	}, "FewMissing", "Few machines of the group seem lost")
	return d.At
}

// setScaleDownAllowed sets whether idle machines that no request has launched are terminated.
func setScaleDownAllowed(g *v1alpha1.NodeGroup, d scaledown.Doubt, now time.Time) (again time.Time) {
	setBrake(g, d.KeepsIdle(), metav1.Condition{
		Type: v1alpha1.ConditionScaleDownAllowed, Reason: "ManyUnrequested", Message: d.SayIdle(), LastTransitionTime: metav1.NewTime(now),
	}, "FewUnrequested", "Few idle machines of the group were launched by others")
	return d.At
}

// listedWithin is the age of the last list of a group's machines from which on its condition Listed is False and no launch uses the group.
// Clouds are listed every minute.
const listedWithin = 3 * time.Minute

// setListed sets the condition Listed, and returns the time of the next check.
func setListed(g *v1alpha1.NodeGroup, listed, now time.Time) (again time.Time) {
	if listed.IsZero() {
		return again
	}
	old := now.Sub(listed) >= listedWithin
	setBrake(g, old, metav1.Condition{
		Type: v1alpha1.ConditionListed, Reason: "CloudUnreachable", LastTransitionTime: metav1.NewTime(now),
		Message: fmt.Sprintf("The cloud has not listed the machines of the group since %s: they are taken to be as they were then. "+
			"The log has the error of each list", listed.UTC().Format(time.RFC3339)),
	}, "Listed", "The machines of the group are listed regularly")
	if old {
		return now.Add(time.Minute)
	}
	return listed.Add(listedWithin)
}

// setBrake sets a condition that is False while a person has to decide, and has the good reason after that. A group that never had a cause
// has no such condition.
func setBrake(g *v1alpha1.NodeGroup, braked bool, c metav1.Condition, good, message string) {
	c.Status, c.ObservedGeneration = metav1.ConditionFalse, g.Generation
	if !braked {
		if meta.FindStatusCondition(g.Status.Conditions, c.Type) == nil {
			return
		}
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, good, message
	}
	meta.SetStatusCondition(&g.Status.Conditions, c)
}

package request

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/controller/journal"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// do carries out one step. After a crash, the next step is decided from what was written, and continues from there.
func (c *Controller) do(ctx context.Context, e *model.Entry, step transaction.Step) error {
	switch step.Do {
	case transaction.LookUp:
		if err := c.bookNodes(ctx, e, step); err != nil {
			return err
		}
		return c.readTemplates(ctx, e)
	case transaction.LaunchMachines:
		return c.launch(ctx, e, step)
	case transaction.Terminate:
		terminator := c.Terminator()
		terminator.Request, terminator.Cause = e.String(), "the gang does not need them"
		if f := step.Attempt.Failure; f != nil {
			terminator.Cause = f.String()
		}
		return terminator.Terminate(ctx, step.Terminate)
	case transaction.Begin:
		// The intent is written first: after a crash, it identifies the machines that may exist.
		if err := c.record(ctx, e, step); err != nil {
			return err
		}
		return c.bookNodes(ctx, e, step)
	default:
		if err := c.bookNodes(ctx, e, step); err != nil {
			return err
		}
		if step.Do == transaction.Book {
			return nil
		}
		return c.record(ctx, e, step)
	}
}

// record writes the step to the request's status, creates its Event, and updates the backoffs of groups. Provisioned has a condition and
// no Event, which would be a fifth of all writes for a request.
func (c *Controller) record(ctx context.Context, e *model.Entry, step transaction.Step) error {
	if err := c.writeStatus(ctx, e, step); err != nil {
		return err
	}
	for _, l := range step.Outcomes {
		c.Model.Learn(l.Group, l.LaunchAttempt)
	}
	message := step.Condition.Message
	logStep(ctx, e, step)
	for _, w := range step.Vain {
		vain.WithLabelValues(e.Namespace, w.Group, w.Cause).Add(float64(w.MicroUSD) / 1e6)
	}
	if p := step.Purchases; p != nil && p.Stops > e.Purchases.Stops {
		stopped.Inc()
		c.event(e, corev1.EventTypeWarning, transaction.ReasonPurchasesStopped, p.String())
		journal.Write(ctx, "A request is stopped from buying machines", e.String(), journal.Request, e.String(), journal.Count, p.Bought(),
			journal.Cause, p.String())
	}
	switch step.Do {
	case transaction.Report:
		c.mu.Lock()
		defer c.mu.Unlock()
		now := c.Clock.Now()
		// An older entry delays no write, and its request may be gone.
		maps.DeleteFunc(c.reported, func(_ types.UID, at time.Time) bool { return !now.Before(at.Add(reportEvery)) })
		c.reported[e.UID] = now
		if step.Condition.Type == transaction.DryRun {
			c.reportDryRun(ctx, e, step.Condition)
		}
	case transaction.Begin:
		for _, l := range step.Attempt.Launches {
			showLosses(l.Group)
			showVain(e.Namespace, l.Group)
		}
		reason := "LaunchStarted"
		if len(step.Attempt.Launches) == 0 {
			reason = "LaunchShared"
		}
		c.event(e, corev1.EventTypeNormal, reason, message)
	case transaction.Replace:
		last := &step.Attempt.Replacements[len(step.Attempt.Replacements)-1]
		if last.Level != "" {
			c.event(e, corev1.EventTypeWarning, "MachinesMisplaced", message)
			break
		}
		for _, m := range last.Lost {
			lost.WithLabelValues(m.Group, stageLaunching).Inc()
		}
		c.event(e, corev1.EventTypeWarning, "MachineReplaced", message)
	case transaction.RollBack:
		c.event(e, corev1.EventTypeWarning, "LaunchRolledBack", message)
	case transaction.Repair:
		repaired.Inc()
		c.event(e, corev1.EventTypeWarning, "BookingRepaired", message)
	case transaction.ReportLoss, transaction.Reopen:
		stage := stageBooked
		if e.Status == transaction.Over {
			stage = stageUsed
		}
		for _, n := range step.Lost {
			if !step.Hold { // otherwise they may not be lost
				lost.WithLabelValues(n.Group, stage).Inc()
			}
		}
		c.Model.LossReported(e.UID, step.Lost, step.Hold)
		if len(step.Lost) > 0 {
			message := transaction.LossMessage(step.Lost)
			if step.Hold {
				message += transaction.HeldMessage
			}
			c.event(e, corev1.EventTypeWarning, transaction.ReasonMachineLost, message)
		} else {
			c.event(e, corev1.EventTypeWarning, step.Condition.Reason, message)
		}
	case transaction.Fail, transaction.Expire:
		c.event(e, corev1.EventTypeWarning, step.Condition.Reason, message)
	}
	return nil
}

// reportDryRun creates an Event with the step that would be carried out for a request.
func (c *Controller) reportDryRun(ctx context.Context, e *model.Entry, would metav1.Condition) {
	log.FromContext(ctx).Info("Dry run: nothing is done for a request", "request", e.String(), "decision", would.Reason,
		"message", would.Message)
	observed.WithLabelValues(would.Reason).Inc()
	c.event(e, corev1.EventTypeNormal, would.Reason, would.Message)
}

// readTemplates reads the PodTemplates that the model lacks from the API server: the request fails only if they are missing there.
func (c *Controller) readTemplates(ctx context.Context, e *model.Entry) error {
	var missing []string
	for _, name := range e.Missing {
		t := &corev1.PodTemplate{}
		switch err := c.Live.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: name}, t); {
		case err == nil:
			c.Model.Set(t)
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		default:
			return fmt.Errorf("reading PodTemplate %s/%s: %w", e.Namespace, name, err)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return c.record(ctx, e, transaction.NoTemplates(e.Request, missing))
}

// launch calls the clouds for the machines of the attempt, group after group. It stops at the first refusal, since a part of a gang is
// useless.
func (c *Controller) launch(ctx context.Context, e *model.Entry, step transaction.Step) error {
	for _, call := range step.Launch {
		err := c.call(ctx, e, call)
		if refusal := cloudprovider.Refusal(err); refusal != nil {
			journal.Write(ctx, "The cloud refused a launch", e.String(), journal.Request, e.String(), journal.Group, call.Group,
				journal.Count, call.Count, journal.Reason, string(refusal.Class), journal.Cause, refusal.Error())
			if _, lives := c.Model.Request(e.UID); !lives {
				// The machines or the reservation of the call may have been deleted during it, which is not the group's fault.
				return nil
			}
			view := c.Model.View(c.Model.Snapshot(c.Clock.Now()), e.Request)
			return c.record(ctx, e, transaction.Refused(e.Request, view, call, refusal))
		}
		if err == nil || errors.Is(err, cloudprovider.ErrUnderWay) {
			c.Model.LaunchAnswered(e.UID, call.Key())
		} else {
			c.Model.LaunchUnanswered(e.UID, call.Key(), err)
		}
		if errors.Is(err, cloudprovider.ErrUnderWay) {
			return fmt.Errorf("launching in group %s: %w", call.Group, err) // the same call is made again to get its result
		}
		if err != nil {
			journal.Write(ctx, "A launch has no answer and is repeated", e.String(), journal.Request, e.String(), journal.Group, call.Group,
				journal.Count, call.Count, journal.Cause, err.Error())
			c.event(e, corev1.EventTypeWarning, "LaunchFailed", fmt.Sprintf("Group %s: %v; the call is repeated for a while, and then "+
				"another offering is tried", call.Group, err))
			return fmt.Errorf("launching in group %s: %w", call.Group, err)
		}
	}
	return nil
}

// call makes one call, and updates the model with the machines that exist after it.
func (c *Controller) call(ctx context.Context, e *model.Entry, call transaction.Call) error {
	group := c.Model.Group(call.Group)
	if group == nil {
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: "NodeGroupGone", Message: "the NodeGroup has been deleted"}
	}
	provider := c.Providers[group.Spec.Provider]
	if provider == nil {
		return &cloudprovider.Error{Class: v1alpha1.Config, Code: "ProviderNotAvailable",
			Message: fmt.Sprintf("this muster cannot reach provider %q: is its CRD or its configuration missing?", group.Spec.Provider)}
	}
	journal.Write(ctx, "Launching machines", e.String(), journal.Request, e.String(), journal.Group, call.Group, journal.Count, call.Count,
		"launch", call.Token, journal.Price, c.price(call))
	machines, err := provider.Launch(ctx, cloudprovider.LaunchRequest{
		Group: group, Count: call.Count, Token: call.Token, Request: e.String(), Together: call.Together,
	})
	var names []string
	for _, m := range machines {
		c.Model.MachineLaunched(m)
		if !m.Hold {
			names = append(names, m.Name)
		}
	}
	if err == nil {
		journal.Write(ctx, "The cloud accepted a launch", e.String(), journal.Request, e.String(), journal.Group, call.Group,
			journal.Count, len(names), journal.Machines, names)
	}
	return err
}

// price returns the price of the machines of a call in USD per hour; empty if it is unknown.
func (c *Controller) price(call transaction.Call) string {
	g := c.Model.Snapshot(c.Clock.Now()).FindGroup(call.Group)
	if g == nil || g.PriceUnknown {
		return ""
	}
	return text.USD(nodegroups.Times(int64(call.Count), g.MicroUSDPerHour))
}

// bookNodes books and unbooks the nodes of the step in parallel. If the API server refuses the writes and the step has nothing else to do,
// the request's status reports it.
func (c *Controller) bookNodes(ctx context.Context, e *model.Entry, step transaction.Step) error {
	if err := c.leave(ctx, e, step.Leave); err != nil {
		return err
	}
	changes := c.unbookings(e, step)
	for _, name := range step.Close {
		changes = append(changes, nodeChange{name, func(n *corev1.Node) error { return closeTo(n, e, c.Clock.Now()) }})
	}
	for _, p := range step.Book {
		changes = append(changes, nodeChange{p.Node, func(n *corev1.Node) error {
			return book(n, e, p, step.Open, c.Clock.Now(), c.Model.BoundFor(p.Node, e.Namespace, e.Gang.Key))
		}})
	}
	err := c.changeNodes(ctx, changes)
	if (step.Do == transaction.Book || step.Do == transaction.Repair) && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) {
		return errors.Join(err, c.record(ctx, e, transaction.NotBooked(e.Request, err)))
	}
	return err
}

// unbookings returns the changes of the nodes that the step unbooks.
func (c *Controller) unbookings(e *model.Entry, step transaction.Step) (changes []nodeChange) {
	if len(step.Unbook) == 0 {
		return nil
	}
	shared := c.shared(e.UID, step.Unbook)
	for _, name := range step.Unbook {
		switch {
		case !step.KeepLabels:
			changes = append(changes, nodeChange{name, func(n *corev1.Node) error { return unbook(n, e, shared[name]) }})
		case !shared[name]:
			changes = append(changes, nodeChange{name, uncordon})
		}
	}
	return changes
}

// shared returns the nodes that other requests have booked, too.
func (c *Controller) shared(uid types.UID, nodes []string) map[string]bool {
	out := map[string]bool{}
	all := c.Model.Snapshot(c.Clock.Now()).Nodes
	for _, name := range nodes {
		if n := all.Find(name); n != nil && slices.ContainsFunc(n.Bookings, func(b state.Booking) bool { return b.UID != uid }) {
			out[name] = true
		}
	}
	return out
}

func (c *Controller) event(e *model.Entry, kind, reason, message string) {
	c.Events.Eventf(e.Object, nil, kind, reason, "Provision", "%s", text.Clip(message, text.NoteLimit))
}

package request

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/provisioning/model"
)

// do carries out one step. A crash at any point of it is mended by the next
// step, which is decided from what was written.
func (c *Controller) do(ctx context.Context, e *model.Entry, step provisioning.Step) error {
	switch step.Do {
	case provisioning.LookUp:
		return c.lookUp(ctx, e)
	case provisioning.Report:
		return c.report(ctx, e, step)
	case provisioning.Fail:
		c.event(e, corev1.EventTypeWarning, step.Reason, step.Message)
		return c.writeStatus(ctx, e, step)
	case provisioning.Book:
		return c.bookNodes(ctx, e, step)
	case provisioning.Provision:
		return c.provision(ctx, e, step)
	case provisioning.Begin:
		// The intent comes first: whoever finds it knows what may exist.
		if err := c.writeStatus(ctx, e, step); err != nil {
			return err
		}
		c.event(e, corev1.EventTypeNormal, "LaunchStarted", step.Message)
		return c.bookNodes(ctx, e, step)
	case provisioning.LaunchMachines:
		return c.launch(ctx, e, step)
	case provisioning.RollBack:
		return c.rollBack(ctx, e, step)
	case provisioning.TakeBack:
		return TakeBack(ctx, c.Model, c.Providers, step.TakeBack)
	case provisioning.Consume, provisioning.Expire:
		return c.endBooking(ctx, e, step)
	default:
		return fmt.Errorf("no way to carry out %s", step.Do)
	}
}

// templateGrace is how long after a request its PodTemplates may come: a manifest
// may have them in either order. To fail a request is final.
const templateGrace = 3 * time.Second

// lookUp reads the PodTemplates that the model misses from the API server
// itself: only what is missing there fails the request.
func (c *Controller) lookUp(ctx context.Context, e *model.Entry) error {
	var missing []string
	for _, name := range e.Missing {
		t := &corev1.PodTemplate{}
		switch err := c.Live.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: name}, t); {
		case err == nil:
			c.Model.SetTemplate(t)
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		default:
			return fmt.Errorf("reading PodTemplate %s/%s: %w", e.Namespace, name, err)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if c.Clock.Now().Before(e.Created.Add(templateGrace)) {
		return fmt.Errorf("the PodTemplates %q do not exist yet", missing)
	}
	attempt := e.Attempt
	attempt.Phase = provisioning.Done // templates are looked up once nothing is in flight
	step := provisioning.Step{Do: provisioning.Fail, Attempt: attempt, Reason: provisioning.ReasonFailedToCreatePods,
		Message: fmt.Sprintf("spec.podSets refers to PodTemplates that do not exist in namespace %s: %q. Create them first, then a new request",
			e.Namespace, missing)}
	c.event(e, corev1.EventTypeWarning, step.Reason, step.Message)
	return c.writeStatus(ctx, e, step)
}

func (c *Controller) report(ctx context.Context, e *model.Entry, step provisioning.Step) error {
	if err := c.writeStatus(ctx, e, step); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported[e.UID] = c.Clock.Now()
	return nil
}

func (c *Controller) provision(ctx context.Context, e *model.Entry, step provisioning.Step) error {
	if err := c.writeStatus(ctx, e, step); err != nil {
		return err
	}
	if e.Attempt.Phase == provisioning.Launching {
		for _, l := range e.Attempt.Launches {
			c.learn(e, l.Group, l.Count, nil)
		}
	}
	c.event(e, corev1.EventTypeNormal, step.Reason, step.Message)
	return nil
}

// launch calls the clouds for the machines of the attempt, group after group. It
// stops at the first refusal: there is no use in the rest of a gang.
func (c *Controller) launch(ctx context.Context, e *model.Entry, step provisioning.Step) error {
	for _, l := range step.Attempt.Launches {
		group := c.Model.Group(l.Group)
		if group == nil {
			return c.rollBack(ctx, e, provisioning.Refused(e.Request, l.Group, 0, &cloudprovider.Error{
				Class: v1alpha1.Config, Code: "NodeGroupGone", Message: "the NodeGroup has been deleted"}))
		}
		provider := c.Providers[group.Spec.Provider]
		if provider == nil {
			return c.rollBack(ctx, e, provisioning.Refused(e.Request, l.Group, 0, &cloudprovider.Error{
				Class: v1alpha1.Config, Code: "ProviderNotAvailable",
				Message: fmt.Sprintf("this muster cannot reach provider %q: is its CRD or its configuration missing?", group.Spec.Provider)}))
		}
		machines, err := provider.Launch(ctx, cloudprovider.LaunchRequest{
			Group: group, Count: l.Count, Token: e.Gang.Launch, Request: e.String(),
		})
		for _, m := range machines {
			c.Model.SetMachine(m)
		}
		if refusal := cloudprovider.Refusal(err); refusal != nil {
			return c.rollBack(ctx, e, provisioning.Refused(e.Request, l.Group, len(machines), refusal))
		}
		if err != nil {
			c.event(e, corev1.EventTypeWarning, "LaunchFailed", fmt.Sprintf("Group %s: %v; it is tried again until spec.joinTimeout", l.Group, err))
			return fmt.Errorf("launching in group %s: %w", l.Group, err)
		}
	}
	return nil
}

// rollBack records that the attempt has failed before anything is taken back, so
// that no repeated launch makes again what has been deleted.
func (c *Controller) rollBack(ctx context.Context, e *model.Entry, step provisioning.Step) error {
	if err := c.writeStatus(ctx, e, step); err != nil {
		return err
	}
	f := step.Attempt.Failure
	got := 0
	for _, m := range c.Model.View(nil, e.Request).Machines {
		if m.Group == f.Group && m.State < cloudprovider.Terminated {
			got++
		}
	}
	c.learn(e, f.Group, got, f)
	c.event(e, corev1.EventTypeWarning, "LaunchRolledBack", fmt.Sprintf("Attempt %d: group %s: %s", step.Attempt.Number, f.Group, f.Message))
	return nil
}

// learn remembers the outcome of the attempt in a group.
func (c *Controller) learn(e *model.Entry, group string, got int, f *provisioning.AttemptFailure) {
	a := v1alpha1.LaunchAttempt{
		Time:    metav1.NewTime(c.Clock.Now()),
		Request: e.String(),
		Token:   e.Gang.Launch,
		Asked:   int32(e.Attempt.Machines(group)),
		Got:     int32(got),
	}
	if f != nil {
		a.Class, a.Message = f.Class, f.Message
	}
	c.Model.Learn(group, a)
}

// TakeBack deletes machines by name, group after group, and tells the model.
func TakeBack(ctx context.Context, m *model.Model, providers map[v1alpha1.Provider]cloudprovider.Provider, machines []cloudprovider.Machine) error {
	byGroup := map[string][]cloudprovider.Machine{}
	var groups []string
	for _, machine := range machines {
		if byGroup[machine.Group] == nil {
			groups = append(groups, machine.Group)
		}
		byGroup[machine.Group] = append(byGroup[machine.Group], machine)
	}
	var errs []error
	for _, group := range groups {
		names := make([]string, len(byGroup[group]))
		for i, machine := range byGroup[group] {
			names[i] = machine.Name
		}
		p, err := providerOf(m, providers, group)
		if err == nil {
			err = p.TakeBack(ctx, group, names)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("taking back machines of group %s: %w", group, err))
			continue
		}
		for _, machine := range byGroup[group] {
			m.MachineTaken(machine)
		}
	}
	return errors.Join(errs...)
}

// providerOf finds the provider of a group, also of one that has been deleted:
// where there is one provider only, it must be that.
func providerOf(m *model.Model, providers map[v1alpha1.Provider]cloudprovider.Provider, group string) (cloudprovider.Provider, error) {
	if g := m.Group(group); g != nil {
		if p := providers[g.Spec.Provider]; p != nil {
			return p, nil
		}
		return nil, fmt.Errorf("group %s: provider %q is not available in this process", group, g.Spec.Provider)
	}
	if len(providers) == 1 {
		for _, p := range providers {
			return p, nil
		}
	}
	return nil, fmt.Errorf("NodeGroup %s is gone: create it again, so that its machines can be taken back", group)
}

// bookNodes books and unbooks the nodes of the step, many at once.
func (c *Controller) bookNodes(ctx context.Context, e *model.Entry, step provisioning.Step) error {
	changes := c.unbookings(e, step)
	for _, p := range step.Book {
		changes = append(changes, nodeChange{p.Node, func(n *corev1.Node) error { return book(n, e, p, c.Clock.Now()) }})
	}
	return c.changeNodes(ctx, changes)
}

// unbookings are the changes of the nodes that the step unbooks.
func (c *Controller) unbookings(e *model.Entry, step provisioning.Step) (changes []nodeChange) {
	if len(step.Unbook) == 0 {
		return nil
	}
	shared := c.shared(e.UID)
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

// endBooking lifts the cordons of a booking that is consumed, or undoes one that
// has expired, and then says so.
func (c *Controller) endBooking(ctx context.Context, e *model.Entry, step provisioning.Step) error {
	if err := c.changeNodes(ctx, c.unbookings(e, step)); err != nil {
		return err
	}
	if err := c.writeStatus(ctx, e, step); err != nil {
		return err
	}
	if step.Do == provisioning.Expire {
		c.event(e, corev1.EventTypeWarning, step.Reason, step.Message)
	}
	return nil
}

// shared are the nodes that others than the request have booked, too.
func (c *Controller) shared(uid types.UID) map[string]bool {
	out := map[string]bool{}
	for n := range c.Model.Snapshot(c.Clock.Now()).Nodes.BookedBy(uid) {
		if slices.ContainsFunc(n.Bookings, func(b provisioning.Booking) bool { return b.UID != uid }) {
			out[n.Name] = true
		}
	}
	return out
}

func (c *Controller) event(e *model.Entry, kind, reason, message string) {
	c.Events.Eventf(e.Object, nil, kind, reason, "Provision", "%s", provisioning.Clip(message, provisioning.NoteLimit))
}

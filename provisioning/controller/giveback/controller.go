// Package giveback tidies up: it lifts cordons that serve nobody, takes labels of
// ended gangs off, and gives back machines that no request owns or that have
// been idle for too long. What to do is decided in the pure core, alone among all
// deciders, so that no machine is given back while it is promised.
package giveback

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/provisioning/controller/request"
	"github.com/muster-dev/muster/provisioning/model"
)

const (
	// nodeWrites is how many nodes are written at once.
	nodeWrites = 16
	// pace is the least time between two looks, and between a failure and the
	// next try.
	pace = 200 * time.Millisecond
)

// Controller gives back what nobody needs.
type Controller struct {
	Client    client.Client
	Providers map[v1alpha1.Provider]cloudprovider.Provider
	Model     *model.Model
	Feed      *model.Feed
	Events    events.EventRecorder
	Clock     clock.WithTicker
}

// Start tidies up until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	changed := c.Model.Changed()
	if !c.Feed.Synced(ctx) {
		return nil
	}
	timer := c.Clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C():
		}
		again := pace
		switch next, err := c.pass(ctx); {
		case err != nil && ctx.Err() == nil:
			log.FromContext(ctx).Info("Tidying up will be tried again", "reason", err.Error())
		case next.IsZero():
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			}
		default:
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			case <-c.Clock.After(next.Sub(c.Clock.Now())):
			}
		}
		timer.Reset(again)
	}
}

// pass decides and tidies up once; it returns when to look again.
func (c *Controller) pass(ctx context.Context) (time.Time, error) {
	var u provisioning.Upkeep
	c.Model.Decide(func() {
		u = provisioning.Tend(c.Model.Fleet(c.Clock.Now()))
		for _, name := range u.Cordon {
			c.Model.SetLeaving(name, true)
		}
	})
	defer func() {
		for _, name := range u.Cordon {
			c.Model.SetLeaving(name, false)
		}
	}()
	var g errgroup.Group
	g.SetLimit(nodeWrites)
	change := func(name string, f func(*corev1.Node)) {
		g.Go(func() error { return request.ChangeNode(ctx, c.Client, c.Model, name, f) })
	}
	for _, name := range u.Lift {
		change(name, request.LiftCordon)
	}
	for _, name := range u.Cordon {
		change(name, func(n *corev1.Node) { request.Cordon(n, v1alpha1.CordonGivingBack) })
	}
	for _, l := range u.Unlabel {
		change(l.Node, func(n *corev1.Node) {
			delete(n.Labels, v1alpha1.BookedLabelPrefix+l.Key)
			delete(n.Annotations, v1alpha1.BookedLabelPrefix+l.Key)
		})
	}
	if err := g.Wait(); err != nil {
		return time.Time{}, err
	}
	if err := request.TakeBack(ctx, c.Model, c.Providers, u.TakeBack); err != nil {
		return time.Time{}, err
	}
	c.tell(u.TakeBack)
	return u.At, nil
}

// tell says on each group how many of its machines were given back.
func (c *Controller) tell(machines []cloudprovider.Machine) {
	counts := map[string]int{}
	for _, m := range machines {
		counts[m.Group]++
	}
	for name, n := range counts {
		if g := c.Model.Group(name); g != nil {
			c.Events.Eventf(g, nil, corev1.EventTypeNormal, "MachinesGivenBack", "GiveBack",
				"%d machines that nobody needs were given back", n)
		}
	}
}

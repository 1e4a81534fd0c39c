// Package giveback tidies up: it lifts cordons that serve nobody, takes labels of
// ended gangs off, and gives back machines that no request owns or that have
// been idle for too long. What to do is decided in the pure core, alone among all
// deciders, so that no machine is given back while it is promised.
package giveback

import (
	"context"
	"errors"
	"slices"
	"sync"
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
	// pace is the least time between two looks.
	pace = 200 * time.Millisecond
	// longestPause is that after many failures in a row.
	longestPause = 30 * time.Second
)

// Controller gives back what nobody needs.
type Controller struct {
	Client    client.Client
	Providers map[v1alpha1.Provider]cloudprovider.Provider
	Model     *model.Model
	// Synced waits for the first full picture of the Model; false if the context
	// ends first. Changed gets a value soon after each change of it.
	Synced  func(context.Context) bool
	Changed <-chan struct{}
	Events  events.EventRecorder
	Clock   clock.WithTicker
}

// Start tidies up until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	if !c.Synced(ctx) {
		return nil
	}
	pause := pace
	for {
		next, err := c.pass(ctx)
		if err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Info("Tidying up will be tried again", "reason", err.Error(), "pause", pause.String())
			next = c.Clock.Now().Add(pause)
			pause = min(2*pause, longestPause)
		} else {
			pause = pace
		}
		var again <-chan time.Time
		if !next.IsZero() {
			again = c.Clock.After(next.Sub(c.Clock.Now()))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.Changed:
		case <-again:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.Clock.After(pace):
		}
	}
}

// pass decides and tidies up once; it returns when to look again. What fails keeps
// nothing else from being tidied up.
func (c *Controller) pass(ctx context.Context) (time.Time, error) {
	var u provisioning.Upkeep
	var leaving []string
	c.Model.Decide(func() {
		fleet := c.Model.Fleet(c.Clock.Now())
		u = provisioning.Tend(fleet)
		leaving = slices.Concat(u.Cordon, fleet.NodesOf(u.TakeBack))
		for _, name := range leaving {
			c.Model.SetLeaving(name, true)
		}
	})
	defer func() {
		for _, name := range leaving {
			c.Model.SetLeaving(name, false)
		}
	}()
	var mu sync.Mutex
	var errs []error
	var g errgroup.Group
	g.SetLimit(nodeWrites)
	change := func(name string, f func(*corev1.Node) error) {
		g.Go(func() error {
			if err := request.ChangeNode(ctx, c.Client, c.Model, name, f); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
			return nil
		})
	}
	for _, name := range u.Lift {
		change(name, request.LiftCordon)
	}
	for _, name := range u.Cordon {
		change(name, func(n *corev1.Node) error { return request.Cordon(n, v1alpha1.CordonGivingBack) })
	}
	for _, l := range u.Unlabel {
		change(l.Node, func(n *corev1.Node) error {
			delete(n.Labels, v1alpha1.BookedLabelPrefix+l.Key)
			delete(n.Annotations, v1alpha1.BookedLabelPrefix+l.Key)
			return nil
		})
	}
	_ = g.Wait() // errors are collected above
	if err := request.TakeBack(ctx, c.Model, c.Providers, u.TakeBack); err != nil {
		errs = append(errs, err)
	} else {
		c.tell(u.TakeBack)
	}
	return u.At, errors.Join(errs...)
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

// Package group discovers the clouds' groups and writes the status of NodeGroups: the number of machines, what launches and nodes have
// shown, and whether the group works.
package group

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/controller/journal"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/when"
)

// pace is the minimum time between two writes of the statuses. Changes in between are written together.
const pace = time.Second

// Controller writes the status of each NodeGroup.
type Controller struct {
	Client client.Client
	// Live reads from the API server, without a cache.
	Live  client.Reader
	Model *model.Model
	// Synced waits for the sync of the Model. It returns false if the context ends first. Changed receives a value after each change of
	// the Model.
	Synced  func(context.Context) bool
	Changed <-chan struct{}
	// Discovery has the warnings and advice for discovered groups; nil without discovery.
	Discovery *Discovery
	// Lists has the times of the clouds' last lists.
	Lists cloudprovider.Lists
	Clock clock.WithTicker
}

// Start writes statuses until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	if !c.Synced(ctx) {
		return nil
	}
	for {
		next := c.pass(ctx)
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = c.Clock.After(next.Sub(c.Clock.Now()))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer:
		case <-c.Changed:
		case <-c.Discovery.news():
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.Clock.After(pace):
		}
	}
}

// pass writes the statuses that changed and returns when one will change by itself;
// zero if none will.
func (c *Controller) pass(ctx context.Context) (next time.Time) {
	now := c.Clock.Now()
	fleet := c.Model.Fleet(now)
	counts := count(&fleet)
	for i := range fleet.Groups {
		name := fleet.Groups[i].Name
		old := c.Model.Group(name)
		if old == nil {
			continue
		}
		updated := old.DeepCopy()
		updated.Status = c.Model.Learned(name)
		updated.Status.Machines = int32(fleet.Groups[i].Machines)
		next = when.Earliest(next, renew(updated, counts[name], now), setListed(updated, c.Lists.At(old), now))
		c.Discovery.renew(updated, now)
		if equality.Semantic.DeepEqual(old.Status, updated.Status) {
			continue
		}
		if err := c.write(ctx, old, updated); err != nil {
			log.FromContext(ctx).Info("Writing the status of a NodeGroup will be retried", "group", name, "reason", err.Error())
			next = when.Earliest(next, now.Add(pace))
			continue
		}
		logObtainable(ctx, old, updated)
	}
	return next
}

// logObtainable logs when launches start or stop to wait for a group.
func logObtainable(ctx context.Context, old, updated *v1alpha1.NodeGroup) {
	before := meta.FindStatusCondition(old.Status.Conditions, v1alpha1.ConditionObtainable)
	after := meta.FindStatusCondition(updated.Status.Conditions, v1alpha1.ConditionObtainable)
	switch {
	case after.Status == metav1.ConditionFalse && (before == nil || before.Status != after.Status || before.Reason != after.Reason):
		journal.Write(ctx, "Launches wait for a group", updated.Name, journal.Group, updated.Name, journal.Reason, after.Reason,
			journal.Cause, after.Message)
	case after.Status == metav1.ConditionTrue && before != nil && before.Status == metav1.ConditionFalse:
		journal.Write(ctx, "Launches use a group again", updated.Name, journal.Group, updated.Name)
	}
}

// write patches the status of a group without an optimistic lock: no other writer writes these fields, and the simulated pool writes its
// own field of the same status.
func (c *Controller) write(ctx context.Context, old, updated *v1alpha1.NodeGroup) error {
	err := c.Client.Status().Patch(ctx, updated, client.MergeFrom(old))
	if !apierrors.IsInvalid(err) {
		if err == nil {
			c.Model.Written(updated)
		}
		return client.IgnoreNotFound(err)
	}
	// The patch is the difference to the cached status. After a restore of etcd, the API server may have an older status, and the patched
	// result is invalid.
	live := &v1alpha1.NodeGroup{}
	if err := c.Live.Get(ctx, client.ObjectKeyFromObject(old), live); err != nil {
		return client.IgnoreNotFound(err)
	}
	whole := live.DeepCopy()
	whole.Status = *updated.Status.DeepCopy()
	whole.Status.Launched = live.Status.Launched
	if err := c.Client.Status().Patch(ctx, whole, client.MergeFrom(live)); err != nil {
		return client.IgnoreNotFound(err)
	}
	c.Model.Restored(whole)
	return nil
}

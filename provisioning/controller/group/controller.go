// Package group finds the clouds' own groups, and keeps the status of NodeGroups: how
// many machines there are, what launches and nodes have taught, and whether the group
// is in health.
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

// pace is the least time between two writes of the statuses: what changes in
// between is written as one.
const pace = time.Second

// Controller keeps the statuses.
type Controller struct {
	Client client.Client
	// Live reads past any cache.
	Live  client.Reader
	Model *model.Model
	// Synced waits for the first full picture of the Model; false if the context
	// ends first. Changed gets a value soon after each change of it.
	Synced  func(context.Context) bool
	Changed <-chan struct{}
	// Discovery knows more of the groups that it has found; nil for none.
	Discovery *Discovery
	// Lists are those of the clouds.
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

// logObtainable writes a line when launches begin to wait for a group or to use it again.
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

// write patches the status of a group. There is no optimistic lock: the fields written here have no other writer, and the simulated
// pool writes its own field beside them.
func (c *Controller) write(ctx context.Context, old, updated *v1alpha1.NodeGroup) error {
	err := c.Client.Status().Patch(ctx, updated, client.MergeFrom(old))
	if !apierrors.IsInvalid(err) {
		if err == nil {
			c.Model.Written(updated)
		}
		return client.IgnoreNotFound(err)
	}
	// The patch says what has changed since the group was last seen. The API server may have less than that, as after a restore of its
	// etcd, and the patch does not make a valid status of it.
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

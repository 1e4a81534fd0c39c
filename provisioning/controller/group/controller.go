// Package group keeps the status of NodeGroups: how many machines there are and
// what the last launches taught.
package group

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/provisioning/model"
)

// pace is the least time between two writes of the statuses: what changes in
// between is written as one.
const pace = time.Second

// Controller keeps the statuses.
type Controller struct {
	Client client.Client
	Model  *model.Model
	Feed   *model.Feed
	Clock  clock.WithTicker
}

// Start writes statuses until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	changed := c.Model.Changed()
	if !c.Feed.Synced(ctx) {
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
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.Clock.After(pace):
		}
	}
}

// pass writes the statuses that changed and returns when the first backoff ends.
func (c *Controller) pass(ctx context.Context) (next time.Time) {
	now := c.Clock.Now()
	s := c.Model.Snapshot(now)
	for i := range s.Groups {
		name := s.Groups[i].Name
		old := c.Model.Group(name)
		if old == nil {
			continue
		}
		updated := old.DeepCopy()
		updated.Status = c.Model.Learned(name)
		count(&updated.Status, s, name, s.Groups[i].Machines)
		setObtainable(updated, now)
		if until := updated.Status.BackoffUntil; until != nil && until.After(now) && (next.IsZero() || until.Time.Before(next)) {
			next = until.Time
		}
		if equality.Semantic.DeepEqual(old.Status, updated.Status) {
			continue
		}
		// No optimistic lock: the fields written here have no other writer, and
		// the simulated pool writes its own field beside them.
		if err := c.Client.Status().Patch(ctx, updated, client.MergeFrom(old)); client.IgnoreNotFound(err) != nil {
			log.FromContext(ctx).Info("The status of a NodeGroup will be written again", "group", name, "reason", err.Error())
			next = now.Add(pace)
			continue
		}
		c.Model.GroupWritten(updated)
	}
	return next
}

func count(status *v1alpha1.NodeGroupStatus, s *provisioning.Snapshot, group string, machines int) {
	status.Machines = int32(machines)
	status.ReadyNodes, status.BookedNodes = 0, 0
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Group != group {
			continue
		}
		if n.Ready {
			status.ReadyNodes++
		}
		if len(n.Bookings) > 0 {
			status.BookedNodes++
		}
	}
}

// setObtainable says whether the group is tried by the next launch.
func setObtainable(g *v1alpha1.NodeGroup, now time.Time) {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionObtainable, Status: metav1.ConditionTrue, Reason: "Healthy",
		Message: "The next launch may use this group", ObservedGeneration: g.Generation,
	}
	if until := g.Status.BackoffUntil; until != nil && until.After(now) && len(g.Status.Attempts) > 0 {
		last := g.Status.Attempts[0]
		condition.Status, condition.Reason = metav1.ConditionFalse, string(last.Class)
		condition.Message = fmt.Sprintf("%d launches failed in a row, the last at %s: %s. Tried again at %s", g.Status.Failures,
			last.Time.UTC().Format(time.RFC3339), last.Message, until.UTC().Format(time.RFC3339))
	}
	meta.SetStatusCondition(&g.Status.Conditions, condition)
}

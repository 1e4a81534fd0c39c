package request

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/text"
)

// budgetsEvery is the interval between two checks whether the status of a CapacityPolicy is due. A crash loses at most the spend of one
// interval.
const budgetsEvery = time.Minute

// keepBudgets writes the spend of budgets whenever the timer fires, until ctx is done.
func (c *Controller) keepBudgets(ctx context.Context, timer clock.Timer) {
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		for _, p := range c.Model.Policies() {
			if err := c.writeBudgets(ctx, p); err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Info("Writing the spend of a CapacityPolicy's budgets will be retried", "policy", p.Name, "reason",
					err.Error())
			}
		}
		timer.Reset(budgetsEvery)
	}
}

// writeBudgets writes the status of a policy if it is due, and creates the Events for it. An Event is created only after the write, so
// that it is created once.
func (c *Controller) writeBudgets(ctx context.Context, p *v1alpha1.CapacityPolicy) error {
	updated := p.DeepCopy()
	updated.Status.Budgets = nil
	reports := c.Model.Reports(p, c.Clock.Now())
	due := len(reports) != len(p.Status.Budgets)
	for _, r := range reports {
		due = due || r.Due
		updated.Status.Budgets = append(updated.Status.Budgets, r.Status)
	}
	if !due {
		return nil
	}
	// The lock stops a deposed leader, which would reset what its successor has counted since.
	patch := client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Status().Patch(ctx, updated, patch); err != nil {
		return client.IgnoreNotFound(err)
	}
	c.Model.Written(updated)
	for _, r := range reports {
		if r.Warning != "" {
			c.Events.Eventf(updated, nil, corev1.EventTypeWarning, "BudgetSpent", "Provision", "%s",
				text.Clip(r.Warning, text.NoteLimit))
		}
		if r.VainWarning != "" {
			c.Events.Eventf(updated, nil, corev1.EventTypeWarning, "BudgetSpentInVain", "Provision", "%s",
				text.Clip(r.VainWarning, text.NoteLimit))
		}
	}
	return nil
}

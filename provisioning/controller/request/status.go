package request

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// writeStatus patches the request's status with the step. The patch carries the version that the step was decided from, so that a deposed
// leader cannot overwrite the steps of the new one.
func (c *Controller) writeStatus(ctx context.Context, e *model.Entry, step transaction.Step) error {
	updated := withStep(e.Object, step, c.Clock.Now())
	if step.Do == transaction.Provision && e.Gang.IsHeldByTaint() {
		if updated.Status.ProvisioningClassDetails == nil {
			updated.Status.ProvisioningClassDetails = map[string]provreq.Detail{}
		}
		updated.Status.ProvisioningClassDetails[v1alpha1.BookedByLabel] = provreq.Detail(e.UID)
	}
	if equality.Semantic.DeepEqual(e.Object.Status, updated.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(e.Object, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Status().Patch(ctx, updated, patch); isGone(err) {
		c.Model.Gone(e.Object)
		return nil
	} else if err != nil {
		return fmt.Errorf("writing the status of ProvisioningRequest %s: %w", e, err)
	}
	c.Model.Written(updated)
	e.Object = updated
	return nil
}

// withStep returns the request with its status after the step.
func withStep(r *provreq.ProvisioningRequest, step transaction.Step, now time.Time) *provreq.ProvisioningRequest {
	out := r.DeepCopy()
	for _, c := range step.Conditions() {
		c.ObservedGeneration, c.LastTransitionTime = r.Generation, metav1.NewTime(now)
		meta.SetStatusCondition(&out.Status.Conditions, c)
	}
	detail := func(key, record string) {
		if out.Status.ProvisioningClassDetails == nil {
			out.Status.ProvisioningClassDetails = map[string]provreq.Detail{}
		}
		out.Status.ProvisioningClassDetails[key] = provreq.Detail(record)
	}
	if step.Attempt.Number > 0 {
		detail(transaction.AttemptDetail, step.Attempt.Encode())
	}
	if step.Repair != nil {
		detail(transaction.RepairDetail, step.Repair.Encode())
	}
	if step.Purchases != nil {
		detail(purchases.Detail, step.Purchases.Encode())
	}
	return out
}

// sameReasons reports whether two statuses differ only in wording.
func sameReasons(a, b provreq.ProvisioningRequestStatus) bool {
	return equality.Semantic.DeepEqual(a.ProvisioningClassDetails, b.ProvisioningClassDetails) &&
		slices.EqualFunc(a.Conditions, b.Conditions, func(x, y metav1.Condition) bool {
			return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason
		})
}

package request

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/muster-dev/muster/provisioning/transaction"
)

// Unserved creates an Event on each request that Muster does not serve. Another provisioner may serve the request, so its status is not
// written.
type Unserved struct {
	Informers cache.Informers
	Served    transaction.Instance
	Events    events.EventRecorder
}

// Start creates Events until ctx is done.
func (u *Unserved) Start(ctx context.Context) error {
	informer, err := u.Informers.GetInformer(ctx, &provreq.ProvisioningRequest{})
	if err != nil {
		return fmt.Errorf("watching requests: %w", err)
	}
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		if r, ok := o.(*provreq.ProvisioningRequest); ok && !u.Served.Serves(r) && len(r.Status.Conditions) == 0 {
			u.Events.Eventf(r, nil, corev1.EventTypeWarning, "NotServed", "Provision", "%s", u.why(r))
		}
	}})
	if err != nil {
		return fmt.Errorf("watching requests: %w", err)
	}
	<-ctx.Done()
	return informer.RemoveEventHandler(handler)
}

func (u *Unserved) why(r *provreq.ProvisioningRequest) string {
	if instance := string(r.Spec.Parameters[transaction.ParamProcessor]); instance != "" && instance != u.Served.Name {
		return fmt.Sprintf("This request is for the processor instance %q (parameter %s)", instance, transaction.ParamProcessor)
	}
	return fmt.Sprintf("Muster does not serve the class %s; it serves %s. Unless another provisioner serves it, nothing will come: create "+
		"the request with one of these",
		r.Spec.ProvisioningClassName, strings.Join(u.Served.Classes, ", "))
}

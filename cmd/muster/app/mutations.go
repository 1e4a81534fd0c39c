package app

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/muster/webhook"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/queueing/jobs/bindings"
)

// noWebhook is the address that disables the webhook.
const noWebhook = "0"

// mutationsIn returns what mutates objects in the cluster. It checks which features the cluster has, since an administrator may have
// turned them off or on.
func (o *Options) mutationsIn(mapper meta.RESTMapper) (deploy.Mutations, error) {
	if o.WebhookAddress != noWebhook {
		return deploy.ByWebhook, nil
	}
	kind := admissionv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy")
	switch _, err := mapper.RESTMapping(kind.GroupKind(), kind.Version); {
	case meta.IsNoMatchError(err):
		return deploy.ByControllers, nil
	case err != nil:
		return "", fmt.Errorf("looking for the kind %s of %s: %w", kind.Kind, kind.GroupVersion(), err)
	}
	return deploy.ByPolicies, nil
}

// addMutations adds the webhook for mutations that the cluster has no policies for, or reports that there are none. The webhook writes
// with its own client: every process serves it, whichever leads.
func addMutations(mgr ctrl.Manager, o Options, kube client.Client, names deploy.Names) error {
	mutations, err := o.mutationsIn(mgr.GetRESTMapper())
	switch {
	case err != nil:
		return err
	case mutations == deploy.ByControllers:
		ctrl.Log.Info("The cluster has no mutating admission policies, which Kubernetes has from 1.36 on: queued Jobs are suspended and "+
			"new nodes cordoned a moment after their creation, and pods must bring the node selector and toleration of their booking; "+
			"--webhook-bind-address serves a webhook in their place", "see", "docs/kubernetes.md")
		return nil
	case mutations == deploy.ByPolicies:
		return nil
	}
	objects, err := o.manifests()
	if err != nil {
		return err
	}
	policies, err := names.Policies(objects)
	if err != nil {
		return err
	}
	return webhook.Add(mgr, webhook.Config{
		Address: o.WebhookAddress, Policies: policies, Namespaces: bindings.Namespaces(o.Queues),
		Params: mgr.GetAPIReader(), Client: kube, Clock: clock.RealClock{},
	})
}

package migration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
)

// Lease is what a leading Kueue renews, in whichever namespace it runs. A Kueue without leader
// election has none.
const Lease = "c1f6bfd2.kueue.x-k8s.io"

// Leader returns the held Lease of that name, in whichever namespace, with its holder; empty if
// none is held.
func Leader(ctx context.Context, leases client.Reader, now time.Time, name string) (string, error) {
	var list coordinationv1.LeaseList
	if err := leases.List(ctx, &list, client.MatchingFields{"metadata.name": name}); err != nil {
		return "", err
	}
	for _, l := range list.Items {
		s := l.Spec
		if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
			continue
		}
		if now.Before(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second)) {
			return fmt.Sprintf("%s/%s of %s", l.Namespace, l.Name, *s.HolderIdentity), nil
		}
	}
	return "", nil
}

// webhookPath is in the paths of the webhooks for Kueue's own kinds, as its framework names them.
const webhookPath = "kueue-x-k8s-io"

// isKueues reports whether webhooks belong to Kueue. Other webhooks for Kueue's kinds have other paths.
func isKueues(configs []admissionregistration.WebhookClientConfig) bool {
	return slices.ContainsFunc(configs, func(c admissionregistration.WebhookClientConfig) bool {
		return c.Service != nil && c.Service.Path != nil && strings.Contains(*c.Service.Path, webhookPath) ||
			c.URL != nil && strings.Contains(*c.URL, webhookPath)
	})
}

// Webhooks returns the configurations of a Kueue's webhooks, and how many webhooks they have.
// Without Kueue they refuse what they are called for, pods among it.
func Webhooks(ctx context.Context, kube client.Reader) (out []client.Object, webhooks int, err error) {
	var validating admissionregistration.ValidatingWebhookConfigurationList
	var mutating admissionregistration.MutatingWebhookConfigurationList
	if err := kube.List(ctx, &validating); err != nil {
		return nil, 0, fmt.Errorf("listing validating webhooks: %w", err)
	}
	if err := kube.List(ctx, &mutating); err != nil {
		return nil, 0, fmt.Errorf("listing mutating webhooks: %w", err)
	}
	var configs []admissionregistration.WebhookClientConfig
	note := func(o client.Object) {
		if isKueues(configs) {
			out, webhooks = append(out, o), webhooks+len(configs)
		}
		configs = nil
	}
	for i := range validating.Items {
		for _, w := range validating.Items[i].Webhooks {
			configs = append(configs, w.ClientConfig)
		}
		note(&validating.Items[i])
	}
	for i := range mutating.Items {
		for _, w := range mutating.Items[i].Webhooks {
			configs = append(configs, w.ClientConfig)
		}
		note(&mutating.Items[i])
	}
	return out, webhooks, nil
}

// CRDs reads the CRDs of Kueue's kinds that Muster has, too; those that the cluster lacks are left out.
func CRDs(ctx context.Context, kube client.Reader) (out []*unstructured.Unstructured, err error) {
	objects, err := deploy.Manifests(deploy.Queueing)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if !isKueueCRD(o) {
			continue
		}
		crd := NewCRD()
		switch err := kube.Get(ctx, client.ObjectKeyFromObject(o), crd); {
		case err == nil:
			out = append(out, crd)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading CRD %s: %w", o.GetName(), err)
		}
	}
	return out, nil
}

func isKueueCRD(o *unstructured.Unstructured) bool {
	return o.GetKind() == "CustomResourceDefinition" && strings.HasSuffix(o.GetName(), "."+kueue.SchemeGroupVersion.Group)
}

// NewCRD is an empty CRD, to be read.
func NewCRD() *unstructured.Unstructured {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(apiextensions.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	return crd
}

// IsConverted reports whether a webhook converts the objects of a CRD, as Kueue's does.
func IsConverted(crd *unstructured.Unstructured) bool {
	strategy, _, _ := unstructured.NestedString(crd.Object, "spec", "conversion", "strategy")
	return strategy == string(apiextensions.WebhookConverter)
}

// InTheWay returns what of Kueue blocks Muster's queues, whether that Kueue runs or not; empty for nothing.
func InTheWay(ctx context.Context, kube client.Reader) (string, error) {
	found, webhooks, err := Webhooks(ctx, kube)
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		return fmt.Sprintf("%d webhooks of Kueue are installed (%s)", webhooks, found[0].GetName()), nil
	}
	crds, err := CRDs(ctx, kube)
	if err != nil {
		return "", err
	}
	for _, crd := range crds {
		if IsConverted(crd) {
			return fmt.Sprintf("Kueue's webhook converts the objects of CRD %s", crd.GetName()), nil
		}
	}
	return "", nil
}

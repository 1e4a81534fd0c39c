// Package bindings lets the policies for jobs without a queue act in the namespaces that the
// settings select.
package bindings

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/queueing/config"
)

// The policies for Jobs that name no queue, in the namespaces of the bindings of their
// names: Default gives them the LocalQueue called default. Where all jobs are to be
// queued, Unqueued suspends them, and Owners lets only controllers claim an
// owner that is queued as a whole.
const (
	Default  = "muster-jobs-default-queue"
	Unqueued = "muster-jobs-unnamed"
	Owners   = "muster-jobs-owners"
)

// Users is the policy that writes on jobs which user created them, where that is recorded.
const Users = "muster-jobs-record-users"

// mutating and validating are the policies for objects that name a queue. In other namespaces such objects run. The policies that guard
// marks and machines act everywhere.
var (
	mutating = []string{"muster-jobs-suspend", "muster-jobs-defaults", "muster-jobs-delegate", "muster-pods-gate", "muster-serving",
		"muster-serving-leaderworkersets"}
	validating = []string{"muster-jobs-start", "muster-jobs-refused", "muster-pods-gates"}
)

// Binder lets the policies for Jobs without a queue act in the namespaces that the
// configuration selects. So kube-apiserver itself selects them, and the configuration is
// the only place that names them. It changes existing bindings and creates none: the right
// to create them would be one to change any object of the cluster.
type Binder struct {
	Client client.Client
	Config config.Config
	// Webhook reports whether a webhook does what the mutating policies would do.
	Webhook bool
}

// Namespaces returns the namespaces in which policies act, by the name of the policy.
func Namespaces(c config.Config) map[string]*metav1.LabelSelector {
	managed, unqueued := c.ManagedJobsNamespaceSelector, Nowhere
	if c.ManageJobsWithoutQueueName {
		unqueued = managed
	}
	out := map[string]*metav1.LabelSelector{Default: managed, Unqueued: unqueued, Owners: unqueued, Users: Nowhere}
	if c.RecordUsers {
		out[Users] = managed
	}
	for _, name := range slices.Concat(mutating, validating) {
		out[name] = managed
	}
	return out
}

// Managed selects the namespaces whose jobs are queued; nil is all.
func Managed(c config.Config) (labels.Selector, error) {
	if c.ManagedJobsNamespaceSelector == nil {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(c.ManagedJobsNamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("managedJobsNamespaceSelector: %w; correct it", err)
	}
	return selector, nil
}

// Selector is nil where only jobs that name a queue are queued.
func Selector(c config.Config) (labels.Selector, error) {
	if !c.ManageJobsWithoutQueueName {
		return nil, nil
	}
	return Managed(c)
}

// Nowhere selects no namespace, since all have the label.
var Nowhere = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
	{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpDoesNotExist},
}}

// Start writes the selectors of the bindings, and returns. A binding may be missing whose
// policy is not needed: without that of the default queue, no Job goes there. Without mutating policies the webhook selects the same
// namespaces.
func (b *Binder) Start(ctx context.Context) error {
	needed := map[string]string{}
	if b.Config.ManageJobsWithoutQueueName {
		needed[Owners] = "manageJobsWithoutQueueName"
	}
	if !b.Webhook {
		if b.Config.ManageJobsWithoutQueueName {
			needed[Unqueued] = "manageJobsWithoutQueueName"
		}
		if b.Config.RecordUsers {
			needed[Users] = "recordUsers"
		}
	}
	var all []client.Object
	for _, name := range append([]string{Default, Unqueued, Users}, mutating...) {
		all = append(all, &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, name := range append([]string{Owners}, validating...) {
		all = append(all, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	namespaces := Namespaces(b.Config)
	for _, binding := range all {
		name := binding.GetName()
		switch err := b.bind(ctx, binding, namespaces[name]); {
		case err == nil || isMissing(err) && needed[name] == "":
		// The rights may be those of a chart before this policy, whose binding selects no namespace as it is installed.
		case apierrors.IsForbidden(err) && name == Users && !b.Config.RecordUsers:
		case isMissing(err):
			return fmt.Errorf("%s is true, which needs the policies in deploy/charts/muster/files/policies/jobs.yaml: install them, in a "+
				"cluster without mutating admission policies with the webhook (`muster manifests --webhook`, --webhook-bind-address), "+
				"or set it to false: %w", needed[name], err)
		default:
			return err
		}
	}
	return nil
}

// bind lets a binding select the namespaces.
func (b *Binder) bind(ctx context.Context, binding client.Object, namespaces *metav1.LabelSelector) error {
	patch, err := json.Marshal([]map[string]any{{
		"op": "add", "path": "/spec/matchResources", "value": &admissionv1.MatchResources{NamespaceSelector: namespaces},
	}})
	if err != nil {
		return fmt.Errorf("encoding the namespaces of the binding of policy %s: %w", binding.GetName(), err)
	}
	if err := b.Client.Patch(ctx, binding, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner("muster")); err != nil {
		return fmt.Errorf("selecting the namespaces of the binding of policy %s: %w", binding.GetName(), err)
	}
	return nil
}

func isMissing(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

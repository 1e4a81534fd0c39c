package app

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/muster-dev/muster/deploy"
)

// TestWhatChangesObjectsIsFoundByDiscovery and not by the version of the cluster.
func TestWhatChangesObjectsIsFoundByDiscovery(t *testing.T) {
	lacking := meta.NewDefaultRESTMapper(nil)
	having := meta.NewDefaultRESTMapper(nil)
	having.Add(admissionv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"), meta.RESTScopeRoot)
	for _, c := range []struct {
		name    string
		cluster meta.RESTMapper
		address string
		want    deploy.Mutations
	}{
		{"a cluster with policies", having, noWebhook, deploy.ByPolicies},
		{"one without", lacking, noWebhook, deploy.ByControllers},
		{"with a webhook", lacking, ":9443", deploy.ByWebhook},
		{"with a webhook in spite of policies", having, ":9443", deploy.ByWebhook},
	} {
		o := Options{WebhookAddress: c.address}
		if got, err := o.mutationsIn(c.cluster); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.want)
		}
	}
}

package app

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestADryRunWritesOnlyReports, whatever a controller decides.
func TestADryRunWritesOnlyReports(t *testing.T) {
	sent := false
	transport := onlyObserve(roundTripper(func(*http.Request) (*http.Response, error) {
		sent = true
		return nil, nil
	}))
	for _, tc := range []struct {
		method, path string
		want         bool
	}{
		{http.MethodGet, "/api/v1/nodes", true},
		{http.MethodPatch, "/apis/autoscaling.x-k8s.io/v1/namespaces/ns/provisioningrequests/gang/status", true},
		{http.MethodPatch, "/apis/muster.dev/v1alpha1/nodegroups/gpu/status", true},
		{http.MethodPost, "/apis/muster.dev/v1alpha1/nodegroups", true},
		{http.MethodPost, "/apis/events.k8s.io/v1/namespaces/ns/events", true},
		{http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster", true},
		{http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", true},
		{http.MethodPatch, "/api/v1/nodes/a", false},
		{http.MethodDelete, "/api/v1/nodes/a", false},
		{http.MethodPatch, "/api/v1/nodes/a/status", false},
		{http.MethodPost, "/api/v1/namespaces/ns/pods/a/eviction", false},
		{http.MethodPatch, "/apis/batch/v1/namespaces/ns/jobs/a", false},
		{http.MethodPatch, "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads/a/status", false},
		{http.MethodPatch, "/apis/autoscaling.x-k8s.io/v1/namespaces/ns/provisioningrequests/gang", false},
		{http.MethodPost, "/apis/kwok.muster.dev/v1alpha1/machines", false},
		{http.MethodPatch, "/api/v1/namespaces/muster-system/configmaps/muster-launching", false},
	} {
		sent = false
		_, err := transport.RoundTrip(httptest.NewRequest(tc.method, tc.path, http.NoBody))
		if sent != tc.want || errors.Is(err, errDryRun) == tc.want {
			t.Errorf("%s %s: sent %t (%v), want %t", tc.method, tc.path, sent, err, tc.want)
		}
	}
}

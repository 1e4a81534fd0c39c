package app

import "testing"

func TestResourceOf(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/nodes/a":                         "nodes",
		"/apis/kwok.muster.dev/v1alpha1/machines": "machines",
		"/apis/autoscaling.x-k8s.io/v1/namespaces/team/provisioningrequests/gang/status": "provisioningrequests/status",
		"/api/v1/namespaces/team":                       "namespaces",
		"/apis/events.k8s.io/v1/namespaces/team/events": "events",
		"/api/v1/namespaces/team/pods/worker/eviction":  "pods/eviction",
		"/healthz": "other",
	} {
		if got := resourceOf(path); got != want {
			t.Errorf("resourceOf(%s) = %s, want %s", path, got, want)
		}
	}
}

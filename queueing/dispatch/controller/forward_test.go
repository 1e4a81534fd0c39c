package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var rayServices = schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayService"}

// TestWhatAServiceServesFollowsToItsCluster: the configuration of a RayService may change while it runs in a worker, as in Kueue 0.20. No
// other field may.
func TestWhatAServiceServesFollowsToItsCluster(t *testing.T) {
	s := newShop(t, 1)
	service := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"managedBy": "kueue.x-k8s.io/multikueue", "serveConfigV2": "first", "rayClusterConfig": map[string]any{"suspend": true, "rayVersion": "2"},
	}}}
	service.SetGroupVersionKind(rayServices)
	service.SetNamespace("team-a")
	service.SetName("chat")
	s.queued("chat", service)
	at := s.admitted("chat")
	read := func(in client.Client) *unstructured.Unstructured {
		t.Helper()
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(rayServices)
		if err := in.Get(t.Context(), client.ObjectKeyFromObject(service), o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	change := func(in client.Client, value any, path ...string) {
		t.Helper()
		o := read(in)
		if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
			t.Fatal(err)
		}
		if err := in.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	is := func(step, serves, version string) {
		t.Helper()
		spec := read(s.workers[at]).Object["spec"].(map[string]any)
		got, _, _ := unstructured.NestedString(spec, "serveConfigV2")
		if ray, _, _ := unstructured.NestedString(spec, "rayClusterConfig", "rayVersion"); got != serves || ray != version {
			t.Errorf("%s: there it serves %q by Ray %s, want %q by %s", step, got, ray, serves, version)
		}
		if _, has := spec["managedBy"]; has {
			t.Errorf("%s: there it is managed by %v", step, spec["managedBy"])
		}
	}
	is("it runs", "first", "2")
	change(s.manager, false, "spec", "rayClusterConfig", "suspend") // as Muster shows it
	s.dispatch("chat")
	change(s.manager, "second", "spec", "serveConfigV2")
	change(s.manager, "3", "spec", "rayClusterConfig", "rayVersion")
	asked := s.copies.changedHere(t.Context(), read(s.manager))
	if len(asked) != 1 || asked[0].Name != "chat" {
		t.Fatalf("the change asks for %v", asked)
	}
	s.dispatch("chat")
	is("it serves something else", "second", "2")
	before, _ := s.writes()
	s.copies.changedHere(t.Context(), read(s.manager))
	s.dispatch("chat")
	if after, _ := s.writes(); after != before {
		t.Errorf("%d more writes in the worker, of nothing new", after-before)
	}
}

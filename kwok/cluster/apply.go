package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

const (
	fieldManager = "muster-sandbox"

	// pollPeriod is how often a state that is about to change is read.
	pollPeriod = 50 * time.Millisecond
)

var customResourceDefinition = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// applier installs objects by server-side apply, so that doing it again on kept data changes only what differs.
type applier struct {
	client    dynamic.Interface
	discovery *discovery.DiscoveryClient
	mapper    *restmapper.DeferredDiscoveryRESTMapper
}

// Apply installs objects in the cluster, in their order. Doing it again changes only what differs.
func (c *Cluster) Apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	applier, err := newApplier(c.rest)
	if err != nil {
		return err
	}
	return applier.apply(ctx, objects)
}

func newApplier(config *rest.Config) (*applier, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a discovery client: %w", err)
	}
	return &applier{
		client:    client,
		discovery: discoverer,
		mapper:    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoverer)),
	}, nil
}

// apply installs the objects in their order. CustomResourceDefinitions go first and are waited for together, since
// each takes the API server a moment and the others may be objects of their kinds.
func (a *applier) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	var definitions, others []*unstructured.Unstructured
	for _, object := range objects {
		if object.GroupVersionKind().GroupKind() == customResourceDefinition {
			definitions = append(definitions, object)
		} else {
			others = append(others, object)
		}
	}
	for _, definition := range definitions {
		if err := a.applyOne(ctx, definition); err != nil {
			return err
		}
	}
	for _, definition := range definitions {
		if err := a.awaitEstablished(ctx, definition); err != nil {
			return err
		}
	}
	if err := a.awaitPublished(ctx, definitions); err != nil {
		return err
	}
	a.mapper.Reset()
	for _, object := range others {
		if err := a.applyOne(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

func (a *applier) applyOne(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := a.resource(object)
	if err != nil {
		return fmt.Errorf("finding the kind of %s: %w", describe(object), err)
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if _, err := resource.Apply(ctx, object.GetName(), object, options); err != nil {
		return fmt.Errorf("installing %s: %w", describe(object), err)
	}
	return nil
}

// callAt has muster's webhooks called at an address instead of by their Service.
func callAt(object *unstructured.Unstructured, address string) error {
	webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
	if err != nil {
		return fmt.Errorf("reading %s: %w", describe(object), err)
	}
	for _, webhook := range webhooks {
		fields := webhook.(map[string]any)
		path, _, _ := unstructured.NestedString(fields, "clientConfig", "service", "path")
		fields["clientConfig"] = map[string]any{"url": address + path}
	}
	return unstructured.SetNestedSlice(object.Object, webhooks, "webhooks")
}

func (a *applier) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return a.client.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
	}
	return a.client.Resource(mapping.Resource), nil
}

func (a *applier) awaitEstablished(ctx context.Context, definition *unstructured.Unstructured) error {
	resource, err := a.resource(definition)
	if err != nil {
		return fmt.Errorf("finding the kind of %s: %w", describe(definition), err)
	}
	err = wait.PollUntilContextCancel(ctx, pollPeriod, true, func(ctx context.Context) (bool, error) {
		current, err := resource.Get(ctx, definition.GetName(), metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return isEstablished(current), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s to be established: %w", describe(definition), err)
	}
	return nil
}

// awaitPublished returns when the API server describes the defined kinds in its OpenAPI documents. That comes up to a
// second after they are established, and KWOK ends if it finds no description of a kind that it has stages for.
func (a *applier) awaitPublished(ctx context.Context, definitions []*unstructured.Unstructured) error {
	var wanted []string
	for _, definition := range definitions {
		wanted = append(wanted, openAPIPaths(definition)...)
	}
	missing := ""
	err := wait.PollUntilContextCancel(ctx, pollPeriod, true, func(context.Context) (bool, error) {
		published, err := a.discovery.OpenAPIV3().Paths()
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(wanted, func(path string) bool { return published[path] == nil })
		if i >= 0 {
			missing = wanted[i]
		}
		return i < 0, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the description of %s: %w", missing, err)
	}
	return nil
}

// openAPIPaths are the documents that describe a CustomResourceDefinition's served versions.
func openAPIPaths(definition *unstructured.Unstructured) []string {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	var paths []string
	for _, version := range versions {
		fields, ok := version.(map[string]any)
		if ok && fields["served"] == true {
			paths = append(paths, fmt.Sprintf("apis/%s/%s", group, fields["name"]))
		}
	}
	return paths
}

func isEstablished(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, condition := range conditions {
		fields, ok := condition.(map[string]any)
		if ok && fields["type"] == "Established" && fields["status"] == "True" {
			return true
		}
	}
	return false
}

func describe(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetKind() + " " + object.GetName()
	}
	return object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
}

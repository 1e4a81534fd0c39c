// Package stream reads the events of watches in one pass. The decoder of client-go reads each of them four times: for its end, for
// its type, for the kind of its object, and for the object. Most of what Muster decodes are Workloads and ProvisioningRequests,
// which the API server sends as JSON only.
package stream

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// streamed are the kinds whose events are read here. Their caches must hold all namespaces and objects: the ListerWatcher does not have
// the selector of a cache.
var streamed = map[reflect.Type]schema.GroupVersionResource{
	reflect.TypeFor[kueue.Workload]():              kueue.SchemeGroupVersion.WithResource("workloads"),
	reflect.TypeFor[provreq.ProvisioningRequest](): provreq.SchemeGroupVersion.WithResource("provisioningrequests"),
}

// NewInformer makes an informer in the form that a cache requires.
type NewInformer = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// Informers returns what makes the informers of a cache of the cluster.
func Informers(config *rest.Config) (NewInformer, error) {
	over, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for watches: %w", err)
	}
	clients, err := clientsOf(config, over)
	if err != nil {
		return nil, err
	}
	return func(lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
		kind := reflect.TypeOf(o).Elem()
		if client := clients[kind]; client != nil {
			lw = &watcher{toolscache.ToListerWatcherWithContext(lw), client, streamed[kind].Resource, kind}
		}
		return toolscache.NewSharedIndexInformer(lw, o, resync, by)
	}, nil
}

// clientsOf returns the clients of the streamed kinds, which decode errors alone.
func clientsOf(config *rest.Config, over *http.Client) (map[reflect.Type]*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	out := map[reflect.Type]*rest.RESTClient{}
	for kind, resource := range streamed {
		own := rest.CopyConfig(config)
		version := resource.GroupVersion()
		own.APIPath, own.GroupVersion = "/apis", &version
		own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		client, err := rest.RESTClientForConfigAndClient(own, over)
		if err != nil {
			return nil, fmt.Errorf("making a client of %s: %w", resource.Resource, err)
		}
		out[kind] = client
	}
	return out, nil
}

// watcher lists as its ListerWatcher does, and watches by itself.
type watcher struct {
	toolscache.ListerWatcherWithContext

	client   *rest.RESTClient
	resource string
	kind     reflect.Type
}

func (w *watcher) List(options metav1.ListOptions) (runtime.Object, error) {
	return w.ListWithContext(context.Background(), options)
}

func (w *watcher) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return w.WatchWithContext(context.Background(), options)
}

func (w *watcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	body, err := w.client.Get().Resource(w.resource).VersionedParams(&options, metav1.ParameterCodec).Stream(ctx)
	if err != nil {
		return nil, err
	}
	// As client-go reports what it cannot decode.
	report := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")
	return watch.NewStreamWatcher(newDecoder(body, w.kind), report), nil
}

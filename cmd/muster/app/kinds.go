package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// kinds are those that a half cannot do without. The other half may look at them
// too, and does without where they are not there.
var kinds = map[deploy.Half][]schema.GroupVersionKind{
	deploy.Provisioning: {
		provreq.SchemeGroupVersion.WithKind("ProvisioningRequest"),
		v1alpha1.GroupVersion.WithKind("NodeGroup"),
		v1alpha1.GroupVersion.WithKind("CapacityPolicy"),
	},
	deploy.Queueing: {
		kueue.SchemeGroupVersion.WithKind("AdmissionCheck"),
		kueue.SchemeGroupVersion.WithKind("ClusterQueue"),
		kueue.SchemeGroupVersion.WithKind("Cohort"),
		kueue.SchemeGroupVersion.WithKind("LocalQueue"),
		kueue.SchemeGroupVersion.WithKind("ResourceFlavor"),
		kueue.SchemeGroupVersion.WithKind("Workload"),
		kueue.SchemeGroupVersion.WithKind("WorkloadPriorityClass"),
	},
}

// newCache returns the constructor of a cache for the halves that run. It refuses
// a cluster that has not what they need.
func newCache(halves []deploy.Half) cache.NewCacheFunc {
	return func(config *rest.Config, options cache.Options) (cache.Cache, error) {
		absent, err := absentKinds(options.Mapper, halves)
		if err != nil {
			return nil, err
		}
		inner, err := cache.New(config, options)
		if err != nil || len(absent) == 0 {
			return inner, err
		}
		ctrl.Log.Info("Going without kinds that the cluster does not have; muster must start again to see them once they are there", "kinds", absent)
		return &sparseCache{Cache: inner, scheme: options.Scheme, absent: absent}, nil
	}
}

// absentKinds returns the kinds that the cluster does not have.
func absentKinds(mapper meta.RESTMapper, halves []deploy.Half) (absent []schema.GroupVersionKind, err error) {
	for _, half := range deploy.Halves {
		for _, kind := range kinds[half] {
			switch _, err := mapper.RESTMapping(kind.GroupKind(), kind.Version); {
			case err == nil:
			case !meta.IsNoMatchError(err):
				return nil, fmt.Errorf("looking for the kind %s: %w", kind, err)
			case slices.Contains(halves, half):
				return nil, fmt.Errorf("the cluster has no kind %s of %s, which %s needs; install it as `muster manifests` prints it, or start muster with --%s=false",
					kind.Kind, kind.GroupVersion(), half, half)
			default:
				absent = append(absent, kind)
			}
		}
	}
	return absent, nil
}

// sparseCache has no objects of the kinds that the cluster does not have. An
// ordinary cache would look for them again and again until all of it gave up.
type sparseCache struct {
	cache.Cache
	scheme *runtime.Scheme
	absent []schema.GroupVersionKind
}

// has says whether the kind of an object, or of those in a list, may be there.
func (c *sparseCache) has(object runtime.Object) (bool, error) {
	kind, err := apiutil.GVKForObject(object, c.scheme)
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	return !slices.Contains(c.absent, kind), err
}

// Get finds no object of an absent kind.
func (c *sparseCache) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	has, err := c.has(object)
	switch {
	case err != nil:
		return err
	case !has:
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return c.Cache.Get(ctx, key, object, options...)
}

// List leaves a list of an absent kind empty.
func (c *sparseCache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if has, err := c.has(list); err != nil || !has {
		return err
	}
	return c.Cache.List(ctx, list, options...)
}

// GetInformer of an absent kind is one to which nothing ever happens.
func (c *sparseCache) GetInformer(ctx context.Context, object client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	if has, err := c.has(object); err != nil || !has {
		return quiet{}, err
	}
	return c.Cache.GetInformer(ctx, object, options...)
}

// IndexField has nothing to index of an absent kind.
func (c *sparseCache) IndexField(ctx context.Context, object client.Object, field string, value client.IndexerFunc) error {
	if has, err := c.has(object); err != nil || !has {
		return err
	}
	return c.Cache.IndexField(ctx, object, field, value)
}

// quiet is the informer of an absent kind, and all that belongs to it.
type quiet struct{}

var (
	_ cache.Informer                              = quiet{}
	_ toolscache.ResourceEventHandlerRegistration = quiet{}
	_ toolscache.DoneChecker                      = quiet{}
)

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (quiet) AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return quiet{}, nil
}

func (quiet) AddEventHandlerWithResyncPeriod(toolscache.ResourceEventHandler, time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return quiet{}, nil
}

func (quiet) AddEventHandlerWithOptions(toolscache.ResourceEventHandler, toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return quiet{}, nil
}

func (quiet) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error { return nil }
func (quiet) AddIndexers(toolscache.Indexers) error                                { return nil }
func (quiet) HasSynced() bool                                                      { return true }
func (quiet) HasSyncedChecker() toolscache.DoneChecker                             { return quiet{} }
func (quiet) IsStopped() bool                                                      { return false }
func (quiet) Name() string                                                         { return "absent kind" }
func (quiet) Done() <-chan struct{}                                                { return closed }

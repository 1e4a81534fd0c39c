// Package feed updates the model from the informers and the clouds.
package feed

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/controller/journal"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/model/liveness"
	"github.com/muster-dev/muster/provisioning/model/objects"
)

// Feed updates the model from all informers and clouds until ctx is done. Wait for Synced before the first decision.
type Feed struct {
	model     *model.Model
	live      client.Reader
	providers map[v1alpha1.Provider]cloudprovider.Watcher
	handlers  []toolscache.ResourceEventHandlerRegistration
	// machines is closed when all clouds have completed their first list.
	machines chan struct{}
}

// New registers with the informers, and skips kinds that the API server does not serve. Live reads from the API server, without a cache.
func New(ctx context.Context, m *model.Model, informers cache.Informers, live client.Reader,
	providers map[v1alpha1.Provider]cloudprovider.Watcher, more ...client.Object) (*Feed, error) {
	f := &Feed{model: m, live: live, providers: providers, machines: make(chan struct{})}
	for _, object := range append(more,
		&corev1.Node{}, &corev1.Pod{}, &corev1.PodTemplate{}, &corev1.Namespace{}, &appsv1.DaemonSet{}, &provreq.ProvisioningRequest{},
		&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}, &storagev1.StorageClass{}, &storagev1.CSIDriver{}, &storagev1.CSINode{},
		&nodev1.RuntimeClass{}, &schedulingv1.PriorityClass{}, &v1alpha1.NodeGroup{}, &v1alpha1.CapacityPolicy{},
	) {
		registration, err := f.watch(ctx, informers, object)
		if err != nil {
			return nil, err
		}
		f.handlers = append(f.handlers, registration)
	}
	return f, nil
}

// watch updates the model from the informer of a kind.
func (f *Feed) watch(ctx context.Context, informers cache.Informers, kind client.Object) (
	toolscache.ResourceEventHandlerRegistration, error) {
	informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching %T: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(handle(f.model, f.providers))
	if err != nil {
		return nil, fmt.Errorf("watching %T: %w", kind, err)
	}
	return registration, nil
}

// Start watches the machines of all clouds until ctx is done.
func (f *Feed) Start(ctx context.Context) error {
	failed := make(chan error, len(f.providers))
	synced := make(chan struct{}, len(f.providers))
	for _, p := range f.providers {
		go func() { failed <- p.Watch(ctx, f.model.SetMachine, func() { synced <- struct{}{} }) }()
	}
	for range f.providers {
		select {
		case <-synced:
		case err := <-failed:
			return err
		}
	}
	close(f.machines)
	go f.tidy(ctx)
	go f.measureLatency(ctx)
	for range f.providers {
		if err := <-failed; err != nil {
			return err
		}
	}
	return nil
}

// tidyEvery is the interval at which the model drops what is no longer needed.
const tidyEvery = time.Minute

func (f *Feed) tidy(ctx context.Context) {
	ticker := time.NewTicker(tidyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.model.Tidy()
		}
	}
}

// measureLatency reads from the API server at an interval. The read goes to its store, so that a slow etcd counts.
func (f *Feed) measureLatency(ctx context.Context) {
	ticker := time.NewTicker(liveness.Every)
	defer ticker.Stop()
	for {
		f.measure(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// measure records a response of the API server. NotFound and Forbidden are responses, too.
func (f *Feed) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, liveness.Every)
	defer cancel()
	err := f.live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &corev1.Namespace{})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		if f.model.APIServer.Answered() {
			journal.Write(ctx, "The API server answers again: bounds of time count from now", "liveness")
		}
	}
}

// NeedLeaderElection returns false: every replica keeps the model up to date.
func (f *Feed) NeedLeaderElection() bool { return false }

// Synced waits until the model has all objects and machines; false if ctx ends first.
func (f *Feed) Synced(ctx context.Context) bool {
	synced := make([]toolscache.InformerSynced, len(f.handlers))
	for i, h := range f.handlers {
		synced[i] = h.HasSynced
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return false
	}
	select {
	case <-f.machines:
		return true
	case <-ctx.Done():
		return false
	}
}

// handle updates the model from informers. If an object was deleted and created again while a watch was broken, the informer delivers an
// update.
func handle(m *model.Model, providers map[v1alpha1.Provider]cloudprovider.Watcher) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { m.Set(o.(client.Object)) },
		UpdateFunc: func(old, o any) {
			before, now := old.(client.Object), o.(client.Object)
			switch {
			case before.GetUID() != now.GetUID():
				m.Delete(before)
				m.Set(now)
			case !objects.Newer(now, before):
				m.Restored(now)
			default:
				m.Set(now)
			}
			if group, ok := o.(*v1alpha1.NodeGroup); ok && launches(group) != launches(old.(*v1alpha1.NodeGroup)) {
				if e, ok := providers[group.Spec.Provider].(cloudprovider.Expecter); ok {
					e.Expect()
				}
			}
		},
		DeleteFunc: func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if obj, ok := o.(client.Object); ok {
				m.Delete(obj)
			}
		},
	}
}

// launches returns the record of the launches that `muster externalgrpc` makes in a group. It writes the record before and after each call
// of the cloud.
func launches(g *v1alpha1.NodeGroup) string {
	return g.Annotations[v1alpha1.AutoscalerLaunchesAnnotation]
}

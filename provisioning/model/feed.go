package model

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Feed tells the model of everything that the informers and the clouds know, from
// now until ctx is done. Wait for Synced before deciding anything.
type Feed struct {
	model     *Model
	providers []cloudprovider.Watcher
	handlers  []toolscache.ResourceEventHandlerRegistration
	// machines is closed once all clouds have given their first full picture.
	machines chan struct{}
}

// NewFeed registers with the informers.
func NewFeed(ctx context.Context, m *Model, informers cache.Informers, providers []cloudprovider.Watcher) (*Feed, error) {
	f := &Feed{model: m, providers: providers, machines: make(chan struct{})}
	for _, kind := range []struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&corev1.Node{}, handle(m.SetNode, func(n *corev1.Node) { m.DeleteNode(n.Name) })},
		{&corev1.Pod{}, handle(m.SetPod, func(p *corev1.Pod) { m.DeletePod(p.UID) })},
		{&corev1.PodTemplate{}, handle(m.SetTemplate, m.DeleteTemplate)},
		{&corev1.Namespace{}, handle(m.SetNamespace, m.DeleteNamespace)},
		{&appsv1.DaemonSet{}, handle(m.SetDaemonSet, func(d *appsv1.DaemonSet) { m.DeleteDaemonSet(d.UID) })},
		{&provreq.ProvisioningRequest{}, handle(m.SetRequest, m.DeleteRequest)},
		{&corev1.PersistentVolumeClaim{}, handle(m.SetClaim, m.DeleteClaim)},
		{&corev1.PersistentVolume{}, handle(m.SetVolume, m.DeleteVolume)},
		{&storagev1.StorageClass{}, handle(m.SetStorageClass, m.DeleteStorageClass)},
		{&storagev1.CSIDriver{}, handle(m.SetCSIDriver, m.DeleteCSIDriver)},
		{&storagev1.CSINode{}, handle(m.SetCSINode, m.DeleteCSINode)},
		{&nodev1.RuntimeClass{}, handle(m.SetRuntimeClass, m.DeleteRuntimeClass)},
		{&schedulingv1.PriorityClass{}, handle(m.SetPriorityClass, m.DeletePriorityClass)},
		{&v1alpha1.NodeGroup{}, handle(m.SetGroup, func(g *v1alpha1.NodeGroup) { m.DeleteGroup(g.Name) })},
		{&v1alpha1.CapacityPolicy{}, handle(m.SetPolicy, func(p *v1alpha1.CapacityPolicy) { m.DeletePolicy(p.Name) })},
	} {
		informer, err := informers.GetInformer(ctx, kind.object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", kind.object, err)
		}
		registration, err := informer.AddEventHandler(kind.handler)
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", kind.object, err)
		}
		f.handlers = append(f.handlers, registration)
	}
	return f, nil
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
	for range f.providers {
		if err := <-failed; err != nil {
			return err
		}
	}
	return nil
}

// tidyEvery is how often what nobody needs is forgotten.
const tidyEvery = time.Minute

func (f *Feed) tidy(ctx context.Context) {
	ticker := time.NewTicker(tidyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.model.Tidy(f.model.now())
		}
	}
}

// NeedLeaderElection: the picture is kept by every replica.
func (f *Feed) NeedLeaderElection() bool { return false }

// Synced waits until the model has the first full picture; false if ctx ends first.
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

// handle turns typed functions into an informer's handler. An object that was deleted
// and made anew while a watch was broken comes to it as a change.
func handle[T client.Object](set, remove func(T)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { set(o.(T)) },
		UpdateFunc: func(old, o any) {
			if before := old.(T); before.GetUID() != o.(T).GetUID() {
				remove(before)
			}
			set(o.(T))
		},
		DeleteFunc: func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if obj, ok := o.(T); ok {
				remove(obj)
			}
		},
	}
}

package kwok

import (
	"context"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/muster-dev/muster/cloudprovider"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
)

// Watch implements cloudprovider.Watcher.
func (p *Provider) Watch(ctx context.Context, observe func(cloudprovider.Machine), synced func()) error {
	informer, err := p.Informers.GetInformer(ctx, &kwokv1alpha1.Machine{})
	if err != nil {
		return fmt.Errorf("watch machines: %w", err)
	}
	watch := &watch{provider: p, ctx: ctx, observe: observe}
	handler, err := informer.AddEventHandler(watch)
	if err != nil {
		return fmt.Errorf("watch machines: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(handler) }()

	select {
	case <-handler.HasSyncedChecker().Done():
		watch.alone(synced)
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

// watch forwards the informer's events, one call at a time.
type watch struct {
	provider *Provider
	ctx      context.Context
	observe  func(cloudprovider.Machine)
	calls    sync.Mutex
}

// alone makes the call while no other is in flight, and none after the end.
func (w *watch) alone(call func()) {
	w.calls.Lock()
	defer w.calls.Unlock()
	if w.ctx.Err() == nil {
		call()
	}
}

// OnAdd implements toolscache.ResourceEventHandler.
func (w *watch) OnAdd(obj any, _ bool) { w.changed(obj) }

// OnUpdate implements toolscache.ResourceEventHandler.
func (w *watch) OnUpdate(_, obj any) { w.changed(obj) }

// OnDelete implements toolscache.ResourceEventHandler. If the watch missed the deletion, the last known state of the machine is wrapped.
func (w *watch) OnDelete(obj any) {
	if missed, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = missed.Obj
	}
	if m, ok := obj.(*kwokv1alpha1.Machine); ok && isOurs(m) {
		w.provider.stockOf(m.Spec.Group).forget(m.Name)
		gone := observed(m)
		gone.State = cloudprovider.Gone
		w.alone(func() { w.observe(gone) })
	}
}

func (w *watch) changed(obj any) {
	if m, ok := obj.(*kwokv1alpha1.Machine); ok && isOurs(m) {
		w.provider.stockOf(m.Spec.Group).note(m)
		w.alone(func() { w.observe(observed(m)) })
	}
}

// isOurs reports whether this adapter reports the machine, and not the adapter of a simulated cloud with its own API.
func isOurs(m *kwokv1alpha1.Machine) bool { return m.Spec.Node.ProviderID == "" }

package notify

import (
	"context"
	"fmt"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/notify"
	"github.com/muster-dev/muster/queueing/standing"
	"github.com/muster-dev/muster/queueing/workload"
)

// lookBack is how long before the process began to lead changes are reported that the process before it may not have reported: about the
// time that another one takes to lead.
const lookBack = 2 * time.Minute

// Watcher has a Sender report what happens while this process leads.
type Watcher struct {
	Sender    *Sender
	Client    client.Reader
	Informers cache.Informers
	// Budgets reports whether CapacityPolicies have budgets in this cluster.
	Budgets bool

	since  time.Time
	mu     sync.Mutex
	delays notify.Delays
}

// Start reports until ctx is done. What is not sent then is reported by the next process that leads.
func (w *Watcher) Start(ctx context.Context) error {
	w.since, w.delays = time.Now().Add(-lookBack), notify.Delays{}
	w.Sender.open()
	defer w.Sender.close()
	if err := w.watch(ctx); err != nil {
		return err
	}
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			w.overdue(ctx, now)
			w.Sender.forget(now)
		}
	}
}

func (w *Watcher) watch(ctx context.Context) error {
	kinds := map[client.Object]toolscache.ResourceEventHandler{
		&kueue.Workload{}: toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { w.changed(ctx, nil, o) },
			UpdateFunc: func(before, now any) { w.changed(ctx, before, now) },
			DeleteFunc: func(o any) { w.deleted(ctx, o) },
		},
		&kueue.LocalQueue{}: toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { w.estimated(o) },
			UpdateFunc: func(_, now any) { w.estimated(now) },
		},
	}
	if w.Budgets {
		kinds[&v1alpha1.CapacityPolicy{}] = toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { w.spent(ctx, nil, o) },
			UpdateFunc: func(before, now any) { w.spent(ctx, before, now) },
		}
	}
	for kind, handler := range kinds {
		informer, err := w.Informers.GetInformer(ctx, kind)
		if err == nil {
			_, err = informer.AddEventHandler(handler)
		}
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	return nil
}

func (w *Watcher) changed(ctx context.Context, before, now any) {
	is, ok := now.(*kueue.Workload)
	if !ok {
		return
	}
	was, _ := before.(*kueue.Workload)
	w.mu.Lock()
	w.delays.Settle(is)
	w.mu.Unlock()
	w.Sender.send(ctx, notify.OfWorkload(was, is, w.since))
}

func (w *Watcher) deleted(ctx context.Context, o any) {
	if missed, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = missed.Obj
	}
	was, ok := o.(*kueue.Workload)
	if !ok {
		return
	}
	w.mu.Lock()
	w.delays.Forget(workload.KeyOf(was))
	w.mu.Unlock()
	w.Sender.send(ctx, notify.OfDeleted(was, time.Now()))
}

func (w *Watcher) estimated(o any) {
	lq, ok := o.(*kueue.LocalQueue)
	if !ok {
		return
	}
	if s := standing.Of(lq); s != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.delays.Estimate(lq.Namespace, s)
	}
}

func (w *Watcher) spent(ctx context.Context, before, now any) {
	is, ok := now.(*v1alpha1.CapacityPolicy)
	if !ok {
		return
	}
	was, _ := before.(*v1alpha1.CapacityPolicy)
	w.Sender.send(ctx, notify.OfPolicy(was, is, w.since))
}

// overdue reports the Workloads that have waited longer than estimated.
func (w *Watcher) overdue(ctx context.Context, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range w.delays.Overdue(now) {
		late := &kueue.Workload{}
		if err := w.Client.Get(ctx, key, late); err != nil {
			w.delays.Forget(key)
			continue
		}
		w.Sender.send(ctx, w.delays.Of(late))
	}
}

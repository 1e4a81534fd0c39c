package simulation

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// informers are the caches of one process: each lists its kind once and hears of
// every later change in its order, but as late as the simulator likes. What is
// embedded is nil, for what no controller uses.
type informers struct {
	cache.Informers
	store *store

	mu sync.Mutex
	// list in the order of the kinds.
	list []*informer
}

// GetInformer implements cache.Informers.
func (i *informers) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	at, known := i.find(kindOf(o))
	if !known {
		i.list = slices.Insert(i.list, at, &informer{kind: kindOf(o), store: i.store, synced: make(chan struct{})})
	}
	return i.list[at], nil
}

func (i *informers) find(kind string) (at int, known bool) {
	return slices.BinarySearchFunc(i.list, kind, func(f *informer, kind string) int { return strings.Compare(f.kind, kind) })
}

// all are the informers in the order of their kinds.
func (i *informers) all() []*informer {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.list)
}

// happened queues a change in the informer of its kind.
func (i *informers) happened(e event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if at, known := i.find(kindOf(e.object)); known && i.list[at].listed() {
		i.list[at].queue = append(i.list[at].queue, e)
	}
}

// event is a change of an object that an informer has not delivered yet.
type event struct {
	object  client.Object
	deleted bool
	at      time.Time
}

// informer is that of one kind. Only the simulator's goroutine moves it on.
type informer struct {
	cache.Informer
	kind  string
	store *store

	mu       sync.Mutex
	handlers []toolscache.ResourceEventHandler

	// known are the objects that were delivered to the handlers.
	known  map[client.ObjectKey]client.Object
	queue  []event
	synced chan struct{}
}

// AddEventHandler implements cache.Informer. Handlers come before the first list.
func (f *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handlers = append(f.handlers, h)
	return f, nil
}

// RemoveEventHandler implements cache.Informer.
func (f *informer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error { return nil }

// HasSynced implements cache.Informer.
func (f *informer) HasSynced() bool { return f.listed() }

// HasSyncedChecker implements cache.Informer.
func (f *informer) HasSyncedChecker() toolscache.DoneChecker { return f }

// Name implements toolscache.DoneChecker.
func (f *informer) Name() string { return f.kind }

// Done implements toolscache.DoneChecker.
func (f *informer) Done() <-chan struct{} { return f.synced }

func (f *informer) listed() bool {
	select {
	case <-f.synced:
		return true
	default:
		return false
	}
}

func (f *informer) deliver(to func(toolscache.ResourceEventHandler)) {
	f.mu.Lock()
	handlers := slices.Clone(f.handlers)
	f.mu.Unlock()
	for _, h := range handlers {
		to(h)
	}
}

// list delivers all existing objects for the first time.
func (f *informer) list() {
	f.known = map[client.ObjectKey]client.Object{}
	for _, o := range f.store.list(f.kind) {
		f.known[client.ObjectKeyFromObject(o)] = o
		f.deliver(func(h toolscache.ResourceEventHandler) { h.OnAdd(o, true) })
	}
	close(f.synced)
}

// next delivers the oldest change in the queue.
func (f *informer) next() {
	e := f.queue[0]
	f.queue = f.queue[1:]
	key := client.ObjectKeyFromObject(e.object)
	old := f.known[key]
	switch {
	case e.deleted:
		delete(f.known, key)
		f.deliver(func(h toolscache.ResourceEventHandler) { h.OnDelete(e.object) })
	case old == nil:
		f.known[key] = e.object
		f.deliver(func(h toolscache.ResourceEventHandler) { h.OnAdd(e.object, false) })
	default:
		f.known[key] = e.object
		f.deliver(func(h toolscache.ResourceEventHandler) { h.OnUpdate(old, e.object) })
	}
}

// relist is what an informer does after its watch broke: it lists again and delivers the differences. Versions in between are never
// delivered. An object that was deleted and created again with the same name meanwhile looks like an update.
func (f *informer) relist() {
	f.queue = nil
	now := map[client.ObjectKey]client.Object{}
	for _, o := range f.store.list(f.kind) {
		now[client.ObjectKeyFromObject(o)] = o
	}
	before := f.known
	f.known = now
	for _, key := range slices.SortedFunc(maps.Keys(before), compareKeys) {
		if now[key] == nil {
			gone := toolscache.DeletedFinalStateUnknown{Key: key.String(), Obj: before[key]}
			f.deliver(func(h toolscache.ResourceEventHandler) { h.OnDelete(gone) })
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(now), compareKeys) {
		if old := before[key]; old == nil {
			f.deliver(func(h toolscache.ResourceEventHandler) { h.OnAdd(now[key], false) })
		} else {
			f.deliver(func(h toolscache.ResourceEventHandler) { h.OnUpdate(old, now[key]) })
		}
	}
}

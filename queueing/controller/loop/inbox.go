package loop

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/queueing/controller/writes"
)

// inbox is where informers and writers put their events for the loop. If an object has changed several times, the loop only gets its last
// version.
type inbox struct {
	mu      sync.Mutex
	changes map[types.UID]change
	ended   []writes.Done
	// wake has a value whenever something new is there.
	wake chan struct{}
}

// change is an object as it is now, or as it was last.
type change struct {
	object client.Object
	gone   bool
	// restored: the API server has an older version than before, since its etcd was restored from a backup.
	restored bool
}

func newInbox() *inbox {
	return &inbox{changes: map[types.UID]change{}, wake: make(chan struct{}, 1)}
}

// take empties the inbox.
func (i *inbox) take() (map[types.UID]change, []writes.Done) {
	i.mu.Lock()
	defer i.mu.Unlock()
	changes, ended := i.changes, i.ended
	i.changes, i.ended = make(map[types.UID]change, len(changes)), nil
	return changes, ended
}

// done leaves what became of a write.
func (i *inbox) done(d writes.Done) {
	i.mu.Lock()
	i.ended = append(i.ended, d)
	i.mu.Unlock()
	i.ring()
}

func (i *inbox) put(object any, gone, restored bool) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	o, ok := object.(client.Object)
	if !ok {
		return
	}
	i.mu.Lock()
	i.changes[o.GetUID()] = change{o, gone, restored || i.changes[o.GetUID()].restored}
	i.mu.Unlock()
	i.ring()
}

func (i *inbox) ring() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// OnAdd, OnUpdate and OnDelete make the inbox the handler of informers.
func (i *inbox) OnAdd(object any, _ bool) { i.put(object, false, false) }

// OnUpdate may bring another object of the same name, if the informer has missed that the one
// before was deleted.
func (i *inbox) OnUpdate(before, now any) {
	restored := false
	if a, ok := before.(client.Object); ok {
		if b, ok := now.(client.Object); ok {
			if a.GetUID() != b.GetUID() {
				i.put(before, true, false)
			} else {
				restored = newer(a, b)
			}
		}
	}
	i.put(now, false, restored)
}

func (i *inbox) OnDelete(object any) { i.put(object, true, false) }

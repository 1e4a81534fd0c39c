package controller

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// overlay holds what was written and may not be in the cache yet.
type overlay[T client.Object] struct {
	written map[types.UID]T
}

// wrote remembers the answer to a write.
func (o *overlay[T]) wrote(object T) {
	if o.written == nil {
		o.written = map[types.UID]T{}
	}
	o.written[object.GetUID()] = object
}

// newest returns what is newer of the cached object and the written one, and
// forgets the latter once the cache has caught up.
func (o *overlay[T]) newest(cached T) T {
	own, ok := o.written[cached.GetUID()]
	if !ok {
		return cached
	}
	// A version that is no number cannot be compared; then the cache is right.
	if order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), own.GetResourceVersion()); err == nil && order < 0 {
		return own
	}
	delete(o.written, cached.GetUID())
	return cached
}

// keep forgets objects that exist no more.
func (o *overlay[T]) keep(exists func(types.UID) bool) {
	for uid := range o.written {
		if !exists(uid) {
			delete(o.written, uid)
		}
	}
}

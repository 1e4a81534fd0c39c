package poll

import (
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Recent stores values that are valid for a limited time, each under a key: for example the results of a call until lists show them.
type Recent[K comparable, V any] struct {
	lasts time.Duration
	clock clock.PassiveClock

	mu    sync.Mutex
	notes map[K]dated[V]
	// swept is when expired values were last deleted.
	swept time.Time
}

type dated[V any] struct {
	value V
	at    time.Time
}

// NewRecent returns an empty Recent whose values are valid for the given time.
func NewRecent[K comparable, V any](lasts time.Duration, clock clock.PassiveClock) *Recent[K, V] {
	return &Recent[K, V]{lasts: lasts, clock: clock, notes: map[K]dated[V]{}}
}

// Note stores a value under a key, from now on.
func (r *Recent[K, V]) Note(key K, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	if now.Sub(r.swept) > r.lasts { // not for each: a launch notes its machines one by one
		maps.DeleteFunc(r.notes, func(_ K, n dated[V]) bool { return r.isOver(n) })
		r.swept = now
	}
	r.notes[key] = dated[V]{value, now}
}

// Forget removes keys before their time.
func (r *Recent[K, V]) Forget(keys ...K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		delete(r.notes, key)
	}
}

// Of returns the value under a key; false if it was not stored or has expired.
func (r *Recent[K, V]) Of(key K) (value V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.notes[key]
	if !ok || r.isOver(n) {
		return value, false
	}
	return n.value, true
}

// All returns the valid values.
func (r *Recent[K, V]) All() map[K]V {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[K]V, len(r.notes))
	for key, n := range r.notes {
		if !r.isOver(n) {
			out[key] = n.value
		}
	}
	return out
}

func (r *Recent[K, V]) isOver(n dated[V]) bool { return r.clock.Since(n.at) > r.lasts }

// Grouped is a Recent by group: the cost of reading one group does not depend on the others.
type Grouped[G, K comparable, V any] struct {
	lasts time.Duration
	clock clock.PassiveClock

	mu     sync.Mutex
	groups map[G]*Recent[K, V]
	// swept is when empty groups were last deleted.
	swept time.Time
}

// NewGrouped returns an empty Grouped whose notes last for the given time.
func NewGrouped[G, K comparable, V any](lasts time.Duration, clock clock.PassiveClock) *Grouped[G, K, V] {
	return &Grouped[G, K, V]{lasts: lasts, clock: clock, groups: map[G]*Recent[K, V]{}}
}

// Note stores a value for the group under a key, from now on.
func (g *Grouped[G, K, V]) Note(group G, key K, value V) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	if now.Sub(g.swept) > g.lasts {
		maps.DeleteFunc(g.groups, func(_ G, r *Recent[K, V]) bool { return len(r.All()) == 0 })
		g.swept = now
	}
	if g.groups[group] == nil {
		g.groups[group] = NewRecent[K, V](g.lasts, g.clock)
	}
	g.groups[group].Note(key, value)
}

// Forget forgets keys of the group before their time.
func (g *Grouped[G, K, V]) Forget(group G, keys ...K) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.groups[group]; r != nil {
		r.Forget(keys...)
	}
}

// All returns the valid values of the group.
func (g *Grouped[G, K, V]) All(group G) map[K]V {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.groups[group]; r != nil {
		return r.All()
	}
	return nil
}

// Package fairqueue has queues that serve namespaces in turn. A namespace with many items delays the next item of another
// one by no more than the item that is served.
package fairqueue

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Queue is a FIFO queue for each namespace. It implements workqueue.Queue, and is not safe for concurrent use.
type Queue[T any] struct {
	namespaceOf func(T) string
	items       map[string][]T
	// turns are the namespaces with items, the next one first.
	turns  []string
	length int
}

// New returns an empty queue.
func New[T any](namespaceOf func(T) string) *Queue[T] {
	return &Queue[T]{namespaceOf: namespaceOf, items: map[string][]T{}}
}

// Touch does nothing: an item that is added again keeps its place.
func (q *Queue[T]) Touch(T) {}

// Push adds an item behind those of its namespace.
func (q *Queue[T]) Push(item T) {
	namespace := q.namespaceOf(item)
	if len(q.items[namespace]) == 0 {
		q.turns = append(q.turns, namespace)
	}
	q.items[namespace] = append(q.items[namespace], item)
	q.length++
}

// Len returns the number of items.
func (q *Queue[T]) Len() int { return q.length }

// Pop removes the first item of the namespace whose turn it is. The queue must not be empty.
func (q *Queue[T]) Pop() T {
	namespace := q.turns[0]
	q.turns = q.turns[1:]
	items := q.items[namespace]
	first := items[0]
	items[0] = *new(T) // the array is kept, and would keep what the item refers to
	if items = items[1:]; len(items) == 0 {
		delete(q.items, namespace)
	} else {
		q.items[namespace] = items
		q.turns = append(q.turns, namespace)
	}
	q.length--
	return first
}

// NewQueue makes the queue of a controller.
type NewQueue[T comparable] = func(name string, limiter workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T]

// ForController returns the queue of a controller, for NewQueue in its options.
func ForController[T comparable](namespaceOf func(T) string) NewQueue[T] {
	return func(name string, limiter workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
		config := workqueue.TypedQueueConfig[T]{Name: name, Queue: New(namespaceOf)}
		delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{
			Name: name, Queue: workqueue.NewTypedWithConfig(config),
		})
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[T]{
			Name: name, DelayingQueue: delaying,
		})
	}
}

// ForRequests returns the queue of a controller whose requests name objects.
func ForRequests() NewQueue[reconcile.Request] {
	return ForController(func(r reconcile.Request) string { return r.Namespace })
}

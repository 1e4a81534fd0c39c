package watch

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/view"
)

// source is the store of one kind, filled by a reflector, with the results of its calls.
type source struct {
	toolscache.Store
	clock clock.PassiveClock
	note  func()
	// answered is closed by the first answer, good or bad.
	answered chan struct{}
	once     sync.Once

	mu sync.Mutex
	// synced: the store has been filled once.
	synced bool
	// err is the error of the last call; nil if it succeeded. since is the first of the
	// consecutive calls that the cluster did not answer.
	err   error
	since time.Time
	// resource may be listed and not watched; empty if it may.
	resource string
}

func newSource(c clock.PassiveClock, note func()) *source {
	return &source{Store: toolscache.NewStore(toolscache.MetaNamespaceKeyFunc), clock: c, note: note, answered: make(chan struct{})}
}

// list returns all objects in the order of their names.
func (s *source) list() ([]runtime.Object, error) {
	s.mu.Lock()
	err, synced := s.err, s.synced
	s.mu.Unlock()
	if err != nil && (!synced || apierrors.IsForbidden(err) || view.IsAbsent(err)) {
		return nil, err
	}
	keys := s.ListKeys()
	slices.Sort(keys)
	out := make([]runtime.Object, 0, len(keys))
	for _, key := range keys {
		if o, ok, err := s.GetByKey(key); ok && err == nil {
			out = append(out, o.(runtime.Object))
		}
	}
	return out, nil
}

func (s *source) failing() (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since, s.err
}

func (s *source) unwatched() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resource
}

// called records the result of a call. A cancelled call is ignored.
func (s *source) called(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	var since time.Time
	if err != nil && isSilence(err) {
		if since = s.since; since.IsZero() {
			since = s.clock.Now()
		}
	}
	changed := since != s.since || (err == nil) != (s.err == nil)
	s.err, s.since = err, since
	s.mu.Unlock()
	if err != nil {
		// Else it is answered when the store is filled.
		s.once.Do(func() { close(s.answered) })
	}
	if changed {
		s.note()
	}
}

// watched records the result of a watch. With the right to list but not to watch, the store
// is only updated later, since the reflector lists repeatedly.
func (s *source) watched(ctx context.Context, err error) {
	resource := ""
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && apierrors.IsForbidden(err) {
		if d := status.Status().Details; d != nil {
			resource = schema.GroupResource{Group: d.Group, Resource: d.Kind}.String()
		}
	}
	s.mu.Lock()
	changed := resource != s.resource
	s.resource = resource
	s.mu.Unlock()
	if changed {
		s.note()
	}
	// Other errors are about this one call: the list is too old, or cannot be streamed. The
	// reflector lists again after them.
	if resource == "" && (err == nil || isSilence(err) || view.IsAbsent(err)) {
		s.called(ctx, err)
	}
}

// isSilence reports whether the cluster has not answered. Any other error is an answer that
// the reflector handles.
func isSilence(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return !view.IsAbsent(err)
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusUnauthorized
}

// Add, Update, Delete and Replace are the reflector's.

func (s *source) Add(o any) error {
	defer s.note()
	return s.Store.Add(trimmed(o))
}

func (s *source) Update(o any) error {
	defer s.note()
	return s.Store.Update(trimmed(o))
}

func (s *source) Delete(o any) error {
	defer s.note()
	return s.Store.Delete(o)
}

func (s *source) Replace(list []any, version string) error {
	for _, o := range list {
		trimmed(o)
	}
	err := s.Store.Replace(list, version)
	s.mu.Lock()
	s.synced = true
	s.mu.Unlock()
	s.once.Do(func() { close(s.answered) })
	s.note()
	return err
}

// trimmed removes managed fields, which take much memory and are never read.
func trimmed(o any) any {
	if o, ok := o.(client.Object); ok {
		o.SetManagedFields(nil)
	}
	return o
}

package invariants

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/test/invariants/promises"
)

const (
	// retry is how soon a stream that lost its connection tries again.
	retry = 100 * time.Millisecond
	// checkEvery is how often a stream checks whether its kind exists.
	checkEvery = time.Second
	// patience is how long the first list may take.
	patience = 30 * time.Second
)

// stream sends every version of one kind.
type stream struct {
	kind     promises.Kind
	resource string
	client   rest.Interface
	list     func() runtime.Object

	// revision up to which all events were sent; 0 before the first list.
	revision uint64
	// known are the last versions of existing objects.
	known map[types.UID]metav1.Object
	out   chan<- message
}

// run sends events until ctx is done. first is called once, when all existing objects have been sent, or cannot be.
func (s *stream) run(ctx context.Context, out chan<- message, first func(error)) {
	s.out = out
	began := time.Now()
	report := func(err error) {
		if first != nil && (err == nil || ctx.Err() != nil || time.Since(began) > patience) {
			first(err)
			first = nil
		}
	}
	defer func() { report(ctx.Err()) }()
	for listed := false; ctx.Err() == nil; {
		var err error
		if !listed {
			err = s.relist(ctx)
			listed = err == nil
		}
		if listed {
			err = s.watch(ctx, func() { report(nil) })
			// Without its history a watch has to begin with a new list.
			listed = !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !apierrors.IsNotFound(err)
		}
		wait := retry
		if apierrors.IsNotFound(err) {
			// The cluster does not have the kind, so it is not used.
			s.send(ctx, message{back: true})
			report(nil)
			wait = checkEvery
		} else {
			s.send(ctx, message{lost: true})
			report(fmt.Errorf("watching %s: %w", s.resource, err))
		}
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
	}
}

func (s *stream) send(ctx context.Context, m message) {
	m.kind, m.time = s.kind, time.Now()
	select {
	case s.out <- m:
	case <-ctx.Done():
	}
}

func (s *stream) options(o *metav1.ListOptions) *rest.Request {
	return s.client.Get().Resource(s.resource).SpecificallyVersionedParams(o, parameterCodec, schema.GroupVersion{Version: "v1"})
}

// relist sends all existing objects. Versions between the last one sent and these may have been missed.
func (s *stream) relist(ctx context.Context) error {
	list := s.list()
	if err := s.options(&metav1.ListOptions{}).Do(ctx).Into(list); err != nil {
		return err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	to, err := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
	if err != nil {
		return fmt.Errorf("the resourceVersion of the list is no number: %w", err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	now := time.Now()
	m := message{gap: &gap{from: s.revision, to: to}}
	was := s.known
	s.known = make(map[types.UID]metav1.Object, len(items))
	for _, item := range items {
		e, err := s.event(item, now)
		if err != nil {
			return err
		}
		old := was[e.Object.GetUID()]
		s.known[e.Object.GetUID()] = e.Object
		delete(was, e.Object.GetUID())
		if old == nil || old.GetResourceVersion() != e.Object.GetResourceVersion() {
			e.Listed = true
			m.events = append(m.events, e)
		}
	}
	for _, gone := range was {
		m.events = append(m.events, promises.Event{Object: gone, Deleted: true, Listed: true, Revision: to, Time: now})
	}
	s.revision = to
	s.send(ctx, m)
	return nil
}

// watch sends changes until the connection ends. err is nil if the server ended it, as it does from time to time.
func (s *stream) watch(ctx context.Context, connected func()) error {
	o := &metav1.ListOptions{Watch: true, AllowWatchBookmarks: true, ResourceVersion: strconv.FormatUint(s.revision, 10)}
	began := time.Now()
	w, err := s.options(o).Watch(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	s.send(ctx, message{back: true})
	connected()
	for change := range w.ResultChan() {
		if change.Type == watch.Error {
			return apierrors.FromObject(change.Object)
		}
		e, err := s.event(change.Object, time.Now())
		if err != nil {
			return err
		}
		s.revision = max(s.revision, e.Revision)
		switch change.Type {
		case watch.Bookmark:
			continue
		case watch.Deleted:
			e.Deleted = true
			delete(s.known, e.Object.GetUID())
		default:
			s.known[e.Object.GetUID()] = e.Object
		}
		s.send(ctx, message{events: []promises.Event{e}})
	}
	if time.Since(began) < time.Second {
		return fmt.Errorf("the watch of %s ended at once", s.resource)
	}
	return nil
}

func (s *stream) event(object runtime.Object, now time.Time) (promises.Event, error) {
	o, err := meta.Accessor(object)
	if err != nil {
		return promises.Event{}, fmt.Errorf("an object of %s: %w", s.resource, err)
	}
	revision, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return promises.Event{}, fmt.Errorf("the resourceVersion of %s %s/%s is no number: %w", s.kind, o.GetNamespace(), o.GetName(), err)
	}
	o.SetManagedFields(nil)
	return promises.Event{Object: o, Revision: revision, Time: now}, nil
}

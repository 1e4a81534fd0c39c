package watch

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/view"
)

// Cluster is read from memory. A kind that is listed is watched from then on. Its objects
// are shared and must not be changed. It is safe for concurrent use.
type Cluster struct {
	// Reader serves Get, directly from the cluster.
	client.Reader

	// life ends all watches.
	life    context.Context
	kube    client.WithWatch
	clock   clock.PassiveClock
	changed chan struct{}

	mu      sync.Mutex
	sources map[reflect.Type]*source
}

// New watches a cluster until the context is done.
func New(life context.Context, kube client.WithWatch, c clock.PassiveClock) *Cluster {
	return &Cluster{Reader: kube, life: life, kube: kube, clock: c, changed: make(chan struct{}, 1), sources: map[reflect.Type]*source{}}
}

// List answers from memory. It waits for the cluster's first answer about the kind. It
// returns the cluster's last error if there is nothing to show: the kind is not served, may
// not be read, or has never been read. A cluster that does not answer for a while is not an
// error: see Stale. A list of one namespace is only made for a kind that may not be read in
// all namespaces; it is not watched and gets the same error.
func (c *Cluster) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	s := c.source(list)
	select {
	case <-s.answered:
	case <-ctx.Done():
		return ctx.Err()
	}
	objects, err := s.list()
	if err != nil {
		return err
	}
	return apimeta.SetList(list, objects)
}

// Changed receives a value soon after an object, or the result of Stale or Missing, changes.
func (c *Cluster) Changed() <-chan struct{} { return c.changed }

func (c *Cluster) note() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Stale returns since when the cluster has not answered, and the error; the zero time means
// that it answers.
func (c *Cluster) Stale() (since time.Time, why string) {
	for _, s := range c.all() {
		if at, err := s.failing(); !at.IsZero() && (since.IsZero() || at.Before(since)) {
			since, why = at, err.Error()
		}
	}
	return since, why
}

// Missing returns the missing rights to watch. List returns those to list.
func (c *Cluster) Missing() (out []view.Right) {
	for _, s := range c.all() {
		if resource := s.unwatched(); resource != "" {
			out = append(out, view.Right{Verb: "watch", Resource: resource})
		}
	}
	slices.SortFunc(out, func(a, b view.Right) int { return strings.Compare(a.Resource, b.Resource) })
	return out
}

func (c *Cluster) all() []*source {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*source, 0, len(c.sources))
	for _, s := range c.sources {
		out = append(out, s)
	}
	return out
}

// source returns the source of a kind; the first call starts its watch.
func (c *Cluster) source(list client.ObjectList) *source {
	kind := reflect.TypeOf(list).Elem()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sources[kind]
	if s == nil {
		s = newSource(c.clock, c.note)
		c.sources[kind] = s
		go c.watch(s, func() client.ObjectList { return reflect.New(kind).Interface().(client.ObjectList) })
	}
	return s
}

// watch keeps a source up to date until the end of the cluster's life.
func (c *Cluster) watch(s *source, newList func() client.ObjectList) {
	calls := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := newList()
			err := c.kube.List(ctx, list, &client.ListOptions{Raw: &o, Limit: o.Limit, Continue: o.Continue})
			s.called(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := c.kube.Watch(ctx, newList(), &client.ListOptions{Raw: &o})
			s.watched(ctx, err)
			return w, err
		},
	}
	// The kind of the objects is that of what the cluster sends.
	r := toolscache.NewReflectorWithOptions(calls, nil, s, toolscache.ReflectorOptions{Name: fmt.Sprintf("%T", newList())})
	r.RunWithContext(c.life)
}

package watch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-dev/muster/cmd/view"
)

// TestMain takes away what is done about errors beside: it counts in the time of the
// machine, which is not that of a bubble.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	m.Run()
}

// refused is how a cluster answers: with an error to lists, to watches or to neither.
type refused struct {
	mu           sync.Mutex
	lists, waits error
	// watches that run; they end when the cluster falls silent.
	watches []watch.Interface
}

func (r *refused) answer(list, watch error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists, r.waits = list, watch
	for _, w := range r.watches {
		w.Stop()
	}
	r.watches = nil
}

// cluster is a watched one with a node, and how to change what its API server says.
func cluster(t *testing.T) (*Cluster, client.Client, *refused) {
	t.Helper()
	scheme, err := view.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	r := &refused{}
	kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(node("one")).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.lists != nil {
				return r.lists
			}
			return c.List(ctx, list, opts...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.waits != nil {
				return nil, r.waits
			}
			// The fake has no streaming lists.
			o := (&client.ListOptions{}).ApplyOptions(opts)
			if o.Raw != nil && o.Raw.SendInitialEvents != nil {
				return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
			}
			w, err := c.Watch(ctx, list, opts...)
			if err == nil {
				r.watches = append(r.watches, w)
			}
			return w, err
		},
	}).Build()
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(func() {
		end()
		synctest.Wait()
	})
	return New(ctx, kube, clock.RealClock{}), kube, r
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{
		Manager: "somebody", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1("{}"),
	}}}}
}

// names are those of the nodes that the cluster reports.
func names(t *testing.T, c *Cluster) (out []string) {
	t.Helper()
	list := &corev1.NodeList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if out = append(out, list.Items[i].Name); len(list.Items[i].ManagedFields) > 0 {
			t.Errorf("%s has its managed fields", list.Items[i].Name)
		}
	}
	return out
}

// changed says that the cluster has reported a change since it was last asked.
func changed(c *Cluster) bool {
	select {
	case <-c.Changed():
		return true
	default:
		return false
	}
}

// pass lets the time of a bubble pass, which it does at once.
func pass(d time.Duration) { <-time.After(d) }

var (
	forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no such right"))
	errSilent = errors.New("connection refused")
)

func TestListsFollowTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, kube, _ := cluster(t)
		if got := names(t, c); len(got) != 1 {
			t.Fatalf("first there are %v", got)
		}
		synctest.Wait()
		if !changed(c) || changed(c) {
			t.Error("the first list is not told of, once")
		}
		if err := kube.Create(t.Context(), node("another")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := names(t, c); len(got) != 2 || got[0] != "another" || !changed(c) {
			t.Errorf("after a creation there are %v", got)
		}
		if err := kube.Delete(t.Context(), node("one")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := names(t, c); len(got) != 1 || got[0] != "another" || !changed(c) {
			t.Errorf("after a deletion there are %v", got)
		}
	})
}

func TestASilentClusterIsStaleAndStillShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, kube, r := cluster(t)
		names(t, c)
		synctest.Wait()
		changed(c)
		if since, _ := c.Stale(); !since.IsZero() {
			t.Errorf("it is stale from the start: %s", since)
		}

		r.answer(errSilent, errSilent)
		fell := time.Now()
		pass(time.Minute)
		since, why := c.Stale()
		if since.IsZero() || since.Sub(fell) > 2*time.Second || why != errSilent.Error() || !changed(c) {
			t.Errorf("it is stale since %s (%s), want %s", since, why, fell)
		}
		if got := names(t, c); len(got) != 1 {
			t.Errorf("while it is silent there are %v", got)
		}

		if err := kube.Create(t.Context(), node("another")); err != nil {
			t.Fatal(err)
		}
		r.answer(nil, nil)
		pass(2 * time.Minute)
		if since, _ := c.Stale(); !since.IsZero() || !changed(c) {
			t.Errorf("it is stale since %s though it answers", since)
		}
		if got := names(t, c); len(got) != 2 {
			t.Errorf("once it answers there are %v", got)
		}
	})
}

func TestAnswersOfTheFirstCall(t *testing.T) {
	absent := &apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Node"}}
	for name, c := range map[string]struct {
		list, watch error
		want        func(error) bool
		stale       bool
		missing     int
	}{
		"who may not list is told so":                 {forbidden, forbidden, apierrors.IsForbidden, false, 1},
		"who may list and not watch has the list":     {nil, forbidden, func(err error) bool { return err == nil }, false, 1},
		"a kind that is not known is told":            {absent, absent, view.IsAbsent, false, 0},
		"a cluster that was never there is an error":  {errSilent, errSilent, func(err error) bool { return errors.Is(err, errSilent) }, true, 0},
		"one whose session is over is silent as well": {apierrors.NewUnauthorized("expired"), apierrors.NewUnauthorized("expired"), apierrors.IsUnauthorized, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster, _, r := cluster(t)
				r.answer(c.list, c.watch)
				if err := cluster.List(t.Context(), &corev1.NodeList{}); !c.want(err) {
					t.Errorf("it answers %v", err)
				}
				synctest.Wait()
				if since, _ := cluster.Stale(); since.IsZero() == c.stale {
					t.Errorf("it is stale since %s", since)
				}
				if missing := cluster.Missing(); len(missing) != c.missing || c.missing == 1 && missing[0].String() != "watch nodes" {
					t.Errorf("missing are %v", missing)
				}
			})
		})
	}
}

func TestARightThatIsTakenAwayIsMissedAndSeenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, r := cluster(t)
		names(t, c)
		r.answer(forbidden, forbidden)
		pass(time.Minute)
		if err := c.List(t.Context(), &corev1.NodeList{}); !apierrors.IsForbidden(err) {
			t.Errorf("without the right it answers %v", err)
		}
		if since, _ := c.Stale(); !since.IsZero() {
			t.Errorf("a cluster that refuses is stale since %s", since)
		}
		r.answer(nil, nil)
		pass(2 * time.Minute)
		if got := names(t, c); len(got) != 1 || len(c.Missing()) != 0 {
			t.Errorf("with the right there are %v, and missing are %v", got, c.Missing())
		}
	})
}

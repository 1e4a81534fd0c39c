package fairqueue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func namespaceOf(item string) string { return strings.Split(item, "/")[0] }

func TestNamespacesAreServedInTurn(t *testing.T) {
	q := New(namespaceOf)
	for _, item := range []string{"a/1", "a/2", "a/3", "b/1", "c/1", "b/2"} {
		q.Push(item)
	}
	var got []string
	for range 2 {
		got = append(got, q.Pop())
	}
	q.Push("d/1")
	for q.Len() > 0 {
		got = append(got, q.Pop())
	}
	want := []string{"a/1", "b/1", "c/1", "a/2", "b/2", "d/1", "a/3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestAFloodDelaysOthersByOneItem adds items at random. Nothing is lost, each namespace keeps its order, and between two
// items of a namespace that has more, each other namespace is served once.
func TestAFloodDelaysOthersByOneItem(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	q, added, served := New(namespaceOf), map[string][]string{}, map[string][]string{}
	// passed counts for each namespace with items how often another one was served since its last turn.
	passed := map[string]map[string]int{}
	for i := range 20_000 {
		if namespace := string(rune('a' + r.IntN(5)*r.IntN(2))); i < 10_000 && r.IntN(5) < 3 {
			item := fmt.Sprintf("%s/%d", namespace, i)
			added[namespace] = append(added[namespace], item)
			if q.Push(item); passed[namespace] == nil {
				passed[namespace] = map[string]int{}
			}
		} else if q.Len() > 0 {
			item := q.Pop()
			namespace := namespaceOf(item)
			served[namespace] = append(served[namespace], item)
			for waiting, by := range passed {
				if by[namespace]++; waiting != namespace && by[namespace] > 1 {
					t.Fatalf("%s was served twice while %s waited", namespace, waiting)
				}
			}
			if delete(passed, namespace); len(served[namespace]) < len(added[namespace]) {
				passed[namespace] = map[string]int{}
			}
		}
	}
	if diff := cmp.Diff(added, served); diff != "" || len(added) != 5 {
		t.Errorf("added to %d namespaces, served otherwise: %s", len(added), diff)
	}
	if len(q.items) > 0 || len(q.turns) > 0 {
		t.Errorf("the empty queue keeps %v and %v", q.items, q.turns)
	}
}

func TestAControllerServesNamespacesInTurn(t *testing.T) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](1, 1)
	q := ForRequests()("test", limiter)
	defer q.ShutDown()
	for _, item := range []string{"a/1", "a/2", "a/1", "b/1"} {
		namespace, name, _ := strings.Cut(item, "/")
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
	var got []string
	for q.Len() > 0 {
		item, _ := q.Get()
		q.Done(item)
		got = append(got, item.String())
	}
	if want := []string{"a/1", "b/1", "a/2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

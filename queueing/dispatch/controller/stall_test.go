package controller

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestAStalledWatchIsFound: for half a minute, the cache lacks an object of its API server, or has one that is gone there. A
// shorter lag is tolerated.
func TestAStalledWatchIsFound(t *testing.T) {
	for _, c := range []struct {
		name string
		// happens is what changes in the worker before the first comparison, and then there or in the cache.
		happens func(s *shop, in client.Client)
		then    func(s *shop, live, cached client.Client)
		found   bool
	}{
		{"nothing happens", nil, nil, false},
		{"a copy is made, and seen late", makeCopy, late(makeCopy), false},
		{"a copy is made, and never seen", makeCopy, nil, true},
		{"a copy is made, and gone before it is seen", makeCopy, func(s *shop, live, _ client.Client) { deleteCopy(s, live, "new") }, false},
		{"a copy changes, and that is never seen", changeCopy, nil, true},
		{"a copy changes, and that is seen late", changeCopy, late(changeCopy), false},
		{"a copy is gone, and never leaves", deleteCached, nil, true},
		{"a copy is gone, and leaves late", deleteCached, late(deleteCached), false},
		{"a copy is gone, and another comes", deleteCached, func(s *shop, live, cached client.Client) {
			deleteCached(s, cached)
			createCopy(s, live, "known")
			createCopy(s, cached, "known")
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShop(t, 2)
			live, stale := s.workers[0], s.workers[1]
			for _, server := range s.workers {
				createCopy(s, server, "known")
				changeCopy(s, server)
			}
			connection := s.copies.workers.byName[workerName(0)].connection
			connection.cache = asIs{client: stale}
			look := func() error {
				s.clock.Step(compareEvery)
				return s.copies.workers.stalled(t.Context(), connection)
			}
			if c.happens != nil {
				c.happens(s, live)
			}
			if err := look(); err != nil {
				t.Fatalf("the first time it says %v", err)
			}
			if c.then != nil {
				c.then(s, live, stale)
			}
			if err := s.copies.workers.stalled(t.Context(), connection); err != nil {
				t.Errorf("too soon, it says %v", err)
			}
			if err := look(); (err != nil) != c.found || err != nil && !strings.Contains(err.Error(), "told nothing of Workload team-a/") {
				t.Errorf("the second time it says %v", err)
			}
		})
	}
}

// late applies a change to the cache after the first comparison.
func late(of func(s *shop, in client.Client)) func(s *shop, live, cached client.Client) {
	return func(s *shop, _, cached client.Client) { of(s, cached) }
}

func createCopy(s *shop, in client.Client, name string) {
	s.Helper()
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: name, Labels: map[string]string{kueue.MultiKueueOriginLabel: me.origin},
	}}
	if err := in.Create(s.Context(), w); err != nil {
		s.Fatal(err)
	}
}

func makeCopy(s *shop, in client.Client) { createCopy(s, in, "new") }

func changeCopy(s *shop, in client.Client) {
	s.status(in, "known", func(w *kueue.Workload) {
		w.Status.AccumulatedPastExecutionTimeSeconds = new(ptr.Deref(w.Status.AccumulatedPastExecutionTimeSeconds, 0) + 1)
	})
}

func deleteCached(s *shop, in client.Client) { deleteCopy(s, in, "known") }

func deleteCopy(s *shop, in client.Client, name string) {
	s.Helper()
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
	if err := in.Delete(s.Context(), w); err != nil {
		s.Fatal(err)
	}
}

// TestACacheIsComparedNowAndThen: not with every poll, since it costs the worker's API server a list of all copies.
func TestACacheIsComparedNowAndThen(t *testing.T) {
	s := newShop(t, 1)
	connection := s.copies.workers.byName[workerName(0)].connection
	for range 20 {
		if err := s.copies.workers.stalled(t.Context(), connection); err != nil {
			t.Fatal(err)
		}
		s.clock.Step(3 * time.Second)
	}
	if n := s.calls[workerName(0)+" read"]; n != 2 {
		t.Errorf("in a minute it was read %d times", n)
	}
}

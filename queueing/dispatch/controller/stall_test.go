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

// TestAWatchThatTellsNothingIsFound: the cache lacks for half a minute what its API server has, or has what is gone there. One that lags
// by less is waited for.
func TestAWatchThatTellsNothingIsFound(t *testing.T) {
	for _, c := range []struct {
		name string
		// happens in the worker before the first comparison, catches has the cache learn of it before the second.
		happens func(s *shop, live client.Client)
		catches bool
		// again: it is made once more.
		again bool
		found bool
	}{
		{"nothing happens", func(*shop, client.Client) {}, false, false, false},
		{"a copy is made, and seen late", makeCopy, true, false, false},
		{"a copy is made, and never seen", makeCopy, false, false, true},
		{"a copy changes, and that is never seen", changeCopy, false, false, true},
		{"a copy changes, and that is seen late", changeCopy, true, false, false},
		{"a copy is gone, and never leaves", deleteCopy, false, false, true},
		{"a copy is gone, and leaves late", deleteCopy, true, false, false},
		{"a copy is gone, and another comes", deleteCopy, true, true, false},
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
			c.happens(s, live)
			if err := look(); err != nil {
				t.Fatalf("the first time it says %v", err)
			}
			if c.catches {
				c.happens(s, stale)
			}
			if c.again {
				createCopy(s, live, "known")
				createCopy(s, stale, "known")
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

func deleteCopy(s *shop, in client.Client) {
	s.Helper()
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "known"}}
	if err := in.Delete(s.Context(), w); err != nil {
		s.Fatal(err)
	}
}

// TestACacheIsComparedNowAndThen alone: it costs the worker's API server a list of all copies.
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

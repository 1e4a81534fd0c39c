package request

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// TestNamespacesTakeTurns: a namespace with a thousand steps delays the step of another one by those under way.
func TestNamespacesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane()
		var group sync.WaitGroup
		var mu sync.Mutex
		var order []string
		proceed := make(chan struct{})
		step := func(name string) func() {
			return func() {
				<-proceed
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
			}
		}
		for i := range 1000 {
			l.add(&group, "flood", step(fmt.Sprint("flood-", i)))
		}
		l.add(&group, "small", step("small"))
		synctest.Wait()
		close(proceed)
		group.Wait()
		// Those under way end first, and the flood's turn may come before that of the other namespace. All of these run at once.
		if at := slices.Index(order, "small"); at < 0 || at > 2*parallel {
			t.Errorf("the step of the other namespace was number %d", at)
		}
		if len(order) != 1001 || l.running != 0 {
			t.Errorf("%d steps were carried out, and %d are under way", len(order), l.running)
		}
	})
}

// TestALaneIsBounded: no more than parallel steps are under way at once.
func TestALaneIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane()
		var group sync.WaitGroup
		var mu sync.Mutex
		running, most := 0, 0
		proceed := make(chan struct{})
		for range 10 * parallel {
			l.add(&group, "ns", func() {
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				<-proceed
				mu.Lock()
				running--
				mu.Unlock()
			})
		}
		synctest.Wait()
		if running != parallel {
			t.Errorf("%d steps are under way, want %d", running, parallel)
		}
		close(proceed)
		group.Wait()
		if most > parallel {
			t.Errorf("%d steps were under way at once", most)
		}
	})
}

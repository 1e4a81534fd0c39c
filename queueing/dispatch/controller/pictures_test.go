package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
)

// TestOnlySoManyPicturesAreKept at a time: prospects in all other workers are told as well, each by a picture for itself. Those that are
// kept serve for the next job, and give their room to others once they are old, or their worker is not connected any more.
func TestOnlySoManyPicturesAreKept(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	room, made := &gallery{room: 3}, 0
	see := func(context.Context, clock.PassiveClock, client.Reader) (Foresee, error) {
		made++
		return func([]*kueue.Workload, *kueue.Workload) *dispatch.Prospect {
			return &dispatch.Prospect{Outlook: dispatch.Launches}
		}, nil
	}
	var all []*picture
	for i := range 5 {
		p := &picture{cluster: fmt.Sprint(i), clock: now, gallery: room, foresight: Foresight{See: see}, opened: make(chan struct{})}
		close(p.opened)
		all = append(all, p)
	}
	ask := func() (kept int) {
		t.Helper()
		made = 0
		for _, p := range all {
			if got := p.prospect(t.Context(), &kueue.Workload{}); got == nil || got.Outlook != dispatch.Launches {
				t.Errorf("worker %s has the prospect %v", p.cluster, got)
			}
		}
		for _, p := range all {
			if p.foresee != nil {
				kept++
			}
		}
		return kept
	}
	if kept := ask(); kept != 3 || made != 5 {
		t.Errorf("%d are kept of %d that were made", kept, made)
	}
	if kept := ask(); kept != 3 || made != 2 {
		t.Errorf("for the next job %d are made, and %d kept", made, kept)
	}
	all[0].forget() // its worker is gone
	all = all[1:]
	if kept := ask(); kept != 3 || made != 2 {
		t.Errorf("once a worker is gone %d are made, and %d kept", made, kept)
	}
	now.Step(time.Minute)
	for _, p := range all {
		p.drop()
	}
	if room.room != 3 {
		t.Errorf("there is room for %d once all are old", room.room)
	}
}

package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// kueueLease is what a Kueue that leads renews, in whichever namespace it runs.
	kueueLease = "c1f6bfd2.kueue.x-k8s.io"
	// kueueLook is how often it is looked at. Kueue's own takes 15 s to pass on.
	kueueLook = 5 * time.Second
)

// errKueueLeads ends a muster beside which Kueue has begun to lead.
var errKueueLeads = errors.New("two would give out the same quota: scale Kueue down, or start muster with --queueing=false; muster waits for its turn when it starts again")

// afterKueue begins queueing once no Kueue leads, and ends the process if one
// begins to. It waits rather than giving up at once, so that a cluster changes
// over without a gap: start muster, scale Kueue down, and the queues go on within
// the time of its lease. What Kueue has admitted stays admitted.
//
// A Kueue without leader election has no lease and is not seen.
type afterKueue struct {
	leases client.Reader
	clock  clock.WithTicker
	begin  func() error
}

// Start implements manager.Runnable.
func (a *afterKueue) Start(ctx context.Context) error {
	log := ctrl.Log.WithName("after-kueue")
	ticker := a.clock.NewTicker(kueueLook)
	defer ticker.Stop()
	begun, waitsFor := false, ""
	for {
		leader, err := leaderBy(ctx, a.leases, a.clock.Now(), kueueLease)
		switch {
		case apierrors.IsForbidden(err):
			return fmt.Errorf("looking whether Kueue leads (the ClusterRole muster-queueing has the right to): %w", err)
		case err != nil:
			// Nobody admits while the API server does not answer.
			log.V(1).Info("It is not known whether Kueue leads", "error", err.Error())
		case leader == "" && !begun:
			if err := a.begin(); err != nil {
				return err
			}
			begun = true
		case leader != "" && begun:
			return fmt.Errorf("kueue leads by lease %s: %w", leader, errKueueLeads)
		case leader != waitsFor:
			log.Info("Queueing waits until Kueue no longer leads: scale it down, or start muster with --queueing=false", "lease", leader)
		}
		waitsFor = leader
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// leaderBy is the lease of that name by which a process leads, in whichever namespace,
// with its holder; empty if none does.
func leaderBy(ctx context.Context, leases client.Reader, now time.Time, name string) (string, error) {
	var list coordinationv1.LeaseList
	if err := leases.List(ctx, &list, client.MatchingFields{"metadata.name": name}); err != nil {
		return "", err
	}
	for _, l := range list.Items {
		s := l.Spec
		if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
			continue
		}
		if now.Before(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second)) {
			return fmt.Sprintf("%s/%s of %s", l.Namespace, l.Name, *s.HolderIdentity), nil
		}
	}
	return "", nil
}

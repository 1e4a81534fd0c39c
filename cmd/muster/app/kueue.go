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
	// kueueLease is the Lease that a leading Kueue renews, in whichever namespace it runs.
	kueueLease = "c1f6bfd2.kueue.x-k8s.io"
	// kueueLook is how often it is read. Kueue's lease expires after 15 s.
	kueueLook = 5 * time.Second
)

// errKueueLeads ends a muster when a Kueue begins to lead beside it.
var errKueueLeads = errors.New("both would admit against the same quota: scale Kueue down, or start muster with --queueing=false; when " +
	"muster restarts, it waits until Kueue no longer leads")

// afterKueue starts queueing once no Kueue leads, and ends the process if one begins to. It
// waits rather than failing at once, so that a cluster migrates without a gap: start muster,
// scale Kueue down, and the queues continue within the duration of Kueue's lease. Workloads
// that Kueue has admitted stay admitted.
//
// A Kueue without leader election has no lease and is not detected.
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
			return fmt.Errorf("checking whether Kueue leads (the ClusterRole muster-queueing grants the right to): %w", err)
		case err != nil:
			// Nothing is admitted while the API server does not answer.
			log.V(1).Info("Cannot tell whether Kueue leads", "error", err.Error())
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

// leaderBy returns the held Lease of that name, in whichever namespace, with its holder;
// empty if none is held.
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

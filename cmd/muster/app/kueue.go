package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/muster/migration"
)

// kueueInterval is the interval between two checks for Kueue. Its lease expires after 15 s.
const kueueInterval = 5 * time.Second

// errKueueCame ends a muster when a Kueue comes beside it.
var errKueueCame = errors.New("both would admit against the same quota: take Kueue out with `kubectl muster migrate`, or start muster " +
	"with --queueing=false; when muster restarts, it waits until nothing of Kueue is in the way")

// afterKueue starts queueing once nothing of a Kueue is in the way, and ends the process if a
// Kueue comes later. It waits rather than failing at once, so that a cluster migrates without a
// gap: the queues continue as soon as Kueue has gone. Workloads that Kueue has admitted stay
// admitted.
type afterKueue struct {
	kube  client.Reader
	clock clock.WithTicker
	begin func() error

	mu sync.Mutex
	// waitsFor is what blocks the queues.
	waitsFor string
}

// Start implements manager.Runnable.
func (a *afterKueue) Start(ctx context.Context) error {
	log := ctrl.Log.WithName("after-kueue")
	ticker := a.clock.NewTicker(kueueInterval)
	defer ticker.Stop()
	for begun := false; ; {
		inTheWay, err := a.check(ctx, begun)
		switch {
		case apierrors.IsForbidden(err):
			return fmt.Errorf("looking for Kueue (the ClusterRoles muster-queueing and muster-health grant the rights to): %w", err)
		case err != nil:
			// Nothing is admitted while the API server does not respond.
			log.V(1).Info("Cannot tell whether Kueue is in the way", "error", err.Error())
		case inTheWay == "" && !begun:
			if err := a.begin(); err != nil {
				return err
			}
			begun = true
		case inTheWay != "" && begun:
			return fmt.Errorf("%s: %w", inTheWay, errKueueCame)
		case inTheWay != a.waitsFor:
			log.Info("Queueing waits until Kueue is out of the way: run `kubectl muster migrate`, or start muster with --queueing=false", "reason",
				inTheWay)
		}
		if err == nil {
			a.mu.Lock()
			a.waitsFor = inTheWay
			a.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// check returns what blocks the queues; empty for nothing. After they have started, only a Kueue that leads blocks them.
func (a *afterKueue) check(ctx context.Context, begun bool) (string, error) {
	leader, err := migration.Leader(ctx, a.kube, a.clock.Now(), migration.Lease)
	switch {
	case err != nil:
		return "", err
	case leader != "":
		return "Kueue leads by lease " + leader, nil
	case begun:
		return "", nil
	}
	return migration.InTheWay(ctx, a.kube)
}

// ready implements healthz.Checker. A standby process does not check.
func (a *afterKueue) ready(*http.Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waitsFor != "" {
		return fmt.Errorf("the queues wait: %s; run `kubectl muster migrate`, or start muster with --queueing=false", a.waitsFor)
	}
	return nil
}

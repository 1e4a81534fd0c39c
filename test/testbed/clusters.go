package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/faults"
	"github.com/muster-dev/muster/kwok/sandbox"
)

// Clusters are a manager and its workers, each with its administrator's client.
type Clusters struct {
	Set     *cluster.Set
	Manager *Cluster
	Workers []*Worker
}

// Worker is a cluster of a manager, and the gate by which the manager reaches it.
type Worker struct {
	*Cluster
	// Name of the worker in the manager.
	Name string
	// Gate is the proxy for all requests of the manager. Its faults have sandbox.Manager as their Target.
	Gate *faults.Gate
}

// StartClusters starts a manager and workers of the configuration, named as by Start.
func StartClusters(ctx context.Context, purpose string, workers int, c cluster.Config) (*Clusters, error) {
	c.Name, c.Binary = fmt.Sprintf("%s-%d", purpose, os.Getpid()), os.Getenv(SandboxVariable)
	out, gates := &Clusters{}, map[string]*faults.Gate{}
	for number := range workers {
		name := sandbox.Worker(number + 1)
		gates[name] = faults.NewGate(uint64(number))
		out.Workers = append(out.Workers, &Worker{Name: name, Gate: gates[name]})
	}
	set, err := cluster.StartSet(ctx, sandbox.Clusters(c, workers, func(worker string, next http.Handler) http.Handler {
		return gates[worker].Handler(sandbox.Manager, next)
	}))
	if err != nil {
		return nil, fmt.Errorf("starting the clusters: %w", err)
	}
	out.Set = set
	out.Manager, err = reach(set.Cluster(sandbox.Manager))
	failures := []error{err}
	for _, w := range out.Workers {
		w.Cluster, err = reach(set.Cluster(w.Name))
		failures = append(failures, err)
	}
	if err := errors.Join(failures...); err != nil {
		return nil, errors.Join(err, set.Stop(context.WithoutCancel(ctx)))
	}
	return out, nil
}

// Cut closes all connections of the manager to the worker, and refuses its requests, until over is called.
func (w *Worker) Cut() (over func()) {
	return w.Gate.Begin(faults.Fault{Type: faults.Disconnect, Target: sandbox.Manager})
}

// CutAnswers is a one-way partition until over is called: requests of the manager take effect, but it gets no responses and no events.
func (w *Worker) CutAnswers() (over func()) {
	watches := w.Gate.Begin(faults.Fault{Type: faults.Disconnect, Target: sandbox.Manager, Verbs: []string{"watch"}})
	answers := w.Gate.Begin(faults.Fault{Type: faults.LoseAnswers, Target: sandbox.Manager})
	return func() { answers(); watches() }
}

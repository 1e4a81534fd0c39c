package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/muster-dev/muster/kwok/faults"
	"github.com/muster-dev/muster/kwok/scenario"
	"github.com/muster-dev/muster/test/invariants"
)

const (
	// recovery is how long recovery from a fault may take: a component restarts, informers
	// list, queues are read.
	recovery = 30 * time.Second
	// putOff is the most that faults extend a bound by, in addition to the longest of them.
	putOff = 5 * time.Minute
	// again is the pause before a write that had no answer is sent once more.
	again = 200 * time.Millisecond
)

// bounds are those of the promises: faults that come one after the other do not put them
// off for ever.
func (r *run) bounds(o *invariants.Options) {
	if r.Scenario.Faults == nil {
		return
	}
	o.PutOff = putOff
	for _, f := range scenario.FasterFaults(r.Scenario.Faults, r.Speed).Faults {
		o.PutOff = max(o.PutOff, putOff+f.For.Duration)
	}
}

// letGoWrong has the scenario's faults come until it is over.
func (r *run) letGoWrong(ctx context.Context) error {
	if r.Scenario.Faults == nil {
		return nil
	}
	r.faults = map[string]int{}
	within := r.Scenario.Ends.AtMost.Duration / time.Duration(r.Speed)
	return faults.Run(ctx, scenario.FasterFaults(r.Scenario.Faults, r.Speed), within, r.Cluster, r.Gate, func(o faults.Occurrence) {
		r.faults[fmt.Sprintf("%s %s", o.Type, o.Target)]++
		r.watcher.StandStill(time.Now().Add(o.For.Duration + recovery))
		if o.Type == faults.Kill {
			r.meter.dies(ctx, o.Target)
		}
	})
}

// insist repeats a write until it has an answer, as users do while the API server is
// unavailable. Once the scenario is over it no longer matters.
func insist(ctx context.Context, write func() error) error {
	for {
		err := write()
		var answer apierrors.APIStatus
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case errors.As(err, &answer) && answer.Status().Code < 500 && !apierrors.IsTooManyRequests(err):
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

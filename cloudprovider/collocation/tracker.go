// Package collocation has what the adapters of all clouds share about launches whose machines must be together. Some clouds keep machines
// near each other with a separate resource, such as a placement group of AWS or a compact placement policy of Google Cloud. Each of these
// is called a collocation here. It costs nothing, and is deleted when nothing needs it.
package collocation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// SweepAfter is how long a collocation is kept after a launch or a machine last needed it. It is longer than lists lag and than
	// the calls of one launch take, because clouds do not report creation times. A later attempt of the launch creates the
	// collocation again.
	SweepAfter = 5 * time.Minute
	// timeout limits how long a list of machines waits for a sweep.
	timeout = 15 * time.Second
	// again is the interval between a failed call and the next one: lists may be seconds apart, and each would wait for it.
	again = time.Minute
	// parallel is how many collocations of a scope are deleted at once.
	parallel = 16
)

// Config of a Tracker.
type Config struct {
	Clock clock.PassiveClock
	// MayAct returns an error while another process may act in place of this one: then nothing is deleted. nil means that there is no
	// other process.
	MayAct func() error
	// LookAgain is the interval at which a scope is listed for collocations that this process has not recorded: those of an earlier
	// process, and those of calls that took effect late.
	LookAgain time.Duration
}

// Tracker records the collocations of a cluster and when each was last needed, and deletes those that nothing needs any more. An ID
// formats as its name.
type Tracker[ID comparable] struct {
	config Config

	mu sync.Mutex
	// needed is when a launch or a machine last needed each collocation, as far as this process has seen, by scope.
	needed map[string]map[ID]time.Time
	// looked is when each scope was last listed.
	looked map[string]time.Time
	// refused is why the last launch that requested a collocation has none; empty if it has one.
	refused string
}

// NewTracker returns an empty Tracker.
func NewTracker[ID comparable](c Config) *Tracker[ID] {
	return &Tracker[ID]{config: c, needed: map[string]map[ID]time.Time{}, looked: map[string]time.Time{}}
}

// Need records that a launch or a machine needs collocations of a scope.
func (t *Tracker[ID]) Need(scope string, ids ...ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		t.need(scope, id)
	}
}

// Use records that machines are in collocations of a scope. Collocations that the Tracker does not have are not Muster's.
func (t *Tracker[ID]) Use(scope string, ids ...ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		if t.has(scope, id) {
			t.need(scope, id)
		}
	}
}

func (t *Tracker[ID]) need(scope string, id ID) {
	if t.needed[scope] == nil {
		t.needed[scope] = map[ID]time.Time{}
	}
	t.needed[scope][id] = t.config.Clock.Now()
}

func (t *Tracker[ID]) has(scope string, id ID) bool {
	_, known := t.needed[scope][id]
	return known
}

// Fared records the outcome of the last launch that requested a collocation. A transient error changes nothing.
func (t *Tracker[ID]) Fared(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.refused = ""
	} else if cloudprovider.IsRefused(err) {
		t.refused = err.Error()
	}
}

// Refused is why the last launch that requested a collocation has none; empty if it has one.
func (t *Tracker[ID]) Refused() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused
}

// Scope is a part of a cloud whose collocations are listed together, such as a project.
type Scope[ID comparable] struct {
	Name string
	// List returns the collocations of the cluster in the scope.
	List func(context.Context) ([]ID, error)
	// Delete deletes a collocation. It reports whether the cloud no longer has it. If the cloud refuses because of its machines, or has
	// only started to delete it, that is no error: the deletion is retried later.
	Delete func(context.Context, ID) (gone bool, err error)
}

// Sweep deletes the collocations of scopes that nothing has needed for SweepAfter. A cloud refuses to delete one with machines that are
// not listed yet. A failed deletion is retried a minute later, and a refused one after another SweepAfter. A scope or a collocation whose
// calls hang delays no other.
func (t *Tracker[ID]) Sweep(ctx context.Context, scopes ...Scope[ID]) {
	if t.config.MayAct != nil && t.config.MayAct() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var sweeps sync.WaitGroup
	for _, s := range scopes {
		sweeps.Go(func() {
			if err := t.sweep(ctx, s); err != nil {
				log.FromContext(ctx).Error(err, "What keeps machines together and no launch needs could not be deleted; it will be retried",
					"scope", s.Name)
			}
		})
	}
	sweeps.Wait()
}

func (t *Tracker[ID]) sweep(ctx context.Context, s Scope[ID]) error {
	failed := t.list(ctx, s)
	unneeded := t.unneeded(s.Name)
	errs := make([]error, len(unneeded))
	var calls errgroup.Group
	calls.SetLimit(parallel)
	for i, id := range unneeded {
		calls.Go(func() error {
			gone, err := s.Delete(ctx, id)
			t.swept(s.Name, id, gone, err)
			if err != nil {
				errs[i] = fmt.Errorf("delete %v: %w", id, err)
			}
			return nil
		})
	}
	_ = calls.Wait()
	return errors.Join(append(errs, failed)...)
}

// list lists a scope at an interval, for the collocations that this process has not recorded.
func (t *Tracker[ID]) list(ctx context.Context, s Scope[ID]) error {
	t.mu.Lock()
	looked, before := t.looked[s.Name]
	t.mu.Unlock()
	if before && t.config.Clock.Since(looked) < t.config.LookAgain {
		return nil
	}
	found, err := s.List(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looked[s.Name] = t.config.Clock.Now()
	if err != nil && !cloudprovider.IsRefused(err) {
		t.looked[s.Name] = t.looked[s.Name].Add(again - t.config.LookAgain)
	}
	for _, id := range found {
		if !t.has(s.Name, id) {
			t.need(s.Name, id)
		}
	}
	if cause := cloudprovider.CauseOf(err); cause != nil && cause.Class == v1alpha1.Auth {
		return nil // the check of permissions reports it
	}
	return err
}

// unneeded returns the collocations of a scope that nothing has needed for a while, in order.
func (t *Tracker[ID]) unneeded(scope string) []ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []ID
	for id, at := range t.needed[scope] {
		if t.config.Clock.Since(at) >= SweepAfter {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, func(a, b ID) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return out
}

// swept records the result of a deletion.
func (t *Tracker[ID]) swept(scope string, id ID, gone bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	retry := t.config.Clock.Now().Add(again - SweepAfter)
	switch {
	case err == nil && gone:
		delete(t.needed[scope], id)
	case err == nil || cloudprovider.IsRefused(err):
		t.need(scope, id)
	case retry.After(t.needed[scope][id]): // otherwise a launch has needed it meanwhile
		t.needed[scope][id] = retry
	}
}

// Most returns the collocation with the most machines: the first by name of equal ones, and the zero value for none.
func Most[ID cmp.Ordered](count map[ID]int) (most ID) {
	for _, id := range slices.Sorted(maps.Keys(count)) {
		if count[id] > count[most] {
			most = id
		}
	}
	return most
}

// Package poll implements a watch by lists, for clouds without events. It lists often while something is in flight, and seldom otherwise.
package poll

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// Calm is the interval between two lists while nothing is in flight. Busy is the interval while a machine boots, a hold exists, or a
	// call was made recently, by this process or another.
	Calm = time.Minute
	Busy = 5 * time.Second
	// Grace is how long a machine that a call has returned may be missing from lists: clouds are eventually consistent.
	Grace = 90 * time.Second
	// Again is how long after the cloud has accepted a termination lists may still show the machine. After that, the termination is
	// repeated: clouds lose some, and are slow with others.
	Again = 2 * time.Minute
)

// Listing is the response of a cloud to a list of its machines.
type Listing struct {
	Machines []cloudprovider.Machine
	// Scopes are the scopes that were listed, and Failed those that were not, with the reason: the machines of a failed scope keep their
	// last listed state. Both are empty for a cloud that is listed as a whole.
	Scopes []string
	Failed map[string]error
}

// EndWith sets the end of the machines to that of their NodeGroups, such as a Capacity Block, unless the cloud has set it.
func EndWith(machines []cloudprovider.Machine, groups ...*v1alpha1.NodeGroup) {
	ends := map[string]time.Time{}
	for _, g := range groups {
		ends[g.Name] = nodegroups.EndsAt(g)
	}
	for i := range machines {
		if machines[i].EndsAt.IsZero() {
			machines[i].EndsAt = ends[machines[i].Group]
		}
	}
}

// Poller watches the machines of a cloud.
type Poller struct {
	// List returns all machines of the cloud's groups. An error means that none of them are known, not that there are none.
	List func(context.Context) (Listing, error)
	// terminate terminates machines of a group, as a cloudprovider.Terminator does.
	terminate func(ctx context.Context, group string, names []string) error
	Clock     clock.WithTicker

	mu sync.Mutex
	// noted are the machines that calls have returned and no list has shown.
	noted *Recent[key, cloudprovider.Machine]
	// taken is when the cloud accepted the termination of each machine that is still listed.
	taken map[key]time.Time
	// expected is when another process last launched machines.
	expected time.Time
	// began is when the watch started, and listed when each scope was last listed.
	began  time.Time
	listed map[string]time.Time
	// hurry wakes the watch.
	hurry chan struct{}
}

type key struct{ group, name string }

// New returns a Poller.
func New(list func(context.Context) (Listing, error), terminate func(context.Context, string, []string) error,
	clock clock.WithTicker) *Poller {
	return &Poller{
		List: list, terminate: terminate, Clock: clock, noted: NewRecent[key, cloudprovider.Machine](Grace, clock),
		taken: map[key]time.Time{}, listed: map[string]time.Time{},
		hurry: make(chan struct{}, 1),
	}
}

// Terminate implements cloudprovider.Terminator.
func (p *Poller) Terminate(ctx context.Context, group string, names []string) error {
	defer p.Note() // a list will soon show the termination
	if err := p.terminate(ctx, group, names); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		p.taken[key{group, name}] = p.Clock.Now()
	}
	return nil
}

// Note records machines that a call has returned, and the call itself: the next list comes soon.
func (p *Poller) Note(machines ...cloudprovider.Machine) {
	for _, m := range machines {
		p.noted.Note(key{m.Group, m.Name}, m)
	}
	p.wake()
}

// Expect implements cloudprovider.Expecter.
func (p *Poller) Expect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = p.Clock.Now()
	p.wake()
}

// expects reports whether machines of another process may be missing from lists.
func (p *Poller) expects() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Clock.Since(p.expected) <= Grace
}

func (p *Poller) wake() {
	select {
	case p.hurry <- struct{}{}:
	default:
	}
}

// Watch implements cloudprovider.Watcher. A cloud that cannot be listed is retried. It calls synced without waiting for the retries, so
// that an unreachable cloud does not block the others. Machines that are not known are not changed.
func (p *Poller) Watch(ctx context.Context, observe func(cloudprovider.Machine), synced func()) error {
	known := map[key]cloudprovider.Machine{}
	for notified := false; ; notified = true {
		busy := p.update(ctx, known, observe)
		if ctx.Err() != nil {
			return nil
		}
		if !notified {
			synced()
		}
		pause := Calm
		if busy {
			pause = Busy
		}
		timer := p.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		case <-p.hurry:
			// New machines are listed a moment later.
			timer.Stop()
			select {
			case <-ctx.Done():
				return nil
			case <-p.Clock.After(time.Second):
			}
		}
	}
}

// timeout limits a list. Every call in it has its own deadline; a cloud with many groups needs many calls.
const timeout = 2 * time.Minute

// list lists once, within the timeout, and records which scopes have responded.
func (p *Poller) list(ctx context.Context) (Listing, error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	listing, err := p.List(bounded)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Clock.Now()
	if p.began.IsZero() {
		p.began = now
	}
	if err != nil {
		return Listing{}, err
	}
	if len(listing.Scopes)+len(listing.Failed) == 0 {
		listing.Scopes = []string{""}
	}
	listed := map[string]time.Time{}
	for scope := range listing.Failed {
		listed[scope] = cmp.Or(p.listed[scope], p.began)
	}
	for _, scope := range listing.Scopes {
		listed[scope] = now
	}
	p.listed = listed
	return listing, nil
}

// Oldest returns the time of the oldest last list of the scopes, without those that the cloud does not have. Before the first list it is
// when the watch started, and zero before that.
func (p *Poller) Oldest(scopes ...string) (at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, scope := range scopes {
		if t, listed := p.listed[scope]; listed && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	return cmp.Or(at, p.began)
}

// update lists once and reports the changes. It reports whether something is in flight.
func (p *Poller) update(ctx context.Context, known map[key]cloudprovider.Machine, observe func(cloudprovider.Machine)) (busy bool) {
	listing, err := p.list(ctx)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "Listing the machines of a cloud failed; it will be retried")
		return true
	}
	for _, scope := range slices.Sorted(maps.Keys(listing.Failed)) {
		log.FromContext(ctx).Error(listing.Failed[scope], "Listing a part of a cloud failed; it will be retried", "scope", scope)
		busy = true
	}
	listed := make(map[key]cloudprovider.Machine, len(listing.Machines))
	for _, m := range listing.Machines {
		listed[key{m.Group, m.Name}] = m
	}
	for k, m := range known {
		if _, ok := listed[k]; !ok && listing.Failed[m.Scope] != nil {
			listed[k] = m
		}
	}
	for k, m := range p.unlisted(listed) {
		listed[k] = m
		busy = true
	}
	for k, m := range listed {
		old, ok := known[k]
		if m.Launch == "" && old.Launch != "" {
			m.Launch, m.Unattributed = old.Launch, false // clouds may list a machine without its tags
		}
		if ok && m.State < old.State && !m.Restarted(old) {
			m.State, m.Kept, m.Billed = old.State, old.Kept, old.Billed
		}
		if !ok || m.State != old.State || m.Kept != old.Kept || m.Billed != old.Billed || m.Launch != old.Launch || m.Hold != old.Hold ||
			m.Unattributed != old.Unattributed || m.Started.After(old.Started) || !m.EndsAt.Equal(old.EndsAt) {
			observe(m)
			known[k] = m
		}
		busy = busy || m.State == cloudprovider.Booting
	}
	for k, m := range known {
		if _, ok := listed[k]; !ok {
			m.State = cloudprovider.Gone
			observe(m)
			delete(known, k)
		}
	}
	return p.takeAgain(ctx, listed) || p.expects() || busy
}

// takeAgain repeats the terminations that lists do not show in time. It reports whether it waits for one.
func (p *Poller) takeAgain(ctx context.Context, listed map[key]cloudprovider.Machine) (waits bool) {
	due, waits := p.overdue(listed)
	for _, group := range slices.Sorted(maps.Keys(due)) {
		logger := log.FromContext(ctx).WithValues("group", group, "machines", due[group])
		if err := p.terminate(ctx, group, due[group]); err != nil {
			logger.Error(err, "Machines that are to go are still listed, and taking them back failed; it will be retried")
			continue
		}
		logger.Info("Machines that are to go are still listed, so they have been terminated again")
	}
	return waits
}

// overdue returns the names of the machines for takeAgain, by group.
func (p *Poller) overdue(listed map[key]cloudprovider.Machine) (due map[string][]string, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	due = map[string][]string{}
	for k, at := range p.taken {
		m, ok := listed[k]
		switch {
		case ok && (m.State < cloudprovider.Terminated || m.Kept):
			waits = true
			if p.Clock.Since(at) >= Again {
				p.taken[k] = p.Clock.Now()
				due[k.group] = append(due[k.group], k.name)
			}
		case ok: // it may be kept after all
		case p.Clock.Since(at) > Grace:
			delete(p.taken, k)
		default: // it may be too new for lists
			waits = true
		}
	}
	for _, names := range due {
		slices.Sort(names)
	}
	return due, waits
}

// unlisted returns the machines that calls have returned and that lists may not show yet, whole or with their launch. It drops those that
// a list has shown, and those whose time is over.
func (p *Poller) unlisted(listed map[key]cloudprovider.Machine) map[key]cloudprovider.Machine {
	out := map[key]cloudprovider.Machine{}
	for k, noted := range p.noted.All() {
		m, ok := listed[k]
		switch {
		case ok && m.Launch == "" && noted.Launch != "":
			m.Launch, m.Unattributed = noted.Launch, false
			out[k] = m
			p.noted.Forget(k)
		case ok:
			p.noted.Forget(k)
		default:
			out[k] = noted
		}
	}
	return out
}

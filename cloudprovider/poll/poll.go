// Package poll makes a watch out of lists, for clouds that tell of nothing by
// themselves. While something is on its way it looks often, else seldom.
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
	// Calm is how long after a list the next one comes while nothing is on its way,
	// and Busy while something is: a machine boots, a hold is there, or a call was
	// made a short while ago, by this process or another.
	Calm = time.Minute
	Busy = 5 * time.Second
	// Grace is how long a machine that a call has returned may be missing from lists:
	// clouds are eventually consistent.
	Grace = 90 * time.Second
	// Again is how long a take-back that the cloud has accepted may take until lists show it.
	// Then it is repeated: clouds lose some, and take a long time over others.
	Again = 2 * time.Minute
)

// Listing is the answer of a cloud to a list of its machines.
type Listing struct {
	Machines []cloudprovider.Machine
	// Scopes are those that were listed, and Failed those that were not, with the reason: the machines of a failed scope are
	// taken to be as they were listed last. Both are empty for a cloud that is listed as a whole.
	Scopes []string
	Failed map[string]error
}

// EndWith says of machines when their NodeGroups end, such as a Capacity Block, unless the cloud has said when each of them does.
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
	// List returns all machines of the cloud's groups. An error means that none of them are
	// known, not that there are none.
	List func(context.Context) (Listing, error)
	// Take takes machines of a group back, as a cloudprovider.Taker does.
	Take  func(ctx context.Context, group string, names []string) error
	Clock clock.WithTicker

	mu sync.Mutex
	// noted are the machines that calls have returned and no list has shown.
	noted *Recent[key, cloudprovider.Machine]
	// taken are the machines that the cloud has accepted to take back, and when it did, until
	// they are no longer listed.
	taken map[key]time.Time
	// expected is when another process was last known to launch machines.
	expected time.Time
	// began is when the watch did, and listed when each scope was listed last.
	began  time.Time
	listed map[string]time.Time
	// hurry wakes the watch.
	hurry chan struct{}
}

type key struct{ group, name string }

// New returns a Poller.
func New(list func(context.Context) (Listing, error), take func(context.Context, string, []string) error,
	clock clock.WithTicker) *Poller {
	return &Poller{
		List: list, Take: take, Clock: clock, noted: NewRecent[key, cloudprovider.Machine](Grace, clock),
		taken: map[key]time.Time{}, listed: map[string]time.Time{},
		hurry: make(chan struct{}, 1),
	}
}

// TakeBack implements cloudprovider.Taker.
func (p *Poller) TakeBack(ctx context.Context, group string, names []string) error {
	defer p.Note() // what was taken shows in a list soon
	if err := p.Take(ctx, group, names); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		p.taken[key{group, name}] = p.Clock.Now()
	}
	return nil
}

// Note tells of machines that a call has returned, and of a call at all: the next
// list comes soon.
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

// Watch does what a cloudprovider.Watcher does. A cloud that cannot be listed is
// tried again; the first full picture does not wait for it, or a cloud that is out
// of reach would hold up all others. What is not known of is not touched.
func (p *Poller) Watch(ctx context.Context, observe func(cloudprovider.Machine), synced func()) error {
	known := map[key]cloudprovider.Machine{}
	for told := false; ; told = true {
		busy := p.look(ctx, known, observe)
		if ctx.Err() != nil {
			return nil
		}
		if !told {
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
			// What was just made shows in a list a moment later.
			timer.Stop()
			select {
			case <-ctx.Done():
				return nil
			case <-p.Clock.After(time.Second):
			}
		}
	}
}

// patience bounds a list. Every call in it has a deadline of its own; a cloud of many groups needs many calls.
const patience = 2 * time.Minute

// list lists once, within the patience, and notes which scopes have answered.
func (p *Poller) list(ctx context.Context) (Listing, error) {
	bounded, cancel := context.WithTimeout(ctx, patience)
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

// Oldest returns when the one of the scopes was listed that was listed longest ago: those of them that the cloud has. Before the first
// list it is when the watch began, and zero before that.
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

// look lists once and tells what has changed. It says whether something is on its
// way.
func (p *Poller) look(ctx context.Context, known map[key]cloudprovider.Machine, observe func(cloudprovider.Machine)) (busy bool) {
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
			m.Launch, m.Unattributed = old.Launch, false // clouds may show a machine without its tags
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

// takeAgain repeats the take-backs that lists do not show in time. It reports whether it waits
// for one.
func (p *Poller) takeAgain(ctx context.Context, listed map[key]cloudprovider.Machine) (waits bool) {
	due, waits := p.overdue(listed)
	for _, group := range slices.Sorted(maps.Keys(due)) {
		logger := log.FromContext(ctx).WithValues("group", group, "machines", due[group])
		if err := p.Take(ctx, group, due[group]); err != nil {
			logger.Error(err, "Machines that are to go are still listed, and taking them back failed; it will be retried")
			continue
		}
		logger.Info("Machines that are to go are still listed, so they have been taken back again")
	}
	return waits
}

// overdue are the names of the machines that takeAgain is for, by group.
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

// unlisted are the machines that calls have returned and that lists may not show
// yet, whole or with their launch. Those that a list has shown, and those whose time is over, are forgotten.
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

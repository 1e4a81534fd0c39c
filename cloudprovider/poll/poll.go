// Package poll makes a watch out of lists, for clouds that tell of nothing by
// themselves. While something is on its way it looks often, else seldom.
package poll

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
)

const (
	// Calm is how long after a list the next one comes while nothing is on its way,
	// and Busy while something is: a machine boots, a hold is there, or a call was
	// made a short while ago.
	Calm = time.Minute
	Busy = 5 * time.Second
	// Grace is how long a machine that a call has returned may be missing from lists:
	// clouds are eventually consistent.
	Grace = 90 * time.Second
)

// Poller watches the machines of a cloud.
type Poller struct {
	// List returns all machines of the cloud's groups. An error means that they are
	// not known, not that there are none.
	List  func(context.Context) ([]cloudprovider.Machine, error)
	Clock clock.WithTicker

	mu sync.Mutex
	// noted are the machines that calls have returned and no list has shown, and
	// since when.
	noted map[key]note
	// hurry wakes the watch.
	hurry chan struct{}
}

type key struct{ group, name string }

type note struct {
	machine cloudprovider.Machine
	at      time.Time
}

// New returns a Poller.
func New(list func(context.Context) ([]cloudprovider.Machine, error), clock clock.WithTicker) *Poller {
	return &Poller{List: list, Clock: clock, noted: map[key]note{}, hurry: make(chan struct{}, 1)}
}

// Note tells of machines that a call has returned, and of a call at all: the next
// list comes soon.
func (p *Poller) Note(machines ...cloudprovider.Machine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range machines {
		p.noted[key{m.Group, m.Name}] = note{m, p.Clock.Now()}
	}
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

// look lists once and tells what has changed. It says whether something is on its
// way.
func (p *Poller) look(ctx context.Context, known map[key]cloudprovider.Machine, observe func(cloudprovider.Machine)) (busy bool) {
	machines, err := p.List(ctx)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "Listing the machines of a cloud failed; it will be retried")
		return true
	}
	listed := make(map[key]cloudprovider.Machine, len(machines))
	for _, m := range machines {
		listed[key{m.Group, m.Name}] = m
	}
	for k, m := range p.unlisted(listed) {
		listed[k] = m
		busy = true
	}
	for k, m := range listed {
		if old, ok := known[k]; !ok || m.State > old.State || m.Launch != old.Launch || m.Hold != old.Hold {
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
	return busy
}

// unlisted are the machines that calls have returned and that lists may not know
// yet. Those that a list has shown, and those whose time is over, are forgotten.
func (p *Poller) unlisted(listed map[key]cloudprovider.Machine) map[key]cloudprovider.Machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[key]cloudprovider.Machine{}
	for k, n := range p.noted {
		if _, ok := listed[k]; ok || p.Clock.Since(n.at) > Grace {
			delete(p.noted, k)
		} else {
			out[k] = n.machine
		}
	}
	return out
}

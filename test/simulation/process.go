package simulation

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/kwok"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/controller/feed"
	"github.com/muster-dev/muster/provisioning/controller/group"
	"github.com/muster-dev/muster/provisioning/controller/request"
	"github.com/muster-dev/muster/provisioning/controller/scaledown"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// errDead is what the calls of a process return that has been killed.
var errDead = errors.New("the process has been killed")

// process is one life of muster: the real controllers on the real model, from its
// start until it is killed. Whatever could make one of its goroutines go on waits
// here until the simulator picks it.
type process struct {
	model     *model.Model
	informers *informers
	// changes pass the model's changes on to the controllers.
	changes []*changes
	// beginners are the controllers that have not begun yet.
	beginners int
	// ahead is how far muster's clock is ahead of all other clocks, as a Duration.
	ahead *atomic.Int64
	kill  context.CancelFunc
	// ended is closed when the last goroutine has gone.
	ended chan struct{}

	mu   sync.Mutex
	dead bool
	// calls wait for an answer.
	calls  []*call
	timers []*timer
	// timersSet counts the timers that each controller ever set.
	timersSet map[string]int
	// launching are the groups with a launch under way.
	launching map[string]bool
	// away reports whether the cloud of a group does not answer.
	away func(group string) bool
}

// changes passes on that the model has changed.
type changes struct {
	controller string
	from       <-chan struct{}
	to         chan struct{}
}

// pass notifies the controller unless an earlier notification is pending.
func (c *changes) pass() {
	<-c.from
	select {
	case c.to <- struct{}{}:
	default:
	}
}

// start begins a life of muster.
func start(s *store, ahead *atomic.Int64, away func(group string) bool, more []client.Object) (*process, error) {
	ctx, kill := context.WithCancel(log.IntoContext(context.Background(), logr.Discard()))
	p := &process{
		ahead: ahead, kill: kill, ended: make(chan struct{}), informers: &informers{store: s},
		timersSet: map[string]int{}, launching: map[string]bool{}, away: away,
	}
	p.model = model.New(&timers{process: p, owner: "model"}, transaction.Instance{Classes: transaction.KnownClasses})
	kwok := kwok.New(kwok.Config{
		Client: &api{process: p, store: s, who: "kwok"}, Live: &storeReader{store: s},
		Informers: p.informers, Clock: &timers{process: p, owner: "kwok"},
	})
	clouds := func(caller string) map[v1alpha1.Provider]cloudprovider.Provider {
		return map[v1alpha1.Provider]cloudprovider.Provider{v1alpha1.ProviderKwok: &cloud{Provider: kwok, process: p, caller: caller}}
	}
	live := &storeReader{store: s}
	feed, err := feed.New(ctx, p.model, p.informers, live, map[v1alpha1.Provider]cloudprovider.Watcher{v1alpha1.ProviderKwok: kwok},
		more...)
	if err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	for _, c := range []interface {
		Start(context.Context) error
	}{
		feed,
		&request.Controller{
			Client: &api{process: p, store: s, who: "request"}, Live: &api{process: p, store: s, who: "request"}, Providers: clouds("request"),
			Model: p.model, Synced: p.synced("request", feed), Changed: p.changed("request"),
			Events: &events.FakeRecorder{}, Clock: &timers{process: p, owner: "request"},
		},
		&scaledown.Controller{
			Client: &api{process: p, store: s, who: "scaledown"}, Live: &api{process: p, store: s, who: "scaledown"}, Providers: clouds("scaledown"),
			Model: p.model, Synced: p.synced("scaledown", feed), Changed: p.changed("scaledown"),
			Events: &events.FakeRecorder{}, Clock: &timers{process: p, owner: "scaledown"},
		},
		&group.Controller{
			Client: &api{process: p, store: s, who: "group"},
			Model:  p.model, Synced: p.synced("group", feed), Changed: p.changed("group"),
			Clock: &timers{process: p, owner: "group"},
		},
	} {
		running.Go(func() {
			if err := c.Start(ctx); err != nil {
				panic(err) // nothing in a simulation keeps a controller from running
			}
		})
	}
	go func() {
		running.Wait()
		close(p.ended)
	}()
	return p, nil
}

// synced makes the controllers begin one by one.
func (p *process) synced(controller string, feed *feed.Feed) func(context.Context) bool {
	return func(ctx context.Context) bool {
		return feed.Synced(ctx) && p.call(&call{key: controller + " begins", effect: func() (client.Object, error) {
			p.beginners--
			return nil, nil
		}}) == nil
	}
}

func (p *process) changed(controller string) <-chan struct{} {
	p.beginners++
	c := &changes{controller: controller, from: p.model.Changed(), to: make(chan struct{}, 1)}
	p.changes = append(p.changes, c)
	return c.to
}

// begun says that all controllers have seen the first full picture.
func (p *process) begun() bool { return p.beginners == 0 }

// call waits for the simulator's answer.
func (p *process) call(c *call) error {
	c.reply = make(chan error, 1)
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return errDead
	}
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	return <-c.reply
}

// waiting are the calls that have no answer yet.
func (p *process) waiting() []*call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*call(nil), p.calls...)
}

// allTimers returns the timers that are set.
func (p *process) allTimers() []*timer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*timer(nil), p.timers...)
}

// die answers all calls with errDead, those to come included, and has everything
// stop.
func (p *process) die() {
	p.mu.Lock()
	p.dead = true
	calls := p.calls
	p.calls = nil
	p.mu.Unlock()
	p.kill()
	for _, c := range calls {
		c.finish(nil, errDead)
	}
}

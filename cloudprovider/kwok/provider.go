// Package kwok is the adapter of the simulated cloud. Its machines are objects of
// kind Machine, which KWOK's stages move on; what a launch gets is decided by
// kwok/pool. The API server of the cluster plays the cloud's control plane: its
// own failures are plain errors, only the pool refuses.
package kwok

import (
	"sync"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cloudprovider"
)

// parallel is how many calls for the machines of one launch are under way at once.
const parallel = 16

// Config is what a Provider works with.
type Config struct {
	// Client writes.
	Client client.Client
	// Live reads past any cache: a launch must see what the one before it made.
	Live client.Reader
	// Informers tell of changed machines.
	Informers cache.Informers
	Clock     clock.PassiveClock
}

// Provider is the simulated cloud.
type Provider struct {
	Config
	launches groupLocks
}

var _ cloudprovider.Provider = (*Provider)(nil)

// New returns a Provider.
func New(config Config) *Provider { return &Provider{Config: config} }

// groupLocks lets one launch a group run at a time: two that looked at the stock
// of a pool at the same moment would both take the last machine.
type groupLocks struct {
	locks sync.Map // of *sync.Mutex by the name of the group
}

func (g *groupLocks) lock(group string) (unlock func()) {
	lock, _ := g.locks.LoadOrStore(group, &sync.Mutex{})
	lock.(*sync.Mutex).Lock()
	return lock.(*sync.Mutex).Unlock
}

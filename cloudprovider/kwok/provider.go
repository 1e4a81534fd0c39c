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
	// stocks of the groups, of *stock by name.
	stocks sync.Map
}

var _ cloudprovider.Provider = (*Provider)(nil)

// New returns a Provider.
func New(config Config) *Provider { return &Provider{Config: config} }

// Package kwok is the adapter of the simulated cloud. Its machines are objects of kind Machine, which KWOK's stages advance. kwok/pool
// decides what a launch gets. The API server of the cluster is the cloud's control plane: its own failures are plain errors, and only the
// pool refuses.
package kwok

import (
	"sync"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cloudprovider"
)

// parallel is how many calls for the machines of one launch are in flight at once.
const parallel = 16

// Config configures a Provider.
type Config struct {
	// Client writes.
	Client client.Client
	// Live reads from the API server, without a cache: a launch must see what the previous one created.
	Live client.Reader
	// Informers deliver changes of machines.
	Informers cache.Informers
	Clock     clock.PassiveClock
}

// Provider is the simulated cloud.
type Provider struct {
	Config
	// stocks has the *stock of each group, by name.
	stocks sync.Map
}

var _ cloudprovider.Provider = (*Provider)(nil)

// New returns a Provider.
func New(config Config) *Provider { return &Provider{Config: config} }

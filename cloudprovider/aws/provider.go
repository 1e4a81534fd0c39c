package aws

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/prices"
	"github.com/muster-dev/muster/cloudprovider/calls"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Config is what a Provider works with. Credentials come from the SDK's default
// chain alone.
type Config struct {
	// Region, for example us-east-1.
	Region string
	// Cluster is the cluster's name. Muster touches only what carries the tag
	// kubernetes.io/cluster/<Cluster>.
	Cluster string
	// ClusterUID tells clusters of the same name apart, see cloudprovider.Cluster.
	ClusterUID string
	// Endpoint stands in for the addresses of all services; empty for AWS's own.
	Endpoint string
	// Groups lists the NodeGroups of the cluster.
	Groups func(context.Context) ([]*v1alpha1.NodeGroup, error)
	Clock  clock.WithTicker
	// MayAct returns an error while another process may act in place of this one:
	// nothing is changed then. nil means that there is no other.
	MayAct func() error
	// InUse is consulted before machines are terminated that were not named, see
	// cloudprovider.Cluster.
	InUse cloudprovider.InUse
	// Transport stands in for the network, where a simulator runs in this process; nil for the network.
	Transport http.RoundTripper

	// unpaced leaves out what waits by the machine's own clock: the backoff between
	// tries of a call, and the limiter.
	unpaced bool
	// patience is how long a try of a call may take; zero for what AWS needs.
	patience time.Duration
}

// Provider is AWS in one region.
type Provider struct {
	*poll.Poller
	config     Config
	api        *api.Client
	prices     *prices.Table
	scores     scores
	placements placementGroups
	facts      facts

	// turns of the launches into an Auto Scaling group: no other one of this process counts what the group has meanwhile.
	turns calls.Turns

	mu sync.Mutex
	// made are the machines and reservations that calls have returned a short while ago, by ID:
	// the cloud's lists may not know of them yet.
	made map[string]made
}

type made struct {
	cloudprovider.Machine
	// autoScalingGroup that it counts against.
	autoScalingGroup string
	// places of a reservation that no list knows.
	places int
	at     time.Time
}

var (
	_ cloudprovider.Provider   = (*Provider)(nil)
	_ cloudprovider.Discoverer = (*Provider)(nil)
	_ cloudprovider.Examiner   = (*Provider)(nil)
	_ cloudprovider.Advisor    = (*Provider)(nil)
	_ cloudprovider.Expecter   = (*Provider)(nil)
)

// New returns a Provider.
func New(ctx context.Context, c Config) (*Provider, error) {
	switch {
	case c.Region == "":
		return nil, fmt.Errorf("region is empty: give the region of the cluster, for example us-east-1")
	case c.Cluster == "":
		return nil, fmt.Errorf("cluster is empty: give the name of the cluster, as in the tag %s<name>", clusterTag)
	case c.ClusterUID == "":
		return nil, fmt.Errorf("the cluster's UID is empty: give the UID of namespace kube-system")
	}
	client, err := api.New(ctx, api.Config{
		Region: c.Region, Endpoint: c.Endpoint, MayAct: c.MayAct, Unpaced: c.unpaced, Patience: c.patience, Transport: c.Transport,
	})
	if err != nil {
		return nil, err
	}
	p := &Provider{
		config: c, api: client, prices: prices.New(client, c.Region, c.Clock), made: map[string]made{}, placements: newPlacementGroups(),
	}
	p.Poller = poll.New(p.list, p.takeBack, c.Clock)
	return p, nil
}

// now is the time by the clock of AWS, for all that is compared with its times or with those that another process has written.
func (p *Provider) now() time.Time { return p.config.Clock.Now().Add(-p.api.Ahead()) }

// note remembers machines that a call has returned.
func (p *Provider) note(autoScalingGroup string, machines []cloudprovider.Machine) {
	p.mu.Lock()
	for _, m := range machines {
		p.made[m.Name] = made{Machine: m, autoScalingGroup: autoScalingGroup, at: p.config.Clock.Now()}
	}
	p.mu.Unlock()
	p.Note(machines...)
}

// fresh are the machines and reservations that a call has returned a short while ago, by ID.
func (p *Provider) fresh() map[string]made {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]made{}
	for id, m := range p.made {
		if p.config.Clock.Since(m.at) > poll.Grace {
			delete(p.made, id)
		} else {
			out[id] = m
		}
	}
	return out
}

func deref[T any](v *T) (out T) {
	if v != nil {
		out = *v
	}
	return out
}

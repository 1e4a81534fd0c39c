package aws

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/smithy-go/logging"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
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

	// unpaced leaves out what waits by the machine's own clock: the backoff between
	// tries of a call, and the limiter.
	unpaced bool
}

// Provider is AWS in one region.
type Provider struct {
	*poll.Poller
	config      Config
	ec2         *ec2.Client
	autoscaling *autoscaling.Client
	pricing     *pricing.Client
	eks         *eks
	prices      prices
	scores      scores
	placements  placementGroups

	// locks of the Auto Scaling groups, of *sync.Mutex by name: while one is held,
	// no other launch of this process counts what the group has.
	locks sync.Map

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
	sdk, err := config.LoadDefaultConfig(ctx, config.WithRegion(c.Region),
		config.WithRetryer(func() aws.Retryer { return newRetryer(c.unpaced) }),
		// What matters of it comes back as an error, too.
		config.WithLogger(logging.Nop{}))
	if err != nil {
		return nil, fmt.Errorf("configure AWS in region %s: %w", c.Region, err)
	}
	if !c.unpaced {
		sdk.APIOptions = append(sdk.APIOptions, newLimiter().addTo)
	}
	if c.MayAct != nil {
		sdk.APIOptions = append(sdk.APIOptions, permit(c.MayAct).addTo)
	}
	if c.Endpoint != "" {
		sdk.BaseEndpoint = aws.String(c.Endpoint)
	}
	p := &Provider{
		config: c, eks: newEKS(sdk), ec2: ec2.NewFromConfig(sdk), autoscaling: autoscaling.NewFromConfig(sdk), made: map[string]made{},
		placements: newPlacementGroups(),
		pricing:    pricing.NewFromConfig(sdk, func(o *pricing.Options) { o.Region = pricingRegion(c.Region) }),
	}
	p.Poller = poll.New(func(ctx context.Context) (poll.Listing, error) {
		machines, err := p.list(ctx)
		return poll.Listing{Machines: machines}, err
	}, p.takeBack, c.Clock)
	return p, nil
}

func (p *Provider) lock(autoScalingGroup string) *sync.Mutex {
	mu, _ := p.locks.LoadOrStore(autoScalingGroup, &sync.Mutex{})
	return mu.(*sync.Mutex)
}

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

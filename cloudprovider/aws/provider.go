package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/advice"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/discover"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/cloudprovider/aws/launch"
	"github.com/muster-dev/muster/cloudprovider/aws/permissions"
	"github.com/muster-dev/muster/cloudprovider/aws/placement"
	"github.com/muster-dev/muster/cloudprovider/aws/prices"
	"github.com/muster-dev/muster/cloudprovider/aws/quotas"
	"github.com/muster-dev/muster/cloudprovider/aws/terminate"
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
	// ClusterUID distinguishes clusters of the same name, see cloudprovider.Cluster.
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

// Provider is AWS in one region. Each package below does a part of its work.
type Provider struct {
	*poll.Poller
	api        *api.Client
	inventory  *inventory.Inventory
	placements *placement.Groups
	discoverer *discover.Discoverer
	terminator *terminate.Terminator
	launcher   *launch.Launcher
	scores     *advice.Scores
	examiner   *permissions.Examiner
}

var (
	_ cloudprovider.Provider   = (*Provider)(nil)
	_ cloudprovider.Discoverer = (*Provider)(nil)
	_ cloudprovider.Examiner   = (*Provider)(nil)
	_ cloudprovider.Advisor    = (*Provider)(nil)
	_ cloudprovider.Expecter   = (*Provider)(nil)

	_ cloudprovider.QuotaReader = (*Provider)(nil)
)

// New returns a Provider.
func New(ctx context.Context, c Config) (*Provider, error) {
	switch {
	case c.Region == "":
		return nil, fmt.Errorf("region is empty: give the region of the cluster, for example us-east-1")
	case c.Cluster == "":
		return nil, fmt.Errorf("cluster is empty: give the name of the cluster, as in the tag %s<name>", inventory.ClusterTag)
	case c.ClusterUID == "":
		return nil, fmt.Errorf("the cluster's UID is empty: give the UID of namespace kube-system")
	}
	if c.MayAct == nil {
		c.MayAct = func() error { return nil }
	}
	client, err := api.New(ctx, api.Config{
		Region: c.Region, Endpoint: c.Endpoint, MayAct: c.MayAct, Unpaced: c.unpaced, Timeout: c.patience, Transport: c.Transport,
	})
	if err != nil {
		return nil, err
	}
	p := &Provider{api: client}
	p.Poller = poll.New(p.list, p.terminate, c.Clock)
	cluster, table := inventory.Cluster{Name: c.Cluster, UID: c.ClusterUID}, prices.New(client, c.Region, c.Clock)
	p.inventory = inventory.New(client, inventory.Config{
		Cluster: cluster, Region: c.Region, NodeGroups: c.Groups, Clock: c.Clock, MayAct: c.MayAct, Watch: p.Poller,
	})
	p.placements = placement.New(client, placement.Config{Cluster: cluster, Clock: c.Clock, MayAct: c.MayAct})
	p.discoverer = discover.New(client, discover.Config{
		Region: c.Region, Inventory: p.inventory, Placements: p.placements, Prices: table, Clock: c.Clock,
	})
	p.terminator = terminate.New(client, p.inventory)
	p.launcher = launch.New(client, launch.Config{
		Region: c.Region, Inventory: p.inventory, Placements: p.placements, Terminator: p.terminator, Clock: c.Clock, InUse: c.InUse,
	})
	p.scores = advice.New(client, c.Region, c.Clock)
	p.examiner = permissions.New(client, permissions.Config{
		Region: c.Region, Inventory: p.inventory, Placements: p.placements, Prices: table,
	})
	return p, nil
}

// Discover implements cloudprovider.Discoverer.
func (p *Provider) Discover(ctx context.Context) (cloudprovider.Discovery, error) {
	return p.discoverer.Discover(ctx)
}

// Advise implements cloudprovider.Advisor.
func (p *Provider) Advise(ctx context.Context, groups []*v1alpha1.NodeGroup, count int) (map[string]cloudprovider.Advice, error) {
	return p.scores.Of(ctx, groups, count)
}

// MissingPermissions implements cloudprovider.Examiner.
func (p *Provider) MissingPermissions(ctx context.Context) ([]string, error) {
	return p.examiner.Missing(ctx)
}

// Quotas implements cloudprovider.QuotaReader.
func (p *Provider) Quotas(ctx context.Context, groups []cloudprovider.Found) ([]cloudprovider.Quota, error) {
	return quotas.Of(ctx, p.api, groups)
}

// Launch implements cloudprovider.Launcher.
func (p *Provider) Launch(ctx context.Context, req cloudprovider.LaunchRequest) ([]cloudprovider.Machine, error) {
	return p.launcher.Launch(ctx, req)
}

// ListedAt implements cloudprovider.Lister.
func (p *Provider) ListedAt(g *v1alpha1.NodeGroup) time.Time { return p.inventory.ListedAt(g) }

func (p *Provider) list(ctx context.Context) (poll.Listing, error) {
	listing, err := p.inventory.List(ctx)
	if err == nil {
		p.placements.Sweep(ctx, listing.PlacementGroups)
	}
	return listing.Listing, err
}

// terminate terminates machines and cancels holds. The kind of a name follows from its form, and Auto
// Scaling reports the owner of a machine, so it works for deleted groups, too.
func (p *Provider) terminate(ctx context.Context, _ string, names []string) error {
	var ids []string
	var errs []error
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "i-"):
			ids = append(ids, name)
		case strings.HasPrefix(name, "cr-"):
			errs = append(errs, p.terminator.Reservation(ctx, name))
		case strings.HasPrefix(name, inventory.HoldPrefix):
			errs = append(errs, p.launcher.Terminate(ctx, name))
		}
	}
	return errors.Join(append(errs, p.terminator.Machines(ctx, ids))...)
}

package gcp

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/advice"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/gcp/discover"
	"github.com/muster-dev/muster/cloudprovider/gcp/inventory"
	"github.com/muster-dev/muster/cloudprovider/gcp/launch"
	"github.com/muster-dev/muster/cloudprovider/gcp/permissions"
	"github.com/muster-dev/muster/cloudprovider/gcp/placement"
	"github.com/muster-dev/muster/cloudprovider/gcp/prices"
	"github.com/muster-dev/muster/cloudprovider/gcp/quotas"
	"github.com/muster-dev/muster/cloudprovider/gcp/template"
	"github.com/muster-dev/muster/cloudprovider/gcp/terminate"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Config is what a Provider works with.
type Config struct {
	// Project whose groups are discovered. NodeGroups name theirs.
	Project string
	// Cluster is the cluster's name, which the instance templates of its groups say. On GKE it
	// is GKE's.
	Cluster string
	// ClusterUID distinguishes clusters of the same name, see cloudprovider.Cluster.
	ClusterUID string
	// Location of a GKE cluster, its region or zone: GKE's names are unique within one.
	Location string
	// Groups lists the NodeGroups of the cluster, of all providers.
	Groups func(context.Context) ([]*v1alpha1.NodeGroup, error)
	Clock  clock.WithTicker
	// Endpoint stands for all of Google's services, without credentials: that of a
	// simulator. Empty for the real ones, with the credentials of the environment.
	Endpoint string
	// CallsPerSecond bounds the calls to the cloud, which refuses more than 25 a
	// second by default; 0 means 20.
	CallsPerSecond int
	// CallTimeout bounds the time that the cloud takes over a call; 0 means 30 seconds.
	CallTimeout time.Duration
	// MayAct returns an error while another process may act in place of this one:
	// nothing but reads is sent then. nil means that there is no other.
	MayAct func() error
	// InUse is consulted before machines are terminated that were not named, see
	// cloudprovider.Cluster.
	InUse cloudprovider.InUse
	// Transport stands in for the network, where a simulator runs in this process; nil for the network.
	Transport api.Transport
}

const (
	callsPerSecond = 20
	// burst is how many calls may come at once: those that take a gang of 64 back.
	burst       = 100
	callTimeout = 30 * time.Second
)

var validCluster = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?$`)

func (c *Config) validate() error {
	switch {
	case c.Project == "":
		return fmt.Errorf("the project of provider gcp is missing: give its ID, for example my-project")
	case !validCluster.MatchString(c.Cluster):
		return fmt.Errorf("the cluster of provider gcp is %q: it becomes the value of a label, so use lower-case letters, digits, hyphens and "+
			"underscores, 63 at most", c.Cluster)
	case !validCluster.MatchString(c.ClusterUID):
		return fmt.Errorf("the cluster UID of provider gcp is %q: it becomes the value of a label, so give the UID of namespace kube-system",
			c.ClusterUID)
	case c.CallsPerSecond < 0:
		return fmt.Errorf("the calls per second of provider gcp are %d: they must not be negative", c.CallsPerSecond)
	}
	return nil
}

// Provider is Google Cloud.
type Provider struct {
	project    string
	cloud      *api.Client
	poller     *poll.Poller
	inventory  *inventory.Inventory
	policies   *placement.Policies
	discoverer *discover.Discoverer
	launcher   *launch.Launcher
	terminator *terminate.Terminator
}

var (
	_ cloudprovider.Provider   = (*Provider)(nil)
	_ cloudprovider.Discoverer = (*Provider)(nil)
	_ cloudprovider.Examiner   = (*Provider)(nil)
	_ cloudprovider.Advisor    = (*Provider)(nil)
	_ cloudprovider.Expecter   = (*Provider)(nil)

	_ cloudprovider.QuotaReader = (*Provider)(nil)
)

// Bound is how long a machine of a launch that was given up can live, whichever way it
// was launched, while the cloud answers: lists may not know it for as long as
// poll.Grace, the look after that may be poll.Calm away, and the call that deletes it
// may fail a few times.
const Bound = poll.Grace + poll.Calm + 30*time.Second

// New returns a Provider. It makes no call.
func New(ctx context.Context, config Config) (*Provider, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	perSecond := cmp.Or(config.CallsPerSecond, callsPerSecond)
	cloud, err := api.New(ctx, api.Config{
		Endpoint: config.Endpoint, CallsPerSecond: perSecond, Burst: max(burst, perSecond),
		Timeout: cmp.Or(config.CallTimeout, callTimeout), MayAct: config.MayAct, Transport: config.Transport,
		Clock: config.Clock,
	})
	if err != nil {
		return nil, err
	}
	p := &Provider{project: config.Project, cloud: cloud}
	p.inventory = inventory.New(cloud, inventory.Config{
		Project: config.Project, Cluster: config.Cluster, ClusterUID: config.ClusterUID, NodeGroups: config.Groups, Clock: config.Clock,
	})
	templates := template.New(cloud, config.Cluster, config.Location)
	p.policies = placement.NewPolicies(cloud, p.inventory.Names, placement.Config{
		Cluster: config.Cluster, ClusterUID: config.ClusterUID, Clock: config.Clock, MayAct: config.MayAct,
	})
	p.discoverer = discover.New(cloud, discover.Config{
		Project: config.Project, Inventory: p.inventory, Templates: templates, Policies: p.policies, Prices: prices.New(cloud, config.Clock),
	})
	p.launcher = launch.New(cloud, launch.Config{
		Inventory: p.inventory, Templates: templates, Policies: p.policies, Dense: placement.NewDense(cloud, config.Clock),
	})
	p.terminator = terminate.New(cloud, p.inventory, config.InUse)
	p.poller = poll.New(p.list, p.terminator.Machines, config.Clock)
	return p, nil
}

// Watch implements cloudprovider.Watcher: the cloud is listed again and again.
func (p *Provider) Watch(ctx context.Context, observe func(cloudprovider.Machine), synced func()) error {
	return p.poller.Watch(ctx, observe, synced)
}

// Expect implements cloudprovider.Expecter.
func (p *Provider) Expect() { p.poller.Expect() }

// ListedAt implements cloudprovider.Lister.
func (p *Provider) ListedAt(g *v1alpha1.NodeGroup) time.Time {
	if g.Spec.GCP == nil {
		return time.Time{}
	}
	return p.poller.Oldest(p.inventory.Scopes(g)...)
}

// list the machines, and sweep the placement policies that none of them needs.
func (p *Provider) list(ctx context.Context) (poll.Listing, error) {
	listing, err := p.inventory.List(ctx)
	p.policies.Sweep(ctx, listing.Instances)
	return listing.Listing, err
}

// Discover implements cloudprovider.Discoverer.
func (p *Provider) Discover(ctx context.Context) (cloudprovider.Discovery, error) {
	return p.discoverer.Discover(ctx)
}

// Advise implements cloudprovider.Advisor.
func (p *Provider) Advise(ctx context.Context, groups []*v1alpha1.NodeGroup, count int) (map[string]cloudprovider.Advice, error) {
	return advice.Of(ctx, p.cloud, groups, count)
}

// MissingPermissions implements cloudprovider.Examiner.
func (p *Provider) MissingPermissions(ctx context.Context) ([]string, error) {
	return permissions.Missing(ctx, p.cloud, p.project)
}

// Quotas implements cloudprovider.QuotaReader.
func (p *Provider) Quotas(ctx context.Context, groups []cloudprovider.Found) ([]cloudprovider.Quota, error) {
	return quotas.Of(ctx, p.cloud, p.project, groups)
}

// Launch implements cloudprovider.Launcher, by the group's launch method.
func (p *Provider) Launch(ctx context.Context, req cloudprovider.LaunchRequest) ([]cloudprovider.Machine, error) {
	machines, err := p.launcher.Launch(ctx, req)
	p.poller.Note(slices.DeleteFunc(slices.Clone(machines), func(m cloudprovider.Machine) bool { return m.Hold })...)
	return machines, err
}

// Terminate implements cloudprovider.Terminator. What is terminated runs no pod of a gang any more, so that it
// is not paid for while a template would let its workload end. Members of the managed instance group
// are deleted by it, which lowers its target size by exactly them; all others one by
// one; resize requests are cancelled.
func (p *Provider) Terminate(ctx context.Context, group string, names []string) error {
	return p.poller.Terminate(ctx, group, names)
}

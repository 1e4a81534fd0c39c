package gcp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/calls"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/gcp/prices"
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
	// ClusterUID tells clusters of the same name apart, see cloudprovider.Cluster.
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
	Config
	names  names
	poller *poll.Poller
	cloud  *api.Client

	mu sync.Mutex
	// seen are the groups that there are or have been, by name: what was launched in a
	// group that has been deleted since is still to be listed and taken back.
	seen map[string]seenGroup
	// members are those of managed instance groups as they were last listed, and touched is when something last changed them.
	members map[api.Manager]members
	touched map[api.Manager]time.Time
	// silent are the zones and regions whose lists were not answered a moment ago.
	silent map[string]silent
	// discovered are the groups of each zone and region as they were last discovered.
	discovered map[string]cloudprovider.Discovery
	// beside counts the machines that stood beside managed instance groups when their zone was last listed.
	beside map[place]map[string]int
	// fresh are the machines that bulk inserts have been asked for, and when: lists may
	// not know them yet, and limits are to count them.
	fresh map[api.Manager]map[string]time.Time

	// starts are those of the members of managed instance groups, of which the cloud tells no
	// time, by the paths of the members.
	starts map[api.Manager]map[string]start

	// turns of the launches into a managed instance group: no other one runs between the check of a limit and the launch within it.
	turns calls.Turns

	templates templates
	prices    *prices.Book
	policies  *policies
	dense     *dense
}

var (
	_ cloudprovider.Provider   = (*Provider)(nil)
	_ cloudprovider.Discoverer = (*Provider)(nil)
	_ cloudprovider.Examiner   = (*Provider)(nil)
	_ cloudprovider.Advisor    = (*Provider)(nil)
	_ cloudprovider.Expecter   = (*Provider)(nil)
)

// seenGroup is a group as it was last seen, and when that was.
type seenGroup struct {
	*v1alpha1.NodeGroup
	at time.Time
}

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
	p := &Provider{
		Config: config, cloud: cloud, names: namesOf(config.ClusterUID), seen: map[string]seenGroup{},
		members: map[api.Manager]members{}, touched: map[api.Manager]time.Time{}, beside: map[place]map[string]int{},
		discovered: map[string]cloudprovider.Discovery{}, silent: map[string]silent{},
		fresh: map[api.Manager]map[string]time.Time{}, starts: map[api.Manager]map[string]start{},
	}
	p.policies, p.dense, p.prices = newPolicies(&config, cloud), newDense(cloud, config.Clock), prices.New(cloud, config.Clock)
	p.poller = poll.New(p.list, p.takeBack, config.Clock)
	return p, nil
}

// know remembers groups as they are now.
func (p *Provider) know(groups ...*v1alpha1.NodeGroup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range groups {
		if g.Spec.Provider == v1alpha1.ProviderGCP && g.Spec.GCP != nil {
			if old := p.seen[g.Name].NodeGroup; old != nil && launches(old) != launches(g) {
				p.touched[managerOf(g)] = p.Clock.Now()
			}
			p.seen[g.Name] = seenGroup{g, p.Clock.Now()}
		}
	}
}

// launches is the record of the launches of another process, which changes when it makes one.
func launches(g *v1alpha1.NodeGroup) string {
	return g.Annotations[v1alpha1.AutoscalerLaunchesAnnotation]
}

// touch notes that something changes the members of a managed instance group: it is listed often for a while.
func (p *Provider) touch(id api.Manager) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.touched[id] = p.Clock.Now()
}

// known are the groups that have been seen, by name.
func (p *Provider) known() []*v1alpha1.NodeGroup {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*v1alpha1.NodeGroup
	for _, name := range slices.Sorted(maps.Keys(p.seen)) {
		out = append(out, p.seen[name].NodeGroup)
	}
	return out
}

// refresh looks which NodeGroups there are.
func (p *Provider) refresh(ctx context.Context) (exist map[string]bool, err error) {
	groups, err := p.Groups(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing NodeGroups: %w", err)
	}
	exist = map[string]bool{}
	for _, g := range groups {
		p.know(g)
		exist[g.Name] = true
	}
	return exist, nil
}

// since is how long ago a time of the cloud was, by the clock of the cloud; 0 for an empty one.
func (p *Provider) since(stamp string) time.Duration {
	t, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return 0
	}
	return p.cloud.Now().Sub(t)
}

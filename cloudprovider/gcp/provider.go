package gcp

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"

	compute "cloud.google.com/go/compute/apiv1"
	"golang.org/x/time/rate"
	"google.golang.org/api/cloudbilling/v1"
	"google.golang.org/api/cloudresourcemanager/v1"
	"google.golang.org/api/option"
	htransport "google.golang.org/api/transport/http"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
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
	// MayAct returns an error while another process may act in place of this one:
	// nothing but plain reads is sent then. nil means that there is no other.
	MayAct func() error
	// InUse is consulted before machines are terminated that were not named, see
	// cloudprovider.Cluster.
	InUse cloudprovider.InUse
}

// burst is how many calls may come at once: those that take a gang of 64 back.
const burst = 100

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
	clients

	mu sync.Mutex
	// seen are the groups that there are or have been, by name: what was launched in a
	// group that has been deleted since is still to be listed and taken back.
	seen map[string]seenGroup
	// listed is what each part of the cloud held when it was last listed.
	listed map[string][]cloudprovider.Machine
	// fresh are the machines that bulk inserts have been asked for, and when: lists may
	// not know them yet, and limits are to count them.
	fresh map[managerID]map[string]time.Time

	// starts are those of the members of managed instance groups, of which the cloud tells no
	// time, by the paths of the members.
	starts map[managerID]map[string]start

	// locks of managed instance groups, *sync.Mutex by managerID: no other launch runs between
	// the check of a limit and the launch within it.
	locks sync.Map

	templates templates
	prices    prices
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

// clients of the cloud's services. All share one transport.
type clients struct {
	instances            *compute.InstancesClient
	zonalGroups          *compute.InstanceGroupManagersClient
	regionalGroups       *compute.RegionInstanceGroupManagersClient
	zonalRequests        *compute.InstanceGroupManagerResizeRequestsClient
	regionalRequests     *compute.RegionInstanceGroupManagerResizeRequestsClient
	zoneOperations       *compute.ZoneOperationsClient
	regionOperations     *compute.RegionOperationsClient
	globalTemplates      *compute.InstanceTemplatesClient
	regionTemplates      *compute.RegionInstanceTemplatesClient
	machineTypes         *compute.MachineTypesClient
	autoscalers          *compute.AutoscalersClient
	reservations         *compute.ReservationsClient
	reservationBlocks    *compute.ReservationBlocksClient
	reservationSubBlocks *compute.ReservationSubBlocksClient
	futureReservations   *compute.FutureReservationsClient
	resourcePolicies     *compute.ResourcePoliciesClient
	advice               *advice
	billing              *cloudbilling.APIService
	projects             *cloudresourcemanager.Service
}

// New returns a Provider. It makes no call.
func New(ctx context.Context, config Config) (*Provider, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	client, err := newClient(ctx, &config)
	if err != nil {
		return nil, fmt.Errorf("finding credentials for Google Cloud: %w", err)
	}
	p := &Provider{
		Config: config, names: names{cluster: hash(config.ClusterUID, clusterHash)}, seen: map[string]seenGroup{},
		listed: map[string][]cloudprovider.Machine{}, fresh: map[managerID]map[string]time.Time{}, starts: map[managerID]map[string]start{},
	}
	p.advice = newAdvice(client, config.Endpoint)
	options := []option.ClientOption{option.WithHTTPClient(client)}
	if config.Endpoint != "" {
		options = append(options, option.WithEndpoint(config.Endpoint))
	}
	if err := p.dial(ctx, options); err != nil {
		return nil, fmt.Errorf("making a client for Google Cloud: %w", err)
	}
	p.policies, p.dense = newPolicies(p), &dense{Provider: p, chosen: map[string]choice{}}
	p.poller = poll.New(func(ctx context.Context) (poll.Listing, error) {
		machines, err := p.list(ctx)
		return poll.Listing{Machines: machines}, err
	}, p.takeBack, config.Clock)
	return p, nil
}

// newClient returns the one of all services: its transport holds calls back.
func newClient(ctx context.Context, c *Config) (*http.Client, error) {
	auth := []option.ClientOption{option.WithScopes("https://www.googleapis.com/auth/cloud-platform")}
	if c.Endpoint != "" {
		auth = []option.ClientOption{option.WithoutAuthentication()}
	}
	perSecond := c.CallsPerSecond
	if perSecond == 0 {
		perSecond = 20
	}
	transport, err := htransport.NewTransport(ctx, http.DefaultTransport.(*http.Transport).Clone(), auth...)
	if err != nil {
		return nil, err
	}
	limited := &limited{transport, rate.NewLimiter(rate.Limit(perSecond), max(burst, perSecond)), c.MayAct}
	return &http.Client{Transport: limited}, nil
}

// limited holds calls back that come too fast, and refuses those that may not go out
// any more when their turn comes.
type limited struct {
	http.RoundTripper
	limiter *rate.Limiter
	mayAct  func() error
}

func (l *limited) RoundTrip(r *http.Request) (*http.Response, error) {
	err := l.limiter.Wait(r.Context())
	if err == nil && l.mayAct != nil && r.Method != http.MethodGet {
		err = l.mayAct()
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as every RoundTripper has to
		}
		return nil, err
	}
	return l.RoundTripper.RoundTrip(r)
}

func (p *Provider) dial(ctx context.Context, o []option.ClientOption) error {
	var err error
	for _, dial := range []func(){
		func() { p.instances, err = compute.NewInstancesRESTClient(ctx, o...) },
		func() { p.reservations, err = compute.NewReservationsRESTClient(ctx, o...) },
		func() { p.reservationBlocks, err = compute.NewReservationBlocksRESTClient(ctx, o...) },
		func() { p.reservationSubBlocks, err = compute.NewReservationSubBlocksRESTClient(ctx, o...) },
		func() { p.futureReservations, err = compute.NewFutureReservationsRESTClient(ctx, o...) },
		func() { p.zonalGroups, err = compute.NewInstanceGroupManagersRESTClient(ctx, o...) },
		func() { p.regionalGroups, err = compute.NewRegionInstanceGroupManagersRESTClient(ctx, o...) },
		func() { p.zonalRequests, err = compute.NewInstanceGroupManagerResizeRequestsRESTClient(ctx, o...) },
		func() {
			p.regionalRequests, err = compute.NewRegionInstanceGroupManagerResizeRequestsRESTClient(ctx, o...)
		},
		func() { p.zoneOperations, err = compute.NewZoneOperationsRESTClient(ctx, o...) },
		func() { p.regionOperations, err = compute.NewRegionOperationsRESTClient(ctx, o...) },
		func() { p.globalTemplates, err = compute.NewInstanceTemplatesRESTClient(ctx, o...) },
		func() { p.regionTemplates, err = compute.NewRegionInstanceTemplatesRESTClient(ctx, o...) },
		func() { p.machineTypes, err = compute.NewMachineTypesRESTClient(ctx, o...) },
		func() { p.autoscalers, err = compute.NewAutoscalersRESTClient(ctx, o...) },
		func() { p.resourcePolicies, err = compute.NewResourcePoliciesRESTClient(ctx, o...) },
		func() { p.billing, err = cloudbilling.NewService(ctx, o...) },
		func() { p.projects, err = cloudresourcemanager.NewService(ctx, o...) },
	} {
		if dial(); err != nil {
			return err
		}
	}
	return nil
}

// know remembers groups as they are now.
func (p *Provider) know(groups ...*v1alpha1.NodeGroup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range groups {
		if g.Spec.Provider == v1alpha1.ProviderGCP && g.Spec.GCP != nil {
			p.seen[g.Name] = seenGroup{g, p.Clock.Now()}
		}
	}
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

// waits is how often a call waits for its operation. Each wait is one call that the
// cloud answers when the operation is done, after two minutes at the latest.
const waits = 2

// since is how long ago a time was that the cloud told; 0 where it told none.
func (p *Provider) since(stamp string) time.Duration {
	t, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return 0
	}
	return p.Clock.Since(t)
}

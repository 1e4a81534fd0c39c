package aws

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/cloudprovider/aws/permissions"
	"github.com/muster-dev/muster/cloudprovider/conformance"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	region  = "us-east-1"
	cluster = "prod"
	// clusterUID is the UID of the cluster's namespace kube-system.
	clusterUID = "6f1d9b1e-3c0e-4f53-9c38-6f6a7b1e0c11"
	group      = "gpu"
	kind       = "p5.48xlarge"
	zone       = "us-east-1a"
	subnet     = "subnet-a"
	token      = "0c7a8e34-6c5e-4ad0-8f43-0d1f6f2b6c11-1"
	// Tags that say how the machines of a group are launched, and what their nodes have.
	methodTag   = "muster.dev/launch-method"
	templateTag = "k8s.io/cluster-autoscaler/node-template/"
	labelTag    = templateTag + "label/"
	taintTag    = templateTag + "taint/"
	resourceTag = templateTag + "resources/"
	// cloudGroupLabel is the node label by which nodes of a launch in flight are known when they register.
	cloudGroupLabel = "muster.dev/cloud-group"
	// patience is how long the adapters of tests with a cloud that does not answer wait for it.
	patience = 250 * time.Millisecond
)

var spotPool = cloudsim.PoolKey{Cloud: v1alpha1.ProviderAWS, Type: kind, Zone: zone, CapacityType: v1alpha1.Spot}
var demandPool = cloudsim.PoolKey{Cloud: v1alpha1.ProviderAWS, Type: kind, Zone: zone, CapacityType: v1alpha1.OnDemand}
var reservedPool = cloudsim.PoolKey{Cloud: v1alpha1.ProviderAWS, Type: kind, Zone: zone, CapacityType: v1alpha1.Reserved}

// seenPermissions are those that the tests of the package have needed.
var (
	seenMu          sync.Mutex
	seenPermissions = map[string]bool{}
)

func TestMain(m *testing.M) {
	for k, v := range map[string]string{
		"AWS_ACCESS_KEY_ID": "simulated", "AWS_SECRET_ACCESS_KEY": "simulated", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CA_BUNDLE": "", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		if realCloud() {
			break
		}
		if err := os.Setenv(k, v); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	code := m.Run()
	if whole := flag.Lookup("test.run").Value.String() == ""; code == 0 && whole {
		var seen []string
		for s := range seenPermissions {
			seen = append(seen, s)
		}
		slices.Sort(seen)
		if diff := cmp.Diff(permissions.Names(), seen); diff != "" {
			fmt.Fprintf(os.Stderr, "Permissions() against the calls of all tests (-listed +needed):\n%s", diff)
			code = 1
		}
	}
	os.Exit(code)
}

// sim is a simulated AWS with clients.
type sim struct {
	t     *testing.T
	clock *clocktesting.FakeClock
	// slow is the clock of the world.
	slow   *conformance.SlowClock
	world  *cloudsim.World
	front  *simaws.Front
	server *httptest.Server
	groups []*v1alpha1.NodeGroup
	// patience of the adapters; zero for that of AWS.
	patience time.Duration
}

func newSim(t *testing.T, world cloudsim.Config, account simaws.Config) *sim {
	t.Helper()
	s := &sim{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))}
	s.slow = conformance.NewSlowClock(s.clock)
	var err error
	if s.world, err = cloudsim.New(world, s.slow); err != nil {
		t.Fatal(err)
	}
	if s.front, err = simaws.New(account, s.world); err != nil {
		t.Fatal(err)
	}
	s.server = httptest.NewServer(s.world.Handler(s.front))
	t.Cleanup(func() {
		s.server.Close()
		seenMu.Lock()
		defer seenMu.Unlock()
		for _, p := range s.front.Seen() {
			seenPermissions[p] = true
		}
	})
	return s
}

// provider is a new adapter, as after a restart: it knows nothing of the one before.
func (s *sim) provider() *Provider { return s.providerThat(nil) }

// providerThat changes something only while it may.
func (s *sim) providerThat(mayAct func() error) *Provider { return s.providerOf(clusterUID, mayAct) }

// providerOf works for the cluster of that UID; its name is the same for all.
func (s *sim) providerOf(uid string, mayAct func() error) *Provider {
	s.t.Helper()
	return s.providerWith(func(c *Config) { c.ClusterUID, c.MayAct = uid, mayAct })
}

// providerWith has a changed Config.
func (s *sim) providerWith(change func(*Config)) *Provider {
	s.t.Helper()
	c := Config{
		Region: region, Cluster: cluster, ClusterUID: clusterUID, Endpoint: s.server.URL, Clock: s.clock, unpaced: true, patience: s.patience,
		Groups: func(context.Context) ([]*v1alpha1.NodeGroup, error) { return s.groups, nil },
	}
	change(&c)
	p, err := New(context.Background(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// account has one group that allows for everything.
func account(change ...func(*simaws.Config)) simaws.Config {
	c := simaws.Config{
		Region:    region,
		Subnets:   []simaws.Subnet{{ID: subnet, Zone: zone}, {ID: "subnet-b", Zone: "us-east-1b"}},
		Types:     []simaws.Type{{Name: kind, VCPUs: 192, MemoryMiB: 2 << 20, GPUs: 8, GPUMaker: "NVIDIA", OnDemandUSD: "55.0400000000"}},
		Templates: []simaws.Template{{ID: "lt-1", Name: "gpu", Type: kind, Profile: "nodes", Key: "key-1"}},
		// The caller may do what deploy/clouds grants.
		Cluster: cluster,
		Groups: []simaws.Group{{
			Name: group, Max: 256, Template: "gpu", Subnets: []string{subnet},
			Suspended: []string{"ReplaceUnhealthy", "AZRebalance"},
			Tags: map[string]string{
				"muster.dev/enabled": "", inventory.ClusterTag + cluster: inventory.Owned, inventory.ClusterUIDTag: clusterUID,
			},
		}},
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func plenty(change ...func(*cloudsim.Config)) cloudsim.Config {
	c := cloudsim.Config{Pools: []cloudsim.Pool{{PoolKey: demandPool}, {PoolKey: spotPool}}}
	for i := range c.Pools {
		c.Pools[i].Script.BootDelay = metav1.Duration{Duration: time.Minute}
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func holds(n int32) func(*cloudsim.Config) {
	return func(c *cloudsim.Config) {
		for i := range c.Pools {
			c.Pools[i].Script.Holds = &n
		}
	}
}

func fault(action string, kind cloudsim.CallFaultType, calls ...int64) func(*cloudsim.Config) {
	return func(c *cloudsim.Config) {
		f := cloudsim.CallFault{Cloud: v1alpha1.ProviderAWS, Action: action, Type: kind, Calls: calls}
		if kind == cloudsim.CallRefused {
			f.Error = &cloudsim.Error{Status: 503, Code: "RequestLimitExceeded", Message: "Request limit exceeded."}
		}
		c.Calls = append(c.Calls, f)
	}
}

// tagsFail has the calls lost that tag the machines of one launch.
func tagsFail() func(*cloudsim.Config) {
	var calls []int64
	for i := range api.TagTries {
		calls = append(calls, int64(i))
	}
	return fault("CreateTags", cloudsim.CallLost, calls...)
}

func lag(d time.Duration) func(*cloudsim.Config) {
	return func(c *cloudsim.Config) { c.Lag.Duration = d }
}

func tagLag(d time.Duration) func(*cloudsim.Config) {
	return func(c *cloudsim.Config) { c.TagLag.Duration = d }
}

// nodeGroup is the offering that the tests launch.
func nodeGroup(method v1alpha1.AWSLaunchMethod, capacityType v1alpha1.CapacityType) *v1alpha1.NodeGroup {
	return &v1alpha1.NodeGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu-a"},
		Spec: v1alpha1.NodeGroupSpec{
			Provider: v1alpha1.ProviderAWS, Zone: zone, CapacityType: capacityType, MaxNodes: 256,
			AWS: &v1alpha1.AWSGroup{Region: region, AutoScalingGroup: group, InstanceType: kind, Subnet: subnet, LaunchMethod: method},
		},
	}
}

func request(g *v1alpha1.NodeGroup, count int, token string) cloudprovider.LaunchRequest {
	return cloudprovider.LaunchRequest{Group: g, Count: count, Token: token, Request: "team/train"}
}

// alive are the instances that cost something, by the token that their tags carry.
func (s *sim) alive() map[string]int {
	out := map[string]int{}
	for _, in := range s.world.Instances(true) {
		if in.Phase != cloudsim.Terminated {
			out[in.Tags[inventory.LaunchTag]]++
		}
	}
	return out
}

// reservedPlaces are those that cost something, or will.
func (s *sim) reservedPlaces() (n int) {
	for _, r := range s.world.Reservations() {
		if r.EndedAt.IsZero() {
			n += r.Count
		}
	}
	return n
}

// launched are the machines of a launch under the token.
func (s *sim) launched(p *Provider, g *v1alpha1.NodeGroup, count int) []cloudprovider.Machine {
	s.t.Helper()
	machines, err := p.Launch(context.Background(), request(g, count, token))
	if err != nil {
		s.t.Fatal(err)
	}
	return machines
}

// listed is what a watch would report.
func (s *sim) listed(p *Provider) []cloudprovider.Machine {
	s.t.Helper()
	list, err := p.list(context.Background())
	if err != nil {
		s.t.Fatalf("list: %v", err)
	}
	return list.Machines
}

// known are the machines and holds that are not unattributed.
func known(list []cloudprovider.Machine) []cloudprovider.Machine {
	return slices.DeleteFunc(list, func(m cloudprovider.Machine) bool { return m.Unattributed })
}

func names(list []cloudprovider.Machine) (out []string) {
	for _, m := range list {
		out = append(out, m.Name)
	}
	return out
}

package aws

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/prices"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func curve(list ...string) []cloudsim.Price {
	var out []cloudsim.Price
	for i, p := range list {
		out = append(out, cloudsim.Price{From: metav1.Duration{Duration: time.Duration(i) * time.Hour}, PerHour: resource.MustParse(p)})
	}
	return out
}

func TestPrices(t *testing.T) {
	s := newSim(t, plenty(func(c *cloudsim.Config) { c.Pools[1].Prices = curve("18.123456", "19", "20") }),
		account(func(c *simaws.Config) {
			c.Groups[0].Mixed = &simaws.Mixed{OnDemandPercent: 50}
			c.Types[0].OnDemandUSD, c.PageSize = "56.5000000000", 1
		}))
	p := s.provider()
	for _, step := range []struct {
		name            string
		after           time.Duration
		demand, spot    string
		products, spot2 int64
	}{
		{"at first both are asked for", 0, "56500m", "18123456u", 1, 1},
		{"a minute later neither", time.Minute, "56500m", "18123456u", 1, 1},
		{"in the second hour Spot is", time.Hour, "56500m", "19", 1, 2},
		{"after twelve hours both", 12 * time.Hour, "56500m", "20", 2, 3},
	} {
		s.clock.Step(step.after)
		d, err := p.Discover(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		got := map[v1alpha1.CapacityType]string{}
		for _, f := range d.Groups {
			got[f.Spec.CapacityType] = f.Spec.PricePerHour.String()
		}
		want := map[v1alpha1.CapacityType]string{v1alpha1.OnDemand: step.demand, v1alpha1.Spot: step.spot}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: prices (-want +got):\n%s", step.name, diff)
		}
		calls := s.world.Calls(v1alpha1.ProviderAWS)
		if calls["GetProducts"] != step.products || calls["DescribeSpotPriceHistory"] != step.spot2 {
			t.Errorf("%s: %d and %d calls, want %d and %d", step.name, calls["GetProducts"], calls["DescribeSpotPriceHistory"],
				step.products, step.spot2)
		}
	}
}

func TestPricesNeverFailADiscovery(t *testing.T) {
	s := newSim(t, plenty(fault("GetProducts", cloudsim.CallLost), fault("DescribeSpotPriceHistory", cloudsim.CallRefused)),
		account(func(c *simaws.Config) { c.Groups[0].Mixed = &simaws.Mixed{OnDemandPercent: 50} }))
	got := map[v1alpha1.CapacityType]string{}
	for _, f := range discovery(t, s).Groups {
		got[f.Spec.CapacityType] = f.Spec.PricePerHour.String()
	}
	want := map[v1alpha1.CapacityType]string{v1alpha1.OnDemand: "55040m", v1alpha1.Spot: "18730m"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the table's prices (-want +got):\n%s", diff)
	}
}

// Prices that could not be had are requested again in minutes.
func TestAMissingPriceIsFetchedAgain(t *testing.T) {
	s := newSim(t, plenty(fault("GetProducts", cloudsim.CallLost, 0, 1, 2), func(c *cloudsim.Config) { c.Pools[0].Type = "x1.novel" }),
		account(func(c *simaws.Config) {
			c.Types[0].Name, c.Types[0].OnDemandUSD, c.Templates[0].Type = "x1.novel", "7", "x1.novel"
		}))
	p := s.provider()
	price := func() string {
		d, err := p.Discover(context.Background())
		if err != nil || len(d.Groups) != 1 {
			t.Fatalf("discovery: %+v, %v", d, err)
		}
		if d.Groups[0].Spec.PricePerHour == nil {
			return "unknown"
		}
		return d.Groups[0].Spec.PricePerHour.String()
	}
	if got := price(); got != "unknown" {
		t.Errorf("the price is %s while the price list cannot be read, want that it is unknown", got)
	}
	s.clock.Step(prices.Again)
	if got := price(); got != "7" {
		t.Errorf("the price is %s when the price list can be read again, want 7", got)
	}
}

// A price list that never answers, as from a private network, does not hold discovery up.
func TestAHangingPriceListHoldsNothingUp(t *testing.T) {
	s := newSim(t, plenty(), account())
	handler, over := s.world.Handler(s.front), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.front.Action(r) == "GetProducts" {
			<-over
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) })
	s.server.Close()
	s.server = server
	p := s.provider()
	found := make(chan int)
	go func() {
		d, err := p.Discover(context.Background())
		if err != nil {
			t.Error(err)
		}
		found <- len(d.Groups)
	}()
	for s.clock.Waiters() == 0 {
		runtime.Gosched()
	}
	s.clock.Step(prices.Patience)
	if n := <-found; n != 1 {
		t.Errorf("%d groups were found, want 1", n)
	}
}

func TestAdvice(t *testing.T) {
	types := []string{kind, "p5en.48xlarge", "p4d.24xlarge"}
	s := newSim(t, plenty(), account(func(c *simaws.Config) {
		c.Scores = []simaws.Score{{Type: kind, Zone: zone, Score: 7}, {Type: kind, Zone: "us-east-1b", Score: 2}}
	}))
	var groups []*v1alpha1.NodeGroup
	add := func(name, of, kind, subnet string, capacityType v1alpha1.CapacityType) {
		g := nodeGroup(v1alpha1.AWSFleet, capacityType)
		g.Name, g.Spec.AWS.AutoScalingGroup, g.Spec.AWS.InstanceType, g.Spec.AWS.Subnet = name, of, kind, subnet
		groups = append(groups, g)
	}
	for _, k := range types {
		add("a-"+k, "mixed", k, subnet, v1alpha1.Spot)
	}
	add("b", "mixed", kind, "subnet-b", v1alpha1.Spot)
	add("demand", "mixed", kind, subnet, v1alpha1.OnDemand)
	add("alone", "single", kind, subnet, v1alpha1.Spot)
	groups = append(groups, &v1alpha1.NodeGroup{})
	p := s.provider()
	for _, count := range []int{60, 64} {
		got, err := p.Advise(context.Background(), groups, count)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]cloudprovider.Advice{"b": {Chance: 150, Source: "GetSpotPlacementScores"}}
		for _, k := range types {
			want["a-"+k] = cloudprovider.Advice{Chance: 650, Source: "GetSpotPlacementScores"}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("advice (-want +got):\n%s", diff)
		}
	}
	if n := s.world.Calls(v1alpha1.ProviderAWS)["GetSpotPlacementScores"]; n != 1 {
		t.Errorf("%d scores were asked for, want 1: 60 and 64 machines are the same question", n)
	}
	s.clock.Step(2 * time.Hour)
	if _, err := p.Advise(context.Background(), groups, 64); err != nil || s.world.Calls(v1alpha1.ProviderAWS)["GetSpotPlacementScores"] != 2 {
		t.Errorf("%v: an old score is asked for again", err)
	}
}

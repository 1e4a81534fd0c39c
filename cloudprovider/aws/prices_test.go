package aws

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func curve(prices ...string) []cloudsim.Price {
	var out []cloudsim.Price
	for i, p := range prices {
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
			t.Errorf("%s: %d and %d calls, want %d and %d", step.name, calls["GetProducts"], calls["DescribeSpotPriceHistory"], step.products, step.spot2)
		}
	}
}

func TestPricesNeverFailADiscovery(t *testing.T) {
	s := newSim(t, plenty(fault("GetProducts", cloudsim.CallLost), fault("DescribeSpotPriceHistory", cloudsim.CallRefused)),
		account(func(c *simaws.Config) { c.Groups[0].Mixed = &simaws.Mixed{OnDemandPercent: 50} }))
	got := map[v1alpha1.CapacityType]string{}
	for _, f := range discover(t, s).Groups {
		got[f.Spec.CapacityType] = f.Spec.PricePerHour.String()
	}
	want := map[v1alpha1.CapacityType]string{v1alpha1.OnDemand: "55040m", v1alpha1.Spot: "18730m"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the table's prices (-want +got):\n%s", diff)
	}
}

func TestTheTableOfPrices(t *testing.T) {
	var none prices
	for kind, floor := range floors {
		for _, market := range []v1alpha1.CapacityType{v1alpha1.OnDemand, v1alpha1.Spot, v1alpha1.Reserved} {
			micro, ok := none.of(kind, zone, market)
			switch {
			case market == v1alpha1.Reserved && (micro != 0 || !ok):
				t.Errorf("%s reserved costs %d", kind, micro)
			case market == v1alpha1.OnDemand && ok != (floor.onDemand > 0):
				t.Errorf("%s on demand: known %v", kind, ok)
			case market == v1alpha1.Spot && (!ok || floor.onDemand > 0 && micro > floor.onDemand*1000):
				t.Errorf("%s on Spot costs %d, on demand %d", kind, micro, floor.onDemand*1000)
			}
		}
	}
	if _, ok := none.of("x1.novel", zone, v1alpha1.OnDemand); ok {
		t.Error("a type that nobody knows has a price")
	}
}

func TestPricingRegion(t *testing.T) {
	for region, want := range map[string]string{"us-west-2": "us-east-1", "eu-west-3": "eu-central-1", "ap-east-1": "ap-south-1", "cn-north-1": "cn-northwest-1", "sa-east-1": "us-east-1"} {
		if got := pricingRegion(region); got != want {
			t.Errorf("%s: got %s, want %s", region, got, want)
		}
	}
}

func TestAdvice(t *testing.T) {
	types := []string{kind, "p5en.48xlarge", "p4d.24xlarge"}
	s := newSim(t, plenty(), account(func(c *simaws.Config) {
		c.Scores = []simaws.Score{{Type: kind, Zone: zone, Score: 7}, {Type: kind, Zone: "us-east-1b", Score: 2}}
	}))
	var groups []*v1alpha1.NodeGroup
	add := func(name, of, kind, subnet string, market v1alpha1.CapacityType) {
		g := nodeGroup(v1alpha1.AWSFleet, market)
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
	s.clock.Step(2 * scoreFor)
	if _, err := p.Advise(context.Background(), groups, 64); err != nil || s.world.Calls(v1alpha1.ProviderAWS)["GetSpotPlacementScores"] != 2 {
		t.Errorf("%v: an old score is asked for again", err)
	}
}

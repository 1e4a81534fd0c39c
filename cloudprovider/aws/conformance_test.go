package aws

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/conformance"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func TestConformance(t *testing.T) {
	for _, tc := range []struct {
		method       v1alpha1.AWSLaunchMethod
		capacityType v1alpha1.CapacityType
		// action is the call that makes something.
		action string
		// together is the level within which the machines of each launch must be; empty for anywhere.
		together string
	}{
		{v1alpha1.AWSFleet, v1alpha1.Spot, "CreateFleet", ""},
		{v1alpha1.AWSFleet, v1alpha1.OnDemand, "CreateFleet", ""},
		{v1alpha1.AWSFleet, v1alpha1.OnDemand, "CreateFleet", rack},
		{v1alpha1.AWSReservation, v1alpha1.OnDemand, "RunInstances", ""},
		{v1alpha1.AWSReservation, v1alpha1.OnDemand, "RunInstances", rack},
		{v1alpha1.AWSReservation, v1alpha1.OnDemand, "CreatePlacementGroup", rack},
		{v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand, "LaunchInstances", ""},
	} {
		t.Run(strings.Join([]string{string(tc.method), string(tc.capacityType), tc.action, tc.together}, " "), func(t *testing.T) {
			conformance.Run(t, func(t *testing.T) *conformance.Cloud {
				c := conformingCloud(t, tc.method, tc.capacityType, tc.action)
				c.Together.Level = tc.together
				return c
			})
		})
	}
}

// conformingCloud has a group of its own and lists that lag.
func conformingCloud(t *testing.T, method v1alpha1.AWSLaunchMethod, capacityType v1alpha1.CapacityType, action string) *conformance.Cloud {
	s := newSim(t, plenty(elsewhere, lag(3*time.Second), tagLag(8*time.Second), racksOf(3, 5, 5)), account(func(c *simaws.Config) {
		c.Groups[0].Max = conformance.MaxNodes
		other := c.Groups[0]
		other.Name, other.Subnets = "gpu-elsewhere", []string{"subnet-b"}
		c.Groups = append(c.Groups, other)
	}))
	g, other := nodeGroup(method, capacityType), nodeGroup(method, capacityType)
	other.Name, other.Spec.Zone = "gpu-b", zoneElsewhere
	other.Spec.AWS.AutoScalingGroup, other.Spec.AWS.Subnet = "gpu-elsewhere", "subnet-b"
	g.Spec.MaxNodes, other.Spec.MaxNodes = conformance.MaxNodes, conformance.MaxNodes
	s.patience = patience
	s.groups = []*v1alpha1.NodeGroup{g, other}
	hit := func(kind cloudsim.CallFaultType, delay time.Duration, calls int) {
		s.world.HitNext(cloudsim.CallFault{
			Cloud: v1alpha1.ProviderAWS, Action: action, Type: kind, Delay: metav1.Duration{Duration: delay},
		}, calls)
	}
	without := map[string]string{
		"Gathers":    "placement groups are tried with Fleet and Reservation on demand",
		"RefuseTags": "machines of Fleet and Reservation are born with their tags",
	}
	var gathers *conformance.Gathering
	if method != v1alpha1.AWSLaunchInstances && capacityType == v1alpha1.OnDemand {
		gathers = &conformance.Gathering{Level: rack, Strict: true, Where: s.racks, Made: s.front.PlacementGroups}
		delete(without, "Gathers")
	}
	var refuseTags func()
	if method == v1alpha1.AWSLaunchInstances {
		refuseTags = func() { s.refuseTags("InvalidInstanceID.NotFound", api.TagTries) }
		delete(without, "RefuseTags")
	}
	return &conformance.Cloud{
		Group: g, Gathers: gathers, RefuseTags: refuseTags, Without: without,
		Connect: func() cloudprovider.Provider { return s.provider() },
		Hold: func(n int) {
			for _, p := range s.world.Pools() {
				s.world.Hold(p.PoolKey, int32(n))
			}
		},
		Alive: func() (out []string) {
			for _, line := range s.world.Bill() {
				if line.Open {
					out = append(out, line.ID)
				}
			}
			// The tag by which a call is announced is no machine, but has to go.
			for _, m := range s.listed(s.provider()) {
				if m.Hold && !slices.Contains(out, m.Name) {
					out = append(out, m.Name)
				}
			}
			return out
		},
		End:    func(name string) { s.world.EndAt(name, s.clock.Now()) },
		Forget: func() { s.front.ListTerminated(time.Second) },
		Stop:   s.world.Stop, IgnoreTerminations: s.world.IgnoreTerminations,
		LoseReply: func() { hit(cloudsim.ReplyLost, 0, 1) },
		Delay:     func(d time.Duration) { hit(cloudsim.CallLate, d, 3) }, // the client tries three times
		Slow:      func(d time.Duration) { hit(cloudsim.CallSlow, d, 1) },
		Harm:      s.harm, Patience: patience,
		Elsewhere: other,
		Away: func() (end func()) {
			s.front.SetUnreachable(zoneElsewhere)
			return func() { s.front.SetUnreachable() }
		},
		Pass: func(d time.Duration) { s.clock.Step(d) },
	}
}

// zoneElsewhere is that of subnet-b.
const zoneElsewhere = "us-east-1b"

// elsewhere has pools in that zone, too.
func elsewhere(c *cloudsim.Config) {
	for _, p := range slices.Clone(c.Pools) {
		p.Zone = zoneElsewhere
		c.Pools = append(c.Pools, p)
	}
}

// reads are the calls that launches, terminations and lists make and that change nothing.
var reads = []string{
	"DescribeAutoScalingGroups", "DescribeAutoScalingInstances", "DescribeCapacityReservationTopology", "DescribeCapacityReservations",
	"DescribeInstanceTypes", "DescribeInstances", "DescribeLaunchTemplateVersions", "DescribePlacementGroups", "DescribeSubnets",
}

// makers are the calls that make machines, or hold places for them.
var makers = []string{"CreateCapacityReservation", "CreateFleet", "LaunchInstances", "RunInstances"}

// harm has calls of AWS go wrong until end is called.
func (s *sim) harm(h conformance.Harm, calls conformance.Calls) (end func()) {
	f := cloudsim.CallFault{Cloud: v1alpha1.ProviderAWS, Type: cloudsim.CallRefused}
	switch h {
	case conformance.Fails:
		f.Error = &cloudsim.Error{Status: http.StatusInternalServerError, Code: "InternalError", Message: "An internal error has occurred"}
	case conformance.Hangs:
		f.Type = cloudsim.CallUnanswered
	case conformance.Throttled:
		f.Error = s.front.Throttled()
	case conformance.Denied:
		f.Error = &cloudsim.Error{Status: http.StatusForbidden, Code: "ExpiredToken",
			Message: "The security token included in the request is expired"}
	}
	actions := []string{""}
	switch calls {
	case conformance.Reads:
		actions = reads
	case conformance.Launches:
		actions = makers
	}
	var ends []func()
	for _, f.Action = range actions {
		ends = append(ends, s.world.Harm(f))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

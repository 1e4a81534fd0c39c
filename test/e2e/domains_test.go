package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// A gang that requires one rack gets all of its machines in one, although only the cloud has the racks and reports them late, or it keeps
// no machine.
func TestAGangIsInOneRackOrNowhere(t *testing.T) {
	t.Parallel()
	const rack = "example.com/rack"
	for _, tc := range []struct {
		name      string
		placement v1alpha1.KwokPlacement
		racks     []v1alpha1.KwokDomain
		count     int32
		// in is the rack that the gang gets; empty where it gets none, for the reason.
		in, reason string
	}{
		{"together", v1alpha1.PlacedTogether, []v1alpha1.KwokDomain{{Name: "small", Machines: 8}, {Name: "large", Machines: 16}}, 16, "large", ""},
		{"what is elsewhere comes again", v1alpha1.PlacedScattered, []v1alpha1.KwokDomain{{Name: "full", Machines: 1}, {Name: "large", Machines: 8}}, 4, "large", ""},
		{"nowhere", v1alpha1.PlacedScattered, []v1alpha1.KwokDomain{{Name: "a", Machines: 2}, {Name: "b", Machines: 2}, {Name: "c", Machines: 2}}, 6, "",
			"the machines are scattered over domains of " + rack},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t)
			g := s.Group("", func(g *v1alpha1.NodeGroup) {
				g.Spec.MaxNodes = 16
				g.Spec.Topology = []v1alpha1.TopologyLevel{{NodeLabel: rack}}
				g.Spec.Kwok.Domains = &v1alpha1.KwokDomains{NodeLabel: rack, Of: tc.racks, Placement: tc.placement,
					LabelDelay: metav1.Duration{Duration: time.Second}}
			})
			s.Create(&v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.Name},
				Spec: v1alpha1.CapacityPolicySpec{RequiredTopology: rack}})
			r := s.request("gang", tc.count, func(r *provreq.ProvisioningRequest) {
				r.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamPolicy: provreq.Parameter(s.Name)}
			})
			if tc.in == "" {
				s.Eventually("it is told that there is no rack", func() bool {
					s.Get(r)
					c := meta.FindStatusCondition(r.Status.Conditions, provreq.Provisioned)
					return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, tc.reason)
				}, func() string { return fmt.Sprint(r.Status.Conditions) })
				s.Empty(g.Name)
				s.Delete(r)
				return
			}
			s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
			in := 0
			for _, n := range s.nodes(g.Name) {
				if n.Labels[rack] == tc.in {
					in++
				}
			}
			if in != int(tc.count) {
				t.Errorf("%d machines are in rack %s, want all %d", in, tc.in, tc.count)
			}
			s.Delete(r)
			s.Empty(g.Name)
		})
	}
}

// On the clouds a gang is gathered under one switch, or in one block, by the labels that their controllers put on nodes.
func TestAGangIsInOneDomainOfACloud(t *testing.T) {
	t.Parallel()
	reserved := func(g *v1alpha1.NodeGroup) {
		onAWS("c", "methods", "p5.48xlarge")(g)
		g.Spec.AWS.LaunchMethod = v1alpha1.AWSReservation
	}
	for _, tc := range []struct {
		name, level string
		at          func(*v1alpha1.NodeGroup)
		// atOnce: the launch requests them together, so that none is replaced.
		atOnce bool
	}{
		{"aws", "topology.k8s.aws/network-node-layer-3", onAWS("c", "methods", "p5.48xlarge"), true},
		{"aws-reserved", "topology.k8s.aws/network-node-layer-3", reserved, true},
		{"gcp", "cloud.google.com/gce-topology-block", onGCP("c", "methods", "a3-highgpu-8g"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t)
			g := s.offering("near", "methods", func(g *v1alpha1.NodeGroup) {
				tc.at(g)
				g.Spec.Topology = []v1alpha1.TopologyLevel{{NodeLabel: tc.level}}
			})
			s.Create(&v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.Name},
				Spec: v1alpha1.CapacityPolicySpec{RequiredTopology: tc.level}})
			r := s.request("gang", 3, func(r *provreq.ProvisioningRequest) {
				r.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamPolicy: provreq.Parameter(s.Name)}
			}, onto("methods"))
			s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
			// Machines of other tests that are idle may serve it, too.
			in := map[string]int{}
			s.Eventually("three machines in one domain are booked", func() bool {
				var nodes corev1.NodeList
				s.List(&nodes, client.MatchingLabels{cloudLabel: "methods"})
				clear(in)
				for _, n := range nodes.Items {
					own := func(b state.Booking) bool { return b.UID == r.UID }
					if slices.ContainsFunc(state.BookingsOn(n.Labels, n.Annotations), own) {
						in[n.Labels[tc.level]]++
					}
				}
				return len(in) == 1 && slices.Collect(maps.Values(in))[0] == 3
			}, func() string { return fmt.Sprint(in) })
			s.Get(r)
			a, err := transaction.DecodeAttempt(string(r.Status.ProvisioningClassDetails[transaction.AttemptDetail]))
			if err != nil || tc.atOnce && (a.Number != 1 || len(a.Replacements) > 0) {
				t.Errorf("the attempt is %+v (%v), want the first, without machines that came again", a, err)
			}
			s.Delete(r)
			s.paidOff(g)
		})
	}
}

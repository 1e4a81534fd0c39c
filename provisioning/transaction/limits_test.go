package transaction

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

// The story's gang needs two machines with 8 GPUs each at 10 USD per hour.
func TestLimits(t *testing.T) {
	limit := func(policy string, change func(*Limit)) func(*story) {
		return func(s *story) {
			l := LimitFrom(policy, &v1alpha1.CapacityLimits{})
			change(&l)
			s.view.Limits = append(s.view.Limits, l)
		}
	}
	has := func(machines int) func(*story) {
		return func(s *story) { s.view.Has.Add(&s.view.Groups[0].Group, machines) }
	}
	machines := func(n int) func(*Limit) { return func(l *Limit) { l.Machines = n } }
	gpus := func(n int64) func(*Limit) {
		return func(l *Limit) { l.Devices = nodegroups.Resources{"nvidia.com/gpu": n} }
	}
	usd := func(n int64) func(*Limit) { return func(l *Limit) { l.MicroUSDPerHour = n * 1e6 } }
	cheap := func(s *story) {
		g := s.view.Groups[0]
		g.Name, g.MicroUSDPerHour, g.CapacityType = "cheap", 1e6, v1alpha1.OnDemand
		s.view.Groups[0].CapacityType = v1alpha1.Reserved // more wanted, though it costs more
		s.view.Groups = []planner.Group{g, s.view.Groups[0]}
	}
	other := func(s *story) {
		g := s.view.Groups[0]
		g.Name, g.Backoffs = "another", stockout(noon.Add(time.Minute))
		s.view.Groups = []planner.Group{g, s.view.Groups[0]}
	}
	play(t, []expected{
		{name: "a policy without limits is none", story: newStory().with(limit("p", func(*Limit) {})).with(has(1000)), want: Begin},
		{name: "up to the limit there is no need to wait", story: newStory().with(limit("p", machines(4))).with(has(2)), want: Begin},
		{name: "over it there is, and the request says by how much", story: newStory().with(limit("p", machines(3))).with(has(2)), want: Report,
			message: "namespace ns uses 2 of the 3 machines in CapacityPolicy p (spec.limits.machines) and the gang needs 2 more, " +
				"1 too many"},
		{name: "a gang that can never be within it waits, too: it may be raised", story: newStory().with(limit("p", machines(1))), want: Report, message: "uses 0 of the 1 machines"},
		{name: "noRetry does not", story: newStory().with(limit("p", machines(1))).with(noRetry), want: Fail, message: "1 too many"},
		{name: "devices are limited by their name", story: newStory().with(limit("p", gpus(24))).with(has(2)), want: Report,
			message: `uses 16 of the 24 nvidia.com/gpu in CapacityPolicy p (spec.limits.devices["nvidia.com/gpu"]) and the gang needs 16 more, 8 ` +
				`too many`},
		{name: "and others are not", story: newStory().with(limit("p", func(l *Limit) { l.Devices = nodegroups.Resources{"example.com/tpu": 0} })), want: Begin},
		{name: "so is their price", story: newStory().with(limit("p", usd(30))).with(has(2)), want: Report,
			message: "uses 20.00 of the 30.00 USD per hour in CapacityPolicy p (spec.limits.pricePerHour) and the gang needs 20.00 " +
				"more, 10.00 too many"},
		{name: "all policies count, whichever the request names", story: newStory().with(limit("a", machines(100))).with(limit("b", machines(1))), want: Report, message: "CapacityPolicy b"},
		{name: "over a limit of price there may be a cheaper way", story: newStory().with(cheap).with(limit("p", usd(10))), want: Begin, message: "2 machines of NodeGroup cheap"},
		{name: "within it the more wanted one is taken", story: newStory().with(cheap).with(limit("p", usd(20))), want: Begin, message: "2 machines of NodeGroup gpu"},
		{name: "once a backoff ends there may be another way", story: newStory().with(other).with(limit("p", machines(1))), want: Report,
			check: wantAt(time.Minute)},
		{name: "what is there costs nothing more", story: newStory().node("a").node("b").with(limit("p", machines(0))).with(has(2)), want: Book},
		{name: "a replacement is limited, too", story: newStory().provisioned().node("a", booked).with(limit("p", machines(2))).with(has(2)).with(podsWaiting), want: Report, message: "1 too many"},
	})
}

func TestLimitsAreReadFromAPolicy(t *testing.T) {
	machines, price := int32(3), resource.MustParse("12.5")
	l := LimitFrom("p", &v1alpha1.CapacityLimits{Machines: &machines, PricePerHour: &price,
		Devices: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("16")}})
	if l.Machines != 3 || l.MicroUSDPerHour != 12_500_000 || l.Devices["nvidia.com/gpu"] != 16 {
		t.Errorf("limit is %+v", l)
	}
	if l := LimitFrom("p", &v1alpha1.CapacityLimits{}); l.Machines >= 0 || l.MicroUSDPerHour >= 0 || len(l.Devices) > 0 {
		t.Errorf("without a bound: %+v", l)
	}
}

// Gangs that are alike are judged once in a pass, and each is reported in its own words.
// All but the first have room here, so that one that waits was not judged again.
func TestGangsThatAreAlikeAreJudgedOnce(t *testing.T) {
	memo := planner.NewMemo()
	judge := func(name string, count int, changes ...func(*story)) Step {
		s := newStory().with(dry)
		s.request.Gang.Key, s.request.Gang.Name = name, "ns/"+name
		s.request.Gang.PodSets = []state.PodSet{asking(name+"-workers", count, "8")}
		s.request.Policy.Class = state.CheckCapacity
		for _, change := range changes {
			change(s)
		}
		s.request.EquivalenceClass = planner.EquivalenceClass(&s.request.Gang, &s.request.Policy)
		s.view.Memo = memo
		return Next(&s.request, s.view)
	}
	roomy := func(s *story) { s.node("a").node("b").node("c") }
	if got := judge("first", 2).Condition.Message; !strings.Contains(got, "room for 0 of the 2 pods of podSet first-workers") {
		t.Fatalf("without room: %s", got)
	}
	if got := judge("second", 2, roomy).Condition.Message; !strings.Contains(got, "room for 0 of the 2 pods of podSet second-workers") {
		t.Errorf("one that is like the first was judged again, or says %q", got)
	}
	for name, differs := range map[string]func(*story){
		"count": func(s *story) { s.request.Gang.PodSets[0].Count = 3 }, "policy": func(s *story) { s.request.Policy.BookingTimeout++ },
		"template": func(s *story) { s.request.Gang.PodSets[0].Template.Labels = map[string]string{"team": "ml"} }, "queue": inQueue("red"),
		// Nodes that a gang has booked itself are not the same to those alike.
		"booking": func(s *story) { s.node("a", claimed).node("b", claimed) },
	} {
		if got := judge("other", 2, roomy, differs); got.Condition.Message != "" && strings.Contains(got.Condition.Message, "room for 0") {
			t.Errorf("one of another %s is judged like the first: %s", name, got.Condition.Message)
		}
	}
}

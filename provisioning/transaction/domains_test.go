package transaction

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

// inRack gives a node the label of its rack.
func inRack(rack string, change func(*state.Node)) func(*state.Node) {
	return func(n *state.Node) {
		change(n)
		n.Labels = map[string]string{v1alpha1.NodeGroupLabel: n.Group, "rack": rack}
	}
}

// claimedYoung is a machine of the attempt that is booked already.
func claimedYoung(n *state.Node) {
	young(n)
	launch := n.Launch
	claimed(n)
	n.Launch, n.InFlight = launch, true
}

// rackwise is a launch of two machines that must be in one rack, which the cloud chooses.
func rackwise() *story {
	s := newStory().attempt(Launching)
	s.request.Policy.Topology = "rack"
	s.view.Groups[0].Levels = map[string]int{"rack": 0}
	return s
}

// three machines are launched for three pods.
func three(s *story) {
	s.request.Attempt.Launches = []planner.GroupCount{{Group: "gpu", Count: 3}}
	s.request.Gang.PodSets[0].Count, s.request.Pods = 3, 3
}

// annotated has the pods say themselves what Policy.Topology says of the gang.
func annotated(annotations map[string]string) func(*story) {
	return func(s *story) {
		s.request.Policy.Topology = ""
		ps := &s.request.Gang.PodSets[0]
		template := ps.Template.DeepCopy()
		template.Annotations = annotations
		*ps = state.NewPodSet(s.request.Namespace, ps.Name, ps.Count, template, fit.Objects{})
	}
}

// keeps r1, since noon.
func keeps(s *story) { r := &s.request.Attempt.Replacements[0]; r.Level, r.Domain = "rack", "r1" }

func slicesOf(size string) map[string]string {
	return map[string]string{"kueue.x-k8s.io/podset-slice-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": size}
}

func wantLevel(class v1alpha1.ErrorClass) func(*testing.T, Step) {
	return func(t *testing.T, s Step) {
		t.Helper()
		f := s.Attempt.Failure
		if f == nil || f.Class != class || f.Level != "rack" || len(s.Outcomes) != 1 || s.Outcomes[0].Level != "rack" {
			t.Errorf("failed with %+v, lessons %+v", f, s.Outcomes)
		}
	}
}

func wantTogether(level string) func(*testing.T, Step) {
	return func(t *testing.T, s Step) {
		t.Helper()
		if len(s.Launch) != 1 || s.Launch[0].Together != (cloudprovider.Domain{Level: level}) {
			t.Errorf("launches %+v", s.Launch)
		}
	}
}

func TestOneDomain(t *testing.T) {
	play(t, []expected{
		{name: "a booking in another rack, made beside room that has gone, is given up with the machine", want: Replace, message: "keeps r1 and launches 1 machine again",
			story: rackwise().with(three).machines(running, running, running).node("a", inRack("r1", young)).node("b", inRack("r1", young)).node("c",
				inRack("r2", claimedYoung)),
			check: wantNodes("unbook c")},
		{name: "machines in one rack are Provisioned", want: Provision, message: "Capacity is booked for 2 pods until 2026-01-01T12:10:00Z, in rack=r1",
			story: rackwise().machines(running, running).node("a", inRack("r1", young)).node("b", inRack("r1", young)),
			check: func(t *testing.T, s Step) {
				if len(s.Outcomes) != 1 || s.Outcomes[0].Level != "rack" || s.Outcomes[0].Class != "" {
					t.Errorf("lessons are %+v", s.Outcomes)
				}
			}},
		{name: "the cloud is told that they must be together", want: LaunchMachines, story: rackwise(), check: wantTogether("rack")},
		{name: "not so slices of them", want: LaunchMachines, story: rackwise().with(annotated(slicesOf("1"))), check: wantTogether("")},
		{name: "a node without the label has not joined", want: Rest, check: wantAt(10 * time.Minute),
			story: rackwise().machines(running, running).node("a", inRack("r1", young)).node("b", young)},
		{name: "in the end that is told by label and node", want: RollBack, check: wantLevel(v1alpha1.Timeout), message: "node b has no label rack",
			story: rackwise().machines(running, running).node("a", inRack("r1", young)).node("b", young).at(10 * time.Minute)},
		{name: "a node that does not register is no matter of racks", want: RollBack,
			story: rackwise().machines(running, running).node("a", young).at(10 * time.Minute),
			check: func(t *testing.T, s Step) {
				if f := s.Attempt.Failure; f.Class != v1alpha1.Timeout || f.Level != "" {
					t.Errorf("failed with %+v", f)
				}
			}},
		{name: "of two racks the first by name is kept", want: Replace, message: "keeps r1 and launches 1 machine again: the machines are scattered over domains of rack: 1 in r1, 1 in r2",
			story: rackwise().machines(running, running).node("a", inRack("r2", young)).node("b", inRack("r1", young)),
			check: func(t *testing.T, s Step) {
				r := s.Attempt.Replacements
				if len(r) != 1 || r[0].Level != "rack" || r[0].Domain != "r1" || len(r[0].Lost) != 1 ||
					r[0].Lost[0].Name != "a" || len(s.Outcomes) != 0 {
					t.Errorf("replacements are %+v, lessons %+v", r, s.Outcomes)
				}
			}},
		{name: "the largest is kept", want: Replace, message: "keeps r2",
			story: rackwise().with(three).machines(running, running, running).node("a", inRack("r1", young)).node("b", inRack("r2", young)).node("c",
				inRack("r2", young))},
		{name: "what is on record is terminated first", want: Terminate,
			story: rackwise().machines(running, running).lost("a").with(keeps).node("a", inRack("r2", young)).node("b", inRack("r1", young)),
			check: func(t *testing.T, s Step) {
				if len(s.Terminate) != 1 || s.Terminate[0].Name != "a" {
					t.Errorf("terminates %+v", s.Terminate)
				}
			}},
		{name: "then as many are launched", want: LaunchMachines,
			story: rackwise().machines(terminated, running).lost("a").with(keeps).node("b", inRack("r1", young)),
			check: func(t *testing.T, s Step) {
				if len(s.Launch) != 1 || s.Launch[0].Token != "uid-1r1" || s.Launch[0].Count != 1 ||
					s.Launch[0].Together != (cloudprovider.Domain{Level: "rack", Value: "r1"}) {
					t.Errorf("launches %+v", s.Launch)
				}
			}},
		{name: "with them the gang is whole", want: Provision,
			story: rackwise().machines(terminated, running).lost("a").with(keeps).machinesOf("uid-1r1", running).
				node("b", inRack("r1", young)).node("c", inRack("r1", replaced))},
		{name: "a second miss is made good, too", want: Replace,
			story: rackwise().machines(terminated, running).lost("a").with(keeps).machinesOf("uid-1r1", running).
				node("b", inRack("r1", young)).node("c", inRack("r3", replaced))},
		{name: "but no more machines than were asked for", want: RollBack, check: wantLevel(v1alpha1.Scattered), message: "1 in r1, 1 in r3",
			story: rackwise().machines(terminated, running).lost("a").with(keeps).machinesOf("uid-1r1", terminated).with(func(s *story) {
				s.request.Attempt.Replacements = append(s.request.Attempt.Replacements,
					Replacement{Lost: []LostMachine{{Group: "gpu", Name: "c", Launch: "uid-1r1"}}, Started: noon})
			}).machinesOf("uid-1r2", running).node("b", inRack("r1", young)).
				node("d", inRack("r3", func(n *state.Node) { young(n); n.Launch = token + "r2" }))},
		{name: "nor once the group has had its time", want: RollBack, check: wantLevel(v1alpha1.Scattered),
			story: rackwise().machines(running, running).node("a", inRack("r2", young)).node("b", inRack("r1", young)).at(10 * time.Minute)},
		{name: "an annotation of the pods binds them, too", want: Replace, message: "keeps r1 and launches 1 machine again",
			story: rackwise().with(annotated(map[string]string{"kueue.x-k8s.io/podset-required-topology": "rack"})).
				machines(running, running).node("a", inRack("r2", young)).node("b", inRack("r1", young))},
		{name: "slices may be in several racks", want: Provision, message: "until 2026-01-01T12:10:00Z",
			story: rackwise().with(annotated(slicesOf("1"))).
				machines(running, running).node("a", inRack("r1", young)).node("b", inRack("r2", young))},
		{name: "but a slice that is torn apart is given up", want: RollBack, check: wantLevel(v1alpha1.Scattered),
			message: "scattered over domains of rack: 1 in r1, 1 in r2, 1 in r3",
			story: rackwise().with(three).with(annotated(slicesOf("2"))).machines(running, running, running).
				node("a", inRack("r1", young)).node("b", inRack("r2", young)).node("c", inRack("r3", young))},
		{name: "racks are nothing to a gang that requires none", want: Provision,
			story: rackwise().with(func(s *story) { s.request.Policy.Topology = "" }).
				machines(running, running).node("a", inRack("r1", young)).node("b", inRack("r2", young))},
	})
}

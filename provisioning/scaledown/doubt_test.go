package scaledown

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

func TestDoubt(t *testing.T) {
	for _, tc := range []struct {
		doubt Doubt
		want  bool
	}{
		{Doubt{Missing: 3, Of: 3}, false},
		{Doubt{Missing: 2, Unready: 2, Of: 4}, true},
		{Doubt{Missing: 1, Unready: 1, Stopped: 2, Of: 4}, true},
		{Doubt{Missing: 10, Unready: 10, Of: 200}, false},
		{Doubt{Missing: 10, Unready: 11, Of: 200}, true},
		{Doubt{Missing: 21, Of: 200, Approved: 20}, true},
		{Doubt{Missing: 21, Of: 200, Approved: 21}, false},
	} {
		if got := tc.doubt.Braked(); got != tc.want {
			t.Errorf("%+v: braked is %t, want %t", tc.doubt, got, tc.want)
		}
	}
}

// Nodes that have gone while their machines run stop no gang for a moment, in which more may follow, nor once they are many. The last few
// of many have time to come back, and a person decides about all.
func TestVanished(t *testing.T) {
	const soon, many, lost = "soon", "many", "lost"
	for _, tc := range []struct {
		name    string
		missing int
		gone    time.Duration
		there   int
		change  func(*planner.Group)
		want    string
	}{
		{name: "a few, a moment ago", missing: 3, gone: 9 * time.Second, want: soon},
		{name: "a few", missing: 3, gone: 10 * time.Second, want: lost},
		{name: "a few that went before this process began", missing: 3, gone: 1000 * time.Hour, want: lost},
		{name: "many, a moment ago", missing: 4, want: many},
		{name: "many", missing: 4, gone: time.Hour, want: many},
		{name: "a tenth", missing: 5, there: 45, gone: time.Minute, want: lost},
		{name: "more than a tenth", missing: 5, there: 44, gone: time.Minute, want: many},
		{name: "many, by the word of a person", missing: 4, gone: time.Minute, want: lost, change: func(g *planner.Group) { g.TerminateAtOnce = 4 }},
		{name: "many, by the word of a person about fewer", missing: 4, gone: time.Minute, want: many,
			change: func(g *planner.Group) { g.TerminateAtOnce = 3 }},
		{name: "the last of many", missing: 1, gone: time.Minute, want: many, change: func(g *planner.Group) { g.Doubted = true }},
		{name: "the last of many, a while after", missing: 1, gone: time.Hour, want: many,
			change: func(g *planner.Group) { g.DoubtEnded = noon.Add(-9 * time.Minute) }},
		{name: "the last of many, long after", missing: 1, gone: time.Hour, want: lost,
			change: func(g *planner.Group) { g.DoubtEnded = noon.Add(-10 * time.Minute) }},
		{name: "the last of many, by the word of a person", missing: 1, gone: time.Minute, want: lost,
			change: func(g *planner.Group) { g.Doubted, g.TerminateAtOnce = true, 1 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := fleet()
			if tc.change != nil {
				tc.change(&f.Groups[0])
			}
			for i := range tc.there {
				f.add(fmt.Sprint("there", i), state.Node{Launch: token})
			}
			for i := range tc.missing {
				m := machineOf(fmt.Sprint("gone", i), token)[0]
				m.ProviderID = m.Name
				f.Missing = append(f.Missing, Missing{Machine: m, Since: noon.Add(-tc.gone)})
			}
			got := VanishedOf(&f, nil)
			doubted, vanished := got.Machines["gone0"]
			is := lost
			if doubted {
				is = many
			} else if vanished {
				is = soon
			}
			if is != tc.want || got.Many != (tc.want == many) {
				t.Errorf("it is %s: %+v, want %s", is, got, tc.want)
			}
		})
	}
}

// The last few machines of many that seemed lost are not terminated before they had time to come back.
func TestTheLastOfManyHaveTimeToComeBack(t *testing.T) {
	for ended, want := range map[time.Duration]int{9 * time.Minute: 0, 10 * time.Minute: 1} {
		f := fleet()
		f.Unregistered = machineOf("last", token)
		f.Missing = []Missing{{Machine: f.Unregistered[0]}}
		f.Past.Unregistered = map[string]time.Time{"gpu/last": noon.Add(-time.Hour)}
		f.Groups[0].DoubtEnded = noon.Add(-ended)
		if got := Plan(f); len(got.Terminate) != want || want == 0 && !got.At.Equal(noon.Add(time.Minute)) {
			t.Errorf("%s after they were many %d go, and the next look is at %s; want %d", ended, len(got.Terminate), got.At, want)
		}
	}
}

// A cloud that is asked with the credentials of another account says of all machines that they
// have ended. Their kubelets know better.
func TestGangsAreSparedWhereMachinesSeemToEndAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name            string
		ended, approved int
		silent          bool
		want            bool
	}{
		{"a few", 3, 0, false, false},
		{"many", 4, 0, false, true},
		{"many, whose kubelets are silent, too", 4, 0, true, false},
		{"many, by the word of a person", 4, 4, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var nodes []state.Node
			for range tc.ended {
				n := state.Node{Launch: token, Ended: true}
				if tc.silent {
					n.UnreadySince = noon
				}
				nodes = append(nodes, n)
			}
			f := fleet(nodes...)
			for n := range f.Nodes.All() {
				gone := *n
				gone.Group, gone.Machine = "gpu", nil
				f.Nodes.Set(&gone)
			}
			f.Groups[0].TerminateAtOnce = tc.approved
			if d := InDoubt(&f)["gpu"]; d.Spares() != tc.want || d.Braked() {
				t.Errorf("%+v: gangs are spared: %t, want %t; braked: %t", d, d.Spares(), tc.want, d.Braked())
			}
		})
	}
}

// Machines that their cloud has stopped are ended after a while, unless they are many that may be
// started again.
func TestStoppedMachines(t *testing.T) {
	for _, tc := range []struct {
		name          string
		machines      int
		capacityType  v1alpha1.CapacityType
		failed        bool
		approved      int
		stoppedFor    time.Duration
		going, braked int
	}{
		{name: "for maintenance", machines: 2, stoppedFor: 9 * time.Minute},
		{name: "for good", machines: 2, stoppedFor: 10 * time.Minute, going: 2},
		{name: "many, for good", machines: 4, stoppedFor: 10 * time.Minute, braked: 4},
		{name: "many, by the word of a person", machines: 4, stoppedFor: 10 * time.Minute, approved: 4, going: 4},
		{name: "many that have never had a node", machines: 4, failed: true, stoppedFor: 10 * time.Minute, going: 4},
		{name: "many Spot machines, which are not started again", machines: 4, capacityType: v1alpha1.Spot, stoppedFor: 10 * time.Minute, going: 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := fleet()
			f.Groups[0].CapacityType, f.Groups[0].TerminateAtOnce, f.Past.Halted = tc.capacityType, tc.approved, map[string]time.Time{}
			for i := range tc.machines {
				name := fmt.Sprint("stopped", i)
				f.Halted = append(f.Halted, Halted{Machine: machineOf(name, token)[0], HadNode: !tc.failed})
				f.Past.Halted["gpu/"+name] = noon.Add(-tc.stoppedFor)
			}
			got := Plan(f)
			if len(got.Terminate) != tc.going || got.Doubts["gpu"].Stopped != tc.braked {
				t.Errorf("%d machines go, and %d are in doubt, want %d and %d", len(got.Terminate), got.Doubts["gpu"].Stopped, tc.going, tc.braked)
			}
			if due := noon.Add(haltedBound - tc.stoppedFor); due.After(noon) && !got.At.Equal(due) {
				t.Errorf("the next look is at %s, want %s", got.At, due)
			}
		})
	}
}

// Idle machines that no request has launched go by themselves while they are few. Many at once are kept until a person decides, but for
// those that a minimum keeps anyway.
func TestIdleMachinesOfOthers(t *testing.T) {
	idle := state.Node{IdleSince: noon.Add(-time.Hour)}
	launched := idle
	launched.Launch = token
	for _, tc := range []struct {
		name              string
		others, ours, min int
		change            func(*Fleet)
		going, kept       int
	}{
		{name: "a few", others: 3, going: 3},
		{name: "many", others: 4, kept: 4},
		{name: "a tenth", others: 4, ours: 36, going: 40},
		{name: "more than a tenth", others: 5, ours: 40, going: 40, kept: 5},
		{name: "a gang's, all at once", ours: 20, going: 20},
		{name: "many, of which few are above the minimum", others: 8, min: 5, going: 3},
		{name: "many above it", others: 9, min: 5, kept: 9},
		{name: "by the word of a person", others: 8, change: func(f *Fleet) { f.Groups[0].TerminateAtOnce = 8 }, going: 8},
		{name: "by the word of a person about fewer", others: 8, change: func(f *Fleet) { f.Groups[0].TerminateAtOnce = 7 }, kept: 8},
		{name: "kept by their nodes", others: 8, change: func(f *Fleet) {
			for n := range f.Nodes.All() {
				kept := *n
				kept.Kept = true
				f.Nodes.Set(&kept)
			}
		}},
		{name: "of a cluster-autoscaler", others: 8, change: func(f *Fleet) { f.Groups[0].Foreign = true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := fleet()
			f.Groups[0].Min = tc.min
			for i := range tc.others {
				f.add(fmt.Sprint("other", i), idle)
			}
			for i := range tc.ours {
				f.add(fmt.Sprint("ours", i), launched)
			}
			if tc.change != nil {
				tc.change(&f)
			}
			got := Plan(f)
			if len(got.Cordon) != tc.going || got.Doubts["gpu"].Idle != tc.kept || (len(got.Doubts) > 0) != (tc.kept > 0) {
				t.Errorf("%d machines go, in doubt are %+v: want %d to go and %d to be kept", len(got.Cordon), got.Doubts, tc.going, tc.kept)
			}
		})
	}
}

// The group is looked at again when the time of one more has come.
func TestIdleMachinesOfOthersHaveTheirTime(t *testing.T) {
	f := fleet(state.Node{IdleSince: noon.Add(-time.Minute)}, state.Node{IdleSince: noon.Add(-time.Minute), Launch: token})
	if d := InDoubt(&f)["gpu"]; d.Idle != 0 || !d.At.Equal(noon.Add(9*time.Minute)) {
		t.Errorf("in doubt: %+v", d)
	}
}

// Machines in doubt do not keep the others of their group from going.
func TestTheBrakeIsOfAGroupAndOfDoubt(t *testing.T) {
	long := noon.Add(-time.Hour)
	lost := state.Node{UnreadySince: long, IdleSince: long}
	f := fleet(lost, lost, lost, lost, state.Node{IdleSince: long}, state.Node{UnreadySince: noon.Add(-10 * time.Second), IdleSince: long})
	for i := range 4 {
		f.Unregistered = append(f.Unregistered, machineOf(fmt.Sprint("orphan", i), token)...)
	}
	f.Unregistered[3].State = cloudprovider.Booting
	f.Past.Unregistered = map[string]time.Time{"gpu/orphan0": long, "gpu/orphan1": long, "gpu/orphan2": long}
	f.Missing = []Missing{{Machine: f.Unregistered[0]}}
	got := Plan(f)
	if d := got.Doubts["gpu"]; d.Unready != 4 || d.Missing != 1 || d.Of != 7 || !d.At.Equal(noon.Add(50*time.Second)) {
		t.Errorf("in doubt: %+v", d)
	}
	if fmt.Sprint(got.Cordon) != "[e f]" {
		t.Errorf("nodes %v are to go, want the idle e and f", got.Cordon)
	}
	var back []string
	for _, r := range got.Terminate {
		back = append(back, r.Name)
	}
	if fmt.Sprint(back) != "[orphan1 orphan2 orphan3]" {
		t.Errorf("machines %v are terminated, want those that have never had a node", back)
	}
	f.Groups[0].TerminateAtOnce = 5
	if got := Plan(f); len(got.Cordon) != 6 || len(got.Terminate) != 4 || len(got.Doubts) != 0 {
		t.Errorf("approved: %d nodes and %d machines go with doubts %v, want all", len(got.Cordon), len(got.Terminate), got.Doubts)
	}
}

package gcp_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp"
	"github.com/muster-dev/muster/cloudprovider/gcp/inventory"
	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// TestTerminateExact takes two of four machines back, among names that do not exist.
func TestTerminateExact(t *testing.T) {
	for _, method := range methods {
		t.Run(method, func(t *testing.T) {
			l := newLab(t, cloudsim.Config{Pools: every(64)}, simulated())
			p, req := l.provider(), launchOf(l.nodeGroup(method), 4)
			machines, err := launch(t, l, p, req)
			if err != nil {
				t.Fatal(err)
			}
			l.clock.Step(2 * time.Minute)
			going := []string{"never-was", machines[1].Name, strings.Replace(machines[1].Name, inventory.Shorten(token), "another-7", 1),
				machines[3].Name}
			for range 2 { // names that do not exist any more are no error either
				if err := l.provider().Terminate(context.Background(), req.Group.Name, going); err != nil {
					t.Fatal(err)
				}
			}
			l.clock.Step(time.Hour)
			want := []string{machines[0].Name, machines[2].Name}
			if got := names(l.list(l.provider())); !slices.Equal(got, want) {
				t.Errorf("got %q left, want %q", got, want)
			}
			if open := l.open(); len(open) != 2 {
				t.Errorf("%d machines are paid for, want 2", len(open))
			}
		})
	}
}

// TestTerminateMembers terminates a machine that Muster did not launch: its group does
// not make another.
func TestTerminateMembers(t *testing.T) {
	sim := simulated()
	sim.Groups[0].TargetSize = 3
	l := newLab(t, cloudsim.Config{Pools: every(64)}, sim)
	g := l.nodeGroup("bulk")
	before := l.list(l.provider())
	if len(before) != 3 || before[0].Launch != "" || before[0].Group != g.Name {
		t.Fatalf("got %+v, want the 3 machines of the managed instance group, which no launch has made", before)
	}
	if err := l.provider().Terminate(context.Background(), g.Name, []string{before[1].Name}); err != nil {
		t.Fatal(err)
	}
	l.clock.Step(time.Hour)
	if got, want := names(l.list(l.provider())), []string{before[0].Name, before[2].Name}; !slices.Equal(got, want) {
		t.Errorf("got %q left, want %q", got, want)
	}
	if open := l.open(); len(open) != 2 {
		t.Errorf("%d machines are paid for, want 2", len(open))
	}
}

// TestTerminateFails: what cannot be deleted does not keep the rest.
func TestTerminateFails(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: every(64), Calls: []cloudsim.CallFault{
		{Cloud: v1alpha1.ProviderGCP, Type: cloudsim.CallRefused, Action: "instances.delete", Calls: []int64{1}, Error: &cloudsim.Error{Code: "resourceInUseByAnotherResource", Message: "busy"}},
		{Cloud: v1alpha1.ProviderGCP, Type: cloudsim.CallLost, Action: "instances.delete", Calls: []int64{2}},
		{Cloud: v1alpha1.ProviderGCP, Type: cloudsim.ReplyLost, Action: "instances.delete", Calls: []int64{3}},
	}}, simulated())
	p, req := l.provider(), launchOf(l.nodeGroup("bulk"), 8)
	machines, err := launch(t, l, p, req)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Terminate(context.Background(), req.Group.Name, names(machines))
	if err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("got %v, want the error of the machine that cannot be deleted", err)
	}
	if open := l.open(); len(open) != 2 {
		t.Errorf("%d machines are paid for, want the 2 whose calls had no effect", len(open))
	}
	if err := p.Terminate(context.Background(), req.Group.Name, names(machines)); err != nil {
		t.Fatal(err)
	}
	if open := l.open(); len(open) > 0 {
		t.Errorf("still paid for: %+v", open)
	}
}

// TestTerminateOfABatch: one machine that cannot be deleted keeps no other.
func TestTerminateOfABatch(t *testing.T) {
	sim := simulated()
	sim.Groups[3].Undeletable = []string{"-5"}
	l := newLab(t, cloudsim.Config{Pools: every(64)}, sim)
	p, req := l.provider(), launchOf(l.nodeGroup("owned"), 16)
	machines, err := launch(t, l, p, req)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Terminate(context.Background(), req.Group.Name, names(machines))
	if err == nil || !strings.Contains(err.Error(), "-5' cannot be deleted") {
		t.Errorf("got %v, want the error of the machine that cannot be deleted", err)
	}
	if open := l.open(); len(open) != 1 {
		t.Errorf("%d machines are paid for, want 1", len(open))
	}
}

// TestDeletionFails: what the cloud has accepted and then failed at is repeated, for as long
// as lists do not show it.
func TestDeletionFails(t *testing.T) {
	for method, action := range map[string]string{"bulk": "instances.delete", "owned": "instanceGroupManagers.deleteInstances"} {
		l := newLab(t, cloudsim.Config{Pools: every(64), Calls: []cloudsim.CallFault{{
			Cloud: v1alpha1.ProviderGCP, Type: cloudsim.OperationFailed, Action: action, Until: metav1.Duration{Duration: 5 * time.Minute},
			Error: &cloudsim.Error{Code: "INTERNAL_ERROR", Message: "try again"},
		}}}, simulated())
		p, req := l.provider(), launchOf(l.nodeGroup(method), 2)
		machines, err := launch(t, l, p, req)
		if err != nil {
			t.Fatal(err)
		}
		l.clock.Step(2 * time.Minute)
		err = p.Terminate(context.Background(), req.Group.Name, names(machines))
		if told := err != nil; told != (method == "owned") {
			t.Errorf("%s: got %v", method, err)
		}
		for range 10 {
			if err != nil { // an error is for the caller to repeat the call
				err = p.Terminate(context.Background(), req.Group.Name, names(machines))
			}
			l.list(p)
			l.clock.Step(time.Minute)
		}
		if open := l.open(); len(open) > 0 {
			t.Errorf("%s: %d machines are paid for", method, len(open))
		}
	}
}

// TestMaintenance: a machine that is stopped while its host is maintained is the same one
// when it is back, also to a managed instance group that it was no launch's.
func TestMaintenance(t *testing.T) {
	sim := simulated()
	sim.Groups[3].TargetSize = 1
	l := newLab(t, cloudsim.Config{Pools: every(64)}, sim)
	p, req := l.provider(), launchOf(l.nodeGroup("owned"), 1)
	if _, err := launch(t, l, p, req); err != nil {
		t.Fatal(err)
	}
	l.clock.Step(2 * time.Minute)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex
	told := map[string][]cloudprovider.State{}
	done := make(chan error)
	go func() {
		done <- p.Watch(ctx, func(m cloudprovider.Machine) {
			mu.Lock()
			defer mu.Unlock()
			told[m.Launch] = append(told[m.Launch], m.State)
		}, func() {})
	}()
	pass := func() {
		for range 2 * 60 {
			l.untilAsleep()
			l.clock.Step(time.Second)
		}
		l.untilAsleep()
	}
	pass()
	for _, line := range l.open() {
		l.world.Stop(line.ID, 3*time.Minute)
	}
	pass()
	pass()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want := []cloudprovider.State{cloudprovider.Running, cloudprovider.Terminated, cloudprovider.Running}
	if diff := cmp.Diff(map[string][]cloudprovider.State{"": want, token: want}, told); diff != "" {
		t.Errorf("states by launch (-want +got):\n%s", diff)
	}
}

// TestGroupGone: the machines of a NodeGroup that has been deleted are reported, and
// terminated. Beside a managed instance group that holds across restarts.
func TestGroupGone(t *testing.T) {
	for _, method := range methods {
		for _, restart := range []bool{false, true} {
			if restart && !slices.Contains([]string{"bulk", "spot", "spread"}, method) {
				continue
			}
			t.Run(fmt.Sprintf("%s/restart=%t", method, restart), func(t *testing.T) {
				l := newLab(t, cloudsim.Config{Pools: every(64)}, simulated())
				p, req := l.provider(), launchOf(l.nodeGroup(method), 2)
				if _, err := launch(t, l, p, req); err != nil {
					t.Fatal(err)
				}
				l.groups = nil
				if restart {
					p = l.provider()
				}
				machines := l.list(p)
				if len(machines) != 2 || machines[0].Launch != token {
					t.Fatalf("got %+v, want the 2 machines of the launch", machines)
				}
				if err := p.Terminate(context.Background(), machines[0].Group, names(machines)); err != nil {
					t.Fatal(err)
				}
				if open := l.open(); len(open) > 0 {
					t.Errorf("still paid for: %+v", open)
				}
				if left := l.list(p); len(left) > 0 {
					t.Errorf("got %+v, want nothing", left)
				}
			})
		}
	}
}

// TestGroupGoneMeanwhile: the NodeGroup is deleted while its launch is under way, and
// the watch looks before there is any machine.
func TestGroupGoneMeanwhile(t *testing.T) {
	for _, method := range methods {
		l := newLab(t, cloudsim.Config{Pools: every(64)}, simulated())
		p, req := l.provider(), launchOf(l.nodeGroup(method), 2)
		l.list(p)
		l.clock.Step(time.Hour)
		l.groups = nil
		machines, err := launch(t, l, p, req)
		if err != nil {
			t.Fatal(err)
		}
		l.list(p)
		if err := p.Terminate(context.Background(), req.Group.Name, names(machines)); err != nil {
			t.Fatal(err)
		}
		if open := l.open(); len(open) > 0 {
			t.Errorf("%s: still paid for: %+v", method, open)
		}
	}
}

// TestTwoClusters: clusters of one project do not see each other's machines.
func TestTwoClusters(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: every(64)}, simulated())
	req := launchOf(l.nodeGroup("bulk"), 2)
	if _, err := launch(t, l, l.provider(), req); err != nil {
		t.Fatal(err)
	}
	other := l.providerOf("staging")
	if got := l.list(other); len(got) > 0 {
		t.Errorf("got %+v, want nothing", got)
	}
}

// TestMachinesDie: what becomes of machines that end by themselves.
func TestMachinesDie(t *testing.T) {
	after := metav1.Duration{Duration: 30 * time.Second}
	death := v1alpha1.KwokFault{Type: v1alpha1.FaultBootDeath, Machines: []int64{1}, After: &after}
	reclaim := v1alpha1.KwokFault{Type: v1alpha1.FaultReclaim, Machines: []int64{1}, After: &after}
	for _, tc := range []struct {
		name, method string
		fault        v1alpha1.KwokFault
		repairs      bool
		// wantState of the second machine; Gone where it is not listed.
		wantState cloudprovider.State
		wantOpen  int
	}{
		{"a bulk-inserted machine dies while it boots", "bulk", death, false, cloudprovider.Terminated, 2},
		{"a Spot machine is reclaimed and goes with its disks", "spot", reclaim, false, cloudprovider.Gone, 2},
		{"a group that does not repair leaves a dead machine", "owned", death, false, cloudprovider.Terminated, 2},
		{"a group that repairs makes another of the name", "owned", death, true, cloudprovider.Running, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sim := simulated()
			if tc.repairs {
				sim.Groups[3].ActionOnFailure = "REPAIR"
			}
			l := newLab(t, cloudsim.Config{Pools: every(64, tc.fault)}, sim)
			p, req := l.provider(), launchOf(l.nodeGroup(tc.method), 3)
			if _, err := launch(t, l, p, req); err != nil {
				t.Fatal(err)
			}
			l.clock.Step(10 * time.Minute)
			l.list(l.provider()) // the simulated group repairs when it is listed
			l.clock.Step(10 * time.Minute)
			state := cloudprovider.Gone
			for _, m := range l.list(l.provider()) {
				if strings.HasSuffix(m.Name, "-1") {
					state = m.State
					if (m.State == cloudprovider.Terminated) != (m.Reason != "") {
						t.Errorf("got reason %q in state %d", m.Reason, m.State)
					}
				}
			}
			if state != tc.wantState {
				t.Errorf("got state %d, want %d", state, tc.wantState)
			}
			if open := l.open(); len(open) != tc.wantOpen {
				t.Errorf("%d machines are paid for, want %d", len(open), tc.wantOpen)
			}
		})
	}
}

// TestNoGracefulShutdown: what is terminated runs nothing, and is not paid for as long as its template
// lets a workload end.
func TestNoGracefulShutdown(t *testing.T) {
	for _, method := range []string{"bulk", "owned", "owned-regional"} {
		t.Run(method, func(t *testing.T) {
			sim := simulated()
			for i := range sim.Templates {
				sim.Templates[i].GracefulShutdown.Duration = time.Hour
			}
			l := newLab(t, cloudsim.Config{Pools: every(64)}, sim)
			p, req := l.provider(), launchOf(l.nodeGroup(method), 3)
			machines, err := launch(t, l, p, req)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Terminate(t.Context(), req.Group.Name, []string{machines[1].Name}); err != nil {
				t.Fatal(err)
			}
			l.clock.Step(gcp.Bound)
			if open := l.open(); len(open) != 2 {
				t.Errorf("%d machines are paid for, want 2", len(open))
			}
			if method != "bulk" {
				return
			}
			// What others delete runs on until its workload has ended.
			r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete,
				fmt.Sprintf("%s/compute/v1/projects/%s/zones/%s/instances/%s", l.url,
					req.Group.Spec.GCP.Project, req.Group.Spec.Zone, machines[0].Name), nil)
			if err != nil {
				t.Fatal(err)
			}
			reply, err := http.DefaultClient.Do(r)
			if err != nil || reply.StatusCode != http.StatusOK {
				t.Fatal(reply, err)
			}
			_ = reply.Body.Close()
			if got := l.list(p); got[0].State != cloudprovider.Running {
				t.Errorf("a VM that shuts down gracefully is listed as %+v", got[0])
			}
		})
	}
}

// TestEndedMachinesAreListed: a machine that ended by itself is listed as terminated until Muster terminates it. After that, the cloud does
// not keep it.
func TestEndedMachinesAreListed(t *testing.T) {
	after := metav1.Duration{Duration: 30 * time.Second}
	for _, method := range []string{"bulk", "owned", "owned-regional"} {
		t.Run(method, func(t *testing.T) {
			l := newLab(t, cloudsim.Config{Pools: every(64, v1alpha1.KwokFault{Type: v1alpha1.FaultBootDeath, Machines: []int64{1}, After: &after})},
				simulated())
			p, req := l.provider(), launchOf(l.nodeGroup(method), 3)
			machines, err := launch(t, l, p, req)
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				l.clock.Step(time.Minute)
				if got := l.list(p); len(got) != 3 || got[1].State != cloudprovider.Terminated {
					t.Fatalf("got %+v, want 3 machines, one of which has ended", got)
				}
			}
			if err := p.Terminate(t.Context(), req.Group.Name, []string{machines[1].Name}); err != nil {
				t.Fatal(err)
			}
			want := []string{machines[0].Name, machines[2].Name}
			if got := names(l.list(p)); !slices.Equal(got, want) {
				t.Errorf("got %q left, want %q", got, want)
			}
			if open := l.open(); len(open) != 2 {
				t.Errorf("%d machines are paid for, want 2", len(open))
			}
		})
	}
}

// TestRepairUnderWay: a machine that its group is about to recreate is not reported as
// ended. Otherwise it would never be terminated.
func TestRepairUnderWay(t *testing.T) {
	after := metav1.Duration{Duration: 30 * time.Second}
	sim := simulated()
	sim.OperationTime, sim.Groups[3].ActionOnFailure = metav1.Duration{Duration: 5 * time.Minute}, "REPAIR"
	l := newLab(t, cloudsim.Config{Pools: every(64, v1alpha1.KwokFault{Type: v1alpha1.FaultBootDeath, Machines: []int64{0}, After: &after})},
		sim)
	p, req := l.provider(), launchOf(l.nodeGroup("owned"), 1)
	if _, err := p.Launch(context.Background(), req); cloudprovider.Refusal(err) != nil {
		t.Fatal(err)
	}
	l.clock.Step(time.Minute)
	machines := l.list(l.provider())
	if len(machines) != 1 || machines[0].State == cloudprovider.Terminated {
		t.Fatalf("got %+v, want a machine that has not ended", machines)
	}
	if err := p.Terminate(context.Background(), req.Group.Name, names(machines)); err != nil {
		t.Fatal(err)
	}
	l.clock.Step(time.Hour)
	if left := l.list(l.provider()); len(left) > 0 || len(l.open()) > 0 {
		t.Errorf("got %+v, want nothing", left)
	}
}

// TestAResizeRequestLeavesMachinesInUse: the list by which it is terminated may be older than its machines, whose gang runs on them.
func TestAResizeRequestLeavesMachinesInUse(t *testing.T) {
	for used := range 3 {
		l := newLab(t, cloudsim.Config{Pools: every(64)}, simulated())
		g := l.nodeGroup("flex")
		p := l.provider()
		machines, err := p.Launch(t.Context(), cloudprovider.LaunchRequest{Group: g, Count: 2, Token: "uid-1"})
		for range 20 {
			if err == nil || cloudprovider.Refusal(err) != nil {
				break
			}
			l.clock.Step(10 * time.Second)
			machines, err = p.Launch(t.Context(), cloudprovider.LaunchRequest{Group: g, Count: 2, Token: "uid-1"})
		}
		if err != nil || len(machines) != 2 {
			t.Fatalf("got %v and %v, want 2 machines", machines, err)
		}
		hold := strings.TrimSuffix(machines[0].Name, "0") + "all"
		l.inUse = func(_ context.Context, list []cloudprovider.Machine) (map[string]bool, error) {
			out := map[string]bool{}
			for i, m := range list[:used] {
				if m.ProviderID != machines[i].ProviderID || m.Launch != "uid-1" || m.Group != g.Name {
					t.Errorf("the machine in question is %+v, want that of %+v", m, machines[i])
				}
				out[m.Name] = true
			}
			return out, nil
		}
		if err := p.Terminate(t.Context(), g.Name, []string{hold}); err != nil {
			t.Fatal(err)
		}
		l.clock.Step(time.Minute)
		if got := len(l.open()); got != used {
			t.Errorf("%d machines are billed, want the %d in use", got, used)
		}
	}
}

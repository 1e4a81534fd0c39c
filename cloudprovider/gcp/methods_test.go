package gcp_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp"
	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// TestMethods holds the rows of the package's table: a launch of four finds two, and
// Muster crashes. What is paid for meanwhile, what the next process knows of it, and
// how long it lives once the launch is given up.
func TestMethods(t *testing.T) {
	for _, tc := range []struct {
		method string
		// wantPaid machines are there while the launch waits.
		wantPaid int
		// wantListed, and how many of them are holds.
		wantListed, wantHolds int
	}{
		{method: "bulk", wantPaid: 2, wantListed: 2},
		{method: "spot", wantPaid: 2, wantListed: 2},
		{method: "spread", wantPaid: 2, wantListed: 2},
		{method: "flex", wantListed: 1, wantHolds: 1},
		{method: "flex-regional", wantListed: 1, wantHolds: 1},
		{method: "owned", wantPaid: 2, wantListed: 4, wantHolds: 2},
		{method: "owned-regional", wantPaid: 2, wantListed: 4, wantHolds: 2},
	} {
		t.Run(tc.method, func(t *testing.T) {
			sim := simulated()
			sim.OperationTime = metav1.Duration{Duration: 30 * time.Second}
			l := newLab(t, cloudsim.Config{Pools: every(2)}, sim)
			req := launchOf(l.nodeGroup(tc.method), 4)
			_, err := l.provider().Launch(context.Background(), req)
			if err == nil || cloudprovider.Refusal(err) != nil {
				t.Fatalf("got %v, want an error that says that it is not decided yet", err)
			}
			if paid := len(l.open()); paid != tc.wantPaid {
				t.Errorf("%d machines are paid for, want %d", paid, tc.wantPaid)
			}
			p, holds := l.provider(), 0
			listed := l.list(p)
			for _, m := range listed {
				if m.Launch != token || m.Group != req.Group.Name {
					t.Errorf("got %+v: it is not known whose it is", m)
				}
				if m.Hold {
					holds++
				}
			}
			if len(listed) != tc.wantListed || holds != tc.wantHolds {
				t.Errorf("the next process knows %d, %d of them holds: want %d and %d", len(listed), holds, tc.wantListed, tc.wantHolds)
			}
			givenUp := l.clock.Now()
			l.clock.Step(5 * time.Second)
			if err := p.Terminate(context.Background(), req.Group.Name, names(listed)); err != nil {
				t.Fatal(err)
			}
			l.clock.Step(time.Hour)
			if left := l.list(l.provider()); len(left) > 0 {
				t.Errorf("got %+v, want nothing", left)
			}
			for _, line := range l.world.Bill() {
				if line.Open || line.Until.Sub(givenUp) > gcp.Bound {
					t.Errorf("%s was paid for until %s after the launch was given up (open: %t)", line.ID, line.Until.Sub(givenUp), line.Open)
				}
			}
		})
	}
}

// TestBulkInsertRollsBack: without Muster, too, a bulk insert that fails leaves
// nothing behind.
func TestBulkInsertRollsBack(t *testing.T) {
	sim := simulated()
	sim.OperationTime = metav1.Duration{Duration: 30 * time.Second}
	l := newLab(t, cloudsim.Config{Pools: every(2)}, sim)
	p, req := l.provider(), launchOf(l.nodeGroup("bulk"), 4)
	if _, err := p.Launch(context.Background(), req); cloudprovider.Refusal(err) != nil {
		t.Fatal(err)
	}
	l.clock.Step(time.Minute)
	machines, err := p.Launch(context.Background(), req)
	if refusal := cloudprovider.Refusal(err); refusal == nil || refusal.Class != v1alpha1.Stockout || len(machines) > 0 {
		t.Errorf("got %v and %v, want a stockout and no machine", machines, err)
	}
	for _, line := range l.world.Bill() {
		if line.Open || line.Until.Sub(line.From) != 30*time.Second {
			t.Errorf("%s was paid for %s, want until the operation was done", line.ID, line.Until.Sub(line.From))
		}
	}
}

// TestFlexStartEnds: the cloud deletes flex-start machines after seven days, and
// their group does not make them again.
func TestFlexStartEnds(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: every(9)}, simulated())
	if _, err := launch(t, l, l.provider(), launchOf(l.nodeGroup("flex"), 2)); err != nil {
		t.Fatal(err)
	}
	l.clock.Step(24 * time.Hour)
	for _, m := range l.list(l.provider()) {
		if left := m.EndsAt.Sub(l.clock.Now()); m.Launch != "" && (left <= 5*24*time.Hour || left > 6*24*time.Hour) {
			t.Errorf("machine %s is told to end in %s, want the rest of 7 days", m.Name, left)
		}
	}
	l.clock.Step(7 * 24 * time.Hour)
	if left := l.list(l.provider()); len(left) > 0 || len(l.open()) > 0 {
		t.Errorf("got %+v, want nothing", left)
	}
}

// TestLabels: what the cloud's bill shows of a machine.
func TestLabels(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: every(9)}, simulated())
	if _, err := launch(t, l, l.provider(), launchOf(l.nodeGroup("bulk"), 1)); err != nil {
		t.Fatal(err)
	}
	for _, line := range l.world.Bill() {
		for key, want := range map[string]string{
			"muster-dev-cluster": cluster, "muster-dev-cluster-uid": "uid-of-" + cluster, "muster-dev-launch": token, "muster-dev-request": "team-a-training-",
			"muster-dev-node-group": "bulk-h100-", "muster-dev-instance-group": "us-central1-a_bulk",
		} {
			if got := line.Tags[key]; !strings.HasPrefix(got, want) {
				t.Errorf("label %s is %q, want %q", key, got, want)
			}
		}
	}
}

// TestMembersHaveTheirStartTime: lists of a managed instance group do not say when its members were started, and a process that starts
// must not take machines that have run for long for new ones: those that seem to have lost their node would go at once, as what a crash
// has left.
func TestMembersHaveTheirStartTime(t *testing.T) {
	for _, method := range []string{"owned", "owned-regional", "flex"} {
		t.Run(method, func(t *testing.T) {
			l := newLab(t, cloudsim.Config{Pools: every(4)}, simulated())
			req, p := launchOf(l.nodeGroup(method), 2), l.provider()
			for range 5 {
				if machines, err := p.Launch(context.Background(), req); err == nil && len(machines) == 2 {
					break
				}
				l.clock.Step(10 * time.Second)
			}
			made := l.clock.Now()
			l.clock.Step(time.Hour)
			p = l.provider()
			for range 2 {
				listed := l.list(p)
				for _, m := range listed {
					if m.Started.IsZero() || m.Started.After(made) {
						t.Errorf("machine %s is said to be started at %s, want before %s", m.Name, m.Started, made)
					}
				}
				if len(listed) != 2 {
					t.Fatalf("%d machines are listed, want 2", len(listed))
				}
				l.clock.Step(time.Hour)
			}
		})
	}
}

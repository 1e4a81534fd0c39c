package gcp_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/kwok/cloudsim"
)

// TestCallsOfAGang counts the calls of a gang of 64 machines, from the first to the
// last decision and, for one that is given up, until nothing of it is left.
func TestCallsOfAGang(t *testing.T) {
	for _, tc := range []struct {
		method            string
		launch, terminate map[string]int64
	}{
		{
			method: "bulk",
			launch: map[string]int64{"instanceGroupManagers.get": 1, "instanceTemplates.get": 1, "instances.list": 1,
				"instances.bulkInsert": 1},
			// The cloud has no call that deletes several instances of no group.
			terminate: map[string]int64{"instanceGroupManagers.listManagedInstances": 1, "instances.delete": 64},
		},
		{
			method: "flex",
			launch: map[string]int64{
				"instanceGroupManagers.get": 1, "instanceTemplates.get": 1, "instances.list": 1, "instanceGroupManagerResizeRequests.get": 2,
				"instanceGroupManagerResizeRequests.insert": 1, "instanceGroupManagers.listManagedInstances": 1,
			},
			terminate: map[string]int64{"instanceGroupManagers.listManagedInstances": 1, "instanceGroupManagers.deleteInstances": 1},
		},
		{
			method: "owned",
			launch: map[string]int64{
				"instanceGroupManagers.get": 1, "instanceTemplates.get": 1, "instances.list": 1,
				"instanceGroupManagers.createInstances": 1, "instanceGroupManagers.listManagedInstances": 2,
			},
			terminate: map[string]int64{"instanceGroupManagers.listManagedInstances": 1, "instanceGroupManagers.deleteInstances": 1},
		},
	} {
		t.Run(tc.method, func(t *testing.T) {
			l := newLab(t, cloudsim.Config{Pools: every(64)}, simulated())
			p, req := l.provider(), launchOf(l.nodeGroup(tc.method), 64)
			machines, err := launch(t, l, p, req)
			if err != nil {
				t.Fatal(err)
			}
			launched := l.world.Calls("gcp")
			if diff := cmp.Diff(tc.launch, launched); diff != "" {
				t.Errorf("calls to launch (-want +got):\n%s", diff)
			}
			if err := p.Terminate(context.Background(), req.Group.Name, names(machines)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.terminate, l.callsSince(launched)); diff != "" {
				t.Errorf("calls to terminate (-want +got):\n%s", diff)
			}
		})
	}
}

// TestIdleWatch: a watch with nothing to do lists once a minute, one call for the
// project and one for each managed instance group. It looks for placement policies once.
func TestIdleWatch(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: every(64)}, simulated())
	launched, err := launch(t, l, l.provider(), launchOf(l.nodeGroup("bulk"), 3))
	if err != nil {
		t.Fatal(err)
	}
	l.nodeGroup("owned")
	l.clock.Step(2 * time.Minute)
	before := l.world.Calls("gcp")
	ctx, cancel := context.WithCancel(context.Background())
	seen, done := make(chan cloudprovider.Machine, 100), make(chan error)
	// The adapter that launched would look again a second later.
	p := l.provider()
	go func() { done <- p.Watch(ctx, func(m cloudprovider.Machine) { seen <- m }, func() {}) }()
	for range 3 * 60 {
		l.untilAsleep()
		l.clock.Step(time.Second)
	}
	l.untilAsleep()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"instances.aggregatedList": 4, "instanceGroupManagers.listManagedInstances": 8,
		"resourcePolicies.aggregatedList": 1}
	if diff := cmp.Diff(want, l.callsSince(before)); diff != "" {
		t.Errorf("calls of an idle watch (-want +got):\n%s", diff)
	}
	if len(seen) != len(launched) {
		t.Errorf("the watch reported %d changes, want each of the %d machines once", len(seen), len(launched))
	}
}

// untilAsleep returns when a goroutine waits for the clock.
func (l *lab) untilAsleep() {
	for !l.clock.HasWaiters() {
		runtime.Gosched()
	}
}

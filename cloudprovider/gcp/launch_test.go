package gcp_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp"
	"github.com/muster-dev/muster/cloudprovider/gcp/inventory"
	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// launch calls until the cloud has decided, as the controller does: anything but a
// refusal says "call again".
func launch(t *testing.T, l *lab, p *gcp.Provider, req cloudprovider.LaunchRequest) ([]cloudprovider.Machine, error) {
	t.Helper()
	var machines []cloudprovider.Machine
	var err error
	for range 20 {
		machines, err = p.Launch(context.Background(), req)
		if err == nil || cloudprovider.Refusal(err) != nil {
			return machines, err
		}
		l.clock.Step(5 * time.Second)
	}
	return machines, err
}

func TestLaunchWhole(t *testing.T) {
	for _, method := range methods {
		t.Run(method, func(t *testing.T) {
			l := newLab(t, cloudsim.Config{Pools: every(64)}, simulated())
			p, g := l.provider(), l.nodeGroup(method)
			machines, err := launch(t, l, p, launchOf(g, 3))
			if err != nil {
				t.Fatal(err)
			}
			if len(machines) != 3 || len(l.open()) != 3 {
				t.Fatalf("got %d machines, and %d are paid for: want 3", len(machines), len(l.open()))
			}
			l.clock.Step(2 * time.Minute)
			var want []cloudprovider.Machine
			for _, m := range machines {
				if m.Launch != token || m.Group != g.Name || m.State != cloudprovider.Booting || m.Hold {
					t.Errorf("got %+v: want a booting machine of the launch", m)
				}
				if id := "gce://lab/" + g.Spec.Zone + "/" + m.Name; m.ProviderID != id {
					t.Errorf("got provider ID %s, want %s", m.ProviderID, id)
				}
				m.State = cloudprovider.Running
				want = append(want, m)
			}
			if diff := cmp.Diff(want, l.list(l.provider()), cmpopts.IgnoreFields(cloudprovider.Machine{}, "Started")); diff != "" {
				t.Errorf("what a fresh adapter lists (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLaunchRefused(t *testing.T) {
	dry := []cloudsim.Pool{pool(zoneA, v1alpha1.OnDemand, 2), pool(zoneA, v1alpha1.Spot, 2), pool(zoneB, v1alpha1.OnDemand, 2)}
	quota := []cloudsim.Quota{
		{Cloud: v1alpha1.ProviderGCP, CapacityType: v1alpha1.OnDemand, Machines: 2}, {Cloud: v1alpha1.ProviderGCP, CapacityType: v1alpha1.Spot, Machines: 2},
	}
	for name, tc := range map[string]struct {
		group string
		world cloudsim.Config
		max   int32

		want     v1alpha1.ErrorClass
		wantText string
	}{
		"a bulk insert is stocked out half-way":              {group: "bulk", world: cloudsim.Config{Pools: dry}, want: v1alpha1.Stockout, wantText: "does not have enough resources"},
		"a bulk insert of Spot is stocked out half-way":      {group: "spot", world: cloudsim.Config{Pools: dry}, want: v1alpha1.Stockout, wantText: "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"},
		"a bulk insert meets the quota":                      {group: "bulk", world: cloudsim.Config{Pools: every(64), Quotas: quota}, want: v1alpha1.Quota, wantText: "QUOTA_EXCEEDED"},
		"a group's instances are stocked out half-way":       {group: "owned", world: cloudsim.Config{Pools: dry}, want: v1alpha1.Stockout, wantText: "does not have enough resources"},
		"a regional group's instances are stocked out":       {group: "owned-regional", world: cloudsim.Config{Pools: dry}, want: v1alpha1.Stockout, wantText: "does not have enough resources"},
		"a group's instances meet the quota":                 {group: "owned", world: cloudsim.Config{Pools: every(64), Quotas: quota}, want: v1alpha1.Quota, wantText: "QUOTA_EXCEEDED"},
		"a bulk insert would exceed the group's limit":       {group: "bulk", world: cloudsim.Config{Pools: every(64)}, max: 2, want: v1alpha1.Quota, wantText: "may have 2 machines, has 0 and 3 more were requested"},
		"a group's instances would exceed the group's limit": {group: "owned", world: cloudsim.Config{Pools: every(64)}, max: 2, want: v1alpha1.Quota, wantText: "may have 2 machines, has 0 and 3 more were requested"},
		"a resize request would exceed the group's limit":    {group: "flex", world: cloudsim.Config{Pools: every(64)}, max: 2, want: v1alpha1.Quota, wantText: "may have 2 machines, has 0 and 3 more were requested"},
		"a resize request for a template that takes none":    {group: "owned-as-flex", world: cloudsim.Config{Pools: every(64)}, want: v1alpha1.Config, wantText: "only supported for the provisioning models"},
		"the managed instance group is gone":                 {group: "gone", world: cloudsim.Config{Pools: every(64)}, want: v1alpha1.Config, wantText: "there is no managed instance group gone in us-central1-a"},
		"a group of several zones cannot create in one":      {group: "spread-as-owned", world: cloudsim.Config{Pools: every(64)}, want: v1alpha1.Config, wantText: "spreads machines over 2 zones"},
		"the pool of a resize request can never give":        {group: "flex", world: cloudsim.Config{Pools: []cloudsim.Pool{pool(zoneA, v1alpha1.OnDemand, 9, v1alpha1.KwokFault{Type: v1alpha1.FaultLaunchError, Error: &v1alpha1.KwokError{Class: v1alpha1.Auth, Code: "PERMISSIONS_ERROR", Message: "Permission denied on resource."}})}}, want: v1alpha1.Auth, wantText: "Permission denied on resource."},
		"a NodeGroup that names no managed instance group":   {group: "nothing", world: cloudsim.Config{Pools: every(64)}, want: v1alpha1.Config, wantText: "has no spec.gcp"},
		"a NodeGroup of a region that names no zone":         {group: "nowhere", world: cloudsim.Config{Pools: every(64)}, want: v1alpha1.Config, wantText: "has no spec.zone"},
		"a token that is no part of a name":                  {group: "token", world: cloudsim.Config{Pools: every(64)}, want: v1alpha1.Config, wantText: "lower-case letters, digits and hyphens, 63 at most"},
		"a group whose machines join another cluster":        {group: "elsewhere", world: cloudsim.Config{Pools: every(64)}, want: v1alpha1.Config, wantText: "join another cluster"},
		"a group that does not say what its machines join":   {group: "anywhere", world: cloudsim.Config{Pools: every(64)}, want: v1alpha1.Config, wantText: "put muster-dev-cluster=prod into its metadata"},
		"a throttled call":                                   {group: "bulk", world: cloudsim.Config{Pools: every(64), Throttles: []cloudsim.Throttle{{Cloud: v1alpha1.ProviderGCP, Action: "instances.bulkInsert", Burst: 1, PerSecond: 0.0001}}}, want: v1alpha1.Throttle, wantText: "rateLimitExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			sim := simulated()
			switch tc.group {
			case "elsewhere":
				sim.Templates[0].Metadata = joins("staging")
			case "anywhere":
				sim.Templates[0].Metadata = nil
			}
			l := newLab(t, tc.world, sim)
			p := l.provider()
			var req cloudprovider.LaunchRequest
			switch tc.group {
			case "owned-as-flex":
				req = launchOf(l.nodeGroup("owned"), 3)
				req.Group.Spec.GCP.LaunchMethod = v1alpha1.GCPResizeRequest
			case "spread-as-owned":
				req = launchOf(l.nodeGroup("spread"), 3)
				req.Group.Spec.GCP.LaunchMethod = v1alpha1.GCPCreateInstances
			case "elsewhere", "anywhere":
				req = launchOf(l.nodeGroup("bulk"), 3)
			case "nothing":
				req = launchOf(l.nodeGroup("bulk"), 3)
				req.Group.Spec.GCP = nil
			case "nowhere":
				req = launchOf(l.nodeGroup("spread"), 3)
				req.Group.Spec.Zone = ""
			case "token":
				req = launchOf(l.nodeGroup("bulk"), 3)
				req.Token = "Token_Of_Somebody"
			default:
				req = launchOf(l.nodeGroup(tc.group), 3)
			}
			if tc.max > 0 {
				req.Group.Spec.MaxNodes = tc.max
			}
			if tc.want == v1alpha1.Throttle {
				first := req
				first.Token, first.Count = "another-1", 1
				if _, err := launch(t, l, p, first); err != nil {
					t.Fatal(err)
				}
			}
			machines, err := launch(t, l, p, req)
			refusal := cloudprovider.Refusal(err)
			if refusal == nil || refusal.Class != tc.want || !strings.Contains(refusal.Error(), tc.wantText) {
				t.Fatalf("got %v, want class %s and %q", err, tc.want, tc.wantText)
			}
			// The core terminates what came.
			if len(machines) > 0 {
				if err := l.provider().Terminate(context.Background(), req.Group.Name, names(machines)); err != nil {
					t.Error(err)
				}
			}
			for _, line := range l.open() {
				if strings.Contains(line.ID, inventory.Shorten(token)) {
					t.Errorf("%s is still paid for", line.ID)
				}
			}
		})
	}
}

// TestLaunchAgain calls with a token that was called with before: there are never
// more machines than requested, and they are reported.
func TestLaunchAgain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		action string // whose first call goes wrong
		fault  cloudsim.CallFaultType
		// after is the time between the calls.
		after time.Duration
	}{
		{name: "nothing went wrong"},
		{name: "a day later", after: 24 * time.Hour},
		{name: "the reply was lost", action: "change", fault: cloudsim.ReplyLost},
		{name: "the call was lost", action: "change", fault: cloudsim.CallLost},
		{name: "the question for the operation was lost", action: "wait", fault: cloudsim.CallLost},
		{name: "the question for the operation came too fast", action: "wait", fault: cloudsim.CallRefused},
		{name: "a look came too fast", action: "look", fault: cloudsim.CallRefused},
		{name: "a look was lost", action: "look", fault: cloudsim.CallLost},
	} {
		for _, method := range methods {
			t.Run(tc.name+"/"+method, func(t *testing.T) {
				world := cloudsim.Config{Pools: every(64), Lag: metav1.Duration{Duration: 10 * time.Second}}
				if tc.action != "" {
					world.Calls = []cloudsim.CallFault{{Cloud: v1alpha1.ProviderGCP, Type: tc.fault,
						Action: actionOf(method, tc.action), Calls: []int64{0}}}
					if tc.fault == cloudsim.CallRefused {
						world.Calls[0].Error = &cloudsim.Error{Code: "rateLimitExceeded"}
					}
				}
				sim := simulated()
				sim.OperationTime = metav1.Duration{Duration: time.Second}
				l := newLab(t, world, sim)
				req := launchOf(l.nodeGroup(method), 3)
				_, err := l.provider().Launch(context.Background(), req)
				if cloudprovider.Refusal(err) != nil {
					t.Fatal(err)
				}
				l.clock.Step(tc.after)
				machines, err := launch(t, l, l.provider(), req)
				if err != nil {
					t.Fatal(err)
				}
				if len(machines) != 3 || len(l.open()) != 3 {
					t.Errorf("got %d machines, and %d are paid for: want 3", len(machines), len(l.open()))
				}
			})
		}
	}
}

// actionOf a method of launching: the call that changes, that waits, or that looks.
func actionOf(group, what string) string {
	table := map[string]map[string]string{
		"bulk":           {"change": "instances.bulkInsert", "wait": "zoneOperations.wait", "look": "instances.list"},
		"flex":           {"change": "instanceGroupManagerResizeRequests.insert", "wait": "zoneOperations.wait", "look": "instanceGroupManagerResizeRequests.get"},
		"flex-regional":  {"change": "regionInstanceGroupManagerResizeRequests.insert", "wait": "regionOperations.wait", "look": "regionInstanceGroupManagerResizeRequests.get"},
		"owned":          {"change": "instanceGroupManagers.createInstances", "wait": "zoneOperations.wait", "look": "instanceGroupManagers.listManagedInstances"},
		"owned-regional": {"change": "regionInstanceGroupManagers.createInstances", "wait": "regionOperations.wait", "look": "regionInstanceGroupManagers.listManagedInstances"},
	}
	if table[group] == nil {
		group = "bulk"
	}
	return table[group][what]
}

// TestLaunchWaits is of resize requests: they are holds until the cloud has all.
func TestLaunchWaits(t *testing.T) {
	ten := metav1.Duration{Duration: 10 * time.Minute}
	for _, method := range []string{"flex", "flex-regional"} {
		t.Run(method, func(t *testing.T) {
			l := newLab(t, cloudsim.Config{Pools: every(64, v1alpha1.KwokFault{Type: v1alpha1.FaultDry, Until: &ten})}, simulated())
			p, req := l.provider(), launchOf(l.nodeGroup(method), 3)
			machines, err := p.Launch(context.Background(), req)
			if err == nil || cloudprovider.Refusal(err) != nil || !strings.Contains(err.Error(),
				"waits in the cloud's queue; its last attempt failed: ZONE_RESOURCE_POOL_EXHAUSTED") {
				t.Fatalf("got %v, want an error that says what is waited for", err)
			}
			if len(machines) != 1 || !machines[0].Hold || machines[0].Launch != token {
				t.Fatalf("got %+v, want a hold of the launch", machines)
			}
			if diff := cmp.Diff(machines, l.list(l.provider())); diff != "" {
				t.Errorf("what a fresh adapter lists (-want +got):\n%s", diff)
			}
			if open := l.open(); len(open) > 0 {
				t.Errorf("a request that waits is paid for: %+v", open)
			}
			l.clock.Step(11 * time.Minute)
			machines, err = l.provider().Launch(context.Background(), req)
			if err != nil || len(machines) != 3 || machines[0].Hold {
				t.Fatalf("got %+v, %v: want 3 machines", machines, err)
			}
			if got := l.list(l.provider()); len(got) != 3 {
				t.Errorf("got %+v: want the machines and no hold", got)
			}
		})
	}
}

// TestHoldCancelled ends a resize request by the name of its hold, before and after
// the cloud has given its machines.
func TestHoldCancelled(t *testing.T) {
	ten := metav1.Duration{Duration: 10 * time.Minute}
	for _, method := range []string{"flex", "flex-regional"} {
		for _, late := range []bool{false, true} {
			l := newLab(t, cloudsim.Config{Pools: every(64, v1alpha1.KwokFault{Type: v1alpha1.FaultDry, Until: &ten})}, simulated())
			p, req := l.provider(), launchOf(l.nodeGroup(method), 3)
			holds, _ := p.Launch(context.Background(), req)
			if late {
				l.clock.Step(11 * time.Minute)
			}
			if err := p.Terminate(context.Background(), req.Group.Name, names(holds)); err != nil {
				t.Fatal(err)
			}
			l.clock.Step(time.Hour)
			if got := l.list(l.provider()); len(got) > 0 {
				t.Errorf("%s, late %t: got %+v, want nothing", method, late, got)
			}
			if open := l.open(); len(open) > 0 {
				t.Errorf("%s, late %t: still paid for: %+v", method, late, open)
			}
			_, err := p.Launch(context.Background(), req)
			if refusal := cloudprovider.Refusal(err); refusal == nil {
				t.Errorf("%s, late %t: got %v, want a refusal: the launch is over", method, late, err)
			}
		}
	}
}

// TestNothingToDelete terminates machines of a resize request that still waits: there
// are none, which is no error, and the request goes on.
func TestNothingToDelete(t *testing.T) {
	for _, method := range []string{"flex", "flex-regional"} {
		l := newLab(t, cloudsim.Config{Pools: every(2)}, simulated())
		p, req := l.provider(), launchOf(l.nodeGroup(method), 3)
		holds, _ := p.Launch(context.Background(), req)
		if err := p.Terminate(context.Background(), req.Group.Name, []string{strings.Replace(holds[0].Name, "-all", "-0", 1)}); err != nil {
			t.Errorf("%s: %v", method, err)
		}
		if left := l.list(l.provider()); len(left) != 1 || !left[0].Hold {
			t.Errorf("%s: got %+v, want the hold", method, left)
		}
	}
}

// TestMachinesGone repeats a launch some of whose machines have come and gone, while
// the cloud still knows the call, and when it has forgotten it.
func TestMachinesGone(t *testing.T) {
	for _, after := range []time.Duration{10 * time.Minute, 2 * time.Hour} {
		l := newLab(t, cloudsim.Config{Pools: every(64)}, simulated())
		p, req := l.provider(), launchOf(l.nodeGroup("bulk"), 3)
		machines, err := launch(t, l, p, req)
		if err != nil {
			t.Fatal(err)
		}
		l.clock.Step(after)
		if err := p.Terminate(context.Background(), req.Group.Name, names(machines)[:1]); err != nil {
			t.Fatal(err)
		}
		left, err := l.provider().Launch(context.Background(), req)
		if refusal := cloudprovider.Refusal(err); refusal == nil || refusal.Class != v1alpha1.Lost || len(left) != 2 {
			t.Errorf("after %s: got %d machines and %v, want 2 and a refusal of class Lost", after, len(left), err)
		}
		if open := l.open(); len(open) != 2 {
			t.Errorf("after %s: %d machines are paid for, want 2", after, len(open))
		}
	}
}

// TestLimitSeesFresh launches twice while lists lag behind: the limit counts what
// they do not know yet.
func TestLimitSeesFresh(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: every(64), Lag: metav1.Duration{Duration: time.Minute}}, simulated())
	p, req := l.provider(), launchOf(l.nodeGroup("bulk"), 3)
	req.Group.Spec.MaxNodes = 5
	if _, err := launch(t, l, p, req); err != nil {
		t.Fatal(err)
	}
	req.Token = "another-1"
	_, err := launch(t, l, p, req)
	if refusal := cloudprovider.Refusal(err); refusal == nil || refusal.Class != v1alpha1.Quota ||
		!strings.Contains(refusal.Message, "has 3") {
		t.Errorf("got %v, want a refusal of class Quota that counts 3", err)
	}
}

func TestOperationRuns(t *testing.T) {
	sim := simulated()
	sim.OperationTime = metav1.Duration{Duration: time.Minute}
	l := newLab(t, cloudsim.Config{Pools: every(64)}, sim)
	_, err := l.provider().Launch(context.Background(), launchOf(l.nodeGroup("bulk"), 3))
	if err == nil || cloudprovider.Refusal(err) != nil || !strings.Contains(err.Error(), "the operation is still running") {
		t.Errorf("got %v, want an error that says that the operation runs", err)
	}
	if errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestASucceededProcessChangesNothing: a process that another has succeeded neither
// launches nor terminates what the other has launched.
func TestASucceededProcessChangesNothing(t *testing.T) {
	deposed := errors.New("another leads")
	for _, method := range methods {
		t.Run(method, func(t *testing.T) {
			l := newLab(t, cloudsim.Config{Pools: every(64)}, simulated())
			p, g := l.providerThat(cluster, func() error { return deposed }), l.nodeGroup(method)
			if _, err := p.Launch(t.Context(), launchOf(g, 2)); !errors.Is(err, deposed) || cloudprovider.Refusal(err) != nil {
				t.Errorf("Launch: %v; want what keeps it from acting, and no refusal", err)
			}
			machines, err := launch(t, l, l.provider(), launchOf(g, 2))
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Terminate(t.Context(), g.Name, []string{machines[0].Name}); !errors.Is(err, deposed) {
				t.Errorf("Terminate: %v; want what keeps it from acting", err)
			}
			if n := len(l.open()); n != 2 {
				t.Errorf("%d machines are paid for, want the two that another has launched", n)
			}
		})
	}
}

package gcp_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp"
	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// TestOutOfReach: a managed instance group that cannot be listed hides no other, and nothing of it is taken to be gone.
func TestOutOfReach(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: every(64)}, simulated())
	p := l.provider()
	bulk, owned := launchOf(l.nodeGroup("bulk"), 2), launchOf(l.nodeGroup("owned"), 2)
	for _, req := range []cloudprovider.LaunchRequest{bulk, owned} {
		if _, err := launch(t, l, p, req); err != nil {
			t.Fatal(err)
		}
	}
	w := l.watch(p)
	w.pass(2 * time.Minute)
	end := l.world.Harm(cloudsim.CallFault{Cloud: v1alpha1.ProviderGCP, Type: cloudsim.CallRefused,
		Action: "instanceGroupManagers.listManagedInstances", Error: &cloudsim.Error{Code: "forbidden"}})
	l.world.EndAt(w.left(bulk.Group.Name)[0], l.clock.Now())
	w.pass(5 * time.Minute)
	if a, b := w.left(bulk.Group.Name), w.left(owned.Group.Name); len(a) != 1 || len(b) != 2 {
		t.Errorf("left are %q and %q, want the other one, and both of the group that cannot be listed", a, b)
	}
	end()
	l.world.EndAt(w.left(owned.Group.Name)[0], l.clock.Now())
	w.pass(2 * time.Minute)
	if b := w.left(owned.Group.Name); len(b) != 1 {
		t.Errorf("left are %q, want one of two once the group can be listed", b)
	}
}

// ahead is a clock that is ahead.
type ahead struct {
	clock.WithTicker
	by time.Duration
}

func (a ahead) Now() time.Time                  { return a.WithTicker.Now().Add(a.by) }
func (a ahead) Since(t time.Time) time.Duration { return a.Now().Sub(t) }

// TestClockIsOff: a process whose clock is ahead of the cloud's, or behind it, launches all the same, and reports the times of the cloud.
func TestClockIsOff(t *testing.T) {
	for _, by := range []time.Duration{2 * time.Minute, -2 * time.Minute, 24 * time.Hour} {
		for _, method := range methods {
			t.Run(fmt.Sprint(by, "/", method), func(t *testing.T) {
				l := newLab(t, cloudsim.Config{Pools: every(64), Lag: metav1.Duration{Duration: 5 * time.Second}}, simulated())
				p, err := gcp.New(context.Background(), gcp.Config{
					Project: project, Cluster: cluster, ClusterUID: "uid-of-" + cluster, Location: region, Clock: ahead{l.clock, by}, Endpoint: l.url,
					CallsPerSecond: 100_000, Groups: func(context.Context) ([]*v1alpha1.NodeGroup, error) { return l.groups, nil },
				})
				if err != nil {
					t.Fatal(err)
				}
				req := launchOf(l.nodeGroup(method), 3)
				for range 2 {
					machines, err := launch(t, l, p, req)
					if err != nil || len(machines) != 3 {
						t.Fatalf("got %d machines, %v: want 3", len(machines), err)
					}
				}
				l.clock.Step(2 * time.Minute)
				for _, m := range l.list(p) {
					if d := l.clock.Since(m.Started); m.Launch == token && (d < -time.Second || d > 3*time.Minute) {
						t.Errorf("machine %s was started %s ago by the clock of the cloud", m.Name, d)
					}
				}
			})
		}
	}
}

// TestLateAttempts: the names of all machines keep within what the cloud takes, at any attempt, and identify their launch.
func TestLateAttempts(t *testing.T) {
	for suffix, count := range map[string]int{"-10000": 128, "-1000r1": 16, "-99999999r9": 1000} {
		for _, method := range []string{"bulk", "owned", "flex"} {
			t.Run(method+suffix, func(t *testing.T) {
				l := newLab(t, cloudsim.Config{Pools: every(2000)}, simulated())
				req := launchOf(l.nodeGroup(method), count)
				req.Group.Spec.MaxNodes = 2000
				req.Token = strings.TrimSuffix(token, "-1") + suffix
				machines, err := launch(t, l, l.provider(), req)
				if err != nil || len(machines) != count {
					t.Fatalf("got %d machines, %v: want %d", len(machines), err, count)
				}
				for _, m := range l.list(l.provider()) {
					if !regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`).MatchString(m.Name) || m.Launch != req.Token {
						t.Fatalf("got %+v, want a name that the cloud takes, and launch %s", m, req.Token)
					}
				}
			})
		}
	}
}

// TestLateLabels: before lists show the labels of machines, a new process attributes them, counts them once, and terminates them.
func TestLateLabels(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: every(64), TagLag: metav1.Duration{Duration: time.Hour}}, simulated())
	req := launchOf(l.nodeGroup("bulk"), 5)
	req.Group.Spec.MaxNodes = 8
	if _, err := launch(t, l, l.provider(), req); err != nil {
		t.Fatal(err)
	}
	p := l.provider()
	if machines, err := launch(t, l, p, req); err != nil || len(machines) != 5 {
		t.Errorf("repeated after a failover: got %d machines, %v: want the 5 that there are", len(machines), err)
	}
	other := req
	other.Token = strings.TrimSuffix(token, "-1") + "-2"
	if _, err := launch(t, l, p, other); cloudprovider.Refusal(err) == nil || cloudprovider.Refusal(err).Class != v1alpha1.Quota {
		t.Errorf("5 of 8 machines are there, and 5 more are launched: got %v, want a refusal of class Quota", err)
	}
	listed := l.list(l.provider())
	for _, m := range listed {
		if m.Group != req.Group.Name || m.Launch != token {
			t.Errorf("got %+v, want its group and its launch", m)
		}
	}
	err := l.provider().Terminate(context.Background(), req.Group.Name, names(listed))
	if err != nil || len(listed) != 5 || len(l.open()) > 0 {
		t.Errorf("%d were listed, %d are paid for after they were terminated: %v", len(listed), len(l.open()), err)
	}
}

// TestCloudFailsByItself: operations that end with an error of the cloud itself are no fault of the group.
func TestCloudFailsByItself(t *testing.T) {
	for _, method := range methods {
		l := newLab(t, cloudsim.Config{Pools: every(64)}, simulated())
		p, req := l.provider(), launchOf(l.nodeGroup(method), 2)
		end := l.world.Harm(cloudsim.CallFault{Cloud: v1alpha1.ProviderGCP, Type: cloudsim.OperationFailed, Action: actionOf(method, "change"),
			Error: &cloudsim.Error{Code: "INTERNAL_ERROR", Message: "Internal error."}})
		for range 3 {
			_, err := launch(t, l, p, req)
			if refusal := cloudprovider.Refusal(err); refusal == nil || refusal.Class != v1alpha1.Outage {
				t.Errorf("%s: got %v, want a refusal of class Outage", method, err)
			}
			req.Token += "0"
		}
		end()
		if machines, err := launch(t, l, p, req); err != nil || len(machines) != 2 {
			t.Errorf("%s: got %d machines, %v: want 2 once it is over", method, len(machines), err)
		}
	}
}

// TestCallsOfManyGroups: while a machine boots or a resize request waits, the groups that have something under way are listed, not all.
func TestCallsOfManyGroups(t *testing.T) {
	const groups = 200
	for _, method := range []string{"bulk", "owned", "flex"} {
		t.Run(method, func(t *testing.T) {
			sim := simulated()
			l := newLab(t, cloudsim.Config{Pools: every(0)}, sim)
			if method != "flex" {
				l = newLab(t, cloudsim.Config{Pools: slow(every(1))}, sim)
			}
			for i := range groups {
				g := l.nodeGroup("bulk")
				g.Name, g.Spec.GCP.InstanceGroupManager = fmt.Sprintf("idle-%d", i), fmt.Sprintf("idle-%d", i)
			}
			p, req := l.provider(), launchOf(l.nodeGroup(method), 1)
			w := l.watch(p)
			w.pass(time.Minute)
			_, _ = p.Launch(context.Background(), req)
			before := l.world.Calls(v1alpha1.ProviderGCP)
			w.pass(3 * time.Minute)
			var n int64
			for _, calls := range l.callsSince(before) {
				n += calls
			}
			if perMinute := n / 3; perMinute > groups+40 {
				t.Errorf("%d calls a minute, want one for each group and what is under way: %v", perMinute, l.callsSince(before))
			}
		})
	}
}

// slow pools boot their machines for an hour.
func slow(pools []cloudsim.Pool) []cloudsim.Pool {
	for i := range pools {
		pools[i].Script.BootDelay = metav1.Duration{Duration: time.Hour}
	}
	return pools
}

// TestDiscoverWithAZoneAway: the groups of a zone that is away stay as they were, and those of others are discovered.
func TestDiscoverWithAZoneAway(t *testing.T) {
	sim := simulated()
	for i := range sim.Templates {
		sim.Templates[i].Metadata = enabled()
	}
	l := newLab(t, cloudsim.Config{}, sim)
	p := l.provider()
	all, err := p.Discover(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{zoneA, region} {
		l.front.SetUnreachable(place)
		if now, err := p.Discover(context.Background()); err != nil || len(now.Groups) != len(all.Groups) {
			t.Errorf("with %s away: got %d groups, %v: want %d", place, len(now.Groups), err, len(all.Groups))
		}
		l.nodeGroup("bulk")
		l.nodeGroup("spread")
		if now, err := l.provider().Discover(context.Background()); err == nil {
			t.Errorf("with %s away since before the start: got %d groups, and the NodeGroups of the others would be deleted", place, len(now.Groups))
		}
		l.groups = nil
	}
}

// TestZoneHangs: of the groups of a zone whose calls are never answered a few are waited for, and not by each list; the list goes on
// with others.
func TestZoneHangs(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: every(64)}, simulated())
	l.callTimeout = callTimeout
	for i := range 200 {
		g := l.nodeGroup("owned")
		g.Name, g.Spec.GCP.InstanceGroupManager = fmt.Sprintf("idle-%d", i), fmt.Sprintf("idle-%d", i)
	}
	p, req := l.provider(), launchOf(l.nodeGroup("owned-regional"), 2)
	if _, err := launch(t, l, p, req); err != nil {
		t.Fatal(err)
	}
	l.world.Harm(cloudsim.CallFault{Cloud: v1alpha1.ProviderGCP, Type: cloudsim.CallUnanswered,
		Action: "instanceGroupManagers.listManagedInstances"})
	if listed := l.list(p); len(listed) != 2 {
		t.Errorf("%d machines are listed, want the 2 of the region", len(listed))
	}
	const action = "instanceGroupManagers.listManagedInstances"
	before := l.world.Calls(v1alpha1.ProviderGCP)
	if n := before[action]; n == 0 || n > 16 {
		t.Errorf("%d calls were waited for, want 16 at most", n)
	}
	if listed, n := l.list(p), l.callsSince(before)[action]; len(listed) != 2 || n > 0 {
		t.Errorf("the next list has %d machines and waited for %d calls, want 2 and none", len(listed), n)
	}
	l.clock.Step(time.Minute)
	if l.list(p); l.callsSince(before)[action] == 0 {
		t.Error("the zone is not listed again")
	}
}

// TestTerminateWithoutTheGroup: machines beside a managed instance group are deleted though it cannot be listed.
func TestTerminateWithoutTheGroup(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: every(64)}, simulated())
	p, req := l.provider(), launchOf(l.nodeGroup("bulk"), 16)
	machines, err := launch(t, l, p, req)
	if err != nil {
		t.Fatal(err)
	}
	end := l.world.Harm(cloudsim.CallFault{Cloud: v1alpha1.ProviderGCP, Type: cloudsim.CallRefused,
		Action: "instanceGroupManagers.listManagedInstances", Error: &cloudsim.Error{Code: "backendError"}})
	if err := p.Terminate(context.Background(), req.Group.Name, names(machines)); err != nil || len(l.open()) > 0 {
		t.Errorf("%d machines are paid for, %v: want none", len(l.open()), err)
	}
	end()
	owned := launchOf(l.nodeGroup("owned"), 4)
	if machines, err = launch(t, l, p, owned); err != nil {
		t.Fatal(err)
	}
	end = l.world.Harm(cloudsim.CallFault{Cloud: v1alpha1.ProviderGCP, Type: cloudsim.CallRefused,
		Action: "instanceGroupManagers.listManagedInstances", Error: &cloudsim.Error{Code: "backendError"}})
	defer end()
	if err := p.Terminate(context.Background(), owned.Group.Name, names(machines)); err == nil || len(l.open()) != 4 {
		t.Errorf("%d machines are paid for, %v: want the 4 of the group, which would make others in their place", len(l.open()), err)
	}
}

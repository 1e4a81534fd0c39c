package gcp_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/conformance"
	"github.com/muster-dev/muster/cloudprovider/gcp/permissions"
	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func TestConformance(t *testing.T) {
	for _, method := range methods {
		t.Run(method, func(t *testing.T) {
			conformance.Run(t, func(t *testing.T) *conformance.Cloud { return conformingCloud(t, method) })
		})
	}
}

// conformingCloud is a group of simulated, in a cloud whose lists lag and whose
// operations take their time.
func conformingCloud(t *testing.T, method string) *conformance.Cloud {
	sim := simulated()
	sim.OperationTime = metav1.Duration{Duration: 2 * time.Second}
	l := newLab(t, cloudsim.Config{Pools: blocksOf(every(0), 3, 5, 5), Lag: metav1.Duration{Duration: 3 * time.Second},
		TagLag: metav1.Duration{Duration: 8 * time.Second}}, sim)
	l.callTimeout = callTimeout
	g := l.nodeGroup(method)
	elsewhere := map[string]string{zoneA: "spread", zoneB: "bulk"}[g.Spec.Zone]
	other := l.nodeGroup(elsewhere)
	g.Spec.MaxNodes, other.Spec.MaxNodes = conformance.MaxNodes, conformance.MaxNodes
	hit := func(kind cloudsim.CallFaultType, delay time.Duration) {
		l.world.HitNext(cloudsim.CallFault{
			Cloud: v1alpha1.ProviderGCP, Action: actionOf(method, "change"), Type: kind, Delay: metav1.Duration{Duration: delay},
		}, 1)
	}
	without := map[string]string{
		"Forget":     "a deleted VM is not listed any more",
		"Gathers":    "placement policies are used with BulkInsert alone",
		"RefuseTags": "VMs are born with their names, which say their launch, or with their labels",
	}
	var gathers *conformance.Gathering
	if slices.Contains([]string{"bulk", "spot", "spread"}, method) {
		gathers = &conformance.Gathering{Level: block, Where: l.blocks, Made: func() (out []string) {
			for _, p := range l.front.Policies() {
				out = append(out, fmt.Sprint(p))
			}
			return out
		}}
		delete(without, "Gathers")
	}
	return &conformance.Cloud{
		Group: g, Gathers: gathers, Without: without,
		Connect: func() cloudprovider.Provider { return l.provider() },
		Hold: func(n int) {
			for _, p := range l.world.Pools() {
				l.world.Hold(p.PoolKey, int32(n))
			}
		},
		Alive: func() (out []string) {
			for _, line := range l.open() {
				out = append(out, line.ID)
			}
			// What waits is known to the cloud alone, so a fresh adapter is asked.
			for _, m := range l.list(l.provider()) {
				if m.Hold {
					out = append(out, m.Name)
				}
			}
			return out
		},
		End: func(name string) {
			i := slices.IndexFunc(l.open(), func(line cloudsim.Line) bool { return strings.HasPrefix(line.ID, name) })
			l.world.EndAt(l.open()[i].ID, l.clock.Now())
		},
		Stop: l.world.Stop, IgnoreTerminations: l.world.IgnoreTerminations,
		LoseReply: func() { hit(cloudsim.ReplyLost, 0) },
		Delay:     func(d time.Duration) { hit(cloudsim.CallLate, d) },
		Slow:      func(d time.Duration) { hit(cloudsim.CallSlow, d) },
		Harm:      l.harm, Patience: callTimeout,
		Elsewhere: other,
		Away: func() (end func()) {
			l.front.SetUnreachable(other.Spec.Zone)
			return func() { l.front.SetUnreachable() }
		},
		Pass: func(d time.Duration) { l.clock.Step(d) },
	}
}

// harms are the faults that harm calls.
var harms = map[conformance.Harm]cloudsim.CallFault{
	conformance.Fails:     {Type: cloudsim.CallRefused, Error: &cloudsim.Error{Code: "backendError", Message: "Backend Error"}},
	conformance.Hangs:     {Type: cloudsim.CallUnanswered},
	conformance.Throttled: {Type: cloudsim.CallRefused, Error: &cloudsim.Error{Status: 429, Code: "rateLimitExceeded", Message: "Too many requests"}},
	conformance.Denied:    {Type: cloudsim.CallRefused, Error: &cloudsim.Error{Code: "authError", Message: "Invalid Credentials"}},
}

// launchCalls make machines.
var launchCalls = []string{"instances.bulkInsert", "instanceGroupManagers.createInstances", "regionInstanceGroupManagers.createInstances",
	"instanceGroupManagerResizeRequests.insert", "regionInstanceGroupManagerResizeRequests.insert"}

// changeCalls change something beside.
var changeCalls = []string{"instances.delete", "instanceGroupManagers.deleteInstances", "regionInstanceGroupManagers.deleteInstances",
	"instanceGroupManagerResizeRequests.cancel", "regionInstanceGroupManagerResizeRequests.cancel", "resourcePolicies.insert",
	"resourcePolicies.delete"}

// harm begins a harm of calls.
func (l *lab) harm(h conformance.Harm, calls conformance.Calls) (end func()) {
	actions := []string{""}
	switch calls {
	case conformance.Launches:
		actions = launchCalls
	case conformance.Reads:
		actions = slices.DeleteFunc(slices.Sorted(maps.Keys(permissions.ByMethod)), func(action string) bool {
			return slices.Contains(launchCalls, action) || slices.Contains(changeCalls, action)
		})
	}
	var ends []func()
	for _, action := range actions {
		fault := harms[h]
		fault.Cloud, fault.Action = v1alpha1.ProviderGCP, action
		ends = append(ends, l.world.Harm(fault))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

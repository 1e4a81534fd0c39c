package model

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// scattering is a cloud that puts machines in one rack after another: what must be in one is there for 3 minutes and is terminated.
type scattering struct {
	*purse
	status   v1alpha1.NodeGroupStatus
	launches int
}

// plan for so many pods of a machine each, all in one rack.
func (c *scattering) plan(pods int) planner.Verdict {
	s := c.Snapshot(c.clock.Now())
	template := &corev1.PodTemplateSpec{}
	template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{gpu: resource.MustParse("8")}}}}
	gang := state.Gang{Name: "ns/gang", Namespace: "ns", UID: "gang",
		PodSets: []state.PodSet{{Name: "workers", Count: pods, Template: template}}}
	policy := state.DefaultPolicy(state.AtomicScaleUp)
	policy.Topology = "rack"
	return planner.Plan(s, gang, policy)
}

// try launches what was planned, in vain.
func (c *scattering) try(machines int) {
	c.launches++
	uid := fmt.Sprint("gang", c.launches)
	attempt := func(phase transaction.AttemptPhase) {
		r := c.request(uid)
		a := transaction.Attempt{Number: 1, Phase: phase, Started: c.clock.Now(), Launches: []planner.GroupCount{{Group: "gpu", Count: machines}}}
		r.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(a.Encode())}
		c.Set(r)
	}
	machine := func(i int, s cloudprovider.State) {
		name := fmt.Sprint(uid, "-", i)
		c.SetMachine(cloudprovider.Machine{Name: name, Group: "gpu", ProviderID: name, Launch: state.Token(c.request(uid).UID, 1), State: s})
	}
	attempt(transaction.Launching)
	for i := range machines {
		machine(i, cloudprovider.Running)
	}
	c.after(2 * time.Minute)
	attempt(transaction.RollingBack)
	c.after(time.Minute)
	for i := range machines {
		machine(i, cloudprovider.Terminated)
	}
	c.Delete(c.request(uid))
	c.status = nodegroups.Learn(c.status, v1alpha1.LaunchAttempt{Time: metav1.NewTime(c.clock.Now()), Token: uid, Class: v1alpha1.Scattered,
		Level: "rack", Requested: int32(machines), Message: "machines are in 3 racks"})
	c.group()
}

func (c *scattering) group() {
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: c.next()}, Status: c.status}
	g.Spec.PricePerHour, g.Spec.MaxNodes = new(resource.MustParse("36")), 64
	g.Spec.CapacityType = v1alpha1.OnDemand
	g.Spec.Template.Capacity = corev1.ResourceList{gpu: resource.MustParse("8"), corev1.ResourcePods: resource.MustParse("110")}
	g.Spec.Topology = []v1alpha1.TopologyLevel{{NodeLabel: "rack"}}
	c.Set(g)
}

// TestACloudThatScattersIsBounded: a gang of 7 machines that never are in one rack is tried for 11 hours. Each try costs 12.60 USD of a
// budget of 1,000 USD a day.
func TestACloudThatScattersIsBounded(t *testing.T) {
	for _, tc := range []struct {
		name     string
		minimum  string
		runs     int // machines of another gang
		launches int
		vain     string
	}{
		{"by 1 percent of the budget at first, and no more", "", 0, 1, "12.60"},
		{"by as much as the budget says", "50", 0, 4, "50.40"},
		{"by 5 percent of what is spent", "", 1, 2, "25.20"},
		{"by growing pauses where all of it is allowed", "1000", 0, 10, "126.00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &scattering{purse: newPurse(t)}
			c.group()
			c.change(func(p *v1alpha1.CapacityPolicy) {
				if tc.minimum != "" {
					p.Spec.Budgets[0].VainLaunches.MinimumUSD = new(resource.MustParse(tc.minimum))
				}
			})
			c.cordoned = true
			for i := range tc.runs {
				c.machine(fmt.Sprint("runs", i), "runs-1", noon, "more runs")
			}
			for c.clock.Now().Before(noon.Add(11 * time.Hour)) {
				if v := c.plan(7); v.Outcome == planner.Launch {
					c.try(7)
				} else if v.Until.IsZero() || !v.Until.After(c.clock.Now()) {
					t.Fatalf("at %s the gang waits until %s", c.clock.Now(), v.Until)
				}
				c.after(time.Minute)
			}
			b := c.Snapshot(c.clock.Now()).Budgets[0]
			if got := text.USD(b.Vain.Until(c.clock.Now()).MicroUSD); c.launches != tc.launches || got != tc.vain {
				t.Errorf("%d launches have cost %s USD, want %d for %s", c.launches, got, tc.launches, tc.vain)
			}
			const one = 12_600_000
			if limit := b.VainLimit(c.clock.Now()); b.Vain.MicroUSD > limit+one {
				t.Errorf("%d millionths of a USD were spent in vain, more than one launch beyond %d", b.Vain.MicroUSD, limit)
			}
			if v := c.plan(6); v.Outcome != planner.Launch {
				t.Errorf("a gang that needs fewer machines waits: %s", v.Message())
			}
		})
	}
}

// TestACloudThatScattersIsBoundedWithoutABudget by pauses that grow: 4 tries a day once it has gone on for half a day.
func TestACloudThatScattersIsBoundedWithoutABudget(t *testing.T) {
	c := &scattering{purse: newPurse(t)}
	c.group()
	c.Delete(c.policy)
	for _, want := range []int{12, 16, 20} {
		for day := c.clock.Now().Add(24 * time.Hour); c.clock.Now().Before(day); c.after(time.Minute) {
			if c.plan(7).Outcome == planner.Launch {
				c.try(7)
			}
		}
		if c.launches > want {
			t.Errorf("by %s there were %d launches, want at most %d", c.clock.Now(), c.launches, want)
		}
	}
}

// TestSpendInVainOutlivesTheProcess, and ends with its period.
func TestSpendInVainOutlivesTheProcess(t *testing.T) {
	first := &scattering{purse: newPurse(t)}
	first.group()
	first.try(7)
	report := first.Reports(first.policy, first.clock.Now())[0]
	if report.VainWarning == "" || report.Status.SpentInVain != "12.60" || report.Status.VainLimit != "10.00" {
		t.Fatalf("the report is %+v", report)
	}
	next := &scattering{purse: newPurse(t, report.Status), status: first.status}
	next.group()
	next.clock.SetTime(first.clock.Now().Add(2 * time.Minute)) // the backoff is over
	if v := next.plan(7); v.Outcome != planner.Wait || v.Reasons[0].Until.Sub(noon) != 12*time.Hour {
		t.Errorf("the next process: %s %s", v.Outcome, v.Message())
	}
	if r := next.Reports(next.policy, next.clock.Now())[0]; r.VainWarning != "" {
		t.Errorf("it warns again: %s", r.VainWarning)
	}
	next.clock.SetTime(noon.Add(12 * time.Hour))
	if v := next.plan(7); v.Outcome != planner.Launch {
		t.Errorf("on the next day: %s %s", v.Outcome, v.Message())
	}
	status := next.Reports(next.policy, next.clock.Now())[0].Status
	if spend.VainOn(status) != 0 || status.WarnedInVain {
		t.Errorf("on the next day the status is %+v", status)
	}
}

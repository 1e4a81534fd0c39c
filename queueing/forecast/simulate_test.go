package forecast

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

func TestSimulate(t *testing.T) {
	machines := []metav1.Object{check("machines", cache.CapacityController)}
	tests := []struct {
		name       string
		objects    []metav1.Object
		capacity   *planner.Snapshot
		submission *kueue.Workload
		// want says which flavors the Workload starts on, after which victims, or why it
		// does not start.
		want string
	}{
		{
			name:       "free quota is had at once",
			objects:    []metav1.Object{queue("team", "spot=2 ondemand=8")},
			submission: job("new", 4),
			want:       "starts on ondemand at 0s",
		},
		{
			name:       "without quota it waits with the reason",
			objects:    []metav1.Object{queue("team", "spot=4"), job("old", 4, running(noon))},
			submission: job("new", 4),
			want: "waits (WaitingForQuota): couldn't assign flavors to pod set main: insufficient unused quota for gpu in flavor spot, 4 " +
				"more needed: 0 of 4 are free",
		},
		{
			name: "a higher priority has others leave, and only as many as it takes",
			objects: []metav1.Object{queue("team", "spot=4", preempting(kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyNever)),
				job("old", 2, running(noon.Add(-time.Hour))), job("older", 2, running(noon.Add(-2*time.Hour)))},
			submission: job("new", 2, priority(1)),
			want:       "starts on spot at 0s after [default/old]",
		},
		{
			name:       "those ahead come first",
			objects:    []metav1.Object{queue("team", "spot=4"), job("ahead", 3)},
			submission: job("new", 2, created(noon)),
			want: "waits (WaitingForQuota): couldn't assign flavors to pod set main: insufficient unused quota for gpu in flavor spot, 1 " +
				"more needed: 1 of 4 are free",
		},
		{
			name:       "a launch has a group, a price and a time",
			objects:    append(machines, queue("team", "spot=16", checked("machines"))),
			capacity:   groups(group("spot", 4)),
			submission: job("new", 16),
			want:       "starts on spot at 4m0s with [{spot 2}] for 4000000 a chance of 950",
		},
		{
			name:       "no quota is given for machines that are not to be had",
			objects:    append(machines, queue("team", "spot=16", checked("machines"))),
			capacity:   groups(group("spot", 1)),
			submission: job("new", 16),
			want:       "waits (WaitingForCapacity): flavor spot: no machines",
		},
		{
			name: "machines are asked for before others leave, and are not theirs",
			objects: append(machines, queue("team", "spot=8", checked("machines"),
				preempting(kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyNever)),
				job("old", 8, running(noon.Add(-time.Hour)))),
			capacity:   groups(group("spot", 1)),
			submission: job("new", 8, priority(1)),
			want:       "starts on spot at 4m0s with [{spot 1}] for 2000000 a chance of 950 after [default/old]",
		},
		{
			name:       "the answer of another controller is unknown",
			objects:    []metav1.Object{queue("team", "spot=4", checked("budget")), check("budget", "people.example.com")},
			submission: job("new", 4),
			want:       "starts on spot at 0s, then awaits [budget]",
		},
		{
			name:       "without a queue it cannot start",
			objects:    []metav1.Object{queue("team", "spot=4")},
			submission: job("new", 4, inQueue("none")),
			want:       `waits (Misconfigured): LocalQueue none doesn't exist`,
		},
		{
			name:       "one that is there already is judged as given",
			objects:    []metav1.Object{queue("team", "spot=4"), job("new", 5)},
			submission: job("new", 4, func(w *kueue.Workload) { w.Generation++ }),
			want:       "starts on spot at 0s",
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := stateOf(append(tc.objects, flavor("spot"), flavor("ondemand"), localQueue("main", "team"))...)
			s.SetCapacity(tc.capacity)
			got := inALine(Simulate(s, tc.submission, noon))
			if !slices.ContainsFunc(strings.Split(tc.want, "|"), func(want string) bool { return strings.HasPrefix(got, want) }) {
				t.Errorf("it %s\nwant: it %s", got, tc.want)
			}
		})
	}
}

// inALine is an outcome in a line.
func inALine(o Outcome) string {
	if !o.Starts {
		return fmt.Sprintf("waits (%s): %s", o.Reason, strings.TrimPrefix(o.Message, "couldn't assign flavors: "))
	}
	out := fmt.Sprintf("starts on %s at %s", flavorsOf(o.Admission), o.At.Sub(noon))
	if o.Plan != nil && len(o.Plan.Launches) > 0 {
		out += fmt.Sprintf(" with %v for %d a chance of %d", o.Plan.Launches, o.Plan.MicroUSDPerHour, o.Plan.Chance)
	}
	if len(o.Victims) > 0 {
		out += fmt.Sprintf(" after %v", o.Victims)
	}
	if len(o.Awaits) > 0 {
		out += fmt.Sprintf(", then awaits %v", o.Awaits)
	}
	return out
}

func flavorsOf(a *kueue.Admission) string {
	if a == nil {
		return ""
	}
	var out []string
	for _, ps := range a.PodSetAssignments {
		for _, f := range slices.Sorted(maps.Values(ps.Flavors)) {
			out = append(out, string(f))
		}
	}
	return strings.Join(out, ",")
}

// TestSimulateIsWhatHappens simulates a job in a random cluster first. It then adds the job
// to the State that the controllers use, and carries out what cycles decide, one write after
// the other. Both have to agree on whether it starts, on which flavors, and on its victims.
func TestSimulateIsWhatHappens(t *testing.T) {
	cases, leastPreempted := 1000, 100
	if testing.Short() {
		cases, leastPreempted = 300, 20
	}
	agreed, waited, preempted, launched, restless := 0, 0, 0, 0, 0
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 11))
		c := randomCluster(r)
		submission := c.job(r, "submission")
		outcome := Simulate(c.state, submission, c.now)
		simulated := whatHappens(outcome.Starts, flavorsOf(outcome.Admission), outcome.Victims)
		if c.restless {
			restless++
			t.Logf("seed %d is restless", seed)
		}
		if real := c.takeIn(t, submission); real == simulated {
			agreed++
		} else {
			t.Logf("seed %d: simulated %q, but %q happened; it was told: %s", seed, simulated, real, outcome.Message)
		}
		switch {
		case !outcome.Starts:
			waited++
		case outcome.Plan != nil && len(outcome.Plan.Launches) > 0:
			launched++
		}
		if len(outcome.Victims) > 0 {
			preempted++
		}
	}
	t.Logf("of %d cases %d agree; %d wait, %d preempt, %d launch; %d clusters never came to rest", cases, agreed, waited,
		preempted, launched, restless)
	if agreed < cases*99/100 {
		t.Errorf("%d of %d cases agree, want 99 %%", agreed, cases)
	}
	if restless > 0 {
		t.Errorf("%d of %d clusters never come to rest", restless, cases)
	}
	if waited < cases*30/100 || preempted < leastPreempted || launched < cases*10/100 {
		t.Errorf("%d cases wait, %d preempt and %d launch: too few to prove anything", waited, preempted, launched)
	}
}

func whatHappens(starts bool, flavors string, victims []types.NamespacedName) string {
	names := make([]string, len(victims))
	for i, v := range victims {
		names[i] = v.Name
	}
	slices.Sort(names)
	return fmt.Sprintf("starts=%t flavors=%s victims=%v", starts, flavors, names)
}

// cluster is a State with what carries its verdicts out as the controllers do.
type cluster struct {
	state    *queueing.State
	capacity *planner.Snapshot
	now      time.Time
	// made numbers the objects and their versions.
	made int
	// sees is called with each verdict.
	sees func(*lifecycle.Verdict)
	// restless: cycles went on deciding though nothing came from outside.
	restless bool
}

func (c *cluster) set(o metav1.Object) {
	c.made++
	o.SetResourceVersion(fmt.Sprint(c.made))
	c.state.Set(o)
}

// randomCluster is three queues of a cohort over two flavors, most with machines that
// are there or can be launched, in which a dozen jobs run and some wait.
func randomCluster(r *rand.Rand) *cluster {
	pick := func(of ...kueue.PreemptionPolicy) kueue.PreemptionPolicy { return of[r.IntN(len(of))] }
	objects := []metav1.Object{flavor("spot"), flavor("ondemand"), check("machines", cache.CapacityController)}
	for i := range 3 {
		name := fmt.Sprintf("team-%d", i)
		options := []func(*kueue.ClusterQueue){inCohort("all"), preempting(
			pick(kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyLowerPriority,
				kueue.PreemptionPolicyLowerOrNewerEqualPriority),
			pick(kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyAny))}
		if r.IntN(2) == 0 {
			options = append(options, preemptingWhileBorrowing)
		}
		if r.IntN(5) > 0 {
			options = append(options, checked("machines"))
		}
		if r.IntN(4) == 0 {
			options = append(options, strict)
		}
		objects = append(objects, queue(name, fmt.Sprintf("spot=%d/%d ondemand=%d/%d", r.IntN(20), r.IntN(10), r.IntN(20), r.IntN(10)),
			options...), localQueue(name, name))
	}
	c := &cluster{state: stateOf(objects...), now: noon, sees: func(*lifecycle.Verdict) {}}
	var list []nodegroups.Group
	for _, pool := range []string{"ondemand", "spot"} {
		var backoffs []v1alpha1.Backoff
		if r.IntN(4) == 0 {
			backoffs = append(backoffs, v1alpha1.Backoff{Class: v1alpha1.Stockout, AtLeast: 1, Failures: 1,
				Until: metav1.NewTime(noon.Add(10 * time.Hour))})
		}
		list = append(list, group(pool, 1+r.IntN(8), backoffs...))
	}
	capacity := groups(list...)
	for i := range r.IntN(2) {
		capacity.Nodes.Set(node(fmt.Sprintf("free-%d", i), group([]string{"spot", "ondemand"}[r.IntN(2)], 0)))
	}
	c.capacity = capacity
	for i := range 6 + r.IntN(12) {
		c.now = c.now.Add(time.Duration(r.IntN(100)) * time.Second)
		c.set(c.job(r, fmt.Sprintf("job-%d", i)))
		if r.IntN(5) > 0 {
			c.rest()
		}
	}
	return c
}

func (c *cluster) job(r *rand.Rand, name string) *kueue.Workload {
	return job(name, 1+r.Int32N(8), inQueue(fmt.Sprintf("team-%d", r.IntN(3))), priority(r.Int32N(3)), created(c.now))
}

// rest carries out what cycles decide until there is nothing more, at this moment.
func (c *cluster) rest() {
	for range 100 {
		// The controllers renew the picture when there is news.
		c.state.SetCapacity(c.capacity)
		verdicts := c.state.Cycle(c.now)
		for i := range verdicts {
			c.sees(&verdicts[i])
			c.carryOut(&verdicts[i])
		}
		if len(verdicts) == 0 {
			return
		}
	}
	c.restless = true
}

// carryOut does what a verdict says. Requests are answered, and pods are gone, by the
// next cycle.
func (c *cluster) carryOut(v *lifecycle.Verdict) {
	object := v.Workload.Object
	var written *kueue.Workload
	if v.Status != nil {
		written = object.DeepCopy()
		written.Status = *v.Status.DeepCopy()
		if v.Action == lifecycle.Evict && workload.HasQuota(written) {
			written.Status = *workload.Released(written, c.now)
		}
		c.made++
		written.ResourceVersion = fmt.Sprint(c.made)
	}
	for _, r := range v.Delete {
		c.capacity = c.capacity.Without(r.UID)
		c.state.Delete(r)
	}
	if v.Create != nil {
		c.made++
		r := v.Create.Object.DeepCopy()
		r.UID = types.UID(fmt.Sprintf("request-%d", c.made))
		r.Status.Conditions = []metav1.Condition{{Type: "Provisioned", Status: metav1.ConditionTrue}}
		c.provision(r, v.Create.Templates[0])
		c.set(r)
	}
	if v.Action == lifecycle.Wait && v.Create == nil && len(v.Delete) == 0 {
		if written != nil {
			c.state.Set(written)
		}
		return
	}
	c.state.Settle(object.UID, written)
}

// provision has nodes for the pods of a request, and the pods on them.
func (c *cluster) provision(r *autoscaling.ProvisioningRequest, template *corev1.PodTemplate) {
	gang := state.Gang{Namespace: r.Namespace, Name: r.Name, PodSets: []state.PodSet{{Count: int(r.Spec.PodSets[0].Count),
		Template: &template.Template}}}
	next := *c.capacity
	next.Nodes, next.Groups = next.Nodes.Clone(), slices.Clone(next.Groups)
	for _, l := range planner.Plan(&next, gang, state.DefaultPolicy(state.AtomicScaleUp)).Launches {
		for i := range next.Groups {
			if g := &next.Groups[i]; g.Name == l.Group {
				g.Machines += l.Count
				for range l.Count {
					c.made++
					next.Nodes.Set(node(fmt.Sprintf("node-%d", c.made), g.Group))
				}
			}
		}
	}
	for _, p := range planner.Plan(&next, gang, state.DefaultPolicy(state.CheckCapacity)).Placement {
		n := *next.Nodes.Find(p.Node)
		n.Free = n.Free.Clone()
		n.Free.Sub(p.Requests, 1)
		pod := nodegroups.Resources{"gpu": 1, "pods": 1}
		n.Labelled = append(slices.Clip(n.Labelled), state.Booking{
			UID: r.UID, Key: r.Name, Namespace: r.Namespace, Running: p.Pods[0], Came: slices.Repeat([]nodegroups.Resources{pod}, p.Pods[0]),
		})
		next.Nodes.Set(&n)
	}
	c.capacity = &next
}

func node(name string, g nodegroups.Group) *state.Node {
	return &state.Node{Name: name, Group: g.Name, Labels: g.Labels, Ready: true, Allocatable: g.Allocatable, Free: g.Allocatable.Clone()}
}

// takeIn is what happens once a job has come.
func (c *cluster) takeIn(t *testing.T, submission *kueue.Workload) string {
	t.Helper()
	starts, flavors := false, ""
	var victims []types.NamespacedName
	c.sees = func(v *lifecycle.Verdict) {
		switch {
		case starts:
		case v.Action == lifecycle.Evict && v.PreemptedBy == submission.UID:
			victims = append(victims, types.NamespacedName{Name: v.Workload.Object.Name})
		case v.Action == lifecycle.Reserve && v.Workload.Object.UID == submission.UID:
			starts, flavors = true, flavorsOf(v.Status.Admission)
		}
	}
	c.set(submission)
	c.rest()
	return whatHappens(starts, flavors, victims)
}

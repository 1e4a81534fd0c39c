package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// scenarioTime is how long a random scenario goes on; what goes wrong does so in it.
const scenarioTime = 3 * time.Minute

// generator makes up a random scenario.
type generator struct {
	*world
	random *rand.Rand
	start  time.Time
	// inRacks: the scenario is about gangs that must be in one rack, and clouds that scatter.
	inRacks bool
}

// generateSharers generates a scenario without faults: gangs with and without GPUs arrive one after another, and share machines of two
// groups. The machines of one group take long to boot.
func (a *generator) generateSharers() {
	a.create(devicePlugin())
	a.create(newGroup("cpus", func(g *v1alpha1.NodeGroup) {
		g.Spec.Template.Capacity, g.Spec.Template.Taints, g.Spec.MaxNodes = cpuMachine, nil, 20
		g.Spec.Kwok.BootDelay, *g.Spec.IdleTimeout = seconds(1+a.random.Int64N(10)), seconds(a.random.Int64N(30))
	}))
	a.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) {
		g.Spec.MaxNodes, g.Spec.Kwok.BootDelay = 20, seconds(1+a.random.Int64N(50))
		if a.withClaims {
			a.publishes(g)
		}
	}))
	if a.withClaims {
		a.deviceObjects()
	}
	for i := range 2 + a.random.IntN(7) {
		g := &gang{namespace: "team", request: fmt.Sprint("gang-", i), held: true, runFor: time.Second + a.within(time.Minute),
			giveUpAfter: 5 * time.Minute}
		if !a.oneIn(4) {
			g.podSets = append(g.podSets, podSet{spec: podSpec(1+a.random.Int64N(4), 0), count: 1 + a.random.IntN(2)})
		}
		if len(g.podSets) == 0 || a.oneIn(2) {
			ps := podSet{spec: podSpec(4, 1+a.random.Int64N(4)), count: 1 + a.random.IntN(2)}
			if a.withClaims {
				ps.spec = a.claiming(podSpec(1, 1))
			}
			g.podSets = append(g.podSets, ps)
		}
		a.submit(a.start.Add(a.within(40*time.Second)), g, transaction.ClassAtomicScaleUp, nil)
	}
}

// oneIn says yes to one of n.
func (a *generator) oneIn(n int) bool { return a.random.IntN(n) == 0 }

func oneOf[T any](a *generator, of ...T) T { return of[a.random.IntN(len(of))] }

// within is a random time up to a limit.
func (a *generator) within(limit time.Duration) time.Duration {
	return time.Duration(a.random.Int64N(int64(limit/time.Millisecond))) * time.Millisecond
}

// randomFaults draws what goes wrong with calls, caches and the process.
func randomFaults(r *rand.Rand) faults {
	w := faults{
		staleness: []time.Duration{50 * time.Millisecond, time.Second, time.Second, 10 * time.Second}[r.IntN(4)],
		calls:     []int{0, 20, 100}[r.IntN(3)],
		crashes:   []int{0, 2, 10}[r.IntN(3)],
		watches:   []int{0, 0, 20}[r.IntN(3)],
	}
	for _, kind := range []string{
		"tell of Pod", "tell of Node", "tell of ProvisioningRequest", "tell of Machine", "tell of NodeGroup", "request patches", "kwok",
		"scaledown", "daemon pod", "the taint", "the collector", "wake", "pod",
	} {
		if r.IntN(6) == 0 {
			w.slow = append(w.slow, kind)
		}
	}
	return w
}

// generate generates the scenario.
func (a *generator) generate() {
	a.create(devicePlugin())
	if a.withClaims {
		a.deviceObjects()
	}
	if a.oneIn(3) {
		a.create(agent())
	}
	policy := &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy"}}
	booking := seconds(20 + a.random.Int64N(40))
	policy.Spec.BookingTimeout = &booking
	policy.Spec.Split = oneOf(a, v1alpha1.SingleGroup, v1alpha1.SingleZone, v1alpha1.AnyZone)
	a.create(policy)
	for i := range 1 + a.random.IntN(3) {
		a.create(a.group(fmt.Sprintf("group-%d", i)))
	}
	for i := range a.random.IntN(3) {
		n := newNode(fmt.Sprintf("node-%d", i), oneOf(a, gpuMachine, cpuMachine))
		n.Labels[corev1.LabelTopologyZone] = oneOf(a, "a", "b")
		if a.withClaims {
			a.publishOn(n)
		}
		a.create(n)
	}
	rush := time.Duration(1+a.random.IntN(90)) * time.Second
	for i := range 1 + a.random.IntN(6) {
		a.request(i, rush)
	}
	for i := range a.random.IntN(5) {
		a.unbookedPod(i)
	}
	for i := range a.random.IntN(6) {
		a.interfere(i)
	}
	if a.withClaims && a.oneIn(3) {
		a.taintByRule()
	}
	for _, g := range all[*v1alpha1.NodeGroup](a.store) {
		if a.oneIn(4) {
			from := a.start.Add(a.within(scenarioTime / 3))
			a.outages[g.Name] = outage{from, from.Add(a.within(scenarioTime * 2 / 3))}
		}
	}
}

// group is a random pool, and what its cloud has in store.
func (a *generator) group(name string) *v1alpha1.NodeGroup {
	return newGroup(name, func(g *v1alpha1.NodeGroup) {
		if a.oneIn(4) {
			g.Spec.Template.Capacity, g.Spec.Template.Taints = cpuMachine, nil
		}
		if a.oneIn(4) {
			g.Spec.Template.StartupTaints = []corev1.Taint{startupTaint}
		}
		g.Spec.MaxNodes = 1 + a.random.Int32N(4)
		g.Spec.MinNodes = min(a.random.Int32N(2), g.Spec.MaxNodes)
		g.Spec.Zone = oneOf(a, "a", "a", "a", "b")
		g.Spec.CapacityType = oneOf(a, v1alpha1.Reserved, v1alpha1.Spot, v1alpha1.OnDemand)
		join, idle := seconds(15+a.random.Int64N(40)), seconds(a.random.Int64N(30))
		g.Spec.JoinTimeout, g.Spec.IdleTimeout = &join, &idle
		pool := g.Spec.Kwok
		pool.Seed = a.random.Int64()
		pool.BootDelay, pool.BootJitter, pool.DeviceDelay = seconds(a.random.Int64N(5)), seconds(a.random.Int64N(4)), seconds(a.random.Int64N(3))
		if a.oneIn(10) {
			pool.BootDelay = seconds(200) // longer than any request waits
		}
		if a.oneIn(3) {
			holds := a.random.Int32N(g.Spec.MaxNodes + 1)
			pool.Holds = &holds
		}
		for a.oneIn(2) && len(pool.Faults) < 3 {
			pool.Faults = append(pool.Faults, a.fault())
		}
		a.undeclare(g)
		if a.inRacks {
			a.racks(g)
		}
		if a.withClaims {
			a.claimsDevices(g)
		}
	})
}

// undeclare gives nodes of the group properties that the NodeGroup does not declare.
func (a *generator) undeclare(g *v1alpha1.NodeGroup) {
	if a.oneIn(8) {
		a.undeclared[g.Name] = a.within(time.Minute)
		if a.oneIn(2) {
			a.undeclared[g.Name] = 0
			*g.Spec.JoinTimeout = seconds(150) // longer than such a taint is waited for
		}
	}
	a.outlive[g.Name] = a.oneIn(6)
}

func (a *generator) fault() v1alpha1.KwokFault {
	from := a.within(scenarioTime / 4)
	until := from + a.within(scenarioTime*3/4)
	f := v1alpha1.KwokFault{From: &metav1.Duration{Duration: from}, Until: &metav1.Duration{Duration: until}}
	percent := 30 + a.random.Int32N(70)
	switch a.random.IntN(8) {
	case 0:
		f.Type, f.Holds = v1alpha1.FaultDry, a.random.Int32N(4) // of the 1 to 4 that a group may have
	case 1:
		f.Type = v1alpha1.FaultLaunchError
		f.Error = &v1alpha1.KwokError{Code: "Refused", Message: "the cloud says no",
			Class: oneOf(a, v1alpha1.Stockout, v1alpha1.Quota, v1alpha1.Throttle, v1alpha1.Auth, v1alpha1.Config)}
	case 2, 3:
		f.Type, f.Percent = v1alpha1.FaultBootDeath, &percent
	case 4:
		late := seconds(a.random.Int64N(60))
		f.Type, f.Percent, f.After = v1alpha1.FaultLateDevices, &percent, &late
	case 5:
		after, pause := seconds(a.random.Int64N(40)), seconds(a.random.Int64N(150))
		f.Type, f.Percent, f.After, f.For = v1alpha1.FaultDevicesVanish, &percent, &after, &pause
	default:
		after := seconds(a.random.Int64N(60))
		f.Type, f.Percent, f.After = v1alpha1.FaultReclaim, &percent, &after
	}
	return f
}

// request is a gang with its request, and what its users do with it.
func (a *generator) request(i int, rush time.Duration) {
	g := &gang{
		namespace: oneOf(a, "team-a", "team-b"), request: fmt.Sprintf("gang-%d", i),
		delay: a.within(5 * time.Second), runFor: time.Second + a.within(40*time.Second), giveUpAfter: 60*time.Second + a.within(time.Minute),
	}
	switch a.random.IntN(12) {
	case 0: // another namespace may have a request of this name
		if i < 2 {
			g.namespace, g.request = []string{"team-a", "team-b"}[i], "same-name"
		}
	case 1: // another request of the namespace may have this booking key
		g.namespace, g.request = "team-a", strings.Repeat("a", 31)+fmt.Sprintf("-%d-", i)+strings.Repeat("z", 31)
	case 2:
		g.request = fmt.Sprintf("gang-%d-%s", i, strings.Repeat("x", 240))
	}
	for range 1 + a.random.IntN(2) {
		ps := podSet{count: 1 + a.random.IntN(3)}
		switch a.random.IntN(4) {
		case 0:
			ps.spec = podSpec(1+a.random.Int64N(4), 0)
		case 1:
			ps.spec = podSpec(2, 2)
		default:
			ps.spec = podSpec(4, 4)
		}
		if a.withClaims {
			ps.spec = a.claiming(ps.spec)
		}
		g.podSets = append(g.podSets, ps)
	}
	if a.inRacks {
		a.bind(g)
	}
	switch a.random.IntN(6) {
	case 0:
		g.absent = 1 + a.random.IntN(g.pods())
	case 1:
		g.delay = a.within(2 * time.Minute)
	case 2:
		g.fails, g.retryAfter = 1+a.random.IntN(g.pods()), a.within(10*time.Second)
	}
	g.held = a.oneIn(2)
	at := a.start.Add(a.within(rush))
	class := oneOf(a, transaction.ClassAtomicScaleUp, transaction.ClassAtomicScaleUp, transaction.ClassAtomicScaleUp,
		transaction.ClassCheckCapacity)
	parameters := map[string]string{}
	if a.oneIn(2) {
		parameters[transaction.ParamPolicy] = "policy"
	}
	if a.oneIn(3) {
		parameters[transaction.ParamValidUntil] = fmt.Sprint(10 + a.random.IntN(200))
	}
	if a.oneIn(6) {
		parameters[transaction.ParamNoRetry] = "true"
	}
	if a.inRacks && a.oneIn(2) {
		a.losesWhileItRuns(g, at, parameters)
	}
	a.submit(at, g, class, a.mistake(g, at, parameters))
	if a.oneIn(3) {
		a.withdrawAt(g, class, at.Add(a.within(oneOf(a, 5*time.Second, 15*time.Second, 90*time.Second))))
	}
}

// mistake may spoil the request.
func (a *generator) mistake(g *gang, at time.Time, parameters map[string]string) map[string]string {
	switch a.random.IntN(20) {
	case 0:
		parameters[transaction.ParamValidUntil] = oneOf(a, "soon", "0", "-1")
	case 1:
		parameters[transaction.ParamPolicy] = "missing"
		if a.oneIn(2) {
			a.plan(at.Add(a.within(time.Minute)), "an admin makes the missing policy", func() {
				a.create(&v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "missing"}})
			})
		}
	case 2:
		g.podSets[0].spec.Containers[0].Resources.Requests["example.com/unicorn"] = resource.MustParse("1")
	case 3:
		g.podSets[0].spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: oneOf(a, "a", "nowhere"), v1alpha1.CapacityTypeLabel: "spot"}
	case 4:
		g.podSets[0].count = 40
	case 5:
		a.plan(at.Add(a.within(3*time.Second)), "somebody deletes a template of "+g.String(), func() {
			_ = a.store.delete(g.newTemplate(0)) // it may not be there yet
		})
	}
	return parameters
}

// withdrawAt withdraws the request at a time, and may create it again under the same name.
func (a *generator) withdrawAt(g *gang, class string, at time.Time) {
	a.withdraw(at, g)
	if a.oneIn(2) {
		a.plan(at.Add(a.within(5*time.Second)), "somebody asks again for "+g.String(), func() {
			if _, err := a.store.create(g.newRequest(class, nil)); err == nil {
				a.feature("request made again")
				if g.over {
					g.started, g.over = false, false
				}
			}
		})
	}
}

// unbookedPod is a pod that does not use Muster.
func (a *generator) unbookedPod(i int) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: unbookedNamespace, Name: fmt.Sprintf("stranger-%d", i),
		Annotations: map[string]string{runForAnnotation: (time.Second + a.within(time.Minute)).String()}}}
	p.Spec = podSpec(1+a.random.Int64N(3), a.random.Int64N(3))
	if a.withClaims {
		p.Spec = a.claiming(p.Spec)
	}
	if a.oneIn(2) {
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} // it lands on held machines, too
	}
	p.Status.Phase = corev1.PodPending
	at := a.start.Add(a.within(oneOf(a, scenarioTime, scenarioTime/4)))
	if a.oneIn(2) {
		a.services = append(a.services, &service{
			name: p.Name, spec: podSpec(1+a.random.Int64N(3), 0), budget: a.oneIn(4), from: at,
			until: at.Add(10*time.Second + a.within(2*time.Minute)),
		})
		return
	}
	a.plan(at, "a stranger comes", func() { a.create(p) })
	a.plan(at.Add(2*time.Minute), "a stranger goes", func() { change(a.store, p, markDeleted) })
}

// interfere plans what people do to nodes and groups.
func (a *generator) interfere(i int) {
	at := a.start.Add(a.within(scenarioTime))
	some := a.random.IntN(12)
	onNode := func(what string, change func(*corev1.Node)) func() {
		return func() {
			if nodes := all[*corev1.Node](a.store); len(nodes) > 0 {
				n := nodes[some%len(nodes)]
				a.note("  node %s: %s", n.Name, what)
				a.feature(what)
				a.change(n, change)
			}
		}
	}
	switch a.random.IntN(6) {
	case 0:
		a.plan(at, fmt.Sprintf("a human cordons a node %d", i), onNode("human cordon", func(n *corev1.Node) {
			// With Muster's annotation, the two cordons cannot be distinguished.
			_, marked := n.Annotations[v1alpha1.CordonedAnnotation]
			a.cordoned[n.Name] = a.cordoned[n.Name] || !n.Spec.Unschedulable && !marked
			n.Spec.Unschedulable = true
		}))
		a.plan(at.Add(a.within(time.Minute)), fmt.Sprintf("a human uncordons a node %d", i), onNode("human uncordon", func(n *corev1.Node) {
			delete(a.cordoned, n.Name)
			n.Spec.Unschedulable = false
		}))
	case 1:
		a.plan(at, fmt.Sprintf("a node is not ready %d", i), onNode("node not ready", func(n *corev1.Node) {
			if !outlives(n) {
				setReady(n, corev1.ConditionFalse)
			}
		}))
		a.plan(at.Add(a.within(20*time.Second)), fmt.Sprintf("nodes are ready again %d", i), func() {
			for _, n := range all[*corev1.Node](a.store) {
				a.change(n, func(n *corev1.Node) {
					if !ready(n) && !outlives(n) {
						setReady(n, corev1.ConditionTrue)
					}
				})
			}
		})
	case 2:
		a.plan(at, fmt.Sprintf("a node is deleted %d", i), func() {
			if nodes := all[*corev1.Node](a.store); len(nodes) > 0 {
				a.lose(nodes[some%len(nodes)])
			}
		})
	case 3:
		name := fmt.Sprintf("group-%d", a.random.IntN(2))
		a.plan(at, fmt.Sprintf("an admin deletes %s %d", name, i), func() {
			if a.store.delete(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}) == nil {
				a.feature("group deleted")
			}
		})
	case 4:
		name, limit := fmt.Sprintf("group-%d", a.random.IntN(2)), a.random.Int32N(5)
		a.plan(at, fmt.Sprintf("an admin limits %s %d", name, i), func() {
			if g := find[*v1alpha1.NodeGroup](a.store, "", name); g != nil {
				a.feature("group limited")
				change(a.store, g, func(g *v1alpha1.NodeGroup) {
					g.Spec.MaxNodes, g.Spec.MinNodes = max(limit, g.Spec.MinNodes), min(limit, g.Spec.MinNodes)
				})
			}
		})
	case 5:
		a.plan(at, fmt.Sprintf("a human marks a node %d", i), onNode("node annotated", func(n *corev1.Node) {
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			n.Annotations["example.com/note"] = "looked at"
		}))
	}
}

func (a *generator) change(n *corev1.Node, f func(*corev1.Node)) { change(a.store, n, f) }

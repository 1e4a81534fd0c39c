package worth

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/cost"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

const (
	// arrival is the mean pause between two gangs.
	arrival = time.Minute
	// largest gangs have so many machines, 512 GPUs.
	largest = 64
	// patience is how long a partial gang keeps its machines while no other arrives: as long as cluster-autoscaler keeps an unused node.
	// Otherwise two gangs with half of their machines would wait for each other forever.
	patience = 10 * time.Minute
	// retry is the pause after a failed launch without a known reason.
	retry = time.Minute
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// gang is a request with the job behind it.
type gang struct {
	request transaction.Request
	runs    time.Duration
	// machines that were launched for it and are there.
	machines []*machine
	// learned is what its own attempts have taught.
	learned map[string]v1alpha1.NodeGroupStatus

	// due: it is to be decided. lookAt is when time alone has it decided.
	due    bool
	lookAt time.Time
	// calling: a cloud has not answered yet.
	calling bool
	// kept are the machines that are kept from launches that failed in part, until
	// that time.
	kept      []string
	keptUntil time.Time

	// pausedUntil is when it tries again, without the ledger, once its machines are terminated.
	pausedUntil time.Time

	started, ended time.Time
}

// newWorld is a day of the seed with so many gangs: the same gangs and the same stock,
// whatever Muster does without.
func newWorld(seed uint64, gangs int, off without) *world {
	w := &world{
		without: off, now: began, offerings: newOfferings(rand.New(rand.NewPCG(seed, 1)), began),
		nodes: nodeset.New(), machines: map[string]*machine{}, ledger: cost.NewLedger(),
	}
	w.ledger.Open(began)
	random := rand.New(rand.NewPCG(seed, 2))
	at := began
	for i := range gangs {
		g := newGang(i, 1<<sizeClass(random), at, time.Duration(10+random.IntN(50))*time.Minute)
		w.at(at, func() {
			w.gangs = append(w.gangs, g)
			g.due = true
		})
		at = at.Add(time.Duration(random.ExpFloat64() * float64(arrival)))
	}
	return w
}

// sizeClass is the binary logarithm of a gang's machines. Of each class there are two
// thirds as many gangs as of the one below it, so that the large ones have more machines
// in all than the small ones.
func sizeClass(random *rand.Rand) int {
	class := 0
	for class < int(math.Log2(largest)) && random.IntN(3) > 0 {
		class++
	}
	return class
}

func newGang(i, machines int, at time.Time, runs time.Duration) *gang {
	name := fmt.Sprintf("gang-%02d", i)
	template := &corev1.PodTemplateSpec{}
	template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), gpu: *resource.NewQuantity(gpusPerMachine, resource.DecimalSI),
	}}}}
	uid := types.UID(name)
	return &gang{runs: runs, learned: map[string]v1alpha1.NodeGroupStatus{}, request: transaction.Request{
		UID: uid, Namespace: "ns", Name: name, Created: at, ValidFor: 7 * 24 * time.Hour, PodsHeld: true, Pods: machines,
		Gang: state.Gang{Namespace: "ns", Name: "ns/" + name, UID: uid, Key: name, PodSets: []state.PodSet{
			state.NewPodSet("ns", "workers", machines, template, fit.Objects{}),
		}},
		Policy:  state.DefaultPolicy(state.AtomicScaleUp),
		Attempt: transaction.Attempt{Phase: transaction.Done},
	}}
}

// token is that of the last attempt; empty before the first.
func (g *gang) token() string {
	if g.request.Attempt.Number == 0 {
		return ""
	}
	return state.Token(g.request.UID, g.request.Attempt.Number)
}

func (g *gang) decides(now time.Time) bool {
	due := g.due || !g.lookAt.IsZero() && !now.Before(g.lookAt)
	return due && !g.calling && g.request.Status != transaction.Over && !g.boots() &&
		(!now.Before(g.pausedUntil) || len(g.machines) > 0)
}

// boots reports whether some of the kept machines have not joined: what is missing is not certain before.
func (g *gang) boots() bool {
	return slices.ContainsFunc(g.machines, func(m *machine) bool {
		return m.State == cloudprovider.Booting && slices.Contains(g.kept, m.Name)
	})
}

// mayUse says whether the gang may launch in an offering.
func (g *gang) mayUse(o *offering, off without) bool {
	switch {
	case off == fallback && g.request.Attempt.Number > 0:
		return g.request.Attempt.Machines(o.object.Name) > 0
	case len(g.kept) > 0:
		// The rest has to come to where the pieces are.
		zone := g.machines[slices.IndexFunc(g.machines, func(m *machine) bool { return m.Name == g.kept[0] })].of.object.Spec.Zone
		return o.object.Spec.Zone == zone
	}
	return true
}

// take does what a step says. It says whether there may be another one to take at once.
func (w *world) take(g *gang, s transaction.Step) bool {
	r := &g.request
	w.learn(g, s.Outcomes)
	for _, name := range s.Unbook {
		if n := w.nodes.Find(name); s.Do != transaction.Report || !slices.Contains(g.kept, name) {
			g.unbook(w, n)
		}
	}
	for _, p := range s.Book {
		w.change(p.Node, func(n *state.Node) { g.booked(n, p, s.Open, w.now) })
	}
	r.Attempt = s.Attempt
	r.Gang.Launch = ""
	if r.Attempt.Owned(r.Status) {
		r.Gang.Launch = g.token()
	}
	switch s.Do {
	case transaction.Rest, transaction.Report:
		r.Provisioned = s.Condition
		g.lookAt = s.At
		return false
	case transaction.LaunchMachines:
		w.launch(g, s.Launch[0])
		return false
	case transaction.Begin, transaction.Book:
		return true
	case transaction.RollBack:
		if w.without == ledger {
			w.pause(g)
		}
		return true
	case transaction.Terminate:
		for _, m := range s.Terminate {
			w.end(m.Name)
		}
		return true
	case transaction.Provision:
		r.Status, r.Provisioned = transaction.Provisioned, s.Condition
		r.Provisioned.LastTransitionTime = metav1.NewTime(w.now)
		g.kept = nil
		w.start(g)
		return true
	case transaction.Consume:
		r.Status = transaction.Over
		w.release(g)
		return false
	}
	w.failure = fmt.Errorf("gang %s: nobody expected the step %s here: %s", r.Name, s.Do, s.Condition.Message)
	return false
}

// pause has a gang give up the nodes that it has booked beside a launch that failed, and
// wait before it tries again. Muster does both when the ledger leaves no option. Without
// it there is always one left, and gangs that held on to parts of their machines while
// they call and call again would wait for each other for ever.
func (w *world) pause(g *gang) {
	for _, n := range slices.Collect(w.nodes.BookedBy(g.request.UID)) {
		g.unbook(w, n)
	}
	g.pausedUntil = w.now.Add(retry)
	w.at(g.pausedUntil, func() { g.due = true })
}

// booked has a node booked as the placement says.
func (g *gang) booked(n *state.Node, p planner.Placement, open bool, now time.Time) {
	n.Bookings = slices.DeleteFunc(n.Bookings, func(b state.Booking) bool { return b.UID == g.request.UID })
	n.Bookings = append(n.Bookings, state.Booking{
		Key: g.request.Gang.Key, Namespace: g.request.Namespace, UID: g.request.UID, Open: open,
		Booked: p.Requests, Remaining: p.Requests.Clone(), Since: now,
	})
	n.Cordon = state.Held
}

func (g *gang) unbook(w *world, n *state.Node) {
	g.kept = slices.DeleteFunc(g.kept, func(name string) bool { return name == n.Name })
	w.change(n.Name, func(n *state.Node) {
		n.Bookings = slices.DeleteFunc(n.Bookings, func(b state.Booking) bool { return b.UID == g.request.UID })
	})
}

// start has the gang's pods come, all at once, and go when their time is over.
func (w *world) start(g *gang) {
	g.started = w.now
	on := slices.Collect(w.nodes.BookedBy(g.request.UID))
	for _, n := range on {
		w.change(n.Name, func(n *state.Node) {
			for i := range n.Bookings {
				if b := &n.Bookings[i]; b.UID == g.request.UID {
					n.Free = n.Free.Clone()
					n.Free.Sub(b.Booked, 1)
					// All pods of a gang here take a machine each.
					b.Came, b.Remaining, b.Running = []nodegroups.Resources{b.Booked}, nodegroups.Resources{}, 1
				}
			}
			n.Pods, n.InFlight, n.Cordon = 1, false, state.Open
		})
	}
	w.at(w.now.Add(g.runs), func() {
		g.ended = w.now
		for _, n := range on {
			w.change(n.Name, func(n *state.Node) {
				n.Pods, n.Free, n.Bookings, n.Cordon = 0, n.Allocatable.Clone(), nil, state.Held
			})
		}
	})
}

// release lets others have what was launched for the gang that it found room without.
func (w *world) release(g *gang) {
	for _, m := range g.machines {
		if n := w.nodes.Find(m.Name); n != nil && n.InFlight {
			w.change(m.Name, func(n *state.Node) { n.InFlight, n.Cordon = false, state.Held })
		}
	}
}

// keep has the machines that came kept for the gang, where Muster would roll its
// attempt back.
func (w *world) keep(g *gang, s transaction.Step) {
	w.learn(g, s.Outcomes)
	for _, m := range g.machines {
		if state.AttemptToken(m.Launch) == g.token() {
			g.kept = append(g.kept, m.Name)
		}
	}
	g.request.Attempt = s.Attempt
	g.request.Attempt.Phase = transaction.Done
	g.request.Gang.Launch = ""
	g.keptUntil = w.now.Add(patience)
	w.at(g.keptUntil, func() { w.giveUp(g) })
	w.joined(g)
}

// joined has the pieces that are kept, and have joined, booked for the gang.
func (w *world) joined(g *gang) {
	pod := nodegroups.ResourcesFrom(g.request.Gang.PodSets[0].Template.Spec.Containers[0].Resources.Requests)
	pod[corev1.ResourcePods] = 1
	for _, name := range g.kept {
		if n := w.nodes.Find(name); n != nil && n.InFlight {
			w.change(name, func(n *state.Node) {
				n.InFlight = false
				g.booked(n, planner.Placement{Node: name, Requests: pod}, false, w.now)
			})
		}
	}
}

// giveUp terminates the machines of a gang that waited too long for the others.
func (w *world) giveUp(g *gang) {
	if g.request.Status != transaction.Pending || w.now.Before(g.keptUntil) {
		return
	}
	if g.request.Attempt.InFlight() || g.calling {
		g.keptUntil = w.now.Add(patience)
		w.at(g.keptUntil, func() { w.giveUp(g) })
		return
	}
	for _, name := range g.kept {
		w.end(name)
	}
	g.kept, g.due = nil, true
}

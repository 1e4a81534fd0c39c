package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/cost"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// Costs are the costs of the machines that exist now, attributed as in the metric
// muster_spend_usd_per_hour.
type Costs struct {
	Total   CostLine     `json:"total"`
	Groups  []GroupCost  `json:"groups"`
	Tenants []TenantCost `json:"tenants"`
	Jobs    []JobCost    `json:"jobs"`
	// Unpriced are groups with machines and without a price.
	Unpriced []string `json:"unpriced,omitempty"`
}

// CostLine is a number of machines by phase, with their price. A machine that several
// requests have booked counts for each.
type CostLine struct {
	Machines   int    `json:"machines"`
	Joining    int    `json:"joining"`
	Booked     int    `json:"booked"`
	Used       int    `json:"used"`
	Idle       int    `json:"idle"`
	Wasted     int    `json:"wasted"`
	USDPerHour string `json:"usdPerHour"`
	// Unused is the part of USDPerHour for idle and wasted machines.
	Unused string `json:"unusedUSDPerHour"`

	perHour, unused int64
}

// GroupCost is the cost of a group's machines.
type GroupCost struct {
	Group  string `json:"group"`
	Market string `json:"market"`
	// Each is the price of one machine.
	Each string `json:"usdPerHourEach"`
	CostLine
}

// TenantCost is the cost of a LocalQueue's requests. The queue is empty for requests of no
// queue, and the namespace, too, for machines of no request.
type TenantCost struct {
	Namespace string `json:"namespace"`
	Queue     string `json:"queue"`
	CostLine
}

// JobCost is the cost of a job, or of a ProvisioningRequest without one.
type JobCost struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Queue     string `json:"queue,omitempty"`
	// SoFar is the cost until now of the machines that it has now, at current prices, each
	// since its launch for the job or its booking; in whole cents.
	SoFar string `json:"usdSoFar"`
	CostLine

	soFar int64
}

// add counts a machine, or a payer's part of it.
func (l *CostLine) add(purpose cost.Purpose, microUSDPerHour int64) {
	l.Machines++
	switch purpose {
	case cost.PurposeJoining:
		l.Joining++
	case cost.PurposeBooked:
		l.Booked++
	case cost.PurposeUsed:
		l.Used++
	case cost.PurposeIdle:
		l.Idle++
	case cost.PurposeWasted:
		l.Wasted++
	}
	if l.perHour += microUSDPerHour; purpose == cost.PurposeIdle || purpose == cost.PurposeWasted {
		l.unused += microUSDPerHour
	}
	l.USDPerHour, l.Unused = text.USD(l.perHour), text.USD(l.unused)
}

// Costs returns the costs of all groups' machines. The clouds are not called: a machine is a
// node with the label of its group, or one that the group's status counts and that has no
// node yet.
func (p *Picture) Costs() *Costs {
	b := &bill{
		Picture: p, fleet: p.machines.Fleet(p.Now), requests: map[types.UID]*provreq.ProvisioningRequest{},
		workloads: map[types.UID]*kueue.Workload{},
		groups:    map[string]*GroupCost{}, tenants: map[payer]*TenantCost{}, jobs: map[payer]*JobCost{}, nodes: map[string]int{},
	}
	for _, r := range p.Requests {
		b.requests[r.UID] = r
	}
	for _, w := range p.Workloads {
		b.workloads[w.UID] = w
	}
	for n := range p.Snapshot.Nodes.All() {
		if n.Group != "" {
			b.nodes[n.Group]++
			b.charge(n.Group, n.Launch, n)
		}
	}
	b.chargeBooting()
	return b.sum()
}

// payer is the job and the queue that a cost is attributed to; the zero value is none.
type payer struct{ namespace, queue, job string }

// bill adds up costs.
type bill struct {
	*Picture
	fleet     scaledown.Fleet
	requests  map[types.UID]*provreq.ProvisioningRequest
	workloads map[types.UID]*kueue.Workload

	total  CostLine
	groups map[string]*GroupCost
	// tenants have no job.
	tenants map[payer]*TenantCost
	jobs    map[payer]*JobCost
	// nodes of each group.
	nodes map[string]int
}

// charge adds a machine of a group. The node is nil if it has none yet.
func (b *bill) charge(group, launch string, n *state.Node) {
	var price int64
	g := b.groups[group]
	if g == nil {
		g = &GroupCost{Group: group}
		b.groups[group] = g
	}
	if ng := b.Groups[group]; ng != nil {
		g.Market, price = string(ng.Spec.CapacityType), nodegroups.MicroUSD(ng.Spec.PricePerHour)
	}
	g.Each = text.USD(price)
	at := cloudprovider.Running
	if n == nil {
		at = cloudprovider.Booting
	}
	purpose := cost.PurposeOf(cloudprovider.Machine{Group: group, Launch: launch, State: at}, b.phaseOf(launch), n)
	b.total.add(purpose, price)
	g.add(purpose, price)
	inFlight, bookings := b.fleet.InFlight[launch], []state.Booking(nil)
	if n != nil {
		inFlight, bookings = inFlight || n.InFlight, n.Labelled
	}
	for i, s := range cost.Shares(launch, bookings, inFlight, price) {
		who := b.payerOf(s)
		t := payer{namespace: who.namespace, queue: who.queue}
		if b.tenants[t] == nil {
			b.tenants[t] = &TenantCost{Namespace: t.namespace, Queue: t.queue}
		}
		b.tenants[t].add(purpose, s.MicroUSDPerHour)
		if who.job == "" {
			continue
		}
		if b.jobs[who] == nil {
			b.jobs[who] = &JobCost{Namespace: who.namespace, Name: who.job, Queue: who.queue}
		}
		b.jobs[who].add(purpose, s.MicroUSDPerHour)
		since := b.Now
		if len(bookings) > 0 && !bookings[i].Since.IsZero() {
			since = bookings[i].Since
		}
		b.jobs[who].soFar += s.Over(b.Now.Sub(b.since(s.Request, launch, since)))
	}
}

// phaseOf returns the phase of the attempt that owns a launch; Done if there is none.
func (b *bill) phaseOf(launch string) transaction.AttemptPhase {
	e, ok := b.machines.Request(state.TokenUID(launch))
	if !ok || !e.Attempt.Owned(e.Status) || !slices.Contains(e.Attempt.Tokens(e.UID), launch) {
		return transaction.Done
	}
	return e.Attempt.Phase
}

// payerOf returns the payer of a share. The job is empty if its request is gone.
func (b *bill) payerOf(s cost.Share) (out payer) {
	out.namespace = s.Namespace
	r := b.requests[s.Request]
	if r == nil {
		return out
	}
	out.namespace, out.job = r.Namespace, "provisioningrequest/"+r.Name
	if owner := metav1.GetControllerOf(r); owner != nil {
		if w := b.workloads[owner.UID]; w != nil {
			out.queue, out.job = string(w.Spec.QueueName), nameOf(w)
		}
	}
	return out
}

// since returns when a request began to pay for a machine: at its launch if it was launched
// for the request, else at the booking.
func (b *bill) since(request types.UID, launch string, booked time.Time) time.Time {
	// An unreadable record has no launch.
	a, _ := transaction.DecodeAttempt(string(b.requests[request].Status.ProvisioningClassDetails[transaction.AttemptDetail]))
	for _, call := range a.Calls(request) {
		if call.Token == launch {
			return call.Began
		}
	}
	return booked
}

// chargeBooting adds the machines that have no node yet: those that attempts wait for, in
// the order of their requests' names, then the rest of each group.
func (b *bill) chargeBooting() {
	left := map[string]int{}
	for name, g := range b.Groups {
		left[name] = max(0, int(g.Status.Machines)-b.nodes[name])
	}
	requests := slices.SortedFunc(maps.Values(b.requests), func(a, o *provreq.ProvisioningRequest) int {
		return cmp.Or(strings.Compare(a.Namespace, o.Namespace), strings.Compare(a.Name, o.Name))
	})
	for _, r := range requests {
		e, ok := b.machines.Request(r.UID)
		if !ok || !e.Attempt.InFlight() {
			continue
		}
		for _, call := range e.Attempt.Calls(r.UID) {
			came := 0
			for n := range b.Snapshot.Nodes.LaunchedBy(state.AttemptToken(call.Token)) {
				if n.Launch == call.Token && n.Group == call.Group {
					came++
				}
			}
			for range min(left[call.Group], call.Count-came) {
				left[call.Group]--
				b.charge(call.Group, call.Token, nil)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		for range left[name] {
			b.charge(name, "", nil)
		}
	}
}

// sum sorts what was added up, the highest cost first.
func (b *bill) sum() *Costs {
	out := &Costs{Total: b.total, Groups: []GroupCost{}, Tenants: []TenantCost{}, Jobs: []JobCost{}}
	if out.Total.Machines == 0 {
		out.Total.USDPerHour, out.Total.Unused = text.USD(0), text.USD(0)
	}
	for _, g := range b.groups {
		out.Groups = append(out.Groups, *g)
		if ng := b.Groups[g.Group]; ng == nil || ng.Spec.PricePerHour == nil {
			out.Unpriced = append(out.Unpriced, g.Group)
		}
	}
	for _, t := range b.tenants {
		out.Tenants = append(out.Tenants, *t)
	}
	for _, j := range b.jobs {
		const cent = 10_000
		j.SoFar = text.USD(j.soFar / cent * cent)
		out.Jobs = append(out.Jobs, *j)
	}
	slices.SortFunc(out.Groups, func(x, y GroupCost) int {
		return cmp.Or(cmp.Compare(y.perHour, x.perHour), strings.Compare(x.Group, y.Group))
	})
	slices.SortFunc(out.Tenants, func(x, y TenantCost) int {
		return cmp.Or(cmp.Compare(y.perHour, x.perHour), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Queue, y.Queue))
	})
	slices.SortFunc(out.Jobs, func(x, y JobCost) int {
		return cmp.Or(cmp.Compare(y.perHour, x.perHour), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	slices.Sort(out.Unpriced)
	return out
}

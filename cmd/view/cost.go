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
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/history"
)

// Costs are the costs of the machines that exist now, attributed as in the metric
// muster_spend_usd_per_hour.
type Costs struct {
	Total CostLine `json:"total"`
	// Clusters are this one, if it has machines, the workers, and last those that were not read; none if there are no workers.
	Clusters []ClusterCost `json:"clusters,omitempty"`
	Groups   []GroupCost   `json:"groups"`
	Tenants  []TenantCost  `json:"tenants"`
	Jobs     []JobCost     `json:"jobs"`
	// InVain are the costs of launches in vain, by job and cause.
	InVain  []VainCost   `json:"inVain,omitempty"`
	Budgets []BudgetCost `json:"budgets,omitempty"`
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

// ClusterCost is the cost of a cluster's machines. The name of the cluster that was asked is empty.
type ClusterCost struct {
	Cluster string `json:"cluster"`
	// Unread says why its costs are not known; empty if they are.
	Unread string `json:"unread,omitempty"`
	CostLine
}

// GroupCost is the cost of a group's machines.
type GroupCost struct {
	Cluster      string `json:"cluster,omitempty"`
	Group        string `json:"group"`
	CapacityType string `json:"capacityType"`
	// Each is the price of one machine.
	Each string `json:"usdPerHourEach"`
	CostLine
}

// TenantCost is the cost of a LocalQueue's requests, and of idle machines that its jobs have left. The queue is empty for requests of no
// queue, and the namespace, too, for machines that no request has had.
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
	// Cluster that it runs in; empty for the one that was asked.
	Cluster string `json:"cluster,omitempty"`
	// SoFar is the cost until now of the machines that it has now, at current prices, each
	// since its launch for the job or its booking; in whole cents.
	SoFar string `json:"usdSoFar"`
	CostLine

	soFar int64
}

// VainCost is what machines have cost that were launched for a job and never served it. It is that of the job's ProvisioningRequests, and
// ends with them.
type VainCost struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Cluster   string `json:"cluster,omitempty"`
	// Cause is the class of the failure, or Undone if no NodeGroup caused the failure.
	Cause    string `json:"cause"`
	Machines int    `json:"machines"`
	USD      string `json:"usd"`

	micro int64
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

// Costs returns the costs of all groups' machines, those of the workers that were read included. The clouds are not called: a machine
// is a node with the label of its group, or one that the group's status counts and that has no node yet.
func (p *Picture) Costs(workers ...Worker) *Costs { return p.CostsIn("", workers...) }

// CostsIn returns the part of the costs that the requests of a namespace pay, and the budgets that have a say there; all of them if
// the namespace is empty. A machine counts if one of its bookings is of the namespace.
func (p *Picture) CostsIn(namespace string, workers ...Worker) *Costs {
	b := &bill{namespace: namespace,
		clusters: map[string]*ClusterCost{}, groups: map[groupName]*GroupCost{}, tenants: map[payer]*TenantCost{}, jobs: map[payer]*JobCost{},
		priced: map[groupName]bool{}, launched: map[payer]int64{},
	}
	b.add("", p, nil)
	originals := map[types.NamespacedName]*kueue.Workload{}
	if len(workers) > 0 {
		for _, w := range p.Workloads {
			originals[types.NamespacedName{Namespace: w.Namespace, Name: w.Name}] = w
		}
	}
	for i := range workers {
		if w := &workers[i]; w.Picture != nil {
			b.clusters[w.Name] = &ClusterCost{Cluster: w.Name, CostLine: CostLine{USDPerHour: text.USD(0), Unused: text.USD(0)}}
			b.add(w.Name, w.Picture, originals)
		}
	}
	out := b.sum()
	out.Budgets = b.budgetCosts(p, workers)
	if len(workers) == 0 {
		out.Clusters = nil
	}
	for i := range workers {
		if w := &workers[i]; w.Picture == nil {
			out.Clusters = append(out.Clusters, ClusterCost{Cluster: w.Name, Unread: said(w.Name, w.Unread)})
		}
	}
	return out
}

// payer is the job, its cluster and its queue that a cost is attributed to; the zero value is none. What a queue pays is of all clusters.
type payer struct{ namespace, queue, job, cluster string }

// groupName is that of a group of a cluster.
type groupName struct{ cluster, group string }

// bill adds up costs.
type bill struct {
	// namespace whose part is added up; empty for all.
	namespace string
	total     CostLine
	clusters  map[string]*ClusterCost
	groups    map[groupName]*GroupCost
	// priced are the groups with a price.
	priced map[groupName]bool
	// tenants have no job.
	tenants map[payer]*TenantCost
	jobs    map[payer]*JobCost
	// launched is what tenants pay in each cluster for machines that Muster has launched, in millionths of a USD per hour.
	launched map[payer]int64
	vain     []VainCost
}

// charges are those of one cluster.
type charges struct {
	*Picture
	*bill
	cluster string
	// originals are the manager's Workloads, of which a worker has copies; none for the manager itself.
	originals map[types.NamespacedName]*kueue.Workload
	fleet     scaledown.Fleet
	requests  map[types.UID]*provreq.ProvisioningRequest
	workloads map[types.UID]*kueue.Workload
	// nodes of each group.
	nodes map[string]int
}

// add adds the machines of a cluster.
func (b *bill) add(cluster string, of *Picture, originals map[types.NamespacedName]*kueue.Workload) {
	c := &charges{
		Picture: of, bill: b, cluster: cluster, originals: originals, fleet: of.machines.Fleet(of.Now),
		requests: map[types.UID]*provreq.ProvisioningRequest{}, workloads: map[types.UID]*kueue.Workload{}, nodes: map[string]int{},
	}
	for _, r := range of.Requests {
		c.requests[r.UID] = r
	}
	for _, w := range of.Workloads {
		c.workloads[w.UID] = w
	}
	for n := range of.Snapshot.Nodes.All() {
		if n.Group != "" {
			c.nodes[n.Group]++
			c.charge(n.Group, n.Launch, n)
		}
	}
	c.chargeBooting()
	for _, r := range of.Requests {
		c.addVain(r)
	}
}

// addVain adds what launches for the request have cost in vain.
func (c *charges) addVain(r *provreq.ProvisioningRequest) {
	if c.namespace != "" && r.Namespace != c.namespace {
		return
	}
	who, record := c.payerOf(cost.Share{Request: r.UID}), purchases.Of(r)
	for _, v := range record.InVain() {
		c.vain = append(c.vain, VainCost{Namespace: who.namespace, Name: who.job, Cluster: who.cluster, Cause: v.Cause, Machines: v.Machines,
			USD: cents(v.MicroUSD), micro: v.MicroUSD})
	}
}

// charge adds a machine of a group. The node is nil if it has none yet.
func (c *charges) charge(group, launch string, n *state.Node) {
	var price int64
	if ng := c.Groups[group]; ng != nil {
		price = nodegroups.MicroUSD(ng.Spec.PricePerHour)
	}
	at := cloudprovider.Running
	if n == nil {
		at = cloudprovider.Booting
	}
	purpose := cost.PurposeOf(cloudprovider.Machine{Group: group, Launch: launch, State: at}, c.phaseOf(launch), n)
	inFlight, bookings, leftBy := c.fleet.InFlight[launch], []state.Booking(nil), state.Tenant{}
	if n != nil {
		inFlight, bookings, leftBy = inFlight || n.InFlight, n.Labelled, n.LeftBy
	}
	if r := c.requests[state.TokenUID(launch)]; r != nil && leftBy == (state.Tenant{}) {
		who := c.payerOf(cost.Share{Request: r.UID})
		leftBy = state.Tenant{Namespace: who.namespace, Queue: who.queue}
	}
	shares := cost.Shares(launch, bookings, inFlight, leftBy, price)
	c.chargeMachine(group, purpose, price, shares)
	for i, s := range shares {
		who := c.payerOf(s)
		t := payer{namespace: who.namespace, queue: who.queue}
		if launch != "" && s.LeftBy == (state.Tenant{}) {
			c.launched[payer{namespace: who.namespace, queue: who.queue, cluster: c.cluster}] += s.MicroUSDPerHour
		}
		if c.namespace != "" && who.namespace != c.namespace {
			continue
		}
		if c.tenants[t] == nil {
			c.tenants[t] = &TenantCost{Namespace: t.namespace, Queue: t.queue}
		}
		c.tenants[t].add(purpose, s.MicroUSDPerHour)
		if who.job == "" {
			continue
		}
		if c.jobs[who] == nil {
			c.jobs[who] = &JobCost{Namespace: who.namespace, Name: who.job, Queue: who.queue, Cluster: who.cluster}
		}
		c.jobs[who].add(purpose, s.MicroUSDPerHour)
		since := c.Now
		if len(bookings) > 0 && !bookings[i].Since.IsZero() {
			since = bookings[i].Since
		}
		c.jobs[who].soFar += s.Over(c.Now.Sub(c.since(s.Request, launch, since)))
	}
}

// chargeMachine adds a machine of that price to the lines that count machines, as far as it is of the namespace.
func (c *charges) chargeMachine(group string, purpose cost.Purpose, price int64, shares []cost.Share) {
	paid := price
	if c.namespace != "" {
		paid = 0
		shares = slices.DeleteFunc(slices.Clone(shares), func(s cost.Share) bool { return c.payerOf(s).namespace != c.namespace })
		if len(shares) == 0 {
			return
		}
		for _, s := range shares {
			paid += s.MicroUSDPerHour
		}
	}
	name := groupName{c.cluster, group}
	g := c.groups[name]
	if g == nil {
		g = &GroupCost{Cluster: c.cluster, Group: group}
		c.groups[name] = g
	}
	if ng := c.Groups[group]; ng != nil {
		g.CapacityType, c.priced[name] = string(ng.Spec.CapacityType), ng.Spec.PricePerHour != nil
	}
	g.Each = text.USD(price)
	if c.clusters[c.cluster] == nil {
		c.clusters[c.cluster] = &ClusterCost{Cluster: c.cluster}
	}
	for _, line := range []*CostLine{&c.total, &c.clusters[c.cluster].CostLine, &g.CostLine} {
		line.add(purpose, paid)
	}
}

// phaseOf returns the phase of the attempt that owns a launch; Done if there is none.
func (c *charges) phaseOf(launch string) transaction.AttemptPhase {
	e, ok := c.machines.Request(state.TokenUID(launch))
	if !ok || !e.Attempt.Owned(e.Status) || !slices.Contains(e.Attempt.Tokens(e.UID), launch) {
		return transaction.Done
	}
	return e.Attempt.Phase
}

// payerOf returns the payer of a share. The job is empty if its request is gone. That of a copy is the manager's, which has it from its
// beginning.
func (c *charges) payerOf(s cost.Share) (out payer) {
	cause := s.Cause()
	out.namespace, out.queue, out.cluster = cause.Namespace, cause.Queue, c.cluster
	r := c.requests[s.Request]
	if r == nil {
		return out
	}
	out.namespace, out.job = r.Namespace, "provisioningrequest/"+r.Name
	if owner := metav1.GetControllerOf(r); owner != nil {
		if w := c.workloads[owner.UID]; w != nil {
			original := c.originals[types.NamespacedName{Namespace: w.Namespace, Name: w.Name}]
			out.queue, out.job = string(w.Spec.QueueName), history.NameOf(cmp.Or(original, w))
		}
	}
	return out
}

// since returns when a request began to pay for a machine: at its launch if it was launched
// for the request, else at the booking.
func (c *charges) since(request types.UID, launch string, booked time.Time) time.Time {
	// An unreadable record has no launch.
	a, _ := transaction.DecodeAttempt(string(c.requests[request].Status.ProvisioningClassDetails[transaction.AttemptDetail]))
	for _, call := range a.Calls(request) {
		if call.Token == launch {
			return call.Began
		}
	}
	return booked
}

// chargeBooting adds the machines that have no node yet: those that attempts wait for, in
// the order of their requests' names, then the rest of each group.
func (c *charges) chargeBooting() {
	left := map[string]int{}
	for name, g := range c.Groups {
		left[name] = max(0, int(g.Status.Machines)-c.nodes[name])
	}
	requests := slices.SortedFunc(maps.Values(c.requests), func(a, o *provreq.ProvisioningRequest) int {
		return cmp.Or(strings.Compare(a.Namespace, o.Namespace), strings.Compare(a.Name, o.Name))
	})
	for _, r := range requests {
		e, ok := c.machines.Request(r.UID)
		if !ok || !e.Attempt.InFlight() {
			continue
		}
		for _, call := range e.Attempt.Calls(r.UID) {
			came := 0
			for n := range c.Snapshot.Nodes.LaunchedBy(state.AttemptToken(call.Token)) {
				if n.Launch == call.Token && n.Group == call.Group {
					came++
				}
			}
			for range min(left[call.Group], call.Count-came) {
				left[call.Group]--
				c.charge(call.Group, call.Token, nil)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		for range left[name] {
			c.charge(name, "", nil)
		}
	}
}

// sum sorts what was added up, the highest cost first.
func (b *bill) sum() *Costs {
	out := &Costs{Total: b.total, Groups: []GroupCost{}, Tenants: []TenantCost{}, Jobs: []JobCost{}}
	if out.Total.Machines == 0 {
		out.Total.USDPerHour, out.Total.Unused = text.USD(0), text.USD(0)
	}
	for _, name := range slices.Sorted(maps.Keys(b.clusters)) {
		out.Clusters = append(out.Clusters, *b.clusters[name])
	}
	for name, g := range b.groups {
		out.Groups = append(out.Groups, *g)
		switch {
		case b.priced[name]:
		case name.cluster == "":
			out.Unpriced = append(out.Unpriced, name.group)
		default:
			out.Unpriced = append(out.Unpriced, name.group+" in cluster "+name.cluster)
		}
	}
	for _, t := range b.tenants {
		out.Tenants = append(out.Tenants, *t)
	}
	for _, j := range b.jobs {
		j.SoFar = cents(j.soFar)
		out.Jobs = append(out.Jobs, *j)
	}
	slices.SortFunc(out.Groups, func(x, y GroupCost) int {
		return cmp.Or(cmp.Compare(y.perHour, x.perHour), strings.Compare(x.Cluster, y.Cluster), strings.Compare(x.Group, y.Group))
	})
	slices.SortFunc(out.Tenants, func(x, y TenantCost) int {
		return cmp.Or(cmp.Compare(y.perHour, x.perHour), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Queue, y.Queue))
	})
	slices.SortFunc(out.Jobs, func(x, y JobCost) int {
		return cmp.Or(cmp.Compare(y.perHour, x.perHour), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name),
			strings.Compare(x.Cluster, y.Cluster))
	})
	out.InVain = b.vain
	slices.SortFunc(out.InVain, func(x, y VainCost) int {
		return cmp.Or(cmp.Compare(y.micro, x.micro), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name),
			strings.Compare(x.Cluster, y.Cluster), strings.Compare(x.Cause, y.Cause))
	})
	slices.Sort(out.Unpriced)
	return out
}

package metrics

import (
	"cmp"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/cost"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/scaledown"
)

// snapshot exports the state of the Model at the time of a scrape.
type snapshot struct {
	model   *model.Model
	tenants *tenants
	lists   cloudprovider.Lists
	clock   clock.PassiveClock

	mu sync.Mutex
	// offerings of all groups that have been seen: the machines of a deleted group still cost money.
	offerings map[string]offering
}

func newState(m *model.Model, t *tenants, l cloudprovider.Lists, c clock.PassiveClock) *snapshot {
	return &snapshot{model: m, tenants: t, lists: l, clock: c, offerings: map[string]offering{}}
}

var (
	groups = prometheus.NewDesc("muster_group_info",
		"Always 1: what a group offers, for joining with the other metrics of groups. The instance type is the name of the group where "+
			"nothing says it. The series stays when the group is deleted, as what its machines have cost does.",
		[]string{"group", "provider", "zone", "capacity_type", "instance_type"}, nil)
	prices = prometheus.NewDesc("muster_group_price_usd_per_hour",
		"What one machine of the group costs in USD per hour, which is the spec.pricePerHour of the NodeGroup.",
		[]string{"group"}, nil)
	chance = prometheus.NewDesc("muster_group_chance_ratio",
		"Estimated chance that a launch of one machine of the group succeeds now, from 0 to 1.",
		[]string{"group"}, nil)
	evidence = prometheus.NewDesc("muster_group_evidence_launches",
		"Launches that the chance is estimated from, by their size (1, 2 to 3 machines as 2, 4 to 7 as 4 and so on), by the level "+
			"that they had to be within one domain of (empty where they could be anywhere), and by whether all machines came (got) "+
			"or not (failed). Each counts half after 30 minutes: the figure is that of muster_group_evidence_timestamp_seconds. "+
			"The cloud's own advice counts as up to 4.",
		[]string{"group", "machines", "level", "outcome"}, nil)
	evidenceAt = prometheus.NewDesc("muster_group_evidence_timestamp_seconds",
		"When something was last learned about the chance, in seconds since 1970.",
		[]string{"group"}, nil)
	machines = prometheus.NewDesc("muster_machines",
		"Machines that exist, by group and by what they are for: joining, booked, used by pods, idle, or wasted, which never served and are "+
			"being terminated.",
		[]string{"group", "state"}, nil)
	lived = prometheus.NewDesc("muster_machine_seconds_total",
		"Seconds that machines have lived, by group and purpose. Those of joining machines are counted once they have joined, or as wasted.",
		[]string{"group", "purpose"}, nil)
	paid = prometheus.NewDesc("muster_machine_cost_usd_total",
		"What machines have cost in USD, by group and purpose, as muster_machine_seconds_total counts them: each second at the "+
			"spec.pricePerHour that its NodeGroup had.",
		[]string{"group", "purpose"}, nil)
	unused = prometheus.NewDesc("muster_machine_unused_seconds_total",
		"The part of muster_machine_seconds_total of purpose booked in which machines were held for pods that never came, counted when the "+
			"booking is over.",
		[]string{"group"}, nil)
	unusedCost = prometheus.NewDesc("muster_machine_unused_cost_usd_total",
		"The part of muster_machine_cost_usd_total of purpose booked, in USD, that was paid for pods that never came, counted when the "+
			"booking is over.",
		[]string{"group"}, nil)
	spend = prometheus.NewDesc("muster_spend_usd_per_hour",
		"What the machines that exist cost in USD per hour, by the namespace and LocalQueue of the requests that have booked or launched "+
			"them, or whose gang was the last on an idle machine; both are empty for machines that no gang has had, and the queue for requests "+
			"that came from none. A machine that several have booked counts for each in equal parts.",
		[]string{"namespace", "queue"}, nil)
	spent = prometheus.NewDesc("muster_spend_usd_total",
		"What machines have cost in USD, each second at the price that its group had, by the namespace and LocalQueue that paid at the time, as "+
			"muster_spend_usd_per_hour has it.",
		[]string{"namespace", "queue"}, nil)
	doubted = prometheus.NewDesc("muster_group_machines_in_doubt",
		"Machines that are not terminated though they have lost their node, have one that is not Ready, or are stopped, because they are too "+
			"many of the group: a person has to decide. 0 where there are few.",
		[]string{"group"}, nil)
	kept = prometheus.NewDesc("muster_group_idle_machines_kept",
		"Idle machines that are not terminated because no request has launched them and they are too many of the group to go at once: a "+
			"person has to decide. 0 where there are few.",
		[]string{"group"}, nil)
	groupDevices = prometheus.NewDesc("muster_group_devices",
		"Devices that pods claim (DRA) on the nodes of the group, by DeviceClass: free, allocated to claims, or tainted, which claims without a "+
			"toleration do not get. A device in several classes counts in each. Nodes with incomplete pools have none.",
		[]string{"group", "device_class", "state"}, nil)
	machineDevices = prometheus.NewDesc("muster_group_machine_devices",
		"Devices that pods can claim (DRA) of a new machine of the group, by DeviceClass: as its nodes have shown, or else as "+
			"spec.template.devices of the NodeGroup declares.",
		[]string{"group", "device_class"}, nil)
	listAge = prometheus.NewDesc("muster_group_list_age_seconds",
		"Seconds since the cloud last listed the machines of the group, which it does every minute at least: what is known of them is so old. "+
			"Only of groups whose cloud is listed.",
		[]string{"group"}, nil)
	budgetLimit = prometheus.NewDesc("muster_budget_limit_usd",
		"What may be spent of a budget in its period in USD, by CapacityPolicy and by the name of the budget in it.",
		[]string{"policy", "budget"}, nil)
	budgetSpent = prometheus.NewDesc("muster_budget_spent_usd",
		"What was spent of a budget in its period so far in USD: it restarts at 0 with each period.",
		[]string{"policy", "budget"}, nil)
	budgetCommitted = prometheus.NewDesc("muster_budget_committed_usd",
		"What is set aside of a budget in USD for machines that are in use or asked for, beside what was spent. A gang begins if its own "+
			"price is within what is left.",
		[]string{"policy", "budget"}, nil)
	budgetVain = prometheus.NewDesc("muster_budget_vain_usd",
		"What launches in vain have cost of a budget in its period so far in USD: their machines were terminated before a gang had all that "+
			"it needs.",
		[]string{"policy", "budget"}, nil)
	budgetVainLimit = prometheus.NewDesc("muster_budget_vain_limit_usd",
		"What launches in vain may cost of a budget in its period in USD, by its vainLaunches and what was spent so far. From then on launches "+
			"that are likely to be in vain wait.",
		[]string{"policy", "budget"}, nil)
	stopped = prometheus.NewDesc("muster_requests_stopped",
		"ProvisioningRequests that buy nothing for now, since they have bought twice what their gang needs.", nil, nil)
	requests = prometheus.NewDesc("muster_requests",
		"ProvisioningRequests that exist, by provisioning class and by the last condition that became true: None, Accepted, Provisioned, "+
			"BookingExpired, CapacityRevoked or Failed.",
		[]string{"class", "condition"}, nil)
)

// Describe implements prometheus.Collector.
func (s *snapshot) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		groups, prices, chance, evidence, evidenceAt, machines, lived, paid, unused, unusedCost, spend, spent, requests, stopped, doubted, kept,
		groupDevices, machineDevices, listAge, budgetLimit, budgetSpent, budgetCommitted, budgetVain, budgetVainLimit,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s *snapshot) Collect(to chan<- prometheus.Metric) {
	now := s.clock.Now()
	amounts := s.model.Amounts(now)
	if amounts == nil {
		return // the lease was lost a moment ago
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fleet := s.model.Fleet(now)
	doubts := scaledown.InDoubt(&fleet)
	for i := range fleet.Groups {
		g := &fleet.Groups[i]
		if ng := s.model.Group(g.Name); ng != nil {
			s.offerings[g.Name] = offeringOf(&g.Group, &ng.Spec)
			if at := s.lists.At(ng); !at.IsZero() {
				gauge(to, listAge, now.Sub(at).Seconds(), g.Name)
			}
		}
		gauge(to, prices, usd(g.MicroUSDPerHour), g.Name)
		gauge(to, chance, float64(g.Chance(1, "", now))/1000, g.Name)
		collectEvidence(to, g.Name, g.Ledger)
		inDoubt, idle := 0, 0
		if d := doubts[g.Name]; d.Braked() {
			inDoubt = d.Machines()
		}
		if d := doubts[g.Name]; d.KeepsIdle() {
			idle = d.Idle
		}
		gauge(to, doubted, float64(inDoubt), g.Name)
		gauge(to, kept, float64(idle), g.Name)
		for _, p := range cost.Purposes { // a series that comes and goes is hard to read
			if post := (cost.Post{Group: g.Name, Purpose: p}); amounts[post] == (cost.Amount{}) {
				amounts[post] = cost.Amount{}
			}
		}
	}
	collectDevices(to, &fleet)
	for post, a := range amounts {
		if _, seen := s.offerings[post.Group]; !seen {
			s.offerings[post.Group] = offering{} // nothing is known about a group that was deleted before
		}
		gauge(to, machines, float64(a.Machines), post.Group, post.Purpose.String())
		counter(to, lived, seconds(a.Milliseconds), post.Group, post.Purpose.String())
		counter(to, paid, usd(a.MicroUSD), post.Group, post.Purpose.String())
		if post.Purpose == cost.PurposeBooked {
			counter(to, unused, seconds(a.UnusedMilliseconds), post.Group)
			counter(to, unusedCost, usd(a.UnusedMicroUSD), post.Group)
		}
	}
	for name, o := range s.offerings {
		gauge(to, groups, 1, name, o.provider, o.zone, o.capacityType, o.instanceType)
	}
	for t, micro := range s.tenants.add(s.model.TakeSpent(now)) {
		counter(to, spent, usd(micro), t.Namespace, t.Queue)
	}
	for i := range fleet.Budgets {
		b := &fleet.Budgets[i]
		at := b.Stands(fleet.Charges, now)
		gauge(to, budgetLimit, usd(b.MicroUSD), b.Policy, b.Name)
		gauge(to, budgetSpent, usd(at.Spent), b.Policy, b.Name)
		gauge(to, budgetCommitted, usd(at.Committed), b.Policy, b.Name)
		gauge(to, budgetVain, usd(b.Vain.Until(now).MicroUSD), b.Policy, b.Name)
		gauge(to, budgetVainLimit, usd(b.VainLimit(now)), b.Policy, b.Name)
	}
	for t, perHour := range s.tenants.spend(fleet, func(group string) int64 { return s.offerings[group].microUSDPerHour }) {
		gauge(to, spend, usd(perHour), t.Namespace, t.Queue)
	}
	standings, halted := s.model.Census(now)
	gauge(to, stopped, float64(halted))
	for standing, n := range standings {
		gauge(to, requests, float64(n), standing.Class, standing.Condition)
	}
}

// collectDevices exports the devices by claim of all groups. A class that machines of the group have is shown while no node is there.
func collectDevices(to chan<- prometheus.Metric, fleet *scaledown.Fleet) {
	counts := map[string]map[string]fit.ClassCount{}
	for i := range fleet.Groups {
		g := &fleet.Groups[i]
		counts[g.Name] = map[string]fit.ClassCount{}
		if g.Published == nil {
			continue
		}
		for class, c := range g.Published.Classes() {
			counts[g.Name][class] = fit.ClassCount{}
			gauge(to, machineDevices, float64(c.Free), g.Name, class)
		}
	}
	// Most nodes of a group are in few states.
	known := map[string]map[string]fit.ClassCount{}
	for n := range fleet.Nodes.All() {
		of := counts[n.Group]
		if of == nil || n.Claimable == nil {
			continue
		}
		key := n.Claimable.Key()
		if known[key] == nil {
			known[key] = n.Claimable.Classes()
		}
		for class, c := range known[key] {
			sum := of[class]
			of[class] = fit.ClassCount{Free: sum.Free + c.Free, Allocated: sum.Allocated + c.Allocated, Tainted: sum.Tainted + c.Tainted}
		}
	}
	for group, of := range counts {
		for class, c := range of {
			gauge(to, groupDevices, float64(c.Free), group, class, "free")
			gauge(to, groupDevices, float64(c.Allocated), group, class, "allocated")
			gauge(to, groupDevices, float64(c.Tainted), group, class, "tainted")
		}
	}
}

func collectEvidence(to chan<- prometheus.Metric, group string, l *v1alpha1.Ledger) {
	if l == nil {
		return
	}
	const launch = 1e6 // the ledger counts in millionths
	gauge(to, evidenceAt, float64(l.At.Unix()), group)
	for _, e := range l.Sizes {
		gauge(to, evidence, float64(e.Got)/launch, group, strconv.Itoa(int(e.AtLeast)), e.Level, "got")
		gauge(to, evidence, float64(e.Failed)/launch, group, strconv.Itoa(int(e.AtLeast)), e.Level, "failed")
	}
}

// offering is what a group buys, and where.
type offering struct {
	provider, zone, capacityType, instanceType string
	microUSDPerHour                            int64
}

// offeringOf returns the offering in the spec of a group's NodeGroup.
func offeringOf(g *nodegroups.Group, spec *v1alpha1.NodeGroupSpec) offering {
	return offering{
		provider: string(spec.Provider), zone: g.Zone, capacityType: string(g.CapacityType), microUSDPerHour: g.MicroUSDPerHour,
		// A group whose machine type is unknown is its own type.
		instanceType: cmp.Or(nodegroups.MachineType(spec), g.Labels[corev1.LabelInstanceTypeStable], g.Name),
	}
}

func gauge(to chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func counter(to chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
}

func usd(micro int64) float64 { return float64(micro) / 1e6 }

func seconds(ms int64) float64 { return float64(ms) / 1e3 }

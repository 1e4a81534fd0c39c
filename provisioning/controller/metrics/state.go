package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/provisioning/model"
)

// state shows how things stand when it is asked.
type state struct {
	model *model.Model
	clock clock.PassiveClock
}

var (
	machines = prometheus.NewDesc("muster_machines",
		"Machines that exist, by group and by what they are for: joining, booked, used by pods, idle, or wasted, which never served and are being taken back.",
		[]string{"group", "state"}, nil)
	lived = prometheus.NewDesc("muster_machine_seconds_total",
		"Seconds that machines have lived, by group and purpose. Those of joining machines are counted once they have joined, or as wasted.",
		[]string{"group", "purpose"}, nil)
	cost = prometheus.NewDesc("muster_machine_cost_usd_total",
		"What those seconds cost in USD, at the spec.pricePerHour of the NodeGroup.",
		[]string{"group", "purpose"}, nil)
	chance = prometheus.NewDesc("muster_group_chance_ratio",
		"Estimated chance that a launch of one machine of the group succeeds now, from 0 to 1.",
		[]string{"group"}, nil)
	requests = prometheus.NewDesc("muster_requests",
		"ProvisioningRequests that exist, by provisioning class and by the last condition that became true: None, Accepted, Provisioned, BookingExpired, CapacityRevoked or Failed.",
		[]string{"class", "condition"}, nil)
)

// Describe implements prometheus.Collector.
func (s *state) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{machines, lived, cost, chance, requests} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s *state) Collect(to chan<- prometheus.Metric) {
	now := s.clock.Now()
	amounts := s.model.Amounts(now)
	if amounts == nil {
		return // the lead was lost a moment ago
	}
	for _, g := range s.model.Snapshot(now).Groups {
		to <- prometheus.MustNewConstMetric(chance, prometheus.GaugeValue, float64(g.Chance(1, now))/1000, g.Name)
		for _, p := range provisioning.Purposes { // a series that comes and goes is hard to read
			if post := (provisioning.Post{Group: g.Name, Purpose: p}); amounts[post] == (provisioning.Amount{}) {
				amounts[post] = provisioning.Amount{}
			}
		}
	}
	for post, amount := range amounts {
		for _, m := range []struct {
			desc  *prometheus.Desc
			kind  prometheus.ValueType
			value float64
		}{
			{machines, prometheus.GaugeValue, float64(amount.Machines)},
			{lived, prometheus.CounterValue, float64(amount.Milliseconds) / 1e3},
			{cost, prometheus.CounterValue, float64(amount.MicroUSD) / 1e6},
		} {
			to <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value, post.Group, post.Purpose.String())
		}
	}
	for standing, n := range s.model.Census() {
		to <- prometheus.MustNewConstMetric(requests, prometheus.GaugeValue, float64(n), standing.Class, standing.Condition)
	}
}

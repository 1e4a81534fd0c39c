package metrics

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/status"
)

// cohorts are what is shown of cohorts: sums over all ClusterQueues below.
type cohorts struct {
	share, info, quota, reserved, running *prometheus.GaugeVec
	admitted                              *prometheus.CounterVec
	// trees are the cohorts as they are shown.
	trees map[string]status.CohortFigures
	// deleted contains the cohorts whose object was deleted, with their figures at that time; nil until these are reported.
	// ClusterQueues may still name such a cohort, which has no quota of its own then. As in Kueue, it is not shown until its
	// figures change.
	deleted map[string]*status.CohortFigures
}

func (m *Metrics) newCohorts() cohorts {
	return cohorts{
		share: m.gauge("cohort_weighted_share",
			"Borrowed share of the lendable quota in thousandths, divided by the weight; NaN if that is zero.", "cohort"),
		info: m.gauge("cohort_info",
			"Place of a cohort among the cohorts, for joins; always 1.", "cohort", "parent_cohort", "root_cohort"),
		quota: m.gauge("cohort_subtree_quota",
			"Nominal quota of a cohort and all below it, less what is not lent.", "cohort", "flavor", "resource"),
		reserved: m.gauge("cohort_subtree_resource_reservations",
			"Quota that is reserved in a cohort and all below it.", "cohort", "flavor", "resource"),
		running: m.gauge("cohort_subtree_admitted_active_workloads",
			"Workloads in a cohort and all below it that are admitted and not finished.", "cohort"),
		admitted: m.counter("cohort_subtree_admitted_workloads_total",
			"Workloads in a cohort and all below it that were admitted.", "cohort", "priority_class"),
		trees: map[string]status.CohortFigures{}, deleted: map[string]*status.CohortFigures{},
	}
}

// Cohort shows a Cohort with the status that it should have, and with its weighted share.
func (m *Metrics) Cohort(c *kueue.Cohort, share float64) {
	delete(m.cohorts.deleted, c.Name)
	if c.Status.FairSharing != nil {
		m.cohorts.share.WithLabelValues(c.Name).Set(share)
	}
}

// Cohorts shows cohorts by their names. Where these are all that there are, others are
// forgotten.
func (m *Metrics) Cohorts(trees map[string]status.CohortFigures, whole bool) {
	c := &m.cohorts
	for name := range c.trees {
		if _, ok := trees[name]; whole && !ok {
			m.forgetCohort(name)
		}
	}
	for name := range c.deleted {
		if _, ok := trees[name]; whole && !ok {
			delete(c.deleted, name)
		}
	}
	for name, f := range trees {
		if c.hides(name, f) {
			continue
		}
		have, known := c.trees[name]
		if !known || have.Parent != f.Parent || have.Root != f.Root {
			m.forget(prometheus.Labels{"cohort": name}, c.info)
			c.info.WithLabelValues(name, f.Parent, f.Root).Set(1)
		}
		set(c.quota, name, have.Quota, f.Quota)
		set(c.reserved, name, have.Reserved, f.Reserved)
		c.running.WithLabelValues(name).Set(float64(f.Admitted))
		c.trees[name] = f
	}
}

// hides reports whether a cohort has not been shown since its object was deleted.
func (c *cohorts) hides(name string, now status.CohortFigures) bool {
	then, deleted := c.deleted[name]
	switch {
	case !deleted:
		return false
	case then == nil:
		c.deleted[name] = &now
		return true
	case then.Parent == now.Parent && then.Root == now.Root && then.Admitted == now.Admitted && maps.Equal(then.Quota, now.Quota) &&
		maps.Equal(then.Reserved, now.Reserved):
		return true
	}
	delete(c.deleted, name)
	return false
}

// deleteCohort removes the object of a cohort, which ClusterQueues may still name.
func (m *Metrics) deleteCohort(name string) {
	m.forgetCohort(name)
	m.cohorts.deleted[name] = nil
}

func (m *Metrics) forgetCohort(name string) {
	c := &m.cohorts
	delete(c.trees, name)
	m.forget(prometheus.Labels{"cohort": name}, c.share, c.info, c.quota, c.reserved, c.running, c.admitted)
}

// set replaces the amounts of a cohort. Zero amounts are deleted.
func set(g *prometheus.GaugeVec, cohort string, before, now quota.Amounts) {
	for fr := range before {
		if now[fr] == 0 {
			g.DeleteLabelValues(cohort, string(fr.Flavor), string(fr.Resource))
		}
	}
	for fr, v := range now {
		g.WithLabelValues(cohort, string(fr.Flavor), string(fr.Resource)).Set(float(fr.Resource, v))
	}
}

// float is an amount in the base unit of its resource, as metrics have it.
func float(name corev1.ResourceName, v int64) float64 {
	q := nodegroups.Resources{name: v}.List()[name]
	return q.AsApproximateFloat64()
}

package metrics

import (
	"maps"
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/status"
)

// ClusterQueue shows a ClusterQueue with the status that it should have.
func (m *Metrics) ClusterQueue(cq *kueue.ClusterQueue, f status.Figures) {
	if m.isGone(cq.Name) {
		return
	}
	status := "pending"
	switch {
	case !cq.DeletionTimestamp.IsZero():
		status = "terminating"
	case apimeta.IsStatusConditionTrue(cq.Status.Conditions, kueue.ClusterQueueActive):
		status = "active"
	}
	for _, s := range []string{"pending", "active", "terminating"} {
		m.status.queue.WithLabelValues(cq.Name, s).Set(one(s == status))
	}
	setPending(m.pending.queue, cq.Status.PendingWorkloads, f.Active, cq.Name)
	m.over.queue.WithLabelValues(cq.Name).Set(float64(f.Finished))
	m.skips.WithLabelValues(cq.Name).Set(float64(f.Skipped))
	m.setRequested(cq.Name, f.Pending)
	m.showUnadmitted(m.unadmitted.queue, where{clusterQueue: cq.Name}, f.Unadmitted, cq.Name)
	m.stands(cq.Name, f.Cohorts)
	m.reserving.queue.WithLabelValues(cq.Name).Set(float64(cq.Status.ReservingWorkloads))
	m.running.queue.WithLabelValues(cq.Name).Set(float64(cq.Status.AdmittedWorkloads))
	cohort := string(cq.Spec.CohortName)
	use := func(g *prometheus.GaugeVec, usage []kueue.FlavorUsage) {
		for _, f := range usage {
			for i := range f.Resources {
				g.WithLabelValues(cohort, cq.Name, string(f.Name), string(f.Resources[i].Name)).Set(f.Resources[i].Total.AsApproximateFloat64())
			}
		}
	}
	use(m.reservation.queue, cq.Status.FlavorsReservation)
	use(m.usage.queue, cq.Status.FlavorsUsage)
	if cq.Status.FairSharing != nil {
		m.share.WithLabelValues(cq.Name, cohort).Set(f.Share)
	}
}

// setRequested sets the total requests of the pending Workloads of a ClusterQueue, with or without a quota for them.
func (m *Metrics) setRequested(queue string, pending nodegroups.Resources) {
	for name := range m.waitFor[queue] {
		if _, ok := pending[name]; !ok {
			m.pendingResources.DeleteLabelValues(queue, string(name))
		}
	}
	m.waitFor[queue] = pending
	for name, v := range pending {
		m.pendingResources.WithLabelValues(queue, string(name)).Set(float(name, v))
	}
}

// showUnadmitted shows how many Workloads of a queue are not admitted, and forgets the reasons for which none is any more.
func (m *Metrics) showUnadmitted(g *prometheus.GaugeVec, at where, unadmitted map[cache.Unadmitted]int32, queue ...string) {
	of := func(why cache.Unadmitted) []string {
		return append(slices.Clone(queue), why.Reason, why.UnderlyingCause)
	}
	for _, why := range m.causes[at] {
		if unadmitted[why] == 0 {
			g.DeleteLabelValues(of(why)...)
		}
	}
	m.causes[at] = slices.Collect(maps.Keys(unadmitted))
	for why, n := range unadmitted {
		g.WithLabelValues(of(why)...).Set(float64(n))
	}
}

// stands shows the place of a ClusterQueue among the cohorts.
func (m *Metrics) stands(queue string, cohorts []string) {
	if have, ok := m.above[queue]; ok && slices.Equal(have, cohorts) {
		return
	}
	m.above[queue] = cohorts
	m.forget(prometheus.Labels{"cluster_queue": queue}, m.info)
	parent, root := "", ""
	if len(cohorts) > 0 {
		parent, root = cohorts[0], cohorts[len(cohorts)-1]
	}
	m.info.WithLabelValues(queue, parent, root).Set(1)
}

// Quotas sets the quotas of a ClusterQueue, and deletes its former values. A ClusterQueue exists for the metrics from then on.
func (m *Metrics) Quotas(cq *kueue.ClusterQueue) {
	m.queues.Store(cq.Name, true)
	m.forget(prometheus.Labels{"cluster_queue": cq.Name},
		m.nominal, m.borrowing, m.lending, m.reservation.queue, m.usage.queue, m.share, m.pendingResources)
	for _, group := range cq.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			for i := range f.Resources {
				r := &f.Resources[i]
				labels := []string{string(cq.Spec.CohortName), cq.Name, string(f.Name), string(r.Name)}
				m.nominal.WithLabelValues(labels...).Set(r.NominalQuota.AsApproximateFloat64())
				borrowing, lending := math.Inf(1), math.Inf(1)
				if r.BorrowingLimit != nil {
					borrowing = r.BorrowingLimit.AsApproximateFloat64()
				}
				if r.LendingLimit != nil {
					lending = r.LendingLimit.AsApproximateFloat64()
				}
				m.borrowing.WithLabelValues(labels...).Set(borrowing)
				m.lending.WithLabelValues(labels...).Set(lending)
			}
		}
	}
}

// Select records whether a LocalQueue is to be shown. One that is no longer is forgotten.
func (m *Metrics) Select(lq *kueue.LocalQueue) {
	key := types.NamespacedName{Namespace: lq.Namespace, Name: lq.Name}
	switch {
	case m.config.LocalQueues != nil && m.config.LocalQueues.Matches(labels.Set(lq.Labels)):
		m.shown[key] = true
	case m.shown[key]:
		m.Forget(lq)
	}
}

// Shows reports whether a LocalQueue is shown.
func (m *Metrics) Shows(lq *kueue.LocalQueue) bool {
	return m.shown[types.NamespacedName{Namespace: lq.Namespace, Name: lq.Name}]
}

// LocalQueue shows a LocalQueue with the status that it should have, if Shows reports true.
func (m *Metrics) LocalQueue(lq *kueue.LocalQueue, f status.Figures) {
	status := metav1.ConditionUnknown
	if c := apimeta.FindStatusCondition(lq.Status.Conditions, kueue.LocalQueueActive); c != nil {
		status = c.Status
	}
	for _, s := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
		m.status.local.WithLabelValues(lq.Name, lq.Namespace, string(s)).Set(one(s == status))
	}
	setPending(m.pending.local, lq.Status.PendingWorkloads, f.Active, lq.Name, lq.Namespace)
	m.over.local.WithLabelValues(lq.Name, lq.Namespace).Set(float64(f.Finished))
	m.showUnadmitted(m.unadmitted.local, where{string(lq.Spec.ClusterQueue), lq.Namespace, lq.Name}, f.Unadmitted,
		lq.Name, lq.Namespace, string(lq.Spec.ClusterQueue))
	if f.Usage != nil {
		m.fairUsage.WithLabelValues(lq.Name, lq.Namespace, string(lq.Spec.ClusterQueue)).Set(*f.Usage)
	} else {
		m.fairUsage.DeleteLabelValues(lq.Name, lq.Namespace, string(lq.Spec.ClusterQueue))
	}
	m.reserving.local.WithLabelValues(lq.Name, lq.Namespace).Set(float64(lq.Status.ReservingWorkloads))
	m.running.local.WithLabelValues(lq.Name, lq.Namespace).Set(float64(lq.Status.AdmittedWorkloads))
	key := types.NamespacedName{Namespace: lq.Namespace, Name: lq.Name}
	if !slices.EqualFunc(m.flavors[key], lq.Status.FlavorsReservation, sameFlavor) {
		m.forget(prometheus.Labels{"name": lq.Name, "namespace": lq.Namespace}, m.reservation.local, m.usage.local)
	}
	m.flavors[key] = lq.Status.FlavorsReservation
	use := func(g *prometheus.GaugeVec, usage []kueue.LocalQueueFlavorUsage) {
		for _, f := range usage {
			for i := range f.Resources {
				g.WithLabelValues(lq.Name, lq.Namespace, string(f.Name), string(f.Resources[i].Name)).Set(f.Resources[i].Total.AsApproximateFloat64())
			}
		}
	}
	use(m.reservation.local, lq.Status.FlavorsReservation)
	use(m.usage.local, lq.Status.FlavorsUsage)
}

// sameFlavor reports whether amounts are of the same resources of one flavor.
func sameFlavor(a, b kueue.LocalQueueFlavorUsage) bool {
	return a.Name == b.Name && slices.EqualFunc(a.Resources, b.Resources,
		func(x, y kueue.LocalQueueResourceUsage) bool { return x.Name == y.Name })
}

// setPending shows how many Workloads wait in a queue.
func setPending(g *prometheus.GaugeVec, waiting, active int32, queue ...string) {
	g.WithLabelValues(append(queue, "active")...).Set(float64(active))
	g.WithLabelValues(append(queue, "inadmissible")...).Set(float64(max(0, waiting-active)))
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

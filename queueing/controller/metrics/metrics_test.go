package metrics

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/forecast"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/status"
)

var start = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func newWorkload(conditions ...metav1.Condition) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: "team-a", CreationTimestamp: metav1.NewTime(start)}}
	w.Spec.QueueName = "main"
	w.Spec.PriorityClassRef = &kueue.PriorityClassRef{Name: "high"}
	w.Status.Conditions = conditions
	w.Status.Admission = &kueue.Admission{ClusterQueue: "team"}
	return w
}

func condition(name string, at time.Duration) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(at))}
}

func clusterQueue(status metav1.ConditionStatus) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	cq.Spec.CohortName = "all"
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{Flavors: []kueue.FlavorQuotas{{Name: "spot", Resources: []kueue.ResourceQuota{
		{Name: "cpu", NominalQuota: resource.MustParse("1500m"), LendingLimit: new(resource.MustParse("1"))},
	}}}}}
	cq.Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: status}}
	cq.Status.PendingWorkloads, cq.Status.ReservingWorkloads, cq.Status.AdmittedWorkloads = 3, 2, 1
	cq.Status.FlavorsUsage = []kueue.FlavorUsage{{Name: "spot",
		Resources: []kueue.ResourceUsage{{Name: corev1.ResourceCPU, Total: resource.MustParse("500m")}}}}
	return cq
}

var figures = status.Figures{
	Active: 2, Finished: 4, Skipped: 1, Cohorts: []string{"all", "org"}, Pending: nodegroups.Resources{"cpu": 2500},
}

func checked(w *kueue.Workload) *kueue.Workload {
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "check"}}
	return w
}

func evictions(w *kueue.Workload, n int32) *kueue.Workload {
	w.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{
		{Reason: "Deactivated", UnderlyingCause: "AdmissionCheck", Count: n}, {Reason: "Preempted", Count: 1},
	}}
	return w
}

func finished(reason string) *kueue.Workload {
	c := condition(kueue.WorkloadFinished, time.Minute)
	c.Reason = reason
	return newWorkload(c)
}

// readyAndEvicted are two versions of a Workload, which loses its quota in between.
func readyAndEvicted() (before, after *kueue.Workload) {
	lost := condition(kueue.WorkloadQuotaReserved, time.Minute)
	lost.Status = metav1.ConditionFalse
	after = newWorkload(condition(kueue.WorkloadEvicted, time.Second), lost)
	after.Status.Admission = nil
	return newWorkload(condition(kueue.WorkloadQuotaReserved, 0)), after
}

func localQueue() *kueue.LocalQueue {
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Name: "main", Namespace: "team-a"}}
	lq.Status.PendingWorkloads = 7
	return lq
}

func TestWhatIsShown(t *testing.T) {
	for name, tt := range map[string]struct {
		config Config
		happen func(*Metrics)
		// want are lines that are shown; none begins with one of never.
		want, never []string
	}{
		"a workload that is admitted with its quota waited for both equally": {
			config: Config{Role: Standalone},
			happen: func(m *Metrics) {
				m.Reserved(newWorkload(), newWorkload(condition(kueue.WorkloadAdmitted, time.Minute)), start.Add(3*time.Second))
			},
			want: []string{
				`kueue_quota_reserved_workloads_total{cluster_queue="team",priority_class="high",replica_role="standalone"} 1`,
				`kueue_quota_reserved_wait_time_seconds_sum{cluster_queue="team",priority_class="high",replica_role="standalone"} 3`,
				`kueue_admitted_workloads_total{cluster_queue="team",priority_class="high",replica_role="standalone"} 1`,
				`kueue_admission_wait_time_seconds_bucket{cluster_queue="team",priority_class="high",replica_role="standalone",le="40960"} 1`,
			},
			never: []string{"kueue_local_queue", "kueue_admission_checks_wait_time_seconds"},
		},
		"one that waits for checks is not admitted yet": {
			config: Config{Role: Leader},
			happen: func(m *Metrics) { m.Reserved(newWorkload(), newWorkload(), start) },
			want:   []string{`kueue_quota_reserved_workloads_total{cluster_queue="team",priority_class="high",replica_role="leader"} 1`},
			never:  []string{"kueue_admitted_workloads_total"},
		},
		"the wait for checks begins with the quota": {
			config: Config{Role: Standalone},
			happen: func(m *Metrics) {
				m.Admitted(newWorkload(condition(kueue.WorkloadQuotaReserved, 4*time.Second)), checked(newWorkload()), start.Add(10*time.Second))
			},
			want: []string{
				`kueue_admission_checks_wait_time_seconds_sum{cluster_queue="team",priority_class="high",replica_role="standalone"} 6`,
				`kueue_admission_wait_time_seconds_sum{cluster_queue="team",priority_class="high",replica_role="standalone"} 10`,
			},
		},
		"the wait of a workload that was queued again begins then": {
			config: Config{Role: Standalone},
			happen: func(m *Metrics) {
				m.Reserved(newWorkload(condition(kueue.WorkloadRequeued, 8*time.Second)), newWorkload(), start.Add(10*time.Second))
			},
			want: []string{`kueue_quota_reserved_wait_time_seconds_sum{cluster_queue="team",priority_class="high",replica_role="standalone"} 2`},
		},
		"an eviction tells its cause apart": {
			config: Config{Role: Standalone},
			happen: func(m *Metrics) {
				m.Evicted(newWorkload(), evictions(newWorkload(), 1), "DeactivatedDueToAdmissionCheck", "AdmissionCheck", start)
				m.Evicted(newWorkload(), evictions(newWorkload(), 2), "DeactivatedDueToAdmissionCheck", "AdmissionCheck", start)
			},
			want: []string{
				`kueue_evicted_workloads_total{cluster_queue="team",priority_class="high",reason="Deactivated",replica_role="standalone",underlying_cause="AdmissionCheck"} 2`,
				`kueue_evicted_workloads_once_total{cluster_queue="team",priority_class="high",reason="Deactivated",replica_role="standalone",underlying_cause="AdmissionCheck"} 1`,
			},
			never: []string{"kueue_pods_ready_to_evicted"},
		},
		"an eviction whose reason does not contain its cause": {
			config: Config{Role: Standalone},
			happen: func(m *Metrics) {
				after := newWorkload()
				after.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{
					{Reason: "PodsReadyTimeout", UnderlyingCause: "WaitForStart", Count: 1}}}
				m.Evicted(newWorkload(), after, "PodsReadyTimeout", "WaitForStart", start)
			},
			want: []string{
				`kueue_evicted_workloads_total{cluster_queue="team",priority_class="high",reason="PodsReadyTimeout",replica_role="standalone",underlying_cause="WaitForStart"} 1`,
				`kueue_evicted_workloads_once_total{cluster_queue="team",priority_class="high",reason="PodsReadyTimeout",replica_role="standalone",underlying_cause="WaitForStart"} 1`,
			},
		},
		"an eviction of a workload whose pods are ready": {
			happen: func(m *Metrics) {
				m.Evicted(newWorkload(condition(kueue.WorkloadPodsReady, 2*time.Second)), newWorkload(), "Preempted", "", start.Add(7*time.Second))
			},
			want: []string{
				`kueue_pods_ready_to_evicted_time_seconds_sum{cluster_queue="team",reason="Preempted",replica_role="standalone",underlying_cause=""} 5`},
		},
		"quota that comes back after an eviction": {
			happen: func(m *Metrics) {
				evicted := condition(kueue.WorkloadEvicted, 2*time.Second)
				evicted.Reason = "Preempted"
				lost := condition(kueue.WorkloadQuotaReserved, 6*time.Second)
				lost.Status = metav1.ConditionFalse
				m.Changed(newWorkload(evicted, condition(kueue.WorkloadQuotaReserved, 0)), newWorkload(evicted, lost))
				m.Changed(newWorkload(evicted, lost), newWorkload(evicted, lost))
			},
			want: []string{
				`kueue_workload_eviction_latency_seconds_sum{cluster_queue="team",reason="Preempted",replica_role="standalone"} 4`,
				`kueue_workload_eviction_latency_seconds_count{cluster_queue="team",reason="Preempted",replica_role="standalone"} 1`,
			},
		},
		"pods that are ready for the first time": {
			config: Config{LocalQueues: labels.Everything()},
			happen: func(m *Metrics) {
				m.Select(localQueue())
				admitted, ready := condition(kueue.WorkloadAdmitted, 5*time.Second), condition(kueue.WorkloadPodsReady, 9*time.Second)
				ready.Reason = kueue.WorkloadStarted
				m.Changed(newWorkload(admitted), newWorkload(admitted, ready))
				ready.Reason = kueue.WorkloadRecovered
				m.Changed(newWorkload(admitted), newWorkload(admitted, ready))
			},
			want: []string{
				`kueue_ready_wait_time_seconds_sum{cluster_queue="team",priority_class="high",replica_role="standalone"} 9`,
				`kueue_ready_wait_time_seconds_count{cluster_queue="team",priority_class="high",replica_role="standalone"} 1`,
				`kueue_admitted_until_ready_wait_time_seconds_sum{cluster_queue="team",priority_class="high",replica_role="standalone"} 4`,
				`kueue_local_queue_ready_wait_time_seconds_sum{name="main",namespace="team-a",priority_class="high",replica_role="standalone"} 9`,
				`kueue_local_queue_admitted_until_ready_wait_time_seconds_sum{name="main",namespace="team-a",priority_class="high",replica_role="standalone"} 4`,
			},
		},
		"a job that gets its workload, and one that was changed before": {
			happen: func(m *Metrics) {
				w := newWorkload()
				w.CreationTimestamp = metav1.NewTime(start.Add(2 * time.Second))
				m.Created("Job", &metav1.ObjectMeta{Generation: 1, CreationTimestamp: metav1.NewTime(start)}, w)
				m.Created("Job", &metav1.ObjectMeta{Generation: 2, CreationTimestamp: metav1.NewTime(start)}, w)
			},
			want: []string{
				`kueue_workload_creation_latency_seconds_sum{job_kind="Job",replica_role="standalone"} 2`,
				`kueue_workload_creation_latency_seconds_count{job_kind="Job",replica_role="standalone"} 1`,
			},
		},
		"a gate that is removed": {
			happen: func(m *Metrics) {
				m.Ungated(kueue.ElasticJobSchedulingGate, newWorkload(condition(kueue.WorkloadAdmitted, time.Second)), start.Add(4*time.Second))
			},
			want: []string{
				`kueue_pod_scheduling_gate_removal_seconds_sum{cluster_queue="team",is_group="false",name="kueue.x-k8s.io/elastic-job",replica_role="standalone"} 3`},
		},
		"cohorts": {
			happen: func(m *Metrics) {
				m.Cohorts(map[string]status.CohortFigures{
					"all": {Parent: "org", Root: "org", Quota: amounts(1500), Reserved: amounts(500),
						Admitted: 2}, "org": {Root: "org"}, "gone": {Root: "gone", Quota: amounts(1)},
				}, true)
				m.ClusterQueue(clusterQueue("True"), status.Figures{Cohorts: []string{"all", "org"}})
				m.Reserved(newWorkload(), newWorkload(condition(kueue.WorkloadAdmitted, time.Minute)), start)
				m.Cohorts(map[string]status.CohortFigures{"all": {Root: "all", Quota: amounts(2000)}, "org": {Root: "org"}}, true)
				m.ClusterQueue(clusterQueue("True"), status.Figures{Cohorts: []string{"all"}})
			},
			want: []string{
				`kueue_cohort_info{cohort="all",parent_cohort="",replica_role="standalone",root_cohort="all"} 1`,
				`kueue_cluster_queue_info{cluster_queue="team",parent_cohort="all",replica_role="standalone",root_cohort="all"} 1`,
				`kueue_cohort_subtree_quota{cohort="all",flavor="spot",replica_role="standalone",resource="cpu"} 2`,
				`kueue_cohort_subtree_admitted_active_workloads{cohort="all",replica_role="standalone"} 0`,
				`kueue_cohort_subtree_admitted_workloads_total{cohort="all",priority_class="high",replica_role="standalone"} 1`,
				`kueue_cohort_subtree_admitted_workloads_total{cohort="org",priority_class="high",replica_role="standalone"} 1`,
			},
			never: []string{
				`kueue_cohort_info{cohort="all",parent_cohort="org"`, `kueue_cluster_queue_info{cluster_queue="team",parent_cohort="all",replica_role="standalone",root_cohort="org"`,
				`kueue_cohort_subtree_resource_reservations`, `kueue_cohort_info{cohort="gone"`, `kueue_cohort_subtree_quota{cohort="gone"`,
			},
		},
		"a cohort that is deleted while a queue names it, and comes back with what changes in it": {
			happen: func(m *Metrics) {
				named := map[string]status.CohortFigures{
					"left": {Root: "left", Quota: amounts(1500), Reserved: amounts(500), Admitted: 2},
					"back": {Root: "back", Quota: amounts(1500), Reserved: amounts(500), Admitted: 2},
				}
				m.Cohorts(named, true)
				for _, name := range []string{"left", "back"} {
					m.ClusterQueue(clusterQueue("True"), status.Figures{Cohorts: []string{name}})
					m.Reserved(newWorkload(), newWorkload(condition(kueue.WorkloadAdmitted, time.Minute)), start)
					m.Cohort(cohort(name), 5)
					m.Forget(cohort(name))
				}
				m.Cohorts(named, true)
				m.Cohorts(map[string]status.CohortFigures{"left": named["left"], "back": {Root: "back", Quota: amounts(1500), Admitted: 1}}, true)
			},
			want: []string{
				`kueue_cohort_info{cohort="back",parent_cohort="",replica_role="standalone",root_cohort="back"} 1`,
				`kueue_cohort_subtree_quota{cohort="back",flavor="spot",replica_role="standalone",resource="cpu"} 1.5`,
				`kueue_cohort_subtree_admitted_active_workloads{cohort="back",replica_role="standalone"} 1`,
			},
			never: []string{`cohort="left"`, `kueue_cohort_subtree_admitted_workloads_total`, `kueue_cohort_weighted_share`,
				`kueue_cohort_subtree_resource_reservations`},
		},
		"a cohort that is deleted and created again": {
			happen: func(m *Metrics) {
				named := map[string]status.CohortFigures{"left": {Root: "left", Quota: amounts(1500)}}
				m.Cohorts(named, true)
				m.Forget(cohort("left"))
				m.Cohorts(named, true)
				m.Cohort(cohort("left"), 5)
				m.Cohorts(named, true)
			},
			want: []string{`kueue_cohort_subtree_quota{cohort="left",flavor="spot",replica_role="standalone",resource="cpu"} 1.5`},
		},
		"a preemption counts for the queue that has room then": {
			config: Config{Role: Standalone},
			happen: func(m *Metrics) {
				reclaimed := metav1.Condition{Type: kueue.WorkloadPreempted, Status: "True", Reason: kueue.InCohortReclamationReason}
				m.Preempted(newWorkload(reclaimed), "other")
			},
			want: []string{
				`kueue_preempted_workloads_total{preempting_cluster_queue="other",reason="InCohortReclamation",replica_role="standalone"} 1`},
		},
		"a slice whose place another one takes": {
			config: Config{Role: Standalone},
			happen: func(m *Metrics) { m.Changed(newWorkload(), finished(kueue.WorkloadSliceReplaced)) },
			want:   []string{`kueue_replaced_workload_slices_total{cluster_queue="team",replica_role="standalone"} 1`},
		},
		"a queue that is active": {
			config: Config{Role: Standalone},
			happen: func(m *Metrics) { m.Quotas(clusterQueue("True")); m.ClusterQueue(clusterQueue("True"), figures) },
			want: []string{
				`kueue_cluster_queue_status{cluster_queue="team",replica_role="standalone",status="active"} 1`,
				`kueue_cluster_queue_status{cluster_queue="team",replica_role="standalone",status="pending"} 0`,
				`kueue_pending_workloads{cluster_queue="team",replica_role="standalone",status="active"} 2`,
				`kueue_pending_workloads{cluster_queue="team",replica_role="standalone",status="inadmissible"} 1`,
				`kueue_finished_workloads{cluster_queue="team",replica_role="standalone"} 4`,
				`kueue_admission_cycle_preemption_skips{cluster_queue="team",replica_role="standalone"} 1`,
				`kueue_cluster_queue_resource_pending{cluster_queue="team",replica_role="standalone",resource="cpu"} 2.5`,
				`kueue_cluster_queue_info{cluster_queue="team",parent_cohort="all",replica_role="standalone",root_cohort="org"} 1`,
				`kueue_reserving_active_workloads{cluster_queue="team",replica_role="standalone"} 2`,
				`kueue_admitted_active_workloads{cluster_queue="team",replica_role="standalone"} 1`,
				`kueue_cluster_queue_resource_usage{cluster_queue="team",cohort="all",flavor="spot",replica_role="standalone",resource="cpu"} 0.5`,
				`kueue_cluster_queue_nominal_quota{cluster_queue="team",cohort="all",flavor="spot",replica_role="standalone",resource="cpu"} 1.5`,
				`kueue_cluster_queue_borrowing_limit{cluster_queue="team",cohort="all",flavor="spot",replica_role="standalone",resource="cpu"} +Inf`,
				`kueue_cluster_queue_lending_limit{cluster_queue="team",cohort="all",flavor="spot",replica_role="standalone",resource="cpu"} 1`,
			},
		},
		"a resource without quota that no workload asks for any more": {
			config: Config{Role: Standalone},
			happen: func(m *Metrics) {
				asked := figures
				asked.Pending = nodegroups.Resources{"cpu": 2500, "example.com/none": 1}
				m.ClusterQueue(clusterQueue("True"), asked)
				m.ClusterQueue(clusterQueue("True"), figures)
			},
			want:  []string{`kueue_cluster_queue_resource_pending{cluster_queue="team",replica_role="standalone",resource="cpu"} 2.5`},
			never: []string{`kueue_cluster_queue_resource_pending{cluster_queue="team",replica_role="standalone",resource="example.com/none"`},
		},
		"a reason why Workloads are not admitted that is gone": {
			config: Config{Role: Standalone, LocalQueues: labels.Everything()},
			happen: func(m *Metrics) {
				m.Select(localQueue())
				for _, cause := range []string{"WaitingForQuota", "Misconfigured"} {
					f := status.Figures{Unadmitted: map[cache.Unadmitted]int32{{Reason: "NoReservation", UnderlyingCause: cause}: 2}}
					m.ClusterQueue(clusterQueue("True"), f)
					m.LocalQueue(localQueue(), f)
				}
			},
			want: []string{
				`kueue_unadmitted_workloads{cluster_queue="team",reason="NoReservation",replica_role="standalone",underlying_cause="Misconfigured"} 2`,
				`kueue_local_queue_unadmitted_workloads{cluster_queue="",name="main",namespace="team-a",reason="NoReservation",` +
					`replica_role="standalone",underlying_cause="Misconfigured"} 2`,
			},
			never: []string{"WaitingForQuota"},
		},
		"a queue that is not, and so admits nothing": {
			config: Config{Role: Standalone},
			happen: func(m *Metrics) { m.ClusterQueue(clusterQueue("False"), status.Figures{}) },
			want: []string{
				`kueue_cluster_queue_status{cluster_queue="team",replica_role="standalone",status="pending"} 1`,
				`kueue_pending_workloads{cluster_queue="team",replica_role="standalone",status="inadmissible"} 3`,
			},
		},
		"a queue that is gone": {
			config: Config{Role: Standalone, LocalQueues: labels.Everything()},
			happen: func(m *Metrics) {
				m.Quotas(clusterQueue("True"))
				m.ClusterQueue(clusterQueue("True"), figures)
				m.Select(localQueue())
				m.LocalQueue(localQueue(), status.Figures{Active: 3, Usage: new(1.5)})
				m.Changed(newWorkload(), finished(kueue.WorkloadSliceReplaced))
				m.Preempted(newWorkload(metav1.Condition{Type: kueue.WorkloadPreempted, Reason: kueue.InClusterQueueReason}), "team")
				m.Forget(clusterQueue("True"))
				m.Forget(localQueue())
				// What comes after it brings nothing back.
				m.ClusterQueue(clusterQueue("False"), figures)
				m.Changed(newWorkload(), finished(kueue.WorkloadSliceReplaced))
				m.Changed(readyAndEvicted())
				m.Preempted(newWorkload(metav1.Condition{Type: kueue.WorkloadPreempted, Reason: kueue.InClusterQueueReason}), "team")
				m.Reserved(newWorkload(), newWorkload(condition(kueue.WorkloadAdmitted, time.Minute)), start)
				m.Admitted(newWorkload(), checked(newWorkload()), start)
				m.Evicted(newWorkload(condition(kueue.WorkloadPodsReady, 0)), evictions(newWorkload(), 1),
					"DeactivatedDueToAdmissionCheck", "AdmissionCheck", start)
				m.Ungated("kueue.x-k8s.io/admission", newWorkload(condition(kueue.WorkloadAdmitted, 0)), start)
			},
			never: []string{"kueue_cluster_queue", "kueue_pending", "kueue_finished", "kueue_local_queue", "kueue_reserving", "kueue_preempted",
				"kueue_replaced", "kueue_quota", "kueue_admitted", "kueue_admission_wait", "kueue_admission_checks", "kueue_evicted",
				"kueue_pods_ready", "kueue_workload_eviction", "kueue_pod_scheduling"},
		},
		"LocalQueues, where they are asked for": {
			config: Config{Role: Standalone, LocalQueues: labels.Everything()},
			happen: func(m *Metrics) {
				m.Select(localQueue())
				m.LocalQueue(localQueue(), status.Figures{Active: 3, Finished: 5, Usage: new(1.5)})
				m.Changed(newWorkload(), finished("Succeeded"))
			},
			want: []string{
				`kueue_local_queue_pending_workloads{name="main",namespace="team-a",replica_role="standalone",status="inadmissible"} 4`,
				`kueue_local_queue_status{active="Unknown",name="main",namespace="team-a",replica_role="standalone"} 1`,
				`kueue_local_queue_finished_workloads{name="main",namespace="team-a",replica_role="standalone"} 5`,
				`kueue_local_queue_admission_fair_sharing_usage{cluster_queue="",name="main",namespace="team-a",replica_role="standalone"} 1.5`,
				`kueue_local_queue_finished_workloads_total{name="main",namespace="team-a",priority_class="high",replica_role="standalone"} 1`,
			},
		},
		"a LocalQueue whose ClusterQueue has another flavor now": {
			config: Config{Role: Standalone, LocalQueues: labels.Everything()},
			happen: func(m *Metrics) {
				m.Select(localQueue())
				for _, flavor := range []kueue.ResourceFlavorReference{"spot", "reserved"} {
					lq := localQueue()
					lq.Status.FlavorsReservation = []kueue.LocalQueueFlavorUsage{{Name: flavor,
						Resources: []kueue.LocalQueueResourceUsage{{Name: corev1.ResourceCPU, Total: resource.MustParse("2")}}}}
					lq.Status.FlavorsUsage = lq.Status.FlavorsReservation
					m.LocalQueue(lq, status.Figures{})
				}
			},
			want: []string{
				`kueue_local_queue_resource_reservation{flavor="reserved",name="main",namespace="team-a",replica_role="standalone",resource="cpu"} 2`,
				`kueue_local_queue_resource_usage{flavor="reserved",name="main",namespace="team-a",replica_role="standalone",resource="cpu"} 2`,
			},
			never: []string{`kueue_local_queue_resource_reservation{flavor="spot"`, `kueue_local_queue_resource_usage{flavor="spot"`},
		},
		"a LocalQueue whose ClusterQueue shares by usage no more": {
			config: Config{LocalQueues: labels.Everything()},
			happen: func(m *Metrics) {
				m.Select(localQueue())
				m.LocalQueue(localQueue(), status.Figures{Usage: new(1.5)})
				m.LocalQueue(localQueue(), status.Figures{})
			},
			never: []string{"kueue_local_queue_admission_fair_sharing_usage"},
		},
		"LocalQueues of which some are asked for": {
			config: Config{LocalQueues: labels.SelectorFromSet(labels.Set{"shown": "yes"})},
			happen: func(m *Metrics) {
				other := localQueue()
				other.Name, other.Labels = "other", map[string]string{"shown": "yes"}
				m.Select(localQueue())
				m.Select(other)
				for _, lq := range []*kueue.LocalQueue{localQueue(), other} {
					if m.Shows(lq) {
						m.LocalQueue(lq, status.Figures{Finished: 5})
					}
				}
				m.Changed(newWorkload(), finished("Succeeded"))
			},
			want:  []string{`kueue_local_queue_finished_workloads{name="other",namespace="team-a",replica_role="standalone"} 5`},
			never: []string{`kueue_local_queue_finished_workloads{name="main"`, `kueue_local_queue_finished_workloads_total`},
		},
		"a LocalQueue that is asked for no more": {
			config: Config{LocalQueues: labels.SelectorFromSet(labels.Set{"shown": "yes"})},
			happen: func(m *Metrics) {
				lq := localQueue()
				lq.Labels = map[string]string{"shown": "yes"}
				m.Select(lq)
				m.LocalQueue(lq, status.Figures{})
				m.Select(localQueue())
			},
			never: []string{`kueue_local_queue`},
		},
		"cycles": {
			config: Config{Role: Standalone},
			happen: func(m *Metrics) {
				m.Cycle(time.Millisecond, true)
				m.Cycle(time.Millisecond, false)
				m.Quotas(clusterQueue("True"))
				m.Effort("team", 33)
				m.Effort("team", 1)
				m.Effort("gone", 1)
			},
			never: []string{`cluster_queue="gone"`},
			want: []string{
				`kueue_admission_attempts_total{replica_role="standalone",result="success"} 1`,
				`kueue_admission_attempts_total{replica_role="standalone",result="inadmissible"} 1`,
				`muster_scheduling_effort_total{cluster_queue="team"} 34`,
			},
		},
		"of three starts that are expected, half and all; of a start that is not, none": {
			config: Config{Role: Standalone},
			happen: func(m *Metrics) {
				m.Expected(map[string][]time.Time{"team": {time.Unix(90, 0), time.Unix(10, 0), time.Unix(20, 0)}, "other": {time.Unix(5, 0), {}}})
			},
			want: []string{
				`muster_forecast_start_timestamp_seconds{cluster_queue="team",workloads="half"} 20`,
				`muster_forecast_start_timestamp_seconds{cluster_queue="team",workloads="all"} 90`,
				`muster_forecast_start_timestamp_seconds{cluster_queue="other",workloads="half"} 5`,
				`muster_forecast_start_timestamp_seconds{cluster_queue="other",workloads="all"} +Inf`,
			},
		},
		"a queue in which nothing waits any more": {
			config: Config{Role: Standalone},
			happen: func(m *Metrics) {
				m.Expected(map[string][]time.Time{"team": {time.Unix(90, 0)}})
				m.Expected(nil)
			},
			never: []string{"muster_forecast_start_"},
		},
		"how good forecasts were": {
			config: Config{Role: Standalone},
			happen: func(m *Metrics) { m.Accuracy(forecast.Accuracy{Starts: 7, MedianError: 150, Within: 820}, 30) },
			want: []string{
				"muster_forecast_starts 7", "muster_forecast_error_ratio 0.15", "muster_forecast_within_range_ratio 0.82", "muster_forecast_followed_workloads 30",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(tt.config)
			for _, name := range []string{"team", "other"} {
				m.Quotas(&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			tt.happen(m)
			lines := shown(t, m)
			for _, want := range tt.want {
				if !slices.Contains(lines, want) {
					t.Errorf("there is no line\n%s\nbut\n%s", want, strings.Join(lines, "\n"))
				}
			}
			for _, line := range lines {
				for _, never := range tt.never {
					if strings.HasPrefix(line, never) {
						t.Errorf("it shows %s", line)
					}
				}
			}
		})
	}
}

func shown(t *testing.T, m *Metrics) (lines []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// TestSharesAreNotRounded as they are in statuses.
func TestSharesAreNotRounded(t *testing.T) {
	m := New(Config{})
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: kueue.ClusterQueueSpec{CohortName: "all"}}
	cq.Status.FairSharing = &kueue.FairSharingStatus{WeightedShare: 334}
	m.Quotas(cq)
	m.ClusterQueue(cq, status.Figures{Share: 333.5})
	cohort := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	cohort.Status.FairSharing = &kueue.FairSharingStatus{WeightedShare: 334}
	m.Cohort(cohort, 333.5)
	for name, g := range map[string]prometheus.Gauge{
		"queue": m.share.WithLabelValues("team", "all"), "cohort": m.cohorts.share.WithLabelValues("all"),
	} {
		if got := testutil.ToFloat64(g); got != 333.5 {
			t.Errorf("the %s has the share %v", name, got)
		}
	}
}

// TestWhatCannotBe is shown as what can: durations by a clock that is behind are none, and amounts beyond int64 are as large as they are.
// Every series of Kueue's says which replica shows it.
func TestWhatCannotBe(t *testing.T) {
	m := New(Config{Role: Standalone, LocalQueues: labels.Everything()})
	early := start.Add(-time.Hour)
	admitted := newWorkload(condition(kueue.WorkloadAdmitted, time.Minute), condition(kueue.WorkloadQuotaReserved, time.Minute))
	m.Reserved(newWorkload(), admitted, early)
	m.Admitted(admitted, admitted, early)
	m.Ungated(kueue.TopologySchedulingGate, admitted, early)
	cq := clusterQueue("True")
	m.Quotas(cq)
	cq.Status.FlavorsUsage = []kueue.FlavorUsage{{Name: "spot", Resources: []kueue.ResourceUsage{{Name: "memory",
		Total: resource.MustParse("1000E")}}}}
	m.ClusterQueue(cq, status.Figures{})
	answer := httptest.NewRecorder()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	all := answer.Body.String()
	const huge = `kueue_cluster_queue_resource_usage{cluster_queue="team",cohort="all",flavor="spot",replica_role="standalone",` +
		`resource="memory"} 1e+21`
	if !strings.Contains(all, huge) {
		t.Errorf("a huge amount is not shown: %s", all[max(0, strings.Index(all, "kueue_cluster_queue_resource_usage{")):][:300])
	}
	for line := range strings.SplitSeq(all, "\n") {
		switch {
		case !strings.HasPrefix(line, "kueue_") || strings.HasPrefix(line, "kueue_build_info"):
		case !strings.Contains(line, `replica_role="standalone"`):
			t.Errorf("it does not say whose it is: %s", line)
		case strings.Contains(line, "_sum{") && strings.Contains(line, "} -"):
			t.Errorf("a time is negative: %s", line)
		}
	}
}

func amounts(v int64) quota.Amounts { return quota.Amounts{{Flavor: "spot", Resource: "cpu"}: v} }

func cohort(name string) *kueue.Cohort {
	return &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: kueue.CohortStatus{FairSharing: &kueue.FairSharingStatus{}}}
}

package queueing

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/status"
)

func TestFiguresOfQueuesAndCohorts(t *testing.T) {
	w := newWorld()
	w.set(flavor("spot", nil))
	w.set(&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: kueue.CohortSpec{ParentName: "org"}})
	w.set(localQueueTo("main", "queue", ""))
	w.set(clusterQueue(t, "queue", map[string]string{"cohort": "all", "within": "LowerPriority"}, "spot cpu=2/0 memory=1Gi"))
	w.set(clusterQueue(t, "other", map[string]string{"cohort": "org"}, "spot cpu=3"))
	w.set(w.workload(t, "running", map[string]string{"cpu": "2"}))
	w.cycles(t)
	report := w.s.Report(w.now)
	cpu := func(v int64) quota.Amounts { return quota.Amounts{{Flavor: "spot", Resource: "cpu"}: v} }
	whole := cpu(2000)
	whole[quota.FlavorResource{Flavor: "spot", Resource: "memory"}] = 1 << 30
	org := cpu(5000)
	org[quota.FlavorResource{Flavor: "spot", Resource: "memory"}] = 1 << 30
	want := map[string]status.CohortFigures{
		"all": {Parent: "org", Root: "org", Quota: whole, Reserved: cpu(2000), Admitted: 1},
		"org": {Root: "org", Quota: org, Reserved: cpu(2000), Admitted: 1},
	}
	if diff := cmp.Diff(want, report.Trees); diff != "" || !report.Whole {
		t.Errorf("cohorts, all of them: %v (-want +got)\n%s", report.Whole, diff)
	}

	// The first claims what runs, which suits the second, too, but not the third.
	w.set(w.workload(t, "first", map[string]string{"cpu": "2", "priority": "2"}))
	w.set(w.workload(t, "second", map[string]string{"cpu": "2", "priority": "1"}))
	w.set(w.workload(t, "third", map[string]string{"cpu": "2"}))
	w.s.Cycle(w.now)
	cause := cache.Unadmitted{
		Reason: kueue.WorkloadAdmittedReasonNoReservation, UnderlyingCause: kueue.WorkloadQuotaReservedReasonPendingEvaluation,
	}
	figures := status.Figures{Active: 3, Skipped: 1, Pending: nodegroups.Resources{"cpu": 6000, "memory": 0}, Cohorts: []string{"all", "org"},
		Unadmitted: map[cache.Unadmitted]int32{cause: 3}}
	if diff := cmp.Diff(figures, w.s.Figures("queue")); diff != "" {
		t.Errorf("while one claims what runs (-want +got)\n%s", diff)
	}

	for _, x := range w.s.AllWorkloads() {
		w.s.Settle(x.Object.UID, nil)
		over := x.Object.DeepCopy()
		apimeta.SetStatusCondition(&over.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished,
			Status: metav1.ConditionTrue, Reason: "Succeeded"})
		w.set(over)
	}
	w.s.Cycle(w.now)
	figures = status.Figures{Finished: 4, Pending: nodegroups.Resources{"cpu": 0, "memory": 0}, Cohorts: []string{"all", "org"},
		Unadmitted: map[cache.Unadmitted]int32{}}
	if diff := cmp.Diff(figures, w.s.Figures("queue")); diff != "" {
		t.Errorf("when all are over (-want +got)\n%s", diff)
	}
	if got := w.s.LocalFigures(types.NamespacedName{Namespace: "default", Name: "main"}); got.Finished != 4 || got.Usage != nil {
		t.Errorf("of the LocalQueue: %+v", got)
	}
	if got := w.s.Report(w.now).Trees["org"]; got.Admitted != 0 || len(got.Reserved) != 0 {
		t.Errorf("of the cohort: %+v", got)
	}
	for _, x := range w.s.AllWorkloads() {
		w.s.Delete(x.Object)
	}
	if got := w.s.Figures("queue").Finished; got != 0 {
		t.Errorf("once they are deleted %d are finished", got)
	}
}

// TestMetricsHaveSharesAsTheyAre: a third, which statuses round up, as in Kueue.
func TestMetricsHaveSharesAsTheyAre(t *testing.T) {
	w := newWorldWith(config.Config{FairSharing: &kueueconfig.FairSharing{}})
	w.set(flavor("spot", nil))
	w.set(&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: kueue.CohortSpec{ParentName: "org"}})
	w.set(localQueueTo("main", "queue", ""))
	w.set(clusterQueue(t, "queue", map[string]string{"cohort": "all"}, "spot cpu=1"))
	w.set(clusterQueue(t, "other", map[string]string{"cohort": "org"}, "spot cpu=2"))
	w.set(w.workload(t, "running", map[string]string{"cpu": "2"}))
	w.cycles(t)
	report := w.s.Report(w.now)
	if got := report.Cohorts["all"].FairSharing.WeightedShare; got != 334 {
		t.Errorf("the status has the share %d", got)
	}
	for what, got := range map[string]float64{"cohort": w.s.CohortShare("all"), "no cohort": w.s.CohortShare("none"),
		"ClusterQueue": w.s.Figures("queue").Share, "other": w.s.Figures("other").Share} {
		want := map[string]float64{"cohort": 1000. / 3, "ClusterQueue": 1000. / 3}[what]
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("the share of %s is %v, want %v", what, got, want)
		}
	}
}

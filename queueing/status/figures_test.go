package status_test

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
	"github.com/muster-dev/muster/test/queues"
)

func TestFiguresOfQueuesAndCohorts(t *testing.T) {
	w := queues.New()
	w.Set(queues.Flavor("spot", nil))
	w.Set(&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: kueue.CohortSpec{ParentName: "org"}})
	w.Set(queues.LocalQueue("main", "queue", ""))
	w.Set(queues.ClusterQueue(t, "queue", map[string]string{"cohort": "all", "within": "LowerPriority"}, "spot cpu=2/0 memory=1Gi"))
	w.Set(queues.ClusterQueue(t, "other", map[string]string{"cohort": "org"}, "spot cpu=3"))
	w.Set(w.Workload(t, "running", map[string]string{"cpu": "2"}))
	w.Cycles(t)
	report := w.State.Report(w.Now)
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
	w.Set(w.Workload(t, "first", map[string]string{"cpu": "2", "priority": "2"}))
	w.Set(w.Workload(t, "second", map[string]string{"cpu": "2", "priority": "1"}))
	w.Set(w.Workload(t, "third", map[string]string{"cpu": "2"}))
	w.State.Cycle(w.Now)
	cause := cache.Unadmitted{
		Reason: kueue.WorkloadAdmittedReasonNoReservation, UnderlyingCause: kueue.WorkloadQuotaReservedReasonPendingEvaluation,
	}
	figures := status.Figures{Active: 3, Skipped: 1, Pending: nodegroups.Resources{"cpu": 6000, "memory": 0}, Cohorts: []string{"all", "org"},
		Unadmitted: map[cache.Unadmitted]int32{cause: 3}}
	if diff := cmp.Diff(figures, w.State.Figures("queue")); diff != "" {
		t.Errorf("while one claims what runs (-want +got)\n%s", diff)
	}

	for _, x := range w.State.AllWorkloads() {
		w.State.Settle(x.Object.UID, nil)
		over := x.Object.DeepCopy()
		apimeta.SetStatusCondition(&over.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished,
			Status: metav1.ConditionTrue, Reason: "Succeeded"})
		w.Set(over)
	}
	w.State.Cycle(w.Now)
	figures = status.Figures{Finished: 4, Pending: nodegroups.Resources{"cpu": 0, "memory": 0}, Cohorts: []string{"all", "org"},
		Unadmitted: map[cache.Unadmitted]int32{}}
	if diff := cmp.Diff(figures, w.State.Figures("queue")); diff != "" {
		t.Errorf("when all are over (-want +got)\n%s", diff)
	}
	if got := w.State.LocalFigures(types.NamespacedName{Namespace: "default", Name: "main"}); got.Finished != 4 || got.Usage != nil {
		t.Errorf("of the LocalQueue: %+v", got)
	}
	if got := w.State.Report(w.Now).Trees["org"]; got.Admitted != 0 || len(got.Reserved) != 0 {
		t.Errorf("of the cohort: %+v", got)
	}
	for _, x := range w.State.AllWorkloads() {
		w.Delete(x.Object)
	}
	if got := w.State.Figures("queue").Finished; got != 0 {
		t.Errorf("once they are deleted %d are finished", got)
	}
}

// TestMetricsHaveSharesAsTheyAre: a third, which statuses round up, as in Kueue.
func TestMetricsHaveSharesAsTheyAre(t *testing.T) {
	w := queues.NewWith(config.Config{FairSharing: &kueueconfig.FairSharing{}})
	w.Set(queues.Flavor("spot", nil))
	w.Set(&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: kueue.CohortSpec{ParentName: "org"}})
	w.Set(queues.LocalQueue("main", "queue", ""))
	w.Set(queues.ClusterQueue(t, "queue", map[string]string{"cohort": "all"}, "spot cpu=1"))
	w.Set(queues.ClusterQueue(t, "other", map[string]string{"cohort": "org"}, "spot cpu=2"))
	w.Set(w.Workload(t, "running", map[string]string{"cpu": "2"}))
	w.Cycles(t)
	report := w.State.Report(w.Now)
	if got := report.Cohorts["all"].FairSharing.WeightedShare; got != 334 {
		t.Errorf("the status has the share %d", got)
	}
	for what, got := range map[string]float64{"cohort": w.State.CohortShare("all"), "no cohort": w.State.CohortShare("none"),
		"ClusterQueue": w.State.Figures("queue").Share, "other": w.State.Figures("other").Share} {
		want := map[string]float64{"cohort": 1000. / 3, "ClusterQueue": 1000. / 3}[what]
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("the share of %s is %v, want %v", what, got, want)
		}
	}
}

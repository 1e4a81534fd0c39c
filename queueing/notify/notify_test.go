package notify

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/standing"
	"github.com/muster-dev/muster/queueing/workload"
)

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// job is the Workload of job/train, created an hour ago, with conditions that became true at these times.
func job(conditions ...metav1.Condition) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "job-train", UID: "1", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", Controller: new(true)}},
		},
		Spec:   kueue.WorkloadSpec{QueueName: "main"},
		Status: kueue.WorkloadStatus{Conditions: conditions},
	}
}

func is(condition, reason, message string, at time.Time) metav1.Condition {
	return metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(at)}
}

func summaries(all []Notification) (out []string) {
	for i := range all {
		out = append(out, all[i].ID+": "+all[i].Summary)
	}
	return out
}

func TestOfWorkload(t *testing.T) {
	admitted := is(kueue.WorkloadAdmitted, "Admitted", "", now)
	preempted := is(kueue.WorkloadEvicted, kueue.WorkloadEvictedByPreemption, "for team-b", now)
	failed := is(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonFailed, "100% of pods failed", now)
	slice, copied := job(admitted), job(admitted)
	slice.Annotations = map[string]string{workload.ReplacementAnnotation: "job-train-0"}
	copied.Labels = map[string]string{kueue.MultiKueueOriginLabel: "manager"}
	tests := map[string]struct {
		before, now *kueue.Workload
		want        []string
	}{
		"it starts":                           {job(), job(admitted), []string{"1-started-1795867200: team-a/job/train started after 1h0m0s."}},
		"nothing changes":                     {job(admitted), job(admitted), nil},
		"another Workload of the same name":   {&kueue.Workload{ObjectMeta: metav1.ObjectMeta{UID: "0"}}, job(), nil},
		"it started before the process led":   {nil, job(is(kueue.WorkloadAdmitted, "Admitted", "", now.Add(-time.Hour))), nil},
		"it started as the process took over": {nil, job(admitted), []string{"1-started-1795867200: team-a/job/train started after 1h0m0s."}},
		"a slice replaces another":            {nil, slice, nil},
		"a slice is replaced":                 {job(), job(is(kueue.WorkloadFinished, kueue.WorkloadSliceReplaced, "", now)), nil},
		"a copy in a worker":                  {nil, copied, nil},
		"it is preempted": {job(admitted), job(admitted, preempted),
			[]string{"1-evicted-1795867200: team-a/job/train was evicted (Preempted): for team-b"}},
		"it loses quota before it started": {job(), job(is(kueue.WorkloadEvicted, kueue.WorkloadEvictedByAdmissionCheck, "no machines", now)), nil},
		"Muster gives it up before it started": {job(), job(is(kueue.WorkloadEvicted, "DeactivatedDueToTooLate", "no machines", now)),
			[]string{"1-evicted-1795867200: team-a/job/train was evicted (DeactivatedDueToTooLate): no machines"}},
		"it fails": {job(admitted), job(admitted, failed), []string{"1-finished-1795867200: team-a/job/train has failed: 100% of pods failed"}},
		"it succeeds": {job(admitted), job(admitted, is(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonSucceeded, "", now)),
			[]string{"1-finished-1795867200: team-a/job/train has finished."}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, summaries(OfWorkload(tc.before, tc.now, now.Add(-time.Minute)))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestDelays(t *testing.T) {
	d := Delays{}
	estimate := func(late time.Time) {
		d.Estimate("team-a", &standing.Standing{Places: map[string]standing.Place{"job-train": {Start: late, Late: late}}})
	}
	estimate(now)
	estimate(now.Add(time.Hour)) // the first one counts
	if got := d.Overdue(now); got != nil {
		t.Errorf("%v are overdue at the last moment of the estimate", got)
	}
	got := d.Overdue(now.Add(time.Minute))
	if len(got) != 1 {
		t.Fatalf("%v are overdue", got)
	}
	want := []string{"1-delayed-1795867200: team-a/job/train waits longer than estimated: it was expected to start by 2026-11-28T12:00:00Z; " +
		"it is now expected at about 2026-11-28T13:00:00Z."}
	if diff := cmp.Diff(want, summaries(d.Of(job()))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := d.Overdue(now.Add(time.Hour)); got != nil {
		t.Errorf("%v are reported again", got)
	}
	if got := d.Of(job(is(kueue.WorkloadAdmitted, "Admitted", "", now))); got != nil || len(d) > 0 {
		t.Errorf("a job that started is reported as %v, and %d estimates are left", got, len(d))
	}
}

func TestOfPolicy(t *testing.T) {
	policy := func(percent int32, period time.Time) *v1alpha1.CapacityPolicy {
		return &v1alpha1.CapacityPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "gpus", UID: "2"},
			Spec:       v1alpha1.CapacityPolicySpec{Budgets: []v1alpha1.CapacityBudget{{Name: "month", USD: resource.MustParse("5000")}}},
			Status: v1alpha1.CapacityPolicyStatus{Budgets: []v1alpha1.BudgetStatus{{
				Name: "month", WarnedPercent: percent, Spent: "4000.00", At: metav1.NewMicroTime(now), PeriodStart: metav1.NewTime(period),
				PeriodEnd: metav1.NewTime(period.AddDate(0, 1, 0)),
			}}},
		}
	}
	first := now.AddDate(0, 0, -27).Truncate(24 * time.Hour)
	want := []string{"2-month-1793491200-80: Budget month of CapacityPolicy gpus has reached 80%: 4000.00 of 5000.00 USD are spent, and " +
		"it ends at 2026-12-01T00:00:00Z."}
	if diff := cmp.Diff(want, summaries(OfPolicy(policy(0, first), policy(80, first), now))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := OfPolicy(policy(80, first), policy(80, first), now); got != nil {
		t.Errorf("a warning is repeated: %v", got)
	}
	if got := OfPolicy(policy(80, first.AddDate(0, -1, 0)), policy(80, first), now); len(got) != 1 {
		t.Errorf("in a new period: got %v", got)
	}
}

func TestFormats(t *testing.T) {
	n := OfWorkload(job(), job(is(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonFailed, "<!channel> a & b", now)), now)[0]
	for format, want := range map[Format]string{
		CloudEvents: `{"specversion":"1.0","id":"1-finished-1795867200","source":"urn:uuid:3","type":"dev.muster.job.finished",` +
			`"subject":"team-a/job/train","time":"2026-11-28T12:00:00Z","datacontenttype":"application/json","data":{"summary":` +
			`"team-a/job/train has failed: \u003c!channel\u003e a \u0026 b","namespace":"team-a","job":"job/train","workload":"job-train",` +
			`"queue":"main","created":"2026-11-28T11:00:00Z","reason":"Failed","message":"\u003c!channel\u003e a \u0026 b","outcome":"Failed"}}`,
		Slack: `{"text":"team-a/job/train has failed: \u0026lt;!channel\u0026gt; a \u0026amp; b"}`,
		Alertmanager: `[{"labels":{"alertname":"MusterJobFinished","job":"job/train","namespace":"team-a","outcome":"Failed","queue":"main",` +
			`"reason":"Failed","severity":"warning","source":"urn:uuid:3"},"annotations":{"id":"1-finished-1795867200","summary":` +
			`"team-a/job/train has failed: \u003c!channel\u003e a \u0026 b"},"startsAt":"2026-11-28T12:00:00Z"}]`,
	} {
		got, err := format.Encode(&n, "urn:uuid:3")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", format, diff)
		}
	}
}

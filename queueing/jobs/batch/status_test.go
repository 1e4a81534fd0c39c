package batch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestStatusAfter has what kube-apiserver's validation of a Job's status refuses (pkg/registry/batch/job/strategy.go).
func TestStatusAfter(t *testing.T) {
	condition := func(kind batchv1.JobConditionType) batchv1.JobCondition {
		return batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue}
	}
	conditions := func(kinds ...batchv1.JobConditionType) (out []batchv1.JobCondition) {
		for _, kind := range kinds {
			out = append(out, condition(kind))
		}
		return out
	}
	indexed := batchv1.JobSpec{CompletionMode: new(batchv1.IndexedCompletion), Parallelism: new(int32(4)), Completions: new(int32(4))}
	for name, tc := range map[string]struct {
		spec              batchv1.JobSpec
		shown, next, want batchv1.JobStatus
	}{
		"a first run": {next: batchv1.JobStatus{Active: 2, Failed: 1}, want: batchv1.JobStatus{Active: 2, Failed: 1}},
		"a job that is nowhere": {
			shown: batchv1.JobStatus{Active: 2, Succeeded: 3, Failed: 1}, want: batchv1.JobStatus{Succeeded: 3, Failed: 1}},
		"a second run": {
			shown: batchv1.JobStatus{Succeeded: 3, Failed: 1},
			next:  batchv1.JobStatus{Active: 2, Succeeded: 1, Failed: 2}, want: batchv1.JobStatus{Active: 2, Succeeded: 3, Failed: 2}},
		"an Indexed job that is nowhere": {spec: indexed,
			shown: batchv1.JobStatus{Succeeded: 3, Failed: 1, CompletedIndexes: "0-2"}, want: batchv1.JobStatus{Failed: 1}},
		"a run that is about to succeed": {
			next: batchv1.JobStatus{Active: 1, Conditions: conditions(batchv1.JobSuccessCriteriaMet)},
			want: batchv1.JobStatus{Active: 1}},
		"a run that is about to fail": {
			next: batchv1.JobStatus{Active: 1, Conditions: conditions(batchv1.JobSuspended, batchv1.JobFailureTarget)},
			want: batchv1.JobStatus{Active: 1, Conditions: conditions(batchv1.JobSuspended)}},
		"a run that has ended": {
			shown: batchv1.JobStatus{Failed: 3},
			next:  batchv1.JobStatus{Succeeded: 4, Conditions: conditions(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)},
			want:  batchv1.JobStatus{Succeeded: 4, Failed: 3, Conditions: conditions(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)}},
	} {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&batchv1.Job{Spec: tc.spec, Status: tc.shown})
		if err != nil {
			t.Fatal(err)
		}
		next, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&tc.next)
		if err != nil {
			t.Fatal(err)
		}
		var got batchv1.JobStatus
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(Kind{}.StatusAfter(&unstructured.Unstructured{Object: object}, next), &got)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Conditions) == 0 {
			got.Conditions = nil
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

package batch

import (
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// StatusAfter implements Lasting of dispatch/controller. kube-apiserver refuses a status in which fewer pods have failed or succeeded than
// before, or that lacks a condition by which the Job was about to end. So counts only rise, and such a condition is shown with the end.
func (Kind) StatusAfter(job *unstructured.Unstructured, next map[string]any) map[string]any {
	out := maps.Clone(next)
	if out == nil {
		out = map[string]any{}
	}
	counters := []string{"failed"}
	if !mayDecrease(job) {
		counters = append(counters, "succeeded")
	}
	for _, name := range counters {
		before, _, _ := unstructured.NestedInt64(job.Object, "status", name)
		if now, _, _ := unstructured.NestedInt64(next, name); before > now {
			out[name] = before
		}
	}
	conditions, _, _ := unstructured.NestedSlice(next, "conditions")
	if isTrue(conditions, batchv1.JobComplete) || isTrue(conditions, batchv1.JobFailed) || len(conditions) == 0 {
		return out
	}
	out["conditions"] = slices.DeleteFunc(conditions, func(c any) bool {
		return isTrue([]any{c}, batchv1.JobSuccessCriteriaMet) || isTrue([]any{c}, batchv1.JobFailureTarget)
	})
	return out
}

// mayDecrease reports whether fewer pods of a Job may have succeeded than before: it may have shrunk.
func mayDecrease(job *unstructured.Unstructured) bool {
	mode, _, _ := unstructured.NestedString(job.Object, "spec", "completionMode")
	completions, has, _ := unstructured.NestedInt64(job.Object, "spec", "completions")
	parallelism, _, _ := unstructured.NestedInt64(job.Object, "spec", "parallelism")
	return mode == string(batchv1.IndexedCompletion) && has && completions == parallelism
}

func isTrue(conditions []any, kind batchv1.JobConditionType) bool {
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == string(kind) && m["status"] == "True"
	})
}

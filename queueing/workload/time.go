package workload

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// EndOf returns the latest time at which the Workload releases its quota; ok is false if it is unlimited.
func EndOf(w *kueue.Workload, now time.Time) (at time.Time, ok bool) {
	most, ok := MostTime(w)
	if !ok {
		return time.Time{}, false
	}
	begin := now
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted); c != nil && IsAdmitted(w) {
		begin = c.LastTransitionTime.Time
	}
	return begin.Add(most), true
}

// MostTime returns how long the Workload may run once it is admitted.
func MostTime(w *kueue.Workload) (time.Duration, bool) {
	seconds := w.Spec.MaximumExecutionTimeSeconds
	if seconds == nil {
		return 0, false
	}
	left := int64(*seconds)
	if past := w.Status.AccumulatedPastExecutionTimeSeconds; past != nil {
		left -= int64(*past)
	}
	return time.Duration(max(0, left)) * time.Second, true
}

// Backoff returns base doubled n times, at most limit.
func Backoff(base time.Duration, n int32, limit time.Duration) time.Duration {
	for ; n > 0 && 0 < base && base < limit; n-- {
		base *= 2
	}
	return min(base, limit)
}

// Earliest returns the earlier of two times; zero means never.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

package jobs

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/queueing/workload/podcounts"
)

const (
	// maxQuote is how much is quoted of the API server's message, in bytes.
	maxQuote = 512
	// rarest is how long at most the Events of a job whose pods are missing are not read.
	rarest = 5 * time.Minute
)

// reportRefusedPods evicts the Workload of a started job whose pods the API server
// refuses: because of a ResourceQuota of the namespace, Pod Security, another policy or a
// webhook. It reports whether it wrote.
//
// Controllers report that in Events alone, which are not cached, neither here nor in the
// API server. So they are read only of a job that has lacked pods for some time, and then
// less and less often. A usual job has its pods in the status that reports its start.
func (r *reconciler) reportRefusedPods(ctx context.Context, job client.Object, w *kueue.Workload) (bool, error) {
	kind, ok := r.kind.(Refusable)
	if !ok || !r.lacksPods(kind, job, w) {
		return false, nil
	}
	if !r.areEventsDue(job, kind.CreatesPodsSince(job), countsOf(r.kind, job, w)) {
		return false, errPodsMissing
	}
	message, err := r.refusalOfPods(ctx, kind, job, w)
	if err != nil {
		return false, err
	}
	if message == "" {
		return false, errPodsMissing
	}
	_, err = writes.ApplyStatus(ctx, r.client, w, workload.PodsRefused(w, message, r.now()))
	return true, err
}

// lacksPods reports whether a job that Muster started has no pod, though it needs some. A
// job with some of its pods works, so it is left alone, unless the configuration waits for
// all (waitForPodsReady) and they have never been ready: one that is lost while the others
// run may come back.
func (r *reconciler) lacksPods(kind Refusable, job client.Object, w *kueue.Workload) bool {
	if outcome, _ := kind.Outcome(job); outcome != Unfinished || !WasStarted(job) || kind.CreatesPodsSince(job).IsZero() {
		return false
	}
	counts := countsOf(kind, job, w)
	if counts == nil {
		return false
	}
	var needed, created, expected int32
	for i, n := range podcounts.Granted(w) {
		needed += counts[i].Needed
		created += counts[i].Created
		expected += min(counts[i].Requested, n)
	}
	if left(counts) == 0 {
		return needed > 0
	}
	ready := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady)
	starts := ready == nil || ready.Reason == kueue.WorkloadWaitForStart
	return r.podsReady && starts && created < expected
}

// areEventsDue reports whether it is time to read the Events of a job that lacks pods:
// when none has come for the lag of caches, and then after twice as long each time.
func (r *reconciler) areEventsDue(job client.Object, start time.Time, counts []Counts) (due bool) {
	var created int32
	for _, c := range counts {
		created += c.Created
	}
	r.remember(job.GetUID(), func(m *memory) {
		now, missing := r.now(), &m.missing
		if !missing.start.Equal(start) || missing.created != created {
			*missing = missingPods{start: start, created: created, since: now, next: now.Add(lag)}
		}
		if due = !now.Before(missing.next); due {
			missing.next = now.Add(min(now.Sub(missing.since), rarest))
		}
	})
	return due
}

// refusalOfPods is the API server's message about the pod of this start that it refused
// last; empty if it refused none, or if a pod came afterwards.
func (r *reconciler) refusalOfPods(ctx context.Context, kind Refusable, job client.Object, w *kueue.Workload) (message string, err error) {
	var list corev1.EventList
	ofPods := client.MatchingFields{"involvedObject.uid": string(job.GetUID())}
	maps.Copy(ofPods, kind.RefusalEvents())
	if err := r.live.List(ctx, &list, client.InNamespace(job.GetNamespace()), ofPods); err != nil {
		return "", fmt.Errorf("listing the events of %s: %w", r.name(job), err)
	}
	// Both times are the controller's, in whole seconds.
	last := kind.CreatesPodsSince(job)
	for i := range list.Items {
		e := &list.Items[i]
		if at := lastSeen(e); !at.Before(last) {
			last, message = at, e.Message
		}
	}
	if message == "" {
		return "", nil
	}
	all, err := pods{r}.of(ctx, job)
	if err != nil {
		return "", err
	}
	known := left(countsOf(kind, job, w))
	for i := range all {
		if !IsOver(&all[i]) {
			known--
		}
		if all[i].CreationTimestamp.After(last) {
			return "", nil
		}
	}
	if known < 0 {
		// There are more than the status says.
		return "", nil
	}
	if _, cause, found := strings.Cut(message, "Error creating: "); found {
		message = cause
	}
	return text.Clip(message, maxQuote), nil
}

// lastSeen is when what an Event reports happened last.
func lastSeen(e *corev1.Event) time.Time {
	at := e.LastTimestamp.Time
	if e.EventTime.After(at) {
		at = e.EventTime.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(at) {
		at = e.Series.LastObservedTime.Time
	}
	return at
}

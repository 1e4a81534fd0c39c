package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/controller/writer"
)

const (
	// maxWords is how much is quoted of what the API server says, in bytes.
	maxWords = 512
	// rarest is how long the events of a Job whose pods do not come are not read again at
	// most.
	rarest = 5 * time.Minute
)

// lacking is what is known of a started Job that lacks pods.
type lacking struct {
	// start is that of the Job, and made is how many pods it has had.
	start time.Time
	made  int32
	// since is when it was first seen so, and next is when its events are read.
	since, next time.Time
}

// tellRefused says on the Workload of a started Job that the API server refuses its pods:
// a ResourceQuota of the namespace, Pod Security, another policy or a webhook. It reports
// whether it wrote.
//
// The Job controller tells that in events alone, which are not cached, neither here nor
// in the API server. So they are read only of a Job that has lacked pods for some time,
// and then less and less often. A usual Job has its pods in the status that tells of its
// start.
func (r *reconciler) tellRefused(ctx context.Context, job *batchv1.Job, w *kueue.Workload) (bool, error) {
	if !r.lacksPods(job, w) {
		return false, nil
	}
	if !r.isDue(job) {
		return false, errPodsMissing
	}
	words, err := r.refusal(ctx, job)
	if err != nil {
		return false, err
	}
	if words == "" {
		return false, errPodsMissing
	}
	_, err = writer.ApplyStatus(ctx, r.client, w, queueing.PodsRefused(w, words, r.now()))
	return true, err
}

// lacksPods reports whether a Job that Muster started has no pod, though it is to have
// some. A Job with a part of its pods works, so it is left alone, unless all are waited
// for (waitForPodsReady) and have never been there: one that is lost while the others run
// may come back.
func (r *reconciler) lacksPods(job *batchv1.Job, w *kueue.Workload) bool {
	switch {
	case !wasStarted(job) || job.Status.StartTime == nil || hasCondition(job, batchv1.JobSuspended) || isEnding(job):
		return false
	case podsLeft(job) == 0:
		return podCount(job) > 0
	}
	ready := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady)
	starts := ready == nil || ready.Reason == kueue.WorkloadWaitForStart
	return r.podsReady && starts && podsMade(job) < min(wholeCount(job), granted(w))
}

// podsMade is how many pods the Job controller knows to have been created.
func podsMade(job *batchv1.Job) int32 {
	made := podsLeft(job) + job.Status.Succeeded + job.Status.Failed
	if uncounted := job.Status.UncountedTerminatedPods; uncounted != nil {
		made += int32(len(uncounted.Succeeded) + len(uncounted.Failed))
	}
	return made
}

// isDue reports whether it is time to read the events of a Job that lacks pods: when none
// has come for the lag of caches, and then after twice as long each time.
func (r *reconciler) isDue(job *batchv1.Job) (due bool) {
	r.remember(job.UID, func(m *memory) {
		now, l := r.now(), &m.lacking
		if start, made := job.Status.StartTime.Time, podsMade(job); !l.start.Equal(start) || l.made != made {
			*l = lacking{start: start, made: made, since: now, next: now.Add(lag)}
		}
		if due = !now.Before(l.next); due {
			l.next = now.Add(min(now.Sub(l.since), rarest))
		}
	})
	return due
}

// refusal is what the API server said when it last refused a pod of this start of a Job;
// empty if it did not, or if a pod came afterwards.
func (r *reconciler) refusal(ctx context.Context, job *batchv1.Job) (words string, err error) {
	var list corev1.EventList
	ofPods := client.MatchingFields{"involvedObject.uid": string(job.UID), "reason": "FailedCreate", "source": "job-controller"}
	if err := r.live.List(ctx, &list, client.InNamespace(job.Namespace), ofPods); err != nil {
		return "", fmt.Errorf("listing the events of Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	// Both times are the Job controller's, in whole seconds.
	last := job.Status.StartTime.Time
	for i := range list.Items {
		e := &list.Items[i]
		if at := lastSeen(e); !at.Before(last) {
			last, words = at, e.Message
		}
	}
	if words == "" {
		return "", nil
	}
	pods, err := r.podsOf(ctx, job)
	if err != nil {
		return "", err
	}
	left := podsLeft(job)
	for i := range pods {
		if !isOver(&pods[i]) {
			left--
		}
		if pods[i].CreationTimestamp.After(last) {
			return "", nil
		}
	}
	if left < 0 {
		// There are more than the status tells.
		return "", nil
	}
	if _, said, found := strings.Cut(words, "Error creating: "); found {
		words = said
	}
	return provisioning.Clip(words, maxWords), nil
}

// lastSeen is when last happened what an event tells.
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

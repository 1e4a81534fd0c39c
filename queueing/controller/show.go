package controller

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
)

// show counts what the change of an object tells.
func (l *loop) show(before, now client.Object) {
	switch o := now.(type) {
	case *kueue.Workload:
		b, known := before.(*kueue.Workload)
		l.forecast.follow(b, o)
		if known && queueing.IsFinished(o) && !queueing.IsFinished(b) {
			l.metrics.Finished(o)
			if c := apimeta.FindStatusCondition(o.Status.Conditions, kueue.WorkloadFinished); c.Reason == kueue.WorkloadSliceReplaced {
				l.metrics.Replaced(o)
			}
		}
	case *autoscaling.ProvisioningRequest:
		l.forecast.history.Launched(o)
	case *kueue.ClusterQueue:
		if before == nil || before.GetGeneration() != o.Generation {
			l.metrics.Quotas(o)
		}
	}
}

// showVerdict counts a verdict that was written, from one version to the next.
func (l *loop) showVerdict(v *queueing.Verdict, before, after *kueue.Workload, now time.Time) {
	switch v.Action {
	case queueing.Reserve:
		l.metrics.Reserved(before, after, now)
	case queueing.Admit:
		l.metrics.Admitted(before, after, now)
	case queueing.Evict:
		l.metrics.Evicted(before, v.Reason)
		if v.PreemptedFor != "" {
			l.metrics.Preempted(after, v.PreemptedFor)
		}
	}
}

// showStatus shows a queue or cohort as it should be, whether there is time to write
// it down or not.
func (l *loop) showStatus(object client.Object, set status) {
	// The labels and the spec stay; the status is replaced as a whole.
	switch o := object.(type) {
	case *kueue.ClusterQueue:
		shallow := *o
		set(&shallow)
		l.metrics.ClusterQueue(&shallow, l.state.ActivePending(kueue.ClusterQueueReference(o.Name)))
	case *kueue.LocalQueue:
		shallow := *o
		set(&shallow)
		l.metrics.LocalQueue(&shallow, l.state.LocalActivePending(client.ObjectKeyFromObject(o)))
	case *kueue.Cohort:
		shallow := *o
		set(&shallow)
		l.metrics.Cohort(&shallow)
	}
}

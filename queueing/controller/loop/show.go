package loop

import (
	"time"

	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/lifecycle"
)

// show counts what the change of an object shows.
func (l *Loop) show(before, now client.Object) {
	switch o := now.(type) {
	case *kueue.Workload:
		b, known := before.(*kueue.Workload)
		l.forecast.follow(b, o)
		if known {
			l.metrics.Changed(b, o)
		}
	case *autoscaling.ProvisioningRequest:
		l.forecast.history.Launched(o)
	case *kueue.ClusterQueue:
		if before == nil || before.GetGeneration() != o.Generation {
			l.metrics.Quotas(o)
		}
	case *kueue.LocalQueue:
		shown := l.metrics.Shows(o)
		if l.metrics.Select(o); !shown && before != nil {
			// A change of labels causes no status write that would show it.
			l.showStatus(o, func(client.Object) {})
		}
	}
}

// showVerdict counts a verdict that was written, from one version to the next.
func (l *Loop) showVerdict(v *lifecycle.Verdict, before, after *kueue.Workload, now time.Time) {
	switch v.Action {
	case lifecycle.Reserve:
		l.metrics.Reserved(before, after, now)
	case lifecycle.Admit:
		l.metrics.Admitted(before, after, now)
	case lifecycle.Evict:
		l.metrics.Evicted(before, after, v.Reason, v.Cause, now)
		if v.PreemptedFor != "" {
			l.metrics.Preempted(after, v.PreemptedFor)
		}
	}
}

// showStatus shows a queue or cohort as it should be, even where there is no time to write
// it.
func (l *Loop) showStatus(object client.Object, set status) {
	// The labels and the spec stay; the status is replaced as a whole.
	switch o := object.(type) {
	case *kueue.ClusterQueue:
		shallow := *o
		set(&shallow)
		l.metrics.ClusterQueue(&shallow, l.state.Figures(kueue.ClusterQueueReference(o.Name)))
	case *kueue.LocalQueue:
		if !l.metrics.Shows(o) {
			return
		}
		shallow := *o
		set(&shallow)
		l.metrics.LocalQueue(&shallow, l.state.LocalFigures(client.ObjectKeyFromObject(o)))
	case *kueue.Cohort:
		shallow := *o
		set(&shallow)
		l.metrics.Cohort(&shallow, l.state.CohortShare(kueue.CohortReference(o.Name)))
	}
}

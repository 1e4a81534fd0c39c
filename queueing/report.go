package queueing

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

// Report is the status that each queue and check should have. Objects whose
// condition another controller writes are not in it.
type Report struct {
	ClusterQueues map[string]kueue.ClusterQueueStatus
	LocalQueues   map[types.NamespacedName]kueue.LocalQueueStatus
	Checks        map[string]kueue.AdmissionCheckStatus
}

// MakeReport works out the Report of a snapshot.
func MakeReport(s *Snapshot) Report {
	ix := newIndex(s)
	out := Report{
		ClusterQueues: make(map[string]kueue.ClusterQueueStatus, len(ix.order)),
		LocalQueues:   make(map[types.NamespacedName]kueue.LocalQueueStatus, len(s.LocalQueues)),
		Checks:        make(map[string]kueue.AdmissionCheckStatus, len(s.Checks)),
	}
	for _, q := range ix.order {
		out.ClusterQueues[q.object.Name] = q.status(s.Now)
	}
	local := ix.countLocal()
	for key, lq := range ix.localQueues {
		out.LocalQueues[key] = ix.localStatus(lq, local[key])
	}
	for _, ac := range s.Checks {
		standing := ix.checkStanding(ac)
		if standing.Foreign {
			continue
		}
		status := *ac.Status.DeepCopy()
		standing.write(&status.Conditions, kueue.AdmissionCheckActive, ac.Generation, s.Now)
		out.Checks[ac.Name] = status
	}
	return out
}

// write puts the standing into an Active condition.
func (st Standing) write(conditions *[]metav1.Condition, condition string, generation int64, now time.Time) {
	c := metav1.Condition{
		Type: condition, Status: metav1.ConditionFalse, Reason: st.Reason, Message: st.Message,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	}
	if st.Active {
		c.Status = metav1.ConditionTrue
	}
	apimeta.SetStatusCondition(conditions, c)
}

func (q *queue) status(now time.Time) kueue.ClusterQueueStatus {
	out := *q.object.Status.DeepCopy()
	q.standing.write(&out.Conditions, kueue.ClusterQueueActive, q.object.Generation, now)
	out.PendingWorkloads, out.ReservingWorkloads, out.AdmittedWorkloads = q.waiting, q.reserving, q.running
	out.FlavorsReservation = flavorUsage(q.object, q.reserved)
	out.FlavorsUsage = flavorUsage(q.object, q.admitted)
	return out
}

// flavorUsage lists all flavors and resources of a queue in the order of its
// spec, used or not, so that a reader need not know the spec.
func flavorUsage(cq *kueue.ClusterQueue, used Usage) []kueue.FlavorUsage {
	var out []kueue.FlavorUsage
	for _, group := range cq.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			u := kueue.FlavorUsage{Name: f.Name}
			for _, r := range f.Resources {
				amount := nodegroups.Resources{r.Name: used[FlavorResource{f.Name, r.Name}]}
				u.Resources = append(u.Resources, kueue.ResourceUsage{Name: r.Name, Total: amount.List()[r.Name]})
			}
			out = append(out, u)
		}
	}
	return out
}

// localCounts are the numbers of one LocalQueue.
type localCounts struct {
	waiting, reserving, running int32
	reserved, admitted          Usage
}

func (ix *index) countLocal() map[types.NamespacedName]*localCounts {
	out := make(map[types.NamespacedName]*localCounts, len(ix.localQueues))
	for key := range ix.localQueues {
		out[key] = &localCounts{reserved: Usage{}, admitted: Usage{}}
	}
	for _, w := range ix.Workloads {
		c := out[types.NamespacedName{Namespace: w.Object.Namespace, Name: string(w.Object.Spec.QueueName)}]
		switch {
		case c == nil || IsFinished(w.Object):
		case HasQuota(w.Object):
			c.reserving++
			c.reserved.Add(w.Usage)
			if IsAdmitted(w.Object) {
				c.running++
				c.admitted.Add(w.Usage)
			}
		case IsActive(w.Object):
			c.waiting++
		}
	}
	return out
}

func (ix *index) localStatus(lq *kueue.LocalQueue, c *localCounts) kueue.LocalQueueStatus {
	out := *lq.Status.DeepCopy()
	ix.localQueueStanding(lq).write(&out.Conditions, kueue.LocalQueueActive, lq.Generation, ix.Now)
	out.PendingWorkloads, out.ReservingWorkloads, out.AdmittedWorkloads = c.waiting, c.reserving, c.running
	out.FlavorsReservation, out.FlavorsUsage = nil, nil
	if q := ix.queues[lq.Spec.ClusterQueue]; q != nil {
		out.FlavorsReservation = localUsage(flavorUsage(q.object, c.reserved))
		out.FlavorsUsage = localUsage(flavorUsage(q.object, c.admitted))
	}
	return out
}

func localUsage(usage []kueue.FlavorUsage) []kueue.LocalQueueFlavorUsage {
	out := make([]kueue.LocalQueueFlavorUsage, 0, len(usage))
	for _, f := range usage {
		u := kueue.LocalQueueFlavorUsage{Name: f.Name}
		for _, r := range f.Resources {
			u.Resources = append(u.Resources, kueue.LocalQueueResourceUsage{Name: r.Name, Total: r.Total})
		}
		out = append(out, u)
	}
	return out
}

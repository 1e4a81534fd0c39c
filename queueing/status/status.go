// Package status computes the statuses of queues, cohorts and checks, and their metrics.
package status

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
)

// reader computes statuses from a Cache.
type reader struct{ *cache.Cache }

// Report are the statuses of queues, cohorts and checks. It leaves out objects whose condition another controller
// writes.
type Report struct {
	ClusterQueues map[string]kueue.ClusterQueueStatus
	LocalQueues   map[types.NamespacedName]kueue.LocalQueueStatus
	Cohorts       map[string]kueue.CohortStatus
	Checks        map[string]kueue.AdmissionCheckStatus
	// Trees are the cohorts above the ClusterQueues of the report by name, or all cohorts if Whole is set.
	Trees map[string]CohortFigures
	Whole bool
}

// Changed returns the statuses that may have changed since the last report. A status that equals that of the object
// needs no write.
func Changed(c *cache.Cache, now time.Time) Report {
	s := reader{c}
	if s.Outdated {
		s.Rebuild()
	}
	out := Report{
		ClusterQueues: make(map[string]kueue.ClusterQueueStatus, len(s.Dirty.ClusterQueues)),
		LocalQueues:   make(map[types.NamespacedName]kueue.LocalQueueStatus, len(s.Dirty.LocalQueues)),
		Cohorts:       map[string]kueue.CohortStatus{},
		Checks:        map[string]kueue.AdmissionCheckStatus{},
		Trees:         map[string]CohortFigures{},
		Whole:         s.Dirty.Trees,
	}
	for _, n := range s.CohortNodes {
		if s.Dirty.Trees {
			out.Trees[n.Name] = s.cohortFigures(n)
			out.cohort(s, n)
		}
	}
	for q := range s.Dirty.ClusterQueues {
		out.ClusterQueues[q.Object.Name] = s.queueStatus(q, now)
		for at := q.Node.Parent(); at != nil; at = at.Parent() {
			if _, told := out.Trees[at.Name]; !told {
				out.Trees[at.Name] = s.cohortFigures(at)
			}
			out.cohort(s, at)
		}
	}
	for lq := range s.Dirty.LocalQueues {
		out.LocalQueues[types.NamespacedName{Namespace: lq.Object.Namespace, Name: lq.Object.Name}] = s.localStatus(lq, now)
	}
	if s.Dirty.Checks {
		for _, ac := range s.Checks {
			standing := s.CheckStatus(ac)
			if standing.Foreign {
				continue
			}
			status := *ac.Status.DeepCopy()
			write(standing, &status.Conditions, kueue.AdmissionCheckActive, ac.Generation, now)
			out.Checks[ac.Name] = status
		}
	}
	s.Dirty = cache.NewDirtyStatuses()
	return out
}

// cohort adds the status of a cohort if it has an object.
func (r *Report) cohort(s reader, n *quota.Node) {
	if s.Cohorts[kueue.CohortReference(n.Name)] == nil {
		return
	}
	var status kueue.CohortStatus
	if s.Config.FairSharing != nil {
		status.FairSharing = &kueue.FairSharingStatus{WeightedShare: n.Share().Rounded()}
	}
	r.Cohorts[n.Name] = status
}

// write sets an Active condition.
func write(st cache.ActiveStatus, conditions *[]metav1.Condition, condition string, generation int64, now time.Time) {
	c := metav1.Condition{
		Type: condition, Status: metav1.ConditionFalse, Reason: st.Reason, Message: st.Message,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	}
	if st.Active {
		c.Status = metav1.ConditionTrue
	}
	apimeta.SetStatusCondition(conditions, c)
}

func (s reader) queueStatus(q *cache.ClusterQueue, now time.Time) kueue.ClusterQueueStatus {
	out := *q.Object.Status.DeepCopy()
	write(q.Status, &out.Conditions, kueue.ClusterQueueActive, q.Object.Generation, now)
	out.PendingWorkloads, out.ReservingWorkloads, out.AdmittedWorkloads = q.Waiting, q.Reserving, q.Running
	out.FlavorsReservation = flavorUsage(q, q.Reserved)
	out.FlavorsUsage = flavorUsage(q, q.Admitted)
	out.FairSharing = nil
	if s.Config.FairSharing != nil {
		out.FairSharing = &kueue.FairSharingStatus{WeightedShare: q.Node.Share().Rounded()}
	}
	return out
}

// flavorUsage lists all flavors and resources of a queue in the order of its spec, used or not.
func flavorUsage(q *cache.ClusterQueue, used cache.Sums) []kueue.FlavorUsage {
	var out []kueue.FlavorUsage
	for _, group := range q.Object.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			u := kueue.FlavorUsage{Name: f.Name}
			for _, r := range f.Resources {
				fr := quota.FlavorResource{Flavor: f.Name, Resource: r.Name}
				of := func(v int64) resource.Quantity { return nodegroups.Resources{r.Name: v}.List()[r.Name] }
				usage := kueue.ResourceUsage{Name: r.Name, Total: of(used[fr])}
				if q.Node.Parent() != nil {
					usage.Borrowed = of(max(0, used[fr]-q.Node.Subtree(fr)))
				}
				u.Resources = append(u.Resources, usage)
			}
			out = append(out, u)
		}
	}
	return out
}

// consumed returns the recent usage of a LocalQueue, for each resource in its ClusterQueue's quota.
func consumed(q *cache.ClusterQueue, lq *cache.LocalQueue) corev1.ResourceList {
	out := lq.Record.Consumed.List()
	for _, group := range q.Object.Spec.ResourceGroups {
		for _, name := range group.CoveredResources {
			if _, used := out[name]; !used {
				out[name] = resource.Quantity{Format: resource.DecimalSI}
			}
		}
	}
	return out
}

func (s reader) localStatus(lq *cache.LocalQueue, now time.Time) kueue.LocalQueueStatus {
	out := *lq.Object.Status.DeepCopy()
	write(s.LocalQueueStatus(lq.Object), &out.Conditions, kueue.LocalQueueActive, lq.Object.Generation, now)
	out.PendingWorkloads, out.ReservingWorkloads, out.AdmittedWorkloads = lq.Waiting, lq.Reserving, lq.Running
	out.FlavorsReservation, out.FlavorsUsage = nil, nil
	out.FairSharing = nil
	q := s.Queues[lq.Object.Spec.ClusterQueue]
	if q != nil && s.Delegates(q.Object) {
		delegated := cache.ActiveStatus{Active: true, Reason: "MultiKueue", Message: fmt.Sprintf(
			"ClusterQueue %s has an AdmissionCheck of %s: jobs run in other clusters, and new ones without managedBy get that",
			q.Object.Name, kueue.MultiKueueControllerName)}
		write(delegated, &out.Conditions, workload.ConditionDelegated, lq.Object.Generation, now)
	} else {
		apimeta.RemoveStatusCondition(&out.Conditions, workload.ConditionDelegated)
	}
	if q != nil {
		if s.Sharing != nil {
			if lq.Record.At.IsZero() {
				lq.Record.At = cache.SampleTime(now)
			}
			out.FairSharing = &kueue.LocalQueueFairSharingStatus{AdmissionFairSharingStatus: &kueue.LocalQueueAdmissionFairSharingStatus{
				ConsumedResources: consumed(q, lq), LastUpdate: metav1.NewTime(lq.Record.At),
			}}
		}
		out.FlavorsReservation = localUsage(flavorUsage(q, lq.Reserved))
		out.FlavorsUsage = localUsage(flavorUsage(q, lq.Admitted))
	} else {
		out.ReservingWorkloads, out.AdmittedWorkloads = 0, 0 // there is no quota that they could have
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

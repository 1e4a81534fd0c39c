package promises

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	workloads "github.com/muster-dev/muster/queueing/workload"
)

// member is a pod set of a job of any kind, as its pods name it; empty for pods of no started job.
type member struct {
	job    types.UID
	podSet kueue.PodSetReference
}

func memberOf(o *corev1.Pod) member {
	return member{types.UID(o.Labels[workloads.JobUIDLabel]), kueue.PodSetReference(o.Labels[workloads.PodSetLabel])}
}

// members are the pods of one that run, and since when they are more than have quota; zero if they are not.
type members struct {
	running int
	over    time.Time
}

// remaining returns how many pods of each podSet have quota: those that were admitted and are not reclaimable.
func remaining(w *kueue.Workload, before map[kueue.PodSetReference]int32) map[kueue.PodSetReference]int {
	out, now := map[kueue.PodSetReference]int{}, reclaimable(w)
	for i := range w.Status.Admission.PodSetAssignments {
		ps := &w.Status.Admission.PodSetAssignments[i]
		out[ps.Name] = int(max(0, countOf(w, ps)-max(0, now[ps.Name]-before[ps.Name])))
	}
	return out
}

func sum(remaining map[kueue.PodSetReference]int) (n int) {
	for _, v := range remaining {
		n += v
	}
	return n
}

// runsIn reports whether the pod is one of a pod set that takes quota.
func (p *pod) runsIn() bool {
	return p != nil && p.member.job != "" && p.member.podSet != "" && p.node != "" && !p.finished && !p.leaving
}

// recountMembers counts what runs of a pod set once a pod has changed; either version may be nil.
func (c *Checker) recountMembers(before, after *pod) {
	if after.runsIn() {
		if c.members[after.member] == nil {
			c.members[after.member] = &members{}
		}
		c.members[after.member].running++
	}
	if before.runsIn() {
		if m := c.members[before.member]; m.running > 1 {
			m.running--
		} else {
			delete(c.members, before.member)
		}
	}
}

// sweepPodSets: no more pods of a pod set run than were admitted and are not reclaimable (P4). A Workload that is being evicted, ran
// before Muster came or has given its place to a successor is left out.
func (c *Checker) sweepPodSets() {
	for _, w := range c.workloads {
		if !w.holds || w.evicted || w.adopted {
			continue
		}
		for podSet, most := range w.remaining {
			m := c.members[member{w.owner, podSet}]
			switch {
			case m == nil:
				continue
			case m.running <= most:
				m.over = time.Time{}
			case m.over.IsZero():
				m.over = c.now
			case c.overdue(m.over, c.config.OverrunBound):
				c.accuse(fmt.Sprintf("members|%s|%s", w.uid, podSet), Quota, w.String(),
					"%d pods of podSet %s run since %s, and %d have quota (bound %s)",
					m.running, podSet, m.over.UTC().Format("15:04:05.000"), most, c.config.OverrunBound)
			}
			c.judged(RunningPodSets)
		}
	}
}

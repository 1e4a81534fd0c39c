package promises

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
)

// queue is what counts of a ClusterQueue beside its quota.
type queue struct {
	name   string
	checks []string
}

// debt is what a party owes of one resource of one flavor.
type debt struct {
	party
	flavorResource
}

func (d debt) key() string { return d.party.String() + "|" + d.flavorResource.String() }

func (c *Checker) applyQueue(e Event, o *kueue.ClusterQueue) {
	p := party{ClusterQueues, o.Name}
	if e.Deleted {
		c.edit(p, nil)
		return
	}
	q := &queue{name: o.Name}
	c.queues[o.Name] = q
	if s := o.Spec.AdmissionChecksStrategy; s != nil {
		for _, rule := range s.AdmissionChecks {
			q.checks = append(q.checks, string(rule.Name))
		}
	}
	c.edit(p, new(accountOf(string(o.Spec.CohortName), o.Spec.ResourceGroups)))
}

func (c *Checker) applyCohort(e Event, o *kueue.Cohort) {
	p := party{Cohorts, o.Name}
	if e.Deleted {
		c.edit(p, nil)
		return
	}
	c.edit(p, new(accountOf(string(o.Spec.ParentName), o.Spec.ResourceGroups)))
}

// edit takes in an admin's change of an account. What it overdraws is no violation, and
// controllers may still act on the account as it was.
func (c *Checker) edit(p party, a *account) {
	if c.ledger.says(p, a) {
		return
	}
	old := c.ledger
	old.until = c.now.Add(c.config.Race)
	c.older = slices.DeleteFunc(append(c.older, old), func(l *ledger) bool { return c.now.After(l.until) })
	c.ledger = old.with(p, a)
	clear(c.excused)
	keys := map[flavorResource]bool{}
	for _, amounts := range c.used {
		for key := range amounts {
			keys[key] = true
		}
	}
	for key := range keys {
		for p := range c.ledger.parties() {
			c.excuse(debt{p, key})
		}
	}
}

// excuse notes that what is overdrawn now is no violation: an admin lowered the quota
// below usage, or the usage is older than the Checker or than Muster.
func (c *Checker) excuse(d debt) {
	if over := c.ledger.overdraft(d.party, d.flavorResource, c.used); over > 0 {
		c.excused[d] = over
	}
}

// usageOf returns the quota that an admission uses for the pods that may still run. Its count does not include pods that were reclaimable
// when it was made.
func usageOf(w *kueue.Workload, before map[kueue.PodSetReference]int32) map[flavorResource]int64 {
	out := map[flavorResource]int64{}
	now := reclaimable(w)
	for i := range w.Status.Admission.PodSetAssignments {
		ps := &w.Status.Admission.PodSetAssignments[i]
		count := int64(countOf(w, ps))
		running := max(0, count-max(0, int64(now[ps.Name]-before[ps.Name])))
		for name, v := range nodegroups.ResourcesFrom(ps.ResourceUsage) {
			if flavor, ok := ps.Flavors[name]; ok {
				if count > 0 && running < count {
					v = v / count * running
				}
				key := flavorResource{string(flavor), string(name)}
				out[key] = plus(out[key], v)
			}
		}
	}
	return out
}

func reclaimable(w *kueue.Workload) map[kueue.PodSetReference]int32 {
	out := map[kueue.PodSetReference]int32{}
	for _, r := range w.Status.ReclaimablePods {
		out[r.Name] = r.Count
	}
	return out
}

// countOf is how many pods of a podSet were admitted: fewer than there are in the
// spec, where they were admitted in part.
func countOf(w *kueue.Workload, ps *kueue.PodSetAssignment) int32 {
	if ps.Count != nil {
		return *ps.Count
	}
	if i := findPodSet(w, ps.Name); i >= 0 {
		return w.Spec.PodSets[i].Count
	}
	return 0
}

func findPodSet(w *kueue.Workload, name kueue.PodSetReference) int {
	return slices.IndexFunc(w.Spec.PodSets, func(ps kueue.PodSet) bool { return ps.Name == name })
}

// applyUsage takes what a Workload held off its queue and adds what it holds now.
func (c *Checker) applyUsage(e Event, before, w *workload, o *kueue.Workload) {
	if before.holds {
		c.used.sub(before.clusterQueue, before.usage)
	}
	if w.holds {
		c.used.add(w.clusterQueue, w.usage)
		c.judgeUsage(e, before, w)
		if !before.holds || before.clusterQueue != w.clusterQueue {
			c.judgeCounted(e, w, o)
		}
	}
	if before.holds {
		// Quota that was released is not excused a second time.
		for _, at := range c.ledger.path(party{ClusterQueues, before.clusterQueue}) {
			for key := range before.usage {
				c.settle(debt{at, key})
			}
		}
	}
}

// settle lowers what is excused to what is overdrawn now.
func (c *Checker) settle(d debt) {
	over := c.ledger.overdraft(d.party, d.flavorResource, c.used)
	if over == 0 {
		delete(c.excused, d)
		c.forgive(Quota, d.key())
	} else if have, ok := c.excused[d]; ok {
		c.excused[d] = min(have, over)
	}
}

// judgeUsage: what is reserved never exceeds the nominal quota and what may be
// borrowed (P4), in the queue and in all cohorts above it.
func (c *Checker) judgeUsage(e Event, before, w *workload) {
	p := party{ClusterQueues, w.clusterQueue}
	_, known := c.ledger.accounts[p]
	sure := known && !e.Listed && !c.unsure(e.Revision, ClusterQueues, Cohorts, Workloads)
	if !before.holds || before.clusterQueue != w.clusterQueue {
		if sure {
			c.judged(Reservations)
			if c.borrows(p, w) {
				c.judged(Borrowings)
			}
		} else {
			c.unjudged(Reservations)
		}
	}
	for _, key := range sorted(w.usage) {
		at, over := c.overdrawn(c.ledger, p, key)
		if !over {
			continue
		}
		raced := slices.ContainsFunc(c.older, func(l *ledger) bool {
			_, over := c.overdrawn(l, p, key)
			return !over && !c.now.After(l.until)
		})
		// What runs again after it had ended is counted, whether its quota is free or not.
		again := before.holds && before.clusterQueue == w.clusterQueue && before.granted == w.granted && sum(before.remaining) < sum(w.remaining)
		if !sure || w.adopted || raced || again {
			for _, at := range c.ledger.path(p) {
				c.excuse(debt{at, key})
			}
			continue
		}
		c.suspect(debt{at, key}.key(), e, Quota, at.String(), "%s; %s took it there with %s; reserved by %s",
			c.ledger.describe(at, key, c.used), w, key.amount(w.usage[key]), c.holders(at, key))
	}
}

// overdrawn is the first from a ClusterQueue upwards whose debt is more than it
// may be and than is excused.
func (c *Checker) overdrawn(l *ledger, p party, key flavorResource) (at party, over bool) {
	for _, at := range l.path(p) {
		if l.overdraft(at, key, c.used) > c.excused[debt{at, key}] {
			return at, true
		}
	}
	return party{}, false
}

// borrows says that a ClusterQueue uses more than its own quota of something that
// the Workload uses.
func (c *Checker) borrows(p party, w *workload) bool {
	for key := range w.usage {
		if c.ledger.balance(p, key, c.used) < 0 {
			return true
		}
	}
	return false
}

// judgeCounted: a reservation counts all requests of its pods (P4). A reservation that counted less would hide overuse. Resource
// transformations of a configuration are not supported here.
func (c *Checker) judgeCounted(e Event, w *workload, o *kueue.Workload) {
	account, known := c.ledger.accounts[party{ClusterQueues, w.clusterQueue}]
	if e.Listed || !known || c.unsure(e.Revision, ClusterQueues) {
		return
	}
	for i := range o.Status.Admission.PodSetAssignments {
		a := &o.Status.Admission.PodSetAssignments[i]
		at := findPodSet(o, a.Name)
		if at < 0 {
			continue
		}
		count := countOf(o, a)
		need := nodegroups.Resources{}
		need.Add(fit.TemplateRequests(&o.Spec.PodSets[at].Template.Spec), int(count))
		for name := range need {
			if !account.covers(string(name)) {
				delete(need, name)
			}
		}
		if missing := short(nodegroups.ResourcesFrom(a.ResourceUsage), need); missing != nil {
			c.suspect("counted|"+string(w.uid)+"|"+string(a.Name), e, Quota, w.String(),
				"podSet %s: the %d pods ask for %s, but the reservation in ClusterQueue %s counts only %s; missing are %s",
				a.Name, count, amounts(need), w.clusterQueue, amounts(nodegroups.ResourcesFrom(a.ResourceUsage)), amounts(missing))
		}
	}
}

// covers says that there is quota of the resource, if only to borrow.
func (a *account) covers(resource string) bool {
	for key := range a.quota {
		if key.resource == resource {
			return true
		}
	}
	return false
}

// holders names the Workloads that have reserved the resource below a party.
func (c *Checker) holders(p party, key flavorResource) string {
	var parts []string
	for _, w := range c.workloads {
		v := w.usage[key]
		if w.holds && v > 0 && slices.Contains(c.ledger.path(party{ClusterQueues, w.clusterQueue}), p) {
			parts = append(parts, fmt.Sprintf("%s/%s %s", w.namespace, w.name, key.amount(v)))
		}
	}
	slices.Sort(parts)
	const most = 20
	if n := len(parts); n > most {
		parts = append(parts[:most], fmt.Sprintf("%d more", n-most))
	}
	return strings.Join(parts, ", ")
}

func sorted(usage map[flavorResource]int64) []flavorResource {
	return slices.SortedFunc(maps.Keys(usage), func(a, b flavorResource) int { return strings.Compare(a.String(), b.String()) })
}

// sweepJobs: no more pods of a queued Job run than it has quota for (P4). A Job may use quota that it loses until its pods are being
// deleted. Jobs that ran before Muster was installed, or that an admin starts, are ignored.
func (c *Checker) sweepJobs() {
	for uid, running := range c.running {
		j, w := c.jobs[uid], c.runs(uid)
		if j == nil || j.gone || j.free || j.queue == "" || w == nil || w.adopted {
			continue
		}
		if !j.judged {
			j.judged = true
			c.judged(RunningJobs)
		}
		switch {
		case running <= w.granted:
			j.overruns = time.Time{}
		case j.overruns.IsZero():
			j.overruns = c.now
		case c.overdue(j.overruns, c.config.OverrunBound):
			c.accuse("overruns|"+string(uid), Quota, "Job "+j.namespace+"/"+j.name, "runs %d pods since %s, and its %s has quota for %d (bound %s)",
				running, j.overruns.UTC().Format("15:04:05.000"), w, w.granted, c.config.OverrunBound)
		}
	}
}

package promises

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
)

// flavorResource is what quota is counted by.
type flavorResource struct{ flavor, resource string }

func (f flavorResource) String() string { return f.resource + " of flavor " + f.flavor }

func (f flavorResource) amount(v int64) string {
	return nodegroups.Quantity(corev1.ResourceName(f.resource), v)
}

// queue is a ClusterQueue with the quota that is reserved in it.
type queue struct {
	name string
	// known: its object exists. Workloads may be heard of before.
	known  bool
	checks []string
	quota  map[flavorResource]*quota
}

// quota is one resource of one flavor in a queue.
type quota struct {
	used, nominal int64
	// found is usage beyond nominal that nobody is to blame for: an admin lowered
	// the quota under it, or it was there before the Checker. It only shrinks.
	found int64
	// before was the nominal quota until the admin's edit, on which others may
	// still have acted until then.
	before int64
	until  time.Time
}

// allowed is how much may be reserved now. What may be borrowed is to be added
// here, once cohorts are served.
func (q *quota) allowed(now time.Time) int64 {
	out := max(q.nominal, q.found)
	if !now.After(q.until) {
		out = max(out, q.before)
	}
	return out
}

func (c *Checker) queue(name string) *queue {
	q := c.queues[name]
	if q == nil {
		q = &queue{name: name, quota: map[flavorResource]*quota{}}
		c.queues[name] = q
	}
	return q
}

func (q *queue) of(key flavorResource) *quota {
	out := q.quota[key]
	if out == nil {
		out = &quota{}
		q.quota[key] = out
	}
	return out
}

func (c *Checker) applyQueue(e Event, o *kueue.ClusterQueue) {
	q := c.queue(o.Name)
	q.known = !e.Deleted
	if e.Deleted {
		return
	}
	q.checks = nil
	if s := o.Spec.AdmissionChecksStrategy; s != nil {
		for _, rule := range s.AdmissionChecks {
			q.checks = append(q.checks, string(rule.Name))
		}
	}
	nominal := map[flavorResource]int64{}
	for _, g := range o.Spec.ResourceGroups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				key := flavorResource{string(f.Name), string(r.Name)}
				nominal[key] = nodegroups.ResourcesFrom(corev1.ResourceList{r.Name: r.NominalQuota})[r.Name]
				q.of(key)
			}
		}
	}
	for key, have := range q.quota {
		if nominal[key] < have.nominal {
			have.before, have.until = have.allowed(c.now), c.now.Add(c.config.Race)
		}
		have.nominal = nominal[key]
		if have.used > have.nominal {
			have.found = max(have.found, have.used)
		}
	}
}

// usageOf is the quota that an admission takes.
func usageOf(a *kueue.Admission) map[flavorResource]int64 {
	out := map[flavorResource]int64{}
	for _, ps := range a.PodSetAssignments {
		for name, v := range nodegroups.ResourcesFrom(ps.ResourceUsage) {
			if flavor, ok := ps.Flavors[name]; ok {
				out[flavorResource{string(flavor), string(name)}] += v
			}
		}
	}
	return out
}

// applyUsage takes what a Workload held off its queue and adds what it holds now.
//
// All that is reserved counts, also for pods that are reclaimable: a stock Kueue
// gives that back early, Muster does not.
func (c *Checker) applyUsage(e Event, before, w *workload, o *kueue.Workload) {
	if before.holds {
		for key, v := range before.usage {
			c.queue(before.clusterQueue).of(key).used -= v
		}
	}
	if w.holds {
		q := c.queue(w.clusterQueue)
		for key, v := range w.usage {
			q.of(key).used += v
		}
		c.judgeUsage(e, before, w, q)
		if !before.holds {
			c.judgeCounted(e, w, q, o)
		}
	}
	if before.holds {
		q := c.queue(before.clusterQueue)
		for key := range before.usage {
			have := q.of(key)
			have.found = min(have.found, max(have.used, 0))
			if have.used <= have.nominal {
				have.found = 0
				c.forgive(Quota, q.key(key))
			}
		}
	}
}

func (q *queue) key(key flavorResource) string { return q.name + "|" + key.String() }

// judgeUsage: what is reserved in a queue never exceeds its quota (P4).
func (c *Checker) judgeUsage(e Event, before, w *workload, q *queue) {
	sure := q.known && !e.Listed && !c.unsure(e.Revision, ClusterQueues, Workloads)
	if !before.holds || before.clusterQueue != w.clusterQueue {
		if sure {
			c.judged(Reservations)
		} else {
			c.unjudged(Reservations)
		}
	}
	for _, key := range sorted(w.usage) {
		have := q.of(key)
		if have.used <= have.allowed(c.now) {
			if have.used > have.nominal {
				have.found = max(have.found, have.used)
			}
			continue
		}
		if !sure {
			have.found = have.used
			continue
		}
		c.suspect(q.key(key), e, Quota, "ClusterQueue "+q.name, "%s %s is reserved, nominal quota is %s; %s took it there with %s; reserved by %s",
			have.amountUsed(key), key, key.amount(have.nominal), w, key.amount(w.usage[key]), c.holders(q.name, key))
	}
}

// judgeCounted: a reservation counts all that its pods ask for (P4); one that
// counted less would never exceed anything.
func (c *Checker) judgeCounted(e Event, w *workload, q *queue, o *kueue.Workload) {
	if e.Listed || !q.known || c.unsure(e.Revision, ClusterQueues) {
		return
	}
	for _, a := range o.Status.Admission.PodSetAssignments {
		i := slices.IndexFunc(o.Spec.PodSets, func(ps kueue.PodSet) bool { return ps.Name == a.Name })
		if i < 0 {
			continue
		}
		ps := &o.Spec.PodSets[i]
		count := ps.Count
		if a.Count != nil {
			count = *a.Count
		}
		need := nodegroups.Resources{}
		need.Add(fit.TemplateRequests(&ps.Template.Spec), int(count))
		for name := range need {
			if !q.covers(string(name)) {
				delete(need, name)
			}
		}
		if missing := short(nodegroups.ResourcesFrom(a.ResourceUsage), need); missing != nil {
			c.suspect("counted|"+string(w.uid)+"|"+string(a.Name), e, Quota, w.String(),
				"podSet %s: the %d pods ask for %s, but the reservation in ClusterQueue %s counts only %s; missing are %s",
				a.Name, count, amounts(need), q.name, amounts(nodegroups.ResourcesFrom(a.ResourceUsage)), amounts(missing))
		}
	}
}

// covers says that the queue has quota of the resource at all.
func (q *queue) covers(resource string) bool {
	for key, have := range q.quota {
		if key.resource == resource && have.nominal > 0 {
			return true
		}
	}
	return false
}

func (q *quota) amountUsed(key flavorResource) string { return key.amount(q.used) }

// holders names who has reserved the resource.
func (c *Checker) holders(queue string, key flavorResource) string {
	var parts []string
	for _, w := range c.workloads {
		if v := w.usage[key]; w.holds && w.clusterQueue == queue && v > 0 {
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

package promises

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
)

// judgeProvisioned: when a request becomes Provisioned, all nodes that it has
// booked are Ready and hold the whole gang (P1).
//
// The room is judged by amounts: per podSet by how many of its pods the nodes
// hold, over all podSets by the sum. Whether several podSets can be packed so is
// for the scheduler's own filters, which test/oracle compares. What a LimitRange
// or a RuntimeClass adds to the pods later is in no PodTemplate.
func (c *Checker) judgeProvisioned(e Event, r *request) {
	if c.unsure(e.Revision, Nodes, PodTemplates, ProvisioningRequests) {
		c.unjudged(Provisions)
		return
	}
	for _, ps := range r.podSets {
		if c.templates[ps.template] == nil {
			c.unjudged(Provisions) // deleted before the Checker came
			return
		}
	}
	c.judged(Provisions)
	have, need := nodegroups.Resources{}, nodegroups.Resources{}
	good := c.goodClaims(r)
	held := make([]nodegroups.Resources, 0, len(good))
	for _, name := range slices.Sorted(maps.Keys(good)) {
		held = append(held, c.held(name, r, good[name].amounts))
		have.Add(held[len(held)-1], 1)
	}
	var lacks []string
	for _, ps := range r.podSets {
		one := c.templates[ps.template].pod
		need.Add(one, ps.count)
		fit := 0
		for _, amounts := range held {
			fit += amounts.Times(one, ps.count)
		}
		if fit < ps.count {
			lacks = append(lacks, fmt.Sprintf("room for %d of %d pods of template %s", fit, ps.count, ps.template.Name))
		}
	}
	if by := short(have, need); by != nil {
		lacks = append(lacks, fmt.Sprintf("the gang asks for %s, short of %s", amounts(need), amounts(by)))
	}
	if len(lacks) > 0 {
		c.suspect("provisioned|"+string(r.uid), e, Whole, r.String(),
			"became Provisioned while its Ready nodes are booked with %s: %s; its nodes: %s",
			amounts(have), strings.Join(lacks, "; "), r.describeClaims())
	}
	c.judgeTogether(e, r, good)
	for _, name := range slices.Sorted(maps.Keys(good)) {
		if n := c.nodes[name]; n != nil && n.uid != "" {
			c.judgeSum(e, n, e.Time.Add(-c.config.Race), knownPods, "provisioned|"+string(r.uid), r.String()+" became Provisioned")
		}
	}
}

// held returns what a node holds for the gang: what is booked there, and no less than what its pods that came since take. Pods of a request
// that was made again may come while its nodes are booked.
func (c *Checker) held(name string, r *request, booked nodegroups.Resources) nodegroups.Resources {
	n := c.nodes[name]
	if n == nil {
		return booked
	}
	i := slices.IndexFunc(n.bookings, func(b booking) bool { return b.uid == r.uid })
	if i < 0 {
		return booked
	}
	came := nodegroups.Resources{}
	for _, p := range n.pods {
		if n.bookings[i].isConsumedBy(p) {
			came.Add(p.requests, 1)
		}
	}
	out := booked.Clone()
	for resource, amount := range came {
		out[resource] = max(out[resource], amount)
	}
	return out
}

// goodClaims are those on nodes that are Ready, or were so recently that the writer of
// Provisioned may not have observed the change.
func (c *Checker) goodClaims(r *request) map[string]*claim {
	out := map[string]*claim{}
	for name, cl := range r.claims {
		if cl.good || !cl.lost.IsZero() && c.now.Sub(cl.lost) <= c.config.Race {
			out[name] = cl
		}
	}
	return out
}

func (r *request) describeClaims() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.claims)) {
		state := "Ready"
		if !r.claims[name].good {
			state = "not Ready"
		}
		parts = append(parts, fmt.Sprintf("%s (%s, %s)", name, state, amounts(r.claims[name].amounts)))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// judgeBound: a pod of a gang is bound only after its request was Provisioned (P1).
//
// Where a request was deleted and made again under the same name, a pod may
// belong to either; then the one that was Provisioned is taken for its own.
func (c *Checker) judgeBound(e Event, p *pod) {
	requests, how := c.requestsOf(p)
	if how == "" || len(requests) > 0 && !requests[len(requests)-1].served {
		return
	}
	if slices.ContainsFunc(requests, func(r *request) bool { return r.provisioned && r.provisionedAt < e.Revision }) {
		c.judged(BoundPods)
		return
	}
	if c.unsure(e.Revision, ProvisioningRequests, Workloads, Pods) {
		c.unjudged(BoundPods)
		return
	}
	c.judged(BoundPods)
	state := "none has ever been seen"
	if len(requests) > 0 {
		state = "it has not been Provisioned"
		if last := requests[len(requests)-1]; last.deleted {
			state = "it was deleted without having been Provisioned"
		}
	}
	c.suspect("bound|"+string(p.uid), e, Whole, p.String(), "was bound to node %s while %s: %s", p.node, how, state)
}

// runs is the Workload that the pods of a Job run by: the newest, or until that is
// Admitted the slice whose place it is to take; nil for none.
func (c *Checker) runs(job types.UID) *workload {
	w := c.queued[job]
	for w != nil && !w.admitted && w.replaces != nil {
		w = w.replaces
	}
	return w
}

// requestsOf are the requests that a pod may consume, the newest last. how is
// empty for pods of no gang.
func (c *Checker) requestsOf(p *pod) (requests []*request, how string) {
	if p.consumes.Name != "" {
		if p.class != "" && !slices.Contains(c.config.Classes, p.class) {
			return nil, ""
		}
		return c.named[p.consumes], "it consumes ProvisioningRequest " + p.consumes.String()
	}
	w := c.runs(p.job)
	if p.job == "" || w == nil || !slices.ContainsFunc(w.checks, c.isCapacity) {
		return nil, ""
	}
	return c.asked[w.uid], fmt.Sprintf("%s has a capacity check and so needs a ProvisioningRequest", w)
}

// judgeCreated: a Job of a queue with a capacity check has no pod before its
// Workload is Admitted (P1).
func (c *Checker) judgeCreated(e Event, p *pod) {
	j := c.jobs[p.job]
	if p.job == "" || j == nil || j.queue == "" || j.free {
		return
	}
	queue := c.queues[c.local[types.NamespacedName{Namespace: j.namespace, Name: j.queue}]]
	w := c.runs(p.job)
	if w != nil && w.clusterQueue != "" {
		queue = c.queues[w.clusterQueue]
	}
	if queue == nil || !slices.ContainsFunc(queue.checks, c.isCapacity) {
		return
	}
	if c.unsure(e.Revision, Workloads, Jobs, LocalQueues, ClusterQueues, AdmissionChecks) {
		c.unjudged(CreatedPods)
		return
	}
	var why string
	switch {
	case w == nil:
		why = "it has no Workload"
	case w.deleted && w.admitted && c.now.Sub(w.deletedAt) <= c.config.Race:
		c.unjudged(CreatedPods) // the Job is about to be stopped, and could not be sooner
		return
	case w.deleted:
		why = "its Workload " + w.name + " was deleted"
	case !w.admitted && !w.adopted:
		why = "its Workload " + w.name + " is not Admitted"
	}
	c.judged(CreatedPods)
	if why != "" {
		c.suspect("created|"+string(p.uid), e, Whole, p.String(),
			"was created by Job %s, which is in LocalQueue %s of ClusterQueue %s with a capacity check, while %s", j.name, j.queue, queue.name, why)
	}
}

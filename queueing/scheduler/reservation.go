package scheduler

import (
	"maps"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
)

// reserveForPreemptor evicts the victims of the head of a queue, and reserves their quota for it for the rest of this
// cycle. Once quota is released, the head is evaluated again before all others. A Workload whose machines are
// provisioned first also reserves quota, but its victims keep running.
func (d *treeIterator) reserveForPreemptor(l *queueIterator, p *Assignment) {
	w := l.pending[0]
	c := preemptorReservation{
		queue: l.queue, usage: p.addedUsage(), topologyUsage: cache.UsageOf(p.placed), victims: p.victims, victimsEvicted: true,
	}
	r := newInadmissible(kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads, "Waiting for the quota of preempted workloads")
	if p.provisionFirst {
		r.verdict, c.victimsEvicted = d.s.provisionFirst(l.queue, w, p)
		if r.verdict.Action != lifecycle.Wait {
			d.markInadmissible(l, r)
			return
		}
	}
	if c.victimsEvicted {
		w.AwaitsVictims = len(p.victims) > 0
		d.preempt(w, p.victims)
		if names := namesOf(w, p.victims); names != "" {
			r.Message += ": " + names
		} else if p.awaitsRelease {
			r.Message = "Waiting for machines that preempted workloads release; its quota is reserved"
		}
	} else {
		r.Reason, r.Message = workload.ReasonWaitingForCapacity, waitingForCapacityMessage(w, p)
	}
	l.queue.WaitsForCapacity = l.queue.WaitsForCapacity || p.awaitsRelease
	l.queue.WaitsForTopology = l.queue.WaitsForTopology || len(p.placed) > 0
	c.apply(d.s.cache.Nodes.TopologyCache)
	for _, v := range c.victims {
		v.Targeted = true
	}
	if p.plan != nil {
		// Its machines must not be assigned to another Workload.
		d.s.assumeMachines(w, p.plan)
	}
	d.reservations = append(d.reservations, c)
	d.version++
	d.markInadmissible(l, r)
}

// preempt evicts the victims that are not evicted yet.
func (d *treeIterator) preempt(w *cache.Workload, victims []victim) {
	for _, v := range victims {
		if !workload.IsEvicted(v.Object) && !v.Busy {
			d.verdicts = append(d.verdicts, *d.s.preempted(v, w))
		}
	}
}

// apply adds the reservation to the usage. If the victims are evicted, their usage is removed. Until they are, the
// Workload may use only free quota; the quota that they will release is reserved for it.
func (c *preemptorReservation) apply(nodes *placement.TopologyCache) {
	for _, v := range c.victims {
		if c.victimsEvicted {
			v.Queue.Node.Sub(v.Usage)
			nodes.AddUsage(v.TopologyUsage, -1)
		}
	}
	c.queue.Node.Add(c.reserved())
	nodes.AddUsage(c.topologyUsage, 1)
}

func (c *preemptorReservation) undo(nodes *placement.TopologyCache) {
	c.queue.Node.Sub(c.reserved())
	nodes.AddUsage(c.topologyUsage, -1)
	for _, v := range c.victims {
		if c.victimsEvicted {
			v.Queue.Node.Add(v.Usage)
			nodes.AddUsage(v.TopologyUsage, 1)
		}
	}
}

// reserved is the quota that no other Workload may use.
func (c *preemptorReservation) reserved() quota.Amounts {
	if c.victimsEvicted {
		return c.usage
	}
	out := maps.Clone(c.usage)
	for _, v := range c.victims {
		out.Sub(v.Usage)
	}
	return out
}

// fitsWithoutReservations reports whether the assignment fits now, while all victims still run.
func (d *treeIterator) fitsWithoutReservations(q *cache.ClusterQueue, p *Assignment) bool {
	for i := range d.reservations {
		d.reservations[i].undo(d.s.cache.Nodes.TopologyCache)
	}
	fits := q.Node.Fits(p.addedUsage()) && d.s.cache.Nodes.Fits(cache.UsageOf(p.placed))
	for i := range d.reservations {
		d.reservations[i].apply(d.s.cache.Nodes.TopologyCache)
	}
	return fits
}

// releaseReservations removes the reservations from the usage. As long as there are any, every cycle evaluates the
// whole tree again, so that no other Workload gets the reserved quota.
func (d *treeIterator) releaseReservations() {
	for i := range d.reservations {
		d.reservations[i].undo(d.s.cache.Nodes.TopologyCache)
		for _, v := range d.reservations[i].victims {
			v.Targeted = false
		}
	}
	d.tree.HasReservations = len(d.reservations) > 0 || len(d.startReservations) > 0 || d.backfillBlocked
}

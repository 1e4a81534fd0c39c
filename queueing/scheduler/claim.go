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

// claim has the victims of the first of a line leave, and keeps their quota for it
// against those that come after it in this cycle. It is judged again, before them,
// once some quota has come back. A Workload that has to ask for machines first claims in
// the same way, while its victims stay.
func (d *drainer) claim(l *line, p *Proposal) {
	w := l.rest[0]
	c := claim{queue: l.queue, usage: p.growth(), uses: cache.Uses(p.placed), victims: p.victims, leaving: true}
	r := refusalOf(kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads, "Waiting for the quota of preempted workloads")
	if p.ahead {
		r.next, c.leaving = d.s.askAhead(l.queue, w, p)
		if r.next.Action != lifecycle.Wait {
			d.refuse(l, r)
			return
		}
	}
	if c.leaving {
		w.AwaitsVictims = len(p.victims) > 0
		d.preempt(w, p.victims)
		if names := namesOf(w, p.victims); names != "" {
			r.Message += ": " + names
		} else if p.awaits {
			r.Message = "Waiting for machines that preempted workloads release; its quota is reserved"
		}
	} else {
		r.Reason, r.Message = workload.ReasonWaitingForCapacity, waitingForMachines(w, p)
	}
	l.queue.WantsMachines = l.queue.WantsMachines || p.awaits
	l.queue.WantsNodes = l.queue.WantsNodes || len(p.placed) > 0
	c.apply(d.s.cache.Nodes.TopologyCache)
	for _, v := range c.victims {
		v.Claimed = true
	}
	if p.plan != nil {
		// Its machines are certain only as long as no other Workload is promised them.
		d.s.assumeMachines(w, p.plan)
	}
	d.claims = append(d.claims, c)
	d.version++
	d.refuse(l, r)
}

// preempt evicts the victims that are not on their way yet.
func (d *drainer) preempt(w *cache.Workload, victims []victim) {
	for _, v := range victims {
		if !workload.IsEvicted(v.Object) && !v.Busy {
			d.out = append(d.out, *d.s.preempted(v, w))
		}
	}
}

// apply makes the tree look as if the victims had left and the Workload had come. As
// long as they stay it has but what is free, and what they will leave over is for no Workload.
func (c *claim) apply(nodes *placement.TopologyCache) {
	for _, v := range c.victims {
		if c.leaving {
			v.Queue.Node.Sub(v.Usage)
			nodes.AddUsage(v.Uses, -1)
		}
	}
	c.queue.Node.Add(c.taken())
	nodes.AddUsage(c.uses, 1)
}

func (c *claim) undo(nodes *placement.TopologyCache) {
	c.queue.Node.Sub(c.taken())
	nodes.AddUsage(c.uses, -1)
	for _, v := range c.victims {
		if c.leaving {
			v.Queue.Node.Add(v.Usage)
			nodes.AddUsage(v.Uses, 1)
		}
	}
}

// taken is what no other Workload can have because of the claim.
func (c *claim) taken() quota.Amounts {
	if c.leaving {
		return c.usage
	}
	out := maps.Clone(c.usage)
	for _, v := range c.victims {
		out.Sub(v.Usage)
	}
	return out
}

// fitsNow says that what will fit once all victims have left fits already.
func (d *drainer) fitsNow(q *cache.ClusterQueue, p *Proposal) bool {
	for i := range d.claims {
		d.claims[i].undo(d.s.cache.Nodes.TopologyCache)
	}
	fits := q.Node.Fits(p.growth()) && d.s.cache.Nodes.Fits(cache.Uses(p.placed))
	for i := range d.claims {
		d.claims[i].apply(d.s.cache.Nodes.TopologyCache)
	}
	return fits
}

// unclaim puts the tree back to what is used. As long as there are claims, every
// cycle judges all again, so that what was claimed is not given to another Workload.
func (d *drainer) unclaim() {
	for i := range d.claims {
		d.claims[i].undo(d.s.cache.Nodes.TopologyCache)
		for _, v := range d.claims[i].victims {
			v.Claimed = false
		}
	}
	d.tree.Claimed = len(d.claims) > 0 || len(d.reservations) > 0 || d.barred
}

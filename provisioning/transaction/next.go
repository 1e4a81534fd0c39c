package transaction

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/provisioning/when"
)

// blockedFor is how long pods may fail to start before this is reported: a registry may be unavailable for a short time.
const blockedFor = 3 * time.Minute

// strandedFor is how long pods may be stranded: a node may soon be ready again.
const strandedFor = time.Minute

// Next says what to do for a request now. It is called again after every change
// until it answers Rest, so each step is small and may be repeated.
//
// The way of a gang, where each arrow is one or more steps:
//
//	Pending ── fits ──▶ claimed, settled ───────────▶ Provisioned ─▶ opened ─▶ consumed │ expired
//	   │  ▲                                               ▲  ▲           │
//	   │  └── the next option ── rolled back ◀── failed   │  └─ repaired ┘ short
//	   └── launch ──▶ claimed, launching, joined ─────────┘
//
// No pod of the gang can be bound before its request is Provisioned (P1), though
// pods may exist long before: they select the booking's label, which nodes bear
// only once they are opened. Until then
//   - existing nodes are claimed: they bear the record of the booking and, where
//     it takes them whole, the cordon, which keeps others off;
//   - machines of the attempt are born cordoned and are the attempt's.
//
// That is two writes of an existing node until its pods come, and one of a machine
// that was launched. Where the request's owner holds the pods back anyway, a claim opens
// the node at once, and saves the second write. A cordon is lifted by one more.
func Next(r *Request, v View) Step { return next(r, v).tallied(r, v) }

func next(r *Request, v View) Step {
	switch {
	case len(v.Lost) > 0 && r.Status != Pending:
		return reportLoss(r, v)
	case r.Status == Over:
		return nextOver(r, v)
	case r.Leaving:
		return nextLeaving(r, v)
	case r.Status == Provisioned:
		return nextProvisioned(r, v)
	case r.Attempt.Phase == RollingBack:
		s, undone := undo(r, v)
		if !undone {
			return s
		}
		return nextPending(closed(r), v)
	case r.Attempt.Phase == Launching:
		return nextLaunching(r, v)
	default:
		return nextPending(r, v)
	}
}

// nextLeaving rolls back the launch of a request that is being deleted. After that the request holds nothing.
func nextLeaving(r *Request, v View) Step {
	const why = "the request is being deleted"
	if r.Attempt.Phase == Launching {
		return rollBack(r, v, AttemptFailure{Message: why})
	}
	if s, undone := undo(r, v); !undone {
		return s
	}
	r = closed(r)
	if r.Status == Provisioned {
		return expire(r, v, why)
	}
	return end(r, v, Step{Do: Fail, Condition: failed(ReasonDeleted, why)})
}

// reportLoss reports the loss of nodes. The request or its CapacityPolicy decides whether a running gang is stopped. If many machines seem
// lost at once, it is not stopped for now: its pods may still run.
func reportLoss(r *Request, v View) Step {
	s := Step{Do: ReportLoss, Attempt: r.Attempt, Lost: v.Lost}
	inUse := lostInUse(r, v.Lost)
	if r.Status != Over && r.Repair == nil || !r.Policy.RevokeOnLoss || len(inUse) == 0 {
		return s
	}
	if slices.ContainsFunc(v.Lost, v.spares) {
		s.Hold = true
		return s
	}
	var settled time.Time
	for _, l := range v.Lost {
		settled = when.Latest(settled, l.Settled)
	}
	if v.Now.Before(settled) {
		return Step{Do: Rest, At: settled}
	}
	lost := slices.DeleteFunc(slices.Clone(v.Lost), func(l LostNode) bool { return !l.Settled.IsZero() && v.isBack(l) })
	if len(lost) == 0 {
		return s
	}
	return stop(r, v, lost)
}

// isBack reports whether a lost node exists again. Pods that did not survive will be stranded.
func (v View) isBack(l LostNode) bool {
	n := v.Nodes.Find(l.Name)
	return n != nil && (n.Ready || n.Machine != nil)
}

// stop stops the gang for the loss of nodes, unless other nodes can replace them.
func stop(r *Request, v View, lost []LostNode) Step {
	if s, ok := reopen(r, v, lostInUse(r, lost)); ok {
		s.Lost = lost
		return s
	}
	return Step{Do: ReportLoss, Attempt: r.Attempt, Lost: lost,
		Condition: condition(provreq.CapacityRevoked, metav1.ConditionTrue, ReasonMachineLost, LossMessage(lost))}
}

// spares reports whether the gang is not stopped for now for the loss of that node.
func (v View) spares(l LostNode) bool { return l.Pods > 0 && v.Spared[l.Group] }

// mayReturn reports whether nodes of the request's machines may return that were deleted before this process could see it.
func (v View) mayReturn() bool {
	return slices.ContainsFunc(v.Machines, func(m cloudprovider.Machine) bool {
		return m.State == cloudprovider.Running && v.Spared[m.Group] && v.Hosts[m.ProviderID] == ""
	})
}

// nextHeld stops a gang that was spared when it is certain that it has lost machines.
func nextHeld(r *Request, v View) (s Step, decided bool) {
	if slices.ContainsFunc(v.Held, v.spares) {
		return Step{Do: Rest, At: v.Now.Add(sparedAgain)}, true
	}
	gone := slices.DeleteFunc(slices.Clone(v.Held), func(l LostNode) bool { return l.Pods == 0 || v.isBack(l) })
	if len(gone) == 0 {
		return Step{}, false
	}
	return stop(r, v, gone), true
}

// nextBlocked reports pods that cannot start, and revokes machines that cost money in vain.
func nextBlocked(r *Request, v View) Step {
	switch {
	case v.Blocked.Pods == 0 && r.Blocked:
		return Step{Do: Report, Attempt: r.Attempt,
			Condition: condition(PodsBlocked, metav1.ConditionFalse, ReasonPodsStart, "No pod is kept from starting")}
	case v.Blocked.Pods == 0:
		return Step{Do: Rest}
	}
	since := v.Counting(v.Blocked.Since)
	report := func(kind string, after time.Duration) Step {
		return Step{Do: ReportLoss, Attempt: r.Attempt, Condition: condition(kind, metav1.ConditionTrue, ReasonPodsNotStarted,
			fmt.Sprintf("%s of the gang have not started for %s: %s", text.Pods(v.Blocked.Pods), after, v.Blocked.Why))}
	}
	var again time.Time
	if bound := r.Policy.StartTimeout; bound > 0 && r.Policy.RevokeOnLoss {
		if again = since.Add(bound); !v.Now.Before(again) {
			return report(provreq.CapacityRevoked, bound)
		}
	}
	if at := since.Add(blockedFor); v.Now.Before(at) {
		again = when.Earliest(again, at)
	} else if !r.Blocked {
		return report(PodsBlocked, blockedFor)
	}
	return Step{Do: Rest, At: again}
}

// nextOver handles a running gang. Its pods select the label of its booking. If less is left of the booking than pods need, they are
// stranded: a machine was lost while Muster was down, or after its pods had been stopped, or others use the room. If enough is left, they
// wait for pods of their own gang that are stopping.
func nextOver(r *Request, v View) Step {
	if s, decided := nextHeld(r, v); decided && r.Policy.RevokeOnLoss {
		return s
	}
	blocked := nextBlocked(r, v)
	if blocked.Do != Rest || v.Stranded.Pods == 0 || !r.Policy.RevokeOnLoss {
		return blocked
	}
	s := nextStranded(r, v)
	if s.Do == Rest {
		s.At = when.Earliest(s.At, blocked.At)
	}
	return s
}

// nextStranded revokes the booking of pods that no longer have room there.
func nextStranded(r *Request, v View) Step {
	since := v.Counting(v.Stranded.Since)
	if at := since.Add(strandedFor); v.Now.Before(at) {
		return Step{Do: Rest, At: at}
	}
	if v.mayReturn() {
		return Step{Do: Rest, At: v.Now.Add(sparedAgain)}
	}
	room, again := nodegroups.Resources{}, v.Now.Add(strandedFor)
	for n := range v.Nodes.BookedBy(r.UID) {
		back := v.Counting(n.UnreadySince).Add(strandedFor)
		switch cordoned := n.Cordon != state.Open && n.Cordon != state.Held; {
		case !n.Ready && !v.Now.Before(back), cordoned && !v.Now.Before(since.Add(state.LostAfter)):
			continue
		case !n.Ready:
			again = when.Earliest(again, back)
		}
		for i := range n.Labelled {
			if b := &n.Labelled[i]; b.UID == r.UID && b.Open {
				for name, booked := range b.Booked {
					room[name] += max(0, booked-b.Staying[name])
				}
			}
		}
	}
	name, _, short := room.Short(v.Stranded.Requests)
	if !short {
		return Step{Do: Rest, At: again}
	}
	return Step{Do: ReportLoss, Attempt: r.Attempt, Condition: condition(provreq.CapacityRevoked, metav1.ConditionTrue, ReasonPodsStranded,
		fmt.Sprintf("%[2]s of the gang could not be scheduled for %[1]s, and its booking has less %[3]s left than they need", strandedFor,
			text.Pods(v.Stranded.Pods), name))}
}

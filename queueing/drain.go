package queueing

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// drain judges the pending Workloads of a queue in their order. StrictFIFO stops
// at the first that does not fit; BestEffortFIFO goes on with the next.
func (ix *index) drain(q *queue) []Verdict {
	sortQueue(q.pending)
	var out []Verdict
	blocked := false
	// Within a cycle quota and machines only become fewer, so what did not fit
	// will not fit again: Workloads that are alike are judged once.
	failed := map[likeness]*Verdict{}
	for _, w := range q.pending {
		if blocked {
			out = append(out, *ix.wait(w, kueue.WorkloadQuotaReservedReasonWaitingForQuota, fmt.Sprintf(
				"ClusterQueue %s is StrictFIFO, and a workload ahead of this one does not fit yet", q.object.Name), time.Time{}))
			continue
		}
		if f := failed[ix.likeness(q, w)]; f != nil {
			out = append(out, *ix.wait(w, f.Reason, f.Message, f.WakeAt))
			continue
		}
		v := ix.judge(q, w)
		out = append(out, *v)
		if v.Action == Reserve {
			continue
		}
		failed[ix.likeness(q, w)] = v
		blocked = q.object.Spec.QueueingStrategy == kueue.StrictFIFO
	}
	return out
}

// likeness is the same for Workloads of a queue that get the same answer in one
// cycle.
type likeness struct {
	shape uint64
	// policy is the CapacityPolicy that the annotations name. An empty name takes
	// away that of the check, so named tells it from none.
	policy string
	named  bool
	// skip and refused are where the search for machines stands.
	skip    int
	refused string
}

func (ix *index) likeness(q *queue, w *Workload) likeness {
	out := likeness{shape: w.shape, skip: ix.blindly(q, w)}
	out.policy, out.named = w.Object.Annotations[ParameterPrefix+PolicyParameter]
	if c := ix.justEvicted(w); c != nil {
		out.refused = c.Message
	}
	return out
}

// judge reserves quota for a Workload or says why not.
func (ix *index) judge(q *queue, w *Workload) *Verdict {
	admission, a := ix.assign(q, w)
	if admission == nil {
		return ix.wait(w, a.notes.reason(), a.notes.message(), a.until)
	}
	q.reserved.Add(a.assumed)
	if a.plan != nil {
		ix.take(w, a.plan)
	}
	names := checksFor(q.object, assignedFlavors(admission))
	e := edit(w.Object, ix.Now)
	e.reserve(admission, ix.fresh(w, names))
	return &Verdict{
		Workload: w, Action: Reserve, Status: e.status, Reason: "QuotaReserved",
		Message: fmt.Sprintf("Quota reserved in ClusterQueue %s, wait time since queued was %.0fs",
			q.object.Name, max(0, ix.Now.Sub(queuedSince(w.Object)).Seconds())),
	}
}

// fresh are the states of the checks at the start of an attempt. The attempt's
// number goes on from that of all checks of the last one, so that objects of
// different attempts never share a name, whichever flavors they were on.
func (ix *index) fresh(w *Workload, names []kueue.AdmissionCheckReference) []kueue.AdmissionCheckState {
	var tried int32
	for i := range w.Object.Status.AdmissionChecks {
		tried = max(tried, retries(&w.Object.Status.AdmissionChecks[i]))
	}
	out := make([]kueue.AdmissionCheckState, 0, len(names))
	for _, name := range names {
		state := kueue.AdmissionCheckState{Name: name, State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(ix.Now)}
		if tried > 0 {
			state.RetryCount = new(tried)
		}
		if ix.isCapacity(name) {
			state.Message = waitingFor(RequestName(w.Object.Name, name, tried+1))
		}
		out = append(out, state)
	}
	return out
}

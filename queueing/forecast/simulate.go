package forecast

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// Outcome is what would happen to a Workload now.
type Outcome struct {
	// Starts: it would get its quota, and its machines as in Plan. Otherwise Reason and Message say why it would wait.
	Starts          bool
	Reason, Message string
	// Admission has the flavors and the number of pods.
	Admission *kueue.Admission
	// At is when its machines would be Ready: now, or after the launch.
	At time.Time
	// Awaits are the checks of other controllers that it would wait for, for an unknown time.
	Awaits []kueue.AdmissionCheckReference
	// Plan is where it would run, and what would be launched, at which price and with which chance; nil without a
	// planner.
	Plan *planner.Verdict
	// Victims would be preempted for it, sorted by namespace and name, even if it would have to wait.
	Victims []types.NamespacedName
}

// Prospect is the outcome for a pending Workload.
type Prospect struct {
	Workload *kueue.Workload
	Outcome
}

// Simulate returns the outcome for a Workload if it were created now, or changed now to what is given. Its victims stop
// at once, and its launches succeed. It does not change the State.
func Simulate(state *queueing.State, submission *kueue.Workload, now time.Time) Outcome {
	return SimulateAll(state, []*kueue.Workload{submission}, now)[0]
}

// Arriving returns Workloads as they would be if they were created now, one after the other. Existing Workloads stay as
// given.
func Arriving(submissions []*kueue.Workload, now time.Time) []*kueue.Workload {
	out := make([]*kueue.Workload, len(submissions))
	for i, w := range submissions {
		w = w.DeepCopy()
		// Workloads of the same age are ordered by UID.
		w.UID = cmp.Or(w.UID, types.UID(fmt.Sprintf("simulated-%06d", i)))
		if w.CreationTimestamp.IsZero() {
			w.CreationTimestamp = metav1.NewTime(now)
		}
		out[i] = w
	}
	return out
}

// SimulateAll returns the outcomes for several Workloads that are created together, in this order unless a priority
// orders them. All of their launches succeed.
func SimulateAll(state *queueing.State, submissions []*kueue.Workload, now time.Time) []Outcome {
	came := Arriving(submissions, now)
	x := newSimulatedCluster(state, newImmediate(came), now)
	for _, w := range state.AllWorkloads() {
		x.join(w, state.RequestsOf(w))
	}
	for _, w := range came {
		x.state.Set(w)
	}
	return x.outcomes(came)
}

// Prospects returns the outcomes for all Workloads that wait for quota, sorted by namespace and name. Victims stop at
// once and all launches succeed. Backoffs of failed attempts are ignored, because the question is what keeps the next
// attempt from succeeding. It does not change the State.
func Prospects(state *queueing.State, now time.Time) []Prospect {
	var waiting []*kueue.Workload
	for _, w := range state.AllWorkloads() {
		if o := w.Object; !workload.IsFinished(o) && workload.IsActive(o) && !workload.HasQuota(o) {
			waiting = append(waiting, o)
		}
	}
	x := newSimulatedCluster(state, newImmediate(waiting), now)
	for _, w := range state.AllWorkloads() {
		x.join(w, state.RequestsOf(w))
	}
	for _, w := range waiting {
		if paused := w.Status.RequeueState; paused != nil && paused.RequeueAt != nil {
			status := w.Status
			status.RequeueState = &kueue.RequeueState{Count: paused.Count}
			x.state.Set(with(w, &status))
		}
	}
	out := make([]Prospect, len(waiting))
	for i, o := range x.outcomes(waiting) {
		out[i] = Prospect{waiting[i], o}
	}
	return out
}

// outcomes runs cycles until nothing more is decided now, and returns the outcomes for the Workloads. The outcome of a
// Workload that starts is final.
func (x *simulatedCluster) outcomes(of []*kueue.Workload) []Outcome {
	out, indexes, open := make([]Outcome, len(of)), make(map[types.UID]int, len(of)), len(of)
	for i, w := range of {
		indexes[w.UID] = i
	}
	x.beforeApply = func(v *lifecycle.Verdict) {
		if i, ok := indexes[v.PreemptedBy]; ok && !out[i].Starts {
			out[i].Victims = append(out[i].Victims, types.NamespacedName{Namespace: v.Workload.Object.Namespace, Name: v.Workload.Object.Name})
		}
		i, ok := indexes[v.Workload.Object.UID]
		if !ok || out[i].Starts {
			return
		}
		o := &out[i]
		o.Reason, o.Message = v.Reason, v.Message
		if v.Action == lifecycle.Reserve {
			open--
			o.Starts, o.Admission, o.Plan = true, v.Status.Admission, x.planFor(of[i], v.Status.Admission)
			o.Awaits = x.awaited(v.Status)
		}
	}
	for x.runCycles(); open > 0 && x.advance(x.began); {
		x.runCycles()
	}
	for i := range out {
		o := &out[i]
		slices.SortFunc(o.Victims, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
		switch {
		case !o.Starts:
		case o.Plan != nil && o.Plan.Outcome == planner.Launch:
			o.At = x.began.Add(LaunchTime)
		default:
			o.At = x.began
		}
	}
	return out
}

// awaited returns the checks of other controllers, whose result is unknown.
func (x *simulatedCluster) awaited(status *kueue.WorkloadStatus) []kueue.AdmissionCheckReference {
	var out []kueue.AdmissionCheckReference
	for i := range status.AdmissionChecks {
		if c := &status.AdmissionChecks[i]; c.State != kueue.CheckStateReady && !x.state.Books(c.Name) {
			out = append(out, c.Name)
		}
	}
	return out
}

// immediate is an environment in which victims stop at once and the machines of some Workloads are ready at once.
// Nothing else happens.
type immediate map[types.UID]bool

func newImmediate(workloads []*kueue.Workload) immediate {
	out := make(immediate, len(workloads))
	for _, w := range workloads {
		out[w.UID] = true
	}
	return out
}

// forever is longer than any horizon.
const forever = 100 * 365 * 24 * time.Hour

func (immediate) remaining(*cache.Workload, time.Time) time.Duration { return forever }

func (n immediate) provisionTime(w *kueue.Workload, _ string, _ *planner.Verdict) (time.Duration, bool) {
	if !n[w.UID] {
		return forever, true
	}
	return 0, true
}

func (immediate) stops() time.Duration { return 0 }

package forecast

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing"
)

// Outcome is what would become of a Workload now.
type Outcome struct {
	// Starts says that it would get its quota, and with it what else is here; else
	// Reason and Message say why it would wait.
	Starts          bool
	Reason, Message string
	// Admission has the flavors and the number of pods.
	Admission *kueue.Admission
	// At is when its machines would be there: now, or once launched ones have booted.
	At time.Time
	// Awaits are the checks of other controllers that it would still wait for, which
	// may take any time.
	Awaits []kueue.AdmissionCheckReference
	// Plan is where it would run, what would be launched for it, at what price and with
	// which chance; nil where no planner is asked.
	Plan *provisioning.Verdict
	// Victims would be preempted for it, by namespace and name, also where it has to wait
	// nevertheless.
	Victims []types.NamespacedName
}

// Simulate tells what would become of a Workload if it were there now, or were now as
// given. Whoever is to leave has left at once, and its launches succeed. The State is not changed.
func Simulate(state *queueing.State, newcomer *kueue.Workload, now time.Time) Outcome {
	newcomer = newcomer.DeepCopy()
	newcomer.UID = cmp.Or(newcomer.UID, "simulated")
	if newcomer.CreationTimestamp.IsZero() {
		newcomer.CreationTimestamp = metav1.NewTime(now)
	}
	x := newWorld(state, immediately{newcomer.UID}, now)
	for _, w := range state.Workloads() {
		x.join(w, state.RequestsOf(w))
	}
	x.state.Set(newcomer)
	var out Outcome
	x.sees = func(v *queueing.Verdict) {
		switch {
		case out.Starts:
		case v.PreemptedBy == newcomer.UID:
			out.Victims = append(out.Victims, types.NamespacedName{Namespace: v.Workload.Object.Namespace, Name: v.Workload.Object.Name})
		case v.Workload.Object.UID != newcomer.UID:
		case v.Action == queueing.Reserve:
			out.Starts, out.Reason, out.Message = true, v.Reason, v.Message
			out.Admission, out.Plan = v.Status.Admission, x.planFor(newcomer, v.Status.Admission)
			out.Awaits = x.awaited(v.Status)
		default:
			out.Reason, out.Message = v.Reason, v.Message
		}
	}
	for x.rest(); !out.Starts && x.advance(now); {
		x.rest()
	}
	slices.SortFunc(out.Victims, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	if out.At = now; out.Starts && out.Plan != nil && out.Plan.Outcome == provisioning.Launch {
		out.At = now.Add(launchTime)
	}
	if !out.Starts {
		out.At = time.Time{}
	}
	return out
}

// awaited are the checks that nobody here can foresee.
func (x *world) awaited(status *kueue.WorkloadStatus) []kueue.AdmissionCheckReference {
	var out []kueue.AdmissionCheckReference
	for i := range status.AdmissionChecks {
		if c := &status.AdmissionChecks[i]; c.State != kueue.CheckStateReady && !x.state.Books(c.Name) {
			out = append(out, c.Name)
		}
	}
	return out
}

// immediately is a nature in which whoever is to leave has left at once, and the machines
// of one Workload are there at once. Nothing else happens.
type immediately struct{ workload types.UID }

// forEver is longer than anybody looks ahead.
const forEver = 100 * 365 * 24 * time.Hour

func (immediately) runs(*queueing.Workload, time.Time) time.Duration { return forEver }

func (n immediately) boots(w *kueue.Workload, _ string, _ *provisioning.Verdict) (time.Duration, bool) {
	if w.UID != n.workload {
		return forEver, true
	}
	return 0, true
}

func (immediately) stops() time.Duration { return 0 }

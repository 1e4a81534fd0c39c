package workload

import kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

// State is how the Workload of a job stands.
type State int

const (
	// Absent: there is none.
	Absent State = iota
	// Pending: it waits for quota.
	Pending
	// Asking: it waits to be adopted, with its running job.
	Asking
	// Accepted: it is adopted, so its job may run without quota.
	Accepted
	// Reserved: it has quota and waits for its admission checks.
	Reserved
	// Admitted: its job may run.
	Admitted
	// Evicting: its job must stop before its quota is released.
	Evicting
	// Deleted: it waits for its finalizers.
	Deleted
	// Over: it is finished for good.
	Over

	States
)

// StateOf is the state of a Workload; nil is none.
func StateOf(w *kueue.Workload) State {
	switch {
	case w == nil:
		return Absent
	case IsFinished(w):
		return Over
	case HasQuota(w) && IsEvicted(w):
		return Evicting // even if it is being deleted: its pods have to stop
	case !w.DeletionTimestamp.IsZero():
		return Deleted
	case HasQuota(w) && IsAdmitted(w):
		return Admitted
	case IsAdopted(w):
		return Accepted
	case HasQuota(w):
		return Reserved
	case AsksAdoption(w):
		return Asking
	}
	return Pending
}

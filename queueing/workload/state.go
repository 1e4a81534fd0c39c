package workload

import kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

// State is the state of the Workload of a job.
type State int

const (
	// Absent: there is no Workload.
	Absent State = iota
	// Pending: it waits for quota.
	Pending
	// Asking: it waits to be adopted; its job already runs.
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
	// Over: it is finished.
	Over

	States
)

// StateOf returns the state of a Workload, which may be nil.
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

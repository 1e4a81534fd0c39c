package lifecycle

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/checks"
)

// Action is what happens to a Workload.
type Action int

const (
	// Wait: it stays where it is. Status is set if its reason changed.
	Wait Action = iota
	// Reserve: it gets quota, and is admitted at once if no check stands between.
	Reserve
	// Advance: its status takes a step that users need not be told of by itself,
	// such as the state of a check.
	Advance
	// Admit: all its checks are Ready, it may run.
	Admit
	// Evict: it has to stop; its quota goes with the same write unless pods may
	// run on it.
	Evict
	// Release: its quota goes back without an eviction, since nothing ran, or an
	// attempt ends that was made ahead of quota.
	Release
	// Deactivate: spec.active becomes false, since its condition DeactivationTarget
	// says so. The eviction follows from it.
	Deactivate
	// Finish: it is over, since the slice that has taken its place is admitted or its
	// job is gone.
	Finish
	// Remove: the time is over for which it was to be kept. It is deleted, or the
	// Job that the verdict names, which takes it along.
	Remove
	// Prioritize: spec.priority becomes what its WorkloadPriorityClass says. There may be
	// another verdict on the Workload at the same time; Prioritized settles this one.
	Prioritize
)

func (a Action) String() string {
	return [...]string{"Wait", "Reserve", "Advance", "Admit", "Evict", "Release", "Deactivate", "Finish", "Remove", "Prioritize"}[a]
}

// Verdict is what is decided about one Workload.
type Verdict struct {
	Workload *cache.Workload
	Action   Action
	// Reason and Message tell a user why.
	Reason, Message string
	// Cause is the underlying cause of an eviction whose reason covers several, such as WaitForStart and WaitForRecovery of
	// PodsReadyTimeout; empty for other reasons.
	Cause string
	// Status is the Workload's status after the action; nil if it stays.
	Status *kueue.WorkloadStatus
	// Plan is the planner's answer on which quota was reserved; nil where it was not asked.
	Plan *planner.Verdict
	// Create is the ProvisioningRequest to make, for a Workload that has quota or,
	// with Wait, ahead of it. Delete are those that the Workload neither waits for nor
	// uses any more.
	Create *checks.Request
	Delete []*autoscaling.ProvisioningRequest
	// PreemptedFor is the ClusterQueue of the Workload that makes it leave; empty if it was not
	// preempted.
	PreemptedFor kueue.ClusterQueueReference
	// PreemptedBy is that Workload, and Preemption what it is told.
	PreemptedBy types.UID
	Preemption  string
	// Job is what to delete with the Action Remove; nil is the Workload itself.
	Job *metav1.OwnerReference
	// Priority is the Workload's with the Action Prioritize.
	Priority int32
	// Unobtained are the flavors whose machines the attempt could not get that the verdict
	// ends.
	Unobtained []kueue.ResourceFlavorReference
}

// Acts says that there is more to do than to tell the Workload why it waits.
func (v *Verdict) Acts() bool { return v.Action != Wait || v.Create != nil || len(v.Delete) > 0 }

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

// Action is the kind of a Verdict.
type Action int

const (
	// Wait: it stays as it is. Status is set if the reason changed.
	Wait Action = iota
	// Reserve: it gets quota, and is admitted at once if no check is pending.
	Reserve
	// Advance: its status changes in a way that needs no event, such as the state of a check.
	Advance
	// Admit: all its checks are Ready.
	Admit
	// Evict: its pods have to stop. Its quota is released in the same write unless pods may be running.
	Evict
	// Release: its quota is released without an eviction because nothing ran, or an attempt that had no quota yet
	// ends.
	Release
	// Deactivate: spec.active becomes false because of the condition DeactivationTarget. The eviction follows from
	// that.
	Deactivate
	// Finish: it is finished because the slice that replaces it is admitted or its job is gone.
	Finish
	// Remove: its retention time is over. It is deleted, or the Job of the verdict together with it.
	Remove
	// Prioritize: spec.priority becomes the value of its WorkloadPriorityClass. Another verdict on the Workload may
	// exist at the same time; Prioritized settles this one.
	Prioritize
)

func (a Action) String() string {
	return [...]string{"Wait", "Reserve", "Advance", "Admit", "Evict", "Release", "Deactivate", "Finish", "Remove", "Prioritize"}[a]
}

// Verdict is the decision on one Workload.
type Verdict struct {
	Workload *cache.Workload
	Action   Action
	// Reason and Message explain the verdict to users.
	Reason, Message string
	// Cause is the underlying cause of an eviction whose reason covers several, such as WaitForStart and WaitForRecovery of
	// PodsReadyTimeout; empty for other reasons.
	Cause string
	// Status is the new status of the Workload; nil if it does not change.
	Status *kueue.WorkloadStatus
	// Plan is the planner's verdict for the reserved quota; nil if the planner was not called.
	Plan *planner.Verdict
	// Create is the ProvisioningRequest to create, for a Workload with quota or, with Wait, before it has quota.
	// Delete are the requests that the Workload no longer needs.
	Create *checks.Request
	Delete []*autoscaling.ProvisioningRequest
	// PreemptedFor is the ClusterQueue of the preemptor; empty if it was not preempted.
	PreemptedFor kueue.ClusterQueueReference
	// PreemptedBy is the preemptor, and Preemption the message for it.
	PreemptedBy types.UID
	Preemption  string
	// Job is what the action Remove deletes; nil is the Workload itself.
	Job *metav1.OwnerReference
	// Priority is the new priority with the action Prioritize.
	Priority int32
	// Unobtained are the flavors whose machines could not be obtained in the ended attempt.
	Unobtained []kueue.ResourceFlavorReference
}

// Acts says that there is more to do than to tell the Workload why it waits.
func (v *Verdict) Acts() bool { return v.Action != Wait || v.Create != nil || len(v.Delete) > 0 }

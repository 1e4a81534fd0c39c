package transaction

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
)

// Request is a ProvisioningRequest in the form for decisions.
type Request struct {
	UID       types.UID
	Namespace string
	Name      string
	Created   time.Time
	// Seen is when Muster first saw the request, by its own clock. If that clock is behind the API server's, it is before Created.
	Seen time.Time
	// Priority is the highest priority of its pods. Higher comes first.
	Priority int32
	// ValidFor is how long after its creation the request may wait for capacity.
	ValidFor time.Duration
	// NoRetry: a request that cannot be served now fails instead of waiting.
	NoRetry bool
	// PodsHeld: the request's owner, such as a Workload, allows no pod of the gang before the request is Provisioned, so its nodes may be
	// opened at once.
	PodsHeld bool
	// Workload is the UID of that owner; empty for none.
	Workload types.UID
	Gang     state.Gang
	// EquivalenceClass of the gang under its policy; empty if unknown.
	EquivalenceClass string
	// Pods is the number of pods of the gang.
	Pods int
	// Missing names the PodTemplates of the request that do not exist as far as is known. The gang lacks their podSets.
	Missing []string
	// Invalid is the error in the request's parameters. It is final, since parameters are immutable.
	Invalid string
	// Lacking is what the request waits for that may still be created.
	Lacking string
	Policy  state.Policy
	Attempt Attempt
	// Purchases are on record for the request, and Accepts is up to how many machines an administrator has accepted them.
	Purchases purchases.Record
	Accepts   int
	Status    Status
	// Provisioned is the condition of that type as it stands.
	Provisioned metav1.Condition
	// Consumed: all pods have arrived, and have not been stopped since.
	Consumed bool
	// Leaving: the request is being deleted, and still holds something.
	Leaving bool
	// Blocked: the status reports that pods cannot start.
	Blocked bool
	// Repairs is the number of repairs while the gang ran.
	Repairs int
	// Repair is the current repair; nil for none. During a repair, the gang has only the pods that are replaced, and Whole are all of its
	// podSets.
	Repair *RepairRecord
	Whole  []state.PodSet
}

// String returns namespace/name.
func (r *Request) String() string { return r.Namespace + "/" + r.Name }

// deadline is when the request fails if it has no capacity by then.
func (r *Request) deadline() time.Time { return r.Created.Add(r.ValidFor) }

// Lags reports whether some of the machines are older than the calls on record that made them.
func (r *Request) Lags(machines []cloudprovider.Machine) bool {
	return slices.ContainsFunc(r.Attempt.Calls(r.UID), func(c Call) bool {
		return slices.ContainsFunc(machines, func(m cloudprovider.Machine) bool { return m.Launch == c.Token && c.Lags(m) })
	})
}

// schedulingRate is the minimum number of pods that kube-scheduler binds per second: a fifth of its default limit of 50 calls per second.
const schedulingRate = 10

// bookedUntil returns when a booking that was Provisioned at that time expires. The scheduler has had time for the whole gang by then.
func (r *Request) bookedUntil(provisioned time.Time) time.Time {
	scheduling := time.Duration(r.Pods) * time.Second / schedulingRate
	return provisioned.Add(max(r.Policy.BookingTimeout, scheduling))
}

// Action is what to do for a request.
type Action int

const (
	// Rest: nothing to do until something changes, or the step's time comes.
	Rest Action = iota
	// LookUp reads the missing PodTemplates from the API server: the request fails only if they are missing there.
	LookUp
	// Report: say in the status why the request waits.
	Report
	// Fail the request for good.
	Fail
	// Book books and unbooks the nodes of the step.
	Book
	// Provision: all is there and held for the gang; say so.
	Provision
	// Begin an attempt: record its intent. Nothing has been launched yet.
	Begin
	// Replace lost machines of an attempt: record the intent.
	Replace
	// LaunchMachines: call the cloud for the attempt's machines.
	LaunchMachines
	// RollBack: record that the attempt has failed.
	RollBack
	// Terminate the machines that are left of a failed attempt, or that the gang has
	// found room without.
	Terminate
	// Repair a booking that is short: book other nodes for it.
	Repair
	// ReportLoss reports lost nodes, or pods that could not be scheduled or started, to the user.
	ReportLoss
	// Reopen the booking of a gang that runs for pods whose machines were lost: record the intent.
	Reopen
	// Count: record the machines that were made, before more are.
	Count
	// Consume: all pods run; lift the cordons and end the booking.
	Consume
	// Expire: the booking was not used in time or is broken; undo it.
	Expire
)

func (a Action) String() string {
	return [...]string{"Rest", "LookUp", "Report", "Fail", "Book", "Provision", "Begin", "Replace", "LaunchMachines",
		"RollBack", "Terminate", "Repair", "Tell", "Reopen", "Count", "Consume", "Expire"}[a]
}

// Step is the next step of a request.
type Step struct {
	Do Action
	// Condition that the step sets; none where its type is empty.
	Condition metav1.Condition
	// Attempt as it will be recorded.
	Attempt Attempt
	// Repair is the repair to record; nil for no new one.
	Repair *RepairRecord
	// Purchases as they will be recorded; nil where nothing was bought since the last record.
	Purchases *purchases.Record
	// Vain are machines that the step gives up, or finds lost: they are part of Purchases.
	Vain []Vain
	// Book these placements and Unbook these nodes, before the condition is set.
	Book   []planner.Placement
	Unbook []string
	// Leave are the nodes to unbook that may have pods of the gang which caches do not have yet. They are left only if the API server has
	// none either.
	Leave []string
	// Close these nodes for the gang's pods. They stay booked.
	Close []string
	// Open the placements for the gang's pods, too.
	Open bool
	// Early: no pod waits for the step yet, so steps that are waited for go first.
	Early bool
	// KeepLabels: of the nodes to unbook only the cordon goes, since pods of the
	// gang are there or select them.
	KeepLabels bool
	// Launch these machines.
	Launch []Call
	// Terminate these machines.
	Terminate []cloudprovider.Machine
	// Lost are the lost nodes that the step reports. Hold: the gang is not stopped for them for now.
	Lost []LostNode
	Hold bool
	// Outcomes are the outcomes of launches that the groups learn when the step has been recorded.
	Outcomes []Outcome
	// At is the time of the next decision even if nothing changes; zero for never.
	At time.Time
}

// The reasons of conditions, as in the API's contract. The contract names none for CapacityRevoked, for work in progress, for a request
// that stays Provisioned while its booking lacks room, or for one that has bought too much.
const (
	ReasonAccepted             = "Accepted"
	ReasonCapacityIsFound      = "CapacityIsFound"
	ReasonCapacityProvisioned  = "CapacityIsProvisioned"
	ReasonBookingIsShort       = "BookingIsShort"
	ReasonCapacityIsNotFound   = "CapacityIsNotFound"
	ReasonFailedToCheck        = "FailedToCheckCapacity"
	ReasonFailedToBook         = "FailedToBookCapacity"
	ReasonPurchasesStopped     = "PurchasesStopped"
	ReasonExpired              = "Expired"
	ReasonDeleted              = "Deleted"
	ReasonFailedToCreatePods   = "FailedToCreatePods"
	ReasonReservationExpired   = "CapacityReservationTimeExpired"
	ReasonBookingConsumed      = "CapacityBookingConsumed"
	ReasonMachineLost          = "MachineLost"
	ReasonPodsStranded         = "PodsStranded"
	ReasonPodsNotStarted       = "PodsNotStarted"
	ReasonPodsStart            = "PodsStart"
	ReasonProvisioningUnderway = "ProvisioningInProgress"
)

// PodsBlocked is the type of the condition that is True while pods of a request exist and cannot start.
const PodsBlocked = "muster.dev/PodsBlocked"

// DryRun is the type of the condition with which a Muster in dry run reports what it would do for a request. It changes no other
// condition, since the provisioner that serves the request reads them.
const DryRun = "muster.dev/DryRun"

// Conditions returns the conditions of the status after the step. A request that fails at once was never accepted.
func (s *Step) Conditions() (out []metav1.Condition) {
	if s.Do != Fail && s.Condition.Type != DryRun {
		out = append(out, condition(provreq.Accepted, metav1.ConditionTrue, ReasonAccepted, "Muster serves this request"))
	}
	if s.Condition.Type != "" {
		out = append(out, s.Condition)
	}
	return out
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: text.Clip(message, messageLimit)}
}

// messageLimit is within what conditions hold (32,768 bytes) and people read.
const messageLimit = 4096

// failed, waiting, provisioned and over return the conditions that end a step.
func failed(reason, message string) metav1.Condition {
	return condition(provreq.Failed, metav1.ConditionTrue, reason, message)
}

func waiting(reason, message string) metav1.Condition {
	return condition(provreq.Provisioned, metav1.ConditionFalse, reason, message)
}

func provisioned(reason, message string) metav1.Condition {
	return condition(provreq.Provisioned, metav1.ConditionTrue, reason, message)
}

func over(reason, message string) metav1.Condition {
	return condition(provreq.BookingExpired, metav1.ConditionTrue, reason, message)
}

// underway returns the condition for work in progress. A Provisioned request stays Provisioned.
func (r *Request) underway(format string, args ...any) metav1.Condition {
	message := fmt.Sprintf(format, args...)
	if r.Status == Provisioned {
		return provisioned(r.provisionedBy(), message)
	}
	return condition(provreq.Provisioned, metav1.ConditionUnknown, ReasonProvisioningUnderway, message)
}

// attempting returns the condition while the attempt is in flight. It also has the reason why the previous attempt failed.
func (r *Request) attempting(a Attempt, format string, args ...any) metav1.Condition {
	message := fmt.Sprintf("Attempt %d ", a.Number) + fmt.Sprintf(format, args...)
	if a.Previous != "" {
		message += "; " + a.Previous
	}
	return r.underway("%s", message)
}

// provisionedBy returns the reason of a Provisioned request that lacks no room.
func (r *Request) provisionedBy() string {
	switch {
	case r.Provisioned.Reason != ReasonBookingIsShort:
		return r.Provisioned.Reason
	case r.Attempt.Number > 0 && r.Attempt.Failure == nil:
		return ReasonCapacityProvisioned
	default:
		return ReasonCapacityIsFound
	}
}

// LossMessage names the lost nodes.
func LossMessage(lost []LostNode) string {
	n := 0
	for _, l := range lost {
		n += l.Pods
	}
	what := "node " + lost[0].Name
	if len(lost) > 1 {
		what = fmt.Sprintf("%s, %s and others", text.Nodes(len(lost)), lost[0].Name)
	}
	return fmt.Sprintf("The machine of %s was lost with %s of the gang", what, text.Pods(n))
}

// HeldMessage follows a LossMessage and says why the gang is not stopped.
const HeldMessage = ". So many machines of a NodeGroup seem lost at once that its records are more likely wrong than the machines: the " +
	"gang is not stopped until their kubelets and their cloud agree, or until the NodeGroup is annotated with " +
	v1alpha1.TerminateAtOnceAnnotation

// Settle is how long a node that was cordoned to be booked is watched before it counts: pods that the scheduler had assumed there may
// still arrive.
const Settle = time.Second

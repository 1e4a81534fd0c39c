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

// Request is a ProvisioningRequest as decisions see it.
type Request struct {
	UID       types.UID
	Namespace string
	Name      string
	Created   time.Time
	// Seen is when Muster first heard of it, by its own clock: where that is behind the
	// API server's, it is before Created.
	Seen time.Time
	// Priority of its pods, the highest of them: more comes first.
	Priority int32
	// ValidFor is how long after its creation the request may wait for capacity.
	ValidFor time.Duration
	// NoRetry: a request that cannot be served now fails instead of waiting.
	NoRetry bool
	// PodsHeld: the request's owner, such as a Workload, lets no pod of the gang be
	// created before the request is Provisioned: its nodes may be opened at once.
	PodsHeld bool
	// Workload is the UID of that owner; empty for none.
	Workload types.UID
	Gang     state.Gang
	// EquivalenceClass of the gang under its policy; empty where that is not known.
	EquivalenceClass string
	// Pods is the number of pods of the gang.
	Pods int
	// Missing names the PodTemplates that the request refers to and that do not
	// exist as far as is known: the gang lacks their podSets.
	Missing []string
	// Invalid says what is wrong with the request's parameters, if anything.
	// Since they cannot be changed, it is final.
	Invalid string
	// Lacking says what the request waits for that may still be created.
	Lacking string
	Policy  state.Policy
	Attempt Attempt
	// Purchases are on record for the request, and Accepts is up to how many machines an administrator has accepted them.
	Purchases purchases.Record
	Accepts   int
	Status    Status
	// Provisioned is the condition of that type as it stands.
	Provisioned metav1.Condition
	// Consumed: all pods have come, and have not been told since to stop.
	Consumed bool
	// Leaving: the request is being deleted, and still holds something.
	Leaving bool
	// Blocked: the request says that pods cannot start.
	Blocked bool
	// Repairs is how many repairs there have been while the gang ran.
	Repairs int
	// Repair is the one under way, nil for none: then the gang is what it makes up for, and
	// Whole are all of its podSets.
	Repair *RepairRecord
	Whole  []state.PodSet
}

// String is the request as people write it.
func (r *Request) String() string { return r.Namespace + "/" + r.Name }

// deadline is when the request fails if it has no capacity by then.
func (r *Request) deadline() time.Time { return r.Created.Add(r.ValidFor) }

// Lags reports whether some of the machines are older than the calls on record that made them.
func (r *Request) Lags(machines []cloudprovider.Machine) bool {
	return slices.ContainsFunc(r.Attempt.Calls(r.UID), func(c Call) bool {
		return slices.ContainsFunc(machines, func(m cloudprovider.Machine) bool { return m.Launch == c.Token && c.Lags(m) })
	})
}

// schedulingRate is how many pods a second kube-scheduler binds at least: a fifth
// of the 50 calls a second that it allows itself by default.
const schedulingRate = 10

// bookedUntil is when booked capacity that was Provisioned at that time is given
// up: not before the scheduler has had time for the whole gang.
func (r *Request) bookedUntil(provisioned time.Time) time.Time {
	scheduling := time.Duration(r.Pods) * time.Second / schedulingRate
	return provisioned.Add(max(r.Policy.BookingTimeout, scheduling))
}

// Action is what to do for a request.
type Action int

const (
	// Rest: nothing to do until something changes, or the step's time comes.
	Rest Action = iota
	// LookUp the missing PodTemplates past all caches: only what is missing there
	// fails the request.
	LookUp
	// Report: say in the status why the request waits.
	Report
	// Fail the request for good.
	Fail
	// Book and unbook nodes as the step says.
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
	// TakeBack the machines that are left of a failed attempt, or that the gang has
	// found room without.
	TakeBack
	// Repair a booking that is short: book other nodes for it.
	Repair
	// Tell of lost nodes, or of stranded pods.
	Tell
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
		"RollBack", "TakeBack", "Repair", "Tell", "Reopen", "Count", "Consume", "Expire"}[a]
}

// Step is the next thing to do for a request.
type Step struct {
	Do Action
	// Condition that the step sets; none where its type is empty.
	Condition metav1.Condition
	// Attempt as it will be recorded.
	Attempt Attempt
	// Repair as it will be recorded; nil where there is no new one.
	Repair *RepairRecord
	// Purchases as they will be recorded; nil where nothing was bought since the last record.
	Purchases *purchases.Record
	// Vain are machines that the step gives up, or finds lost: they are part of Purchases.
	Vain []Vain
	// Book these placements and Unbook these nodes, before the condition is set.
	Book   []planner.Placement
	Unbook []string
	// Leave those of the nodes to unbook that pods of the gang may have come to unnoticed: only
	// while the API server itself knows of none that is news.
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
	// TakeBack these machines.
	TakeBack []cloudprovider.Machine
	// Lost nodes that the step tells of. Hold: the gang is not stopped for them, for now.
	Lost []LostNode
	Hold bool
	// Lessons are what is learned about groups once the step is on record.
	Lessons []Lesson
	// At is when to look again even if nothing changes; zero for never.
	At time.Time
}

// Reasons of conditions, as the API's contract has them. It names none for
// CapacityRevoked, nor for what is under way, nor for a request that stays Provisioned while
// its booking is short of room, nor for one that has bought too much.
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

// PodsBlocked is the type of the condition that is True while pods of a request have come and cannot start.
const PodsBlocked = "muster.dev/PodsBlocked"

// DryRun is the type of the condition by which a Muster that only observes says what it would
// do for a request. No other condition is touched: what serves the request reads those.
const DryRun = "muster.dev/DryRun"

// Conditions are those that the status will have after the step. A request that
// fails at once was never accepted.
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

// failed, waiting, provisioned and over are the conditions that end a step.
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

// underway says what is being done. A request that is Provisioned stays so.
func (r *Request) underway(format string, args ...any) metav1.Condition {
	message := fmt.Sprintf(format, args...)
	if r.Status == Provisioned {
		return provisioned(r.provisionedBy(), message)
	}
	return condition(provreq.Provisioned, metav1.ConditionUnknown, ReasonProvisioningUnderway, message)
}

// attempting is the condition while the attempt is under way. It also reports why the attempt before failed.
func (r *Request) attempting(a Attempt, format string, args ...any) metav1.Condition {
	message := fmt.Sprintf("Attempt %d ", a.Number) + fmt.Sprintf(format, args...)
	if a.Previous != "" {
		message += "; " + a.Previous
	}
	return r.underway("%s", message)
}

// provisionedBy is the reason of a request that is Provisioned and not short.
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

// LossMessage says which nodes were lost.
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

// HeldMessage says after a LossMessage why the gang is not stopped.
const HeldMessage = ". So many machines of a NodeGroup seem lost at once that its records are more likely wrong than the machines: the " +
	"gang is not stopped until their kubelets and their cloud agree, or until the NodeGroup is annotated with " +
	v1alpha1.GiveBackAtOnceAnnotation

// Settle is how long a node that was cordoned to be booked is watched before it
// counts: pods that the scheduler had assumed there may still land.
const Settle = time.Second

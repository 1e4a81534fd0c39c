package provisioning

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
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
	// PodsHeld says that somebody, such as a queue, lets no pod of the gang be
	// created before the request is Provisioned: its nodes may be opened at once.
	PodsHeld bool
	Gang     Gang
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
	// Lacking says what the request waits for that somebody may still create.
	Lacking string
	Policy  Policy
	Attempt Attempt
	Status  Status
	// Provisioned is the condition of that type as it stands.
	Provisioned metav1.Condition
}

// Status is where a request stands, by its conditions.
type Status int

const (
	// Pending requests have no capacity yet.
	Pending Status = iota
	// Provisioned requests have booked capacity that waits for its pods.
	Provisioned
	// Over: Failed, BookingExpired or CapacityRevoked. Nothing is booked or made
	// for the request any more.
	Over
)

// String is the request as people write it.
func (r *Request) String() string { return r.Namespace + "/" + r.Name }

// deadline is when the request fails if it has no capacity by then.
func (r *Request) deadline() time.Time { return r.Created.Add(r.ValidFor) }

// schedulingRate is how many pods a second kube-scheduler binds at least: a fifth
// of the 50 calls a second that it allows itself by default.
const schedulingRate = 10

// bookedUntil is when booked capacity that was Provisioned at that time is given
// up: not before the scheduler has had time for the whole gang.
func (r *Request) bookedUntil(provisioned time.Time) time.Time {
	scheduling := time.Duration(r.Pods) * time.Second / schedulingRate
	return provisioned.Add(max(r.Policy.BookingTimeout, scheduling))
}

// View is what a request's next step depends on, beside the request.
type View struct {
	*Snapshot
	// Machines that carry a token of the request's last attempt, in any state.
	Machines []cloudprovider.Machine
	// Active is how many of the request's pods have not finished, bound or not.
	Active int
	// KeyTaken names another live request with the same booking key, if any.
	KeyTaken string
	// Has is what the request's namespace has and asks for already, Limits what it
	// may have.
	Has    Holdings
	Limits []Limit
	// Lost nodes of the request of which nobody has been told yet, by name.
	Lost []LostNode
	// Stranded pods of a gang that ran have found no room.
	Stranded Stranded
}

// LostNode is a node that went, or whose machine ended, while it was booked or used.
type LostNode struct {
	Name string
	// Group of its machine; empty where it was of none.
	Group string
	// Pods of the gang that ran there.
	Pods int
}

// Stranded are pods that came in place of others of a gang that ran, and that
// kube-scheduler has found no room for, the first of them at Since.
type Stranded struct {
	Pods  int
	Since time.Time
	// Requests is what they take together.
	Requests nodegroups.Resources
}

// strandedFor is for how long pods may be stranded: a node may be about to be ready
// again.
const strandedFor = time.Minute

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
	// Consume: all pods run; lift the cordons and end the booking.
	Consume
	// Expire: the booking was not used in time or is broken; undo it.
	Expire
)

func (a Action) String() string {
	return [...]string{"Rest", "LookUp", "Report", "Fail", "Book", "Provision", "Begin", "Replace", "LaunchMachines",
		"RollBack", "TakeBack", "Repair", "Tell", "Consume", "Expire"}[a]
}

// Step is the next thing to do for a request.
type Step struct {
	Do Action
	// Condition that the step sets; none where its type is empty.
	Condition metav1.Condition
	// Attempt as it will be recorded.
	Attempt Attempt
	// Book these placements and Unbook these nodes, before the condition is set.
	Book   []Placement
	Unbook []string
	// Open the placements for the gang's pods, too.
	Open bool
	// KeepLabels: of the nodes to unbook only the cordon goes, since pods of the
	// gang are there or select them.
	KeepLabels bool
	// Launch these machines.
	Launch []Call
	// TakeBack these machines.
	TakeBack []cloudprovider.Machine
	// Lost nodes that the step tells of.
	Lost []LostNode
	// Lessons are what is learned about groups once the step is on record.
	Lessons []Lesson
	// At is when to look again even if nothing changes; zero for never.
	At time.Time
}

// Reasons of conditions, as the API's contract has them. It names none for
// CapacityRevoked, nor for what is under way, nor for a request that stays Provisioned while
// its booking is short of room.
const (
	ReasonAccepted             = "Accepted"
	ReasonCapacityIsFound      = "CapacityIsFound"
	ReasonCapacityProvisioned  = "CapacityIsProvisioned"
	ReasonBookingIsShort       = "BookingIsShort"
	ReasonCapacityIsNotFound   = "CapacityIsNotFound"
	ReasonFailedToCheck        = "FailedToCheckCapacity"
	ReasonFailedToBook         = "FailedToBookCapacity"
	ReasonExpired              = "Expired"
	ReasonFailedToCreatePods   = "FailedToCreatePods"
	ReasonReservationExpired   = "CapacityReservationTimeExpired"
	ReasonBookingConsumed      = "CapacityBookingConsumed"
	ReasonMachineLost          = "MachineLost"
	ReasonPodsStranded         = "PodsStranded"
	ReasonProvisioningUnderway = "ProvisioningInProgress"
)

// Conditions are those that the status will have after the step. A request that
// fails at once was never accepted.
func (s *Step) Conditions() (out []metav1.Condition) {
	if s.Do != Fail {
		out = append(out, condition(provreq.Accepted, metav1.ConditionTrue, ReasonAccepted, "Muster looks after this request"))
	}
	if s.Condition.Type != "" {
		out = append(out, s.Condition)
	}
	return out
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: Clip(message, messageLimit)}
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
// that was launched. Where somebody else holds the pods back anyway, a claim opens
// the node at once, and saves the second write. A cordon is lifted by one more.
func Next(r *Request, v View) Step {
	switch {
	case len(v.Lost) > 0 && r.Status != Pending:
		return tell(r, v)
	case r.Status == Over:
		return nextOver(r, v)
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

// tell of nodes that are lost. Whether a gang that runs is to be stopped then is for
// whoever has asked for it.
func tell(r *Request, v View) Step {
	s := Step{Do: Tell, Attempt: r.Attempt, Lost: v.Lost}
	inUse := slices.ContainsFunc(v.Lost, func(l LostNode) bool { return l.Pods > 0 })
	if r.Status == Over && r.Policy.RevokeOnLoss && inUse {
		s.Condition = condition(provreq.CapacityRevoked, metav1.ConditionTrue, ReasonMachineLost, LossMessage(v.Lost))
	}
	return s
}

// nextOver looks after a gang that runs. Its pods select the label of its booking, so
// what is stranded can run nowhere where less is left of that than they take: a machine
// was lost while nobody looked, or after its pods had been stopped, or others have got the
// room. Where there is enough they wait for pods of their own gang that are stopping.
func nextOver(r *Request, v View) Step {
	if v.Stranded.Pods == 0 || !r.Policy.RevokeOnLoss {
		return Step{Do: Rest}
	}
	if at := v.Stranded.Since.Add(strandedFor); v.Now.Before(at) {
		return Step{Do: Rest, At: at}
	}
	room, again := nodegroups.Resources{}, v.Now.Add(strandedFor)
	for n := range v.Nodes.BookedBy(r.UID) {
		back := n.UnreadySince.Add(strandedFor)
		switch cordoned := n.Cordon != Open && n.Cordon != Held; {
		case !n.Ready && !v.Now.Before(back), cordoned && !v.Now.Before(v.Stranded.Since.Add(lostAfter)):
			continue
		case !n.Ready:
			again = earliest(again, back)
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
	return Step{Do: Tell, Attempt: r.Attempt, Condition: condition(provreq.CapacityRevoked, metav1.ConditionTrue, ReasonPodsStranded,
		fmt.Sprintf("For %s there has been no room for %s of the gang, and less %s is left of its booking than they need", strandedFor, pods(v.Stranded.Pods), name))}
}

// LossMessage says which nodes were lost.
func LossMessage(lost []LostNode) string {
	n := 0
	for _, l := range lost {
		n += l.Pods
	}
	what := "node " + lost[0].Name
	if len(lost) > 1 {
		what = fmt.Sprintf("%s, %s and others", nodes(len(lost)), lost[0].Name)
	}
	return fmt.Sprintf("The machine of %s was lost, where %s of the gang ran", what, pods(n))
}

func pods(n int) string     { return plural(n, "pod") }
func nodes(n int) string    { return plural(n, "node") }
func machines(n int) string { return plural(n, "machine") }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// earliest is the first of the times, those that are zero left out.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

package transaction

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

// Attempt is one try to launch the machines of a gang, as the request's status
// records it before the first cloud call of each phase (the intent). The record
// stays in the phase Done with the last attempt's number, so that numbers, and
// with them launch tokens, are never used twice.
//
//	a machine lost, or in another rack than is required: replaced
//	        ┌──┐
//	        ▼  │    ┌─────────── all joined: Provisioned ────────────┐
//	      Launching ┤       (and the room there that others leave)   ├▶ Done
//	                └─ refused, late, lost ─▶ RollingBack ─ all gone ┘
type Attempt struct {
	// Number counts the attempts of a request from 1.
	Number int          `json:"number"`
	Phase  AttemptPhase `json:"phase"`
	// Launches are the machines to launch.
	Launches []planner.GroupCount `json:"launches,omitempty"`
	// Shares are the machines of other requests, by group, whose remaining room the gang will use.
	Shares []planner.GroupCount `json:"shares,omitempty"`
	// Level is a node label, and Domain its value that the machines must have. They are set if the rest of the gang runs there.
	Level  string `json:"level,omitempty"`
	Domain string `json:"domain,omitempty"`
	// Replacements are launches for machines that were lost before all had joined,
	// in their order.
	Replacements []Replacement `json:"replacements,omitempty"`
	// Started is when the attempt was decided; join timeouts count from it.
	Started time.Time `json:"started"`
	// Previous says why the previous attempt failed; empty for the first one, and after one that succeeded.
	Previous string `json:"previous,omitempty"`
	// Failure is why the attempt is, or was, rolled back.
	Failure *AttemptFailure `json:"failure,omitempty"`
}

// AttemptPhase is the phase of an attempt.
type AttemptPhase string

const (
	// Launching: the attempt requests machines and waits until they join, or waits for machines of others.
	Launching AttemptPhase = "Launching"
	// RollingBack: all machines of the attempt are being terminated.
	RollingBack AttemptPhase = "RollingBack"
	// Done: no machine of the attempt is in flight any more.
	Done AttemptPhase = "Done"
)

// Replacement is a launch of as many machines as were lost, in the same groups.
type Replacement struct {
	Lost []LostMachine `json:"lost"`
	// Level and Domain are the node label of the attempt's other machines, if the lost machines have another value of it and are
	// terminated; empty if they ended by themselves.
	Level  string `json:"level,omitempty"`
	Domain string `json:"domain,omitempty"`
	// Started is when it was decided; join timeouts count from it.
	Started time.Time `json:"started"`
}

// LostMachine is a machine that ended, or was misplaced, while its attempt was under way. It is
// on record by name, since a cloud does not list for ever what has ended.
type LostMachine struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	// Launch is the token of the launch of the machine.
	Launch string `json:"launch"`
}

// AttemptFailure is the failure of an attempt.
type AttemptFailure struct {
	// Group and Class determine the outcome for the group; empty if the launch is not to blame.
	Group   string              `json:"group,omitempty"`
	Class   v1alpha1.ErrorClass `json:"class,omitempty"`
	Message string              `json:"message"`
	// Launch is the token of the failed call, which requested so many machines. Got of them exist.
	Launch    string `json:"launch,omitempty"`
	Requested int    `json:"requested,omitempty"`
	Got       int    `json:"got,omitempty"`
	// Taken: others' pods had slipped onto the attempt's machines.
	Taken bool `json:"squatted,omitempty"`
	// Kept is the number of machines of the attempt that stay because they run pods.
	Kept int `json:"kept,omitempty"`
	// Level is the node label whose single domain the launch required, if it failed for that reason. A launch without that requirement is
	// not affected.
	Level string `json:"level,omitempty"`
	// Taints are the taints that the nodes keep, if the attempt failed for them.
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Time when it was noticed.
	Time time.Time `json:"time"`
}

// Outcome is the outcome of a launch for its group.
type Outcome struct {
	Group string
	v1alpha1.LaunchAttempt
}

// Outcome returns the outcome of the failure; none if its class is empty.
func (f *AttemptFailure) Outcome(request string) Outcome {
	return Outcome{f.Group, v1alpha1.LaunchAttempt{
		Time: metav1.NewTime(f.Time), Request: request, Token: f.Launch, Class: f.Class, Message: f.Message,
		Requested: int32(f.Requested), Got: int32(f.Got), Level: f.Level, Taints: f.Taints,
	}}
}

func (f *AttemptFailure) String() string {
	if f.Group == "" {
		return f.Message
	}
	return fmt.Sprintf("group %s: %s", f.Group, f.Message)
}

// AttemptDetail is the key of the record in status.provisioningClassDetails.
const AttemptDetail = "muster.dev/attempt"

// Encode renders the record.
func (a Attempt) Encode() string {
	out, err := json.Marshal(a)
	if err != nil {
		panic(fmt.Sprintf("an attempt cannot be marshalled: %v", err)) // plain values: cannot happen
	}
	return string(out)
}

// DecodeAttempt reads a record; an empty one is no attempt yet.
func DecodeAttempt(s string) (Attempt, error) {
	a := Attempt{Phase: Done}
	if s == "" {
		return a, nil
	}
	if err := json.Unmarshal([]byte(s), &a); err != nil {
		return a, fmt.Errorf("status.provisioningClassDetails[%q] cannot be read: %w", AttemptDetail, err)
	}
	if a.InFlight() && (a.Number < 1 || len(a.Launches)+len(a.Shares) == 0) {
		return a, fmt.Errorf("status.provisioningClassDetails[%q] is in phase %s without a number, or without launches and shares", AttemptDetail,
			a.Phase)
	}
	return a, nil
}

// InFlight reports whether machines of the attempt may exist that are not booked.
func (a Attempt) InFlight() bool { return a.Phase != Done }

// Owned reports whether the request in that status manages the attempt's machines: they are being launched or rolled back, or are part of
// a Provisioned request. All other machines, and those of earlier attempts without a booking, are orphans.
func (a Attempt) Owned(s Status) bool {
	return s != Over && a.Number > 0 && (a.InFlight() || a.Failure == nil)
}

// Call is one call for machines that an attempt makes: the same token, the same
// machines.
type Call struct {
	Token string
	planner.GroupCount
	// Began is when the call was decided.
	Began time.Time
	// Together is the domain that its machines must be in, if the gang requires one.
	Together cloudprovider.Domain
}

// recordsLag is how much older a machine must be than the call that made it before the record of the call counts as wrong. The times come
// from two clocks.
const recordsLag = 10 * time.Minute

// Lags reports whether the machine has the token of the call and is older than it. Then etcd was restored to a time before the gang was
// launched, and its request has requested the same machines again. They may run pods that the cluster does not have.
func (c Call) Lags(m cloudprovider.Machine) bool {
	return !m.Started.IsZero() && m.Started.Add(recordsLag).Before(c.Began)
}

// Calls returns the calls of the attempt in order: first for the gang, then for lost machines.
func (a Attempt) Calls(uid types.UID) (out []Call) {
	for _, l := range a.Launches {
		out = append(out, Call{
			Token: state.Token(uid, a.Number), GroupCount: l, Began: a.Started, Together: cloudprovider.Domain{Level: a.Level, Value: a.Domain},
		})
	}
	for i, r := range a.Replacements {
		counts := map[string]int{}
		for _, m := range r.Lost {
			counts[m.Group]++
		}
		for _, l := range planner.GroupCounts(counts) {
			out = append(out, Call{
				Token: a.replacementToken(uid, i+1), GroupCount: l, Began: r.Started,
				Together: cloudprovider.Domain{Level: r.Level, Value: r.Domain},
			})
		}
	}
	return out
}

// Tokens of the attempt's calls, each once.
func (a Attempt) Tokens(uid types.UID) []string {
	if a.Number == 0 {
		return nil
	}
	out := []string{state.Token(uid, a.Number)}
	for i := range a.Replacements {
		out = append(out, a.replacementToken(uid, i+1))
	}
	return out
}

// lost reports whether the machine is on record as lost.
func (a Attempt) lost(m cloudprovider.Machine) bool {
	return slices.ContainsFunc(a.Replacements, func(r Replacement) bool {
		return slices.Contains(r.Lost, LostMachine{Group: m.Group, Name: m.Name, Launch: m.Launch})
	})
}

// losses returns the recorded lost machines.
func (a Attempt) losses() (out []LostMachine) {
	for _, r := range a.Replacements {
		out = append(out, r.Lost...)
	}
	return out
}

// Machines is the number of machines that the attempt requests of a group.
func (a Attempt) Machines(group string) int {
	for _, l := range a.Launches {
		if l.Group == group {
			return l.Count
		}
	}
	return 0
}

// machines is the number of machines that the attempt requests.
func (a Attempt) machines() (n int) {
	for _, l := range a.Launches {
		n += l.Count
	}
	return n
}

// groups returns the NodeGroups of the machines.
func (a Attempt) groups() (out []string) {
	for _, l := range a.Launches {
		out = append(out, l.Group)
	}
	return out
}

// replacementToken names the n-th replacement, from 1.
func (a Attempt) replacementToken(uid types.UID, n int) string {
	return state.Token(uid, a.Number) + "r" + strconv.Itoa(n)
}

// Status is the state of a request according to its conditions.
type Status int

const (
	// Pending requests have no capacity yet.
	Pending Status = iota
	// Provisioned requests have booked capacity that waits for its pods.
	Provisioned
	// Over: Failed, BookingExpired or CapacityRevoked. The request no longer books or launches anything.
	Over
)

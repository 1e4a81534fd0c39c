package provisioning

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Attempt is one try to launch the machines of a gang, as the request's status
// records it before the first cloud call of each phase (the intent). The record
// stays in the phase Done with the last attempt's number, so that numbers, and
// with them launch tokens, are never used twice.
//
//	          ┌──────── all joined: booked, Provisioned ───────┐
//	Launching ┤                                                ├▶ Done
//	          └─ refused, late, lost ─▶ RollingBack ─ all gone ┘
type Attempt struct {
	// Number counts the attempts of a request from 1.
	Number int          `json:"number"`
	Phase  AttemptPhase `json:"phase"`
	// Launches are the machines that are asked for.
	Launches []GroupCount `json:"launches,omitempty"`
	// Started is when the attempt was decided; join timeouts count from it.
	Started time.Time `json:"started"`
	// Failure is why the attempt is rolled back.
	Failure *AttemptFailure `json:"failure,omitempty"`
}

// AttemptPhase is where an attempt is.
type AttemptPhase string

const (
	// Launching: machines are asked for, made and joining.
	Launching AttemptPhase = "Launching"
	// RollingBack: every machine of the attempt is being taken back.
	RollingBack AttemptPhase = "RollingBack"
	// Done: no machine of the attempt is in flight any more.
	Done AttemptPhase = "Done"
)

// AttemptFailure is what went wrong with an attempt.
type AttemptFailure struct {
	Group   string              `json:"group"`
	Class   v1alpha1.ErrorClass `json:"class"`
	Message string              `json:"message"`
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
	if a.InFlight() && (a.Number < 1 || len(a.Launches) == 0) {
		return a, fmt.Errorf("status.provisioningClassDetails[%q] is in phase %s without a number or launches", AttemptDetail, a.Phase)
	}
	return a, nil
}

// InFlight says that machines of the attempt may exist that are not booked.
func (a Attempt) InFlight() bool { return a.Phase != Done }

// Machines is the number of machines that the attempt asks of a group.
func (a Attempt) Machines(group string) int {
	for _, l := range a.Launches {
		if l.Group == group {
			return l.Count
		}
	}
	return 0
}

// machines is the number of machines that the attempt asks for.
func (a Attempt) machines() (n int) {
	for _, l := range a.Launches {
		n += l.Count
	}
	return n
}

// Token names the launches of an attempt: the same attempt, the same call.
func Token(uid types.UID, attempt int) string {
	return string(uid) + "-" + strconv.Itoa(attempt)
}

// TokenUID is the UID of the request behind a token.
func TokenUID(token string) types.UID {
	if i := strings.LastIndexByte(token, '-'); i >= 0 {
		return types.UID(token[:i])
	}
	return types.UID(token)
}

package transaction

import (
	"time"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// answeredWithin is how long an attempt waits for a cloud to carry out or refuse a call. After that, the next offering is tried. Machines
// that such a call has made after all are terminated when the cloud lists them: they have the token of a former attempt.
const answeredWithin = 2 * time.Minute

// CallKey identifies a call.
type CallKey struct{ Token, Group string }

// Key of the call.
func (c Call) Key() CallKey { return CallKey{c.Token, c.Group} }

// Unanswered is a call that a cloud has neither carried out nor refused since a time, however often it was repeated: the cloud fails, does
// not respond, or cannot be reached.
type Unanswered struct {
	Since time.Time
	// Class of the last error, if the cloud returned one, and its text.
	Class   v1alpha1.ErrorClass
	Message string
}

// failure of the call. Only credentials are a matter for a person; all else is an outage.
func (u Unanswered) failure(v View, c Call) AttemptFailure {
	class := v1alpha1.Outage
	if u.Class == v1alpha1.Auth {
		class = u.Class
	}
	return failure(v, c, class, "the cloud has neither made machines nor refused for %s: %s", answeredWithin, u.Message)
}

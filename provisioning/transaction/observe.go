package transaction

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/provisioning/text"
)

// The reasons of the condition DryRun.
const (
	ReasonWouldBook   = "WouldBook"
	ReasonWouldLaunch = "WouldLaunch"
	ReasonWouldWait   = "WouldWait"
	ReasonWouldFail   = "WouldFail"
)

// Observed returns the step that reports in the request's status what s would do. It is Rest for requests that others have Provisioned,
// and for attempts from before the dry run, which stay as they are.
func Observed(r *Request, s Step) Step {
	out := Step{Do: Rest, At: s.At}
	if r.Status != Pending || r.Attempt.InFlight() {
		return out
	}
	reason, message := "", s.Condition.Message
	switch s.Do {
	case Begin:
		reason = ReasonWouldLaunch
	case Book, Provision:
		if len(s.Book) == 0 && s.Do == Book {
			return out
		}
		reason, message = ReasonWouldBook, fmt.Sprintf("Existing capacity is found: %s are booked for %s",
			text.Nodes(len(s.Book)), text.Pods(r.Pods))
	case Report:
		reason = ReasonWouldWait
	case LookUp:
		reason, message = ReasonWouldFail, NoTemplates(r, r.Missing).Condition.Message
	case Fail:
		reason = ReasonWouldFail
	default:
		return out
	}
	out.Do = Report
	out.Condition = condition(DryRun, metav1.ConditionTrue, reason, "Dry run: nothing of this is done. "+message)
	return out
}

package request

import (
	"context"

	"github.com/muster-dev/muster/provisioning/controller/journal"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// lines are the log messages of recorded steps. The reason of a waiting request is only in its condition.
var lines = map[transaction.Action]string{
	transaction.Fail:       "A request has failed",
	transaction.Provision:  "Capacity is booked",
	transaction.Begin:      "An attempt begins",
	transaction.Replace:    "Lost machines are launched again",
	transaction.RollBack:   "An attempt is rolled back",
	transaction.Repair:     "A booking is repaired",
	transaction.ReportLoss: "Machines of a gang were lost",
	transaction.Reopen:     "A booking is reopened for lost machines",
	transaction.Consume:    "All pods of a gang have come",
	transaction.Expire:     "A booking has ended",
}

// logStep logs a step.
func logStep(ctx context.Context, e *model.Entry, step transaction.Step) {
	message := lines[step.Do]
	if message == "" {
		return
	}
	cause := step.Condition.Message
	if cause == "" && len(step.Lost) > 0 {
		cause = transaction.LossMessage(step.Lost)
	}
	count, group := 0, ""
	if step.Do == transaction.Begin || step.Do == transaction.RollBack {
		for _, l := range step.Attempt.Launches {
			count += l.Count
			group = l.Group
		}
		if len(step.Attempt.Launches) > 1 {
			group = "" // the cause names all of them
		}
	}
	said := []any{journal.Request, e.String(), journal.Reason, step.Condition.Reason, journal.Group, group}
	if count > 0 {
		said = append(said, journal.Count, count)
	}
	journal.Write(ctx, message, e.String(), append(said, journal.Cause, cause)...)
}

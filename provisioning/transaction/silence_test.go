package transaction

import (
	"testing"
	"time"
)

// answering: the control plane was silent until then.
func answering(since time.Duration) func(*story) {
	return func(s *story) { s.view.Answering = noon.Add(since) }
}

// TestTheControlPlanesSilenceIsNotTheGangs: while the API server does not answer, no node can register and no pod can be bound. Nothing is
// rolled back, expired or stopped for that before its bound has passed since it answers.
func TestTheControlPlanesSilenceIsNotTheGangs(t *testing.T) {
	launched := func() *story { return newStory().attempt(Launching).machines(running, running) }
	bookedGang := func() *story { return newStory().provisioned().node("a", booked).node("b", booked) }
	unready := func() *story { return bookedGang().node("b", booked, sinceUnready(noon.Add(20*time.Second))) }
	stranded := func() *story {
		s := bookedGang()
		s.request.Status, s.request.Policy.RevokeOnLoss, s.request.Consumed = Over, true, true
		s.view.Nodes.Delete("a")
		s.view.Nodes.Delete("b")
		s.view.Stranded = Stranded{Pods: 1, Since: noon, Requests: onePod}
		return s
	}
	play(t, []expected{
		{name: "machines have as long to join as without it", story: launched().at(12 * time.Minute).with(answering(11 * time.Minute)), want: Rest},
		{name: "and no longer than that", story: launched().at(21 * time.Minute).with(answering(11 * time.Minute)), want: RollBack},
		{name: "however often it is silent", story: launched().at(20 * time.Minute).with(answering(20 * time.Minute)), want: RollBack},
		{name: "without a silence they are late", story: launched().at(12 * time.Minute), want: RollBack},
		{name: "a booking waits for pods that could not be bound", story: bookedGang().at(12 * time.Minute).with(answering(9 * time.Minute)),
			want: Rest},
		{name: "but not for ever", story: bookedGang().at(19 * time.Minute).with(answering(9 * time.Minute)), want: Expire},
		{name: "a node that could not say that it is Ready keeps its booking",
			story: unready().at(80 * time.Second).with(answering(70 * time.Second)), want: Rest},
		{name: "until it has had its time", story: unready().at(101 * time.Second).with(answering(70 * time.Second)), want: Begin},
		{name: "a gang that runs is not stopped for pods that could not be scheduled",
			story: stranded().at(5 * time.Minute).with(answering(270 * time.Second)), want: Rest},
		{name: "before a minute has passed", story: stranded().at(6 * time.Minute).with(answering(270 * time.Second)), want: ReportLoss},
	})
}

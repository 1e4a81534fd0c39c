package transaction

import (
	"strings"
	"testing"

	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
)

func TestWhatADryRunReports(t *testing.T) {
	for _, tc := range []struct {
		name  string
		story *story
		// reason of the condition; empty where nothing is reported.
		reason, message string
	}{
		{"a launch, with its price", newStory(), ReasonWouldLaunch, "launches 2 machines of NodeGroup gpu for 20.00 USD per hour"},
		{"capacity that is free", newStory().node("a").node("b"), ReasonWouldBook, "2 nodes are booked for 2 pods"},
		{"what is short", newStory().with(dry), ReasonWouldWait, "Capacity is not found now"},
		{"a request that can never be served", newStory().with(func(s *story) { s.request.Invalid = "its parameter is wrong" }), ReasonWouldFail, "its parameter is wrong"},
		{"not what others have Provisioned", newStory().provisioned(), "", ""},
		{"not an attempt of before", newStory().attempt(Launching), "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &tc.story.request
			s := Observed(r, Next(r, tc.story.view))
			if tc.reason == "" {
				if s.Do != Rest {
					t.Errorf("step is %s (%s), want none", s.Do, s.Condition.Message)
				}
				return
			}
			conditions := s.Conditions()
			if s.Do != Report || len(s.Book)+len(s.Unbook)+len(s.Launch)+len(s.Terminate) > 0 || s.Attempt.Number > 0 || len(conditions) != 1 {
				t.Fatalf("the step does more than to tell: %+v", s)
			}
			if c := conditions[0]; c.Type != DryRun || c.Reason != tc.reason || !strings.Contains(c.Message, tc.message) {
				t.Errorf("condition is %+v, want reason %s and %q", c, tc.reason, tc.message)
			}
			for _, kind := range []string{provreq.Accepted, provreq.Provisioned, provreq.Failed} {
				if conditions[0].Type == kind {
					t.Errorf("condition %s is another's", kind)
				}
			}
		})
	}
}

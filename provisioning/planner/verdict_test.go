package planner

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/provisioning/text"
)

func TestMessageCountsGroupsOfAnotherKind(t *testing.T) {
	misfit := func(group string) Reason { return Reason{Code: CodeConstraint, Group: group, Message: "labels"} }
	dry := Reason{Code: CodeBackoff, Group: "spot", Message: "dry"}
	for _, tc := range []struct {
		name    string
		reasons []Reason
		want    string
	}{
		{"what passes by itself is said, the rest is counted", []Reason{dry, misfit("a"), misfit("b")},
			"group spot: dry; 2 other groups cannot run such pods (labels, taints, size or capacity type)"},
		{"a group that misfits two podSets counts once", []Reason{dry, misfit("a"), misfit("a")},
			"group spot: dry; 1 other group cannot run such pods (labels, taints, size or capacity type)"},
		{"nothing else is said without a misfit", []Reason{dry}, "group spot: dry"},
		{"three misfits are said", []Reason{misfit("a"), misfit("b"), misfit("c")}, "group a: labels; group b: labels; group c: labels"},
		{"where there is nothing else, the first are said", []Reason{misfit("a"), misfit("b"), misfit("c"), misfit("d")},
			"group a: labels; group b: labels; group c: labels; 1 other group cannot run such pods (labels, taints, size or capacity type)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := (Verdict{Reasons: tc.reasons}).Message(); got != tc.want {
				t.Errorf("message is\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestClip(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("x", 20), strings.Repeat("ä", 20)} {
		got := text.Clip(s, 20)
		if len(got) > 20 || len(s) <= 20 && got != s || !strings.HasPrefix(s, strings.TrimSuffix(got, "…")) {
			t.Errorf("Clip(%q, 20) = %q", s, got)
		}
	}
}

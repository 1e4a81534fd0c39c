package group

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/scaledown"
)

// TestBrakesAreConditions: a brake is a condition while a person has to decide, and the condition is reset when nothing is left to decide.
// A group without a cause has no such condition.
func TestBrakesAreConditions(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for kind, braked := range map[string]scaledown.Doubt{
		v1alpha1.ConditionNodesPresent:     {Missing: 4, Of: 4},
		v1alpha1.ConditionScaleDownAllowed: {Idle: 4, Spare: 4, Of: 4},
	} {
		g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		for i, tc := range []struct {
			doubt scaledown.Doubt
			want  metav1.ConditionStatus
		}{{scaledown.Doubt{Of: 4}, ""}, {braked, metav1.ConditionFalse}, {scaledown.Doubt{Of: 4}, metav1.ConditionTrue}} {
			renew(g, nodeCount{doubt: tc.doubt}, now)
			got := metav1.Condition{}
			for _, c := range g.Status.Conditions {
				switch c.Type {
				case kind:
					got = c
				case v1alpha1.ConditionNodesPresent, v1alpha1.ConditionScaleDownAllowed:
					t.Errorf("%s is told for a cause of %s", c.Type, kind)
				}
			}
			if got.Status != tc.want || tc.want != "" && (got.Reason == "" || got.Message == "") {
				t.Errorf("%s in step %d is %+v, want %q", kind, i, got, tc.want)
			}
		}
		if c := meta.FindStatusCondition(g.Status.Conditions, kind); c == nil || c.ObservedGeneration != g.Generation {
			t.Errorf("%s is %+v in the end", kind, c)
		}
	}
}

// TestAGroupThatIsNotListedSaysSo: the condition is False while the list is old, and True after the next list.
func TestAGroupThatIsNotListedSaysSo(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	g := &v1alpha1.NodeGroup{}
	for _, tc := range []struct {
		age, again time.Duration
		want       metav1.ConditionStatus
	}{
		{time.Minute, 2 * time.Minute, ""},
		{3 * time.Minute, time.Minute, metav1.ConditionFalse},
		{time.Second, 3*time.Minute - time.Second, metav1.ConditionTrue},
	} {
		again := setListed(g, now.Add(-tc.age), now)
		var status metav1.ConditionStatus
		if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionListed); c != nil {
			status = c.Status
		}
		if status != tc.want || !again.Equal(now.Add(tc.again)) {
			t.Errorf("with a list that is %s old the condition is %q, again at +%s; want %q, +%s", tc.age, status, again.Sub(now), tc.want, tc.again)
		}
	}
	if again := setListed(&v1alpha1.NodeGroup{}, time.Time{}, now); !again.IsZero() {
		t.Error("a group whose cloud is not listed is checked again")
	}
}

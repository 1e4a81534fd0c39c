package purchases

import (
	"fmt"
	"testing"
	"time"
)

// TestTheRecordFits into a value of provisioningClassDetails, and counts on when it is full.
func TestTheRecordFits(t *testing.T) {
	var p Record
	var made []Machine
	for i := range 20_000 {
		made = append(made, Machine{Mark: Mark("gpu", fmt.Sprint("i-", i), time.Time{})})
	}
	p = p.With(made).With(made[15_000:])
	if got := p.Bought(); got < 19_900 || got > 20_000 { // marks are short: a few machines share one
		t.Errorf("%d machines are counted", got)
	}
	if n := len(p.Encode()); n > 32_768 {
		t.Errorf("the record has %d characters", n)
	}
}

// TestAnotherGroupMayBeTried: machines that failed in one group count for that group, however many groups there are.
func TestAnotherGroupMayBeTried(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	p := Record{Needed: 3}
	p = p.FailIn(6, []string{"a"})
	for _, tc := range []struct {
		groups []string
		most   int
	}{
		{[]string{"a"}, 6},
		{[]string{"a", "b"}, 6},
		{[]string{"b"}, 12},
	} {
		if got := p.Most(now, tc.groups); got != tc.most {
			t.Errorf("after 6 machines that failed in a, %d may be bought in %v, want %d", got, tc.groups, tc.most)
		}
	}
	p = p.FailIn(6, []string{"b"})
	if got := p.Most(now, []string{"b"}); got != 6 {
		t.Errorf("after 6 more that failed in b, %d may be bought there, want 6", got)
	}
	if got := p.Most(now, []string{"c"}); got != 18 {
		t.Errorf("after 6 more that failed in b, %d may be bought in c, want 18", got)
	}
}

// TestAfterAPauseAsManyAsAreNeeded may be bought, and not those that failed elsewhere once more. Failures since the stop do not keep the
// request from another group.
func TestAfterAPauseAsManyAsAreNeeded(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	p := Record{Needed: 3, Earlier: 9}.FailIn(3, []string{"a"})
	if got := p.Most(now, []string{"b"}); got != 9 {
		t.Errorf("with 3 machines that failed in a, %d may be bought in b, want 9", got)
	}
	p = p.StopAt(now)
	for _, tc := range []struct {
		record Record
		group  string
		most   int
	}{
		{p, "a", 12},
		{p, "b", 12},
		{p.FailIn(3, []string{"b"}), "a", 12},
		{p.FailIn(3, []string{"b"}), "b", 12},
		{p.FailIn(3, []string{"b"}), "c", 15},
	} {
		if got := tc.record.Most(p.Until, []string{tc.group}); got != tc.most {
			t.Errorf("with 9 machines at the stop and %d that failed by now, %d may be bought in %s, want %d", tc.record.Failed, got, tc.group,
				tc.most)
		}
	}
}

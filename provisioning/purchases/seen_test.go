package purchases

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// machines have the names and were made by one call.
func machines(call string, started time.Time, names ...string) (out []Machine) {
	for _, name := range names {
		out = append(out, Machine{Mark("gpu", name, time.Time{}), CallMark("gpu", call), started})
	}
	return out
}

// TestEachMachineIsSeenOnce, and a machine that was bought in place of another one counts too, although it has the same name.
func TestEachMachineIsSeenOnce(t *testing.T) {
	later := noon.Add(time.Hour)
	add := func(started time.Time) func(Seen) {
		return func(s Seen) { s.Add("r", "launch", "gpu", "i-1", started) }
	}
	gone := func(s Seen) { s.Gone("r", "gpu", "i-1") }
	for _, tc := range []struct {
		name   string
		events []func(Seen)
		want   int
	}{
		{"listed again", []func(Seen){add(noon), add(noon)}, 1},
		{"restarted while it is listed", []func(Seen){add(noon), add(later)}, 1},
		{"missing from a list for a while", []func(Seen){add(noon), gone, add(noon)}, 1},
		{"replaced under its name", []func(Seen){add(noon), gone, add(later)}, 2},
		{"replaced, and listed again", []func(Seen){add(noon), gone, add(later), add(later)}, 2},
		{"replaced twice", []func(Seen){add(noon), gone, add(later), gone, add(later.Add(time.Hour))}, 3},
		{"no start is known", []func(Seen){add(time.Time{}), gone, add(later)}, 1},
		{"its start became known later", []func(Seen){add(time.Time{}), add(noon), gone, add(later)}, 2},
		{"gone before it was seen", []func(Seen){gone, add(noon)}, 1},
	} {
		s := Seen{}
		for _, event := range tc.events {
			event(s)
		}
		marks := map[string]bool{}
		for _, m := range s.Of("r") {
			marks[m.Mark] = true
		}
		if len(s.Of("r")) != tc.want || len(marks) != tc.want {
			t.Errorf("%s: seen were %v, want %d machines of different marks", tc.name, s.Of("r"), tc.want)
		}
	}
}

// TestMachinesOfSeveralRequests are counted apart, in an order that does not change.
func TestMachinesOfSeveralRequests(t *testing.T) {
	s := Seen{}
	for _, name := range []string{"a", "b", "c", "d"} {
		s.Add("one", "launch", "gpu", name, noon)
	}
	s.Add("one", "launch", "cpu", "a", noon) // another NodeGroup
	s.Add("two", "launch", "gpu", "e", noon)
	got := s.Of("one")
	if len(got) != 5 || len(s.Of("two")) != 1 || !slices.IsSortedFunc(got, func(a, b Machine) int { return strings.Compare(a.Mark, b.Mark) }) {
		t.Errorf("of the first request: %v, of the second: %v", got, s.Of("two"))
	}
	s.Forget(func(request types.UID) bool { return request == "one" })
	if len(s) != 1 || len(s.Of("two")) != 1 {
		t.Errorf("once the first is over: %v", s)
	}
}

// TestTheNextRequestOfAWorkload carries on the count, so that a request that is deleted and made again does not buy without end.
func TestTheNextRequestOfAWorkload(t *testing.T) {
	made := machines("call", noon, "a", "b")
	for _, tc := range []struct {
		name     string
		workload types.UID
		record   Record
		made     []Machine
		ran      bool
		want     int
	}{
		{"machines were seen", "w", Record{}, made, false, 2},
		{"machines were recorded", "w", Record{Earlier: 3}, nil, false, 3},
		{"its gang ran", "w", Record{}, made, true, 0},
		{"nothing was bought", "w", Record{Needed: 2}, nil, false, 0},
		{"it was of no Workload", "", Record{}, made, false, 0},
	} {
		c := Carried{}
		c.End(tc.workload, tc.record, tc.made, tc.ran, noon)
		if got := c.Of(tc.workload); got.Bought() != tc.want || (len(c) == 1) != (tc.want > 0) {
			t.Errorf("%s: %d machines are carried on, want %d", tc.name, got.Bought(), tc.want)
		}
	}
	c := Carried{}
	c.End("w", Record{}, made, false, noon)
	c.End("w", Record{}, machines("call", noon, "c"), false, noon)
	if got := c.Of("w"); got.Bought() != 3 {
		t.Errorf("after two requests, the second without a record of its own, %d machines count, want 3", got.Bought())
	}
	c.End("w", Record{}, nil, true, noon)
	if len(c) > 0 {
		t.Errorf("once the gang has run: %v", c)
	}
	c.End("w", Record{}, made, false, noon)
	if c.Forget(noon.Add(carriedFor)); len(c) == 0 {
		t.Error("forgotten after 24 hours")
	}
	if c.Forget(noon.Add(carriedFor + 1)); len(c) > 0 {
		t.Error("remembered for longer than 24 hours")
	}
}

// TestUnseenMachines count until they are seen. What a process has not seen of a call is what started before it ended.
func TestUnseenMachines(t *testing.T) {
	before, after := noon.Add(-time.Minute), noon.Add(time.Minute)
	call := CallMark("gpu", "call")
	for _, tc := range []struct {
		name         string
		record       Record
		made         []Machine
		bought, lost int
	}{
		{"none was seen", Record{}.Expect(call, 2, noon), nil, 2, 2},
		{"one was seen", Record{}.Expect(call, 2, noon), machines("call", before, "a"), 2, 1},
		{"all were seen", Record{}.Expect(call, 2, noon), machines("call", before, "a", "b"), 2, 0},
		{"more were seen", Record{}.Expect(call, 1, noon), machines("call", before, "a", "b"), 2, 0},
		{"of another call", Record{}.Expect(call, 2, noon), machines("other", before, "a"), 3, 2},
		{"one started later: a retry made it", Record{}.Expect(call, 2, noon), machines("call", after, "a"), 3, 2},
		{"no start is known", Record{}.Expect(call, 2, noon), machines("call", time.Time{}, "a"), 3, 2},
		{"the call waits in the cloud's queue", Record{}.Expect(call, 2, time.Time{}), machines("call", after, "a"), 2, 1},
		{"the same, and no start is known", Record{}.Expect(call, 2, time.Time{}), machines("call", time.Time{}, "a"), 2, 1},
		{"two processes ended", Record{}.Expect(call, 1, noon).Expect(call, 1, after), machines("call", before, "a"), 1, 0},
		{"between them one was made", Record{}.Expect(call, 1, before).Expect(call, 1, after), machines("call", noon, "a"), 2, 1},
		{"a call for no machines", Record{}.Expect(call, 0, noon), nil, 0, 0},
		{"a call that failed", Record{}.Expect(call, -1, noon), nil, 0, 0},
		{"an edited record", Record{Unseen: 3, Open: "x " + call + ":many:0 " + call + ":1:then " + call + ":-1:0"},
			machines("call", before, "a"), 4, 3},
	} {
		p := tc.record.With(tc.made)
		if p.Bought() != tc.bought || p.Unseen != tc.lost {
			t.Errorf("%s: %d count and %d are unseen, want %d and %d", tc.name, p.Bought(), p.Unseen, tc.bought, tc.lost)
		}
		if again := p.With(tc.made); again != p {
			t.Errorf("%s: seen once more they change the record to %+v", tc.name, again)
		}
	}
	var p Record
	for range mostOpen + 1 {
		p = p.Expect(call, 1, noon)
	}
	if got := len(p.opened()); got != mostOpen || p.Unseen != mostOpen+1 {
		t.Errorf("%d calls are listed and %d machines count, want %d and %d", got, p.Unseen, mostOpen, mostOpen+1)
	}
}

// TestWhenARequestStops: it may buy twice what it needs, then after each pause once more.
func TestWhenARequestStops(t *testing.T) {
	p := Record{Needed: 4}.With(machines("call", noon, "a", "b", "c", "d", "e", "f", "g", "h"))
	groups := []string{"gpu"}
	if got := p.Most(noon, groups); got != 8 {
		t.Errorf("it may have %d machines, want 8", got)
	}
	p = p.StopAt(noon)
	if want := noon.Add(firstPause + time.Second); p.Stops != 1 || !p.Until.Equal(want) || p.Spent != 8 {
		t.Errorf("it is stopped until %s after %d machines, want %s and 8", p.Until, p.Spent, want)
	}
	if again := p.StopAt(noon.Add(time.Minute)); again != p {
		t.Errorf("a stop during the pause changes it: %+v", again)
	}
	if during, after := p.Most(p.Until.Add(-1), groups), p.Most(p.Until, groups); during != 8 || after != 12 {
		t.Errorf("during the pause it may have %d machines and after it %d, want 8 and 12", during, after)
	}
	p = p.With(machines("call", noon, "i"))
	if later := p.StopAt(noon.Add(time.Minute)); later.Stops != 2 || later.Spent != 9 {
		t.Errorf("a machine that came during the pause is not regarded: %+v", later)
	}
	p = p.StopAt(p.Until)
	if want := noon.Add(firstPause + time.Second).Add(2*firstPause + time.Second); p.Stops != 2 || !p.Until.Equal(want) {
		t.Errorf("the second pause is until %s, want %s", p.Until, want)
	}
	for range 20 {
		p = p.StopAt(p.Until)
	}
	if last := p.StopAt(p.Until); last.Until.Sub(p.Until) != longestPause+time.Second {
		t.Errorf("a later pause lasts %s", last.Until.Sub(p.Until))
	}
	p.Accepted = 100
	if got := p.Most(noon, groups); got != 108 {
		t.Errorf("once 100 machines are accepted it may have %d, want 108", got)
	}
	if bought := (&Record{Earlier: 5, Unseen: 2, Explained: 4}).Bought(); bought != 3 {
		t.Errorf("%d machines are unexplained, want 3", bought)
	}
}

// TestTheReasonOfAStop has what an administrator needs: how many, for how long, and the annotation that ends it.
func TestTheReasonOfAStop(t *testing.T) {
	p := Record{Needed: 4, Earlier: 8, Until: noon}
	got := p.String()
	for _, want := range []string{"8 machines were bought for a gang that needs 4", "2026-01-01T12:00:00Z",
		v1alpha1.AcceptedPurchasesAnnotation + "=8"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if strings.Contains(got, "perhaps") {
		t.Errorf("%q speaks of machines that were never listed", got)
	}
	if p.Unseen = 2; !strings.Contains(p.String(), "10 machines were bought (2 of them perhaps:") {
		t.Errorf("%q lacks the machines that were never listed", p.String())
	}
}

// TestTheRecordIsReadBack from the status, and one that was edited counts as none.
func TestTheRecordIsReadBack(t *testing.T) {
	p := Record{Needed: 4, Stops: 1, Until: noon, Spent: 2, By: Uncalled}.With(machines("call", noon, "a")).FailIn(1, []string{"gpu"})
	r := &provreq.ProvisioningRequest{}
	if got := Of(r); got != (Record{}) {
		t.Errorf("a request without a record has %+v", got)
	}
	r.Status.ProvisioningClassDetails = map[string]provreq.Detail{Detail: provreq.Detail(p.Encode())}
	if diff := cmp.Diff(p, Of(r)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	r.Status.ProvisioningClassDetails[Detail] = `{"needed":4,"machines":7}`
	if got := Of(r); got != (Record{}) {
		t.Errorf("an edited record is read as %+v", got)
	}
	for text, want := range map[string]int{"": 0, "12": 12, "all": 0} {
		r.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AcceptedPurchasesAnnotation: text}}
		if got := AcceptedBy(r); got != want {
			t.Errorf("the annotation %q accepts %d machines, want %d", text, got, want)
		}
	}
}

// TestMarks: a machine that was replaced under its name has another mark.
func TestMarks(t *testing.T) {
	all := map[string]bool{}
	for _, mark := range []string{Mark("gpu", "a", time.Time{}), Mark("gpu", "b", time.Time{}), Mark("cpu", "a", time.Time{}),
		Mark("gpu", "a", noon), Mark("gpu", "a", noon.Add(time.Hour))} {
		all[mark] = true
		if len(mark) != markLength {
			t.Errorf("mark %s has %d characters", mark, len(mark))
		}
	}
	if len(all) != 5 {
		t.Errorf("the marks are %v", all)
	}
}

// TestWhatLaunchesInVainCost is added up by cause.
func TestWhatLaunchesInVainCost(t *testing.T) {
	p := Record{}
	if got := p.SayVain(); got != "" {
		t.Errorf("nothing was in vain: %q", got)
	}
	p = p.Wasted(Vain{Undone, 1, 2_000_000}).Wasted(Vain{"Stockout", 2, 1_500_000}).Wasted(Vain{Undone, 3, 500_000})
	if diff := cmp.Diff([]Vain{{"Stockout", 2, 1_500_000}, {Undone, 4, 2_500_000}}, p.InVain()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	const want = "launches in vain have cost 4.00 USD so far: 1.50 USD for 2 machines (Stockout), 2.50 USD for 4 machines (Undone)"
	if got := p.SayVain(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.Vain += " Edited:x:1 Edited:1:x Edited"
	if got := len(p.InVain()); got != 2 {
		t.Errorf("%d entries are read of %q, want 2", got, p.Vain)
	}
}

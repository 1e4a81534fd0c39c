package page

import (
	"fmt"
	"math"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// held is a decision about a group with so many machines of a purpose, at 36 USD an hour:
// a cent a second.
func held(machines map[purpose]int) *decision {
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}
	g.Spec.PricePerHour = new(resource.MustParse("36"))
	return &decision{
		picture: &view.Picture{Groups: map[string]*v1alpha1.NodeGroup{"h100": g}},
		fleet:   fleet{prices: map[string]float64{"h100": 36}, purposes: map[string]map[purpose]int{"h100": machines}},
	}
}

func TestBillsAddUpWhatMachinesWereFor(t *testing.T) {
	var p past
	one, two := held(map[purpose]int{purposeIncomplete: 4}), held(map[purpose]int{purposeUsed: 3, purposeBooked: 1})
	p.add(noon, one)
	p.add(noon.Add(10*time.Second), one)
	p.add(noon.Add(30*time.Second), two)
	// For a day it saw nothing: that counts for no more than two minutes.
	p.add(noon.Add(24*time.Hour), two)
	got := p.bills(noon.Add(24*time.Hour+10*time.Second), &one.fleet)
	want := map[purpose]bill{
		purposeIncomplete: {seconds: 4*10 + 4*10, usd: 0.8},
		purposeUsed:       {seconds: 3*20 + 3*120, usd: 4.2},
		purposeBooked:     {seconds: 20 + 120, usd: 1.4},
	}
	for _, what := range everyPurpose {
		g, w := got[what], want[what]
		if g.seconds != w.seconds || math.Abs(g.usd-w.usd) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, g, w)
		}
	}
}

func TestThePastIsKeptForADay(t *testing.T) {
	var p past
	d := held(nil)
	for i := range 30 * 60 {
		p.add(noon.Add(time.Duration(i)*time.Minute), d)
	}
	end := noon.Add(30*time.Hour - time.Minute)
	if n := len(p.since(time.Time{})); n != 24*60+1 {
		t.Errorf("%d samples of a minute are kept, want those of a day", n)
	}
	if got := p.since(end.Add(-time.Hour)); len(got) != 61 || !got[0].at.Equal(end.Add(-time.Hour)) {
		t.Errorf("%d samples of the last hour, from %s", len(got), got[0].at)
	}
}

func TestEvidenceHalvesEveryHalfHour(t *testing.T) {
	l := &v1alpha1.Ledger{At: metav1.NewTime(noon), Sizes: []v1alpha1.Evidence{{AtLeast: 1, Got: 3_000_000}, {AtLeast: 8, Failed: 1_000_000}}}
	for after, want := range map[time.Duration]float64{-time.Minute: 4, 0: 4, 30 * time.Minute: 2, time.Hour: 1} {
		if got := evidenceOf(l, noon.Add(after)); math.Abs(got-want) > 1e-9 {
			t.Errorf("after %s it is that of %v launches, want %v", after, got, want)
		}
	}
	if got := evidenceOf(nil, noon); got != 0 {
		t.Errorf("of nothing known it is that of %v launches", got)
	}
}

func TestCurvesHaveFewPoints(t *testing.T) {
	for n, want := range map[int]int{0: 0, 5: 5, 10: 10, 11: 6, 95: 10} {
		got := thinned(make([]sample, n), 10)
		if len(got) != want {
			t.Errorf("of %d samples %d are left, want %d", n, len(got), want)
		}
	}
}

func TestRightsAreToldByWhatTheyAreFor(t *testing.T) {
	got := fmt.Sprint(byPurpose([]view.Right{{Verb: "list", Resource: "nodes"}, {Verb: "list", Resource: "daemonsets.apps"},
		{Verb: "list", Resource: "pods"}, {Verb: "watch", Resource: "nodes"}}))
	want := "[{[list nodes list pods] free capacity and the use of machines are unknown} " +
		"{[list daemonsets.apps] whether pods fit a machine is unknown} {[watch nodes] changes are shown late}]"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

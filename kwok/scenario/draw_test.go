package scenario

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func of(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

// one is an arrival of Jobs of one shape.
func one(count int32, when When, shapes ...Shape) Arrival {
	if len(shapes) == 0 {
		shapes = []Shape{{Pods: 1, RunFor: RunTime{AtLeast: of(time.Minute)}}}
	}
	return Arrival{Name: "job", Count: count, When: when, Shapes: shapes}
}

func TestWhenJobsCome(t *testing.T) {
	for name, tc := range map[string]struct {
		when When
		want []time.Duration
	}{
		"all at once":          {When{}, []time.Duration{0, 0, 0}},
		"all at once, later":   {When{From: of(time.Hour)}, []time.Duration{time.Hour, time.Hour, time.Hour}},
		"one after the other":  {When{Every: of(time.Minute)}, []time.Duration{0, time.Minute, 2 * time.Minute}},
		"later, in their turn": {When{From: of(time.Hour), Every: of(time.Second)}, []time.Duration{time.Hour, time.Hour + time.Second, time.Hour + 2*time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []time.Duration
			for _, s := range (&Scenario{Arrivals: []Arrival{one(3, tc.when)}}).Submissions() {
				got = append(got, s.At)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("times (-want +got):\n%s", diff)
			}
		})
	}
}

// The bounds are six standard deviations: of the mean of 10,000 exponential times 1 %,
// of 10,000 draws of 25 % 43.
func TestWhatIsDrawnHasItsMean(t *testing.T) {
	s := &Scenario{Seed: 7, Arrivals: []Arrival{one(10_000, When{PerHour: 600},
		Shape{Weight: 1, Pods: 1, RunFor: RunTime{AtLeast: of(time.Minute), Jitter: of(time.Minute)}},
		Shape{Weight: 3, Pods: 2, RunFor: RunTime{Mean: of(time.Minute), AtMost: of(time.Hour)}},
	)}}
	jobs := s.Submissions()
	small := 0
	var uniform, exponential time.Duration
	for _, j := range jobs {
		if j.Shape.Pods == 1 {
			small++
			if j.RunFor < time.Minute || j.RunFor > 2*time.Minute {
				t.Fatalf("%s runs for %s, want 1m to 2m", j.Name, j.RunFor)
			}
			uniform += j.RunFor
		} else {
			exponential += j.RunFor
		}
	}
	within(t, "Jobs of the first shape", small, 2500, 260)
	within(t, "mean run of the first shape in ms", int(uniform.Milliseconds())/small, 90_000, 2_100)
	within(t, "mean run of the second shape in ms", int(exponential.Milliseconds())/(10_000-small), 60_000, 4_200)
	within(t, "mean pause in ms", int(jobs[9_999].At.Milliseconds())/9_999, 6_000, 360)
}

func TestADayHasItsBusyHour(t *testing.T) {
	busiest := of(14 * time.Hour)
	s := &Scenario{Arrivals: []Arrival{one(24_000, When{PerHour: 100, BusiestAt: &busiest})}}
	byHour := make([]int, 24)
	for _, j := range s.Submissions() {
		byHour[int(j.At.Hours())%24]++
	}
	// Ten days of 24 × 100: from 13:30 to 14:30 there would be 2,000.
	within(t, "Jobs of the busiest hour", byHour[13], 1970, 270)
	within(t, "Jobs of the quietest hour", byHour[2], 15, 25)
}

func TestTheSeedDecidesAndArrivalsDoNotMeddle(t *testing.T) {
	a := one(50, When{PerHour: 60}, Shape{Pods: 1, RunFor: RunTime{Mean: of(time.Minute)}})
	b := a
	b.Name = "other"
	draw := func(seed uint64, arrivals ...Arrival) (out []string) {
		for _, j := range (&Scenario{Seed: seed, Arrivals: arrivals}).Submissions() {
			if j.Name[:3] == "job" {
				out = append(out, fmt.Sprint(j.Name, j.At, j.RunFor))
			}
		}
		return out
	}
	if !slices.Equal(draw(1, a), draw(1, a)) {
		t.Error("the same seed gave other Jobs")
	}
	if slices.Equal(draw(1, a), draw(2, a)) {
		t.Error("another seed gave the same Jobs")
	}
	if !slices.Equal(draw(1, a), draw(1, a, b)) {
		t.Error("another arrival changed the Jobs of the first")
	}
}

func TestJobsAreDealtOutToTeams(t *testing.T) {
	a := one(4, When{})
	a.Namespace = TeamWord
	s := &Scenario{Teams: &Teams{Name: "team", Count: 3}, Arrivals: []Arrival{a}}
	var got []string
	for _, j := range s.Submissions() {
		got = append(got, j.Namespace)
	}
	if diff := cmp.Diff([]string{"team-000", "team-001", "team-002", "team-000"}, got); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
}

func within(t *testing.T, what string, got, want, off int) {
	t.Helper()
	if got < want-off || got > want+off {
		t.Errorf("%s: %d, want %d ± %d", what, got, want, off)
	}
}

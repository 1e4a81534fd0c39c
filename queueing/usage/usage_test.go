package usage

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestSample(t *testing.T) {
	hourly := Rules{HalfLife: time.Hour, Interval: 5 * time.Minute}
	for name, tc := range map[string]struct {
		rules        Rules
		old, running Amounts
		at           time.Time
		after        time.Duration
		want         Record
	}{
		"after a half-life an idle queue has half": {
			hourly, Amounts{"cpu": 8000}, nil, start, time.Hour, Record{Amounts{"cpu": 4000}, start.Add(time.Hour)},
		},
		"after a half-life a busy queue has half of what it runs": {
			hourly, nil, Amounts{"cpu": 8000}, start, time.Hour, Record{Amounts{"cpu": 4000}, start.Add(time.Hour)},
		},
		"a queue that runs as ever stays as it is": {
			hourly, Amounts{"cpu": 8000}, Amounts{"cpu": 8000}, start, 7 * time.Minute, Record{Amounts{"cpu": 8000}, start.Add(7 * time.Minute)},
		},
		"each resource decays by itself": {
			hourly, Amounts{"cpu": 8000, "gpu": 2000}, Amounts{"gpu": 4000}, start, time.Hour,
			Record{Amounts{"cpu": 4000, "gpu": 3000}, start.Add(time.Hour)},
		},
		"what has decayed to nothing is forgotten": {
			hourly, Amounts{"cpu": 8000}, nil, start, 100 * time.Hour, Record{Amounts{}, start.Add(100 * time.Hour)},
		},
		"part of a GPU counts": {
			hourly, nil, Amounts{"gpu": 1010}, start, 5 * time.Minute, Record{Amounts{"gpu": 57}, start.Add(5 * time.Minute)},
		},
		"without a half-life nothing is remembered": {
			Rules{Interval: time.Minute}, Amounts{"cpu": 8000}, Amounts{"cpu": 8000}, start, time.Minute, Record{Amounts{}, start.Add(time.Minute)},
		},
		"a clock that goes back changes nothing": {
			hourly, Amounts{"cpu": 8000}, nil, start, -time.Hour, Record{Amounts{"cpu": 8000}, start},
		},
		"the first sample only notes the time": {
			hourly, Amounts{"cpu": 8000}, Amounts{"cpu": 2000}, time.Time{}, 0, Record{Amounts{"cpu": 8000}, start},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.rules.Sample(Record{tc.old, tc.at}, tc.running, start.Add(tc.after))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSamplesMayComeAtAnyTime compares many samples with one, for constant usage, and verifies that the record is between its former
// value and the present usage.
func TestSamplesMayComeAtAnyTime(t *testing.T) {
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		rules := Rules{HalfLife: time.Duration(1+r.IntN(100)) * time.Minute, Interval: time.Minute}
		old, running := r.Int64N(1_000_000), r.Int64N(1_000_000)
		one := Record{Amounts{"cpu": old}, start}
		many, now, steps := one, start, 1+r.IntN(20)
		for range steps {
			now = now.Add(time.Duration(r.Int64N(int64(20 * time.Minute))))
			many = rules.Sample(many, Amounts{"cpu": running}, now)
			if v := many.Consumed["cpu"]; v < min(old, running) || v > max(old, running) {
				t.Fatalf("seed %d: %d is not between %d and %d", seed, v, old, running)
			}
		}
		one = rules.Sample(one, Amounts{"cpu": running}, now)
		// Each step may round by a half.
		if off := many.Consumed["cpu"] - one.Consumed["cpu"]; max(off, -off) > int64(steps) {
			t.Fatalf("seed %d: %d in %d steps, %d in one", seed, many.Consumed["cpu"], steps, one.Consumed["cpu"])
		}
	}
}

// TestALongHalfLifeForgetsNoSmallUsage: of a core, five minutes in a week's half-life are a third of a thousandth.
// Samples of it add up to half of what runs, and decay again.
func TestALongHalfLifeForgetsNoSmallUsage(t *testing.T) {
	const week = 7 * 24 * time.Hour
	rules := Rules{HalfLife: week, Interval: 5 * time.Minute}
	core := FromList(corev1.ResourceList{"cpu": resource.MustParse("1")})
	if p := rules.Penalty(core)["cpu"]; p == 0 {
		t.Error("a core that starts has no penalty")
	}
	record, now := Record{At: start}, start
	sampled := func(running Amounts) float64 {
		for range week / rules.Interval {
			now = now.Add(rules.Interval)
			// A restart in between reads the status.
			record = rules.Sample(Record{Consumed: FromList(record.Consumed.List()), At: record.At}, running, now)
		}
		v := record.Consumed.List()["cpu"]
		return v.AsApproximateFloat64()
	}
	if used := sampled(core); math.Abs(used-0.5) > 0.01 {
		t.Errorf("%v cores count after a week, want 0.5", used)
	}
	if used := sampled(nil); math.Abs(used-0.25) > 0.01 {
		t.Errorf("%v cores count after another, want 0.25", used)
	}
}

// TestPenaltyIsWhatTheNextSampleCounts says where the figure comes from.
func TestPenaltyIsWhatTheNextSampleCounts(t *testing.T) {
	rules := Rules{HalfLife: time.Hour, Interval: 5 * time.Minute}
	requests := Amounts{"cpu": 64000, "gpu": 8000}
	sample := rules.Sample(Record{At: start}, requests, start.Add(rules.Interval))
	if diff := cmp.Diff(sample.Consumed, rules.Penalty(requests)); diff != "" {
		t.Errorf("(-sample +penalty):\n%s", diff)
	}
	if got := (Rules{Interval: time.Minute}).Penalty(requests); len(got) != 0 {
		t.Errorf("without a half-life: got %v, want nothing", got)
	}
}

func TestUsage(t *testing.T) {
	weights := map[corev1.ResourceName]float64{"gpu": 100, "memory": 0}
	for name, tc := range map[string]struct {
		weight int64
		parts  []Amounts
		want   float64
	}{
		"nothing used":                          {1000, nil, 0},
		"a core counts one":                     {1000, []Amounts{{"cpu": 2_000_000}}, 2},
		"resources count by their weights":      {1000, []Amounts{{"cpu": 2_000_000, "gpu": 1_000_000, "memory": 1 << 50}}, 102},
		"penalties count as what was consumed":  {1000, []Amounts{{"cpu": 2_000_000}, {"cpu": 500_000}}, 2.5},
		"twice the weight, half the usage":      {2000, []Amounts{{"cpu": 2_000_000}}, 1},
		"a queue without weight comes last":     {0, []Amounts{{"cpu": 2_000_000}}, math.Inf(1)},
		"also when it has not used anything":    {0, nil, math.Inf(1)},
		"the largest amounts are only very big": {1000, []Amounts{{"cpu": math.MaxInt64}, {"cpu": math.MaxInt64}}, 2 * float64(math.MaxInt64) / 1e6},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (Rules{Weights: weights}).Usage(tc.weight, tc.parts...); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestRulesFrom(t *testing.T) {
	got := RulesFrom(&kueueconfig.AdmissionFairSharing{UsageHalfLifeTime: metav1.Duration{Duration: time.Hour}})
	if diff := cmp.Diff(Rules{HalfLife: time.Hour, Interval: 5 * time.Minute}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got = RulesFrom(&kueueconfig.AdmissionFairSharing{UsageSamplingInterval: metav1.Duration{Duration: time.Minute}})
	if got.Interval != time.Minute {
		t.Errorf("interval is %v, want 1m", got.Interval)
	}
}

func TestListsComeBack(t *testing.T) {
	list := corev1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("3Gi"), "gpu": resource.MustParse("56m")}
	want := Amounts{"cpu": 1_500_000, "memory": 3 << 30 * 1000, "gpu": 56_000}
	if diff := cmp.Diff(want, FromList(list)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, FromList(FromList(list).List())); diff != "" {
		t.Errorf("there and back (-want +got):\n%s", diff)
	}
}

package loop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/workload"
)

// forecasts are the metrics of forecasts that have one value.
func (w *world) forecasts() (lines []string) {
	w.t.Helper()
	for _, line := range linesOf(w.t, w.loop.metrics) {
		if strings.HasPrefix(line, "muster_forecast") && !strings.Contains(line, "duration") {
			lines = append(lines, strings.TrimPrefix(line, "muster_forecast_"))
		}
	}
	return lines
}

// made is how many forecasts were made.
func (w *world) made() (n int) {
	w.t.Helper()
	for _, line := range linesOf(w.t, w.loop.metrics) {
		_, _ = fmt.Sscanf(line, "muster_forecast_duration_seconds_count %d", &n)
	}
	return n
}

// expected is when half of the Workloads in the queue are expected to have started.
func (w *world) expected() time.Time {
	w.t.Helper()
	var at float64
	for _, line := range w.forecasts() {
		_, _ = fmt.Sscanf(line, `start_timestamp_seconds{cluster_queue="team",workloads="half"} %g`, &at)
	}
	return time.Unix(int64(at), 0).UTC()
}

// end has the job of a Workload end now.
func (w *world) end(name string) {
	w.t.Helper()
	over := w.workload(name)
	apimeta.SetStatusCondition(&over.Status.Conditions, metav1.Condition{
		Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: "Succeeded", LastTransitionTime: metav1.NewTime(w.now),
	})
	if err := w.api.Status().Update(context.Background(), over); err != nil {
		w.t.Fatal(err)
	}
	w.inform()
}

// hourly runs for an hour, which is its maximum execution time.
func hourly(name string) *kueue.Workload {
	w := workloadOf(name, "1")
	w.Spec.MaximumExecutionTimeSeconds = new(int32(3600))
	return w
}

// TestForecastsAreShownAndComparedWithTheTruth lives through a day of three jobs of one
// hour each in a queue with room for one.
func TestForecastsAreShownAndComparedWithTheTruth(t *testing.T) {
	at := func(d time.Duration) string { return fmt.Sprint(float64(start.Add(d).Unix())) }
	expect := func(w *world, when string, want ...string) {
		t.Helper()
		if got := w.forecasts(); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	w := newWorld(t, nil, append(queueOf("1"), hourly("a"), hourly("b"), hourly("c"))...)
	expect(w, "before the first forecast", "error_ratio NaN", "followed_workloads 0", "starts 0", "within_range_ratio NaN")
	w.run(time.Second)
	if got := w.loop.forecast.account.Tracked(); got != 0 {
		t.Errorf("%d Workloads are followed that have just come and may be about to start", got)
	}
	w.run(2 * time.Minute)
	expect(w, "while a runs", "error_ratio NaN", "followed_workloads 2",
		`start_timestamp_seconds{cluster_queue="team",workloads="all"} `+at(2*time.Hour),
		`start_timestamp_seconds{cluster_queue="team",workloads="half"} `+at(time.Hour), "starts 0", "within_range_ratio NaN")

	w.run(time.Hour - w.now.Sub(start))
	w.end("a")
	w.run(2 * time.Minute)
	expect(w, "when a has ended as it was to", "error_ratio 0", "followed_workloads 1",
		`start_timestamp_seconds{cluster_queue="team",workloads="all"} `+at(2*time.Hour),
		`start_timestamp_seconds{cluster_queue="team",workloads="half"} `+at(2*time.Hour), "starts 1", "within_range_ratio 1")

	w.run(90*time.Minute - w.now.Sub(start))
	w.end("b")
	w.run(2 * time.Minute)
	lines := w.forecasts()
	if !slices.Contains(lines, "starts 2") || !slices.Contains(lines, "within_range_ratio 0.5") ||
		!slices.Contains(lines, "followed_workloads 0") {
		t.Errorf("when b has ended half an hour early:\n%s", strings.Join(lines, "\n"))
	}
	if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "start_") }) {
		t.Errorf("nothing waits, and yet a start is expected:\n%s", strings.Join(lines, "\n"))
	}
}

// TestForecastsExpectArrivals: Workloads of a higher priority have arrived every ten minutes, so the forecast for a pending Workload
// expects more of them.
func TestForecastsExpectArrivals(t *testing.T) {
	objects := append(queueOf("1"), hourly("a"), hourly("b"))
	for i := range 60 {
		w := hourly(fmt.Sprint("past-", i))
		w.CreationTimestamp = metav1.NewTime(start.Add(-time.Duration(i) * 10 * time.Minute))
		w.Spec.Priority = new(int32(1))
		w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: "Succeeded",
			LastTransitionTime: metav1.NewTime(start)}}
		objects = append(objects, w)
	}
	w := newWorld(t, nil, objects...)
	w.run(2 * time.Minute)
	if at, soonest := w.expected(), start.Add(2*time.Hour); at.Before(soonest) {
		t.Errorf("b is expected at %s, want it after %s: others come before it", at, soonest)
	}
}

// TestForecastsKnowHowLongLaunchesTake: those of the group took an hour, and one has begun.
func TestForecastsKnowHowLongLaunchesTake(t *testing.T) {
	launch := func(r *autoscaling.ProvisioningRequest, phase transaction.AttemptPhase, began time.Time) {
		a := transaction.Attempt{Number: 1, Phase: phase, Started: began, Launches: []planner.GroupCount{{Group: "pool", Count: 1}}}
		r.Status.ProvisioningClassDetails = map[string]autoscaling.Detail{transaction.AttemptDetail: autoscaling.Detail(a.Encode())}
	}
	objects := append(queueOf("4", capacityRule), workloadOf("train", "4"))
	for _, name := range []string{"a", "b", "c"} {
		r := &autoscaling.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
		launch(r, transaction.Done, start.Add(-2*time.Hour))
		r.Status.Conditions = []metav1.Condition{{Type: autoscaling.Provisioned, Status: metav1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(start.Add(-time.Hour))}}
		objects = append(objects, r)
	}
	w := newWorld(t, nil, objects...)
	w.run(time.Second)
	r := &autoscaling.ProvisioningRequest{}
	w.get("train-capacity-1", r)
	launch(r, transaction.Launching, w.now)
	r.Status.Conditions = []metav1.Condition{{Type: autoscaling.Accepted, Status: metav1.ConditionTrue, Reason: "Accepted",
		LastTransitionTime: metav1.NewTime(w.now)}}
	if err := w.api.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	w.run(2 * time.Minute)
	if at, want := w.expected(), start.Add(time.Hour); at.Sub(want).Abs() > time.Minute {
		t.Errorf("train is expected at %s, want about %s", at, want)
	}
}

// TestForecastsCostLittle: there is one a minute, and it rests for 99 times as long as it
// works, after every step of it: one that takes long is done late.
func TestForecastsCostLittle(t *testing.T) {
	for name, tt := range map[string]struct {
		// step is how much time passes between two reads of the clock.
		step time.Duration
		// least and most forecasts are made in an hour.
		least, most int
	}{
		"a forecast that takes no time":       {0, 60, 60},
		"a forecast whose steps take seconds": {3 * time.Second, 1, 10},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, append(queueOf("1"), hourly("a"), hourly("b"))...)
			var worked, rested, longest, since time.Duration
			w.loop.rest = func(d time.Duration) {
				w.now = w.now.Add(d)
				rested, since = rested+d, 0
			}
			w.loop.beside = func(make func() writes.Done) {
				now := w.loop.now
				w.loop.now = func() time.Time {
					w.now = w.now.Add(tt.step)
					worked, since = worked+tt.step, since+tt.step
					longest = max(longest, since)
					return w.now
				}
				done := make()
				w.loop.now = now
				done(w.now)
			}
			w.run(time.Hour)
			if got := w.made(); got < tt.least || got > tt.most {
				t.Errorf("%d forecasts were made in an hour, want %d to %d", got, tt.least, tt.most)
			}
			// A rest reads the clock twice.
			if longest > 2*tt.step || rested < 40*worked {
				t.Errorf("forecasts worked for %s and rested for %s, and for %s not at all", worked, rested, longest)
			}
		})
	}
	t.Run("nothing waits", func(t *testing.T) {
		w := newWorld(t, nil, append(queueOf("1"), hourly("a"))...)
		w.run(time.Second)
		before := w.made()
		w.run(time.Hour)
		if got := w.made() - before; got != 0 {
			t.Errorf("%d forecasts were made once a runs", got)
		}
	})
}

// TestAStartDuringAForecast: the Workload gets no estimate, so none is followed.
func TestAStartDuringAForecast(t *testing.T) {
	w := newWorld(t, nil, append(queueOf("1"), hourly("a"), hourly("b"), hourly("c"))...)
	var slow writes.Done
	w.loop.beside = func(make func() writes.Done) { slow = make() }
	w.run(20 * time.Second)
	w.loop.forecast = forecaster{}
	w.run(time.Minute)
	if slow == nil {
		t.Fatal("no forecast was made")
	}
	w.end("a")
	w.run(time.Second)
	slow(w.now)
	if got := w.loop.forecast.account.Tracked(); got != 1 {
		t.Errorf("%d Workloads are followed, want c alone: b has started", got)
	}
}

// TestEstimatesOfRemovedWorkloadsAreDropped: the estimate of a Workload that is deleted or
// deactivated can no longer come true.
func TestEstimatesOfRemovedWorkloadsAreDropped(t *testing.T) {
	w := newWorld(t, nil, append(queueOf("1"), hourly("a"), hourly("b"), hourly("c"), hourly("d"))...)
	w.run(2 * time.Minute)
	if got := w.loop.forecast.account.Tracked(); got != 3 {
		t.Fatalf("%d Workloads are followed, want 3", got)
	}
	if err := w.api.Delete(t.Context(), w.workload("b")); err != nil {
		t.Fatal(err)
	}
	c := w.workload("c")
	c.Spec.Active = new(false)
	if err := w.api.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.run(2 * time.Second)
	if got := w.loop.forecast.account.Tracked(); got != 1 {
		t.Errorf("%d Workloads are followed, want d alone", got)
	}
}

// TestAForecastThatFails ends forecasts, and nothing else.
func TestAForecastThatFails(t *testing.T) {
	w := newWorld(t, nil, append(queueOf("1"), hourly("a"), hourly("b"))...)
	w.run(2 * time.Minute)
	before := w.made()
	w.loop.beside = func(make func() writes.Done) {
		now := w.loop.now
		w.loop.now = func() time.Time { panic("something unforeseen") }
		done := make()
		w.loop.now = now
		done(w.now)
	}
	w.run(5 * time.Minute)
	if got := w.made(); got != before {
		t.Errorf("%d forecasts were made after one had failed", got-before)
	}
	if lines := w.forecasts(); slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "start_") }) {
		t.Errorf("an old forecast is still shown:\n%s", strings.Join(lines, "\n"))
	}
	w.end("a")
	w.run(time.Second)
	if !workload.IsAdmitted(w.workload("b")) {
		t.Error("b does not start")
	}
}

// TestForecastsGoOnBesideTheLoop: the loop by itself makes one, and hears of it.
func TestForecastsGoOnBesideTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, append(queueOf("1"), hourly("a"), hourly("b"))...)
		w.loop.now = time.Now
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); w.loop.Run(ctx) }()
		<-time.After(3*time.Minute + time.Second)
		synctest.Wait()
		if got := w.made(); got != 4 {
			t.Errorf("%d forecasts were made, want one at first and one a minute", got)
		}
		stop()
		<-over
	})
}

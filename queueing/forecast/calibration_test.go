package forecast

import (
	"fmt"
	"testing"
	"time"
)

// TestRangesLearn estimates a range from one to two hours for 100 jobs, starts each after so many minutes, and checks the calibrated
// range of the next job.
func TestRangesLearn(t *testing.T) {
	after := func(d time.Duration) time.Time { return noon.Add(d) }
	estimate := Estimate{Start: after(90 * time.Minute), Early: after(time.Hour), Late: after(2 * time.Hour)}
	for name, tt := range map[string]struct {
		starts   int
		estimate Estimate
		takes    func(i int) time.Duration
		want     string
	}{
		"nothing is known yet": {0, estimate, nil, "53m54s to 2h12m6s"},
		"too few starts say nothing": {
			minErrors - 1, estimate, func(int) time.Duration { return 10 * time.Hour }, "53m54s to 2h12m6s"},
		"starts in the range do not narrow it": {
			100, estimate, func(int) time.Duration { return 90 * time.Minute }, "53m54s to 2h12m6s"},
		"when a tenth starts late the range ends with the first of them": {
			100, estimate, func(i int) time.Duration {
				if i%10 == 0 {
					return 4 * time.Hour
				}
				return 90 * time.Minute
			}, "53m54s to 4h0m2s"},
		"when all start early it begins with the tenth of them": {
			100, estimate, func(i int) time.Duration { return time.Duration(1+i/10) * time.Minute }, "57s to 2h12m6s"},
		"a range that is open stays open": {
			100, Estimate{Early: after(time.Hour)}, func(int) time.Duration { return 30 * time.Minute }, "29m59s to -"},
		"what should start at once may start a minute later": {
			0, Estimate{Start: noon, Early: noon, Late: noon}, nil, "0s to 6s"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &AccuracyTracker{}
			for i := range tt.starts {
				w := job(fmt.Sprint(i), 1)
				a.Record(w.UID, tt.estimate, noon)
				a.Started(w.UID, after(tt.takes(i)))
			}
			e := a.Calibrated(tt.estimate, noon)
			late := "-"
			if !e.Late.IsZero() {
				late = e.Late.Sub(noon).Round(time.Second).String()
			}
			if got := fmt.Sprintf("%s to %s", e.Early.Sub(noon).Round(time.Second), late); got != tt.want {
				t.Errorf("the range is %s, want %s", got, tt.want)
			}
			if e.Start != tt.estimate.Start {
				t.Errorf("the expected start is %s, want it as it was", e.Start)
			}
		})
	}
}

// TestAccuracyIsOfPublishedEstimates: a start within the stretched range counts as foreseen,
// and goes on stretching it.
func TestAccuracyIsOfPublishedEstimates(t *testing.T) {
	a := &AccuracyTracker{}
	e := Estimate{Start: noon.Add(time.Hour), Early: noon.Add(time.Hour), Late: noon.Add(time.Hour)}
	for i := range 200 {
		w := job(fmt.Sprint(i), 1)
		a.Record(w.UID, e, noon)
		a.Started(w.UID, noon.Add(2*time.Hour))
	}
	if got := a.Accuracy().Within; got != (200-minErrors)*1000/200 {
		t.Errorf("%d thousandths lay in the range, want all but the first %d", got, minErrors)
	}
}

package dispatch

import (
	"strings"
	"testing"
	"time"
)

func TestParseFence(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "1m": time.Minute, "10m": 10 * time.Minute, "24h": 24 * time.Hour} {
		if got, err := ParseFence(text); err != nil || got != want {
			t.Errorf("%q is %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"59s", "25h", "-10m", "ten", "10", "0"} {
		if got, err := ParseFence(text); err == nil || got != 0 ||
			!strings.Contains(err.Error(), "give a duration from 1m0s to 24h0m0s, such as 10m, or remove it") {
			t.Errorf("%q is %s, %v", text, got, err)
		}
	}
}

// TestSilence: when a copy with a fence of 2 min is stopped, by the questions of its worker's processes and the answers.
func TestSilence(t *testing.T) {
	const fence = 2 * time.Minute
	for name, c := range map[string]struct {
		// question and answer are on the Lease when the process p2 starts. Answers arrive at these seconds.
		question, answer string
		answers          map[int]string
		stopped          time.Duration
	}{
		"never heard": {stopped: fence},
		"heard once":  {answers: map[int]string{12: "p2/10s/0s"}, stopped: fence + 10*time.Second},
		"an answer that is late counts from its question": {answers: map[int]string{100: "p2/10s/0s"}, stopped: fence + 10*time.Second},
		"an older answer that arrives later counts not":   {answers: map[int]string{30: "p2/20s/0s", 60: "p2/10s/0s"}, stopped: fence + 20*time.Second},
		"an answer to an earlier process counts not":      {answers: map[int]string{30: "p1/500s/0s"}, stopped: fence},
		"nonsense counts not":                             {answers: map[int]string{30: "yes", 31: "p2/-5s/0s", 32: "p2/x/y"}, stopped: fence},
		"the silence before is counted in":                {question: "p1/90s/80s", answer: "p1/10s/0s", stopped: 40 * time.Second},
		"not if its last question was answered":           {question: "p1/90s/80s", answer: "p1/90s/80s", stopped: fence},
		"it has time to answer a new process":             {question: "p1/900s/890s", answer: "p1/10s/0s", stopped: freshGrace},
		"and is forgiven if it does":                      {question: "p1/900s/890s", answer: "p1/10s/0s", answers: map[int]string{20: "p2/10s/900s"}, stopped: fence + 10*time.Second},
		"nonsense on the Lease is no silence":             {question: "?", stopped: fence},
	} {
		s := NewSilence("p2", c.question, c.answer, noon)
		for now := 0; ; now++ {
			at := noon.Add(time.Duration(now) * time.Second)
			if text := c.answers[now]; text != "" {
				s.Hear(text)
			}
			if s.Over(fence, at) {
				if got := at.Sub(noon); got != c.stopped {
					t.Errorf("%s: stopped after %s, want %s", name, got, c.stopped)
				}
				break
			}
		}
	}
}

func TestAWorkerWritesAQuestionEveryTenSeconds(t *testing.T) {
	s := NewSilence("p2", "p1/90s/80s", "p1/10s/0s", noon)
	var got []string
	for now := range 25 {
		at := noon.Add(time.Duration(now) * time.Second)
		q := s.Question(at)
		if q == "" {
			continue
		}
		got = append(got, q)
		if now != 10 { // the write fails, and is tried again
			s.Written(at)
		}
		if now == 11 {
			s.Hear(q)
		}
	}
	if want := "p2/0s/1m20s p2/10s/1m30s p2/11s/1m31s p2/21s/10s"; strings.Join(got, " ") != want {
		t.Errorf("it asks %q, want %q", got, want)
	}
}

func TestAManagerAnswersAQuestionOnce(t *testing.T) {
	r := NewRenewal(noon)
	for i, c := range []struct {
		after            time.Duration
		question         string
		answers, counted bool
		silent           time.Duration
	}{
		{0, "", false, false, 0},
		{time.Minute, "", false, false, time.Minute},
		{time.Minute, "p/0s/0s", true, true, 0},
		{69 * time.Second, "p/0s/0s", false, true, 9 * time.Second},
		{70 * time.Second, "p/10s/0s", true, true, 0},
		{2 * time.Minute, "p/10s/0s", false, false, 50 * time.Second},
	} {
		now := noon.Add(c.after)
		if answers := r.Answer(c.question, now); answers != c.answers || r.Listened(now) != c.counted || r.Silent(now) != c.silent {
			t.Errorf("row %d: answers %t, counted %t, silent for %s; want %+v", i, answers, r.Listened(now), r.Silent(now), c)
		}
	}
}

// TestTheManagerWaitsLongerThanAnyWorker with a fence, whose clock may drift, whose process may restart, and whose pods take time to
// stop.
func TestTheManagerWaitsLongerThanAnyWorker(t *testing.T) {
	for fence, want := range map[time.Duration]time.Duration{
		time.Minute:      4*time.Minute + 31200*time.Millisecond,
		10 * time.Minute: 13*time.Minute + 42*time.Second,
	} {
		f := &Fence{Cluster: "a"}
		f.After.Duration = fence
		if got := f.Stops(30 * time.Second); got != want {
			t.Errorf("a fence of %s is over after %s, want %s", fence, got, want)
		}
	}
}

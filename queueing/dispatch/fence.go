package dispatch

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The fence lets a job go on elsewhere though its worker cannot be reached: the worker stops its copy once the manager has been silent
// for as long as the copy says, and the manager waits until that must have happened. Both count by monotonic clocks of their own, and
// nothing that is late makes the worker wait longer: the worker writes questions on a Lease, the manager answers them, and silence is
// counted from when the question was asked that was answered last.
//
//	worker   question ───────────────┬── fence ──▶ copy is deactivated ── pods stop ──▶
//	manager         answer ──────────┴── fence ──── margin ───────────────────────────▶ the job may go on elsewhere

// FenceAnnotation of a MultiKueueCluster, and of the copies made there since, is for how long the manager may be silent before the
// worker stops its copies.
const FenceAnnotation = "muster.dev/fence"

// Annotations of the Lease of a manager in a worker.
const (
	// QuestionAnnotation is the newest Question of the worker.
	QuestionAnnotation = "muster.dev/question"
	// AnswerAnnotation is the Question that the manager has answered.
	AnswerAnnotation = "muster.dev/answer"
)

const (
	// AskEvery is how often a worker asks whether its managers are there.
	AskEvery = 10 * time.Second
	// shortestFence is a few questions long; longestFence is as long as a fence can be of use.
	shortestFence = time.Minute
	longestFence  = 24 * time.Hour
	// freshGrace is what a process of the worker that has just begun gives the manager at least to answer it.
	freshGrace = 30 * time.Second
	// fenceMargin is what the manager waits in addition to the fence and the time that pods have to stop: for processes of the worker
	// that follow each other, each of which goes on from its predecessor's last question, and for the calls that stop the job.
	fenceMargin = 3 * time.Minute
	// driftShare of the fence is what two clocks may differ by at its end.
	driftShare = 50
)

// LeaseName is that of the Lease in a worker by which the manager of the origin shows that it is there.
func LeaseName(origin string) string { return "muster-manager-" + origin }

// ParseFence reads for how long a manager may be silent; zero is for ever.
func ParseFence(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < shortestFence || d > longestFence {
		return 0, fmt.Errorf("annotation %s is %q: give a duration from %s to %s, such as 10m, or remove it", FenceAnnotation, text,
			shortestFence, longestFence)
	}
	return d, nil
}

// Fence is by which a copy in a cluster stops itself.
type Fence struct {
	Cluster string `json:"cluster"`
	// After is for how long the manager is silent by then.
	After metav1.Duration `json:"after"`
}

// Stops is how long after the last answer to the cluster all that the fence holds has stopped, if pods have as long as grace to stop.
func (f *Fence) Stops(grace time.Duration) time.Duration {
	return f.After.Duration + f.After.Duration/driftShare + fenceMargin + grace
}

// fence of the copy that the record lets be made in the cluster; zero for none.
func (r *Record) fence(cluster string) time.Duration {
	if r.Fence == nil || r.Fence.Cluster != cluster {
		return 0
	}
	return r.Fence.After.Duration
}

// FenceIn is that of the copy in the cluster, as the annotation has it; empty for none.
func (r *Record) FenceIn(cluster string) string {
	if f := r.fence(cluster); f > 0 {
		return f.String()
	}
	return ""
}

// question is what a process of a worker asks.
type question struct {
	process string
	// after is how long after its beginning it asks.
	after time.Duration
	// silent is for how long the manager had not been heard.
	silent time.Duration
}

func (q question) String() string { return fmt.Sprintf("%s/%s/%s", q.process, q.after, q.silent) }

func parseQuestion(text string) (q question, ok bool) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return q, false
	}
	after, err := time.ParseDuration(parts[1])
	silent, wrong := time.ParseDuration(parts[2])
	return question{parts[0], after, silent}, err == nil && wrong == nil && after >= 0 && silent >= 0
}

// Silence is what a process of a worker knows of one manager.
type Silence struct {
	process string
	began   time.Time
	// before is for how long the manager had been silent when the process began.
	before time.Duration
	// heard is when the question was asked that was answered last; zero while none was.
	heard time.Time
	asked time.Time
}

// NewSilence begins to count, from the last question on the manager's Lease and its answer, which an earlier process has asked; both
// are empty if there are none.
func NewSilence(process, asked, answer string, now time.Time) *Silence {
	s := &Silence{process: process, began: now}
	if q, ok := parseQuestion(asked); ok && answer != asked {
		s.before = q.silent
	}
	return s
}

// Hear takes in the answer that is on the Lease.
func (s *Silence) Hear(answer string) {
	if q, ok := parseQuestion(answer); ok && q.process == s.process {
		if at := s.began.Add(q.after); at.After(s.heard) {
			s.heard = at
		}
	}
}

// Ask is the next question, once it is time for it; empty before.
func (s *Silence) Ask(now time.Time) string {
	if !s.asked.IsZero() && now.Sub(s.asked) < AskEvery {
		return ""
	}
	return question{s.process, now.Sub(s.began), s.lasts(now)}.String()
}

// Asked remembers that the question has been written.
func (s *Silence) Asked(now time.Time) { s.asked = now }

// lasts is for how long the manager has been silent.
func (s *Silence) lasts(now time.Time) time.Duration {
	if s.heard.IsZero() {
		return s.before + now.Sub(s.began)
	}
	return now.Sub(s.heard)
}

// Over reports whether a copy with the fence is to be stopped.
func (s *Silence) Over(fence time.Duration, now time.Time) bool {
	return s.lasts(now) >= fence && now.Sub(s.began) >= freshGrace
}

// Renewal is what a process of a manager knows of its Lease in one worker.
type Renewal struct {
	question string
	// since is when the question was seen first.
	since time.Time
	// sent is when the last answer was sent, at the latest.
	sent time.Time
}

// NewRenewal begins: an earlier process may have answered until now.
func NewRenewal(now time.Time) Renewal { return Renewal{sent: now} }

// Answer says whether the question, read from the worker just now, is to be answered. It counts as answered from then on: the answer may
// arrive, whether it is known to or not.
func (r *Renewal) Answer(question string, now time.Time) bool {
	if question == "" || question == r.question {
		return false
	}
	r.question, r.since, r.sent = question, now, now
	return true
}

// Listened reports whether the worker counts the manager's silence, by the age of its last question.
func (r *Renewal) Listened(now time.Time) bool {
	return r.question != "" && now.Sub(r.since) < 3*AskEvery
}

// Silent is for how long no answer has been sent.
func (r *Renewal) Silent(now time.Time) time.Duration { return now.Sub(r.sent) }

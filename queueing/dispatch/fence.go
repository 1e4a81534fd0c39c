package dispatch

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A fence lets a job start in another cluster although its worker cannot be reached: the worker stops the copy once the manager has
// been silent for the time that the copy sets, and the manager waits until that must have happened. Each counts by its own monotonic
// clock. The worker writes questions on a Lease and the manager answers them. Silence counts from the time of the last question that
// was answered, so a late answer does not make the worker wait longer.
//
//	worker   question ───────────────┬── fence ──▶ copy is deactivated ── pods stop ──▶
//	manager         answer ──────────┴── fence ──── margin ───────────────────────────▶ the job may go on elsewhere

// FenceAnnotation of a MultiKueueCluster, and of copies that are created while it is set, is how long the manager may be silent before
// the worker stops its copies.
const FenceAnnotation = "muster.dev/fence"

// Annotations of the Lease of a manager in a worker.
const (
	// QuestionAnnotation has the worker's newest Question.
	QuestionAnnotation = "muster.dev/question"
	// AnswerAnnotation has the Question that the manager answered last.
	AnswerAnnotation = "muster.dev/answer"
)

const (
	// AskEvery is how often a worker writes a question for each manager.
	AskEvery = 10 * time.Second
	// shortestFence lasts for a few questions. longestFence is the longest that is of use.
	shortestFence = time.Minute
	longestFence  = 24 * time.Hour
	// freshGrace is the least time that a new process of the worker waits for an answer.
	freshGrace = 30 * time.Second
	// fenceMargin is how much longer the manager waits than the fence and the grace period of the pods. It covers the calls that stop the
	// job, and processes of the worker that follow each other, since each continues from its predecessor's last question.
	fenceMargin = 3 * time.Minute
	// driftShare: two clocks may differ by one part in driftShare of the fence at its end.
	driftShare = 50
)

// LeaseName returns the name of the Lease in a worker by which the manager with that origin shows that it runs.
func LeaseName(origin string) string { return "muster-manager-" + origin }

// ParseFence parses how long a manager may be silent. Zero means forever.
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

// Fence is the fence of the copy in a cluster.
type Fence struct {
	Cluster string `json:"cluster"`
	// After is how long the manager has been silent when the copy is stopped.
	After metav1.Duration `json:"after"`
}

// Stops returns how long after the last answer all pods of the copy have stopped, with the grace period of the pods.
func (f *Fence) Stops(grace time.Duration) time.Duration {
	return f.After.Duration + f.After.Duration/driftShare + fenceMargin + grace
}

// fence returns the fence of a copy that may be created in the cluster, or zero.
func (r *Record) fence(cluster string) time.Duration {
	if r.Fence == nil || r.Fence.Cluster != cluster {
		return 0
	}
	return r.Fence.After.Duration
}

// FenceIn returns the annotation of the copy in the cluster, or "".
func (r *Record) FenceIn(cluster string) string {
	if f := r.fence(cluster); f > 0 {
		return f.String()
	}
	return ""
}

// question is a question that a process of a worker writes.
type question struct {
	process string
	// after is the time from the start of the process to the question.
	after time.Duration
	// silent is how long the manager had been silent by then.
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

// Silence is what a process of a worker has observed of one manager.
type Silence struct {
	process string
	began   time.Time
	// before is how long the manager had been silent when the process started.
	before time.Duration
	// heard is when the last answered question was written. It is zero until one is answered.
	heard     time.Time
	writtenAt time.Time
}

// NewSilence starts to count from the question and the answer that an earlier process left on the manager's Lease. Both are empty if
// there are none.
func NewSilence(process, asked, answer string, now time.Time) *Silence {
	s := &Silence{process: process, began: now}
	if q, ok := parseQuestion(asked); ok && answer != asked {
		s.before = q.silent
	}
	return s
}

// Hear takes the answer that was read from the Lease.
func (s *Silence) Hear(answer string) {
	if q, ok := parseQuestion(answer); ok && q.process == s.process {
		if at := s.began.Add(q.after); at.After(s.heard) {
			s.heard = at
		}
	}
}

// Question returns the next question, or "" before it is due.
func (s *Silence) Question(now time.Time) string {
	if !s.writtenAt.IsZero() && now.Sub(s.writtenAt) < AskEvery {
		return ""
	}
	return question{s.process, now.Sub(s.began), s.lasts(now)}.String()
}

// Written records that the question was written.
func (s *Silence) Written(now time.Time) { s.writtenAt = now }

// lasts returns how long the manager has been silent.
func (s *Silence) lasts(now time.Time) time.Duration {
	if s.heard.IsZero() {
		return s.before + now.Sub(s.began)
	}
	return now.Sub(s.heard)
}

// Over reports whether a copy with the fence must be stopped.
func (s *Silence) Over(fence time.Duration, now time.Time) bool {
	return s.lasts(now) >= fence && now.Sub(s.began) >= freshGrace
}

// Renewal is what a process of a manager has observed of its Lease in one worker.
type Renewal struct {
	question string
	// since is when the question was first read.
	since time.Time
	// sent is when the last answer was sent, at the latest.
	sent time.Time
}

// NewRenewal returns the renewal of a new process. An earlier process may have answered until now.
func NewRenewal(now time.Time) Renewal { return Renewal{sent: now} }

// Answer reports whether the question, just read from the worker, must be answered. It counts as answered from then on, since the answer
// may arrive even if its response is lost.
func (r *Renewal) Answer(question string, now time.Time) bool {
	if question == "" || question == r.question {
		return false
	}
	r.question, r.since, r.sent = question, now, now
	return true
}

// Listened reports whether the worker counts the silence of the manager: its last question is recent.
func (r *Renewal) Listened(now time.Time) bool {
	return r.question != "" && now.Sub(r.since) < 3*AskEvery
}

// Silent returns how long no answer has been sent.
func (r *Renewal) Silent(now time.Time) time.Duration { return now.Sub(r.sent) }

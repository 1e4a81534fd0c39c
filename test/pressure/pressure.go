// Package pressure measures how long the processes of a test had to wait for a processor. Every bound of a test is a bound on the
// time that the cluster had, not on the time of the wall: on a machine that is half as fast, or busy with something else, a Meter
// reports the difference, and the bound is longer by it.
package pressure

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// interval is the time between two samples of a running Meter.
	interval = 500 * time.Millisecond
	// mostLost bounds the part of an interval that counts as lost, so that a bound becomes ten times as long at most.
	mostLost = 0.9
)

// Meter adds up the time that a process and its descendants lost while they waited for a processor.
type Meter struct {
	proc fs.FS
	pid  int

	mu sync.Mutex
	// threads are the last sample, by thread ID, taken at sampled.
	threads map[string]usage
	sampled time.Time
	began   time.Time
	lost    time.Duration
}

// usage is the time for which a thread ran, and for which it could have run and waited for a processor instead. The time for which
// a CPU quota stops a thread is part of the latter.
type usage struct{ ran, waited time.Duration }

// New returns a Meter of this process and its descendants, the components of a sandbox among them. Systems other than Linux do not
// report the waiting time of a thread: nothing is lost there.
func New() *Meter { return newMeter(os.DirFS("/proc"), os.Getpid()) }

func newMeter(proc fs.FS, pid int) *Meter {
	return &Meter{proc: proc, pid: pid, threads: map[string]usage{}}
}

// machine is the Meter that Shared returns.
var machine = sync.OnceValue(func() *Meter {
	m := New()
	go m.Run(context.Background())
	return m
})

// Shared returns a Meter of this process that runs for as long as the process does.
func Shared() *Meter { return machine() }

// Run takes samples until ctx is done.
func (m *Meter) Run(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		m.sample(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Lost is the time that was lost until the last sample.
func (m *Meter) Lost() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost
}

// WithTimeout is context.WithTimeout for the time that this process and its descendants had. The cause of a context that has timed out
// says how long that was by the clock.
func WithTimeout(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return Shared().withTimeout(ctx, most)
}

func (m *Meter) withTimeout(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	began, before := time.Now(), m.Lost()
	go func() {
		for {
			lost := m.Lost() - before
			left := most + lost - time.Since(began)
			if left <= 0 {
				cancel(expired{most, time.Since(began), lost})
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(left):
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// expired is the cause of a context that has timed out.
type expired struct{ most, elapsed, lost time.Duration }

func (e expired) Error() string {
	if lost := e.lost.Round(time.Second); lost > 0 {
		return fmt.Sprintf("not within %s (%s by the clock, %s of it lost waiting for a processor)", e.most, e.elapsed.Round(time.Second), lost)
	}
	return fmt.Sprintf("not within %s", e.most)
}

// Is makes it a context.DeadlineExceeded.
func (expired) Is(target error) bool { return target == context.DeadlineExceeded }

// String reports the time that was lost of the time since the first sample.
func (m *Meter) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	total := m.sampled.Sub(m.began)
	percent := 0
	if total > 0 {
		percent = int(100 * m.lost / total)
	}
	return fmt.Sprintf("%s of %s (%d %%) lost waiting for a processor", m.lost.Round(time.Second), total.Round(time.Second), percent)
}

// sample adds what was lost since the last sample: the part of its working time for which the average thread waited. That is more
// than the whole group can have lost where it was nearly idle, hence the second bound: no thread loses more than all waited together.
func (m *Meter) sample(now time.Time) {
	threads := map[string]usage{}
	m.read(strconv.Itoa(m.pid), threads)
	m.mu.Lock()
	defer m.mu.Unlock()
	var ran, waited time.Duration
	for id, u := range threads {
		if before, known := m.threads[id]; known && u.ran >= before.ran && u.waited >= before.waited {
			ran += u.ran - before.ran
			waited += u.waited - before.waited
		}
	}
	if m.sampled.IsZero() {
		m.began = now
	} else if elapsed := now.Sub(m.sampled); waited > 0 && elapsed > 0 {
		part := min(float64(waited)/float64(ran+waited), mostLost)
		m.lost += min(time.Duration(part*float64(elapsed)), waited)
	}
	m.threads, m.sampled = threads, now
}

// read adds the threads of a process and of its descendants. What ends meanwhile is left out.
func (m *Meter) read(pid string, threads map[string]usage) {
	tasks, err := fs.ReadDir(m.proc, pid+"/task")
	if err != nil {
		return
	}
	for _, task := range tasks {
		dir := pid + "/task/" + task.Name()
		if text, err := fs.ReadFile(m.proc, dir+"/schedstat"); err == nil {
			var u usage
			if n, _ := fmt.Sscan(string(text), (*int64)(&u.ran), (*int64)(&u.waited)); n == 2 { // both in nanoseconds
				threads[task.Name()] = u
			}
		}
		if text, err := fs.ReadFile(m.proc, dir+"/children"); err == nil {
			for _, child := range strings.Fields(string(text)) {
				m.read(child, threads)
			}
		}
	}
}

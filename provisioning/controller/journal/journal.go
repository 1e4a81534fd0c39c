// Package journal writes the operator's log: one line for each thing that Muster does to machines, nodes and jobs, at the default
// verbosity. Messages are constant, and keys have the same name everywhere, so that one job can be followed by its request or Workload.
// A loop cannot flood the log: lines of one message about one object are bounded in time, and the next line that is written says how many
// were left out.
package journal

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/provisioning/text"
)

// Keys of lines.
const (
	Request  = "request"
	Workload = "workload"
	Group    = "group"
	Count    = "count"
	// Machines are the names of machines, the first of them where there are many.
	Machines = "machines"
	// Price is that of all machines of the line, in USD per hour.
	Price = "pricePerHour"
	// Reason is a word of the API, and Cause what is said to people.
	Reason = "reason"
	Cause  = "cause"
	// LeftOut is how many lines of the same message about the same object were left out before.
	LeftOut = "leftOut"
)

const (
	// atOnce lines of one message about one object are written in each span.
	atOnce = 5
	span   = time.Minute
	// longest is how many characters of a value are written, and mostNames how many names.
	longest   = 1000
	mostNames = 20
)

// line is one message about one object.
type line struct{ message, object string }

// written is how often it was written since a time, and how often it was not.
type written struct {
	since          time.Time
	lines, leftOut int
}

// bound is that of all lines of the process.
var bound = newLimiter()

func newLimiter() *limiter { return &limiter{seen: map[line]*written{}} }

// limiterKey is the key of a limiter in a context.
type limiterKey struct{}

// IntoContext returns a context whose lines are bounded by themselves: tests that run in one process have logs of their own.
func IntoContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, limiterKey{}, newLimiter())
}

func limiterOf(ctx context.Context) *limiter {
	if l, ok := ctx.Value(limiterKey{}).(*limiter); ok {
		return l
	}
	return bound
}

type limiter struct {
	mu   sync.Mutex
	seen map[line]*written
	// swept is when lines were last forgotten.
	swept time.Time
}

// allow reports whether the line may be written, and how many like it were left out before.
func (l *limiter) allow(of line, now time.Time) (leftOut int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if over := now.Sub(l.swept); over > span || over < 0 {
		l.swept = now
		maps.DeleteFunc(l.seen, func(_ line, w *written) bool { return now.Sub(w.since) > 2*span || now.Before(w.since) })
	}
	w := l.seen[of]
	if w == nil {
		w = &written{since: now}
		l.seen[of] = w
	}
	if now.Sub(w.since) > span {
		w.since, w.lines = now, 0
	}
	if w.lines >= atOnce {
		w.leftOut++
		return 0, false
	}
	leftOut, w.leftOut = w.leftOut, 0
	w.lines++
	return leftOut, true
}

// Write writes a line about an object, with keys and values. Values that are empty are left out.
func Write(ctx context.Context, message, object string, keysAndValues ...any) {
	leftOut, ok := limiterOf(ctx).allow(line{message, object}, time.Now())
	if !ok {
		return
	}
	var said []any
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		switch v := keysAndValues[i+1].(type) {
		case string:
			if v != "" {
				said = append(said, keysAndValues[i], text.Clip(Redact(v), longest))
			}
		case []string:
			if len(v) > 0 {
				said = append(said, keysAndValues[i], names(v))
			}
		default:
			said = append(said, keysAndValues[i], v)
		}
	}
	if leftOut > 0 {
		said = append(said, LeftOut, leftOut)
	}
	log.FromContext(ctx).WithCallDepth(1).Info(message, said...)
}

// names are the first of a list, and how many more there are.
func names(list []string) []string {
	if len(list) <= mostNames {
		return list
	}
	out := make([]string, 0, mostNames+1)
	return append(append(out, list[:mostNames]...), fmt.Sprintf("and %d more", len(list)-mostNames))
}

// secrets are what looks like one in a message of others, such as the error of a cloud or of an API server.
var secrets = regexp.MustCompile(`(?is)-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|$)|` +
	`((?:bearer|basic)\s+|(?:token|password|secret|signature|client-key-data|client-certificate-data|secretaccesskey)["']?\s*[:=]\s*["']?)` +
	`[A-Za-z0-9+/_.~=%-]{6,}`)

// Redact is the message without what looks like a secret.
func Redact(message string) string { return secrets.ReplaceAllString(message, "${2}[redacted]") }

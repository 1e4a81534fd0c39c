// Package journal writes the operator's log: one line for each change that Muster makes to machines, nodes and jobs, at the default
// verbosity. Messages are constant and keys have the same name everywhere, so that a job can be followed by its request or Workload. Lines
// with the same message about the same object are rate-limited, and the next line has the number of omitted lines.
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

// The keys of lines.
const (
	Request  = "request"
	Workload = "workload"
	Group    = "group"
	Count    = "count"
	// Machines has the names of the machines. A long list is shortened.
	Machines = "machines"
	// Price is the price of all machines of the line in USD per hour.
	Price = "pricePerHour"
	// Reason is a reason of the API, and Cause is the text for users.
	Reason = "reason"
	Cause  = "cause"
	// LeftOut is the number of lines with the same message about the same object that were omitted before this one.
	LeftOut = "leftOut"
)

const (
	// atOnce is the number of lines with one message about one object in each span.
	atOnce = 5
	span   = time.Minute
	// longest is the maximum number of characters of a value, and mostNames that of names in a list.
	longest   = 1000
	mostNames = 20
)

// line is one message about one object.
type line struct{ message, object string }

// written counts the lines since a time, and the omitted ones.
type written struct {
	since          time.Time
	lines, leftOut int
}

// bound limits all lines of the process.
var bound = newLimiter()

func newLimiter() *limiter { return &limiter{seen: map[line]*written{}} }

// limiterKey is the key of a limiter in a context.
type limiterKey struct{}

// IntoContext returns a context with its own limiter: tests in one process have separate logs.
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
	// swept is when old entries were last dropped.
	swept time.Time
}

// allow reports whether the line may be written, and how many lines like it were omitted before.
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

// Write writes a line about an object, with keys and values. Empty values are left out.
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

// names returns the first names of a list and the number of the others.
func names(list []string) []string {
	if len(list) <= mostNames {
		return list
	}
	out := make([]string, 0, mostNames+1)
	return append(append(out, list[:mostNames]...), fmt.Sprintf("and %d more", len(list)-mostNames))
}

// secrets matches what looks like a secret in a message of a cloud or an API server.
var secrets = regexp.MustCompile(`(?is)-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|$)|` +
	`((?:bearer|basic)\s+|(?:token|password|secret|signature|client-key-data|client-certificate-data|secretaccesskey)["']?\s*[:=]\s*["']?)` +
	`[A-Za-z0-9+/_.~=%-]{6,}`)

// Redact removes what looks like a secret from the message.
func Redact(message string) string { return secrets.ReplaceAllString(message, "${2}[redacted]") }

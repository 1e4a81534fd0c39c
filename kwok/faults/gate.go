package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Gate is where the requests of musters pass, or not. It may be used by many at once.
type Gate struct {
	mu     sync.Mutex
	random *rand.Rand
	next   int
	// force are the faults in force, by when they began.
	force map[int]*fault
	// open are the requests under way.
	open map[*request]context.CancelFunc
	// hit counts the requests that each type of fault came to.
	hit map[Type]int
}

// fault in force.
type fault struct {
	Fault
	over chan struct{}
}

// request is what faults are chosen by.
type request struct{ from, verb, resource string }

// NewGate returns a gate through which all passes.
func NewGate(seed uint64) *Gate {
	return &Gate{
		random: rand.New(rand.NewPCG(seed, 0)), force: map[int]*fault{}, open: map[*request]context.CancelFunc{}, hit: map[Type]int{},
	}
}

// Begin puts a fault of requests in force, until over is called.
func (g *Gate) Begin(f Fault) (over func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.Type == CutWatches || f.Type == Disconnect {
		for r, cut := range g.open {
			if f.hits(r) && (f.Type == Disconnect || r.verb == "watch") {
				g.hit[f.Type]++
				cut()
			}
		}
	}
	number, in := g.next, &fault{f, make(chan struct{})}
	g.next++
	g.force[number] = in
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.force, number)
		close(in.over)
	})
}

// Hit is how many requests each type of fault has come to.
func (g *Gate) Hit() map[Type]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.hit)
}

// hits says whether the fault may come to the request.
func (f *Fault) hits(r *request) bool {
	return f.Target == r.from &&
		(len(f.Verbs) == 0 || slices.Contains(f.Verbs, r.verb)) &&
		(len(f.Resources) == 0 || slices.Contains(f.Resources, r.resource))
}

// comesTo says whether a type of fault in force comes to requests of the verb.
func (t Type) comesTo(verb string) bool {
	switch t {
	case CutWatches:
		return false // it was applied to the open ones
	case DelayEvents:
		return verb == "watch"
	case LoseAnswers, DelayAnswers:
		return verb != "watch"
	default:
		return true
	}
}

// enter notes a request, and chooses the fault that comes to it: the first in force
// that hits it; nil if none does.
func (g *Gate) enter(r *request, cut context.CancelFunc) *fault {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[r] = cut
	for _, number := range slices.Sorted(maps.Keys(g.force)) {
		f := g.force[number]
		if f.Type.comesTo(r.verb) && f.hits(r) && (f.Percent == nil || g.random.Int32N(100) < *f.Percent) {
			g.hit[f.Type]++
			return f
		}
	}
	return nil
}

func (g *Gate) leave(r *request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, r)
}

// Handler forwards the requests of the named component to next, unless a fault applies.
func (g *Gate) Handler(component string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cut := context.WithCancel(r.Context())
		defer cut()
		asked := describe(component, r)
		f := g.enter(asked, cut)
		defer g.leave(asked)
		r = r.WithContext(ctx)
		if f == nil {
			next.ServeHTTP(w, r)
			return
		}
		f.serve(w, r, next)
	})
}

// serve does to a request what the fault does.
func (f *fault) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	switch f.Type {
	case Refuse:
		f.refuse(w)
	case LoseAnswers:
		next.ServeHTTP(newAnswer(), r)
		panic(http.ErrAbortHandler)
	case DelayAnswers:
		a := newAnswer()
		next.ServeHTTP(a, r)
		if !sleep(r.Context(), f.Delay.Duration) {
			panic(http.ErrAbortHandler)
		}
		a.give(w)
	case DelayEvents:
		late := newLate(r.Context(), w, f.Delay.Duration)
		defer late.finish()
		next.ServeHTTP(late, r)
	case HoldRequests:
		select {
		case <-f.over:
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	default: // Disconnect
		panic(http.ErrAbortHandler)
	}
}

// refuse answers as kube-apiserver does.
func (f *fault) refuse(w http.ResponseWriter) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(f.Code), Reason: codes[f.Code], Message: "refused on purpose: " + http.StatusText(f.Code),
	}
	if seconds := int32(f.RetryAfter.Seconds()); seconds > 0 {
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: seconds}
		w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Code)
	_ = json.NewEncoder(w).Encode(status) // the client may have disconnected
}

// describe says what a request is about: /api/v1 or /apis/group/version, the
// namespace, then resource, name, subresource.
func describe(from string, r *http.Request) *request {
	out := &request{from: from, resource: "other"}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		parts = nil
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) > 0 {
		out.resource = parts[0]
	}
	if len(parts) > 2 {
		out.resource += "/" + parts[2]
	}
	named := len(parts) > 1
	switch r.Method {
	case http.MethodPost:
		out.verb = "create"
	case http.MethodPut:
		out.verb = "update"
	case http.MethodPatch:
		out.verb = "patch"
	case http.MethodDelete:
		out.verb = "deletecollection"
		if named {
			out.verb = "delete"
		}
	default:
		watch, _ := strconv.ParseBool(r.URL.Query().Get("watch"))
		switch {
		case watch:
			out.verb = "watch"
		case named || out.resource == "other":
			out.verb = "get"
		default:
			out.verb = "list"
		}
	}
	return out
}

// answer keeps what was answered.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func newAnswer() *answer { return &answer{header: http.Header{}, code: http.StatusOK} }

func (a *answer) Header() http.Header            { return a.header }
func (a *answer) WriteHeader(code int)           { a.code = code }
func (a *answer) Write(text []byte) (int, error) { return a.body.Write(text) }

func (a *answer) give(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body.Bytes()) // the client may have disconnected
}

// late passes on what is written a while after it was, in its order.
type late struct {
	http.ResponseWriter
	ctx    context.Context //nolint:containedctx // it is that of the one request that this answers
	delay  time.Duration
	chunks chan chunk
	done   chan struct{}
}

type chunk struct {
	text []byte
	due  time.Time
}

// mostLate is how many writes may be delayed in one watch; further writes block.
const mostLate = 1024

func newLate(ctx context.Context, w http.ResponseWriter, delay time.Duration) *late {
	l := &late{ResponseWriter: w, ctx: ctx, delay: delay, chunks: make(chan chunk, mostLate), done: make(chan struct{})}
	go l.run()
	return l
}

// WriteHeader is not delayed: the client sees that its watch has started.
func (l *late) WriteHeader(code int) {
	l.ResponseWriter.WriteHeader(code)
	if flusher, ok := l.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}

// Write never waits for the client.
func (l *late) Write(text []byte) (int, error) {
	select {
	case l.chunks <- chunk{bytes.Clone(text), time.Now().Add(l.delay)}:
		return len(text), nil
	case <-l.ctx.Done():
		return 0, fmt.Errorf("the client is gone: %w", l.ctx.Err())
	}
}

// Flush does nothing: each chunk is flushed when its time has come.
func (l *late) Flush() {}

func (l *late) run() {
	defer close(l.done)
	flusher, _ := l.ResponseWriter.(http.Flusher)
	for c := range l.chunks {
		if !sleep(l.ctx, time.Until(c.due)) {
			continue // what is left is dropped
		}
		if _, err := l.ResponseWriter.Write(c.text); err == nil && flusher != nil {
			flusher.Flush()
		}
	}
}

// finish waits until all is passed on.
func (l *late) finish() {
	close(l.chunks)
	<-l.done
}

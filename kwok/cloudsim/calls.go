package cloudsim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Front speaks the protocol of one cloud.
type Front interface {
	http.Handler
	// Cloud that it speaks for.
	Cloud() v1alpha1.Provider
	// Action is the call as the cloud names it. It may read the body, if it puts it
	// back.
	Action(*http.Request) string
	// Refuse answers with an error in the cloud's own format.
	Refuse(http.ResponseWriter, *http.Request, *Error)
	// Throttled is the cloud's error for calls that come too often.
	Throttled() *Error
}

type callKind struct {
	cloud  v1alpha1.Provider
	action string
}

// Handler is the front end with the throttles and the faults of calls of the world.
func (w *World) Handler(f Front) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.serveLate()
		kind := callKind{f.Cloud(), f.Action(r)}
		fault, slow := w.arrive(kind)
		switch {
		case slow:
			f.Refuse(rw, r, f.Throttled())
		case fault == nil:
			f.ServeHTTP(rw, r)
		case fault.Type == CallRefused:
			f.Refuse(rw, r, fault.Error)
		case fault.Type == OperationFailed:
			f.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), failure{}, fault.Error)))
		case fault.Type == CallUnanswered:
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not notice that the caller has gone
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		case fault.Type == CallLate:
			w.postpone(f, r, fault.Delay.Duration)
			panic(http.ErrAbortHandler)
		case fault.Type == CallSlow:
			w.takeTime(f, rw, r, fault.Delay.Duration)
		case fault.Type == ReplyLost:
			f.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			panic(http.ErrAbortHandler)
		}
	})
}

// lateCall has its effect at a time to come.
type lateCall struct {
	at    time.Time
	serve func()
}

// postpone delays the effect of a call, and then sends its response.
func (w *World) postpone(f Front, r *http.Request, delay time.Duration) (answer <-chan *httptest.ResponseRecorder) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // it has not arrived
	}
	late := r.Clone(context.Background())
	late.Body = io.NopCloser(bytes.NewReader(body))
	answers := make(chan *httptest.ResponseRecorder, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = append(w.late, lateCall{w.clock.Now().Add(delay), func() {
		recorder := httptest.NewRecorder()
		f.ServeHTTP(recorder, late)
		answers <- recorder
	}})
	return answers
}

// takeTime responds to a call after the delay. The call takes effect after half of it: lists may show the result before the caller gets
// the response, and the effect remains if the caller times out.
func (w *World) takeTime(f Front, rw http.ResponseWriter, r *http.Request, delay time.Duration) {
	answer := w.postpone(f, r, delay/2)
	select {
	case <-w.clock.After(delay):
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
	w.serveLate()
	recorder := <-answer
	maps.Copy(rw.Header(), recorder.Header())
	rw.WriteHeader(recorder.Code)
	_, _ = rw.Write(recorder.Body.Bytes()) // an error says that the caller has gone
}

// serveLate lets the late calls that are due have their effect.
func (w *World) serveLate() {
	w.mu.Lock()
	now := w.clock.Now()
	var due []lateCall
	w.late = slices.DeleteFunc(w.late, func(l lateCall) bool {
		if now.Before(l.at) {
			return false
		}
		due = append(due, l)
		return true
	})
	w.mu.Unlock()
	for _, l := range due {
		l.serve()
	}
}

// failure is the key of the error that the operation of a call ends with.
type failure struct{}

// FailureOf the operation of a call; nil where it is to succeed.
func FailureOf(ctx context.Context) *Error {
	e, _ := ctx.Value(failure{}).(*Error)
	return e
}

// arrive counts a call, and says what goes wrong with it.
func (w *World) arrive(kind callKind) (fault *CallFault, slow bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	place := w.calls[kind]
	w.calls[kind]++
	for i := range w.config.Throttles {
		t := &w.config.Throttles[i]
		if t.Cloud != kind.cloud || t.Action != "" && t.Action != kind.action {
			continue
		}
		bucket := callKind{t.Cloud, t.Action}
		if w.buckets[bucket] == nil {
			w.buckets[bucket] = rate.NewLimiter(rate.Limit(t.PerSecond), t.Burst)
		}
		if !w.buckets[bucket].AllowN(now, 1) {
			return nil, true
		}
	}
	for _, f := range w.harms {
		if f.Cloud == kind.cloud && (f.Action == "" || f.Action == kind.action) {
			return f, false
		}
	}
	age := now.Sub(w.began)
	for i := range w.config.Calls {
		f := &w.config.Calls[i]
		if f.Cloud == kind.cloud && (f.Action == "" || f.Action == kind.action) &&
			age >= f.From.Duration && (f.Until.Duration == 0 || age < f.Until.Duration) && w.hits(i, kind, place) {
			return f, false
		}
	}
	return nil, false
}

// hits reports whether the fault, the i-th of the configuration, applies to the call of that place. It depends on its arguments only.
func (w *World) hits(i int, kind callKind, place int64) bool {
	f := &w.config.Calls[i]
	return Share{f.Calls, f.Percent}.hits(w.config.Seed, fmt.Sprintf("%d/%s/%s", i, kind.cloud, kind.action), place)
}

// HitNext has a fault hit the next calls of its action, so many.
func (w *World) HitNext(f CallFault, number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.calls[callKind{f.Cloud, f.Action}]
	for i := range number {
		f.Calls = append(f.Calls, next+int64(i))
	}
	w.config.Calls = append([]CallFault{f}, w.config.Calls...)
}

// Harm has a fault hit all calls of its action until end is called.
func (w *World) Harm(f CallFault) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.harms = append(w.harms, &f)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.harms = slices.DeleteFunc(w.harms, func(h *CallFault) bool { return h == &f })
	}
}

// Calls is how many calls of each action a cloud has had.
func (w *World) Calls(cloud v1alpha1.Provider) map[string]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]int64{}
	for kind, n := range w.calls {
		if kind.cloud == cloud {
			out[kind.action] = n
		}
	}
	return out
}

package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/kwok/cluster"
)

// apiServer responds to each request at once, but a watch sends "event" and then waits. It counts what has taken effect.
type apiServer struct {
	mu      sync.Mutex
	effects int
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.effects++
	s.mu.Unlock()
	if r.URL.Query().Get("watch") == "" {
		fmt.Fprint(w, "answer")
		return
	}
	w.WriteHeader(http.StatusOK)
	fmt.Fprint(w, "event")
	<-r.Context().Done()
	panic(http.ErrAbortHandler) // as a proxy does
}

// outcome of a request, as its sender sees it.
type outcome struct {
	Answer string
	// Code of the answer; 0 if the connection was cut.
	Code int
	// After is when it came.
	After time.Duration
	// Effects that the request had.
	Effects int
}

// send sends a request through the gate, and gives up after a minute.
func send(g *Gate, method, path string) outcome {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	backend := &apiServer{}
	w := httptest.NewRecorder()
	cut := false
	func() {
		defer func() {
			if v := recover(); v != nil {
				if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
					panic(v)
				}
				cut = true
			}
		}()
		g.Handler(cluster.Muster, backend).ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, http.NoBody))
	}()
	body, _ := io.ReadAll(w.Result().Body)
	o := outcome{Answer: string(body), Code: w.Code, After: time.Since(began), Effects: backend.effects}
	if cut {
		o.Code = 0
	}
	return o
}

const (
	nodes  = "/api/v1/nodes"
	status = "/apis/autoscaling.x-k8s.io/v1/namespaces/team/provisioningrequests/gang/status"
)

func TestWhatAFaultDoesToARequest(t *testing.T) {
	second := metav1.Duration{Duration: time.Second}
	for name, tc := range map[string]struct {
		fault        Fault
		method, path string
		want         outcome
	}{
		"refused with a conflict":       {Fault{Type: Refuse, Code: 409}, http.MethodPatch, status, outcome{Answer: "Conflict", Code: 409}},
		"refused for a while":           {Fault{Type: Refuse, Code: 429, RetryAfter: second}, http.MethodPost, nodes, outcome{Answer: `"retryAfterSeconds":1`, Code: 429}},
		"refused by a broken server":    {Fault{Type: Refuse, Code: 503}, http.MethodGet, nodes, outcome{Answer: "ServiceUnavailable", Code: 503}},
		"effect without an answer":      {Fault{Type: LoseAnswers}, http.MethodDelete, nodes + "/a", outcome{Effects: 1}},
		"a late answer":                 {Fault{Type: DelayAnswers, Delay: second}, http.MethodPost, nodes, outcome{Answer: "answer", Code: 200, After: time.Second, Effects: 1}},
		"a watch is not an answer":      {Fault{Type: DelayAnswers, Delay: second}, http.MethodGet, nodes + "?watch=true", outcome{Answer: "event", After: time.Minute, Effects: 1}},
		"no effect before it is over":   {Fault{Type: HoldRequests}, http.MethodPut, nodes + "/a", outcome{Answer: "answer", Code: 200, After: 5 * time.Second, Effects: 1}},
		"no connection":                 {Fault{Type: Disconnect}, http.MethodGet, nodes, outcome{}},
		"another's requests":            {Fault{Type: Disconnect, Target: cluster.Standby}, http.MethodGet, nodes, outcome{Answer: "answer", Code: 200, Effects: 1}},
		"another verb":                  {Fault{Type: Disconnect, Verbs: []string{"list"}}, http.MethodGet, nodes + "/a", outcome{Answer: "answer", Code: 200, Effects: 1}},
		"another resource":              {Fault{Type: Disconnect, Resources: []string{"nodes"}}, http.MethodPatch, status, outcome{Answer: "answer", Code: 200, Effects: 1}},
		"the resource, its subresource": {Fault{Type: Disconnect, Verbs: []string{"patch"}, Resources: []string{"provisioningrequests/status"}}, http.MethodPatch, status, outcome{}},
		"a new watch after the cut":     {Fault{Type: CutWatches}, http.MethodGet, nodes + "?watch=1", outcome{Answer: "event", After: time.Minute, Effects: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewGate(1)
				if tc.fault.Target == "" {
					tc.fault.Target = cluster.Muster
				}
				time.AfterFunc(5*time.Second, g.Begin(tc.fault))
				got := send(g, tc.method, tc.path)
				if tc.fault.Type == Refuse && strings.Contains(got.Answer, tc.want.Answer) {
					got.Answer = tc.want.Answer
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("the request (-want +got):\n%s", diff)
				}
				<-time.After(10 * time.Second)
				if after := send(g, tc.method, tc.path); after.Effects != 1 || after.Code != 200 && after.After < time.Minute {
					t.Errorf("when the fault is over a request comes to %+v", after)
				}
			})
		})
	}
}

func TestAnOpenWatchIsCutOrLate(t *testing.T) {
	for name, tc := range map[string]struct {
		fault Fault
		want  outcome
	}{
		"cut":                    {Fault{Type: CutWatches}, outcome{Answer: "event", After: 2 * time.Second, Effects: 1}},
		"cut off":                {Fault{Type: Disconnect}, outcome{Answer: "event", After: 2 * time.Second, Effects: 1}},
		"not that of other kind": {Fault{Type: CutWatches, Resources: []string{"pods"}}, outcome{Answer: "event", After: time.Minute, Effects: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewGate(1)
				tc.fault.Target = cluster.Muster
				time.AfterFunc(2*time.Second, func() { g.Begin(tc.fault)() })
				if diff := cmp.Diff(tc.want, send(g, http.MethodGet, nodes+"?watch=true")); diff != "" {
					t.Errorf("the watch (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestACutOfWatchesLeavesOtherRequestsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1)
		time.AfterFunc(5*time.Second, g.Begin(Fault{Type: HoldRequests, Target: cluster.Muster}))
		time.AfterFunc(2*time.Second, func() { g.Begin(Fault{Type: CutWatches, Target: cluster.Muster})() })
		want := outcome{Answer: "answer", Code: 200, After: 5 * time.Second, Effects: 1}
		if diff := cmp.Diff(want, send(g, http.MethodPost, nodes)); diff != "" {
			t.Errorf("the request (-want +got):\n%s", diff)
		}
	})
}

// listener records when it was called.
type listener struct {
	*httptest.ResponseRecorder
	told chan time.Time
}

func (l *listener) Write(text []byte) (int, error) {
	l.told <- time.Now()
	return len(text), nil
}

func TestEventsComeLateAndInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1)
		g.Begin(Fault{Type: DelayEvents, Target: cluster.Muster, Delay: metav1.Duration{Duration: time.Second}})
		l := &listener{httptest.NewRecorder(), make(chan time.Time, 10)}
		began := time.Now()
		g.Handler(cluster.Muster, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				fmt.Fprint(w, "event")
				<-time.After(100 * time.Millisecond)
			}
		})).ServeHTTP(l, httptest.NewRequest(http.MethodGet, nodes+"?watch=true", http.NoBody))
		for i := range 3 {
			if got, want := (<-l.told).Sub(began), time.Second+time.Duration(i)*100*time.Millisecond; got != want {
				t.Errorf("event %d comes after %s, want %s", i, got, want)
			}
		}
	})
}

func TestAShareOfTheRequestsIsHit(t *testing.T) {
	g := NewGate(1)
	share := int32(10)
	g.Begin(Fault{Type: Disconnect, Target: cluster.Muster, Percent: &share})
	cut := 0
	for range 1000 {
		if send(g, http.MethodGet, nodes).Code == 0 {
			cut++
		}
	}
	if cut < 70 || cut > 130 || g.Hit()[Disconnect] != cut {
		t.Errorf("%d of 1,000 requests were cut, %d are counted; want about 100", cut, g.Hit()[Disconnect])
	}
}

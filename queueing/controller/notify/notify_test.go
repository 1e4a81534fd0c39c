package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/muster-dev/muster/queueing/notify"
)

// token is the part of the URL that only the receiver may see.
const token = "T0/secret-token"

// pipes are the connections of a network within a synctest bubble, where a real one would hold up the time.
type pipes struct {
	made   chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.made:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.made <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// world is a Sender with the receiver of namespace team-a at hooks.example.com.
type world struct {
	*testing.T
	*Sender
	events *events.FakeRecorder
	mu     sync.Mutex
	// got are the requests, each with the time since the start.
	got []string
}

func newWorld(t *testing.T, data map[string]string, answer func(attempt int, w http.ResponseWriter, r *http.Request)) *world {
	t.Helper()
	began := time.Now()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: Secret}, Data: map[string][]byte{}}
	for k, v := range data {
		secret.Data[k] = []byte(v)
	}
	w := &world{T: t, events: events.NewFakeRecorder(2 * mostOfOne)}
	network := &pipes{made: make(chan net.Conn), closed: make(chan struct{})}
	server := &httptest.Server{Listener: network, Config: &http.Server{Handler: http.HandlerFunc(
		func(out http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			var event struct {
				ID string
			}
			if err != nil || json.Unmarshal(body, &event) != nil {
				t.Errorf("%s: %v", body, err)
			}
			w.mu.Lock()
			w.got = append(w.got, fmt.Sprintf("%v %s %s %s", time.Since(began), r.Method, r.URL.Path, event.ID))
			attempt := len(w.got)
			w.mu.Unlock()
			answer(attempt, out, r)
		})}}
	server.Start()
	w.Sender = &Sender{
		Live: fake.NewClientBuilder().WithObjects(secret).Build(), Namespace: "muster-system",
		AllowedHosts: WithPorts([]string{"hooks.example.com:80"}), Source: "urn:uuid:1", Events: w.events, Dial: network.dial,
	}
	w.open()
	t.Cleanup(func() { w.close(); server.Close() })
	return w
}

// notification is one about a job of team-a.
func notification(id string) notify.Notification {
	return notify.Notification{ID: id, Kind: notify.Started, Summary: id, Job: &notify.Job{Namespace: "team-a", Job: "job/train"}}
}

func TestANotificationIsSentUntilItIsTaken(t *testing.T) {
	hook := map[string]string{urlKey: "http://hooks.example.com/" + token}
	answerWith := func(codes ...int) func(int, http.ResponseWriter, *http.Request) {
		return func(attempt int, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(codes[min(attempt, len(codes))-1])
		}
	}
	post := "POST /" + token + " "
	tests := map[string]struct {
		data   map[string]string
		answer func(attempt int, w http.ResponseWriter, r *http.Request)
		send   []string
		want   []string
		// wantSent and wantDropped are counted, and wantEvent is part of the first Event.
		wantSent    float64
		wantDropped map[string]float64
		wantEvent   string
	}{
		"taken at once, in order": {
			data: hook, answer: answerWith(202), send: []string{"a", "b"},
			want: []string{"0s " + post + "a", "0s " + post + "b"}, wantSent: 2,
		},
		"failures are repeated after growing pauses": {
			data: hook, answer: answerWith(500, 503, 502, 200), send: []string{"a", "b"},
			want:     []string{"0s " + post + "a", "1s " + post + "a", "3s " + post + "a", "7s " + post + "a", "7s " + post + "b"},
			wantSent: 2,
		},
		"the receiver says when to come back": {
			data: hook, send: []string{"a"}, wantSent: 1,
			answer: func(attempt int, w http.ResponseWriter, _ *http.Request) {
				if attempt == 1 {
					w.Header().Set("Retry-After", "30")
					w.WriteHeader(http.StatusTooManyRequests)
				}
			},
			want: []string{"0s " + post + "a", "30s " + post + "a"},
		},
		"a slow answer is not waited for": {
			data: hook, send: []string{"a"}, wantSent: 1,
			answer: func(attempt int, _ http.ResponseWriter, r *http.Request) {
				if attempt == 1 {
					<-r.Context().Done()
				}
			},
			want: []string{"0s " + post + "a", "11s " + post + "a"},
		},
		"a redirect is not followed": {
			data: hook, send: []string{"a"},
			answer: func(attempt int, w http.ResponseWriter, r *http.Request) {
				if attempt > 1 {
					return
				}
				http.Redirect(w, r, "http://hooks.example.com/elsewhere", http.StatusTemporaryRedirect)
			},
			want: []string{"0s " + post + "a"}, wantDropped: map[string]float64{dropRefused: 1}, wantEvent: "redirects are not followed",
		},
		"a refusal is final": {
			data: hook, answer: answerWith(410, 200), send: []string{"a", "b"},
			want: []string{"0s " + post + "a", "0s " + post + "b"}, wantSent: 1, wantDropped: map[string]float64{dropRefused: 1},
			wantEvent: "410 Gone",
		},
		"a host that is not allowed": {
			data: map[string]string{urlKey: "http://metadata.example.com/" + token}, send: []string{"a"},
			wantEvent: "the host metadata.example.com:80, which is not in notifications.allowedHosts",
		},
		"another port of an allowed host": {
			data: map[string]string{urlKey: "http://hooks.example.com:6443/" + token}, send: []string{"a"},
			wantEvent: "the host hooks.example.com:6443, which is not in notifications.allowedHosts",
		},
		"no URL": {
			data: map[string]string{urlKey: "://" + token}, send: []string{"a"},
			wantEvent: "data.url is not a URL that begins with https:// or http://",
		},
		"a format that is unknown": {
			data: map[string]string{urlKey: hook[urlKey], formatKey: "teams"}, send: []string{"a"},
			wantEvent: `data.format is "teams"; choose one of [cloudevents slack alertmanager]`,
		},
		"a key that is unknown": {
			data: map[string]string{urlKey: hook[urlKey], "Format": "slack"}, send: []string{"a"},
			wantEvent: `data has the key "Format"; the keys are url and format`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tc.data, tc.answer)
				wasSent, was := testutil.ToFloat64(sent), map[string]float64{}
				for _, reason := range []string{dropFull, dropLate, dropRefused} {
					was[reason] = testutil.ToFloat64(dropped.WithLabelValues(reason))
				}
				for _, id := range tc.send {
					w.send(t.Context(), []notify.Notification{notification(id)})
				}
				<-time.After(2 * deadline)
				synctest.Wait()
				if diff := cmp.Diff(tc.want, w.got); diff != "" {
					t.Errorf("requests (-want +got)\n%s", diff)
				}
				if got := testutil.ToFloat64(sent) - wasSent; got != tc.wantSent {
					t.Errorf("%v were sent, want %v", got, tc.wantSent)
				}
				for reason, n := range was {
					if got := testutil.ToFloat64(dropped.WithLabelValues(reason)) - n; got != tc.wantDropped[reason] {
						t.Errorf("%v were dropped as %s, want %v", got, reason, tc.wantDropped[reason])
					}
				}
				w.saw(tc.wantEvent)
				if len(w.lanes) > 0 || w.waiting > 0 {
					t.Errorf("%d Notifications still wait, in %d lanes", w.waiting, len(w.lanes))
				}
			})
		})
	}
}

// saw checks that the Events have a text, none if it is empty, and never the token.
func (w *world) saw(want string) {
	w.Helper()
	var all []string
	for len(w.events.Events) > 0 {
		all = append(all, <-w.events.Events)
	}
	text := strings.Join(all, "\n")
	if !strings.Contains(text, want) || want == "" && text != "" {
		w.Errorf("the Events are %q, want %q", text, want)
	}
	if strings.Contains(text, token) {
		w.Errorf("an Event has the token: %s", text)
	}
}

// TestADeadReceiverIsBounded: what it does not take is dropped after the deadline, what does not fit at once.
func TestADeadReceiverIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[string]string{urlKey: "http://hooks.example.com/" + token},
			func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
		late, full := testutil.ToFloat64(dropped.WithLabelValues(dropLate)), testutil.ToFloat64(dropped.WithLabelValues(dropFull))
		for range mostOfOne + 5 {
			w.send(t.Context(), []notify.Notification{notification("a")})
			synctest.Wait() // until the lane of the cluster, which has no receiver, is empty
		}
		if got := testutil.ToFloat64(dropped.WithLabelValues(dropFull)) - full; got != 5 {
			t.Errorf("%v did not fit, want 5 of %d", got, mostOfOne+5)
		}
		<-time.After(deadline + lastRetry)
		synctest.Wait()
		if got := testutil.ToFloat64(dropped.WithLabelValues(dropLate)) - late; got < mostOfOne {
			t.Errorf("%v were dropped after the deadline, want %d", got, mostOfOne)
		}
		w.saw("it answered 502 Bad Gateway")
	})
}

// TestErrorsDoNotNameTheURL also where no connection is made.
func TestErrorsDoNotNameTheURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[string]string{urlKey: "http://hooks.example.com/" + token}, nil)
		w.client = newClient(func(context.Context, string, string) (net.Conn, error) { return nil, fmt.Errorf("no route to host") })
		w.send(t.Context(), []notify.Notification{notification("a")})
		<-time.After(2 * deadline)
		synctest.Wait()
		w.saw("no route to host")
	})
}

// TestLinkLocalAddressesAreNotDialled: the credentials of a machine are there.
func TestLinkLocalAddressesAreNotDialled(t *testing.T) {
	for _, address := range []string{"169.254.169.254:80", "[fe80::1]:80", "[::ffff:169.254.169.254]:80"} {
		if _, err := Dial(t.Context(), "tcp", address); err == nil || !strings.Contains(err.Error(), "is a link-local address") {
			t.Errorf("%s: got %v", address, err)
		}
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	c, err := Dial(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

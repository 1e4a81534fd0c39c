package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"google.golang.org/api/option"
	htransport "google.golang.org/api/transport/http"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// timeout is for calls that are never answered.
	timeout = 100 * time.Millisecond
	// patience is for calls that are answered, on whatever machine.
	patience = time.Minute
)

// client returns a Client of a server that answers.
func client(t *testing.T, serve http.HandlerFunc) *Client {
	t.Helper()
	return clientOf(t, endpoint(t, serve), patience)
}

func endpoint(t *testing.T, serve http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	return server.URL
}

func clientOf(t *testing.T, endpoint string, timeout time.Duration) *Client {
	t.Helper()
	c, err := New(context.Background(), Config{Endpoint: endpoint, CallsPerSecond: 1000, Burst: 1000, Timeout: timeout,
		Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// never answers.
func never(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// TestEveryCallEnds: whichever part of an answer does not come, the call ends at its deadline with an outage.
func TestEveryCallEnds(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{
		"no answer": never,
		"half an answer": func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("{"))
			w.(http.Flusher).Flush()
			never(w, r)
		},
		"no second page": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("pageToken") != "" {
				never(w, r)
			}
			_, _ = w.Write([]byte(`{"nextPageToken": "2"}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := clientOf(t, endpoint(t, serve), timeout).InstancesOf(context.Background(), "p", "z", "")
			wantCause(t, err, v1alpha1.Outage, "Unanswered")
		})
	}
}

// wantCause judges an error that is Inconclusive.
func wantCause(t *testing.T, err error, class v1alpha1.ErrorClass, code string) {
	t.Helper()
	cause := cloudprovider.CauseOf(err)
	if cause == nil || cause.Class != class || cause.Code != code {
		t.Errorf("got %v, want %s of class %s", err, code, class)
	}
	if refusal := cloudprovider.Refusal(err); refusal != nil {
		t.Errorf("it is taken for the refusal %v", refusal)
	}
}

// TestOutOfReach: a name that cannot be resolved, and a connection that is refused.
func TestOutOfReach(t *testing.T) {
	for _, endpoint := range []string{"http://cloud.invalid", "http://127.0.0.1:1"} {
		_, err := clientOf(t, endpoint, patience).BulkInsert(context.Background(), "p", "z", RequestID(), &computepb.BulkInsertInstanceResource{})
		if cause := cloudprovider.CauseOf(err); cause == nil || cause.Class != v1alpha1.Outage || cloudprovider.Refusal(err) != nil {
			t.Errorf("%s: got %v, want an outage", endpoint, err)
		}
	}
}

// TestCallerGivesUp: that is no failure of the cloud.
func TestCallerGivesUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout/4)
	defer cancel()
	_, err := client(t, never).InstancesOf(ctx, "p", "z", "")
	if !errors.Is(err, context.DeadlineExceeded) || cloudprovider.CauseOf(err) != nil {
		t.Errorf("got %v, want the error of the context and no cause", err)
	}
}

// tokens is a source of tokens.
type tokens func() (*oauth2.Token, error)

func (t tokens) Token() (*oauth2.Token, error) { return t() }

// TestTokens: what the token service does not give is an outage, and what it denies is for a person.
func TestTokens(t *testing.T) {
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	refused := func(status int) tokens {
		return func() (*oauth2.Token, error) {
			return nil, &oauth2.RetrieveError{Response: &http.Response{StatusCode: status, Status: http.StatusText(status)}, ErrorCode: "the_code"}
		}
	}
	for name, tc := range map[string]struct {
		source  tokens
		timeout time.Duration
		want    v1alpha1.ErrorClass
		sent    bool
	}{
		"hangs":   {func() (*oauth2.Token, error) { <-ended; return nil, nil }, timeout, v1alpha1.Outage, false},
		"fails":   {refused(http.StatusServiceUnavailable), patience, v1alpha1.Outage, false},
		"denies":  {refused(http.StatusBadRequest), patience, v1alpha1.Auth, false},
		"answers": {func() (*oauth2.Token, error) { return &oauth2.Token{AccessToken: "t"}, nil }, patience, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			sent := false
			c := client(t, func(w http.ResponseWriter, r *http.Request) {
				sent = strings.HasSuffix(r.Header.Get("Authorization"), " t")
				_, _ = w.Write([]byte("{}"))
			})
			transport, err := htransport.NewTransport(context.Background(), newTransport(),
				option.WithCredentials(&google.Credentials{TokenSource: &promptSource{tc.source, tc.timeout}}))
			if err != nil {
				t.Fatal(err)
			}
			c.http.Transport = transport
			_, err = c.InstancesOf(context.Background(), "p", "z", "")
			if cause := cloudprovider.CauseOf(err); tc.want == "" && err != nil || tc.want != "" && (cause == nil || cause.Class != tc.want) {
				t.Errorf("got %v, want class %q", err, tc.want)
			}
			if sent != tc.sent {
				t.Errorf("the call was sent: %t, want %t", sent, tc.sent)
			}
		})
	}
}

// TestOnlyOneActs: a process that may not act reads, whatever the HTTP method, and changes nothing.
func TestOnlyOneActs(t *testing.T) {
	var seen []string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, Base(r.URL.Path))
		_, _ = w.Write([]byte("{}"))
	})
	c.config.MayAct = func() error { return errors.New("another process may act") }
	m := Manager{"p", "z-z-a", "m"}
	if _, err := c.Managed(context.Background(), m); err != nil {
		t.Error(err)
	}
	if err := c.CreateInstances(context.Background(), m, []string{"a"}, RequestID()); err == nil || cloudprovider.Refusal(err) != nil {
		t.Errorf("got %v, want an error that is no refusal", err)
	}
	if got := strings.Join(seen, " "); got != "listManagedInstances" {
		t.Errorf("sent are %q", got)
	}
}

// TestOperations: an unknown error code is an outage if the status is a server error, else an error of the configuration.
func TestOperations(t *testing.T) {
	for status, want := range map[int32]v1alpha1.ErrorClass{
		500: v1alpha1.Outage, 503: v1alpha1.Outage, 400: v1alpha1.Config, 0: v1alpha1.Config,
	} {
		op := &computepb.Operation{Status: new(computepb.Operation_DONE), HttpErrorStatusCode: new(status),
			Error: &computepb.Error{Errors: []*computepb.Errors{{Code: new("SOMETHING_NEW"), Message: new("x")}}}}
		_, err := (&Client{}).Finish(context.Background(), "p", op)
		if refusal := cloudprovider.Refusal(err); refusal == nil || refusal.Class != want {
			t.Errorf("of HTTP status %d: got %v, want class %s", status, err, want)
		}
	}
}

// TestPace: calls that come at once are sent at the pace of the limit.
func TestPace(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	c.limiter = rate.NewLimiter(100, 10)
	began := time.Now()
	var calls errgroup.Group
	for range 40 {
		calls.Go(func() error { return c.DeleteInstance(context.Background(), "p", "z", "i") })
	}
	if err := calls.Wait(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("40 calls took %s, want 0.3 s at 100 a second after a burst of 10", took)
	}
}

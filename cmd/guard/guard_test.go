package guard

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
)

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:8090": true, "127.1.2.3:80": true, "[::1]:8090": true, "localhost:8090": true,
		":8090": false, "0.0.0.0:8090": false, "[::]:8090": false, "10.0.0.1:8090": false, "page.example:8090": false, "0": false, "": false,
	} {
		if got := Loopback(address); got != want {
			t.Errorf("Loopback(%q) is %v", address, got)
		}
	}
}

// TestOnlyItsOwnHostsAreServed: a name that a browser was made to take for ours is none.
func TestOnlyItsOwnHostsAreServed(t *testing.T) {
	h := Hosts([]string{"muster-dashboard.muster-system.svc"}, http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, _ = w.Write([]byte("page"))
	}))
	for host, want := range map[string]int{
		"127.0.0.1:8090": 200, "127.0.0.1": 200, "[::1]:8090": 200, "[::1]": 200, "localhost:8090": 200, "LOCALHOST": 200, "localhost.:8090": 200, "10.1.2.3:8090": 200,
		"muster-dashboard.muster-system.svc": 200, "Muster-Dashboard.muster-system.svc:8090": 200,
		"evil.example": 403, "evil.example:8090": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403, "": 403,
		"muster-dashboard.muster-system.svc.evil.example": 403, "127.0.0.1:8090:evil": 403,
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/queue", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("host %q is answered with %d, want %d: %s", host, w.Code, want, w.Body)
		}
	}
}

// TestAForeignTokenIsTheClients fault, and not the server's.
func TestAForeignTokenIsTheClients(t *testing.T) {
	for name, tt := range map[string]struct {
		review string
		status int
		want   int
	}{
		"a token that the cluster does not know": {`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"error":"invalid bearer token"}}`,
			http.StatusCreated, http.StatusUnauthorized},
		"one of which it says nothing": {`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{}}`, http.StatusCreated, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.review))
			}))
			defer cluster.Close()
			h, err := Authenticated(&rest.Config{Host: cluster.URL}, logr.Discard(), "/page", http.NotFoundHandler())
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodGet, "/api/queue", nil)
			r.Header.Set("Authorization", "Bearer foreign")
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != tt.want {
				t.Errorf("%d %s, want %d", w.Code, w.Body, tt.want)
			}
		})
	}
}

func TestAClusterThatDoesNotAnswerIsNoFaultOfTheClient(t *testing.T) {
	cluster := &answers{next: roundTripper(func(*http.Request) (*http.Response, error) { return nil, http.ErrServerClosed })}
	if _, err := cluster.RoundTrip(httptest.NewRequest(http.MethodPost, "/", nil)); err == nil { //nolint:bodyclose // there is none
		t.Fatal("it answers")
	}
	w := httptest.NewRecorder()
	http.Error(&reply{ResponseWriter: w, cluster: cluster}, "Authentication failed", http.StatusInternalServerError)
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

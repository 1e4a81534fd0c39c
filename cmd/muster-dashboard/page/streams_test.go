package page

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestAClientHasSoManyStreams, and others have theirs.
func TestAClientHasSoManyStreams(t *testing.T) {
	s := &Server{streams: map[string]int{}}
	request := func(token, address string) string {
		r := httptest.NewRequest(http.MethodGet, "/api/events", nil)
		r.RemoteAddr = address
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		return clientOf(r)
	}
	for i := range mostStreams {
		if !s.open(request("", "10.0.0.1:1000")) || !s.open(request("jane", "10.0.0.1:1000")) {
			t.Fatalf("only %d may be open", i)
		}
	}
	if s.open(request("", "10.0.0.1:2000")) || s.open(request("jane", "10.0.0.2:1000")) {
		t.Error("more are open than may be")
	}
	if !s.open(request("", "10.0.0.2:1000")) || !s.open(request("joe", "10.0.0.1:1000")) {
		t.Error("others may open none")
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/api/events", nil)
	r.RemoteAddr = "10.0.0.1:3000"
	if s.events(w, r); w.Code != http.StatusTooManyRequests {
		t.Errorf("one more is answered with %d", w.Code)
	}
	s.close(request("", "10.0.0.1:1000"))
	if !s.open(request("", "10.0.0.1:2000")) {
		t.Error("one was closed, and none may be opened")
	}
}

package guard

import (
	"net/http"
	"net/http/httptest"
	"testing"
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

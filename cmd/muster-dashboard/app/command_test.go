package app

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
)

// TestThePageIsGuarded: other hosts are refused, and with authentication requests without a
// token; a probe has none.
func TestThePageIsGuarded(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
	for _, tc := range []struct {
		name, url, host string
		authenticate    bool
		want            int
	}{
		{"on loopback", "/queue", "127.0.0.1:8090", false, http.StatusOK},
		{"by the name of another site", "/api/queue", "evil.example:8090", false, http.StatusForbidden},
		{"by a name that is allowed", "/queue", "page.example", false, http.StatusOK},
		{"to others, without a token", "/api/queue", "10.0.0.1:8090", true, http.StatusUnauthorized},
		{"to others, by the name of another site", "/healthz", "evil.example", true, http.StatusForbidden},
		{"to a probe", "/healthz", "10.0.0.1:8090", true, http.StatusOK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, err := guarded(page, options{hosts: []string{"page.example"}, authenticate: tc.authenticate},
				&rest.Config{Host: "http://127.0.0.1:1"}, logr.Discard())
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodGet, tc.url, nil)
			r.Host = tc.host
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != tc.want {
				t.Errorf("%d %s, want %d", w.Code, w.Body, tc.want)
			}
		})
	}
}

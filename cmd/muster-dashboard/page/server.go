package page

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/view"
)

// Cluster is what the page reads.
type Cluster interface {
	// Reader's objects are never changed.
	client.Reader
	// Changed receives a value soon after a change.
	Changed() <-chan struct{}
	// Stale returns since when the cluster does not answer, and why; zero if it answers.
	Stale() (since time.Time, why string)
	// Missing returns missing rights, beside those that reading reports.
	Missing() []view.Right
}

// Config of a page.
type Config struct {
	Cluster  Cluster
	Settings view.Settings
	Clock    clock.WithTicker
	// Prometheus is the URL of a Prometheus with Muster's metrics. If empty, the history
	// starts with the page.
	Prometheus string
}

// Server serves the page. Run has to run beside it.
type Server struct {
	config Config
	mux    *http.ServeMux
	began  time.Time
	past   past
	// record is what Muster keeps, which was there before the page.
	record record
	// prometheus has the history before the page; nil if not configured.
	prometheus *prometheus

	// latest decision and forecast; nil until there is one.
	latest   atomic.Pointer[decision]
	foreseen atomic.Pointer[foreseen]

	mu sync.Mutex
	// news is closed when there is a heartbeat to send, and replaced.
	news chan struct{}
	// lookers is the number of open streams; seen is the time of the last request.
	lookers int
	// streams are the open ones of each client.
	streams map[string]int
	seen    time.Time
	// looked receives a value when a page opens.
	looked chan struct{}
}

//go:embed assets
var assets embed.FS

// views are the addresses of the page itself.
var views = []string{"/{$}", "/queue", "/jobs", "/obtainability", "/racks", "/clusters", "/cost", "/history"}

// New returns a page without a decision.
func New(c Config) (*Server, error) {
	s := &Server{
		config: c, mux: http.NewServeMux(), began: c.Clock.Now(), streams: map[string]int{},
		news: make(chan struct{}), looked: make(chan struct{}, 1),
	}
	if c.Prometheus != "" {
		s.prometheus = &prometheus{url: strings.TrimSuffix(c.Prometheus, "/"), samples: map[time.Duration][]sample{}}
	}
	if err := s.addAssets(); err != nil {
		return nil, err
	}
	s.mux.HandleFunc("GET /api/events", s.events)
	s.mux.HandleFunc("GET /api/queue", answer(s, (*Server).queue))
	s.mux.HandleFunc("GET /api/queue/rows", answer(s, (*Server).rows))
	s.mux.HandleFunc("GET /api/jobs", answer(s, (*Server).jobs))
	s.mux.HandleFunc("GET /api/spend", answer(s, (*Server).spend))
	s.mux.HandleFunc("GET /api/spend.csv", s.spendCSV)
	s.mux.HandleFunc("GET /api/explain", answer(s, (*Server).explain))
	s.mux.HandleFunc("GET /api/obtainability", answer(s, (*Server).obtainability))
	s.mux.HandleFunc("GET /api/racks", answer(s, (*Server).racks))
	s.mux.HandleFunc("GET /api/clusters", answer(s, (*Server).clusters))
	s.mux.HandleFunc("GET /api/cost", answer(s, (*Server).cost))
	s.mux.HandleFunc("GET /api/history", answer(s, (*Server).ended))
	// healthz reports that the page serves, whether or not the cluster answers: a restart
	// would not help.
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	return s, nil
}

// policy is the Content-Security-Policy: nothing is loaded from elsewhere, no text becomes a
// script, and no other site frames the page.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	s.mux.ServeHTTP(w, r)
}

// addAssets adds the files of the page. Browsers cache and revalidate them.
func (s *Server) addAssets() error {
	return fs.WalkDir(assets, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := assets.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		tag := `"` + hex.EncodeToString(sum[:8]) + `"`
		serve := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", tag)
			w.Header().Set("Cache-Control", "no-cache")
			http.ServeContent(w, r, path.Base(name), time.Time{}, strings.NewReader(string(text)))
		}
		if name == "assets/index.html" {
			for _, v := range views {
				s.mux.HandleFunc("GET "+v, serve)
			}
			return nil
		}
		s.mux.HandleFunc("GET /"+name, serve)
		return nil
	})
}

// refusal is an error with its HTTP status.
type refusal struct {
	status int
	why    string
}

func (r refusal) Error() string { return r.why }

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	if known := (refusal{}); errors.As(err, &known) {
		status = known.status
	}
	http.Error(w, err.Error(), status)
}

// answer writes the result of a method about the latest decision as JSON.
func answer[T any](s *Server, get func(*Server, context.Context, *decision, *http.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d, err := s.decided(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		out, err := get(s, r.Context(), d, r)
		if err != nil {
			fail(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(out) // the client may have disconnected
	}
}

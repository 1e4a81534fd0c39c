package page

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cmd/muster-dashboard/page"
	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/queueing/history"
)

// started is a page that runs until the end of the test, in the bubble of the test.
func started(t *testing.T, c page.Cluster) *page.Server {
	t.Helper()
	settings, err := view.LoadSettings("")
	if err != nil {
		t.Fatal(err)
	}
	s, err := page.New(page.Config{Cluster: c, Settings: settings, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	go s.Run(ctx)
	t.Cleanup(func() {
		end()
		synctest.Wait()
	})
	return s
}

// get requests a path, and returns the response.
func get(s *page.Server, path string) *http.Response {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Result()
}

// text of an answer.
func text(t *testing.T, r *http.Response) string {
	t.Helper()
	var out strings.Builder
	if _, err := bufio.NewReader(r.Body).WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestRowsAreChosenAndOrdered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := append(small(), team("speech", "", "h100=8")...)
		s := started(t, newWorld(append(objects, waiting("speech", "old", 4, 50*time.Hour))...))
		for query, want := range map[string]string{
			"":                           "4 old whale first second",
			"?queue=vision":              "3 whale first second",
			"?why=Turn":                  "1 first",
			"?why=Never":                 "2 old whale",
			"?q=WHALE":                   "1 whale",
			"?q=maximum+quota":           "2 old whale",
			"?queue=vision&order=age":    "3 first second whale",
			"?order=age&from=1&count=2":  "4 first second",
			"?from=9":                    "4",
			"?queue=none":                "0",
			"?count=0&order=start":       "4",
			"?order=start&queue=vision":  "3 whale first second",
			"?why=WaitingForQuota&q=job": "1 second",
		} {
			var answer struct {
				Total int
				Rows  []struct{ Name string }
			}
			if err := json.NewDecoder(get(s, "/api/queue/rows"+query).Body).Decode(&answer); err != nil {
				t.Fatal(err)
			}
			got := []string{string(rune('0' + answer.Total))}
			for _, r := range answer.Rows {
				got = append(got, strings.TrimPrefix(r.Name, "job/"))
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s: %v, want %s", query, got, want)
			}
		}
	})
}

// TestJobsThatCanNeverStartAreCountedFirst: one with more GPUs than any machine, whose reason is that it waits for machines, one beyond
// the maximum quota, and one that names a queue which does not exist.
func TestJobsThatCanNeverStartAreCountedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		huge := waiting("speech", "huge", 1, time.Hour)
		huge.Spec.PodSets[0].Template = pods(16)
		typo := waiting("speech", "typo", 1, time.Hour)
		typo.Spec.QueueName = "mian"
		s := started(t, newWorld(append(append(small(), team("speech", "", "h100=64")...), huge, typo)...))
		var summary struct {
			Never   int
			Reasons []struct {
				Words string
				Count int
			}
		}
		if err := json.NewDecoder(get(s, "/api/queue").Body).Decode(&summary); err != nil {
			t.Fatal(err)
		}
		if first := summary.Reasons[0]; summary.Never != 3 || first.Words != view.CannotStart || first.Count != 3 {
			t.Errorf("%d never start, and the reasons are %v", summary.Never, summary.Reasons)
		}
		var answer struct {
			Rows []struct{ Name, Words string }
		}
		if err := json.NewDecoder(get(s, "/api/queue/rows?count=3").Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		for _, r := range answer.Rows {
			if !strings.HasPrefix(r.Words, view.CannotStart+": ") {
				t.Errorf("%s is among the first three, and %s", r.Name, r.Words)
			}
		}
	})
}

func TestBadQuestionsAreAnsweredWithASentence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := started(t, newWorld(small()...))
		for path, want := range map[string]string{
			"/api/queue/rows?from=-1":                       `400 from: "-1" is not a number from 0 up`,
			"/api/queue/rows?count=many":                    `400 count: "many" is not a number from 0 up`,
			"/api/queue/rows?order=size":                    `400 order: "size" is not supported: leave it out, or use age or start`,
			"/api/obtainability?window=5":                   `400 window: "5" is not supported: use the seconds of one of [1h0m0s 6h0m0s 24h0m0s]`,
			"/api/explain?namespace=vision&workload=nobody": "404 Workload nobody in namespace vision no longer exists",
			"/nowhere": "404 ",
		} {
			r := get(s, path)
			if got := r.Status[:4] + text(t, r); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
	})
}

func TestWhatIsServedIsKeptAndGuarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := started(t, newWorld(small()...))
		for _, path := range []string{"/", "/queue", "/obtainability", "/cost", "/assets/main.js", "/assets/uplot/uPlot.esm.js",
			"/healthz", "/api/queue"} {
			r := get(s, path)
			if r.StatusCode != http.StatusOK || !strings.HasPrefix(r.Header.Get("Content-Security-Policy"), "default-src 'self'; ") ||
				r.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %s with %v", path, r.Status, r.Header)
			}
			tag := r.Header.Get("ETag")
			if tag == "" {
				continue
			}
			again := httptest.NewRequest(http.MethodGet, path, nil)
			again.Header.Set("If-None-Match", tag)
			w := httptest.NewRecorder()
			if s.ServeHTTP(w, again); w.Code != http.StatusNotModified {
				t.Errorf("%s is sent again: %d", path, w.Code)
			}
		}
	})
}

// stream is a response that never ends. It counts the updates by their version.
type stream struct {
	http.ResponseWriter
	versions map[string]bool
}

func (s *stream) Write(text []byte) (int, error) {
	_, data, ok := strings.Cut(string(text), "data: ")
	var p struct{ Version string }
	if err := json.Unmarshal([]byte(strings.TrimSpace(data)), &p); !ok || err != nil {
		return 0, errors.Join(errors.New("it is no heartbeat"), err)
	}
	s.versions[p.Version] = true
	return len(text), nil
}

func (*stream) Flush() {}

// TestDecidesSeldom though the cluster changes all the time: every two seconds while a
// page is open, and otherwise only to keep the history.
func TestDecidesSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(small()...)
		w.hide("nodes") // so that no forecast is made, which has versions of its own
		s := started(t, w)
		changes := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
				w.note()
			}
		}
		reads := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.reads
		}
		changes(time.Second)
		one, before := reads(), reads()
		changes(2 * time.Minute)
		if n := (reads() - before) / one; n < 2 || n > 5 {
			t.Errorf("%d decisions in 2 minutes in which nobody looks, want one for each sample of half a minute", n)
		}
		ctx, leave := context.WithCancel(t.Context())
		out := &stream{httptest.NewRecorder(), map[string]bool{}}
		over := make(chan struct{})
		go func() {
			defer close(over)
			s.ServeHTTP(out, httptest.NewRequest(http.MethodGet, "/api/events", nil).WithContext(ctx))
		}()
		before = reads()
		changes(time.Minute)
		if n := (reads() - before) / one; n < 15 || n > 31 {
			t.Errorf("%d decisions in a minute in which somebody looks, want at most one every two seconds", n)
		}
		leave()
		<-over
		if n := len(out.versions); n < 15 || n > 32 {
			t.Errorf("who looked was told of %d versions", n)
		}
		before = reads()
		changes(2 * time.Minute)
		if n := (reads() - before) / one; n > 6 {
			t.Errorf("%d decisions in 2 minutes after everybody has left", n)
		}
	})
}

// kept is a record in its ConfigMap.
func kept(t *testing.T, r *history.Record) *corev1.ConfigMap {
	t.Helper()
	encoded, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	week, err := time.Parse(time.DateOnly, r.Week)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "muster-system", Name: history.Name(history.WeekOf(week).Slot())},
		BinaryData: map[string][]byte{history.Key: encoded}}
}

// TestEndedJobsAreListed from the record that Muster keeps, whether or not the page was there when they ended.
func TestEndedJobsAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(small()...)
		s := started(t, w)
		if got := text(t, get(s, "/api/history")); !strings.Contains(got, `"total":0,"jobs":[],"queues":[]`) {
			t.Errorf("without a record it is %s", got)
		}
		record := history.NewRecord(history.WeekOf(time.Now()))
		record.Jobs = []history.Job{{Namespace: "vision", Name: "job/train", Workload: "job-train", Outcome: history.Failed, Why: "exit code 1",
			Queue: "main", Created: time.Now(), Ended: time.Now()}}
		record.Jobs[0].User, record.Jobs[0].Reserved = "alice", record.Jobs[0].Created
		record.Charge(history.Cost{Day: time.Now().UTC().Format(time.DateOnly), Namespace: "vision", Queue: "main", User: "=alice", Group: "dry",
			Purpose: "used", MicroUSD: 1_500_000})
		w.add(kept(t, record))
		<-time.After(time.Minute)
		for path, want := range map[string]string{
			"/api/jobs":          `"ended":1,"queues":[{"name":"vision/main","total":2,`,
			"/api/jobs?q=alice":  `"workload":"job-train","state":"Failed","user":"alice"`,
			"/api/jobs?window=7": `window: "7" is not supported`,
			"/api/explain?namespace=vision&workload=job-train": `"summary":"failed 60s ago, after 0s of waiting"`,
			"/api/spend?by=user":     `"spend":[{"name":"=alice","usd":[0,0,0,0,0,0,1.5],"sum":1.5}]`,
			"/api/spend?by=weather":  `by: "weather" is not supported`,
			"/api/spend.csv?by=user": "day,user,usd\n" + time.Now().UTC().Format(time.DateOnly) + ",'=alice,1.500000\n",
		} {
			if got := text(t, get(s, path)); !strings.Contains(got, want) {
				t.Errorf("%s lacks %s:\n%s", path, want, got)
			}
		}
		if got := text(t, get(s, "/api/history")); !strings.Contains(got, `"name":"job/train","workload":"job-train","outcome":"Failed"`) ||
			!strings.Contains(got, `"name":"vision/main","jobs":1,"failed":1`) {
			t.Errorf("it is %s", got)
		}
	})
}

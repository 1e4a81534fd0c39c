package invariants

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/test/invariants/promises"
)

// server plays an API server: it answers lists and watches of NodeGroups in the
// order of the script.
type server struct {
	*testing.T
	answers chan string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/nodegroups") {
		http.NotFound(w, r)
		return
	}
	asked := "list"
	if r.URL.Query().Get("watch") != "" {
		asked = "watch from " + r.URL.Query().Get("resourceVersion")
	}
	var answer string
	select {
	case answer = <-s.answers:
	default:
		answer = asked + "|"
		defer func() { <-r.Context().Done() }() // nothing more will happen
	}
	want, body, _ := strings.Cut(answer, "|")
	if asked != want {
		s.Errorf("the stream asked for %q, want %q", asked, want)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, body)
	w.(http.Flusher).Flush()
}

func item(name, revision string) string {
	return fmt.Sprintf(`{"apiVersion":"muster.dev/v1alpha1","kind":"NodeGroup","metadata":{"name":%q,"uid":"uid-%[1]s","resourceVersion":%q}}`,
		name, revision)
}

func listOf(revision string, items ...string) string {
	return fmt.Sprintf(`list|{"apiVersion":"muster.dev/v1alpha1","kind":"NodeGroupList","metadata":{"resourceVersion":%q},"items":[%s]}`,
		revision, strings.Join(items, ","))
}

func change(kind, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object)
}

func TestStreamMissesNothingOrSaysSo(t *testing.T) {
	s := &server{T: t, answers: make(chan string, 10)}
	for _, answer := range []string{
		listOf("10", item("a", "7"), item("b", "8")),
		"watch from 10|" + change("MODIFIED", item("a", "11")) + change("ADDED", item("c", "12")) + change("BOOKMARK", item("", "15")),
		// The connection has ended; the history is still there.
		"watch from 15|" + change("DELETED", item("b", "16")),
		// This time it is not.
		"watch from 16|" + change("ERROR", `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Expired","code":410}`),
		listOf("30", item("a", "11"), item("d", "25")),
	} {
		s.answers <- answer
	}
	fake := httptest.NewServer(s)
	defer fake.Close()
	streams, err := newStreams(&rest.Config{Host: fake.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out := make(chan message)
	first := make(chan error, 1)
	for _, stream := range streams {
		if stream.kind == promises.NodeGroups {
			go stream.run(ctx, out, func(err error) { first <- err })
		}
	}
	var got []string
	backs := 0
	for backs < 4 {
		select {
		case <-ctx.Done():
			t.Fatalf("the stream stopped telling after %v", got)
		case m := <-out:
			if m.gap != nil {
				got = append(got, fmt.Sprintf("gap %d-%d", m.gap.from, m.gap.to))
			}
			for _, e := range m.events {
				got = append(got, fmt.Sprintf("%s %d listed=%t deleted=%t", e.Object.GetName(), e.Revision, e.Listed, e.Deleted))
			}
			switch {
			case m.lost:
				got = append(got, "lost")
			case m.back:
				got = append(got, "back")
				backs++
			}
		}
	}
	want := []string{
		"gap 0-10", "a 7 listed=true deleted=false", "b 8 listed=true deleted=false", "back",
		"a 11 listed=false deleted=false", "c 12 listed=false deleted=false", "lost", "back",
		"b 16 listed=false deleted=true", "lost", "back",
		"lost", "gap 16-30", "d 25 listed=true deleted=false", "c 30 listed=true deleted=true", "back",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestACheckThatJudgedNothingFails(t *testing.T) {
	fake := httptest.NewServer(http.NotFoundHandler())
	defer fake.Close()
	// A cluster that serves none of the kinds.
	w, err := Watch(t.Context(), &rest.Config{Host: fake.URL})
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	w.Stop() // twice does no harm
	test := &recorder{}
	w.Check(test, promises.BoundPods)
	if len(test.lines) != 1 || !strings.Contains(test.lines[0], "P1 bound pods") {
		t.Errorf("told: %v", test.lines)
	}
}

func TestWatchNeedsACluster(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Watch(ctx, &rest.Config{Host: "127.0.0.1:1"}); err == nil {
		t.Error("no error although nobody answers")
	}
}

type recorder struct{ lines []string }

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

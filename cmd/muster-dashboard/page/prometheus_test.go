package page

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// answering is a Prometheus that gives the same answer to all that request the metric, and
// nothing to all else.
func answering(t *testing.T, metric, text string) *prometheus {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Query().Get("query"), metric) {
			text = `{"status": "success", "data": {"resultType": "matrix", "result": []}}`
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	return &prometheus{url: server.URL, samples: map[time.Duration][]sample{}}
}

func TestThePastOfPrometheusIsPutInColumns(t *testing.T) {
	p := answering(t, "chance", `{"status": "success", "data": {"resultType": "matrix", "result": [
		{"metric": {"group": "h100"}, "values": [[1795172400, "95"], [1795172460, "40.4"], [1795179600, "7"]]}]}}`)
	// 1795172400 is an hour before noon.
	samples, err := p.sample(context.Background(), noon.Add(30*time.Second), time.Hour)
	if err != nil || len(samples) != columns+1 {
		t.Fatalf("%d samples: %v", len(samples), err)
	}
	for i, want := range map[int]groupSample{0: {chance: 95}, 1: {chance: 40}} {
		if got := samples[i]; !got.at.Equal(noon.Add(time.Duration(i-columns)*time.Minute)) || got.groups["h100"] != want {
			t.Errorf("column %d is %v", i, got)
		}
	}
	if got := samples[2]; len(got.groups) != 0 || got.seen {
		t.Errorf("of the third minute nothing is known, but %v", got)
	}
}

func TestAPrometheusThatFailsSaysWhy(t *testing.T) {
	for text, want := range map[string]string{
		`{"status": "error", "error": "too many samples"}`: "returned an error: too many samples",
		"<html>": "check --prometheus",
	} {
		if _, err := answering(t, "", text).sample(context.Background(), noon, time.Hour); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	gone := answering(t, "", "")
	gone.url = "http://127.0.0.1:1"
	if _, err := gone.sample(context.Background(), noon, time.Hour); err == nil ||
		!strings.Contains(err.Error(), "asking Prometheus (--prometheus)") {
		t.Errorf("where nobody listens: %v", err)
	}
}

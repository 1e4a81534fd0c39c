package app

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestResourceOf(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/nodes/a":                         "nodes",
		"/apis/kwok.muster.dev/v1alpha1/machines": "machines",
		"/apis/autoscaling.x-k8s.io/v1/namespaces/team/provisioningrequests/gang/status": "provisioningrequests/status",
		"/api/v1/namespaces/team":                       "namespaces",
		"/apis/events.k8s.io/v1/namespaces/team/events": "events",
		"/api/v1/namespaces/team/pods/worker/eviction":  "pods/eviction",
		"/healthz": "other",
	} {
		if got := resourceOf(path); got != want {
			t.Errorf("resourceOf(%s) = %s, want %s", path, got, want)
		}
	}
}

// TestWritesThatNeverSucceed make a process unready; those that are refused for what one object
// is do not.
func TestWritesThatNeverSucceed(t *testing.T) {
	for name, tc := range map[string]struct {
		outcomes []int // status codes, 10 s apart; 0 is no answer
		want     string
	}{
		"all succeed":                         {[]int{200, 201, 200, 200, 200, 200}, ""},
		"all conflict":                        {[]int{409, 409, 409, 409, 409, 409}, ""},
		"all are denied by a policy":          {[]int{403, 403, 403, 403, 403, 403}, ""},
		"a webhook is in the way":             {[]int{500, 500, 500, 500, 500}, "all 5 writes PATCH jobs since 2026-01-01T12:00:00Z failed, the last with: 500 Internal Server Error"},
		"the API server is gone":              {[]int{0, 0, 0, 0, 0, 0}, "connection refused"},
		"it was gone":                         {[]int{0, 0, 0, 0, 0, 200}, ""},
		"some fail":                           {[]int{500, 500, 500, 500, 200, 500, 500}, ""},
		"they failed, and no more were tried": {append([]int{500, 500, 500, 500, 500}, slices.Repeat([]int{-1}, 60)...), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
			r := &refused{clock: c, kinds: map[string]*refusal{}}
			for _, code := range tc.outcomes {
				switch code {
				case -1:
				case 0:
					r.note("PATCH jobs", nil, errors.New("connection refused"))
				default:
					r.note("PATCH jobs", &http.Response{StatusCode: code, Status: fmt.Sprint(code, " ", http.StatusText(code))}, nil)
				}
				c.SetTime(c.Now().Add(10 * time.Second))
			}
			err := r.ready(nil)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

package runner

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-dev/muster/kwok/faults"
	"github.com/muster-dev/muster/kwok/scenario"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func TestAWriteIsSentUntilItHasAnAnswer(t *testing.T) {
	refused := errors.New("connection refused")
	pods := schema.GroupResource{Resource: "pods"}
	forbidden := apierrors.NewForbidden(pods, "pod", errors.New("not you"))
	for name, tc := range map[string]struct {
		answers  []error
		want     error
		wantSent int
	}{
		"an answer at once":                       {[]error{nil}, nil, 1},
		"nobody is there, and then somebody":      {[]error{refused, refused, nil}, nil, 3},
		"too many requests, for now":              {[]error{apierrors.NewTooManyRequests("later", 1), nil}, nil, 2},
		"the server has trouble, for now":         {[]error{apierrors.NewInternalError(refused), nil}, nil, 2},
		"a no is an answer":                       {[]error{refused, forbidden}, forbidden, 2},
		"nobody comes back until the run is over": {nil, nil, 50},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 50*again-time.Millisecond)
				defer cancel()
				sent := 0
				err := insist(ctx, func() error {
					sent++
					if sent > len(tc.answers) {
						return refused
					}
					return tc.answers[sent-1]
				})
				if !errors.Is(err, tc.want) || sent != tc.wantSent {
					t.Errorf("error %v after %d times, want %v after %d", err, sent, tc.want, tc.wantSent)
				}
			})
		})
	}
}

func TestWhatNeedsMuster(t *testing.T) {
	for name, tc := range map[string]struct {
		scenario scenario.Scenario
		none     bool
	}{
		"fixed nodes only":       {scenario.Scenario{}, true},
		"machines to be bought":  {scenario.Scenario{Groups: []v1alpha1.NodeGroup{{}}}, false},
		"faults that come to it": {scenario.Scenario{Faults: &faults.Plan{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Check(&tc.scenario, None); (err == nil) != tc.none {
				t.Errorf("without Muster: error %v", err)
			}
			if err := Check(&tc.scenario, Muster); err != nil {
				t.Errorf("with Muster: %v", err)
			}
		})
	}
}

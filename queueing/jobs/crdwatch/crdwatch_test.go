package crdwatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cluster serves some kinds, and has no objects.
type cluster struct {
	ctrl.Manager
	client.Reader
	meta.RESTMapper
	serves []string
	// gone are not served any more, while the mapper still has them.
	gone *[]string
}

func (c cluster) GetRESTMapper() meta.RESTMapper { return c }
func (c cluster) GetAPIReader() client.Reader    { return c }

func (c cluster) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	if !slices.Contains(c.serves, kind.Kind) {
		return nil, &meta.NoKindMatchError{GroupKind: kind}
	}
	return &meta.RESTMapping{}, nil
}

func (c cluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	kind := strings.TrimSuffix(list.GetObjectKind().GroupVersionKind().Kind, "List")
	if c.gone != nil && slices.Contains(*c.gone, kind) {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, "")
	}
	return nil
}

// TestTheFirstErrorEndsTheProcess, whatever begins after it; kinds without a CRD are waited for.
func TestTheFirstErrorEndsTheProcess(t *testing.T) {
	var began []string
	of := func(kind string, err error) Integration {
		return Integration{Kinds: []schema.GroupVersionKind{{Group: "acme.io", Version: "v1", Kind: kind}}, Begin: func() error {
			began = append(began, kind)
			return err
		}}
	}
	broken := errors.New("broken")
	r := &Runnable{Manager: cluster{serves: []string{"First", "Second", "Third"}}, Report: func(schema.GroupKind, bool) {},
		Waiting: []Integration{of("Absent", nil), of("First", nil), of("Second", broken), of("Third", nil)}}
	if err := r.Start(t.Context()); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the second", err)
	}
	if !slices.Equal(began, []string{"First", "Second"}) {
		t.Errorf("these began: %v", began)
	}
}

// TestKindsWithoutACRDAreWaitedFor until the process ends.
func TestKindsWithoutACRDAreWaitedFor(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &Runnable{Manager: cluster{}, Waiting: []Integration{{Kinds: []schema.GroupVersionKind{{Kind: "Absent"}}}}}
	if err := r.Start(ctx); err != nil || len(r.Waiting) != 1 {
		t.Errorf("error %v, and %d wait", err, len(r.Waiting))
	}
}

// TestAKindThatIsNoLongerServedIsReported, and that it is again.
func TestAKindThatIsNoLongerServedIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		gone := []string{}
		ctx, cancel := context.WithCancel(t.Context())
		r := &Runnable{Manager: cluster{serves: []string{"JobSet", "Other"}, gone: &gone}, Report: func(kind schema.GroupKind, served bool) {
			told = append(told, fmt.Sprint(kind.Kind, " ", served))
		}}
		for _, kind := range []string{"JobSet", "Other", "Absent"} {
			r.Waiting = append(r.Waiting, Integration{Kinds: []schema.GroupVersionKind{{Group: "acme.io", Version: "v1", Kind: kind}},
				Begin: func() error { return nil }})
		}
		ended := make(chan error)
		go func() { ended <- r.Start(ctx) }()
		for _, step := range []struct{ gone, want []string }{
			{nil, []string{"JobSet true", "Other true"}}, {[]string{"JobSet"}, []string{"JobSet false"}}, {[]string{"JobSet"}, nil},
			{nil, []string{"JobSet true"}},
		} {
			gone = step.gone
			<-time.After(servedAgain)
			synctest.Wait()
			if !slices.Equal(told, step.want) {
				t.Errorf("without %v it is told %v, want %v", step.gone, told, step.want)
			}
			told = nil
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

package newcomers

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cluster serves some kinds, and has no objects of them.
type cluster struct {
	ctrl.Manager
	client.Reader
	meta.RESTMapper
	serves []string
}

func (c cluster) GetRESTMapper() meta.RESTMapper { return c }
func (c cluster) GetAPIReader() client.Reader    { return c }

func (c cluster) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	if !slices.Contains(c.serves, kind.Kind) {
		return nil, &meta.NoKindMatchError{GroupKind: kind}
	}
	return &meta.RESTMapping{}, nil
}

func (cluster) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// TestTheFirstErrorEndsTheProcess, whatever begins after it; kinds without a CRD are waited for.
func TestTheFirstErrorEndsTheProcess(t *testing.T) {
	var began []string
	of := func(kind string, err error) Newcomer {
		return Newcomer{Kinds: []schema.GroupVersionKind{{Group: "acme.io", Version: "v1", Kind: kind}}, Begin: func() error {
			began = append(began, kind)
			return err
		}}
	}
	broken := errors.New("broken")
	r := &Runnable{Manager: cluster{serves: []string{"First", "Second", "Third"}},
		Waiting: []Newcomer{of("Absent", nil), of("First", nil), of("Second", broken), of("Third", nil)}}
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
	r := &Runnable{Manager: cluster{}, Waiting: []Newcomer{{Kinds: []schema.GroupVersionKind{{Kind: "Absent"}}}}}
	if err := r.Start(ctx); err != nil || len(r.Waiting) != 1 {
		t.Errorf("error %v, and %d wait", err, len(r.Waiting))
	}
}

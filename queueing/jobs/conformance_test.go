package jobs_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	. "github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/conformance"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

// TestConformance of all kinds that are built in.
func TestConformance(t *testing.T) { conformance.Run(t, subject) }

// TestBadInput is told to its user, with what to do about it.
func TestBadInput(t *testing.T) { conformance.BadInput(t, subject) }

// subject is the reconciler of a kind.
func subject(gvk schema.GroupVersionKind) conformance.Subject {
	all := kinds.All()
	kind := all[slices.IndexFunc(all, func(k Kind) bool { return k.GroupVersionKind() == gvk })]
	return conformance.Subject{
		Indexes: map[string]client.IndexerFunc{ControllerIndex: ControllerOf, PrebuiltIndex: PrebuiltOf, PodIndex: JobUIDOf},
		New: func(cached client.Client, live client.Reader, recorder events.EventRecorder, now func() time.Time, podsReady bool) conformance.Controller {
			r := NewReconciler(kind, cached, live, recorder, now)
			*r.Owners(), *r.PodsReady() = OwnersAmong(all), podsReady
			return conformance.Controller{
				Reconcile: func(ctx context.Context, key any) (reconcile.Result, error) {
					return r.Reconcile(ctx, key.(reconcile.Request))
				},
				Asks: func(before, after client.Object) []any { return Asks(r, before, after) },
			}
		},
	}
}

package jobs_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	. "github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/conformance"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

// TestConformance of all kinds that are built in, and of one of a configuration.
func TestConformance(t *testing.T) { conformance.Run(t, subject) }

// TestBadInput: the event says what is wrong and how to fix it.
func TestBadInput(t *testing.T) { conformance.BadInput(t, subject) }

// own is the kind of a configuration.
var own = sync.OnceValue(func() *kinds.Kind {
	var s kinds.Stanza
	if err := yaml.UnmarshalStrict([]byte(conformance.Own), &s); err != nil {
		panic(err) // it is a constant
	}
	all, wrong := kinds.CompileAll([]kinds.Stanza{s}, field.NewPath("jobKinds"))
	if len(wrong) > 0 {
		panic(wrong.ToAggregate())
	}
	return all[0]
})

// subject is the reconciler of a kind.
func subject(gvk schema.GroupVersionKind) conformance.Subject {
	all := kinds.All(own())
	kind := all[slices.IndexFunc(all, func(k Kind) bool { return k.GroupVersionKind() == gvk })]
	return conformance.Subject{
		Indexes: map[string]client.IndexerFunc{ControllerIndex: ControllerOf, PrebuiltIndex: new(Reconciler).PrebuiltOf, PodIndex: JobUIDOf},
		New: func(cached client.Client, live client.Reader, recorder events.EventRecorder, now func() time.Time,
			podsReady bool) conformance.Controller {
			r := NewReconciler(kind, cached, live, recorder, now)
			*r.Owners(), *r.PodsReady() = ByGroupKind(all), podsReady
			return conformance.Controller{
				Reconcile: func(ctx context.Context, key any) (reconcile.Result, error) {
					return r.Reconcile(ctx, key.(reconcile.Request))
				},
				Asks: func(before, after client.Object) []any { return Asks(r, before, after) },
			}
		},
	}
}

package podgroup

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/metrics"
	"github.com/muster-dev/muster/queueing/jobs/conformance"
)

// TestConformance of pods, groups of pods, and the kinds that create them.
func TestConformance(t *testing.T) {
	conformance.RunGated(t, conformance.Subject{
		Indexes: map[string]client.IndexerFunc{gangIndex: indexOf},
		New: func(cached client.Client, live client.Reader, recorder events.EventRecorder, now func() time.Time,
			podsReady bool) conformance.Controller {
			r := &reconciler{client: cached, live: live, recorder: recorder, metrics: metrics.New(metrics.Config{}), now: now, podsReady: podsReady}
			return conformance.Controller{
				Reconcile: func(ctx context.Context, k any) (reconcile.Result, error) { return r.Reconcile(ctx, k.(key)) },
				Asks:      enqueued,
			}
		},
	})
}

// enqueued returns the keys that a change enqueues.
func enqueued(before, after client.Object) (out []any) {
	for _, o := range []client.Object{before, after} {
		var keys []key
		switch o := o.(type) {
		case *corev1.Pod:
			if passes(before, after) {
				keys = gangOf(context.Background(), o)
			}
		case *kueue.Workload:
			keys = (&reconciler{}).gangOfWorkload(context.Background(), o)
		case *appsv1.StatefulSet:
			keys = gangOfStatefulSet(context.Background(), o)
		case *unstructured.Unstructured:
			if o.GetKind() == leaderWorkerSetKind.Kind {
				keys = gangsOfLeaderWorkerSet(context.Background(), o)
			}
		}
		for _, k := range keys {
			out = append(out, k)
		}
	}
	return out
}

func passes(before, after client.Object) bool {
	switch {
	case before == nil:
		return podChanges.Create(event.CreateEvent{Object: after})
	case after == nil:
		return podChanges.Delete(event.DeleteEvent{Object: before})
	}
	return podChanges.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
}

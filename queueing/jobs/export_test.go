package jobs

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-dev/muster/queueing/controller/metrics"
	"github.com/muster-dev/muster/queueing/jobs/owned"
	"github.com/muster-dev/muster/queueing/jobs/templates"
	"github.com/muster-dev/muster/queueing/workload/podcounts"
)

// Reconciler and what follows are for tests, which are outside of the package because the
// kinds that they need import it.
type Reconciler = reconciler

func NewReconciler(kind Kind, c client.Client, live client.Reader, recorder events.EventRecorder, now func() time.Time) *Reconciler {
	r := &reconciler{kind: kind, client: c, live: live, recorder: recorder, now: now, metrics: metrics.New(metrics.Config{}),
		gangs: &atomic.Bool{}, owned: &owned.Kinds{}}
	// The fake client has no cached index, so it is read each time.
	r.someNamePrebuilt.Store(true)
	return r
}

func (r *reconciler) Client() *client.Client              { return &r.client }
func (r *reconciler) Live() *client.Reader                { return &r.live }
func (r *reconciler) PodsReady() *bool                    { return &r.podsReady }
func (r *reconciler) Managed() *labels.Selector           { return &r.managed }
func (r *reconciler) Unqueued() *labels.Selector          { return &r.unqueued }
func (r *reconciler) LabelsToCopy() *[]string             { return &r.labelsToCopy }
func (r *reconciler) Owners() *map[schema.GroupKind]Kind  { return &r.owners }
func (r *reconciler) Gangs() *atomic.Bool                 { return r.gangs }
func (r *reconciler) SomeNamePrebuilt() *atomic.Bool      { return &r.someNamePrebuilt }
func (r *reconciler) PrebuiltOf(o client.Object) []string { return watches{r}.prebuiltOf(o) }
func (r *reconciler) Remembered() int                     { return len(r.ofJob) }
func (r *reconciler) ForgetAll()                          { r.ofJob = nil }

const (
	Lag             = lag
	Settling        = settling
	PrebuiltIndex   = prebuiltIndex
	ControllerIndex = owned.Index
	PodIndex        = podIndex
)

var (
	ControllerOf  = owned.IndexBy
	JobUIDOf      = jobUIDOf
	ByGroupKind   = byGroupKind
	SlicesOf      = slicesOf
	CurrentSlice  = currentSlice
	SliceKey      = sliceKey
	Granted       = podcounts.Granted
	Reclaimed     = podcounts.Reclaimed
	IsElasticGate = templates.IsElasticGate

	WorkloadOf = (*reconciler).workloadOf
	IsQueued   = (*reconciler).isQueued
)

func JobsOfPrebuilt(r *Reconciler, ctx context.Context, o client.Object) []reconcile.Request {
	return watches{r}.jobsOfPrebuilt(ctx, o)
}

func JobsOfClass(r *Reconciler, ctx context.Context, o client.Object) []reconcile.Request {
	return watches{r}.jobsOfClass(ctx, o)
}

func JobsOfPriority(r *Reconciler, ctx context.Context, o client.Object) []reconcile.Request {
	return watches{r}.jobsOfPriority(ctx, o)
}

func JobsUnder(r *Reconciler, ctx context.Context, o client.Object) []reconcile.Request {
	return watches{r}.jobs().Under(ctx, o, func() []client.ObjectList { return []client.ObjectList{&batchv1.JobList{}} })
}

func ConcernsQueues(r *Reconciler) predicate.Predicate { return watches{r}.concernsQueues() }

// Asks returns the requests that a change enqueues. before is nil for a new object, and after for a deleted one.
func Asks(r *Reconciler, before, after client.Object) (out []any) {
	w, passes := watches{r}, func(p predicate.Predicate) bool {
		switch {
		case before == nil:
			return p.Create(event.CreateEvent{Object: after})
		case after == nil:
			return p.Delete(event.DeleteEvent{Object: before})
		}
		return p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}
	kindOf := func(o client.Object) schema.GroupVersionKind {
		gvk, err := apiutil.GVKForObject(o, r.client.Scheme())
		if err != nil {
			panic(err) // the test cluster serves all kinds
		}
		return gvk
	}
	for _, o := range []client.Object{before, after} {
		if o == nil {
			continue
		}
		gvk := kindOf(o)
		if gvk == r.kind.GroupVersionKind() && passes(w.concernsQueues()) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
		for _, x := range w.all() {
			if kindOf(x.object) == gvk && !slices.ContainsFunc(x.passes, func(p predicate.Predicate) bool { return !passes(p) }) {
				for _, job := range x.jobs(context.Background(), o) {
					out = append(out, job)
				}
			}
		}
	}
	return out
}

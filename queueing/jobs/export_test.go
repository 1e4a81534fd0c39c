package jobs

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/controller/metrics"
)

// Reconciler and what follows are for tests, which are outside of the package because the
// kinds that they need import it.
type Reconciler = reconciler

func NewReconciler(kind Kind, c client.Client, live client.Reader, recorder events.EventRecorder, now func() time.Time) *Reconciler {
	return &reconciler{kind: kind, client: c, live: live, recorder: recorder, now: now, metrics: metrics.New(metrics.Config{})}
}

func (r *reconciler) Client() *client.Client     { return &r.client }
func (r *reconciler) Live() *client.Reader       { return &r.live }
func (r *reconciler) PodsReady() *bool           { return &r.podsReady }
func (r *reconciler) Unqueued() *labels.Selector { return &r.unqueued }
func (r *reconciler) LabelsToCopy() *[]string    { return &r.labelsToCopy }
func (r *reconciler) Remembered() int            { return len(r.ofJob) }
func (r *reconciler) ForgetAll()                 { r.ofJob = nil }

func NewBinder(c client.Client, conf config.Config) *binder { return &binder{client: c, config: conf} }

const (
	Lag             = lag
	Settling        = settling
	StartPolicy     = startPolicy
	DefaultPolicy   = defaultPolicy
	UnqueuedPolicy  = unqueuedPolicy
	OwnersPolicy    = ownersPolicy
	PrebuiltIndex   = prebuiltIndex
	ControllerIndex = controllerIndex
)

var (
	PrebuiltOf       = prebuiltOf
	ControllerOf     = controllerOf
	Nowhere          = nowhere
	UnqueuedSelector = unqueuedSelector
	QueuedOwners     = queuedOwners
	SlicesOf         = slicesOf
	CurrentSlice     = currentSlice
	SliceKey         = sliceKey
	Granted          = granted
	Reclaimed        = reclaimed
	IsElasticGate    = isElasticGate
	IsReplaced       = isReplaced

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

func ConcernsQueues(r *Reconciler) predicate.Predicate { return watches{r}.concernsQueues() }

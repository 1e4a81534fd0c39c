package jobs

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/controller/metrics"
)

const (
	// lag is how long a created Workload is waited for before the Job is looked at
	// as one that has none, and how often pods are looked at that have to go, or to
	// come; caches are rarely a second behind.
	lag = 5 * time.Second
	// settling is for how long the pods of a Job that are done are not yet reported
	// as reclaimable: where all end at about the same time, the end of the Job tells
	// as much, in a write that is needed anyway.
	settling = 10 * time.Second
)

// workers is how many Jobs are worked on at once; each mostly waits for the API
// server.
const workers = 8

// reconciler keeps Jobs and their Workloads in step.
type reconciler struct {
	client client.Client
	// live reads past the cache, where a mistake would stop a running Job.
	live     client.Reader
	recorder events.EventRecorder
	metrics  *metrics.Metrics
	now      func() time.Time
	// podsReady says that somebody waits for the condition PodsReady.
	podsReady bool
	// unnamed are the namespaces whose Jobs queue even if they name no queue; nil is
	// none.
	unnamed labels.Selector
	// copied are the keys of the labels that a Job's Workload has, too.
	copied []string

	mu sync.Mutex
	// known is what is remembered of Jobs, by their UID.
	known map[types.UID]*memory
}

// memory is what is known of a Job beyond the API. A restart loses it, at the
// price of an event more or of a wait.
type memory struct {
	// told is what the Job's user has been told last of what can last, so that an event
	// is sent once and not at each change.
	told string
	// created is when a Workload was created that the cache does not show yet.
	created time.Time
	// done is since when there are pods to report as reclaimable.
	done time.Time
	// lacking is for a Job whose pods have not come.
	lacking lacking
	// owner is what was found of the object that is said to queue the Job with it.
	owner owner
}

// owner is an object that a Job says to be controlled by.
type owner struct {
	uid    types.UID
	exists bool
}

// Add adds the Job controller to a manager, whose scheme must know Kueue's
// v1beta2 types.
func Add(mgr ctrl.Manager, c config.Config, m *metrics.Metrics) error {
	unnamed, err := unnamedSelector(c)
	if err != nil {
		return err
	}
	r := &reconciler{
		client:    mgr.GetClient(),
		live:      mgr.GetAPIReader(),
		recorder:  mgr.GetEventRecorder("muster-job"),
		metrics:   m,
		now:       time.Now,
		podsReady: c.WaitForPodsReady != nil,
		unnamed:   unnamed,
		copied:    c.LabelKeysToCopy,
		known:     map[types.UID]*memory{},
	}
	if err := mgr.Add(&binder{client: mgr.GetClient(), config: c}); err != nil {
		return fmt.Errorf("adding what binds policy %s: %w", unnamedPolicy, err)
	}
	if err := addIndexes(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("job").
		For(&batchv1.Job{}, builder.WithPredicates(r.queuedJobs())).
		Owns(&kueue.Workload{}).
		Watches(&kueue.Workload{}, handler.EnqueueRequestsFromMapFunc(r.jobsOfPrebuilt)).
		Watches(&kueue.WorkloadPriorityClass{}, handler.EnqueueRequestsFromMapFunc(r.jobsOfClass), builder.WithPredicates(comesOrGoes)).
		Watches(&schedulingv1.PriorityClass{}, handler.EnqueueRequestsFromMapFunc(r.jobsOfPriority)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding the Job controller: %w", err)
	}
	return nil
}

// queuedJobs passes Jobs that are in a queue, or were until this change, and
// those that still hold something of one: a record to restore, or a Workload with
// quota to give back.
func (r *reconciler) queuedJobs() predicate.Predicate {
	passes := func(object client.Object) bool {
		job, ok := object.(*batchv1.Job)
		if !ok {
			return false
		}
		ctx := context.Background()
		if queued, err := r.isQueued(ctx, job); queued || err != nil || wasStarted(job) {
			return true
		}
		w, err := r.workloadOf(ctx, job)
		return w != nil || err != nil
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return passes(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.known, e.Object.GetUID())
			return false
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return passes(e.ObjectNew) || passes(e.ObjectOld) },
	}
}

// comesOrGoes passes what makes a class be there or not.
var comesOrGoes = predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}

// jobsOfClass are the Jobs whose priority a WorkloadPriorityClass gives.
func (r *reconciler) jobsOfClass(ctx context.Context, class client.Object) []reconcile.Request {
	return r.queued(ctx, func(job *batchv1.Job) bool { return job.Labels[PriorityClassLabel] == class.GetName() })
}

// jobsOfPriority are the Jobs whose priority the PriorityClass of their pods
// gives, or may give if it is the default.
func (r *reconciler) jobsOfPriority(ctx context.Context, class client.Object) []reconcile.Request {
	return r.queued(ctx, func(job *batchv1.Job) bool {
		name := job.Spec.Template.Spec.PriorityClassName
		return job.Labels[PriorityClassLabel] == "" && (name == class.GetName() || name == "")
	})
}

// queued are the Jobs in queues that match.
func (r *reconciler) queued(ctx context.Context, matches func(*batchv1.Job) bool) []reconcile.Request {
	var jobs batchv1.JobList
	options := []client.ListOption{client.UnsafeDisableDeepCopy}
	if r.unnamed == nil {
		options = append(options, client.HasLabels{QueueLabel})
	}
	if err := r.client.List(ctx, &jobs, options...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the queued Jobs")
		return nil
	}
	var out []reconcile.Request
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if queued, err := r.isQueued(ctx, job); (queued || err != nil) && matches(job) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		}
	}
	return out
}

// remember changes what is known of a Job.
func (r *reconciler) remember(uid types.UID, change func(*memory)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[uid]
	if m == nil {
		m = &memory{}
		r.known[uid] = m
	}
	change(m)
}

// firstTime reports whether this is not what a Job's user has been told last.
func (r *reconciler) firstTime(uid types.UID, what string) (first bool) {
	r.remember(uid, func(m *memory) { first, m.told = m.told != what, what })
	return first
}

// expected says how much longer the Workload of a Job is expected to show up in
// the cache.
func (r *reconciler) expected(uid types.UID, shown bool) (left time.Duration) {
	r.remember(uid, func(m *memory) {
		if left = lag - r.now().Sub(m.created); shown || left <= 0 {
			left, m.created = 0, time.Time{}
		}
	})
	return left
}

func (r *reconciler) expect(uid types.UID) {
	r.remember(uid, func(m *memory) { m.created = r.now() })
}

// hasSettled says that a Job has had pods to report for long enough.
func (r *reconciler) hasSettled(uid types.UID) (settled bool) {
	r.remember(uid, func(m *memory) {
		if m.done.IsZero() {
			m.done = r.now()
		}
		settled = r.now().Sub(m.done) >= settling
	})
	return settled
}

// reported: what comes next has to settle again.
func (r *reconciler) reported(uid types.UID) {
	r.remember(uid, func(m *memory) { m.done = time.Time{} })
}

package jobs

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
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
)

// lag is how long a created Workload is waited for before the Job is looked at
// as one that has none, and how often pods are looked at that have to go; caches
// are rarely a second behind.
const lag = 5 * time.Second

// workers is how many Jobs are worked on at once; each mostly waits for the API
// server.
const workers = 8

// reconciler keeps Jobs and their Workloads in step.
type reconciler struct {
	client client.Client
	// live reads past the cache, where a mistake would stop a running Job.
	live     client.Reader
	recorder events.EventRecorder
	now      func() time.Time

	mu sync.Mutex
	// told are the Jobs outside the queues that their users have been told about,
	// so that an event is sent once and not at each change.
	told map[types.UID]bool
	// created is when the Workload of a Job was created that the cache does not
	// show yet.
	created map[types.UID]time.Time
}

// Add adds the Job controller to a manager, whose scheme must know Kueue's
// v1beta2 types.
func Add(mgr ctrl.Manager) error {
	r := &reconciler{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		recorder: mgr.GetEventRecorder("muster-job"),
		now:      time.Now,
		told:     map[types.UID]bool{},
		created:  map[types.UID]time.Time{},
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("job").
		For(&batchv1.Job{}, builder.WithPredicates(r.queuedJobs())).
		Owns(&kueue.Workload{}).
		Watches(&kueue.WorkloadPriorityClass{}, handler.EnqueueRequestsFromMapFunc(r.jobsOfClass)).
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
		if isQueued(job) || wasStarted(job) {
			return true
		}
		w, err := r.workloadOf(context.Background(), job)
		return w != nil || err != nil
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return passes(e.Object) },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return passes(e.ObjectNew) || passes(e.ObjectOld) },
	}
}

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
	if err := r.client.List(ctx, &jobs, client.HasLabels{QueueLabel}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the queued Jobs")
		return nil
	}
	var out []reconcile.Request
	for i := range jobs.Items {
		if job := &jobs.Items[i]; isQueued(job) && matches(job) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		}
	}
	return out
}

// firstTime says that a Job's user has not been told yet that it runs outside
// its queue.
func (r *reconciler) firstTime(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told[uid] {
		return false
	}
	r.told[uid] = true
	return true
}

// expected says how much longer the Workload of a Job is expected to show up in
// the cache.
func (r *reconciler) expected(uid types.UID, shown bool) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.created[uid]
	if left := lag - r.now().Sub(at); ok && !shown && left > 0 {
		return left
	}
	delete(r.created, uid)
	return 0
}

func (r *reconciler) expect(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.created[uid] = r.now()
}

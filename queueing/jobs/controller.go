package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/fairqueue"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/controller/metrics"
	"github.com/muster-dev/muster/queueing/jobs/bindings"
	"github.com/muster-dev/muster/queueing/jobs/crdwatch"
	"github.com/muster-dev/muster/queueing/jobs/owned"
	"github.com/muster-dev/muster/queueing/jobs/owners"
)

// workers is how many jobs of a kind are reconciled at once; each mostly waits for the API
// server.
const workers = 8

// Add adds a controller for the jobs of each kind to a manager. Its scheme must have Kueue's v1beta2 types. The controller of a custom
// resource starts once the cluster serves the resource.
func Add(mgr ctrl.Manager, c config.Config, m *metrics.Metrics, webhook bool, kinds ...Kind) error {
	managed, err := bindings.Managed(c)
	if err != nil {
		return err
	}
	unqueued, err := bindings.Selector(c)
	if err != nil {
		return err
	}
	if err := mgr.Add(&bindings.Binder{Client: mgr.GetClient(), Config: c, Webhook: webhook}); err != nil {
		return fmt.Errorf("adding the binder of policy %s: %w", bindings.Unqueued, err)
	}
	indexer := mgr.GetFieldIndexer()
	if err := indexer.IndexField(context.Background(), &kueue.Workload{}, owned.Index, owned.IndexBy); err != nil {
		return fmt.Errorf("indexing Workloads by their controller: %w", err)
	}
	if err := indexer.IndexField(context.Background(), &corev1.Pod{}, podIndex, jobUIDOf); err != nil {
		return fmt.Errorf("indexing pods by their job: %w", err)
	}
	later, gangs := &crdwatch.Runnable{Manager: mgr, Report: m.KindServed}, &atomic.Bool{}
	if !webhook {
		later.Waiting = append(later.Waiting, begin(gangs))
	}
	ownedKinds := &owned.Kinds{}
	for _, kind := range kinds {
		r := &reconciler{
			kind:         kind,
			client:       mgr.GetClient(),
			live:         mgr.GetAPIReader(),
			recorder:     mgr.GetEventRecorder("muster-" + strings.ToLower(kind.GroupVersionKind().Kind)),
			metrics:      m,
			now:          time.Now,
			podsReady:    c.WaitForPodsReady != nil,
			managed:      managed,
			unqueued:     unqueued,
			owners:       byGroupKind(kinds),
			labelsToCopy: c.LabelKeysToCopy,
			gangs:        gangs,
			owned:        ownedKinds,
		}
		if !mgr.GetScheme().Recognizes(kind.GroupVersionKind()) {
			needed := []schema.GroupVersionKind{kind.GroupVersionKind()}
			if resolver, ok := kind.(Resolver); ok && !resolver.Source().Empty() {
				needed = append(needed, resolver.Source())
			}
			later.Waiting = append(later.Waiting, crdwatch.Integration{Kinds: needed, Begin: func() error { return r.add(mgr) }})
			continue
		}
		if err := r.add(mgr); err != nil {
			return fmt.Errorf("adding the controller of %s: %w", kind.GroupVersionKind().Kind, err)
		}
	}
	return mgr.Add(later)
}

// add adds the controller of one kind.
func (r *reconciler) add(mgr ctrl.Manager) error {
	job, err := r.newJob()
	if err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), job, prebuiltIndex, watches{r}.prebuiltOf); err != nil {
		return fmt.Errorf("indexing jobs by the Workload that they name: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), job, owned.Index, owned.IndexBy); err != nil {
		return fmt.Errorf("indexing jobs by their controller: %w", err)
	}
	w := watches{r}
	b := ctrl.NewControllerManagedBy(mgr).Named(strings.ToLower(r.kind.GroupVersionKind().GroupKind().String())).
		For(job, builder.WithPredicates(w.concernsQueues())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NewQueue: fairqueue.ForRequests()})
	for _, x := range w.all() {
		b = b.Watches(x.object, handler.EnqueueRequestsFromMapFunc(x.jobs), builder.WithPredicates(x.passes...))
	}
	c, err := b.Build(r)
	if err != nil {
		return err
	}
	return r.owned.Add(mgr.GetCache(), w.jobs(), c)
}

func (r watches) prebuiltOf(o client.Object) []string {
	if name := PrebuiltName(o); name != "" {
		r.someNamePrebuilt.Store(true)
		return []string{name}
	}
	return nil
}

// watches are the jobs that the events of a controller concern.
type watches struct{ *reconciler }

// watch is a kind of objects that jobs depend on.
type watch struct {
	object client.Object
	// jobs maps an object to the jobs that it concerns, if the predicates accept the change.
	jobs   handler.MapFunc
	passes []predicate.Predicate
}

// jobs finds those of its kind.
func (r watches) jobs() owned.Kind {
	return owned.Kind{Client: r.client, Empty: r.newJob, List: r.newList}
}

// all are those of a controller, beside that of its jobs.
func (r watches) all() []watch {
	out := []watch{
		{object: &kueue.Workload{}, jobs: r.jobInControl},
		{object: &kueue.Workload{}, jobs: r.jobsOfPrebuilt},
		{object: &kueue.WorkloadPriorityClass{}, jobs: r.jobsOfClass, passes: []predicate.Predicate{createdOrDeleted}},
		{object: &schedulingv1.PriorityClass{}, jobs: r.jobsOfPriority},
		{object: &corev1.LimitRange{}, jobs: r.jobsBeside},
		{object: &nodev1.RuntimeClass{}, jobs: r.jobsOfRuntime},
		{object: &batchv1.Job{}, jobs: r.jobsOf, passes: []predicate.Predicate{owners.ConcernsParts}},
	}
	if r.unqueued != nil || r.managed != nil {
		out = append(out, watch{object: &corev1.Namespace{}, jobs: r.jobsIn, passes: []predicate.Predicate{relabelled}})
	}
	if _, tracked := r.kind.(Tracker); !tracked {
		out = append(out, watch{object: &corev1.Pod{}, jobs: r.jobOfPod, passes: []predicate.Predicate{podChanges}})
	}
	if kind, ok := r.kind.(Resolver); ok && !kind.Source().Empty() {
		source := &unstructured.Unstructured{}
		source.SetGroupVersionKind(kind.Source())
		out = append(out, watch{object: source, jobs: r.jobInControl})
	}
	return out
}

// jobInControl is the job that controls an object.
func (r watches) jobInControl(_ context.Context, o client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(o)
	if owner == nil || schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind() != r.kind.GroupVersionKind().GroupKind() {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: owner.Name}}}
}

// concernsQueues accepts jobs that are queued, or were before this change; jobs that follow a Job, which may have started before them;
// and jobs with a record to restore or a Workload with quota to release.
func (r watches) concernsQueues() predicate.Predicate {
	passes := func(job client.Object) bool {
		ctx := context.Background()
		if WasStarted(job) || follows(job) {
			return true
		}
		if queued, err := r.isQueued(ctx, job); queued || err != nil {
			return true
		}
		w, err := r.workloadOf(ctx, job)
		return w != nil || err != nil
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return passes(e.Object) },
		DeleteFunc:  func(e event.DeleteEvent) bool { r.forget(e.Object.GetUID()); return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return passes(e.ObjectNew) || passes(e.ObjectOld) },
	}
}

// jobOfPod is the job of a pod that a start has labelled, by its Workload.
func (r watches) jobOfPod(ctx context.Context, pod client.Object) (out []reconcile.Request) {
	var list kueue.WorkloadList
	controlled := client.MatchingFields{owned.Index: pod.GetLabels()[JobUIDLabel]}
	if err := r.client.List(ctx, &list, client.InNamespace(pod.GetNamespace()), controlled, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Workloads failed")
	}
	for i := range list.Items {
		if job := r.jobInControl(ctx, &list.Items[i]); job != nil {
			return job
		}
	}
	return nil
}

// createdOrDeleted passes what decides whether a class exists.
var createdOrDeleted = predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}

// jobsOfPrebuilt returns the jobs that wait for a Workload without an owner. Listing them costs more than all other work of such an
// event.
func (r watches) jobsOfPrebuilt(ctx context.Context, w client.Object) []reconcile.Request {
	if !r.someNamePrebuilt.Load() || metav1.GetControllerOf(w) != nil {
		return nil
	}
	return r.jobs().Find(ctx, owned.All,
		client.InNamespace(w.GetNamespace()), client.MatchingFields{prebuiltIndex: w.GetName()})
}

// jobsOfClass are the queued jobs that have their priority from a WorkloadPriorityClass.
func (r watches) jobsOfClass(ctx context.Context, class client.Object) []reconcile.Request {
	return r.queuedJobs(ctx, func(job client.Object) bool { return job.GetLabels()[PriorityClassLabel] == class.GetName() })
}

// jobsOfPriority are the queued jobs that have their priority from the PriorityClass of
// their pods, or may have it from there if it is the default.
func (r watches) jobsOfPriority(ctx context.Context, class client.Object) []reconcile.Request {
	return r.queuedJobs(ctx, func(job client.Object) bool {
		if job.GetLabels()[PriorityClassLabel] != "" {
			return false
		}
		podSets, _ := r.kind.PodSets(job)
		name := podPriorityClass(r.kind, job, podSets)
		return name == class.GetName() || name == ""
	})
}

// jobsBeside are the queued jobs in the namespace of an object.
func (r watches) jobsBeside(ctx context.Context, o client.Object) []reconcile.Request {
	return r.queuedJobs(ctx, owned.All, client.InNamespace(o.GetNamespace()))
}

// jobsOfRuntime are the queued jobs whose pods run by a RuntimeClass.
func (r watches) jobsOfRuntime(ctx context.Context, class client.Object) []reconcile.Request {
	return r.queuedJobs(ctx, func(job client.Object) bool {
		podSets, _ := r.kind.PodSets(job)
		return slices.ContainsFunc(podSets, func(s kueue.PodSet) bool {
			return ptr.Deref(s.Template.Spec.RuntimeClassName, "") == class.GetName()
		})
	})
}

// jobsIn are all jobs in a namespace, whose labels say whether they queue though they name no queue.
func (r watches) jobsIn(ctx context.Context, namespace client.Object) []reconcile.Request {
	return r.jobs().Find(ctx, owned.All, client.InNamespace(namespace.GetName()))
}

// relabelled accepts changes of labels, and new objects, since a job may be observed before its namespace.
var relabelled = predicate.Funcs{
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc:  func(e event.UpdateEvent) bool { return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) },
}

// jobsOf are those of its kind that a Job controls, also by way of other Jobs.
func (r watches) jobsOf(ctx context.Context, owner client.Object) []reconcile.Request {
	return r.jobs().Under(ctx, owner, func() []client.ObjectList { return []client.ObjectList{&batchv1.JobList{}} })
}

// queuedJobs are the queued jobs that match.
func (r watches) queuedJobs(ctx context.Context, matches func(client.Object) bool, options ...client.ListOption) []reconcile.Request {
	if r.unqueued == nil {
		options = append(options, client.HasLabels{QueueLabel})
	}
	return r.jobs().Find(ctx, func(job client.Object) bool {
		queued, err := r.isQueued(ctx, job)
		return (queued || err != nil) && matches(job)
	}, options...)
}

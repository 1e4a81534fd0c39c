package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/controller/journal"
	"github.com/muster-dev/muster/provisioning/fairqueue"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/dispatch/controller/snapshots"
	"github.com/muster-dev/muster/queueing/workload"
)

// concurrent is how many Workloads are reconciled at once. Most of the time is spent in calls to workers.
const concurrent = 16

// Config of the dispatcher.
type Config struct {
	// Namespace is Kueue's namespace, with the Secrets of kubeconfigs.
	Namespace string
	// Origin is multiKueue.origin of Kueue's configuration.
	Origin string
	// Copies: Muster, not Kueue, creates the copies of jobs in the workers, and copies their status back.
	Copies bool
	// Served calls begin once this cluster serves a kind of jobs. Its CRD may be installed later. Copies require it.
	Served func(kind schema.GroupVersionKind, begin func() error) error
	// Foresight estimates in which cluster a job starts first.
	Foresight snapshots.Foresight
	// Leases are the leader election Leases of Muster and Kueue in a worker, in each place where they may be installed.
	Leases []types.NamespacedName
}

// Add adds the dispatcher to a manager. kinds are the kinds of jobs that may run in other clusters.
func Add(mgr ctrl.Manager, c Config, kinds []Kind) error {
	w := &workers{
		manager: mgr.GetClient(), live: mgr.GetAPIReader(), scheme: mgr.GetScheme(), self: self{origin: c.Origin}, namespace: c.Namespace,
		clock: clock.RealClock{}, changed: make(chan event.GenericEvent, 1024), connections: make(chan event.GenericEvent, 64),
		byName: map[string]*worker{}, leases: c.Leases, foresight: c.Foresight, kept: snapshots.Kept(clock.RealClock{}, c.Foresight.Trim),
		limit: snapshots.NewLimit(snapshots.MostKept),
	}
	d := &dispatcher{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), workers: w, events: mgr.GetEventRecorder("muster-dispatcher"),
		clock: clock.RealClock{},
	}
	var r reconcile.Reconciler = d
	if c.Copies {
		m, err := addCopies(mgr, d, kinds)
		if err != nil {
			return err
		}
		r = m
	}
	if err := mgr.Add(w); err != nil {
		return err
	}
	partners := func(context.Context, client.Object) []reconcile.Request { return nil }
	if m, makes := r.(*copies); makes {
		partners = m.enqueuePartners
	}
	built, err := ctrl.NewControllerManagedBy(mgr).Named("dispatcher").
		For(&kueue.Workload{}).
		Watches(&kueue.Workload{}, handler.EnqueueRequestsFromMapFunc(partners)).
		Watches(&kueue.MultiKueueConfig{}, handler.EnqueueRequestsFromMapFunc(d.open)).
		Watches(&kueue.AdmissionCheck{}, handler.EnqueueRequestsFromMapFunc(d.open),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(w.changed, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(source.Channel(w.connections, handler.EnqueueRequestsFromMapFunc(d.open))).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent, NewQueue: fairqueue.ForRequests()}).
		Build(r)
	if err != nil {
		return fmt.Errorf("adding the dispatcher: %w", err)
	}
	if m, makes := r.(*copies); makes {
		return m.watchForwarded(mgr, built, c.Served)
	}
	return nil
}

// dispatcher executes the steps of one Workload at a time.
type dispatcher struct {
	client  client.Client
	live    client.Reader
	workers *workers
	events  events.EventRecorder
	clock   clock.PassiveClock
	// weighing is locked while a cluster is chosen by prospects.
	weighing sync.Mutex
}

// open returns the Workloads that wait for a cluster. An object in a namespace selects the Workloads of that namespace, and a LocalQueue
// those of that queue.
func (d *dispatcher) open(ctx context.Context, what client.Object) (out []reconcile.Request) {
	list, among := &kueue.WorkloadList{}, []client.ListOption{client.UnsafeDisableDeepCopy}
	queue, isQueue := what.(*kueue.LocalQueue)
	if what.GetNamespace() != "" {
		among = append(among, client.InNamespace(what.GetNamespace()))
	}
	if err := d.client.List(ctx, list, among...); err != nil {
		return nil // the initial list enqueues each Workload
	}
	for i := range list.Items {
		w := &list.Items[i]
		if isQueue && string(w.Spec.QueueName) != queue.Name {
			continue
		}
		if workload.HasQuota(w) && (w.Status.ClusterName == nil || d.workers.kinds != nil) ||
			d.workers.kinds != nil && w.Annotations[dispatch.Annotation] != "" {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w)})
		}
	}
	return out
}

// Reconcile implements reconcile.Reconciler.
func (d *dispatcher) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	w := &kueue.Workload{}
	if err := d.client.Get(ctx, request.NamespacedName, w); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	check, config, err := d.checkOf(ctx, w)
	if err != nil || check == nil {
		return reconcile.Result{}, err
	}
	record, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation])
	if err != nil {
		d.event(w, corev1.EventTypeWarning, "BadRecord", err.Error())
		return reconcile.Result{}, nil // until it is edited
	}
	job := &dispatch.Job{Open: isOpen(w, check), Nominated: w.Status.NominatedClusterNames, Record: record}
	if !job.Open {
		return reconcile.Result{}, nil
	}
	clusters := d.view(ctx, w, config, &record)
	step := d.decide(ctx, w, clusters, func() dispatch.Step { return dispatch.Next(job, clusters, d.clock.Now()) })
	leave, may := d.workers.enter(step.Gone)
	if !may {
		return reconcile.Result{RequeueAfter: slowAgain}, nil
	}
	done, err := d.carryOut(ctx, w, record, step)
	leave()
	switch {
	case apierrors.IsConflict(err), err == nil && !done:
		return reconcile.Result{RequeueAfter: 200 * time.Millisecond}, nil // a live read showed another state
	case err != nil:
		return reconcile.Result{}, err
	case !step.At.IsZero():
		return reconcile.Result{RequeueAfter: max(time.Millisecond, step.At.Sub(d.clock.Now()))}, nil
	}
	return reconcile.Result{}, nil
}

// checkOf returns the state and the configuration of the Workload's MultiKueue check, or nil if it has none.
func (d *dispatcher) checkOf(ctx context.Context, w *kueue.Workload) (*kueue.AdmissionCheckState, *kueue.MultiKueueConfig, error) {
	for i := range w.Status.AdmissionChecks {
		state := &w.Status.AdmissionChecks[i]
		check := &kueue.AdmissionCheck{}
		if err := d.client.Get(ctx, client.ObjectKey{Name: string(state.Name)}, check); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return nil, nil, err
		}
		if check.Spec.ControllerName != kueue.MultiKueueControllerName || check.Spec.Parameters == nil {
			continue
		}
		config := &kueue.MultiKueueConfig{}
		err := d.client.Get(ctx, client.ObjectKey{Name: check.Spec.Parameters.Name}, config)
		if apierrors.IsNotFound(err) {
			return nil, nil, nil // the check's status reports it
		}
		return state, config, err
	}
	return nil, nil, nil
}

// isOpen reports whether the Workload has all that it needs in the manager and waits for a cluster.
func isOpen(w *kueue.Workload, check *kueue.AdmissionCheckState) bool {
	return workload.StateOf(w) == workload.Reserved && workload.IsActive(w) && !workload.IsEvicted(w) && w.Status.ClusterName == nil &&
		check.State == kueue.CheckStatePending && workload.Unready(w.Status.AdmissionChecks, check.Name) == ""
}

// view returns the clusters in the order of the configuration. Clusters that may have a copy but were removed from the configuration
// follow.
func (d *dispatcher) view(ctx context.Context, w *kueue.Workload, config *kueue.MultiKueueConfig,
	record *dispatch.Record) (out []dispatch.Cluster) {
	now := d.clock.Now()
	see := func(name string) dispatch.Cluster {
		c := d.workers.view(ctx, name, w)
		c.StopsAt = d.workers.stopsAt(name, w, record, now)
		c.Stopped = !c.StopsAt.IsZero() && !now.Before(c.StopsAt)
		return c
	}
	listed := map[string]bool{}
	for _, name := range config.Spec.Clusters {
		listed[name] = true
		if !d.workers.isDead(ctx, name) {
			out = append(out, see(name))
		}
	}
	for _, name := range record.In {
		if !listed[name] && !d.workers.isDead(ctx, name) {
			c := see(name)
			c.Lacks = "its place in MultiKueueConfig " + config.Name
			out = append(out, c)
		}
	}
	return out
}

// decide returns the next step, by the prospects of the Workload where they matter. Decisions are made one at a time, because each counts
// the jobs that were nominated before.
func (d *dispatcher) decide(ctx context.Context, w *kueue.Workload, clusters []dispatch.Cluster, next func() dispatch.Step) dispatch.Step {
	step := next()
	if step.Weigh {
		d.weighing.Lock()
		defer d.weighing.Unlock()
		d.weigh(ctx, w, clusters)
		step = next()
	}
	if step.Do == dispatch.Nominate || step.Do == dispatch.Withdraw {
		d.workers.expect(w, step.Nominated)
	}
	return step
}

// weigh adds the prospects of a Workload in the clusters.
func (d *dispatcher) weigh(ctx context.Context, w *kueue.Workload, clusters []dispatch.Cluster) {
	job := d.workers.self.ungated(w)
	for i := range clusters {
		c := &clusters[i]
		if !c.Connected || c.Lacks != "" || c.Copy != nil && c.Copy.Foreign {
			continue
		}
		if connection := d.workers.connection(c.Name); connection != nil {
			c.Prospect = connection.snapshot.Prospect(ctx, job, c.Copy != nil)
		}
	}
}

// expect counts a job in the clusters that are nominated for it, and in no others. If the nomination fails, the job is decided on again
// soon.
func (s *workers) expect(w *kueue.Workload, clusters []string) {
	for _, name := range s.names() {
		if c := s.connection(name); c != nil {
			c.snapshot.Take(w.UID)
			if slices.Contains(clusters, name) {
				c.snapshot.Give(s.self.ungated(w))
			}
		}
	}
}

// carryOut executes the step unless a live read shows another state than the one decided on. The record is written first: after a crash,
// a cluster on record may have no copy, but no copy is missing from the record.
func (d *dispatcher) carryOut(ctx context.Context, w *kueue.Workload, before dispatch.Record, step dispatch.Step) (done bool, err error) {
	if step.Do == dispatch.Rest {
		if step.Record.Waits != before.Waits {
			err = d.record(ctx, w, step.Record)
		}
		return true, err
	}
	for _, name := range step.Gone {
		what, err := d.workers.read(ctx, name, w)
		if err != nil || what == isCopy || what == isForeign && name == step.Cluster {
			return false, err
		}
	}
	if err := d.record(ctx, w, step.Record); err != nil {
		return false, err
	}
	if err := d.nominate(ctx, w, step.Nominated); err != nil {
		return false, err
	}
	reason := "ClusterWithdrawn"
	if step.Do == dispatch.Nominate {
		reason = "ClusterNominated"
		nominations.WithLabelValues(step.Cluster).Inc()
	} else if n := len(step.Record.Refusals); n > 0 {
		last := step.Record.Refusals[n-1]
		refusals.WithLabelValues(last.Cluster, string(last.Reason)).Inc()
	}
	d.event(w, corev1.EventTypeNormal, reason, step.Message)
	name := client.ObjectKeyFromObject(w).String()
	journal.Write(ctx, "A cluster is chosen or left for a job", name, journal.Workload, name, "cluster", step.Cluster, journal.Reason, reason,
		journal.Cause, step.Message)
	return true, nil
}

// record writes the record if w is the version that the API server has.
func (d *dispatcher) record(ctx context.Context, w *kueue.Workload, r dispatch.Record) error {
	patch := client.MergeFromWithOptions(w.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if w.Annotations == nil {
		w.Annotations = map[string]string{}
	}
	w.Annotations[dispatch.Annotation] = r.Encode()
	if len(r.In) == 0 || d.workers.kinds == nil {
		controllerutil.RemoveFinalizer(w, workload.CopiesFinalizer)
	} else if w.DeletionTimestamp.IsZero() {
		controllerutil.AddFinalizer(w, workload.CopiesFinalizer)
	}
	return d.client.Patch(ctx, w, patch)
}

// nominate writes the nominated clusters if w is the version that the API server has.
func (d *dispatcher) nominate(ctx context.Context, w *kueue.Workload, clusters []string) error {
	if d.workers.kinds == nil {
		if applied, err := d.nominateAsKueue(ctx, w, clusters); applied || err != nil {
			return err
		}
	}
	patch := client.MergeFromWithOptions(w.DeepCopy(), client.MergeFromWithOptimisticLock{})
	w.Status.NominatedClusterNames = clusters
	return d.client.Status().Patch(ctx, w, patch)
}

// nominateAsKueue applies the nomination as a stock Kueue's field manager, since Kueue removes only fields that it owns. It does nothing
// where Kueue owns no field.
func (d *dispatcher) nominateAsKueue(ctx context.Context, w *kueue.Workload, clusters []string) (applied bool, err error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	if err := d.live.Get(ctx, client.ObjectKeyFromObject(w), live); err != nil {
		return false, err
	}
	if live.GetResourceVersion() != w.ResourceVersion {
		return false, apierrors.NewConflict(kueue.Resource("workloads"), w.Name, errors.New("it has changed"))
	}
	apply, err := nomination(live, clusters)
	if apply == nil || err != nil {
		return false, err
	}
	named := client.ApplyConfigurationFromUnstructured(apply)
	return true, d.client.Status().Apply(ctx, named, client.FieldOwner(admissionOwner), client.ForceOwnership)
}

func (d *dispatcher) event(w *kueue.Workload, kind, reason, message string) {
	d.events.Eventf(w, nil, kind, reason, "Dispatch", "%s", text.Clip(message, text.NoteLimit))
}

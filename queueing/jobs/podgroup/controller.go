package podgroup

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
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
	"sigs.k8s.io/controller-runtime/pkg/source"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/fairqueue"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/controller/metrics"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/bindings"
	"github.com/muster-dev/muster/queueing/jobs/crdwatch"
	"github.com/muster-dev/muster/queueing/jobs/owners"
	"github.com/muster-dev/muster/queueing/workload"
)

// workers is how many gangs are reconciled at once; each mostly waits for the API server.
const workers = 8

// Add adds the controller of gangs to a manager. Its scheme must have Kueue's v1beta2 types. kinds are the kinds that queue with all
// their pods.
func Add(mgr ctrl.Manager, settings config.Config, m *metrics.Metrics, kinds ...jobs.Kind) error {
	managed, err := bindings.Managed(settings)
	if err != nil {
		return err
	}
	everywhere, err := bindings.Selector(settings)
	if err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, gangIndex, indexOf); err != nil {
		return fmt.Errorf("indexing pods by their gang: %w", err)
	}
	r := &reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), recorder: mgr.GetEventRecorder("muster-pods"), metrics: m, now: time.Now,
		podsReady: settings.WaitForPodsReady != nil, labelsToCopy: settings.LabelKeysToCopy,
		parts: parts{
			client: mgr.GetClient(), live: mgr.GetAPIReader(), makers: makersOf(kinds),
			naming: owners.Naming{Client: mgr.GetClient(), Managed: managed, Everywhere: everywhere},
		},
	}
	c, err := builder.TypedControllerManagedBy[key](mgr).Named("pods").
		Watches(&corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(gangOf), builder.WithPredicates(podChanges)).
		Watches(&kueue.Workload{}, handler.TypedEnqueueRequestsFromMapFunc(r.gangOfWorkload)).
		Watches(&appsv1.StatefulSet{}, handler.TypedEnqueueRequestsFromMapFunc(gangOfStatefulSet)).
		Watches(&kueue.WorkloadPriorityClass{}, handler.TypedEnqueueRequestsFromMapFunc(r.gangsBeside)).
		Watches(&schedulingv1.PriorityClass{}, handler.TypedEnqueueRequestsFromMapFunc(r.gangsBeside)).
		Watches(&corev1.LimitRange{}, handler.TypedEnqueueRequestsFromMapFunc(r.gangsBeside)).
		Watches(&nodev1.RuntimeClass{}, handler.TypedEnqueueRequestsFromMapFunc(r.gangsBeside)).
		WithOptions(controller.TypedOptions[key]{
			MaxConcurrentReconciles: workers, NewQueue: fairqueue.ForController(func(k key) string { return k.namespace }),
		}).
		Build(r)
	if err != nil {
		return fmt.Errorf("adding the controller of gated pods: %w", err)
	}
	return mgr.Add(&crdwatch.Runnable{Manager: mgr, Report: m.KindServed, Waiting: []crdwatch.Integration{{
		Kinds: []schema.GroupVersionKind{leaderWorkerSetKind},
		Begin: func() error {
			return c.Watch(source.TypedKind(mgr.GetCache(), newLeaderWorkerSet(), handler.TypedEnqueueRequestsFromMapFunc(gangsOfLeaderWorkerSet)))
		},
	}}})
}

func indexOf(pod client.Object) []string {
	if k, ok := keyOf(pod); ok {
		return []string{k.String()}
	}
	return nil
}

func gangOf(_ context.Context, pod client.Object) []key {
	if k, ok := keyOf(pod); ok {
		return []key{k}
	}
	return nil
}

// gangOfWorkload is the gang of a Workload, or the group that may name it.
func (r *reconciler) gangOfWorkload(_ context.Context, o client.Object) []key {
	w := o.(*kueue.Workload)
	if k, ok := keyOfWorkload(w); ok {
		return []key{k}
	}
	if r.someNamePrebuilt.Load() && len(w.OwnerReferences) == 0 {
		return []key{{family: group, namespace: w.Namespace, name: w.Name}}
	}
	return nil
}

func gangOfStatefulSet(_ context.Context, o client.Object) []key {
	if o.GetLabels()[jobs.QueueLabel] == "" {
		return nil
	}
	return []key{{family: ofStatefulSet, namespace: o.GetNamespace(), name: o.GetName()}}
}

// gangsOfLeaderWorkerSet are those of its groups.
func gangsOfLeaderWorkerSet(ctx context.Context, o *unstructured.Unstructured) (out []key) {
	if o.GetLabels()[jobs.QueueLabel] == "" {
		return nil
	}
	set, err := parse(o)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "A LeaderWorkerSet is not queued")
		return nil
	}
	for i := range int(ptr.Deref(set.Spec.Replicas, 1)) {
		out = append(out, key{family: ofLeaderWorkerSet, namespace: o.GetNamespace(), name: o.GetName(), index: i})
	}
	return out
}

// gangsBeside are the gangs whose Workloads may have something from an object: a priority, or the requests or overhead of their pods. Of
// what is in a namespace, it is those there.
func (r *reconciler) gangsBeside(ctx context.Context, o client.Object) (out []key) {
	var list kueue.WorkloadList
	if err := r.client.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Workloads failed")
	}
	for i := range list.Items {
		if k, ok := keyOfWorkload(&list.Items[i]); ok && !workload.IsFinished(&list.Items[i]) {
			out = append(out, k)
		}
	}
	return out
}

// podChanges passes what a gang may depend on: what is admitted of a pod, whether it is ready,
// has ended, is gone, has left the gang while it waits, or has gone to another one, as when its StatefulSet is deleted without it.
var podChanges = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return indexOf(e.Object) != nil },
	DeleteFunc:  func(e event.DeleteEvent) bool { return indexOf(e.Object) != nil },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
		left := (isGated(after) || indexOf(after) != nil) && !slices.Equal(indexOf(before), indexOf(after)) // both gangs are enqueued
		return left || indexOf(after) != nil && (isGated(after) || isGated(before) || jobs.IsOver(before) != jobs.IsOver(after) ||
			jobs.IsReady(before) != jobs.IsReady(after) || before.Labels[jobs.PriorityClassLabel] != after.Labels[jobs.PriorityClassLabel])
	},
}

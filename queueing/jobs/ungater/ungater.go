// Package ungater sends each pod of a Workload with a topology assignment to its domain: it removes the scheduling gate with which the
// pod was created, and adds a node selector for the domain, in one write a pod.
package ungater

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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
	"github.com/muster-dev/muster/queueing/controller/metrics"
	"github.com/muster-dev/muster/queueing/jobs/ranks"
	"github.com/muster-dev/muster/queueing/jobs/templates"
	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// workers is how many Workloads are reconciled at once, and writers how many pods of one are written at once.
	workers = 4
	writers = 8
	// workloadIndex finds pods by the Workload that they say they are of.
	workloadIndex = "topology-workload"
)

// Add adds the controller to a manager. The ConfigMap is that of the starts after which places have changed.
func Add(mgr ctrl.Manager, m *metrics.Metrics, starts types.NamespacedName) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, workloadIndex, workloadOf); err != nil {
		return fmt.Errorf("indexing pods by their Workload: %w", err)
	}
	r := &reconciler{client: mgr.GetClient(), metrics: m, now: time.Now, sent: map[types.NamespacedName]map[types.UID]map[string]string{},
		moved: &moved{client: mgr.GetClient(), live: mgr.GetAPIReader(), in: starts}}
	err := ctrl.NewControllerManagedBy(mgr).Named("topology-ungater").
		Watches(&kueue.Workload{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(placedWorkloads)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(requestsOf), builder.WithPredicates(podChanges)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NewQueue: fairqueue.ForRequests()}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding the controller that sends pods to their domains: %w", err)
	}
	return nil
}

func workloadOf(pod client.Object) []string {
	if name := pod.GetAnnotations()[kueue.WorkloadAnnotation]; name != "" {
		return []string{name}
	}
	return nil
}

func requestsOf(_ context.Context, pod client.Object) (out []reconcile.Request) {
	for _, name := range workloadOf(pod) {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}})
	}
	return out
}

// placedWorkloads passes Workloads whose pods have domains.
var placedWorkloads = predicate.NewPredicateFuncs(func(o client.Object) bool { return isPlaced(o.(*kueue.Workload)) })

func isPlaced(w *kueue.Workload) bool {
	return workload.HasQuota(w) && workload.IsAdmitted(w) && !workload.IsEvicted(w) && !workload.IsFinished(w) &&
		slices.ContainsFunc(w.Status.Admission.PodSetAssignments, func(a kueue.PodSetAssignment) bool { return a.TopologyAssignment != nil })
}

// podChanges accepts pods that are created gated, pods that were sent by an earlier assignment of the gang, and pods that release their
// place.
var podChanges = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool {
		return workloadOf(e.Object) != nil && e.Object.(*corev1.Pod).Spec.NodeName == ""
	},
	DeleteFunc:  func(e event.DeleteEvent) bool { return workloadOf(e.Object) != nil },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
		return isGated(after) || workloadOf(after) != nil && isOver(before) != isOver(after)
	},
}

func isGated(pod *corev1.Pod) bool {
	return workloadOf(pod) != nil && slices.ContainsFunc(pod.Spec.SchedulingGates, templates.IsTopologyGate)
}

func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// reconciler sends the pods of one Workload at a time.
type reconciler struct {
	client  client.Client
	metrics *metrics.Metrics
	moved   *moved
	now     func() time.Time

	mu sync.Mutex
	// sent is where pods of each Workload were sent that the cache still shows gated: their places are taken.
	sent map[types.NamespacedName]map[types.UID]map[string]string
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	w := &kueue.Workload{}
	if err := r.client.Get(ctx, request.NamespacedName, w); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(request.NamespacedName, nil)
			return reconcile.Result{}, r.moved.Forget(ctx, request.NamespacedName, "")
		}
		return reconcile.Result{}, err
	}
	if !isPlaced(w) {
		r.forget(request.NamespacedName, nil)
		return reconcile.Result{}, r.moved.Forget(ctx, request.NamespacedName, "")
	}
	podSets, err := ranks.Of(w)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	var list corev1.PodList
	if err := r.client.List(ctx, &list, client.InNamespace(w.Namespace), client.MatchingFields{workloadIndex: w.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the pods of Workload %s: %w", request, err)
	}
	r.forget(request.NamespacedName, list.Items)
	start := ranks.Start(w)
	if err := r.moved.Forget(ctx, request.NamespacedName, start); err != nil {
		return reconcile.Result{}, err
	}
	var group errgroup.Group
	group.SetLimit(writers)
	for i, podSet := range podSets {
		if podSet == nil {
			continue
		}
		waiting, open := r.split(&list, w, i)
		stranded := podSet.Stranded(open)
		if len(stranded) > 0 || podSet.Moved(open) {
			// This comes first, since pods that are created again must not be sent by the old assignment.
			if err := r.moved.Add(ctx, w, start); err != nil {
				return reconcile.Result{}, errors.Join(err, group.Wait())
			}
		}
		for _, pod := range stranded {
			group.Go(func() error { return r.remove(ctx, pod) })
		}
		for _, target := range podSet.Place(waiting, open) {
			group.Go(func() error { return r.send(ctx, w, target) })
		}
	}
	return reconcile.Result{}, group.Wait()
}

// forget drops the places of pods that the cache shows by now, or that are gone.
func (r *reconciler) forget(w types.NamespacedName, pods []corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := map[types.UID]map[string]string{}
	for i := range pods {
		if selector, sent := r.sent[w][pods[i].UID]; sent && isGated(&pods[i]) {
			left[pods[i].UID] = selector
		}
	}
	if r.sent[w] = left; len(left) == 0 {
		delete(r.sent, w)
	}
}

// note keeps where a pod is sent; nil forgets it.
func (r *reconciler) note(w types.NamespacedName, pod types.UID, selector map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sent[w] == nil {
		r.sent[w] = map[types.UID]map[string]string{}
	}
	if r.sent[w][pod] = selector; selector == nil {
		delete(r.sent[w], pod)
	}
}

// split divides the pods of a podSet into those that wait for a domain and those that were sent to one.
func (r *reconciler) split(list *corev1.PodList, w *kueue.Workload, podSet int) (waiting, open []*corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Labels[workload.PodSetLabel] != string(w.Spec.PodSets[podSet].Name) {
			continue
		}
		selector, sent := r.sent[client.ObjectKeyFromObject(w)][pod.UID]
		switch {
		case !isGated(pod):
			open = append(open, pod)
		case sent:
			there := pod.DeepCopy()
			there.Spec.NodeSelector = selector
			open = append(open, there)
		default:
			waiting = append(waiting, pod)
		}
	}
	return waiting, open
}

// send removes the gate of a pod, and has it go to its domain.
func (r *reconciler) send(ctx context.Context, w *kueue.Workload, target ranks.Target) error {
	pod := target.Pod.DeepCopy()
	pod.Spec.SchedulingGates = slices.DeleteFunc(pod.Spec.SchedulingGates, templates.IsTopologyGate)
	delete(pod.Annotations, ranks.PlanAnnotation)
	templates.Send(pod, []kueue.PodSetUpdate{{NodeSelector: target.Selector}})
	key := client.ObjectKeyFromObject(w)
	r.note(key, pod.UID, pod.Spec.NodeSelector)
	if err := r.client.Patch(ctx, pod, client.MergeFromWithOptions(target.Pod, client.MergeFromWithOptimisticLock{})); err != nil {
		r.note(key, pod.UID, nil)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("sending pod %s/%s to its domain: %w", pod.Namespace, pod.Name, err)
	}
	r.metrics.Ungated(kueue.TopologySchedulingGate, w, r.now())
	return nil
}

// remove deletes a pod that was sent to a node that it will never run on.
func (r *reconciler) remove(ctx context.Context, pod *corev1.Pod) error {
	if err := r.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting pod %s/%s, whose node was lost: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

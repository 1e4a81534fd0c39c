// Package orphans finishes the Workloads of jobs that are gone without them, as a deletion with --cascade=orphan leaves them, once none of
// their pods is left: pods that run keep what they hold, whatever owned them.
package orphans

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// lookAgain is how often the pods of an orphan are read: they are not watched.
const lookAgain = 10 * time.Second

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager) error {
	r := &reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), recorder: mgr.GetEventRecorder("muster-orphans"), now: time.Now}
	err := ctrl.NewControllerManagedBy(mgr).Named("orphans").
		For(&kueue.Workload{}, builder.WithPredicates(predicate.NewPredicateFuncs(holds))).Complete(r)
	if err != nil {
		return fmt.Errorf("adding the controller of orphans: %w", err)
	}
	return nil
}

// holds reports whether a Workload has lost its job and may have pods by its quota.
func holds(o client.Object) bool {
	w := o.(*kueue.Workload)
	return workload.IsOrphan(w) && workload.HasQuota(w) && workload.IsAdmitted(w) && !workload.IsFinished(w)
}

type reconciler struct {
	client client.Client
	// live reads past the cache: quota goes back when no pod is left.
	live     client.Reader
	recorder events.EventRecorder
	now      func() time.Time
	// reported has the UIDs of the Workloads whose running pods were reported.
	reported sync.Map
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	w := &kueue.Workload{}
	if err := r.client.Get(ctx, request.NamespacedName, w); err != nil || !holds(w) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	left, err := r.left(ctx, w)
	if err != nil {
		return reconcile.Result{}, err
	}
	if left > 0 {
		if _, before := r.reported.LoadOrStore(w.UID, true); before {
			return reconcile.Result{RequeueAfter: lookAgain}, nil
		}
		r.recorder.Eventf(w, nil, corev1.EventTypeWarning, "PodsOutliveTheirJob", "PodsOutliveTheirJob",
			"The job is gone, and %d of its pods run on: they hold its quota until they have ended; delete them to release it", left)
		return reconcile.Result{RequeueAfter: lookAgain}, nil
	}
	r.reported.Delete(w.UID)
	err = writes.Finish(ctx, r.client, w, kueue.WorkloadFinishedReasonOwnerNotFound, "The workload's owner no longer exists", r.now())
	if writes.IsBehind(err) {
		return reconcile.Result{RequeueAfter: lookAgain}, nil
	}
	return reconcile.Result{}, err
}

// left is how many pods of a job are not over.
func (r *reconciler) left(ctx context.Context, w *kueue.Workload) (n int, err error) {
	seen := map[string]bool{}
	for _, labels := range PodLabels(w) {
		var list corev1.PodList
		if err := r.live.List(ctx, &list, client.InNamespace(w.Namespace), labels); err != nil {
			return 0, fmt.Errorf("listing the pods of Workload %s/%s: %w", w.Namespace, w.Name, err)
		}
		for i := range list.Items {
			if pod := &list.Items[i]; !jobs.IsOver(pod) && !seen[pod.Name] {
				seen[pod.Name] = true
				n++
			}
		}
	}
	return n, nil
}

// PodLabels returns selectors for the pods of a Workload that has lost its job: each pod matches at least one. kube-controller-manager
// labels the pods of a Job with its UID. A start labels the pods of other kinds, and an adoption the running ones.
func PodLabels(w *kueue.Workload) []client.MatchingLabels {
	uid := w.Labels[jobs.JobUIDLabel]
	return []client.MatchingLabels{{jobs.JobUIDLabel: uid}, {batchv1.ControllerUidLabel: uid}}
}

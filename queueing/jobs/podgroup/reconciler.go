package podgroup

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/controller/metrics"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/prebuilt"
	"github.com/muster-dev/muster/queueing/workload"
)

// gangIndex finds pods by their gang.
const gangIndex = "gang"

// lag is how long a created Workload may be missing in the cache; caches are rarely a second
// behind.
const lag = 5 * time.Second

// reconciler keeps gangs and their Workloads in step.
type reconciler struct {
	client client.Client
	// live reads past the cache, where a mistake would delete a running pod.
	live     client.Reader
	recorder events.EventRecorder
	metrics  *metrics.Metrics
	now      func() time.Time
	// podsReady: the configuration waits for the condition PodsReady.
	podsReady bool
	// labelsToCopy are the keys of labels that a Workload has, too.
	labelsToCopy []string
	parts        parts
	// someNamePrebuilt: some group has named its Workload.
	someNamePrebuilt atomic.Bool

	memories
}

// Reconcile takes one step for a gang. The events of its writes enqueue the next step.
func (r *reconciler) Reconcile(ctx context.Context, k key) (reconcile.Result, error) {
	g, err := r.read(ctx, k)
	if err != nil {
		return reconcile.Result{}, err
	}
	if g == nil {
		r.forget(k)
		return reconcile.Result{}, nil
	}
	if g.namesPrebuilt() {
		r.someNamePrebuilt.Store(true)
	}
	w, err := r.workloadOf(ctx, g, r.client)
	if err != nil {
		return reconcile.Result{}, err
	}
	if left := r.expected(k, w != nil, r.now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	released, err := r.release(ctx, g, w)
	r.tally(g, w)
	if err == nil && !released {
		err = r.trim(ctx, g)
	}
	if err == nil && !released {
		err = r.act(ctx, g, w, transitions[g.state()][workload.StateOf(w)])
	}
	if released || g.state() == gone && w == nil {
		r.forget(k)
	}
	if writes.IsBehind(err) {
		// The cache was behind; what it lacks comes as an event.
		return reconcile.Result{RequeueAfter: lag}, nil
	}
	return reconcile.Result{}, err
}

// release lets the gated pods of a gang run that queue with what makes them. It reports whether there were any.
func (r *reconciler) release(ctx context.Context, g *gang, w *kueue.Workload) (released bool, _ error) {
	for _, pod := range g.gated {
		isPart, err := r.parts.has(ctx, pod)
		switch {
		case err != nil:
			return false, err
		case !isPart:
			continue
		case w != nil && g.family == single:
			return true, writes.Delete(ctx, r.client, w) // its event enqueues the next step
		}
		if err := r.parts.pass(ctx, pod); err != nil {
			return false, err
		}
		released = true
	}
	return released, nil
}

// workloadOf reads the Workload of a gang; nil if there is none.
func (r *reconciler) workloadOf(ctx context.Context, g *gang, c client.Reader) (*kueue.Workload, error) {
	if g.job == nil && g.family != group {
		return nil, nil // it goes by its owner
	}
	w := &kueue.Workload{}
	name := client.ObjectKey{Namespace: g.namespace, Name: g.workloadName()}
	if err := c.Get(ctx, name, w); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading Workload %s: %w", name, err)
	}
	of, ok := keyOfWorkload(w)
	switch mayBeTaken := metav1.GetControllerOf(w) == nil && (isCopy(w) || g.namesPrebuilt()); {
	case ok && of == g.key || mayBeTaken:
		return w, nil
	case g.job == nil:
		return nil, nil // it is of something else, or of pods that may name it yet
	default:
		if r.isNews(g.key, string(w.UID)) {
			r.event(g.job, corev1.EventTypeWarning, "WorkloadNameConflict",
				"A Workload named %q already exists but is not a pod group workload; this pod group cannot be admitted: give it another name", w.Name)
		}
		return nil, fmt.Errorf("the Workload %s has the name of that of pods, but another owner; delete it", name)
	}
}

// act carries out an action.
func (r *reconciler) act(ctx context.Context, g *gang, w *kueue.Workload, a action) error {
	switch a {
	case wait:
		r.reportMissing(g)
	case queue:
		_, err := r.queue(ctx, g, w)
		return err
	case start:
		// Once pods have run, the others of the gang are what they were admitted with.
		ready := len(g.over) > 0 || g.succeeded > 0
		if !ready {
			var err error
			if ready, err = r.queue(ctx, g, w); err != nil {
				return err
			}
		}
		if ready && workload.IsActive(w) {
			return r.keep(ctx, g, w)
		}
	case keep:
		return r.keep(ctx, g, w)
	case adopt:
		return r.adopt(ctx, g, w)
	case stop:
		return r.stop(ctx, g, w)
	case release:
		if err := r.confirmNoneRuns(ctx, g); err != nil {
			return err
		}
		if elsewhere, err := isHeldElsewhere(w); elsewhere || err != nil {
			return err // the dispatcher's next record is an event of the Workload
		}
		_, err := writes.ApplyStatus(ctx, r.client, w, workload.Released(w, r.now()))
		return err
	case drop:
		switch {
		case isCopy(w): // its pods come after it, one by one, and it goes when its manager takes it back
			return nil
		case g.namesPrebuilt():
			r.reportMissing(g)
			return nil
		case g.job == nil && awaitsPods(w):
			return nil
		}
		if err := r.confirmNoneRuns(ctx, g); err != nil {
			return err
		}
		if pod, ok := g.job.(*corev1.Pod); ok && g.family == single && isGated(pod) && pod.DeletionTimestamp.IsZero() {
			r.event(g.job, corev1.EventTypeWarning, "NotQueued",
				"It is in no queue any more and stays gated; give it the label %s again, or delete it", jobs.QueueLabel)
		}
		return writes.Delete(ctx, r.client, w)
	case finish:
		if err := r.confirmNoneRuns(ctx, g); err != nil {
			return err
		}
		reason := kueue.WorkloadFinishedReasonSucceeded
		outcome, message := g.outcome()
		if outcome == jobs.Failed {
			reason = kueue.WorkloadFinishedReasonFailed
		}
		return writes.Finish(ctx, r.client, w, reason, message, r.now())
	case reportEnd:
		if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished); len(g.gated) > 0 && r.isNews(g.key, string(w.UID)) {
			r.event(g.job, corev1.EventTypeWarning, "FinishedWorkload",
				"Workload %s is finished, so these pods can never start: %s; delete it, or create the pods again by another name", w.Name, c.Message)
		}
	}
	return nil
}

// reportMissing reports on the newest pod how many pods of the group exist: a second Event on one pod would only increase the count of
// the first.
func (r *reconciler) reportMissing(g *gang) {
	all := g.all()
	if missing := fmt.Sprintf("%d of %d", len(g.gated)+len(g.open)+g.succeeded, g.total); len(all) > 0 && r.isNews(g.key, missing) {
		r.event(all[len(all)-1], corev1.EventTypeNormal, "WaitingForPods",
			"%s pods of group %s are there; it queues once all are", missing, g.name)
	}
}

// confirmNoneRuns fails while pods of a gang run, as the API server has them: quota and
// machines go back when they are gone.
func (r *reconciler) confirmNoneRuns(ctx context.Context, g *gang) error {
	var list corev1.PodList
	if err := r.live.List(ctx, &list, client.InNamespace(g.namespace), client.MatchingLabels{workload.ManagedLabel: "true"}); err != nil {
		return fmt.Errorf("listing the pods of namespace %s: %w", g.namespace, err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if k, ok := keyOf(pod); ok && k == g.key && !isGated(pod) && !jobs.IsOver(pod) {
			return writes.ErrBehind
		}
	}
	return nil
}

// confirmNewest fails unless the cache has the newest version of the Workload of a gang.
func (r *reconciler) confirmNewest(ctx context.Context, g *gang, w *kueue.Workload) error {
	live, err := r.workloadOf(ctx, g, r.live)
	if err != nil {
		return err
	}
	if live == nil || live.UID != w.UID || live.ResourceVersion != w.ResourceVersion {
		return writes.ErrBehind
	}
	return nil
}

// wanted is what the Workload that a gang has should be; nil is a gang without.
func (r *reconciler) wanted(ctx context.Context, g *gang, has *kueue.Workload) (*kueue.Workload, error) {
	return wanted(ctx, r.client, g, has)
}

func wanted(ctx context.Context, kube client.Reader, g *gang, has *kueue.Workload) (*kueue.Workload, error) {
	w, err := jobs.NewWorkload(ctx, kube, g, g.job, has)
	if err != nil {
		return nil, err
	}
	w.Name = g.workloadName()
	switch g.family {
	case group:
		// The pods own it together. It has no UID of a job, so that it does not count as orphaned when the first of them is deleted.
		delete(w.Labels, jobs.JobUIDLabel)
		w.Annotations[workload.GroupAnnotation] = "true"
		w.Labels[workload.ManagedLabel] = "true"
		w.OwnerReferences = nil
		for _, pod := range g.all() {
			w.OwnerReferences = append(w.OwnerReferences, ownerOf(pod))
		}
	case ofLeaderWorkerSet:
		w.Annotations[workload.GroupIndexAnnotation] = fmt.Sprint(g.index)
	}
	return w, nil
}

func ownerOf(pod *corev1.Pod) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: podKind.Version, Kind: podKind.Kind, Name: pod.Name, UID: pod.UID}
}

// queue makes the Workload of a held gang the one that it should have. It reports whether it
// was already.
func (r *reconciler) queue(ctx context.Context, g *gang, w *kueue.Workload) (ready bool, err error) {
	if isCopy(w) || g.runsByCopy() {
		return r.take(ctx, g, w)
	}
	if g.namesPrebuilt() {
		return r.queuePrebuilt(ctx, g, w)
	}
	want, err := r.wanted(ctx, g, w)
	switch {
	case err != nil:
		return false, err
	case w == nil:
		return false, r.create(ctx, g, want)
	case workload.HasQuota(w):
		if !g.isReservedBy(w, want) || w.Spec.QueueName != want.Spec.QueueName {
			// The pods no longer match the reservation: they queue again. A pod that the cache shows as gated may run.
			if err := r.confirmNoneRuns(ctx, g); err != nil {
				return false, err
			}
			return false, writes.Delete(ctx, r.client, w)
		}
		wrote, err := writes.Patch(ctx, r.client, w, func(w *kueue.Workload) bool { return jobs.FollowReserved(w, want) })
		return !wrote, err
	}
	refused := w.Annotations[workload.RefusedAnnotation]
	wrote, err := writes.Patch(ctx, r.client, w, func(w *kueue.Workload) bool {
		owned := own(w, want)
		return jobs.Follow(w, want) || owned
	})
	if why := want.Annotations[workload.RefusedAnnotation]; wrote && err == nil && why != refused {
		r.reportRefusal(g, why)
	}
	return !wrote, err
}

// queuePrebuilt does as queue for a group that names its Workload; w is nil until that exists.
func (r *reconciler) queuePrebuilt(ctx context.Context, g *gang, w *kueue.Workload) (ready bool, err error) {
	if w == nil {
		if r.isNews(g.key, g.name) {
			r.event(g.job, corev1.EventTypeNormal, "WaitingForWorkload",
				"Workload %s, which %s names, doesn't exist; the pods start once it is created and admitted", g.name, jobs.PrebuiltLabel)
		}
		return false, nil
	}
	want, err := r.wanted(ctx, g, w)
	if err != nil {
		return false, err
	}
	field := "spec.podSets"
	if orderAs(want.Spec.PodSets, w.Spec.PodSets) {
		if field, err = prebuilt.Differs(ctx, r.client, w, want); err != nil {
			return false, err
		}
	}
	if field != "" {
		message, err := prebuilt.Finish(ctx, r.client, w, "they differ in "+field, r.now())
		if err == nil {
			r.event(g.job, corev1.EventTypeWarning, kueue.WorkloadFinishedReasonOutOfSync,
				"Workload %s is finished: %s; create one that matches the pods, and these again", w.Name, message)
		}
		return false, err
	}
	refused := want.Annotations[workload.RefusedAnnotation]
	before := w.Annotations[workload.RefusedAnnotation]
	wrote, err := writes.Patch(ctx, r.client, w, func(w *kueue.Workload) bool {
		changed := own(w, want)
		if !workload.IsGroup(w) {
			metav1.SetMetaDataAnnotation(&w.ObjectMeta, workload.GroupAnnotation, "true")
			changed = true
		}
		return !workload.HasQuota(w) && prebuilt.Follow(w, want) || changed
	})
	if err == nil && refused != before && (wrote || r.isNews(g.key, refused)) {
		r.reportRefusal(g, refused)
	}
	return !wrote && refused == "", err
}

// own adds the owners that a Workload lacks. It reports whether there were any.
func own(w, want *kueue.Workload) (added bool) {
	for _, owner := range want.OwnerReferences {
		if !slices.ContainsFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == owner.UID }) {
			w.OwnerReferences = append(w.OwnerReferences, owner)
			added = true
		}
	}
	return added
}

// create creates the Workload of a gang.
func (r *reconciler) create(ctx context.Context, g *gang, w *kueue.Workload) error {
	for _, label := range r.labelsToCopy {
		if value, ok := g.labelOf(label); ok && label != jobs.JobUIDLabel {
			w.Labels[label] = value
		}
	}
	if err := r.client.Create(ctx, w); err != nil {
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			r.event(g.job, corev1.EventTypeWarning, "FailedCreate", "It cannot be queued, since its Workload is refused: %v", err)
		}
		return fmt.Errorf("creating Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	r.created(g.key, r.now())
	r.metrics.Created(g.kind.Kind, g.job, w)
	r.event(g.job, corev1.EventTypeNormal, "CreatedWorkload", "Created Workload: %s/%s", w.Namespace, w.Name)
	r.reportRefusal(g, w.Annotations[workload.RefusedAnnotation])
	return nil
}

func (r *reconciler) reportRefusal(g *gang, why string) {
	if why != "" {
		r.event(g.job, corev1.EventTypeWarning, "Refused", "It cannot be queued as specified: %s", why)
	}
}

// stop deletes the pods that run. Quota is released once none is left.
func (r *reconciler) stop(ctx context.Context, g *gang, w *kueue.Workload) error {
	if err := r.confirmNewest(ctx, g, w); err != nil {
		return err
	}
	why := "its Workload is not admitted"
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted); c != nil && c.Status == metav1.ConditionTrue {
		why = c.Message
	}
	return r.deletePods(ctx, g, why)
}

// deletePods deletes the running pods.
func (r *reconciler) deletePods(ctx context.Context, g *gang, why string) error {
	for _, pod := range g.open {
		if !pod.DeletionTimestamp.IsZero() {
			continue
		}
		if err := r.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting pod %s/%s, which is to stop: %w", pod.Namespace, pod.Name, err)
		}
		r.event(pod, corev1.EventTypeNormal, "Stopped", "Deleted: %s", why)
	}
	return nil
}

func (r *reconciler) event(about client.Object, kind, reason, format string, args ...any) {
	if about != nil {
		r.recorder.Eventf(about, nil, kind, reason, reason, "%s", text.Clip(fmt.Sprintf(format, args...), text.NoteLimit))
	}
}

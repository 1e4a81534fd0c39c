package jobs

import (
	"cmp"
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
)

// PrebuiltLabel on a Job names a Workload that something else has made for it, and by
// which it is to run. It may be an annotation, too, for names that no label can hold.
//
//	no such Workload ──created──▶ nothing owns it ──take──▶ owned by the Job ──admitted──▶ start
//	                                                              │
//	                                                              └─ for other pods ──▶ Finished, OutOfSync
const PrebuiltLabel = "kueue.x-k8s.io/prebuilt-workload-name"

// PrebuiltName is the name of the Workload that a Job does not leave to Muster to make;
// empty for most. As in Kueue, an annotation comes before the label.
func PrebuiltName(job metav1.Object) string {
	return cmp.Or(job.GetAnnotations()[PrebuiltLabel], job.GetLabels()[PrebuiltLabel])
}

const (
	// prebuiltIndex finds Jobs by the prebuilt Workload that they name, and
	// controllerIndex finds Workloads by the UID of what controls them.
	prebuiltIndex   = "prebuilt"
	controllerIndex = "controller"
)

func prebuiltOf(o client.Object) []string {
	if name := PrebuiltName(o); name != "" {
		return []string{name}
	}
	return nil
}

func controllerOf(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &batchv1.Job{}, prebuiltIndex, prebuiltOf); err != nil {
		return fmt.Errorf("indexing Jobs by the Workload that they name: %w", err)
	}
	if err := indexer.IndexField(ctx, &kueue.Workload{}, controllerIndex, controllerOf); err != nil {
		return fmt.Errorf("indexing Workloads by what controls them: %w", err)
	}
	return nil
}

// jobsOfPrebuilt are the Jobs that wait for a Workload which nothing owns.
func (r *reconciler) jobsOfPrebuilt(ctx context.Context, w client.Object) []reconcile.Request {
	if metav1.GetControllerOf(w) != nil {
		return nil
	}
	var jobs batchv1.JobList
	named := client.MatchingFields{prebuiltIndex: w.GetName()}
	err := r.client.List(ctx, &jobs, client.InNamespace(w.GetNamespace()), named, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the Jobs of a prebuilt Workload")
		return nil
	}
	var out []reconcile.Request
	for i := range jobs.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&jobs.Items[i])})
	}
	return out
}

// prebuiltIn reads the Workload that a Job names; nil as long as the Job has not taken it.
func prebuiltIn(ctx context.Context, c client.Reader, job *batchv1.Job) (*kueue.Workload, error) {
	name := PrebuiltName(job)
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, nil
	}
	w := &kueue.Workload{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: job.Namespace, Name: name}, w); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading Workload %s/%s: %w", job.Namespace, name, err)
	}
	if !metav1.IsControlledBy(w, job) {
		return nil, nil
	}
	return w, nil
}

// stepPrebuilt looks at a suspended Job that names a Workload; w is nil until the Job has
// taken it.
func (r *reconciler) stepPrebuilt(ctx context.Context, job *batchv1.Job, w *kueue.Workload) error {
	if left, err := r.leave(ctx, job, w); left || err != nil {
		return err
	}
	if w == nil {
		return r.take(ctx, job)
	}
	want, err := r.wantedOfPrebuilt(ctx, job)
	if err != nil {
		return err
	}
	if differs, err := r.differsFrom(ctx, w, want); differs != "" || err != nil {
		if err != nil {
			return err
		}
		return r.outOfSync(ctx, job, w, "they differ in "+differs)
	}
	refused := want.Annotations[queueing.RefusedAnnotation]
	if queueing.HasQuota(w) {
		switch {
		case refused != "":
			if r.firstTime(job.UID, refused) {
				r.tellRefusal(job, refused)
			}
		case queueing.IsAdmitted(w) && queueing.IsActive(w):
			return r.start(ctx, job, w)
		}
		return nil
	}
	// Its podSets stay as they were made, so pods that are over by now are taken off here.
	podSet := &w.Spec.PodSets[0]
	if over := podSet.Count - podCount(job); over != reclaimable(w) {
		var pods []kueue.ReclaimablePod
		if over > 0 {
			pods = []kueue.ReclaimablePod{{Name: podSet.Name, Count: over}}
		}
		return r.setReclaimed(ctx, w, pods)
	}
	before := w.Annotations[queueing.RefusedAnnotation]
	wrote, err := r.change(ctx, w, func(w *kueue.Workload) bool { return followPrebuilt(w, want) })
	if wrote && err == nil && refused != before {
		r.tellRefusal(job, refused)
	}
	return err
}

// take makes the Workload that a suspended Job names the Job's own. One that was of
// another Job is not taken, even if that Job is gone: its quota is about to go back.
func (r *reconciler) take(ctx context.Context, job *batchv1.Job) error {
	name := PrebuiltName(job)
	w := &kueue.Workload{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: job.Namespace, Name: name}, w); err != nil {
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading Workload %s/%s: %w", job.Namespace, name, err)
		}
		if r.firstTime(job.UID, name) {
			r.event(job, corev1.EventTypeNormal, "WaitingForWorkload",
				"Workload %s, which %s names, doesn't exist; the Job starts once it was created and admitted", name, PrebuiltLabel)
		}
		return nil
	}
	owner, uid := metav1.GetControllerOf(w), w.Labels[JobUIDLabel]
	if owner == nil && uid == "" {
		_, err := r.change(ctx, w, func(w *kueue.Workload) bool {
			w.OwnerReferences = append(w.OwnerReferences, *metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job")))
			metav1.SetMetaDataLabel(&w.ObjectMeta, JobUIDLabel, string(job.UID))
			return true
		})
		return err
	}
	whose := "was of a job that has left it"
	if owner != nil {
		whose = fmt.Sprintf("belongs to %s %s", owner.Kind, owner.Name)
	}
	if r.firstTime(job.UID, whose) {
		r.event(job, corev1.EventTypeWarning, "ForeignWorkload",
			"Workload %s, which %s names, %s; name one that belongs to no other job", name, PrebuiltLabel, whose)
	}
	return nil
}

// wantedOfPrebuilt is what the prebuilt Workload of a Job is compared with: it was made
// for the whole Job, whatever of that has ended.
func (r *reconciler) wantedOfPrebuilt(ctx context.Context, job *batchv1.Job) (*kueue.Workload, error) {
	whole := job.DeepCopy()
	whole.Status = batchv1.JobStatus{}
	return WorkloadFor(ctx, r.client, whole)
}

// differsFrom is the field in which a prebuilt Workload is not for the pods of its Job;
// empty where it is. Beyond what Kueue compares it looks at all that decides what a pod takes and
// where it may go: quota and machines are for the pods of the Workload, and those of the
// Job are to run on them.
func (r *reconciler) differsFrom(ctx context.Context, w, want *kueue.Workload) (field string, err error) {
	if len(w.Spec.PodSets) != 1 {
		return "spec.podSets", nil
	}
	if !equality.Semantic.DeepEqual(w.Spec.MaximumExecutionTimeSeconds, want.Spec.MaximumExecutionTimeSeconds) {
		return "spec.maximumExecutionTimeSeconds", nil
	}
	a, b := w.Spec.PodSets[0].DeepCopy(), &want.Spec.PodSets[0]
	// What is added to the Job's pods may be in the Workload already. Why it cannot be
	// known stands in want.
	if _, err := fillIn(ctx, r.client, w.Namespace, &a.Template.Spec); err != nil {
		return "", err
	}
	x, y := &a.Template.Spec, &b.Template.Spec
	for _, part := range []struct {
		field string
		a, b  any
	}{
		{"count", a.Count, b.Count},
		{"minCount", a.MinCount, b.MinCount},
		{"template.spec.containers", x.Containers, y.Containers},
		{"template.spec.initContainers", x.InitContainers, y.InitContainers},
		{"template.spec.resources", x.Resources, y.Resources},
		{"template.spec.overhead", x.Overhead, y.Overhead},
		{"template.spec.runtimeClassName", x.RuntimeClassName, y.RuntimeClassName},
		{"template.spec.nodeSelector", x.NodeSelector, y.NodeSelector},
		{"template.spec.affinity", x.Affinity, y.Affinity},
		{"template.spec.tolerations", x.Tolerations, y.Tolerations},
		{"template.spec.topologySpreadConstraints", x.TopologySpreadConstraints, y.TopologySpreadConstraints},
		{"template.spec.resourceClaims", x.ResourceClaims, y.ResourceClaims},
	} {
		if !equality.Semantic.DeepEqual(part.a, part.b) {
			return "spec.podSets[0]." + part.field, nil
		}
	}
	return "", nil
}

// followPrebuilt changes a prebuilt Workload without quota to what its Job may change of
// it, and reports whether that is anything new.
func followPrebuilt(w, want *kueue.Workload) bool {
	queue, refused := cmp.Or(want.Spec.QueueName, w.Spec.QueueName), want.Annotations[queueing.RefusedAnnotation]
	if w.Spec.QueueName == queue && w.Annotations[queueing.RefusedAnnotation] == refused {
		return false
	}
	w.Spec.QueueName = queue
	delete(w.Annotations, queueing.RefusedAnnotation)
	if refused != "" {
		metav1.SetMetaDataAnnotation(&w.ObjectMeta, queueing.RefusedAnnotation, refused)
	}
	return true
}

// outOfSync finishes a Workload that is of a Job and not for it, and says so once.
func (r *reconciler) outOfSync(ctx context.Context, job *batchv1.Job, w *kueue.Workload, why string) error {
	if queueing.IsFinished(w) {
		return nil
	}
	// The first words are Kueue's.
	message := "The prebuilt workload is out of sync with its user job: " + why
	if err := r.finish(ctx, w, kueue.WorkloadFinishedReasonOutOfSync, message); err != nil {
		return err
	}
	r.remember(job.UID, func(m *memory) { m.told = string(w.UID) })
	r.event(job, corev1.EventTypeWarning, kueue.WorkloadFinishedReasonOutOfSync,
		"Workload %s is finished: %s; name one that is for the Job as it is", w.Name, message)
	return nil
}

// leave ends the Workloads that a Job has and does not run by: another one than keep was
// named before. It reports whether it wrote.
func (r *reconciler) leave(ctx context.Context, job *batchv1.Job, keep *kueue.Workload) (bool, error) {
	var list kueue.WorkloadList
	owned := client.MatchingFields{controllerIndex: string(job.UID)}
	err := r.client.List(ctx, &list, client.InNamespace(job.Namespace), owned, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("listing the Workloads of Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	for i := range list.Items {
		w := &list.Items[i]
		if keep != nil && w.UID == keep.UID || queueing.IsFinished(w) || !w.DeletionTimestamp.IsZero() {
			continue
		}
		return true, r.dismiss(ctx, job, w)
	}
	return false, nil
}

// dismiss ends a Workload by which a Job is not to run. It is deleted only if Muster has
// made it.
func (r *reconciler) dismiss(ctx context.Context, job *batchv1.Job, w *kueue.Workload) error {
	if w == nil || isElastic(job) || w.Name == WorkloadName(job) {
		return r.forget(ctx, w)
	}
	return r.outOfSync(ctx, job, w, "the Job does not queue by it any more")
}

// tellFinished says on a Job that waits that its Workload is over for good.
func (r *reconciler) tellFinished(job *batchv1.Job, w *kueue.Workload) {
	if r.firstTime(job.UID, string(w.UID)) {
		c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
		r.event(job, corev1.EventTypeNormal, "FinishedWorkload",
			"Workload %s is declared finished, so that the Job can never start by it: %s; name another one", w.Name, c.Message)
	}
}

package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
)

// unsupported are labels and annotations of Kueue on a Job, or on its pod
// template, that change how it is queued and that Muster does not support yet.
var unsupported = []string{
	"kueue.x-k8s.io/prebuilt-workload-name",
	"kueue.x-k8s.io/job-min-parallelism",
	"kueue.x-k8s.io/elastic-job",
	"kueue.x-k8s.io/workload-slice-name",
	"kueue.x-k8s.io/podset-required-topology",
	"kueue.x-k8s.io/podset-preferred-topology",
	"kueue.x-k8s.io/podset-unconstrained-topology",
	"kueue.x-k8s.io/podset-slice-required-topology",
	"kueue.x-k8s.io/podset-group-name",
}

// managedLabels are put on the template by the Job controller.
var managedLabels = []string{"controller-uid", batchv1.ControllerUidLabel}

// desired is the Workload that a Job should have.
func (r *reconciler) desired(ctx context.Context, job *batchv1.Job) (*kueue.Workload, error) {
	template := job.Spec.Template.DeepCopy()
	for _, label := range managedLabels {
		delete(template.Labels, label)
	}
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Name: WorkloadName(job), Namespace: job.Namespace,
			Labels:          map[string]string{JobUIDLabel: string(job.UID)},
			Annotations:     map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName(job.Labels[QueueLabel]),
			PodSets:   []kueue.PodSet{{Name: kueue.DefaultPodSetName, Count: podCount(job), Template: *template}},
		},
	}
	for k, v := range job.Annotations {
		if isCopied(k) {
			w.Annotations[k] = v
		}
	}
	var refusals []string
	if used := unsupportedOn(job); len(used) > 0 {
		refusals = append(refusals, fmt.Sprintf("Muster does not support yet: %s; remove it from the Job", strings.Join(used, ", ")))
	}
	if seconds, ok := job.Labels[MaxExecTimeLabel]; ok {
		if n, err := strconv.ParseInt(seconds, 10, 32); err != nil || n < 1 {
			refusals = append(refusals, fmt.Sprintf("the label %s is %q, which is no number of seconds from 1 on", MaxExecTimeLabel, seconds))
		} else {
			w.Spec.MaximumExecutionTimeSeconds = new(int32(n))
		}
	}
	why, err := r.setPriority(ctx, job, w)
	if err != nil {
		return nil, err
	}
	if why != "" {
		refusals = append(refusals, why)
	}
	if why, err = r.fillIn(ctx, job.Namespace, &w.Spec.PodSets[0].Template.Spec); err != nil {
		return nil, err
	}
	if why != "" {
		refusals = append(refusals, why)
	}
	if len(refusals) > 0 {
		w.Annotations[queueing.RefusedAnnotation] = strings.Join(refusals, "; ")
	}
	return w, nil
}

// isCopied says that an annotation of the Job belongs on its Workload too.
func isCopied(annotation string) bool {
	return strings.HasPrefix(annotation, queueing.ParameterPrefix) || annotation == queueing.GatedByAnnotation
}

func unsupportedOn(job *batchv1.Job) []string {
	var used []string
	for _, key := range unsupported {
		for _, values := range []map[string]string{job.Labels, job.Annotations, job.Spec.Template.Labels, job.Spec.Template.Annotations} {
			if _, ok := values[key]; ok {
				used = append(used, key)
				break
			}
		}
	}
	return used
}

// setPriority reads the Workload's priority from the Job's class, or else from
// that of its pods. It returns why the Job cannot be queued if its class does not
// exist.
func (r *reconciler) setPriority(ctx context.Context, job *batchv1.Job, w *kueue.Workload) (why string, err error) {
	if name := job.Labels[PriorityClassLabel]; name != "" {
		class := &kueue.WorkloadPriorityClass{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: name}, class); err != nil {
			if apierrors.IsNotFound(err) {
				return fmt.Sprintf("WorkloadPriorityClass %q, which the label %s names, doesn't exist; create it or change the label", name, PriorityClassLabel), nil
			}
			return "", fmt.Errorf("reading WorkloadPriorityClass %s: %w", name, err)
		}
		w.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(name)
		w.Spec.Priority = new(class.Value)
		return "", nil
	}
	var classes schedulingv1.PriorityClassList
	if err := r.client.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing PriorityClasses: %w", err)
	}
	name := job.Spec.Template.Spec.PriorityClassName
	for i := range classes.Items {
		class := &classes.Items[i]
		if class.Name == name || name == "" && class.GlobalDefault {
			w.Spec.PriorityClassRef = kueue.NewPodPriorityClassRef(class.Name)
			w.Spec.Priority = new(class.Value)
			return "", nil
		}
	}
	if name != "" {
		return fmt.Sprintf("PriorityClass %q of the Job's pods doesn't exist; create it or change priorityClassName", name), nil
	}
	w.Spec.Priority = new(int32(0))
	return "", nil
}

// follow changes w to what is wanted now and says whether that is anything new.
// What a person sets on a Workload, spec.active, stays.
func follow(w, want *kueue.Workload) bool {
	changed := false
	set := func(same bool, apply func()) {
		if !same {
			apply()
			changed = true
		}
	}
	set(samePods(w, want), func() { w.Spec.PodSets = want.Spec.PodSets })
	set(w.Spec.QueueName == want.Spec.QueueName, func() { w.Spec.QueueName = want.Spec.QueueName })
	set(equality.Semantic.DeepEqual(w.Spec.Priority, want.Spec.Priority), func() { w.Spec.Priority = want.Spec.Priority })
	set(equality.Semantic.DeepEqual(w.Spec.PriorityClassRef, want.Spec.PriorityClassRef), func() { w.Spec.PriorityClassRef = want.Spec.PriorityClassRef })
	set(equality.Semantic.DeepEqual(w.Spec.MaximumExecutionTimeSeconds, want.Spec.MaximumExecutionTimeSeconds), func() {
		w.Spec.MaximumExecutionTimeSeconds = want.Spec.MaximumExecutionTimeSeconds
	})
	annotations := maps.Clone(w.Annotations)
	maps.DeleteFunc(annotations, func(k, _ string) bool { return isCopied(k) || k == queueing.RefusedAnnotation })
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, want.Annotations)
	set(equality.Semantic.DeepEqual(w.Annotations, annotations), func() { w.Annotations = annotations })
	return changed
}

// samePods compares what is counted and placed: the number of pods and their
// specs. The API may have stored less of the templates' metadata than it got.
func samePods(a, b *kueue.Workload) bool {
	return slices.EqualFunc(a.Spec.PodSets, b.Spec.PodSets, func(x, y kueue.PodSet) bool {
		return x.Count == y.Count && equality.Semantic.DeepEqual(x.Template.Spec, y.Template.Spec)
	})
}

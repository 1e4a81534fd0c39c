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
	"kueue.x-k8s.io/podset-required-topology",
	"kueue.x-k8s.io/podset-preferred-topology",
	"kueue.x-k8s.io/podset-unconstrained-topology",
	"kueue.x-k8s.io/podset-slice-required-topology",
	"kueue.x-k8s.io/podset-slice-size",
	"kueue.x-k8s.io/podset-group-name",
}

// managedLabels are put on the template by the Job controller.
var managedLabels = []string{"controller-uid", batchv1.ControllerUidLabel}

// WorkloadFor is the Workload that a Job should have, as the cluster that kube reads has
// it. What keeps the Job from being queued stands in an annotation, so that its queue
// can tell it.
func WorkloadFor(ctx context.Context, kube client.Reader, job *batchv1.Job) (*kueue.Workload, error) {
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
	if job.Labels[QueueLabel] == "" {
		refusals = append(refusals, fmt.Sprintf("the Job names no queue, and all Jobs of namespace %s queue; set its label %s to a LocalQueue of the namespace", job.Namespace, QueueLabel))
	}
	if seconds, ok := job.Labels[MaxExecTimeLabel]; ok {
		if n, err := strconv.ParseInt(seconds, 10, 32); err != nil || n < 1 {
			refusals = append(refusals, fmt.Sprintf("the label %s is %q, which is no number of seconds from 1 on; correct or remove it", MaxExecTimeLabel, seconds))
		} else {
			w.Spec.MaximumExecutionTimeSeconds = new(int32(n))
		}
	}
	if isElastic(job) {
		w.Annotations[queueing.ElasticAnnotation] = "true"
	}
	if saysElastic(job) && PrebuiltName(job) != "" {
		refusals = append(refusals, fmt.Sprintf("the annotation %s and %s are both on the Job, but an elastic Job has Workloads that Muster makes; remove one",
			queueing.ElasticAnnotation, PrebuiltLabel))
	}
	least, why := minCount(job)
	w.Spec.PodSets[0].MinCount = least
	if why != "" {
		refusals = append(refusals, why)
	}
	if why := equalCompletions(job); why != "" {
		refusals = append(refusals, why)
	}
	// A prebuilt Workload has its own.
	if PrebuiltName(job) == "" {
		why, err := setPriority(ctx, kube, job, &w.Spec)
		if err != nil {
			return nil, err
		}
		if why != "" {
			refusals = append(refusals, why)
		}
	}
	why, err := fillIn(ctx, kube, job.Namespace, &w.Spec.PodSets[0].Template.Spec)
	if err != nil {
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

// minCount is with how many pods at once the Job may start at least, if it may
// start with fewer than all. It says why the annotation cannot be followed if so.
func minCount(job *batchv1.Job) (least *int32, why string) {
	value, ok := job.Annotations[MinParallelismAnnotation]
	if !ok {
		return nil, ""
	}
	if isElastic(job) {
		return nil, fmt.Sprintf("the annotations %s and %s are both on the Job, but an elastic Job starts with the parallelism that it has; remove one", MinParallelismAnnotation, queueing.ElasticAnnotation)
	}
	whole := wholeCount(job)
	n, err := strconv.ParseInt(value, 10, 32)
	switch {
	case err == nil && n >= 1 && int32(n) < podCount(job):
		return new(int32(n)), ""
	case err == nil && n >= 1 && int32(n) < whole:
		// No more than that is left of the Job to run.
		return nil, ""
	case whole < 2:
		return nil, fmt.Sprintf("the annotation %s is %q, but the Job has %d pods at once and so cannot start with fewer; remove it", MinParallelismAnnotation, value, whole)
	}
	return nil, fmt.Sprintf("the annotation %s is %q, which is no number from 1 to %d, one less than the Job's %d pods at once; correct or remove it",
		MinParallelismAnnotation, value, whole-1, whole)
}

// equalCompletions says why the annotation that ties the Job's completions to its
// parallelism cannot be followed, if so.
func equalCompletions(job *batchv1.Job) (why string) {
	value, ok := job.Annotations[EqualCompletionsAnnotation]
	if !ok {
		return ""
	}
	switch tied, err := strconv.ParseBool(value); {
	case err != nil:
		return fmt.Sprintf("the annotation %s is %q, which is neither true nor false; correct or remove it", EqualCompletionsAnnotation, value)
	case tied && valueOr(job.Spec.CompletionMode, batchv1.NonIndexedCompletion) != batchv1.IndexedCompletion:
		return fmt.Sprintf("the annotation %s is %q, but only the completions of an Indexed Job can change; set completionMode: Indexed or remove it", EqualCompletionsAnnotation, value)
	case tied && valueOr(job.Spec.Completions, 1) != valueOr(job.Spec.Parallelism, 1):
		return fmt.Sprintf("the annotation %s is %q, but completions are %d and parallelism is %d; make them equal or remove it",
			EqualCompletionsAnnotation, value, valueOr(job.Spec.Completions, 1), valueOr(job.Spec.Parallelism, 1))
	}
	return ""
}

// ownAnnotations on a Workload are the controller's, which takes them off again.
var ownAnnotations = []string{queueing.RefusedAnnotation, queueing.AdoptedAnnotation, queueing.ElasticAnnotation, queueing.ReplacementAnnotation}

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
func setPriority(ctx context.Context, kube client.Reader, job *batchv1.Job, spec *kueue.WorkloadSpec) (why string, err error) {
	if name := job.Labels[PriorityClassLabel]; name != "" {
		class := &kueue.WorkloadPriorityClass{}
		if err := kube.Get(ctx, client.ObjectKey{Name: name}, class); err != nil {
			if apierrors.IsNotFound(err) {
				return fmt.Sprintf("WorkloadPriorityClass %q, which the label %s names, doesn't exist; create it or change the label", name, PriorityClassLabel), nil
			}
			return "", fmt.Errorf("reading WorkloadPriorityClass %s: %w", name, err)
		}
		spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(name)
		spec.Priority = new(class.Value)
		return "", nil
	}
	var classes schedulingv1.PriorityClassList
	if err := kube.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing PriorityClasses: %w", err)
	}
	name := job.Spec.Template.Spec.PriorityClassName
	for i := range classes.Items {
		class := &classes.Items[i]
		if class.Name == name || name == "" && class.GlobalDefault {
			spec.PriorityClassRef = kueue.NewPodPriorityClassRef(class.Name)
			spec.Priority = new(class.Value)
			return "", nil
		}
	}
	if name != "" {
		return fmt.Sprintf("PriorityClass %q of the Job's pods doesn't exist; create it or change priorityClassName", name), nil
	}
	spec.Priority = new(int32(0))
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
	set(samePriority(&w.Spec, &want.Spec), func() { copyPriority(&w.Spec, &want.Spec) })
	set(equality.Semantic.DeepEqual(w.Spec.MaximumExecutionTimeSeconds, want.Spec.MaximumExecutionTimeSeconds), func() {
		w.Spec.MaximumExecutionTimeSeconds = want.Spec.MaximumExecutionTimeSeconds
	})
	annotations := maps.Clone(w.Annotations)
	maps.DeleteFunc(annotations, func(k, _ string) bool { return isCopied(k) || slices.Contains(ownAnnotations, k) })
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, want.Annotations)
	set(equality.Semantic.DeepEqual(w.Annotations, annotations), func() { w.Annotations = annotations })
	return changed
}

// followReserved is what can be followed while w holds quota: another priority,
// as long as it comes from the same kind of class, and a time limit, as long as
// nothing runs. The API takes nothing else.
func followReserved(w, want *kueue.Workload) bool {
	changed := false
	// Without a priority the class that gives it does not exist.
	if want.Spec.Priority != nil && sameKind(w.Spec.PriorityClassRef, want.Spec.PriorityClassRef) && !samePriority(&w.Spec, &want.Spec) {
		copyPriority(&w.Spec, &want.Spec)
		changed = true
	}
	if !queueing.IsAdmitted(w) && !equality.Semantic.DeepEqual(w.Spec.MaximumExecutionTimeSeconds, want.Spec.MaximumExecutionTimeSeconds) {
		w.Spec.MaximumExecutionTimeSeconds = want.Spec.MaximumExecutionTimeSeconds
		changed = true
	}
	return changed
}

// samePriority compares where priorities come from. The value of a WorkloadPriorityClass
// is followed by the queues, for Workloads that others made, too.
func samePriority(a, b *kueue.WorkloadSpec) bool {
	if !equality.Semantic.DeepEqual(a.PriorityClassRef, b.PriorityClassRef) {
		return false
	}
	ref := a.PriorityClassRef
	return ref != nil && ref.Kind == kueue.WorkloadPriorityClassKind || equality.Semantic.DeepEqual(a.Priority, b.Priority)
}

func copyPriority(to, from *kueue.WorkloadSpec) {
	to.Priority, to.PriorityClassRef = from.Priority, from.PriorityClassRef
}

// sameKind says that the API lets a Workload with quota go from one class to the
// other: a PriorityClass is for good, a WorkloadPriorityClass is not.
func sameKind(a, b *kueue.PriorityClassRef) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Group == b.Group && a.Kind == b.Kind && (a.Kind == kueue.WorkloadPriorityClassKind || a.Name == b.Name)
}

// samePods compares what is counted and placed: the number of pods and their
// specs. The API may have stored less of the templates' metadata than it got.
func samePods(a, b *kueue.Workload) bool {
	return slices.EqualFunc(a.Spec.PodSets, b.Spec.PodSets, func(x, y kueue.PodSet) bool {
		return x.Count == y.Count && equality.Semantic.DeepEqual(x.MinCount, y.MinCount) && equality.Semantic.DeepEqual(x.Template.Spec, y.Template.Spec)
	})
}

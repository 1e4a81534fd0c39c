package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/jobs/defaults"
	"github.com/muster-dev/muster/queueing/jobs/order"
	"github.com/muster-dev/muster/queueing/jobs/templates"
	"github.com/muster-dev/muster/queueing/jobs/topology"
	"github.com/muster-dev/muster/queueing/workload"
)

// WorkloadFor is the Workload that a job should have, as the cluster that kube reads has
// it: for the pods that are left of the job. Why the job cannot be queued stands in an
// annotation, so that its queue can say it. has is the Workload that the job has; nil if there is none.
func WorkloadFor(ctx context.Context, kube client.Reader, kind Kind, job client.Object, has *kueue.Workload) (*kueue.Workload, error) {
	w, err := NewWorkload(ctx, kube, kind, job, has)
	if err != nil || IsDelegated(kind, job) { // another cluster runs all of it, and counts what is left
		return w, err
	}
	for i, c := range countsOf(kind, job, w) {
		podSet := &w.Spec.PodSets[i]
		podSet.Count = c.Needed
		if podSet.MinCount != nil && *podSet.MinCount >= c.Needed {
			// No more than that is left of the job to run.
			podSet.MinCount = nil
		}
	}
	return w, nil
}

// NewWorkload is what WorkloadFor returns for a job of which nothing has ended.
func NewWorkload(ctx context.Context, kube client.Reader, kind Source, job client.Object, has *kueue.Workload) (*kueue.Workload, error) {
	gvk, labels := kind.GroupVersionKind(), job.GetLabels()
	podSets, wrong := kind.PodSets(job)
	if why := noPodSets(gvk.Kind, podSets); why != "" {
		// The API takes no Workload with them, and one without can say so.
		podSets, wrong = nil, append(wrong, why)
	}
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Name: WorkloadName(gvk, job), Namespace: job.GetNamespace(),
			Labels:          map[string]string{JobUIDLabel: string(job.GetUID())},
			Annotations:     map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, gvk)},
		},
		Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(labels[QueueLabel])},
	}
	for i := range podSets {
		w.Spec.PodSets = append(w.Spec.PodSets, *podSets[i].DeepCopy())
	}
	for k, v := range job.GetAnnotations() {
		if isCopied(k) {
			w.Annotations[k] = v
		}
	}
	if by := job.GetAnnotations()[workload.SubmittedByAnnotation]; by != "" && isSubmitted(gvk.Kind, job) {
		w.Annotations[workload.SubmittedByAnnotation] = by
	}
	var refusals []string
	refusals = append(refusals, topology.Misplaced(job, w.Spec.PodSets)...)
	refusals = append(refusals, topology.Complete(w.Spec.PodSets)...)
	refusals = append(refusals, templates.InvalidMarks(w.Spec.PodSets)...)
	if labels[QueueLabel] == "" {
		refusals = append(refusals, fmt.Sprintf("the %s names no queue, and all jobs of namespace %s are queued; "+
			"set its label %s to a LocalQueue of the namespace", gvk.Kind, job.GetNamespace(), QueueLabel))
	}
	if seconds, ok := labels[MaxExecTimeLabel]; ok {
		if n, err := strconv.ParseInt(seconds, 10, 32); err != nil || n < 1 {
			refusals = append(refusals, fmt.Sprintf("the label %s is %q, which is not a number of seconds of at least 1; correct or remove it",
				MaxExecTimeLabel, seconds))
		} else {
			w.Spec.MaximumExecutionTimeSeconds = new(int32(n))
		}
	}
	if IsElastic(job) {
		w.Annotations[workload.ElasticAnnotation] = "true"
		refusals = append(refusals, topology.Elastic(w.Spec.PodSets)...)
	}
	if said := order.Text(orderOf(kind, job, w), w.Spec.PodSets); said != "" {
		w.Annotations[workload.OrderAnnotation] = said
	}
	if _, can := elasticOf(kind); !can && requestsElastic(job) {
		refusals = append(refusals, fmt.Sprintf("the annotation %s is on the job, but the number of pods of a %s cannot change while it runs; "+
			"remove it", workload.ElasticAnnotation, gvk.Kind))
	}
	if requestsElastic(job) && PrebuiltName(job) != "" {
		refusals = append(refusals, fmt.Sprintf("the annotation %s and %s are both on the job, "+
			"but Muster creates the Workloads of an elastic job; remove one", workload.ElasticAnnotation, PrebuiltLabel))
	}
	if _, err := dispatch.ParseHedge(w.Annotations[dispatch.HedgeAnnotation]); err != nil {
		refusals = append(refusals, err.Error())
	}
	if IsDelegated(kind, job) {
		w.Annotations[workload.DelegatedAnnotation] = "true"
		if IsElastic(job) {
			refusals = append(refusals, fmt.Sprintf("the annotation %s is on the job, but the number of pods cannot change of a job that runs "+
				"in another cluster; remove it", workload.ElasticAnnotation))
		}
	}
	refusals = append(refusals, wrong...)
	// A prebuilt Workload has its own priority.
	if PrebuiltName(job) == "" {
		why, err := setPriority(ctx, kube, kind, job, has, &w.Spec)
		if err != nil {
			return nil, err
		}
		refusals = append(refusals, why)
	}
	for i := range w.Spec.PodSets {
		why, err := defaults.FillIn(ctx, kube, job.GetNamespace(), &w.Spec.PodSets[i].Template.Spec)
		if err != nil {
			return nil, err
		}
		refusals = append(refusals, why)
	}
	refusals = slices.DeleteFunc(refusals, func(why string) bool { return why == "" })
	if len(refusals) > 0 {
		w.Annotations[workload.RefusedAnnotation] = strings.Join(slices.Compact(refusals), "; ")
	}
	return w, nil
}

// maxPodSets is how many pod sets a Workload may have.
const maxPodSets = 18

// noPodSets is why a Workload cannot have the pod sets; empty if it can.
func noPodSets(kind string, podSets []kueue.PodSet) string {
	if len(podSets) > maxPodSets {
		return fmt.Sprintf("the %s has %d kinds of pods, and a Workload has room for %d; join those that are alike, or split the %s",
			kind, len(podSets), maxPodSets, kind)
	}
	seen := sets.New[kueue.PodSetReference]()
	for i := range podSets {
		name := podSets[i].Name
		if errs := validation.IsDNS1123Label(string(name)); len(errs) > 0 {
			return fmt.Sprintf("the pods %q of the %s have a name that cannot be that of a pod set: %s; rename them", name, kind, errs[0])
		}
		if seen.Has(name) {
			return fmt.Sprintf("the %s has pods of the name %q twice; rename one", kind, name)
		}
		seen.Insert(name)
	}
	return ""
}

// ManagedByOther returns why a job cannot be queued whose field names another controller than
// that of its kind, or of MultiKueue, by which it runs in another cluster: what others do is not known.
func ManagedByOther(field, name, own string) []string {
	if name == "" || name == own || name == kueue.MultiKueueControllerName {
		return nil
	}
	return []string{fmt.Sprintf("%s is %q, so another controller runs it, and it gets no quota and no machines here; create it again without "+
		"that field, or without the label %s", field, name, QueueLabel)}
}

// isSubmitted reports whether a policy guards the name of the user on an object. A pod with a controller has the annotations of its
// template, where a user may write any name.
func isSubmitted(kind string, job client.Object) bool {
	return kind != "Pod" || metav1.GetControllerOf(job) == nil
}

// isCopied reports whether an annotation of the job belongs on its Workload, too.
func isCopied(annotation string) bool {
	return strings.HasPrefix(annotation, workload.ParameterPrefix) || annotation == workload.GatedByAnnotation ||
		annotation == dispatch.HedgeAnnotation
}

// ownAnnotations on a Workload are the controller's, which removes them again.
var ownAnnotations = []string{workload.RefusedAnnotation, workload.AdoptedAnnotation, workload.ElasticAnnotation,
	workload.ReplacementAnnotation, workload.OrderAnnotation, workload.DelegatedAnnotation, workload.SubmittedByAnnotation}

// Follow changes w to what is wanted now, and reports whether that differs. What a user
// sets on a Workload, spec.active, stays.
func Follow(w, want *kueue.Workload) bool {
	changed := false
	set := func(same bool, apply func()) {
		if !same {
			apply()
			changed = true
		}
	}
	set(SamePods(w, want), func() { w.Spec.PodSets = want.Spec.PodSets })
	set(w.Spec.QueueName == want.Spec.QueueName, func() { w.Spec.QueueName = want.Spec.QueueName })
	set(workload.SamePriority(&w.Spec, &want.Spec), func() { workload.CopyPriority(&w.Spec, &want.Spec) })
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

// FollowReserved changes what can change while w has quota: the priority, as long as it
// comes from the same kind of class, and the time limit, as long as nothing runs. The API
// accepts nothing else. It reports whether that differs.
func FollowReserved(w, want *kueue.Workload) bool {
	changed := false
	// Without a priority, the class that has it does not exist.
	if want.Spec.Priority != nil && workload.SameClassKind(w.Spec.PriorityClassRef, want.Spec.PriorityClassRef) &&
		!workload.SamePriority(&w.Spec, &want.Spec) {
		workload.CopyPriority(&w.Spec, &want.Spec)
		changed = true
	}
	if !workload.IsAdmitted(w) && !equality.Semantic.DeepEqual(w.Spec.MaximumExecutionTimeSeconds, want.Spec.MaximumExecutionTimeSeconds) {
		w.Spec.MaximumExecutionTimeSeconds = want.Spec.MaximumExecutionTimeSeconds
		changed = true
	}
	return changed
}

// SamePods compares what is counted and placed: the number of pods, their specs, and what they
// ask of the topology. The API may have stored less of the templates' metadata than it got.
func SamePods(a, b *kueue.Workload) bool {
	return slices.EqualFunc(a.Spec.PodSets, b.Spec.PodSets, func(x, y kueue.PodSet) bool {
		return x.Count == y.Count && equality.Semantic.DeepEqual(x.MinCount, y.MinCount) &&
			equality.Semantic.DeepEqual(x.Template.Spec, y.Template.Spec) && topology.Same(x.TopologyRequest, y.TopologyRequest)
	})
}

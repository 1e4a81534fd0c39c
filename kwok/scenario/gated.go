package scenario

import (
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-dev/muster/queueing/workload"
)

// JobLabel of the pods of a gated kind names the one of the scenario that they are of.
const JobLabel = "scenario.muster.dev/job"

// gatedKind is a kind whose pods are queued by gates.
type gatedKind struct {
	schema.GroupVersionKind
	// templates of its pods; a pod is its own.
	templates [][]string
	// alone reports whether each of its pods has a Workload to itself.
	alone bool
}

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

var gatedKinds = []gatedKind{
	{GroupVersionKind: podKind, templates: [][]string{nil}},
	{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment"), templates: [][]string{{"spec", "template"}}, alone: true},
	{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), templates: [][]string{{"spec", "template"}}},
	{GroupVersionKind: schema.GroupVersionKind{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"}, templates: [][]string{
		{"spec", "leaderWorkerTemplate", "leaderTemplate"}, {"spec", "leaderWorkerTemplate", "workerTemplate"}}},
}

// gatedKindOf is the kind of an API type; nil for none.
func gatedKindOf(gvk schema.GroupVersionKind) *gatedKind {
	if i := slices.IndexFunc(gatedKinds, func(k gatedKind) bool { return k.GroupVersionKind == gvk }); i >= 0 {
		return &gatedKinds[i]
	}
	return nil
}

// IsGroup reports whether the shape is of pods that start together.
func (s *Shape) IsGroup() bool {
	return s.Object != nil && s.Object.GroupVersionKind() == podKind && s.Pods > 1
}

// Serves reports whether the shape is of a kind that serves until it is deleted, which it is after its run time.
func (s *Shape) Serves() bool {
	if s.Object == nil {
		return false
	}
	gvk := s.Object.GroupVersionKind()
	kind := kindOf(gvk)
	return kind != nil && kind.Succeeded == "" || gatedKindOf(gvk) != nil && gvk != podKind
}

// Workloads is how many a job of the shape has.
func (s *Shape) Workloads() int {
	if s.Object == nil {
		return 1
	}
	switch kind := gatedKindOf(s.Object.GroupVersionKind()); {
	case kind == nil:
		return 1
	case kind.alone:
		return s.AllPods()
	case kind.Kind == "LeaderWorkerSet":
		return int(number(s.Object, 1, "spec", "replicas"))
	default:
		return 1
	}
}

// number is a field of an object, or its default.
func number(o *unstructured.Unstructured, otherwise int64, path ...string) int64 {
	if n, found, err := unstructured.NestedInt64(o.Object, path...); found && err == nil {
		return n
	}
	return otherwise
}

// gated judges an object of a gated kind, and reads its pods.
func (j *judge) gated(a *Arrival, s *Shape, kind *gatedKind, path *field.Path) {
	object := path.Child("object")
	counts, names := []int64{number(s.Object, 1, "spec", "replicas")}, []string{"main"}
	switch {
	case kind.GroupVersionKind == podKind:
		s.Pods = max(s.Pods, 1)
		j.between(s.Pods, 1, mostPods, path.Child("pods"))
		counts = []int64{int64(s.Pods)}
		policy, _, _ := unstructured.NestedString(s.Object.Object, "spec", "restartPolicy")
		if policy == "" || policy == string(corev1.RestartPolicyAlways) {
			j.Refuse(object.Child("spec", "restartPolicy"), "it is Always, which is the default, so such a pod never succeeds; write Never")
		}
	case kind.Kind == "LeaderWorkerSet":
		size := number(s.Object, 1, "spec", "leaderWorkerTemplate", "size")
		counts, names = []int64{counts[0], counts[0] * (size - 1)}, []string{"leader", "worker"}
		if _, has, _ := unstructured.NestedMap(s.Object.Object, kind.templates[0]...); !has {
			counts = []int64{0, counts[0] * size}
		}
	default:
		j.selects(a, s.Object, object)
	}
	if kind.GroupVersionKind != podKind && s.Pods != 0 || len(s.Requests) > 0 {
		j.Refuse(path.Child("pods"), "the pods and their requests are those of the object; remove pods and requests")
	}
	s.sets = []podSet{}
	for i, at := range kind.templates {
		if counts[i] > 0 {
			j.template(s, names[i], counts[i], at, object)
		}
	}
	if pods := s.AllPods(); pods < 1 || pods > mostPods {
		j.Refuse(object, "it has %d pods; give it from 1 to %d", pods, mostPods)
	}
}

// template reads so many pods of a template.
func (j *judge) template(s *Shape, name string, count int64, at []string, path *field.Path) {
	text, _, _ := unstructured.NestedMap(s.Object.Object, at...)
	var template corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(text, &template); err != nil {
		j.Refuse(path, "its pods cannot be read: %v", err)
		return
	}
	j.podSet(s, name, int32(min(count, mostPods+1)), &template, path)
}

// podSet takes pods of an object into its shape.
func (j *judge) podSet(s *Shape, name string, count int32, template *corev1.PodTemplateSpec, path *field.Path) {
	p := podSet{name: name, pods: count, requests: corev1.ResourceList{}, nodeSelector: template.Spec.NodeSelector}
	for name, amount := range workload.PodRequests(&template.Spec).List() {
		if !amount.IsZero() {
			p.requests[name] = amount
		}
	}
	j.amounts(p.requests, path)
	s.sets = append(s.sets, p)
}

// selects rejects an object that would select the pods of the others of its arrival.
func (j *judge) selects(a *Arrival, o *unstructured.Unstructured, path *field.Path) {
	if selector, _, _ := unstructured.NestedMap(o.Object, "spec", "selector"); a.Count > 1 && !says(selector, NameWord) {
		j.Refuse(path.Child("spec", "selector"), "it selects the pods of all %d that arrive; write a label with %s into it, and into those of "+
			"its pod template", a.Count, NameWord)
	}
}

// labelled has the pods of an object of a gated kind say which they are.
func labelled(o *unstructured.Unstructured) {
	kind := gatedKindOf(o.GroupVersionKind())
	if kind == nil {
		return
	}
	for _, at := range kind.templates {
		if _, has, _ := unstructured.NestedMap(o.Object, at...); has || at == nil {
			_ = unstructured.SetNestedField(o.Object, o.GetName(), slices.Concat(at, []string{"metadata", "labels", JobLabel})...)
		}
	}
}

// group are so many pods like the one, which start together.
func group(pod *unstructured.Unstructured, count int32) (out []*unstructured.Unstructured) {
	for i := range count {
		p := pod.DeepCopy()
		p.SetName(fmt.Sprintf("%s-%d", pod.GetName(), i))
		p.SetLabels(merged(p.GetLabels(), map[string]string{workload.GroupName: pod.GetName()}))
		p.SetAnnotations(merged(p.GetAnnotations(), map[string]string{workload.GroupCountAnnotation: strconv.Itoa(int(count))}))
		out = append(out, p)
	}
	return out
}

package scenario

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-dev/muster/kwok/operators"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

// podSet is pods of a Job that are alike.
type podSet struct {
	// name is that in an object; empty where the shape itself says what its pods are.
	name         string
	pods         int32
	requests     corev1.ResourceList
	nodeSelector map[string]string
}

// podSets are all pods of a Job.
func (s *Shape) podSets() []podSet {
	if s.sets != nil {
		return s.sets
	}
	return []podSet{{pods: s.Pods, requests: s.Requests, nodeSelector: s.NodeSelector}}
}

// AllPods is how many pods a Job has.
func (s *Shape) AllPods() (n int) {
	for _, p := range s.podSets() {
		n += int(p.pods)
	}
	return n
}

// operators validates the names of the operators to run.
func (j *judge) operators(names []string) {
	for i, name := range names {
		path := field.NewPath("operators").Index(i)
		switch {
		case !slices.Contains(operators.Names(), name):
			j.Refuse(path, "there is no operator %q; there %s: choose one", name, choices(operators.Names()))
		case slices.Contains(names[:i], name):
			j.Refuse(path, "%s is named twice; remove one", name)
		}
	}
}

// jobOfAKind judges an object that arrives, and reads its pods.
func (j *judge) jobOfAKind(a *Arrival, s *Shape, with []string, path *field.Path) {
	gvk, object := s.Object.GroupVersionKind(), path.Child("object")
	kind, gated := kindOf(gvk), gatedKindOf(gvk)
	switch {
	case gvk == batchv1.SchemeGroupVersion.WithKind("Job"):
		j.Refuse(object, "a Job is what a shape without an object is; write its pods, requests and the like into the shape")
		return
	case kind == nil && gated == nil:
		j.Refuse(object, "%s of %s is no kind of jobs that can arrive; there %s: choose one, or move it to the objects of the scenario",
			s.Object.GetKind(), s.Object.GetAPIVersion(), choices(known()))
		return
	}
	if name := operators.Lacking(gvk.Kind, with); name != "" {
		j.Refuse(object, "nothing runs a %s without the operator %s; add it to operators", gvk.Kind, name)
	}
	for name, value := range map[string]string{"name": s.Object.GetName(), "generateName": s.Object.GetGenerateName(),
		"namespace": s.Object.GetNamespace()} {
		if value != "" {
			j.Refuse(object.Child("metadata", name), "it is %q, but the arrival says how its objects are named and where they are; remove it", value)
		}
	}
	j.runTime(s, object)
	j.ofJobsAlone(s, path)
	if gated != nil {
		j.gated(a, s, gated, path)
		return
	}
	if kind.Stanza.Source != nil {
		// Its pods are those of another object, which its operator makes.
		j.pods(s, path)
		return
	}
	if s.Pods != 0 || len(s.Requests) > 0 {
		j.Refuse(path.Child("pods"), "the pods and their requests are those of the object; remove pods and requests")
	}
	last := s.Object.DeepCopy()
	last.SetName(a.job(int(a.Count) - 1))
	j.read(s, kind, last, object)
}

// runTime judges whether the object runs for its time: pods end by themselves, or it is deleted.
func (j *judge) runTime(s *Shape, path *field.Path) {
	switch says := says(s.Object.Object, RunForWord); {
	case s.Serves() && says:
		j.Refuse(path, "it says %s, so its pods would end and be made again: a %s serves until it is deleted, which it is after runFor; "+
			"remove the annotation", RunForWord, s.Object.GetKind())
	case !s.Serves() && !says:
		j.Refuse(path, "nothing in it says %s, so it would not run for runFor; write kwok.muster.dev/run-for: %s into the annotations of its "+
			"pod templates, or into those of a RayJob itself", RunForWord, RunForWord)
	}
}

// ofJobsAlone rejects fields that an object has itself.
func (j *judge) ofJobsAlone(s *Shape, path *field.Path) {
	for _, f := range []struct {
		name  string
		isSet bool
	}{
		{"together", s.Together}, {"retries", s.Retries != 0}, {"deadline", s.Deadline != nil}, {"nodeSelector", len(s.NodeSelector) > 0},
		{"tolerations", len(s.Tolerations) > 0}, {"podAnnotations", len(s.PodAnnotations) > 0},
	} {
		if f.isSet {
			j.Refuse(path.Child(f.name), "it is for Jobs, and there is an object; write it into that, or remove it")
		}
	}
}

// read the pods of an object, as it arrives: some kinds limit the length of its name.
func (j *judge) read(s *Shape, kind *kinds.Kind, o *unstructured.Unstructured, path *field.Path) {
	sets, refusals := kind.PodSets(o)
	for _, why := range refusals {
		j.Refuse(path, "no queue takes it: %s", why)
	}
	s.sets = []podSet{}
	for i := range sets {
		j.podSet(s, string(sets[i].Name), sets[i].Count, &sets[i].Template, path)
	}
	if pods := s.AllPods(); len(refusals) == 0 && (pods < 1 || pods > mostPods) {
		j.Refuse(path, "it has %d pods; give it from 1 to %d", pods, mostPods)
	}
}

// kindOf is the kind of jobs of an API type; nil for none.
func kindOf(gvk schema.GroupVersionKind) *kinds.Kind {
	for _, k := range kinds.BuiltIn() {
		if k.GroupVersionKind() == gvk {
			return k
		}
	}
	return nil
}

// known returns the kinds that can arrive.
func known() (out []string) {
	add := func(gvk schema.GroupVersionKind) {
		out = append(out, fmt.Sprintf("%s (%s)", gvk.Kind, gvk.GroupVersion()))
	}
	for _, k := range kinds.BuiltIn() {
		add(k.GroupVersionKind())
	}
	for _, k := range gatedKinds {
		add(k.GroupVersionKind)
	}
	return out
}

// Objects are those of the submission where it is of another kind, named and labelled as a Job would be; none for a Job.
func (s Submission) Objects(speed int) []*unstructured.Unstructured {
	if s.Shape.Object == nil {
		return nil
	}
	o := s.Shape.Object.DeepCopy()
	withText(o.Object, strings.NewReplacer(RunForWord, s.Runs(speed).String(), NameWord, s.Name).Replace)
	o.SetNamespace(s.Namespace)
	o.SetName(s.Name)
	o.SetLabels(merged(o.GetLabels(), s.labels(speed)))
	o.SetAnnotations(fasterAnnotations(merged(o.GetAnnotations(), s.Shape.Annotations), speed))
	labelled(o)
	if s.Shape.IsGroup() {
		return group(o, s.Shape.Pods)
	}
	return []*unstructured.Unstructured{o}
}

// says reports whether a text stands in any other of a value.
func says(value any, text string) (found bool) {
	withText(value, func(t string) string {
		found = found || strings.Contains(t, text)
		return t
	})
	return found
}

// withText replaces all texts in a value and returns it.
func withText(value any, change func(string) string) any {
	switch x := value.(type) {
	case string:
		return change(x)
	case []any:
		for i := range x {
			x[i] = withText(x[i], change)
		}
	case map[string]any:
		for key := range x {
			x[key] = withText(x[key], change)
		}
	}
	return value
}

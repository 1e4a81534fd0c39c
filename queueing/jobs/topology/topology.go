// Package topology reads how near to each other the pods of a job are to run: Kueue's
// annotations on its pod templates.
package topology

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// maxLayers is how many layers of slices the API takes.
const maxLayers = 3

// annotations are all that are read.
var annotations = []string{
	kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetUnconstrainedTopologyAnnotation,
	kueue.PodSetSliceRequiredTopologyAnnotation, kueue.PodSetSliceSizeAnnotation, kueue.PodSetSliceRequiredTopologyConstraintsAnnotation,
	kueue.PodSetGroupName,
}

// Complete adds to the topology requests of podSets what the annotations of their templates request. The kind has set by which labels
// pods are numbered. It returns why annotations cannot be followed. The podSets with these annotations keep their requests.
func Complete(podSets []kueue.PodSet) (refusals []string) {
	groups := map[string][]*kueue.PodSet{}
	for i := range podSets {
		r := reader{podSet: &podSets[i]}
		request := r.request()
		if len(r.refusals) > 0 {
			refusals = append(refusals, r.refusals...)
			continue
		}
		podSets[i].TopologyRequest = request
		if request != nil && request.PodSetGroupName != nil {
			groups[*request.PodSetGroupName] = append(groups[*request.PodSetGroupName], &podSets[i])
		}
	}
	for i := range podSets {
		// Each group is judged where its first pod set stands.
		if request := podSets[i].TopologyRequest; request != nil && request.PodSetGroupName != nil {
			if group := groups[*request.PodSetGroupName]; group[0] == &podSets[i] {
				refusals = append(refusals, refusedGroup(*request.PodSetGroupName, group)...)
			}
		}
	}
	return refusals
}

// Elastic returns why pod sets cannot be those of a job whose number of pods changes while it
// runs: the domain that they are in may have no room for more.
func Elastic(podSets []kueue.PodSet) (refusals []string) {
	for i := range podSets {
		for _, key := range annotations {
			value, found := podSets[i].Template.Annotations[key]
			if found && key != kueue.PodSetUnconstrainedTopologyAnnotation {
				refusals = append(refusals, fmt.Sprintf("the annotation %s of podSet %s is %q, and the number of pods of an elastic job changes; "+
					"use %s, or make the job not elastic", key, podSets[i].Name, value, kueue.PodSetUnconstrainedTopologyAnnotation))
			}
		}
	}
	return refusals
}

// Misplaced returns which annotations are where they have no effect: on a job and on none of its
// pod templates, or among labels.
func Misplaced(job metav1.Object, podSets []kueue.PodSet) (refusals []string) {
	for _, key := range annotations {
		label, isLabel := job.GetLabels()[key]
		value, misplaced := job.GetAnnotations()[key]
		for i := range podSets {
			template := &podSets[i].Template.ObjectMeta
			if value, found := template.Labels[key]; found {
				label, isLabel = value, true
			}
			if _, found := template.Annotations[key]; found {
				misplaced = false
			}
		}
		switch {
		case isLabel:
			refusals = append(refusals, fmt.Sprintf("%s, %q, is a label, which has no effect; "+
				"make it an annotation of the pod template", key, label))
		case misplaced:
			refusals = append(refusals, fmt.Sprintf("the annotation %s, %q, is on the job itself, where it has no effect; "+
				"move it to its pod template", key, value))
		}
	}
	return refusals
}

// Same reports whether two requests are equal. The labels that number the pods are ignored, since the kind sets them.
func Same(a, b *kueue.PodSetTopologyRequest) bool {
	return equality.Semantic.DeepEqual(userRequest(a), userRequest(b))
}

// userRequest returns the part of a request that a user sets.
func userRequest(r *kueue.PodSetTopologyRequest) (out kueue.PodSetTopologyRequest) {
	if r != nil {
		out = *r
		out.PodIndexLabel, out.SubGroupIndexLabel, out.SubGroupCount = nil, nil, nil
	}
	return out
}

// reader reads the annotations of one pod set.
type reader struct {
	podSet   *kueue.PodSet
	refusals []string
}

// refuse notes why an annotation cannot be followed.
func (r *reader) refuse(key, format string, args ...any) {
	r.refusals = append(r.refusals, fmt.Sprintf("the annotation %s of podSet %s is %q, %s",
		key, r.podSet.Name, r.podSet.Template.Annotations[key], fmt.Sprintf(format, args...)))
}

// value is that of an annotation; nil if there is none.
func (r *reader) value(key string) *string {
	if value, found := r.podSet.Template.Annotations[key]; found {
		return &value
	}
	return nil
}

// level is the value of an annotation that names a level.
func (r *reader) level(key string) *string {
	value := r.value(key)
	if value != nil {
		r.checkLevel(key, *value)
	}
	return value
}

func (r *reader) checkLevel(key, label string) {
	if wrong := validation.IsQualifiedName(label); len(wrong) > 0 {
		r.refuse(key, "and %q is not the key of a label: %s; name a level of the Topology", label, wrong[0])
	}
}

// excludes refuses an annotation beside others.
func (r *reader) excludes(key string, others ...string) {
	for _, other := range others {
		if r.value(key) != nil && r.value(other) != nil {
			r.refuse(key, "and may not be set when %s is specified; remove one", other)
		}
	}
}

// request returns what the annotations request, as Kueue does; nil if neither they nor the kind set anything.
func (r *reader) request() *kueue.PodSetTopologyRequest {
	r.excludes(kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetUnconstrainedTopologyAnnotation)
	r.excludes(kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetUnconstrainedTopologyAnnotation)
	out := ptr.Deref(r.podSet.TopologyRequest, kueue.PodSetTopologyRequest{})
	out.Required = r.level(kueue.PodSetRequiredTopologyAnnotation)
	out.Preferred = r.level(kueue.PodSetPreferredTopologyAnnotation)
	out.Unconstrained = r.unconstrained()
	out.PodSetSliceRequiredTopology, out.PodSetSliceSize = r.slices()
	out.PodsetSliceRequiredTopologyConstraints = r.layers()
	out.PodSetGroupName = r.group()
	if equality.Semantic.DeepEqual(out, kueue.PodSetTopologyRequest{}) {
		return nil
	}
	return &out
}

func (r *reader) unconstrained() *bool {
	value := r.value(kueue.PodSetUnconstrainedTopologyAnnotation)
	if value == nil {
		return nil
	}
	is, err := strconv.ParseBool(*value)
	if err != nil {
		r.refuse(kueue.PodSetUnconstrainedTopologyAnnotation, "which must be a boolean value; set it to true, or remove it")
	}
	return &is
}

// slices are the level and the size of slices that have no layers.
func (r *reader) slices() (level *string, size *int32) {
	level, text := r.level(kueue.PodSetSliceRequiredTopologyAnnotation), r.value(kueue.PodSetSliceSizeAnnotation)
	switch {
	case level == nil && text == nil:
		return nil, nil
	case text == nil:
		r.refuse(kueue.PodSetSliceRequiredTopologyAnnotation, "and %s must be set with it; set that to the number of pods of a slice",
			kueue.PodSetSliceSizeAnnotation)
		return nil, nil
	case level == nil:
		r.refuse(kueue.PodSetSliceSizeAnnotation, "and may not be set when %s is not specified; set that, too, or remove this one",
			kueue.PodSetSliceRequiredTopologyAnnotation)
		return nil, nil
	}
	n, err := strconv.ParseInt(*text, 10, 32)
	if err != nil {
		r.refuse(kueue.PodSetSliceSizeAnnotation, "which must be a numeric value; set it to the number of pods of a slice")
		return nil, nil
	}
	r.checkSize(kueue.PodSetSliceSizeAnnotation, n)
	if n > 0 && int64(r.podSet.Count)%n != 0 && r.podSet.MinCount != nil {
		r.refuse(kueue.PodSetSliceSizeAnnotation, "and the size of a slice must evenly divide pod set count %d of a job that may run with fewer "+
			"pods; correct it", r.podSet.Count)
	}
	return level, new(int32(n))
}

// checkSize checks the size of the slices that a pod set is made of.
func (r *reader) checkSize(key string, size int64) {
	switch {
	case size < 1:
		r.refuse(key, "and the size of a slice must be greater than or equal to 1; correct it")
	case size > int64(r.podSet.Count):
		r.refuse(key, "and the size of a slice must not be greater than pod set count %d; lower it", r.podSet.Count)
	}
}

// layers are slices in slices, from the coarse to the fine. Whether the levels are in that order
// depends on the Topology of the flavor.
func (r *reader) layers() (out []kueue.PodsetSliceRequiredTopologyConstraint) {
	const key = kueue.PodSetSliceRequiredTopologyConstraintsAnnotation
	text := r.value(key)
	if text == nil {
		return nil
	}
	r.excludes(key, kueue.PodSetSliceRequiredTopologyAnnotation, kueue.PodSetSliceSizeAnnotation)
	if err := json.Unmarshal([]byte(*text), &out); err != nil {
		r.refuse(key, `which must be a valid JSON array, like [{"topology": "example.com/rack", "size": 4}]: %v; correct it`, err)
		return nil
	}
	if len(out) == 0 || len(out) > maxLayers {
		r.refuse(key, "and topology constraints must contain between 1 and %d entries, not %d; correct it", maxLayers, len(out))
		return nil
	}
	for i, c := range out {
		r.checkLevel(key, c.Topology)
		same := func(o kueue.PodsetSliceRequiredTopologyConstraint) bool { return o.Topology == c.Topology }
		switch {
		case slices.ContainsFunc(out[:i], same):
			r.refuse(key, "and names the topology %s twice; remove one", c.Topology)
		case i == 0 && len(out) > 1 && c.Size > 0 && c.Size <= r.podSet.Count && r.podSet.Count%c.Size != 0:
			r.refuse(key, "and the size %d must evenly divide pod set count %d when more than one layer is specified; correct it", c.Size,
				r.podSet.Count)
		case i == 0 || c.Size < 1:
			r.checkSize(key, int64(c.Size))
		case out[i-1].Size%c.Size != 0:
			r.refuse(key, "and the size %d must evenly divide the parent layer size %d; correct one", c.Size, out[i-1].Size)
		}
	}
	return out
}

// group is the name of the pod sets that are placed together.
func (r *reader) group() *string {
	const key = kueue.PodSetGroupName
	name := r.value(key)
	if name == nil {
		return nil
	}
	if _, err := strconv.ParseUint(*name, 10, 64); err == nil {
		r.refuse(key, "which must not be a number; give the group another name")
	}
	r.excludes(key, kueue.PodIndexOffsetAnnotation)
	if r.value(kueue.PodSetRequiredTopologyAnnotation) == nil && r.value(kueue.PodSetPreferredTopologyAnnotation) == nil {
		r.refuse(key, "and may not be set when neither %s nor %s is specified; set one, or remove it",
			kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation)
	}
	return name
}

// refusedGroup is why pod sets cannot be a group: a leader and the pods that it leads.
func refusedGroup(name string, group []*kueue.PodSet) (refusals []string) {
	refuse := func(format string, args ...any) {
		refusals = append(refusals, fmt.Sprintf("the annotation %s is %q, %s", kueue.PodSetGroupName, name, fmt.Sprintf(format, args...)))
	}
	if len(group) != 2 {
		refuse("which can only define groups of exactly 2 pod sets, got: %d; give it to two", len(group))
		return refusals
	}
	a, b := group[0], group[1]
	if a.Count != 1 && b.Count != 1 {
		refuse("which can only define groups where at least one pod set has only 1 replica, got: podSet %s with %d and podSet %s with %d",
			a.Name, a.Count, b.Name, b.Count)
	}
	if x, y := a.TopologyRequest, b.TopologyRequest; !ptr.Equal(x.Required, y.Required) || !ptr.Equal(x.Preferred, y.Preferred) {
		refuse("and its podSets %s and %s must name the same level in %s or %s; correct one", a.Name, b.Name,
			kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation)
	}
	return refusals
}

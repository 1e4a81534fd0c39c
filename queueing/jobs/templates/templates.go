// Package templates changes the pod templates of jobs as their pods were admitted, and changes them
// back.
package templates

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs/ranks"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/workload"
)

// ErrConflict: an admission check sets a value that differs from that of the pod template, or of another check. The message is Kueue's.
var ErrConflict = errors.New("invalid admission check PodSetUpdate")

// ErrNoFlavor: a flavor that pods were admitted on is gone.
var ErrNoFlavor = errors.New("the job cannot start")

// Placement is how the pods of one pod set start: how many, and what their template
// gets.
type Placement struct {
	// Count is how many pods have quota.
	Count int32
	// Flavors that they were admitted on.
	Flavors []*kueue.ResourceFlavor
	// Updates are what the admission checks have prepared.
	Updates []kueue.PodSetUpdate
	// Labels and Annotations say what the pods were admitted as.
	Labels, Annotations map[string]string
	// Topology: each pod is created with the gate of topologies, and sent to its domain when that is removed.
	Topology bool
	// Plan is the domain of each of them, as far as it is determined before they are created.
	Plan string
	// Gated pods are created with the gate of elastic jobs. Their updates are applied
	// to each pod when its gate is removed, since later slices have other updates.
	Gated bool
}

// Of are how the pods of each pod set of an admitted Workload start.
func Of(ctx context.Context, kube client.Reader, w *kueue.Workload) ([]Placement, error) {
	out := make([]Placement, len(w.Spec.PodSets))
	assignments := make([]kueue.PodSetAssignment, len(out))
	copy(assignments, w.Status.Admission.PodSetAssignments)
	places, err := ranks.Of(w)
	if err != nil {
		return nil, err
	}
	for i, a := range assignments {
		name := w.Spec.PodSets[i].Name
		flavors, err := flavorsOf(ctx, kube, a)
		if err != nil {
			return nil, err
		}
		out[i] = Placement{
			Count: ptr.Deref(a.Count, w.Spec.PodSets[i].Count), Flavors: flavors, Updates: UpdatesOf(w, name), Labels: queueLabels(w, name),
		}
		if a.TopologyAssignment != nil {
			out[i].inTopology(w, &w.Spec.PodSets[i], a.TopologyAssignment)
			out[i].Plan = places[i].Plan(ranks.Start(w))
		}
	}
	return out, nil
}

// inTopology has the pods of a podSet go to the domains that they are assigned. Where that is one that has other nodes, the
// template says so, which costs no write for each pod; a node may be lost, and its pods are then sent to another one. Nor do pods
// that fill the nodes booked for them need one.
func (p *Placement) inTopology(w *kueue.Workload, ps *kueue.PodSet, a *kueue.TopologyAssignment) {
	p.Annotations = map[string]string{kueue.WorkloadAnnotation: w.Name}
	if !placement.RequestsTopology(ps.TopologyRequest) {
		p.Annotations[kueue.PodSetUnconstrainedTopologyAnnotation] = "true"
	}
	if slices.ContainsFunc(p.Updates, func(u kueue.PodSetUpdate) bool { return u.Annotations[workload.FillsNodesAnnotation] != "" }) {
		return
	}
	domains, err := placement.Decode(a)
	if err != nil || len(domains) != 1 || a.Levels[len(a.Levels)-1] == corev1.LabelHostname {
		p.Topology = true
		return
	}
	selector := map[string]string{}
	for i, level := range a.Levels {
		selector[level] = domains[0].Values[i]
	}
	p.Updates = append(p.Updates, kueue.PodSetUpdate{Name: ps.Name, NodeSelector: selector})
}

// UpdatesOf are what the admission checks of a Workload have prepared for a pod set.
func UpdatesOf(w *kueue.Workload, podSet kueue.PodSetReference) (updates []kueue.PodSetUpdate) {
	for _, check := range w.Status.AdmissionChecks {
		for _, u := range check.PodSetUpdates {
			if u.Name == podSet {
				updates = append(updates, u)
			}
		}
	}
	return updates
}

// flavorsOf reads the flavors that a pod set was admitted on.
func flavorsOf(ctx context.Context, kube client.Reader, a kueue.PodSetAssignment) ([]*kueue.ResourceFlavor, error) {
	var out []*kueue.ResourceFlavor
	for _, name := range slices.Compact(slices.Sorted(maps.Values(a.Flavors))) {
		flavor := &kueue.ResourceFlavor{}
		if err := kube.Get(ctx, client.ObjectKey{Name: string(name)}, flavor); err != nil {
			if client.IgnoreNotFound(err) == nil {
				return nil, fmt.Errorf("%w: ResourceFlavor %s, on which it was admitted, does not exist any more; create it again", ErrNoFlavor, name)
			}
			return nil, fmt.Errorf("reading ResourceFlavor %s: %w", name, err)
		}
		out = append(out, flavor)
	}
	return out, nil
}

// Original is what Apply replaces in a pod template. It has only the changed labels and annotations, with null for those that did not
// exist.
type Original struct {
	NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
	Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
	Labels       map[string]*string  `json:"labels,omitempty"`
	Annotations  map[string]*string  `json:"annotations,omitempty"`
	// Gated and Topology: the gate was added.
	Gated    bool `json:"gated,omitempty"`
	Topology bool `json:"topology,omitempty"`
}

// Apply changes a pod template as its pods were admitted, and returns what it replaces.
func (p *Placement) Apply(template *corev1.PodTemplateSpec) (Original, error) {
	before := Original{
		NodeSelector: template.Spec.NodeSelector,
		Tolerations:  template.Spec.Tolerations,
		Labels:       map[string]*string{},
		Annotations:  map[string]*string{},
	}
	*template = *workload.TemplateOn(template, p.Flavors)
	if err := conflict(template, p.Updates); err != nil {
		return before, err
	}
	update(template, &kueue.PodSetUpdate{Labels: p.Labels, Annotations: p.Annotations}, &before)
	if p.Topology && p.Plan != "" {
		update(template, &kueue.PodSetUpdate{Annotations: map[string]string{ranks.PlanAnnotation: p.Plan}}, &before)
	}
	if before.Topology = p.Topology && !slices.ContainsFunc(template.Spec.SchedulingGates, IsTopologyGate); before.Topology {
		template.Spec.SchedulingGates = append(template.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.TopologySchedulingGate})
	}
	if !p.Gated {
		for i := range p.Updates {
			update(template, &p.Updates[i], &before)
		}
	} else if before.Gated = !slices.ContainsFunc(template.Spec.SchedulingGates, IsElasticGate); before.Gated {
		template.Spec.SchedulingGates = append(template.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.ElasticJobSchedulingGate})
	}
	return before, nil
}

// Differs reports whether a pod template is not as the template of a Workload in what a start
// by Kueue changes for good.
func Differs(have, was *corev1.PodTemplateSpec) bool {
	return !equality.Semantic.DeepEqual(have.Spec.NodeSelector, was.Spec.NodeSelector) ||
		!equality.Semantic.DeepEqual(have.Spec.Tolerations, was.Spec.Tolerations) ||
		slices.ContainsFunc(have.Spec.SchedulingGates, IsTopologyGate) != slices.ContainsFunc(was.Spec.SchedulingGates, IsTopologyGate)
}

// PutBack makes that of a template what it was.
func PutBack(have, was *corev1.PodTemplateSpec) {
	have.Spec.NodeSelector, have.Spec.Tolerations, have.Spec.SchedulingGates = was.Spec.NodeSelector, was.Spec.Tolerations,
		was.Spec.SchedulingGates
}

// Restore puts back what Apply has replaced.
func (o *Original) Restore(template *corev1.PodTemplateSpec) {
	template.Spec.NodeSelector, template.Spec.Tolerations = o.NodeSelector, o.Tolerations
	template.Labels = putBack(template.Labels, o.Labels)
	template.Annotations = putBack(template.Annotations, o.Annotations)
	if o.Gated {
		template.Spec.SchedulingGates = slices.DeleteFunc(template.Spec.SchedulingGates, IsElasticGate)
	}
	if o.Topology {
		template.Spec.SchedulingGates = slices.DeleteFunc(template.Spec.SchedulingGates, IsTopologyGate)
	}
}

// Send sends a gated pod where admission checks have prepared for it.
func Send(pod *corev1.Pod, updates []kueue.PodSetUpdate) {
	for _, u := range updates {
		pod.Spec.NodeSelector = merge(pod.Spec.NodeSelector, u.NodeSelector)
		pod.Spec.Tolerations = workload.AddTolerations(pod.Spec.Tolerations, u.Tolerations)
		pod.Labels = merge(pod.Labels, u.Labels)
		pod.Annotations = merge(pod.Annotations, u.Annotations)
	}
}

// IsSent reports whether Send has sent a pod so before.
func IsSent(pod *corev1.Pod, updates []kueue.PodSetUpdate) bool {
	has := func(have, want map[string]string) bool {
		for k, v := range want {
			if have[k] != v {
				return false
			}
		}
		return true
	}
	return len(updates) > 0 && !slices.ContainsFunc(updates, func(u kueue.PodSetUpdate) bool {
		return !has(pod.Annotations, u.Annotations) || !has(pod.Labels, u.Labels) || !has(pod.Spec.NodeSelector, u.NodeSelector)
	})
}

// conflict returns an ErrConflict if updates contradict each other or the template,
// which is on its flavors already.
func conflict(template *corev1.PodTemplateSpec, updates []kueue.PodSetUpdate) error {
	have := map[string]map[string]string{
		"annotations":  maps.Clone(template.Annotations),
		"labels":       maps.Clone(template.Labels),
		"nodeSelector": maps.Clone(template.Spec.NodeSelector),
	}
	for _, u := range updates {
		for _, want := range []struct {
			field  string
			values map[string]string
		}{{"annotations", u.Annotations}, {"labels", u.Labels}, {"nodeSelector", u.NodeSelector}} {
			for _, key := range slices.Sorted(maps.Keys(want.values)) {
				if old, ok := have[want.field][key]; ok && old != want.values[key] {
					return fmt.Errorf("%w: conflict for %s: conflict for key=%s, value1=%s, value2=%s; remove the key from the job's pod template",
						ErrConflict, want.field, key, old, want.values[key])
				}
			}
			have[want.field] = merge(have[want.field], want.values)
		}
	}
	return nil
}

// queueLabels say on a pod what it was admitted as. A ClusterQueue may have a name that
// is no valid label value.
func queueLabels(w *kueue.Workload, podSet kueue.PodSetReference) map[string]string {
	out := map[string]string{workload.PodSetLabel: string(podSet)}
	for key, value := range map[string]string{workload.LocalQueueLabel: string(w.Spec.QueueName),
		workload.ClusterQueueLabel: string(w.Status.Admission.ClusterQueue)} {
		if len(validation.IsValidLabelValue(value)) == 0 {
			out[key] = value
		}
	}
	return out
}

// update changes a template and keeps in before what it replaces.
func update(template *corev1.PodTemplateSpec, u *kueue.PodSetUpdate, before *Original) {
	template.Spec.NodeSelector = merge(template.Spec.NodeSelector, u.NodeSelector)
	template.Spec.Tolerations = workload.AddTolerations(template.Spec.Tolerations, u.Tolerations)
	template.Labels = overwrite(template.Labels, u.Labels, before.Labels)
	template.Annotations = overwrite(template.Annotations, u.Annotations, before.Annotations)
}

// overwrite copies more into values and keeps in before the values that it replaces,
// unless they are replacements themselves.
func overwrite(values, more map[string]string, before map[string]*string) map[string]string {
	values = maps.Clone(values)
	for k, v := range more {
		if values == nil {
			values = map[string]string{}
		}
		if _, kept := before[k]; !kept {
			before[k] = nil
			if old, ok := values[k]; ok {
				before[k] = &old
			}
		}
		values[k] = v
	}
	return values
}

// putBack undoes overwrite.
func putBack(values map[string]string, before map[string]*string) map[string]string {
	for k, v := range before {
		switch {
		case v == nil:
			delete(values, k)
		case values == nil:
			values = map[string]string{k: *v}
		default:
			values[k] = *v
		}
	}
	return values
}

func merge(values, more map[string]string) map[string]string {
	if values == nil {
		return maps.Clone(more)
	}
	maps.Copy(values, more)
	return values
}

// IsTopologyGate reports whether a gate is that of pods that are to be sent to a domain.
func IsTopologyGate(g corev1.PodSchedulingGate) bool { return g.Name == kueue.TopologySchedulingGate }

// IsElasticGate reports whether a gate is that of elastic jobs.
func IsElasticGate(g corev1.PodSchedulingGate) bool { return g.Name == kueue.ElasticJobSchedulingGate }

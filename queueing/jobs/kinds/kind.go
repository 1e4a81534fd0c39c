package kinds

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/children"
	"github.com/muster-dev/muster/queueing/jobs/order"
	"github.com/muster-dev/muster/queueing/jobs/templates"
)

// Kind is the kind of jobs of a Stanza.
type Kind struct {
	Stanza

	suspend pointer
	podSets []podSet
	// finder returns the pod sets of an object, and why they cannot be found.
	finder

	managedBy pointer
	ttl       pointer
	forwards  []pointer
	refusals  []refusal
	defaults  []defaulted
	// immutable are fields beside the pod templates.
	immutable []pointer

	succeeded, failed, stopped expression[bool]
	message, priorityClass     expression[string]
	// scaled is the name of the object that is scaled in place of this one.
	scaled    expression[string]
	podLabels map[string]expression[string]
}

var (
	_ jobs.Counted     = (*Kind)(nil)
	_ jobs.Elastic     = (*Kind)(nil)
	_ jobs.Ordered     = (*Kind)(nil)
	_ jobs.Parent      = (*Kind)(nil)
	_ jobs.Prioritized = (*Kind)(nil)
	_ jobs.Resolver    = (*Kind)(nil)
)

type podSet struct {
	path, each, template pointer
	is                   expression[bool]
	name                 expression[string]
	count, final         expression[int64]
	ready, complete      expression[[]string]
	absent               expression[map[string]any]
	hidden               []hidden
	indexLabel           string
	subGroupLabel        string
	subGroups            expression[int64]
}

type hidden struct {
	is                  expression[bool]
	init, onlyRequested bool
	container           corev1.Container
}

// defaulted is a field with its value in CEL.
type defaulted struct {
	pointer
	value string
}

type refusal struct {
	is      expression[bool]
	message string
}

// found is a pod set of an object.
type found struct {
	name string
	// count is how many pods it has, and final how many of them will not run again.
	count, final int32
	// after is nil if it is not determined.
	after *order.After
	// raw is its template, and added true where the object has none and a start adds it.
	raw    map[string]any
	added  bool
	hidden []hidden
	// numbered says by which labels the pods are numbered; nil if by none.
	numbered *kueue.PodSetTopologyRequest
	scope    scope
	// at is where it is, for messages.
	at string
	place
}

// place is where an object has what a start changes of a pod template.
type place interface {
	// put writes a template as its pods were admitted.
	put(object map[string]any, template *corev1.PodTemplateSpec) error
	// undo removes what was put. If before is nil, Kueue may have put it, and was is the template that its Workload was created from.
	undo(object map[string]any, before *original, was *corev1.PodTemplateSpec) error
}

// maxCount bounds the count of a pod set, so that sums do not overflow.
const maxCount = 1 << 24

// declared returns the pod sets of an object where the stanza says, and why they cannot be
// found.
func (k *Kind) declared(object map[string]any) (out []found, refusals []string) {
	whole := scopeOf(object)
	for i := range k.podSets {
		p := &k.podSets[i]
		var all []element
		if p.each != nil {
			all = elements(object, p.each)
		} else if value, ok := p.path.get(object); ok {
			if o, ok := value.(map[string]any); ok {
				all = []element{{p.path, "", o}}
			}
		}
		for _, e := range all {
			s := whole
			s.self, s.key = e.value, e.key
			if is, err := p.is.of(s, true); err == nil && !is {
				continue
			}
			f, err := p.read(e, s)
			if err != nil {
				refusals = append(refusals, fmt.Sprintf("the pods at %s cannot be read: %v; correct the %s", at(e.pointer), err, k.Kind))
				continue
			}
			out = append(out, f)
		}
	}
	return out, refusals
}

// at names a place of an object in messages.
func at(p pointer) string { return cmp.Or(strings.Join(p, "."), "the object") }

// read returns the pod set of one element.
func (p *podSet) read(e element, s scope) (f found, err error) {
	whole := slices.Concat(e.pointer, p.template)
	f = found{scope: s, hidden: p.hidden, at: at(whole), place: podTemplate(whole)}
	if f.name, err = p.name.of(s, ""); err != nil {
		return f, err
	}
	f.name = strings.ToLower(f.name)
	var subGroups int32
	for _, n := range []struct {
		to   *int32
		from expression[int64]
		none int64
	}{{&f.count, p.count, 1}, {&f.final, p.final, 0}, {&subGroups, p.subGroups, 0}} {
		value, err := n.from.of(s, n.none)
		if err != nil {
			return f, err
		}
		if value < 0 || value > maxCount {
			return f, fmt.Errorf("%s is %d, which is not from 0 to %d", n.from.text, value, maxCount)
		}
		*n.to = int32(value)
	}
	f.final = min(f.final, f.count)
	if p.indexLabel != "" {
		f.numbered = &kueue.PodSetTopologyRequest{PodIndexLabel: new(p.indexLabel)}
	}
	if p.subGroupLabel != "" {
		f.numbered.SubGroupIndexLabel, f.numbered.SubGroupCount = new(p.subGroupLabel), new(subGroups)
	}
	f.after = &order.After{}
	for _, names := range []struct {
		to   *[]string
		from expression[[]string]
	}{{&f.after.Ready, p.ready}, {&f.after.Complete, p.complete}} {
		all, err := names.from.of(s, nil)
		if err != nil {
			return f, err
		}
		for _, name := range all {
			*names.to = append(*names.to, strings.ToLower(name))
		}
	}
	if raw, ok := p.template.get(e.value); ok {
		f.raw, ok = raw.(map[string]any)
		if !ok {
			return f, fmt.Errorf("%s is no pod template", at(p.template))
		}
		return f, nil
	}
	if p.absent.program == nil {
		return f, fmt.Errorf("there is no pod template at %s", at(p.template))
	}
	f.raw, err = p.absent.of(s, nil)
	f.added, f.place = true, absentTemplate{podTemplate(whole), f.raw}
	return f, err
}

// GroupVersionKind implements jobs.Kind.
func (k *Kind) GroupVersionKind() schema.GroupVersionKind { return k.Stanza.GroupVersionKind() }

// StartPolicy implements jobs.Kind.
func (k *Kind) StartPolicy() string { return startPolicy }

// PodSets implements jobs.Kind.
func (k *Kind) PodSets(o client.Object) (podSets []kueue.PodSet, refusals []string) {
	object := o.(*unstructured.Unstructured).Object
	whole := scopeOf(object)
	for _, r := range k.refusals {
		is, err := r.is.of(whole, false)
		switch {
		case err != nil:
			refusals = append(refusals, fmt.Sprintf("the %s cannot be read: %v; correct it", k.Kind, err))
		case is:
			refusals = append(refusals, r.message)
		}
	}
	if k.managedBy != nil {
		refusals = append(refusals, jobs.ManagedByOther(at(k.managedBy), k.ManagedBy(o), k.Stanza.ManagedBy.Own)...)
	}
	all, wrong := k.find(object)
	refusals = append(refusals, wrong...)
	for _, f := range all {
		template, err := templateOf(f.raw)
		if err != nil {
			refusals = append(refusals, fmt.Sprintf("the pod template at %s cannot be read: %v; correct it", f.at, err))
			continue
		}
		addHidden(template, f.hidden, f.scope)
		if len(template.Spec.Containers) == 0 {
			refusals = append(refusals, fmt.Sprintf("the pod template at %s has no containers, and the API server refuses such pods; add one", f.at))
			continue
		}
		podSets = append(podSets, kueue.PodSet{
			Name: kueue.PodSetReference(f.name), Count: f.count, Template: *template, TopologyRequest: f.numbered.DeepCopy(),
		})
	}
	if len(podSets) == 0 && len(refusals) == 0 {
		refusals = append(refusals, fmt.Sprintf("the %s has no pods; give it pod templates", k.Kind))
	}
	return podSets, refusals
}

// addHidden adds the containers to a template that the operator adds to its pods.
func addHidden(template *corev1.PodTemplateSpec, all []hidden, s scope) {
	requested := requestedBy(&template.Spec)
	for i := range all {
		if is, err := all[i].is.of(s, true); err != nil || !is {
			continue
		}
		list := &template.Spec.Containers
		if all[i].init {
			list = &template.Spec.InitContainers
		}
		if !slices.ContainsFunc(*list, func(c corev1.Container) bool { return c.Name == all[i].container.Name }) {
			added := all[i].container.DeepCopy()
			maps.DeleteFunc(added.Resources.Requests, func(name corev1.ResourceName, _ resource.Quantity) bool {
				return all[i].onlyRequested && !requested[name]
			})
			*list = append(*list, *added)
		}
	}
}

// requestedBy returns the resources that some container of a pod requests.
func requestedBy(spec *corev1.PodSpec) map[corev1.ResourceName]bool {
	out := map[corev1.ResourceName]bool{}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			for _, of := range []corev1.ResourceList{list[i].Resources.Requests, list[i].Resources.Limits} {
				for name := range of {
					out[name] = true
				}
			}
		}
	}
	return out
}

// Counts implements jobs.Counted. Of pods that are over the object says only which are so
// for good.
func (k *Kind) Counts(o client.Object) (out []jobs.Counts) {
	all, _ := k.find(o.(*unstructured.Unstructured).Object)
	for _, f := range all {
		out = append(out, jobs.Counts{Requested: f.count, Needed: f.count - f.final})
	}
	return out
}

// CanScale implements jobs.Elastic.
func (k *Kind) CanScale() bool { return k.Elastic }

// MayHaveGated implements jobs.Elastic: an object has no status of that.
func (k *Kind) MayHaveGated(client.Object) bool { return true }

// Compare implements jobs.Elastic. Operators delete arbitrary pods of an object that shrinks, so the pods that have waited longest go
// first.
func (k *Kind) Compare(a, b *corev1.Pod) int {
	return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
}

// Order implements jobs.Ordered.
func (k *Kind) Order(o client.Object) (out []*order.After) {
	all, _ := k.find(o.(*unstructured.Unstructured).Object)
	for _, f := range all {
		out = append(out, f.after)
	}
	return out
}

// PriorityClass implements jobs.Prioritized.
func (k *Kind) PriorityClass(o client.Object) string {
	class, _ := k.priorityClass.of(scopeOf(o.(*unstructured.Unstructured).Object), "")
	return class
}

// IsSuspended implements jobs.Kind.
func (k *Kind) IsSuspended(o client.Object) bool {
	value, _ := k.suspend.get(o.(*unstructured.Unstructured).Object)
	return equality.Semantic.DeepEqual(value, k.Stanza.Suspend.Held)
}

// Outcome implements jobs.Kind.
func (k *Kind) Outcome(o client.Object) (jobs.Outcome, string) {
	s := scopeOf(o.(*unstructured.Unstructured).Object)
	outcome, text := jobs.Unfinished, ""
	switch {
	case k.succeeded.is(s):
		outcome, text = jobs.Succeeded, k.Kind+" finished successfully"
	case k.failed.is(s):
		outcome, text = jobs.Failed, k.Kind+" failed"
	default:
		return outcome, ""
	}
	message, _ := k.message.of(s, "")
	return outcome, cmp.Or(message, text)
}

// IsStopped implements jobs.Kind.
func (k *Kind) IsStopped(o client.Object) bool {
	return k.stopped.program == nil || k.stopped.is(scopeOf(o.(*unstructured.Unstructured).Object))
}

// PodLabels implements jobs.Kind.
func (k *Kind) PodLabels(o client.Object) []client.MatchingLabels {
	out := []client.MatchingLabels{{jobs.JobUIDLabel: string(o.GetUID())}}
	own, s := client.MatchingLabels{}, scopeOf(o.(*unstructured.Unstructured).Object)
	for label, value := range k.podLabels {
		v, err := value.of(s, "")
		if err != nil || v == "" {
			return out
		}
		own[label] = v
	}
	if len(own) > 0 {
		out = append(out, own)
	}
	return out
}

// Children implements jobs.Parent.
func (k *Kind) Children(o client.Object) (out []children.Kind) {
	for i := range k.Stale {
		out = append(out, children.Kind{
			Kind: k.Stale[i].GroupVersionKind(), Labels: client.MatchingLabels{k.Stale[i].Label: o.GetName()},
		})
	}
	return out
}

// record is what a start changes of the templates of an object, by pod set.
type record map[string]*original

// original is what a start changes of one template.
type original struct {
	templates.Original
	// Added: there was none.
	Added bool `json:"added,omitempty"`
	// Bare: it had no metadata.
	Bare bool `json:"bare,omitempty"`
}

// Suspend implements jobs.Kind.
func (k *Kind) Suspend(o client.Object) {
	k.suspend.set(o.(*unstructured.Unstructured).Object, k.Stanza.Suspend.Held)
}

// Resume implements jobs.Kind.
func (k *Kind) Resume(o client.Object) {
	k.suspend.set(o.(*unstructured.Unstructured).Object, k.Stanza.Suspend.Running)
}

// CanDelegate implements jobs.Delegable.
func (k *Kind) CanDelegate() bool { return k.managedBy != nil }

// ManagedBy implements jobs.Delegable.
func (k *Kind) ManagedBy(o client.Object) string {
	if k.managedBy == nil {
		return ""
	}
	by, _ := k.managedBy.get(o.(*unstructured.Unstructured).Object)
	name, _ := by.(string)
	return name
}

// Delegate implements jobs.Delegable.
func (k *Kind) Delegate(o client.Object) {
	if k.managedBy != nil {
		k.managedBy.set(o.(*unstructured.Unstructured).Object, nil)
	}
	if k.ttl != nil {
		k.ttl.set(o.(*unstructured.Unstructured).Object, nil)
	}
}

// Forwards implements the dispatcher's Forwarder.
func (k *Kind) Forwards() bool { return len(k.forwards) > 0 }

// Forward implements the dispatcher's Forwarder.
func (k *Kind) Forward(here, there *unstructured.Unstructured) (changed bool) {
	for _, p := range k.forwards {
		want, _ := p.get(here.Object)
		if have, _ := p.get(there.Object); !equality.Semantic.DeepEqual(have, want) {
			p.set(there.Object, runtime.DeepCopyJSONValue(want))
			changed = true
		}
	}
	return changed
}

// Start implements jobs.Kind.
func (k *Kind) Start(o client.Object, placements []templates.Placement) (any, error) {
	object := o.(*unstructured.Unstructured).Object
	all, refusals := k.find(object)
	if len(all) != len(placements) || len(refusals) > 0 {
		return nil, fmt.Errorf("%s %s has %d pod sets, and its Workload %d", k.Kind, o.GetName(), len(all), len(placements))
	}
	before := record{}
	for i, f := range all {
		template, err := templateOf(f.raw)
		if err != nil {
			return nil, err
		}
		was, err := placements[i].Apply(template)
		if err != nil {
			return nil, err
		}
		_, dressed := f.raw["metadata"]
		if err := f.put(object, template); err != nil {
			return nil, err
		}
		before[f.name] = &original{was, f.added, !dressed}
	}
	k.Resume(o)
	return before, nil
}

// Restore implements jobs.Kind.
func (k *Kind) Restore(o client.Object, text []byte, podSets []kueue.PodSet) (changed bool, err error) {
	object := o.(*unstructured.Unstructured).Object
	before, whole := record{}, runtime.DeepCopyJSON(object)
	if len(text) > 0 {
		if err := json.Unmarshal(text, &before); err != nil {
			return false, err
		}
	}
	all, _ := k.find(object)
	for _, f := range all {
		var was *corev1.PodTemplateSpec
		if i := slices.IndexFunc(podSets, func(s kueue.PodSet) bool { return string(s.Name) == f.name }); i >= 0 {
			was = &podSets[i].Template
		}
		replaced := before[f.name]
		if replaced == nil && len(text) > 0 {
			continue // added after the start
		}
		if err := f.undo(object, replaced, was); err != nil {
			return false, err
		}
	}
	return !equality.Semantic.DeepEqual(whole, object), nil
}

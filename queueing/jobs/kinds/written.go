package kinds

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	// every stands in a pointer for each element of a list or map.
	every = "*"
	// started stands in a pointer for what a start and its undo write in a pod template.
	started = "<started>"
)

// writtenByJobs are the fields of a batch/v1 Job that Muster writes. A Job may start with fewer pods.
var writtenByJobs = []pointer{{"spec", "template", started}, usual.pointer, {"spec", "parallelism"}, {"spec", "completions"}}

// written returns the fields of an object of the kind that Muster writes.
func (k *Kind) written() []pointer {
	out := append(slices.Clone(k.places), k.suspend)
	for i := range k.podSets {
		p := &k.podSets[i]
		holder := p.path
		if p.each != nil {
			holder = append(slices.Clone(p.each), every)
		}
		out = append(out, slices.Concat(holder, p.template, pointer{started}))
	}
	return out
}

// fields is a tree of the fields that may differ; one without fields of its own may differ in all.
type fields map[string]fields

// tree returns the tree of some pointers.
func tree(pointers []pointer) fields {
	out := fields{}
	for _, p := range pointers {
		at := out
		for _, part := range p {
			if at[part] == nil {
				at[part] = fields{}
			}
			at = at[part]
		}
	}
	return out
}

// Foreign reports in CEL whether an update changes fields that Muster does not write.
func (w writer) Foreign() string {
	pairs := func(written []pointer, absent map[string]string) string {
		all := append(slices.Clone(written), pointer{"metadata"}, pointer{"status"})
		return strings.Join(tree(all).pairs("dyn(object)", "dyn(oldObject)", "", absent), " + ")
	}
	of := w.byKind(func(k *Kind) string {
		absent := map[string]string{}
		for i := range k.podSets {
			if p := &k.podSets[i]; p.absent.text != "" {
				absent["/"+strings.Join(slices.Concat(p.path, p.template), "/")] = p.absent.text
			}
		}
		return pairs(k.written(), absent)
	}, pairs(writtenByJobs, nil))
	also := w.byKind(func(k *Kind) string { return cmp.Or(k.alsoSame, "true") }, "true")
	same := func(p string) string {
		return strings.ReplaceAll("P[0].all(k, k in P[2] || P[0][k] == P[1][?k].orValue(null)) && P[1].all(k, k in P[2] || k in P[0])", "P", p)
	}
	return fmt.Sprintf(`!%s.all(p, p[2] != %s ? %s :
        [[p[0], p[1], dyn(['metadata', 'spec'])], [p[0].?metadata.orValue({}), p[1].?metadata.orValue({}), dyn(['labels', 'annotations'])],
        [p[0].?spec.orValue({}), p[1].?spec.orValue({}), dyn(['nodeSelector', 'tolerations', 'schedulingGates'])]].all(q, %s)) ||
        !%s`, w.inParentheses(of), list([]string{started}), same("p"), same("q"), w.inParentheses(also))
}

// pairs returns lists in CEL of what two objects are to be compared by: an object, what it was, and the names of the fields that are not
// compared there, of a pod template that of what a start writes. Where a start adds a pod template, an object without one is compared as if
// it had it: absent has those templates, by the path of the field.
func (t fields) pairs(object, old, path string, absent map[string]string) (out []string) {
	names := slices.Sorted(maps.Keys(t))
	out = append(out, fmt.Sprintf("[[dyn(%s), dyn(%s), dyn(%s)]]", object, old, list(names)))
	for _, name := range names {
		inner, at := t[name], path+"/"+name
		if len(inner) == 0 {
			continue
		}
		of := func(object, otherwise string) string {
			return fmt.Sprintf("%s.?%s.orValue(%s)", object, name, otherwise)
		}
		switch elements, ok := inner[every]; {
		case ok:
			all, were := of(object, "[]"), of(old, "[]")
			out = append(out, fmt.Sprintf("[[dyn({'size': %s.size()}), dyn({'size': %s.size()}), dyn([])]]", all, were))
			for _, each := range elements.pairs("v", were+"[?i].orValue({})", at+"/"+every, absent) {
				out = append(out, fmt.Sprintf("%s.transformList(i, v, %s[0])", all, each))
			}
		case absent[at] != "":
			template := fmt.Sprintf("[dyn(oldObject)].map(job, %s)[0]", absent[at])
			out = append(out, inner.pairs(of(object, template), of(old, template), at, absent)...)
		default:
			out = append(out, inner.pairs(of(object, "{}"), of(old, "{}"), at, absent)...)
		}
	}
	return out
}

// sameRuntimePatches is a CEL expression that reports whether a TrainJob has the same patches of its runtime except for that of the
// queues, and whether each template in that patch has only what a start writes, or is unchanged.
var sameRuntimePatches = func() string {
	of := func(object string) string { return fmt.Sprintf("dyn(%s).spec.?runtimePatches.orValue([])", object) }
	others := func(object string) string {
		return fmt.Sprintf("%s.filter(e, e.manager != '%s')", of(object), patchManager)
	}
	replicated := func(object string) string {
		return fmt.Sprintf("%s.filter(e, e.manager == '%s').map(e, %s.orValue([]))", of(object), patchManager, replicatedJobs.optional("e"))
	}
	only := func(object string, keys ...string) string {
		return fmt.Sprintf("%s.all(k, k in %s)", object, list(keys))
	}
	rest := fmt.Sprintf("%s.all(e, e.manager != '%s' || %s)", of("object"), patchManager, strings.Join([]string{
		only("e", "manager", "time", "trainingRuntimeSpec"), only("e.?trainingRuntimeSpec.orValue({})", "template"),
		only("e.?trainingRuntimeSpec.?template.orValue({})", "spec"), only("e.?trainingRuntimeSpec.?template.?spec.orValue({})", "replicatedJobs"),
	}, " && "))
	shape := strings.Join([]string{
		only("j", "name", "template"), only("j.?template.orValue({})", "spec"), only("j.?template.?spec.orValue({})", "template"),
		only("j.?template.?spec.?template.orValue({})", "metadata", "spec"),
		only("j.?template.?spec.?template.?metadata.orValue({})", "labels", "annotations"),
		only("j.?template.?spec.?template.?spec.orValue({})", "nodeSelector", "tolerations", "schedulingGates"),
	}, " && ")
	return fmt.Sprintf("%s == %s && (%s) && %s.all(list, list.all(j, (%s) || %s.exists(l, j in l)))", others("object"), others("oldObject"),
		rest, replicated("object"), shape, replicated("oldObject"))
}()

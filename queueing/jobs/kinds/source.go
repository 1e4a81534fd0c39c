package kinds

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/queueing/jobs"
)

// resolved is where an object that was read has the source of its pods. No API has such a
// field, and it is never written.
const resolved = "muster.dev/resolved"

// Source implements jobs.Resolver.
func (k *Kind) Source() (out schema.GroupVersionKind) {
	switch {
	case k.Stanza.Source != nil:
		out = kindNamed(*k.Stanza.Source).GroupVersionKind()
	case k.Scaled != nil:
		out = kindNamed(k.Scaled.Kind).GroupVersionKind()
	}
	return out
}

// SourceName implements jobs.Resolver. What is scaled is there while an elastic object runs.
func (k *Kind) SourceName(job client.Object) (name string) {
	switch {
	case k.Stanza.Source != nil:
		name = job.GetName()
	case jobs.IsElastic(job) && !k.IsSuspended(job):
		name, _ = k.scaled.of(scopeOf(job.(*unstructured.Unstructured).Object), "")
	}
	return name
}

// Resolve implements jobs.Resolver. While an object has no start of its own, a source with the
// marks of one is from before its operator has seen the end of the last.
func (k *Kind) Resolve(job, source client.Object) (current bool) {
	object := job.(*unstructured.Unstructured).Object
	delete(object, resolved)
	if source == nil {
		return true
	}
	object[resolved] = source.(*unstructured.Unstructured).Object
	if k.Scaled != nil {
		annotations := job.GetAnnotations()
		annotations[jobs.ScaledGenerationAnnotation] = strconv.FormatInt(source.GetGeneration(), 10)
		job.SetAnnotations(annotations)
	}
	if k.Stanza.Source == nil || jobs.WasStarted(job) {
		return true
	}
	all, _ := kindNamed(*k.Stanza.Source).find(source.(*unstructured.Unstructured).Object)
	return !slices.ContainsFunc(all, func(f found) bool {
		_, started := pointer{"metadata", "labels", jobs.JobUIDLabel}.get(f.raw)
		return started
	})
}

// rescaled finds the pod sets of an object whose numbers of pods change in another, once that is there.
func (k *Kind) rescaled(object map[string]any) (out []found, refusals []string) {
	out, refusals = k.declared(object)
	source, ok := object[resolved].(map[string]any)
	if !ok {
		return out, refusals
	}
	all, _ := kindNamed(k.Scaled.Kind).find(source)
	for i := range out {
		if j := slices.IndexFunc(all, func(f found) bool { return f.name == out[i].name }); j >= 0 {
			out[i].count = all[j].count
		}
	}
	return out, refusals
}

// kindNamed returns the built-in kind of a group and name.
func kindNamed(id string) *Kind {
	all := BuiltIn()
	return all[slices.IndexFunc(all, func(k *Kind) bool { return k.id() == id })]
}

package kinds

import (
	"slices"

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
	if k.Stanza.Source != nil {
		out = kindNamed(*k.Stanza.Source).GroupVersionKind()
	}
	return out
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
	if jobs.WasStarted(job) {
		return true
	}
	all, _ := kindNamed(*k.Stanza.Source).find(source.(*unstructured.Unstructured).Object)
	return !slices.ContainsFunc(all, func(f found) bool {
		_, started := pointer{"metadata", "labels", jobs.JobUIDLabel}.get(f.raw)
		return started
	})
}

// kindNamed returns the built-in kind of a group and name.
func kindNamed(id string) *Kind {
	all := BuiltIn()
	return all[slices.IndexFunc(all, func(k *Kind) bool { return k.id() == id })]
}

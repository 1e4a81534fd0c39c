package loop

import (
	"reflect"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// known has the newest version of every object, from an informer or from the response to a write.
type known struct {
	objects map[types.UID]client.Object
	named   map[name]client.Object
}

// name is that of an object among all kinds.
type name struct {
	kind reflect.Type
	key  types.NamespacedName
}

func nameOf(o client.Object) name { return name{reflect.TypeOf(o), client.ObjectKeyFromObject(o)} }

func newKnown() known {
	return known{objects: map[types.UID]client.Object{}, named: map[name]client.Object{}}
}

// set stores a version, and reports whether it is newer than the stored one.
func (k *known) set(object client.Object) bool {
	have := k.objects[object.GetUID()]
	if have != nil && !newer(object, have) {
		return false
	}
	k.objects[object.GetUID()] = object
	if _, ok := object.(*kueue.Workload); !ok {
		k.named[nameOf(object)] = object
	}
	return true
}

// forgetVersion forgets the resourceVersion of an object, because the API server was restored to an older one.
func (k *known) forgetVersion(object client.Object) {
	if have := k.objects[object.GetUID()]; have != nil {
		have = have.DeepCopyObject().(client.Object)
		have.SetResourceVersion("0")
		k.objects[object.GetUID()] = have
	}
}

// newer reports whether a came after b. A version that is not a number cannot be compared; then
// what came last is right.
func newer(a, b client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err != nil || order > 0
}

func (k *known) remove(object client.Object) {
	delete(k.objects, object.GetUID())
	if n := nameOf(object); k.named[n] != nil && k.named[n].GetUID() == object.GetUID() {
		delete(k.named, n)
	}
}

// workload is the newest version of a Workload; nil if it is gone.
func (k *known) workload(uid types.UID) *kueue.Workload {
	w, _ := k.objects[uid].(*kueue.Workload)
	return w
}

// some reports whether a condition holds for some object.
func (k *known) some(condition func(client.Object) bool) bool {
	for _, o := range k.objects {
		if condition(o) {
			return true
		}
	}
	return false
}

// nameIn is the name of an object of a kind.
func nameIn[T client.Object](namespace, key string) name {
	return name{reflect.TypeFor[T](), types.NamespacedName{Namespace: namespace, Name: key}}
}

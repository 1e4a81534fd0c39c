package model

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// index finds things by what they have in common.
type index[K, V comparable] map[K]map[V]bool

func (i index[K, V]) add(key K, value V) {
	if i[key] == nil {
		i[key] = map[V]bool{}
	}
	i[key][value] = true
}

func (i index[K, V]) remove(key K, value V) {
	if delete(i[key], value); len(i[key]) == 0 {
		delete(i, key)
	}
}

// set has the value in the index under the key, or not.
func (i index[K, V]) set(key K, value V, in bool) {
	if in {
		i.add(key, value)
	} else {
		i.remove(key, value)
	}
}

// newer reports whether the version of an object is at least as new as another's.
func newer(obj, than metav1.Object) bool {
	c, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), than.GetResourceVersion())
	return err != nil || c >= 0
}

// put stores obj under key unless the model has a newer one.
func put[K comparable, T metav1.Object](into map[K]T, key K, obj T) bool {
	if old, ok := into[key]; ok && !newer(obj, old) {
		return false
	}
	into[key] = obj
	return true
}

func removed[K comparable, T any](from map[K]T, key K) effect {
	_, known := from[key]
	delete(from, key)
	return effectOf(known)
}

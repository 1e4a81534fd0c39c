package model

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/provisioning/model/objects"
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

func removed[K comparable, T any](from map[K]T, key K) effect {
	_, known := from[key]
	delete(from, key)
	return effectOf(known)
}

// keep stores the object under its key, or removes a deleted one.
func keep[K comparable, T metav1.Object](in map[K]T, key K, o T, deleted bool) effect {
	if deleted {
		return removed(in, key)
	}
	return effectOf(objects.Put(in, key, o))
}

package cache

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// withDefaults returns the list with the missing defaults added.
func withDefaults(list, defaults corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	maps.Copy(out, defaults)
	maps.Copy(out, list)
	return out
}

// PodRules are the combined LimitRanges of a namespace for each container and each pod: the strictest bounds, and, of
// the defaults, those of the first LimitRange by name. The API server takes any of them.
type PodRules struct {
	Container, Pod corev1.LimitRangeItem
}

func rulesOf(ranges map[string]*corev1.LimitRange) (out PodRules) {
	for _, name := range slices.Sorted(maps.Keys(ranges)) {
		for _, item := range ranges[name].Spec.Limits {
			switch item.Type {
			case corev1.LimitTypeContainer:
				out.Container = stricter(out.Container, item)
			case corev1.LimitTypePod:
				out.Pod = stricter(out.Pod, item)
			}
		}
	}
	return out
}

func stricter(a, b corev1.LimitRangeItem) corev1.LimitRangeItem {
	return corev1.LimitRangeItem{
		Max: pick(a.Max, b.Max, -1), Min: pick(a.Min, b.Min, +1), MaxLimitRequestRatio: pick(a.MaxLimitRequestRatio, b.MaxLimitRequestRatio, -1),
		Default: withDefaults(a.Default, b.Default), DefaultRequest: withDefaults(a.DefaultRequest, b.DefaultRequest),
	}
}

// pick returns the larger amounts of two lists if sign is 1, the smaller if it is -1.
func pick(a, b corev1.ResourceList, sign int) corev1.ResourceList {
	out := withDefaults(a, b)
	for name, v := range b {
		if have := out[name]; v.Cmp(have) == sign {
			out[name] = v
		}
	}
	return out
}

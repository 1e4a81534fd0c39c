package cache

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// withDefaults is a list with what is missing in it.
func withDefaults(list, defaults corev1.ResourceList) corev1.ResourceList {
	out := make(corev1.ResourceList, len(list)+len(defaults))
	maps.Copy(out, defaults)
	maps.Copy(out, list)
	return out
}

// PodRules are what the LimitRanges of a namespace say together of each container and
// of each pod: the strictest bounds, and of the defaults the first by the name of the
// LimitRange, while the API server takes any.
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

// pick has the larger amounts of two lists with the sign 1, the smaller with -1.
func pick(a, b corev1.ResourceList, sign int) corev1.ResourceList {
	out := withDefaults(a, b)
	for name, v := range b {
		if have := out[name]; v.Cmp(have) == sign {
			out[name] = v
		}
	}
	return out
}

// Package defaults is what the API server will add to the pods of jobs.
package defaults

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FillIn adds to the job's pods what the API server will add and what counts for their usage: default requests of LimitRanges and the
// overhead of the RuntimeClass. It returns why the job cannot be queued if these cannot be read.
func FillIn(ctx context.Context, kube client.Reader, namespace string, spec *corev1.PodSpec) (why string, err error) {
	if err := defaultRequests(ctx, kube, namespace, spec); err != nil {
		return "", err
	}
	if spec.RuntimeClassName == nil {
		return "", nil
	}
	class := &nodev1.RuntimeClass{}
	if err := kube.Get(ctx, client.ObjectKey{Name: *spec.RuntimeClassName}, class); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Sprintf("RuntimeClass %q of the job's pods doesn't exist; create it or change runtimeClassName", *spec.RuntimeClassName), nil
		}
		return "", fmt.Errorf("reading RuntimeClass %s: %w", *spec.RuntimeClassName, err)
	}
	if class.Overhead != nil && spec.Overhead == nil {
		spec.Overhead = class.Overhead.PodFixed
	}
	if class.Scheduling == nil {
		return "", nil
	}
	// The template is compared with the job's own, so its node selector is not added here.
	for _, k := range slices.Sorted(maps.Keys(class.Scheduling.NodeSelector)) {
		if v := class.Scheduling.NodeSelector[k]; spec.NodeSelector[k] != "" && spec.NodeSelector[k] != v {
			return fmt.Sprintf("RuntimeClass %q selects nodes with %s=%s, and the job's pods those with %s=%s; change one of them, since the "+
				"API server refuses such pods", class.Name, k, v, k, spec.NodeSelector[k]), nil
		}
	}
	return "", nil
}

// defaultRequests follows the order of the API server: a limit is the request
// where there is none, and only what has neither gets a LimitRange's default.
func defaultRequests(ctx context.Context, kube client.Reader, namespace string, spec *corev1.PodSpec) error {
	var ranges corev1.LimitRangeList
	if err := kube.List(ctx, &ranges, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the LimitRanges of namespace %s: %w", namespace, err)
	}
	slices.SortFunc(ranges.Items, func(a, b corev1.LimitRange) int { return cmp.Compare(a.Name, b.Name) })
	for i := range ranges.Items {
		for _, limit := range ranges.Items[i].Spec.Limits {
			if limit.Type != corev1.LimitTypeContainer {
				continue
			}
			for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
				for j := range containers {
					addRequests(&containers[j].Resources, limit.DefaultRequest)
				}
			}
		}
	}
	return nil
}

func addRequests(r *corev1.ResourceRequirements, defaults corev1.ResourceList) {
	for name, v := range defaults {
		_, requested := r.Requests[name]
		if _, limited := r.Limits[name]; requested || limited {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[name] = v
	}
}

package fit

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Running is what a pod on a node means to other pods, its amounts apart. It is
// read-only and shares maps with the pod that it was read from.
type Running struct {
	Namespace string
	Labels    map[string]string
	// Terminating pods still keep others away and attract them, but spreading does
	// not count them.
	Terminating bool
	Ports       Ports
	// Claims are the names of the PersistentVolumeClaims that it uses.
	Claims []string

	repels []podTerm
}

// ReadRunning reads an existing pod.
func ReadRunning(pod *corev1.Pod) *Running {
	r := &Running{
		Namespace:   pod.Namespace,
		Labels:      pod.Labels,
		Terminating: pod.DeletionTimestamp != nil,
		Ports:       hostPorts(&pod.Spec),
		Claims:      claimNames(&pod.Spec),
	}
	for i := range antiAffinity(&pod.Spec) {
		// The scheduler, too, passes over terms that cannot be read; the API server
		// lets none in.
		if t, err := newPodTerm(pod.Namespace, &antiAffinity(&pod.Spec)[i]); err == nil {
			r.repels = append(r.repels, t)
		}
	}
	return r
}

// AntiAffinity are the terms of the pod's required anti-affinity: the topology in whose domains it keeps others away, and which.
// The pods of a gang that are not Between change nothing of that, so such a gang needs no InterPodState.
func (r *Running) AntiAffinity() iter.Seq2[string, func(*Pod) bool] {
	return func(yield func(string, func(*Pod) bool) bool) {
		for i := range r.repels {
			t := &r.repels[i]
			if !yield(t.topology, func(p *Pod) bool { return t.matches(&p.Running) }) {
				return
			}
		}
	}
}

// Repels reports whether the pod's required anti-affinity may be against others: those of its own namespace, or of any, which is
// empty.
func (r *Running) Repels() (namespace string, repels bool) {
	for i := range r.repels {
		if t := &r.repels[i]; t.anyNamespace || len(t.namespaces) > 1 || t.namespaces[0] != r.Namespace {
			return "", true
		}
	}
	return r.Namespace, len(r.repels) > 0
}

func claimNames(spec *corev1.PodSpec) (out []string) {
	for i := range spec.Volumes {
		if c := spec.Volumes[i].PersistentVolumeClaim; c != nil {
			out = append(out, c.ClaimName)
		}
	}
	return out
}

func podAffinity(spec *corev1.PodSpec) []corev1.PodAffinityTerm {
	if spec.Affinity == nil || spec.Affinity.PodAffinity == nil {
		return nil
	}
	return spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func antiAffinity(spec *corev1.PodSpec) []corev1.PodAffinityTerm {
	if spec.Affinity == nil || spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// podTerm selects pods that a pod is to be with, or away from, in a topology domain.
type podTerm struct {
	// topology is the node label whose values are the domains.
	topology   string
	namespaces []string
	// anyNamespace: namespaces do not count.
	anyNamespace bool
	selector     labels.Selector
}

// newPodTerm reads a term of a pod in the namespace. A selector of namespaces counts
// as if it selected all: Muster does not look at the labels of namespaces.
func newPodTerm(namespace string, t *corev1.PodAffinityTerm) (podTerm, error) {
	selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil {
		return podTerm{}, err
	}
	out := podTerm{topology: t.TopologyKey, namespaces: t.Namespaces, anyNamespace: t.NamespaceSelector != nil, selector: selector}
	if len(t.Namespaces) == 0 {
		out.namespaces = []string{namespace}
	}
	return out, nil
}

func (t *podTerm) matches(r *Running) bool {
	return (t.anyNamespace || slices.Contains(t.namespaces, r.Namespace)) && t.selector.Matches(labels.Set(r.Labels))
}

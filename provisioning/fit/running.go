package fit

import (
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

// Repels reports whether the running pod's required anti-affinity is against p: then
// the question needs an InterPodState even where p itself asks nothing of other pods.
func (r *Running) Repels(p *Pod) bool {
	return slices.ContainsFunc(r.repels, func(t podTerm) bool { return t.matches(&p.Running) })
}

// HasAntiAffinity reports whether the pod may repel any others at all.
func (r *Running) HasAntiAffinity() bool { return len(r.repels) > 0 }

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

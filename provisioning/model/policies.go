package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model/objects"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// policies are the CapacityPolicies and the labels of the namespaces that they select.
type policies struct {
	byName     map[string]*v1alpha1.CapacityPolicy
	namespaces map[string]*corev1.Namespace
	// limits caches the limits by namespace.
	limits map[string][]transaction.Limit
}

func newPolicies() policies {
	return policies{byName: map[string]*v1alpha1.CapacityPolicy{}, namespaces: map[string]*corev1.Namespace{},
		limits: map[string][]transaction.Limit{}}
}

// sameSpec reports whether only the status of the policy differs from the stored one.
func (ps *policies) sameSpec(p *v1alpha1.CapacityPolicy) bool {
	old := ps.byName[p.Name]
	return old != nil && equality.Semantic.DeepEqual(old.Spec, p.Spec)
}

func (ps *policies) set(p *v1alpha1.CapacityPolicy) effect {
	clear(ps.limits)
	return effectOf(objects.Put(ps.byName, p.Name, p))
}

func (ps *policies) remove(name string) effect {
	clear(ps.limits)
	return removed(ps.byName, name)
}

func (ps *policies) setNamespace(n *corev1.Namespace) effect {
	old := ps.namespaces[n.Name]
	if !objects.Put(ps.namespaces, n.Name, n) || old != nil && maps.Equal(old.Labels, n.Labels) {
		return unchanged
	}
	delete(ps.limits, n.Name)
	return changed
}

func (ps *policies) removeNamespace(name string) effect {
	delete(ps.limits, name)
	return removed(ps.namespaces, name)
}

// labelsOf returns the labels of a namespace; of an unknown one only its name.
func (ps *policies) labelsOf(namespace string) labels.Set {
	if n := ps.namespaces[namespace]; n != nil {
		return n.Labels
	}
	return labels.Set{corev1.LabelMetadataName: namespace}
}

// limitsOf returns the limits of all CapacityPolicies for a namespace, by name.
func (ps *policies) limitsOf(namespace string) []transaction.Limit {
	if limits, known := ps.limits[namespace]; known {
		return limits
	}
	set := ps.labelsOf(namespace)
	var out []transaction.Limit
	for _, p := range ps.sorted() {
		if limits := p.Spec.Limits; limits != nil && transaction.NamespacesOf(limits.NamespaceSelector).Matches(set) {
			out = append(out, transaction.LimitFrom(p.Name, limits))
		}
	}
	ps.limits[namespace] = out
	return out
}

// policyOf returns the CapacityPolicy of a request in the namespace. If the request may not use the policy that it names, lacking says
// why. Queues, and not this function, apply fallbackAfter.
func (ps *policies) policyOf(namespace, name string) (policy *v1alpha1.CapacityPolicy, lacking string) {
	named := ps.byName[cmp.Or(name, v1alpha1.DefaultPolicy)]
	switch {
	case named == nil && name == "":
		return &v1alpha1.CapacityPolicy{}, ""
	case named == nil:
		return &v1alpha1.CapacityPolicy{}, fmt.Sprintf("parameter capacityPolicy is %q: that CapacityPolicy does not exist; create it", name)
	case !transaction.NamespacesOf(named.Spec.NamespaceSelector).Matches(ps.labelsOf(namespace)):
		return &v1alpha1.CapacityPolicy{}, fmt.Sprintf("CapacityPolicy %s is not for namespace %s (spec.namespaceSelector): name another in "+
			"parameter capacityPolicy, "+
			"or ask an administrator to add the labels that it selects to the namespace", named.Name, namespace)
	}
	policy = named.DeepCopy()
	policy.Spec.FallbackAfter = nil
	if policy.Spec.Overrides != nil {
		policy.Spec.Overrides.FallbackAfter = nil
	}
	return policy, ""
}

// labels returns the labels of all namespaces.
func (ps *policies) labels() map[string]labels.Set {
	out := make(map[string]labels.Set, len(ps.namespaces))
	for name, n := range ps.namespaces {
		out[name] = n.Labels
	}
	return out
}

// sorted returns the policies by name.
func (ps *policies) sorted() []*v1alpha1.CapacityPolicy {
	return slices.SortedFunc(maps.Values(ps.byName), func(a, b *v1alpha1.CapacityPolicy) int { return cmp.Compare(a.Name, b.Name) })
}

// withBudgets returns the policies that have budgets in their spec or status, by name.
func (ps *policies) withBudgets() []*v1alpha1.CapacityPolicy {
	return slices.DeleteFunc(ps.sorted(),
		func(p *v1alpha1.CapacityPolicy) bool { return len(p.Spec.Budgets) == 0 && len(p.Status.Budgets) == 0 })
}

package queueing

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

// FlavorResource is what quota is counted by.
type FlavorResource struct {
	Flavor   kueue.ResourceFlavorReference
	Resource corev1.ResourceName
}

// Usage is amounts by flavor and resource, in the units of
// nodegroups.Resources.
type Usage map[FlavorResource]int64

// Add adds o.
func (u Usage) Add(o Usage) {
	for fr, v := range o {
		u[fr] += v
	}
}

// Sub takes o away and forgets what becomes zero, so that it undoes Add.
func (u Usage) Sub(o Usage) {
	for fr, v := range o {
		if u[fr] -= v; u[fr] == 0 {
			delete(u, fr)
		}
	}
}

// Keys are the flavors and resources in the order of their names.
func (u Usage) Keys() []FlavorResource {
	return slices.SortedFunc(maps.Keys(u), func(a, b FlavorResource) int {
		return cmp.Or(cmp.Compare(a.Flavor, b.Flavor), cmp.Compare(a.Resource, b.Resource))
	})
}

// nominal reads the nominal quotas of a ClusterQueue. A borrowing limit means
// nothing without a cohort, and those are refused.
func nominal(cq *kueue.ClusterQueue) Usage {
	u := Usage{}
	for _, group := range cq.Spec.ResourceGroups {
		for _, flavor := range group.Flavors {
			for _, r := range flavor.Resources {
				list := corev1.ResourceList{r.Name: r.NominalQuota}
				u[FlavorResource{flavor.Name, r.Name}] = nodegroups.ResourcesFrom(list)[r.Name]
			}
		}
	}
	return u
}

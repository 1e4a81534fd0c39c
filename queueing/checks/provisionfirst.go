package checks

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// A Workload that needs both preemption and a launch provisions its machines first. Its ProvisioningRequest is created
// before it reserves quota, and no other Workload is preempted for it before the machines are booked:
//
//	pending ─create─▶ waits, victims run ─Provisioned─▶ waits, victims evicted ─▶ quota reserved, request kept
//	  ▲                     │ Failed, stocked out, expired      │ expired
//	  └─ next flavor ◀──────┴───────────────────────────────────┘
//
// All of it follows from the objects: the request has the name of the next attempt, and its annotation
// ProvisionFirstAnnotation has the assignment that it was created for. If the Workload would get another assignment, or
// none, the request is deleted.

// AssignmentOf is the value of workload.ProvisionFirstAnnotation: the podSetAssignments of an admission in JSON,
// without the resource usage.
func AssignmentOf(a *kueue.Admission) string {
	out := make([]kueue.PodSetAssignment, 0, len(a.PodSetAssignments))
	for _, ps := range a.PodSetAssignments {
		out = append(out, kueue.PodSetAssignment{Name: ps.Name, Flavors: ps.Flavors, Count: ps.Count})
	}
	// Names, flavors and counts can always be encoded.
	text, _ := json.Marshal(out)
	return string(text)
}

// IsFor reports whether a request matches an assignment. A request that was created after the quota was reserved always
// does.
func IsFor(r *autoscaling.ProvisioningRequest, a *kueue.Admission) bool {
	made := r.Annotations[workload.ProvisionFirstAnnotation]
	if made == "" {
		return true
	}
	var have []kueue.PodSetAssignment
	return json.Unmarshal([]byte(made), &have) == nil && slices.EqualFunc(have, a.PodSetAssignments, func(x, y kueue.PodSetAssignment) bool {
		return x.Name == y.Name && workload.CountOf(&x) == workload.CountOf(&y) && maps.Equal(x.Flavors, y.Flavors)
	})
}

// LaunchPolicy returns the policy of a request of a check of Kueue's controller; ok is false if no machines would be
// launched for it.
func (s Evaluator) LaunchPolicy(w *cache.Workload, check kueue.AdmissionCheckReference) (out state.Policy, ok bool) {
	config := s.cache.ConfigOf(check)
	if config == nil || !slices.Contains(launching, config.ProvisioningClassName) {
		return out, false
	}
	parameters := configured(w, config)
	policy := s.cache.Policies[cmp.Or(string(parameters[PolicyParameter]), v1alpha1.DefaultPolicy)]
	if policy == nil {
		policy = &v1alpha1.CapacityPolicy{}
	}
	spec, _ := policy.Overridden(func(name string) string { return string(parameters[name]) })
	return state.PolicyFrom(state.AtomicScaleUp, spec), true
}

// launching are the provisioning classes whose requests launch machines.
var launching = []string{CapacityClass, autoscaling.ProvisioningClassBestEffortAtomicScaleUp}

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

// A Workload that needs both preemption and a launch asks for the machines first. Its
// request is made ahead of its quota, and no other Workload leaves for it before the machines are booked:
//
//	waits ─create─▶ claims, victims stay ─Provisioned─▶ claims, victims leave ─▶ reserves; the request is its own
//	  ▲                     │ Failed, stocked out, expired                │ expired
//	  └─ next option ◀──────┴─────────────────────────────────────────────┘
//
// All of it follows from the objects: the request has the name of the attempt that
// is to come and says in AheadAnnotation for which assignment it was made. If the
// Workload would get another one by now, or none, the request goes.

// AssignmentOf is the value of workload.AheadAnnotation: the podSetAssignments of an admission in
// JSON, without what their pods use.
func AssignmentOf(a *kueue.Admission) string {
	out := make([]kueue.PodSetAssignment, 0, len(a.PodSetAssignments))
	for _, ps := range a.PodSetAssignments {
		out = append(out, kueue.PodSetAssignment{Name: ps.Name, Flavors: ps.Flavors, Count: ps.Count})
	}
	// Names, flavors and counts can always be encoded.
	text, _ := json.Marshal(out)
	return string(text)
}

// IsFor reports whether a request may serve an assignment. One that was made with the
// quota follows from it.
func IsFor(r *autoscaling.ProvisioningRequest, a *kueue.Admission) bool {
	made := r.Annotations[workload.AheadAnnotation]
	if made == "" {
		return true
	}
	var have []kueue.PodSetAssignment
	return json.Unmarshal([]byte(made), &have) == nil && slices.EqualFunc(have, a.PodSetAssignments, func(x, y kueue.PodSetAssignment) bool {
		return x.Name == y.Name && workload.CountOf(&x) == workload.CountOf(&y) && maps.Equal(x.Flavors, y.Flavors)
	})
}

// LaunchPolicy is the policy that a request of a check of Kueue's own will have; ok is
// false where no machines would be launched for it.
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

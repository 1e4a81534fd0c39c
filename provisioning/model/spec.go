package model

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/model/objects"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// Entry is a request with its API object. It is shared and must not be changed.
type Entry struct {
	*transaction.Request
	Object *provreq.ProvisioningRequest
}

// specs derive the demand of requests.
type specs struct {
	templates map[types.NamespacedName]*corev1.PodTemplate
	lookup    func() fit.Objects
	objects   *objects.Objects
	policies  *policies
}

func newSpecs(lookup func() fit.Objects, o *objects.Objects, p *policies) specs {
	return specs{templates: map[types.NamespacedName]*corev1.PodTemplate{}, lookup: lookup, objects: o, policies: p}
}

// read returns a request in the form for decisions, and the labels that its pods select on.
func (s *specs) read(e *request) (out *transaction.Request, labels []string) {
	r := e.object
	class := state.AtomicScaleUp
	if c := r.Spec.ProvisioningClassName; c == transaction.ClassCheckCapacityStock || c == transaction.ClassCheckCapacity {
		class = state.CheckCapacity
	}
	out = &transaction.Request{
		UID:       r.UID,
		Namespace: r.Namespace,
		Name:      r.Name,
		Created:   r.CreationTimestamp.Time,
		Seen:      e.seen,
		PodsHeld:  transaction.IsHeld(r),
		Workload:  transaction.WorkloadOf(r),
		Policy:    state.DefaultPolicy(class),
		Attempt:   e.attempt,
		Status:    e.status,
		Purchases: e.purchases,
		Accepts:   purchases.AcceptedBy(r),
		Gang: state.Gang{
			Namespace: r.Namespace, Queue: e.tenant().Queue, Name: r.Namespace + "/" + r.Name, UID: r.UID, Key: state.BookingKey(r.Name),
		},
	}
	if e.attempt.Owned(e.status) {
		out.Gang.Launch = state.Token(r.UID, e.attempt.Number)
	}
	if c := meta.FindStatusCondition(r.Status.Conditions, provreq.Provisioned); c != nil {
		out.Provisioned = *c
	}
	out.Leaving, out.Blocked = !r.DeletionTimestamp.IsZero(), e.isBlocked()
	e.looksUp = false
	for _, ps := range r.Spec.PodSets {
		out.Pods += int(ps.Count)
		name := ps.PodTemplateRef.Name
		t := s.templates[types.NamespacedName{Namespace: r.Namespace, Name: name}]
		if t == nil {
			out.Missing = append(out.Missing, name)
			continue
		}
		e.looksUp = e.looksUp || fit.Refers(&t.Template.Spec)
		out.Priority = max(out.Priority, s.objects.Priority(&t.Template.Spec))
		set := state.NewPodSet(r.Namespace, name, int(ps.Count), &t.Template, s.lookup())
		labels = append(labels, set.Keys()...)
		out.Gang.PodSets = append(out.Gang.PodSets, set)
	}
	policy, lacking := s.policies.policyOf(r.Namespace, string(r.Spec.Parameters[transaction.ParamPolicy]))
	out.Parameters(r.Spec.Parameters, class, policy, lacking)
	if out.Policy.Topology != "" {
		labels = append(labels, out.Policy.Topology)
	}
	out.EquivalenceClass = planner.EquivalenceClass(&out.Gang, &out.Policy)
	out.Consumed, out.Repairs = transaction.IsConsumed(r), e.repair.Number
	if e.status == transaction.Provisioned && e.repair.Number > 0 {
		out, _ = out.Repairing(e.repair, s.lookup())
		for i := range out.Gang.PodSets {
			labels = append(labels, out.Gang.PodSets[i].Keys()...)
		}
	}
	return out, labels
}

// runs returns the maximum run time of a request's gang; zero if it is unknown.
func (s *specs) runs(e *request) time.Duration {
	gang := state.Gang{}
	for _, name := range transaction.TemplatesOf(e.object) {
		t := s.templates[name]
		if t == nil {
			return 0
		}
		gang.PodSets = append(gang.PodSets, state.PodSet{Template: &t.Template})
	}
	return gang.Runs()
}

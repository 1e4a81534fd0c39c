package cache

import (
	"fmt"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// clusterQueueStanding judges a ClusterQueue. The first cause gives the reason,
// the message has them all.
func (s *Cache) clusterQueueStanding(q *ClusterQueue) Standing {
	cq := q.Object
	var reason string
	var causes []string
	add := func(r, format string, args ...any) {
		if reason == "" {
			reason = r
		}
		causes = append(causes, fmt.Sprintf(format, args...))
	}
	if !cq.DeletionTimestamp.IsZero() {
		add(kueue.ClusterQueueActiveReasonTerminating, "the ClusterQueue is being deleted")
	}
	if IsStopped(cq.Spec.StopPolicy) {
		add(kueue.ClusterQueueActiveReasonStopped, "is stopped: its stopPolicy is %s; set it to None to resume", *cq.Spec.StopPolicy)
	}
	var missing []string
	for _, name := range FlavorsOf(cq) {
		if s.Flavors[name] == nil {
			missing = append(missing, string(name))
		}
	}
	if len(missing) > 0 {
		add(kueue.ClusterQueueActiveReasonFlavorNotFound, "references missing ResourceFlavor(s): %s; create what is missing",
			strings.Join(missing, ","))
	}
	for _, name := range FlavorsOf(cq) {
		if f := s.Flavors[name]; f != nil && f.Spec.TopologyName != nil && s.Topologies[*f.Spec.TopologyName] == nil {
			add(kueue.ClusterQueueActiveReasonTopologyNotFound, "there is no Topology %q for TAS flavor %q; create it", *f.Spec.TopologyName, name)
		}
	}
	s.judgeChecks(cq, add)
	if q.circular {
		add(reasonCohortCycle, "cohort %q is part of a cycle; change the parentName of one of its cohorts", cq.Spec.CohortName)
	}
	if fields := unsupportedFields(cq); len(fields) > 0 {
		add(ReasonUnsupported, "Muster does not support yet: %s; remove them to use the queue", strings.Join(fields, ", "))
	}
	if len(causes) > 0 {
		return Standing{Reason: reason, Message: "Can't admit new workloads: " + strings.Join(causes, "; ")}
	}
	return Standing{Active: true, Reason: kueue.ClusterQueueActiveReasonReady, Message: "Can admit new workloads"}
}

func (s *Settings) judgeChecks(cq *kueue.ClusterQueue, add func(string, string, ...any)) {
	s.judgeDelegation(cq, add)
	booking := map[kueue.ResourceFlavorReference]kueue.AdmissionCheckReference{}
	for _, rule := range CheckRules(cq) {
		ac := s.Checks[rule.Name]
		if ac == nil {
			add(kueue.ClusterQueueActiveReasonAdmissionCheckNotFound, "references missing AdmissionCheck(s): %s; create what is missing", rule.Name)
			continue
		}
		if standing := s.CheckStanding(ac); !standing.Active {
			add(kueue.ClusterQueueActiveReasonAdmissionCheckInactive, "references inactive AdmissionCheck(s): %s: %s", rule.Name, standing.Message)
		}
		if !s.Books(rule.Name) {
			continue
		}
		for _, flavor := range FlavorsOf(cq) {
			if !applies(rule, flavor) {
				continue
			}
			// Kueue's own checks may ask for different podSets each.
			if other, ok := booking[flavor]; ok && (s.IsCapacity(other) || s.IsCapacity(rule.Name)) {
				add(ReasonUnsupported, "flavor %q has two checks that book machines, %q and %q; only one may book them for the whole gang",
					flavor, other, rule.Name)
			}
			booking[flavor] = rule.Name
		}
	}
}

// judgeDelegation judges the checks of a queue whose jobs run in other clusters: which one is decided once for the whole job, and
// machines are had there.
func (s *Settings) judgeDelegation(cq *kueue.ClusterQueue, add func(string, string, ...any)) {
	delegating := s.delegating(cq)
	if len(delegating) == 0 {
		return
	}
	if len(delegating) > 1 {
		add(kueue.ClusterQueueActiveReasonMultipleMultiKueueAdmissionChecks,
			"only one check of %s may be in a ClusterQueue, and these are: %q, %q",
			kueue.MultiKueueControllerName, delegating[0].Name, delegating[1].Name)
	}
	for _, rule := range delegating {
		if len(rule.OnFlavors) > 0 {
			add(kueue.ClusterQueueActiveReasonMultiKueueAdmissionCheckAppliedPerFlavor,
				"AdmissionCheck %q of %s cannot be for some flavors only; remove its onFlavors", rule.Name, kueue.MultiKueueControllerName)
		}
	}
	for _, rule := range CheckRules(cq) {
		if s.Books(rule.Name) {
			add(kueue.ClusterQueueActiveReasonMultiKueueWithProvisioningRequest,
				"AdmissionCheck %q books machines in this cluster, and the jobs of the queue run in others; remove it, and have it in the queues there",
				rule.Name)
		}
	}
}

// unsupportedFields lists what a ClusterQueue asks for that would change what is
// admitted and that this package does not do.
func unsupportedFields(cq *kueue.ClusterQueue) []string {
	var fields []string
	add := func(name string, used bool) {
		if used {
			fields = append(fields, "spec."+name)
		}
	}
	spec := &cq.Spec
	add("concurrentAdmissionPolicy", spec.ConcurrentAdmissionPolicy != nil)
	return fields
}

func IsStopped(p *kueue.StopPolicy) bool { return p != nil && *p != kueue.None }

func Drains(p *kueue.StopPolicy) bool { return p != nil && *p == kueue.HoldAndDrain }

// LocalQueueStanding judges a LocalQueue.
func (s *Cache) LocalQueueStanding(lq *kueue.LocalQueue) Standing {
	q := s.Queues[lq.Spec.ClusterQueue]
	switch {
	case IsStopped(lq.Spec.StopPolicy):
		return Standing{Reason: reasonStopped,
			Message: fmt.Sprintf("LocalQueue is stopped: its stopPolicy is %s; set it to None to resume", *lq.Spec.StopPolicy)}
	case q == nil:
		return Standing{Reason: reasonNoClusterQueue,
			Message: fmt.Sprintf("Can't submit new workloads to clusterQueue: ClusterQueue %q does not exist; create it", lq.Spec.ClusterQueue)}
	case !q.Standing.Active:
		return Standing{Reason: reasonInactiveQueue,
			Message: fmt.Sprintf("Can't submit new workloads to clusterQueue: ClusterQueue %q is not active: %s", lq.Spec.ClusterQueue,
				q.Standing.Message)}
	}
	return Standing{Active: true, Reason: reasonReady, Message: "Can submit new workloads to localQueue"}
}

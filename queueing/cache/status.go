package cache

import (
	"fmt"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// clusterQueueStatus returns the status of a ClusterQueue. The reason is that of the first cause; the message lists
// all.
func (s *Cache) clusterQueueStatus(q *ClusterQueue) ActiveStatus {
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
	s.validateChecks(cq, add)
	if q.circular {
		add(reasonCohortCycle, "cohort %q is part of a cycle; change the parentName of one of its cohorts", cq.Spec.CohortName)
	}
	if fields := unsupportedFields(cq); len(fields) > 0 {
		add(ReasonUnsupported, "Muster does not support yet: %s; remove them to use the queue", strings.Join(fields, ", "))
	}
	if len(causes) > 0 {
		return ActiveStatus{Reason: reason, Message: "Can't admit new workloads: " + strings.Join(causes, "; ")}
	}
	return ActiveStatus{Active: true, Reason: kueue.ClusterQueueActiveReasonReady, Message: "Can admit new workloads"}
}

func (s *Settings) validateChecks(cq *kueue.ClusterQueue, add func(string, string, ...any)) {
	s.validateMultiKueue(cq, add)
	var missing, inactive, why []string
	for _, rule := range CheckRules(cq) {
		if ac := s.Checks[rule.Name]; ac == nil {
			missing = append(missing, string(rule.Name))
		} else if standing := s.CheckStatus(ac); !standing.Active {
			inactive, why = append(inactive, string(rule.Name)), append(why, standing.Message)
		}
	}
	if len(missing) > 0 {
		add(kueue.ClusterQueueActiveReasonAdmissionCheckNotFound, "references missing AdmissionCheck(s): %s; create what is missing",
			strings.Join(missing, ","))
	}
	if len(inactive) > 0 {
		add(kueue.ClusterQueueActiveReasonAdmissionCheckInactive, "references inactive AdmissionCheck(s): %s: %s",
			strings.Join(inactive, ","), strings.Join(why, "; "))
	}
	booking := map[kueue.ResourceFlavorReference]kueue.AdmissionCheckReference{}
	for _, rule := range CheckRules(cq) {
		if !s.Books(rule.Name) {
			continue
		}
		for _, flavor := range FlavorsOf(cq) {
			if !applies(rule, flavor) {
				continue
			}
			// Kueue's checks may each apply to different podSets.
			if other, ok := booking[flavor]; ok && (s.IsCapacity(other) || s.IsCapacity(rule.Name)) {
				add(ReasonUnsupported, "flavor %q has two checks that book machines, %q and %q; only one may book them for the whole gang",
					flavor, other, rule.Name)
			}
			booking[flavor] = rule.Name
		}
	}
}

// validateMultiKueue validates the checks of a queue whose jobs run in other clusters: the cluster is chosen once for
// the whole job, and machines are provisioned there.
func (s *Settings) validateMultiKueue(cq *kueue.ClusterQueue, add func(string, string, ...any)) {
	delegating := s.delegating(cq)
	if len(delegating) == 0 {
		return
	}
	if len(delegating) > 1 {
		add(kueue.ClusterQueueActiveReasonMultipleMultiKueueAdmissionChecks,
			"Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: %s; remove all but one", namesOf(delegating))
	}
	for _, rule := range delegating {
		if len(rule.OnFlavors) > 0 {
			add(kueue.ClusterQueueActiveReasonMultiKueueAdmissionCheckAppliedPerFlavor,
				"Cannot specify MultiKueue AdmissionCheck per flavor, found: %s; remove its onFlavors", rule.Name)
		}
	}
	for _, rule := range CheckRules(cq) {
		if s.Books(rule.Name) {
			add(kueue.ClusterQueueActiveReasonMultiKueueWithProvisioningRequest,
				"Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: %s, %s; "+
					"the jobs of the queue run in other clusters, so remove the latter, and have it in the queues there", namesOf(delegating), rule.Name)
		}
	}
}

func namesOf(rules []kueue.AdmissionCheckStrategyRule) string {
	names := make([]string, 0, len(rules))
	for _, rule := range rules {
		names = append(names, string(rule.Name))
	}
	return strings.Join(names, ",")
}

// unsupportedFields lists the fields of a ClusterQueue that change admission and that Muster does not support.
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

// LocalQueueStatus returns the status of a LocalQueue.
func (s *Cache) LocalQueueStatus(lq *kueue.LocalQueue) ActiveStatus {
	q := s.Queues[lq.Spec.ClusterQueue]
	switch {
	case IsStopped(lq.Spec.StopPolicy):
		return ActiveStatus{Reason: reasonStopped,
			Message: fmt.Sprintf("LocalQueue is stopped: its stopPolicy is %s; set it to None to resume", *lq.Spec.StopPolicy)}
	case q == nil:
		return ActiveStatus{Reason: reasonNoClusterQueue,
			Message: fmt.Sprintf("Can't submit new workloads to clusterQueue: ClusterQueue %q does not exist; create it", lq.Spec.ClusterQueue)}
	case !q.Status.Active:
		return ActiveStatus{Reason: reasonInactiveQueue,
			Message: fmt.Sprintf("Can't submit new workloads to clusterQueue: ClusterQueue %q is not active: %s", lq.Spec.ClusterQueue,
				q.Status.Message)}
	}
	return ActiveStatus{Active: true, Reason: reasonReady, Message: "Can submit new workloads to localQueue"}
}

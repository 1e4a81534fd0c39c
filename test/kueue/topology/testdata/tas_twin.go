package scheduler

import (
	"context"
	"encoding/json"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/kueue/pkg/resources"
	utiltas "sigs.k8s.io/kueue/pkg/util/tas"
)

// TwinCase is nodes with their usage, and the podSets to place there.
type TwinCase struct {
	Levels []string
	Nodes  []*corev1.Node
	Usage  []struct {
		Values []string
		Pod    map[corev1.ResourceName]int64
		Count  int32
	}
	PodSets []struct {
		PodSet  *kueue.PodSet
		Pod     map[corev1.ResourceName]int64
		Implied bool
		Group   *string
	}
	Empty bool
	// Balanced turns the feature gate TASBalancedPlacement on.
	Balanced bool
	// Lost is a node that is not among Nodes, whose pods are to be placed again beside those of Assigned.
	Lost     string
	Assigned map[kueue.PodSetReference][]utiltas.TopologyDomainAssignment
	// Decode is an assignment that is to be read only.
	Decode *kueue.TopologyAssignment
}

// TwinAnswer is where they go, or why not.
type TwinAnswer struct {
	Assignments map[kueue.PodSetReference][]utiltas.TopologyDomainAssignment
	Encoded     map[kueue.PodSetReference]*kueue.TopologyAssignment
	Decoded     []utiltas.TopologyDomainAssignment
	Reason      string
}

// Twin answers a case, a line of JSON each.
func Twin(line []byte) ([]byte, error) {
	var c TwinCase
	if err := json.Unmarshal(line, &c); err != nil {
		return nil, err
	}
	if c.Decode != nil {
		return json.Marshal(TwinAnswer{Decoded: utiltas.InternalFrom(c.Decode).Domains})
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(
		map[string]bool{string(features.TASBalancedPlacement): c.Balanced}); err != nil {
		return nil, err
	}
	s := newTASFlavorSnapshot(logr.Discard(), "racks", newTopologyTree(c.Levels, c.Nodes, 1), nil, &defaultChecker{})
	for _, u := range c.Usage {
		pod := resources.NewRequestsFromMap(u.Pod)
		s.updateTASUsage(utiltas.DomainID(u.Values), pod.ScaledUp(int64(u.Count)), add, u.Count)
	}
	var requests FlavorTASRequests
	for _, p := range c.PodSets {
		requests = append(requests, TASPodSetRequests{
			PodSet: p.PodSet, SinglePodRequests: resources.NewRequestsFromMap(p.Pod), Count: p.PodSet.Count, Implied: p.Implied,
			PodSetGroupName: p.Group,
		})
	}
	options := []FindTopologyAssignmentsOption{WithSimulateEmpty(c.Empty)}
	if c.Lost != "" {
		w := &kueue.Workload{Status: kueue.WorkloadStatus{UnhealthyNodes: []kueue.UnhealthyNode{{Name: c.Lost}}, Admission: &kueue.Admission{}}}
		for name, domains := range c.Assigned {
			w.Status.Admission.PodSetAssignments = append(w.Status.Admission.PodSetAssignments, kueue.PodSetAssignment{Name: name,
				TopologyAssignment: utiltas.V1Beta2From(&utiltas.TopologyAssignment{Levels: c.Levels[len(c.Levels)-1:], Domains: domains})})
		}
		options = append(options, WithWorkload(w))
	}
	result := s.FindTopologyAssignmentsForFlavor(logr.NewContext(context.Background(), logr.Discard()), requests, options...)
	answer := TwinAnswer{
		Assignments: map[kueue.PodSetReference][]utiltas.TopologyDomainAssignment{},
		Encoded:     map[kueue.PodSetReference]*kueue.TopologyAssignment{},
	}
	for name, a := range result {
		if a.FailureReason != "" {
			answer.Reason = a.FailureReason
		} else if a.TopologyAssignment != nil {
			answer.Assignments[name] = a.TopologyAssignment.Domains
			answer.Encoded[name] = utiltas.V1Beta2From(a.TopologyAssignment)
		}
	}
	return json.Marshal(answer)
}

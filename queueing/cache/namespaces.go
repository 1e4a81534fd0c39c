package cache

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Namespaces are indexed by name.
type Namespaces map[string]*Namespace

// Namespace is what queueing uses of a namespace.
type Namespace struct {
	Labels labels.Set
	Quotas map[string]*corev1.ResourceQuota
	ranges map[string]*corev1.LimitRange
	// Rules are those of all ranges combined.
	Rules PodRules
	// Expected are Workloads whose pods the quotas may not have counted yet. Short are those that wait for one of the
	// quotas.
	Expected map[types.UID]expectation
	Short    map[types.UID]*Workload
}

// At returns a namespace, which it creates if necessary.
func (n Namespaces) At(name string) *Namespace {
	ns := n[name]
	if ns == nil {
		ns = &Namespace{}
		n[name] = ns
	}
	return ns
}

// forgetEmpty deletes an empty namespace, but not the state of a later one of the same name.
func (n Namespaces) forgetEmpty(name string) {
	if ns := n[name]; ns != nil && len(ns.Labels)+len(ns.ranges)+len(ns.Quotas) == 0 {
		delete(n, name)
	}
}

// LabelsOf returns the labels of a namespace; none if it does not exist.
func (n Namespaces) LabelsOf(name string) labels.Set {
	if ns := n[name]; ns != nil {
		return ns.Labels
	}
	return nil
}

// expectation is a Workload with quota whose pods a ResourceQuota may not have counted.
type expectation struct {
	*Workload
	Admission *kueue.Admission
}

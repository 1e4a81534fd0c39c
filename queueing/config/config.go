// Package config is what an administrator sets for all queues at once. The
// words are those of Kueue's Configuration, so that what people know holds.
package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
)

// Config is for all queues. The zero value is what Muster does when nobody says
// anything.
type Config struct {
	// ManageJobsWithoutQueueName suspends Jobs that name no queue, too, in the
	// namespaces that ManagedJobsNamespaceSelector matches.
	ManageJobsWithoutQueueName bool `json:"manageJobsWithoutQueueName,omitempty"`
	// ManagedJobsNamespaceSelector is by default all namespaces but kube-system and
	// Muster's own.
	ManagedJobsNamespaceSelector *metav1.LabelSelector `json:"managedJobsNamespaceSelector,omitempty"`
	// WaitForPodsReady evicts admitted Workloads whose pods do not become ready in
	// time. Nil waits for ever.
	WaitForPodsReady *kueueconfig.WaitForPodsReady `json:"waitForPodsReady,omitempty"`
	// FairSharing shares what can be borrowed by weight. Nil is first come, first
	// served.
	FairSharing *kueueconfig.FairSharing `json:"fairSharing,omitempty"`
	// AdmissionFairSharing orders the LocalQueues of a ClusterQueue by what they
	// have used, in those that ask for it.
	AdmissionFairSharing *kueueconfig.AdmissionFairSharing `json:"admissionFairSharing,omitempty"`
	// Resources says what of a pod's requests counts against quota.
	Resources *kueueconfig.Resources `json:"resources,omitempty"`
	// ObjectRetentionPolicies says when finished Workloads are deleted. Nil keeps
	// them as long as their jobs.
	ObjectRetentionPolicies *kueueconfig.ObjectRetentionPolicies `json:"objectRetentionPolicies,omitempty"`
	// NamespaceQuota lets a Workload wait while the ResourceQuota of its namespace
	// would have its pods rejected.
	NamespaceQuota bool `json:"namespaceQuota,omitempty"`
}

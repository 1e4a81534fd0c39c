// Package config is the configuration for all queues. It has the fields of Kueue's Configuration.
package config

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
)

// Config applies to all queues. The zero value is the default.
type Config struct {
	// ManageJobsWithoutQueueName also suspends Jobs without a queue name, in the namespaces that
	// ManagedJobsNamespaceSelector matches.
	ManageJobsWithoutQueueName bool `json:"manageJobsWithoutQueueName,omitempty"`
	// ManagedJobsNamespaceSelector matches by default all namespaces except kube-system and Muster's own. Jobs queue
	// only there, whether they name a queue or use the LocalQueue named default.
	ManagedJobsNamespaceSelector *metav1.LabelSelector `json:"managedJobsNamespaceSelector,omitempty"`
	// LabelKeysToCopy are the labels of a Job that are copied to its Workload when it is created, as
	// integrations.labelKeysToCopy in Kueue.
	LabelKeysToCopy []string `json:"labelKeysToCopy,omitempty"`
	// WaitForPodsReady evicts admitted Workloads whose pods do not become ready in time. Nil waits forever. In Kueue
	// it is on by default since 0.19; here a gang that has waited for its machines is not requeued because an image
	// pulls slowly.
	WaitForPodsReady *kueueconfig.WaitForPodsReady `json:"waitForPodsReady,omitempty"`
	// FairSharing shares borrowable quota by weight. Nil orders by time.
	FairSharing *kueueconfig.FairSharing `json:"fairSharing,omitempty"`
	// AdmissionFairSharing orders the LocalQueues of a ClusterQueue by their usage, if the ClusterQueue has that
	// admission mode.
	AdmissionFairSharing *kueueconfig.AdmissionFairSharing `json:"admissionFairSharing,omitempty"`
	// Resources configures which of a pod's requests count against quota.
	Resources *kueueconfig.Resources `json:"resources,omitempty"`
	// ObjectRetentionPolicies configures when finished Workloads are deleted. Nil keeps them as long as their jobs.
	ObjectRetentionPolicies *kueueconfig.ObjectRetentionPolicies `json:"objectRetentionPolicies,omitempty"`
	// LocalQueueMetrics configures which LocalQueues have their own metrics, by default all.
	LocalQueueMetrics *kueueconfig.LocalQueueMetrics `json:"localQueueMetrics,omitempty"`
	// NamespaceQuota lets a Workload wait while a ResourceQuota of its namespace would reject its pods.
	NamespaceQuota bool `json:"namespaceQuota,omitempty"`
	// RecordUsers records which user created a job: on the job, on its Workload, and in the history. Their names stay there for weeks.
	RecordUsers bool `json:"recordUsers,omitempty"`
	// FeatureGates enables features that are behind Kueue's feature gates of the same names, and off by default.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
}

// CountsBySources reports whether counters or capacities of devices count against quota.
func (c *Config) CountsBySources() bool {
	return c.Resources != nil && slices.ContainsFunc(c.Resources.DeviceClassMappings, func(m kueueconfig.DeviceClassMapping) bool {
		return len(m.Sources) > 0
	})
}

// TASBalancedPlacement spreads the pods of a podSet that prefers a level of a Topology evenly over few of its domains.
const TASBalancedPlacement = "TASBalancedPlacement"

// Kueue's defaults.
const (
	defaultPodsReadyTimeout = 30 * time.Minute
	defaultSamplingInterval = 5 * time.Minute

	defaultBackoffBaseSeconds int32 = 60
	defaultBackoffMaxSeconds  int32 = 3600
)

// SetDefaults sets the defaults of Kueue. Namespace is the one that Muster runs in.
func (c *Config) SetDefaults(namespace string) {
	if c.ManagedJobsNamespaceSelector == nil {
		c.ManagedJobsNamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{metav1.NamespaceSystem, namespace},
		}}}
	}
	if w := c.WaitForPodsReady; w != nil {
		setDuration(&w.Timeout, defaultPodsReadyTimeout)
		set(&w.BlockAdmission, false)
		set(&w.RecoveryTimeout, w.Timeout)
		set(&w.RequeuingStrategy, kueueconfig.RequeuingStrategy{})
		set(&w.RequeuingStrategy.Timestamp, kueueconfig.EvictionTimestamp)
		set(&w.RequeuingStrategy.BackoffBaseSeconds, defaultBackoffBaseSeconds)
		set(&w.RequeuingStrategy.BackoffMaxSeconds, defaultBackoffMaxSeconds)
	}
	if f := c.FairSharing; f != nil && f.PreemptionStrategies == nil {
		f.PreemptionStrategies = []kueueconfig.PreemptionStrategy{kueueconfig.LessThanOrEqualToFinalShare, kueueconfig.LessThanInitialShare}
	}
	if a := c.AdmissionFairSharing; a != nil {
		setDuration(&a.UsageSamplingInterval, defaultSamplingInterval)
	}
	set(&c.LocalQueueMetrics, kueueconfig.LocalQueueMetrics{Enable: true})
	if r := c.Resources; r != nil {
		set(&r.QuotaCheckStrategy, kueueconfig.QuotaCheckBlockUndeclared)
		for i := range r.Transformations {
			set(&r.Transformations[i].Strategy, kueueconfig.Retain)
		}
	}
}

func set[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func setDuration(d *metav1.Duration, value time.Duration) {
	if d.Duration == 0 {
		d.Duration = value
	}
}

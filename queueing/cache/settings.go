package cache

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/usage"
)

// Settings are the configuration and the objects with which administrators control admission.
type Settings struct {
	Config config.Config
	// Sharing are the rules of admission fair sharing; nil if it is off.
	Sharing *usage.Rules
	// withoutProvisioner: nothing in the cluster serves ProvisioningRequests.
	withoutProvisioner bool
	// sourcesOf are the sources of each DeviceClass, and sourceDrivers the drivers that they name.
	sourcesOf     map[string][]source
	sourceDrivers map[string]bool

	ClusterQueues map[string]*kueue.ClusterQueue
	Cohorts       map[kueue.CohortReference]*kueue.Cohort
	Flavors       map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor
	Topologies    map[kueue.TopologyReference]*kueue.Topology
	Classes       map[string]*kueue.WorkloadPriorityClass
	Checks        map[kueue.AdmissionCheckReference]*kueue.AdmissionCheck
	Policies      map[string]*v1alpha1.CapacityPolicy
	RequestConfig map[string]*kueue.ProvisioningRequestConfig
}

func newSettings(c config.Config) Settings {
	s := Settings{
		Config:        c,
		ClusterQueues: map[string]*kueue.ClusterQueue{},
		Cohorts:       map[kueue.CohortReference]*kueue.Cohort{},
		Flavors:       map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{},
		Topologies:    map[kueue.TopologyReference]*kueue.Topology{},
		Classes:       map[string]*kueue.WorkloadPriorityClass{},
		Checks:        map[kueue.AdmissionCheckReference]*kueue.AdmissionCheck{},
		Policies:      map[string]*v1alpha1.CapacityPolicy{},
		RequestConfig: map[string]*kueue.ProvisioningRequestConfig{},
		sourcesOf:     sourcesByClass(c.Resources),
		sourceDrivers: map[string]bool{},
	}
	for _, sources := range s.sourcesOf {
		for i := range sources {
			s.sourceDrivers[sources[i].driver] = true
		}
	}
	if c.AdmissionFairSharing != nil {
		s.Sharing = new(usage.RulesFrom(c.AdmissionFairSharing))
	}
	return s
}

// WithoutProvisioner records that nothing in the cluster serves ProvisioningRequests. Capacity checks are inactive
// then.
func (s *Settings) WithoutProvisioner() { s.withoutProvisioner = true }

// WithProvisioner records that something does. Call Rebuild afterwards.
func (s *Settings) WithProvisioner() { s.withoutProvisioner = false }

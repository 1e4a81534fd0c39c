package configuration

import (
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/queueing/config"
)

// jobFramework is the one of Kueue's integrations that Muster has.
const jobFramework = "batch/job"

// noPodsReady is the feature gate by which Kueue's users turn waitForPodsReady
// off.
const noPodsReady = "DisableWaitForPodsReady"

// idle are Kueue's settings that Muster has no use for and that cannot change who
// is admitted, each with the reason or what to use instead.
var idle = map[string]string{
	"namespace":                        "Muster runs in a namespace of its own",
	"webhook":                          "Muster has no webhooks",
	"internalCertManagement":           "Muster has no webhooks that would need certificates",
	"tls":                              "Muster serves metrics and health in plain HTTP",
	"metrics":                          "Muster serves all of its metrics in plain HTTP, where --metrics-bind-address says",
	"pprofBindAddress":                 "Muster serves no profiles",
	"controller":                       "one loop serves all queues",
	"clientConnection":                 "the API server's own priority and fairness hold back what is too much",
	"visibilityServer":                 "Muster serves no aggregated API",
	"health.readinessEndpointName":     "it is /readyz",
	"health.livenessEndpointName":      "it is /healthz",
	"leaderElection.leaseDuration":     "Muster's own lease has its own",
	"leaderElection.renewDeadline":     "Muster's own lease has its own",
	"leaderElection.retryPeriod":       "Muster's own lease has its own",
	"leaderElection.resourceLock":      "Muster's own lease is a Lease",
	"leaderElection.resourceName":      "Muster's own lease is called muster",
	"leaderElection.resourceNamespace": "Muster's own lease is in its own namespace",
	"integrations.labelKeysToCopy":     "Muster copies no labels to Workloads",
}

// missing are the parts of Kueue that Muster does not have and that would change
// who is admitted, each with what to do.
var missing = map[string]string{
	"multiKueue":                      "Muster sends no jobs to other clusters; take it out",
	"integrations.externalFrameworks": "Muster queues no jobs of other controllers; take it out",
}

// translate makes Muster's own Configuration of Kueue's. It refuses what Muster
// does not have where that would change who is admitted, and warns where it
// would not.
func (d *decoder) translate(root *yaml.Node, k *kueueconfig.Configuration) (*Configuration, []fault) {
	refuse := func(path *field.Path, text string) {
		d.faults = append(d.faults, fault{d.lines[path.String()], path.String() + ": " + text})
	}
	var warnings []fault
	for _, name := range slices.Sorted(maps.Keys(idle)) {
		if line, ok := d.lines[name]; ok {
			warnings = append(warnings, fault{line, name + ": it changes nothing: " + idle[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if line, ok := d.lines[name]; ok {
			d.faults = append(d.faults, fault{line, name + ": " + missing[name]})
		}
	}
	if i := k.Integrations; i != nil && i.Frameworks != nil {
		path := field.NewPath("integrations", "frameworks")
		for j, name := range i.Frameworks {
			if name != jobFramework {
				refuse(path.Index(j), fmt.Sprintf("Muster does not queue %q, so such jobs would start at once; take it out to let them", name))
			}
		}
		if !slices.Contains(i.Frameworks, jobFramework) {
			refuse(path, "Muster always queues "+jobFramework+"; add it")
		}
	}
	for _, gate := range slices.Sorted(maps.Keys(k.FeatureGates)) {
		if gate != noPodsReady {
			refuse(field.NewPath("featureGates").Key(gate), "Muster has no such gate; take it out")
		}
	}
	settings := config.Config{
		ManageJobsWithoutQueueName:   k.ManageJobsWithoutQueueName,
		ManagedJobsNamespaceSelector: k.ManagedJobsNamespaceSelector,
		WaitForPodsReady:             k.WaitForPodsReady,
		FairSharing:                  k.FairSharing,
		AdmissionFairSharing:         k.AdmissionFairSharing,
		Resources:                    k.Resources,
		ObjectRetentionPolicies:      k.ObjectRetentionPolicies,
	}
	switch {
	case k.FeatureGates[noPodsReady]:
		settings.WaitForPodsReady = nil
	case k.WaitForPodsReady == nil:
		warnings = append(warnings, fault{root.Line,
			"waitForPodsReady: it is not set, and Muster then waits for pods for ever, where Kueue evicts after 30m; set timeout: 30m to keep that"})
	}
	own := &Configuration{Queueing: Queueing{Config: settings}}
	if k.LeaderElection != nil {
		own.LeaderElect = k.LeaderElection.LeaderElect
	}
	if address := k.Health.HealthProbeBindAddress; address != "" {
		own.HealthProbeBindAddress = &address
	}
	return own, warnings
}

package configuration

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/deploy/document"
	"github.com/muster-dev/muster/queueing/config"
)

// jobFramework is the one of Kueue's integrations that Muster has.
const jobFramework = "batch/job"

// noPodsReady is the feature gate by which Kueue's users turn waitForPodsReady
// off.
const noPodsReady = "DisableWaitForPodsReady"

// localQueueMetrics is the feature gate without which Kueue shows no metrics of
// LocalQueues.
const localQueueMetrics = "LocalQueueMetrics"

// idle are Kueue's settings that Muster has no use for and that cannot change who
// is admitted, each with the reason or what to use instead.
var idle = map[string]string{
	"namespace":                        "Muster runs in a namespace of its own",
	"webhook":                          "Muster has no webhooks",
	"internalCertManagement":           "Muster has no webhooks that would need certificates",
	"tls":                              "Muster serves metrics by the versions and ciphers that Go takes for safe",
	"metrics.customLabels":             "Muster adds no labels to its metrics",
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
func translate(d *document.Document, k *kueueconfig.Configuration) (*Configuration, document.Faults) {
	var warnings document.Faults
	for _, name := range slices.Sorted(maps.Keys(idle)) {
		if d.Has(name) {
			warnings = append(warnings, document.Fault{Line: d.Line(name), Path: name, Text: "it changes nothing: " + idle[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if d.Has(name) {
			d.Refuse(field.NewPath(name), "%s", missing[name])
		}
	}
	if i := k.Integrations; i != nil && i.Frameworks != nil {
		path := field.NewPath("integrations", "frameworks")
		for j, name := range i.Frameworks {
			if name != jobFramework {
				d.Refuse(path.Index(j), "Muster does not queue %q, so such jobs would start at once; take it out to let them", name)
			}
		}
		if !slices.Contains(i.Frameworks, jobFramework) {
			d.Refuse(path, "Muster always queues %s; add it", jobFramework)
		}
	}
	for _, gate := range slices.Sorted(maps.Keys(k.FeatureGates)) {
		if gate != noPodsReady && gate != localQueueMetrics {
			d.Refuse(field.NewPath("featureGates").Key(gate), "Muster has no such gate; take it out")
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
		LocalQueueMetrics:            k.Metrics.LocalQueueMetrics,
	}
	if on, set := k.FeatureGates[localQueueMetrics]; set && !on {
		settings.LocalQueueMetrics = &kueueconfig.LocalQueueMetrics{}
	}
	if k.Integrations != nil {
		settings.LabelKeysToCopy = k.Integrations.LabelKeysToCopy
	}
	switch {
	case k.FeatureGates[noPodsReady]:
		settings.WaitForPodsReady = nil
	case k.WaitForPodsReady == nil:
		warnings = append(warnings, document.Fault{Line: d.Line(""), Path: "waitForPodsReady", Text: "it is not set, and Muster then waits for pods for ever, where Kueue evicts after 30m; set timeout: 30m to keep that"})
	}
	own := &Configuration{Queueing: Queueing{Config: settings}}
	if k.LeaderElection != nil {
		own.LeaderElect = k.LeaderElection.LeaderElect
	}
	if address := k.Health.HealthProbeBindAddress; address != "" {
		own.HealthProbeBindAddress = &address
	}
	if address := k.Metrics.BindAddress; address != "" {
		own.MetricsBindAddress = &address
	}
	return own, warnings
}

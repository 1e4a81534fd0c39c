package configuration

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/deploy/document"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

// jobFramework is the integration of Kueue that every cluster has.
const jobFramework = "batch/job"

// frameworks are the integrations of Kueue that Muster has. It queues all of them, whichever are listed: a job that names a queue should
// wait in it.
func frameworks() []string {
	out := []string{jobFramework}
	for _, k := range kinds.BuiltIn() {
		out = append(out, k.Framework)
	}
	return append(out, kinds.PodFrameworks()...)
}

// noPodsReady is the feature gate with which Kueue's users turn waitForPodsReady off.
const noPodsReady = "DisableWaitForPodsReady"

// localQueueMetrics is the feature gate that turns on Kueue's metrics of LocalQueues.
const localQueueMetrics = "LocalQueueMetrics"

// idle are Kueue's settings that have no effect in Muster and that cannot change admissions,
// each with the reason or the replacement.
var idle = map[string]string{
	"namespace":                        "Muster runs in a namespace of its own",
	"webhook":                          "Muster needs no webhooks; --webhook-bind-address serves one before Kubernetes 1.36",
	"internalCertManagement":           "Muster makes the certificate of its webhook, where it serves one, itself",
	"tls":                              "Muster serves metrics with Go's default TLS versions and cipher suites",
	"metrics.customLabels":             "Muster adds no labels to its metrics",
	"pprofBindAddress":                 "Muster serves no profiles",
	"controller":                       "one loop serves all queues",
	"clientConnection":                 "Muster relies on the API server's priority and fairness",
	"visibilityServer":                 "Muster serves no aggregated API",
	"multiKueue":                       "jobs are run in other clusters by muster dispatcher, which has flags for it",
	"health.readinessEndpointName":     "the path is /readyz",
	"health.livenessEndpointName":      "the path is /healthz",
	"leaderElection.leaseDuration":     "Muster's own lease has its own",
	"leaderElection.renewDeadline":     "Muster's own lease has its own",
	"leaderElection.retryPeriod":       "Muster's own lease has its own",
	"leaderElection.resourceLock":      "Muster's own lease is a Lease",
	"leaderElection.resourceName":      "Muster's own lease is called muster",
	"leaderElection.resourceNamespace": "Muster's own lease is in its own namespace",
}

// missing are the features of Kueue that Muster lacks and that would change admissions, each with the remedy.
var missing = map[string]string{
	"integrations.externalFrameworks": "Muster does not queue jobs of external frameworks; remove it",
}

// translate converts Kueue's Configuration to Muster's. A feature that Muster does not have
// is an error if it would change admissions, else a warning.
func translate(d *document.Document, k *kueueconfig.Configuration) (*Configuration, document.Faults) {
	var warnings document.Faults
	for _, name := range slices.Sorted(maps.Keys(idle)) {
		if d.Has(name) {
			warnings = append(warnings, document.Fault{Line: d.Line(name), Path: name, Text: "it has no effect: " + idle[name]})
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
			if !slices.Contains(frameworks(), name) {
				d.Refuse(path.Index(j), "Muster does not queue %q, so such jobs would start at once; remove it to accept that", name)
			}
		}
		if !slices.Contains(i.Frameworks, jobFramework) {
			d.Refuse(path, "Muster always queues %s; add it", jobFramework)
		}
	}
	for _, gate := range slices.Sorted(maps.Keys(k.FeatureGates)) {
		if gate != noPodsReady && gate != localQueueMetrics && gate != config.TASBalancedPlacement {
			d.Refuse(field.NewPath("featureGates").Key(gate), "Muster has no such feature gate; remove it")
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
	if on, set := k.FeatureGates[config.TASBalancedPlacement]; set {
		settings.FeatureGates = map[string]bool{config.TASBalancedPlacement: on}
	}
	if k.Integrations != nil {
		settings.LabelKeysToCopy = k.Integrations.LabelKeysToCopy
	}
	switch {
	case k.FeatureGates[noPodsReady]:
		settings.WaitForPodsReady = nil
	case k.WaitForPodsReady == nil:
		warnings = append(warnings, document.Fault{Line: d.Line(""), Path: "waitForPodsReady",
			Text: "it is not set: Muster then waits for pods indefinitely, while Kueue evicts after 30m; set timeout: 30m to keep that"})
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

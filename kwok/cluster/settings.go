package cluster

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// writeSettings writes the configuration files of the components that have settings beyond their flags.
func writeSettings(p plan, c Config) error {
	muster := c.Settings
	if p.runs(Kwok) {
		if err := writeFile(p.kwokConfig(), append([]byte(kwokSettings), c.Stages...)); err != nil {
			return err
		}
	}
	if p.runs(Clouds) {
		if err := writeFile(p.cloudsConfig(), c.Clouds.World); err != nil {
			return err
		}
		var err error
		if muster, err = withClouds(muster, p, c.Clouds); err != nil {
			return err
		}
	}
	if p.settings {
		if err := writeFile(p.musterConfig(), muster); err != nil {
			return err
		}
	}
	if p.audit {
		if err := writeFile(p.auditPolicy(), []byte(auditSettings)); err != nil {
			return err
		}
	}
	return writeFile(p.schedulerConfig(), fmt.Appendf(nil, schedulerSettings, p.kubeconfig(Scheduler)))
}

// withClouds adds the simulated clouds to the settings of muster. They have one cluster, this one.
func withClouds(settings []byte, p plan, clouds *SimulatedClouds) ([]byte, error) {
	out := map[string]any{"apiVersion": "config.muster.dev/v1alpha1", "kind": "Configuration"}
	if err := yaml.Unmarshal(settings, &out); err != nil {
		return nil, fmt.Errorf("reading the settings of muster: %w", err)
	}
	provisioning, _ := out["provisioning"].(map[string]any)
	if provisioning == nil {
		provisioning = map[string]any{}
	}
	provisioning["clouds"] = map[string]any{
		"aws": map[string]any{"region": clouds.Region, "cluster": "sandbox", "endpoint": "http://" + p.address(cloudsAWS)},
		"gcp": map[string]any{"project": clouds.Project, "cluster": "sandbox", "endpoint": "http://" + p.address(cloudsGCP)},
	}
	out["provisioning"] = provisioning
	return yaml.Marshal(out)
}

// The scheduler's rate of 50 requests a second is raised, or it would be what every measurement measures.
const schedulerSettings = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: %q
  qps: 2000
  burst: 4000
leaderElection:
  leaderElect: false
`

// What is read is not recorded, and of what is written not the text.
const auditSettings = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: Metadata
`

// KWOK moves only 4 pods and 4 nodes at a time by default, and mostly waits for kube-apiserver. Its pods have no containers, so its
// handlers for exec and logs would only return errors.
const kwokSettings = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  podPlayStageParallelism: 32
  nodePlayStageParallelism: 32
  podsOnNodeSyncParallelism: 8
  enableDebuggingHandlers: false
---
`

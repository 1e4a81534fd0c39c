package cluster

import "fmt"

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
		muster = fmt.Appendf(nil, musterSettings, c.Clouds.Region, p.address(cloudsAWS), c.Clouds.Project, p.address(cloudsGCP))
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

// The simulated clouds know one cluster, this one.
const musterSettings = `apiVersion: config.muster.dev/v1alpha1
kind: Configuration
provisioning:
  clouds:
    aws:
      region: %q
      cluster: sandbox
      endpoint: "http://%s"
    gcp:
      project: %q
      cluster: sandbox
      endpoint: "http://%s"
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

// KWOK moves 4 pods and 4 nodes at a time unless told otherwise; each move is mostly waiting for kube-apiserver.
// There are no containers behind its pods, so the handlers for exec and logs would only answer with errors.
const kwokSettings = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  podPlayStageParallelism: 32
  nodePlayStageParallelism: 32
  podsOnNodeSyncParallelism: 8
  enableDebuggingHandlers: false
---
`

package operators

import (
	"fmt"
	"net"
	"path/filepath"

	"github.com/muster-dev/muster/kwok/cluster"
)

const (
	jobsetCRDs     = "config/components/crd/bases"
	jobsetWebhooks = "config/components/webhook/manifests.yaml"
)

// The webhooks set the defaults of a JobSet, on which its controller relies.
var jobset = definition{
	name:      "jobset",
	kinds:     []string{"JobSet"},
	module:    "sigs.k8s.io/jobset",
	version:   "v0.12.0",
	sum:       "h1:YYPuV0px8Ongq/RXmJg6V0w2UC67aiR+rCMD06vhQQQ=",
	command:   ".",
	manifests: []string{jobsetCRDs, jobsetWebhooks},
	namespace: "jobset-system",
	components: []component{{name: "jobset", settings: func(b built, p cluster.Place) (cluster.Settings, error) {
		return configured(b, p, installation{
			crds: jobsetCRDs, webhooks: jobsetWebhooks, prefix: "jobset-", podLabel: "jobset.sigs.k8s.io/jobset-name",
			config: "config.jobset.x-k8s.io/v1alpha1", certificates: "internalCertManagement",
		})
	}}},
}

// installation is what differs between operators that have a configuration file in one form.
type installation struct {
	// crds and webhooks are manifests, and prefix is what stands before the names of webhook configurations.
	crds, webhooks, prefix string

	// podLabel is that of the pods for which there are webhooks; empty for none.
	podLabel string

	// config is the API version of the file, and certificates is the field in it about those of webhooks.
	config, certificates string
}

func configured(b built, p cluster.Place, i installation) (cluster.Settings, error) {
	objects, err := b.objects(i.crds)
	if err != nil {
		return cluster.Settings{}, err
	}
	webhooks, err := b.webhooks(i.webhooks, i.prefix, p)
	if err != nil {
		return cluster.Settings{}, err
	}
	if i.podLabel != "" {
		if err := forPodsOf(i.podLabel, webhooks); err != nil {
			return cluster.Settings{}, err
		}
	}
	return cluster.Settings{
		Args:    []string{"--kubeconfig=" + p.Kubeconfig, "--config=" + filepath.Join(p.Dir, managerFile)},
		Files:   map[string]string{managerFile: fmt.Sprintf(managerConfig, i.config, i.certificates, p.Health, port(p.Webhook))},
		Objects: append(objects, webhooks...),
		Probe:   ready(p),
	}, nil
}

const managerFile = "config.yaml"

// managerConfig ends with what is about webhooks, so that more can follow.
const managerConfig = `apiVersion: %s
kind: Configuration
leaderElection:
  leaderElect: false
%s:
  enable: false
metrics:
  bindAddress: "0"
health:
  healthProbeBindAddress: %q
webhook:
  host: 127.0.0.1
  port: %s
`

func port(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// ready is where all that are made with controller-runtime say that they serve.
func ready(p cluster.Place) string { return "http://" + p.Health + "/readyz" }

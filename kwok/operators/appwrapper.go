package operators

import (
	"fmt"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
)

const (
	appwrapperCRDs     = "config/crd/bases"
	appwrapperWebhooks = "config/webhook/manifests.yaml"
)

// appwrapperPort is where its webhooks are. No setting changes it.
const appwrapperPort = "9443"

var appwrapper = definition{
	name:       "appwrapper",
	kinds:      []string{"AppWrapper"},
	note:       "; takes port " + appwrapperPort,
	module:     "github.com/project-codeflare/appwrapper",
	version:    "v1.2.2",
	sum:        "h1:W5Dm0J8cOUPnb+Jo9rkHcvAzY+GkECy/vdGmozvGKHI=",
	command:    "./cmd",
	manifests:  []string{appwrapperCRDs, appwrapperWebhooks},
	namespace:  "appwrapper-system",
	components: []component{{name: "appwrapper", settings: appwrapperManager}},
}

func appwrapperManager(b built, p cluster.Place) (cluster.Settings, error) {
	if err := checkFixedPort(appwrapperPort); err != nil {
		return cluster.Settings{}, err
	}
	p.Webhook = "127.0.0.1:" + appwrapperPort
	objects, err := b.objects(appwrapperCRDs)
	if err != nil {
		return cluster.Settings{}, err
	}
	webhooks, err := b.webhooks(appwrapperWebhooks, "appwrapper-", p)
	if err != nil {
		return cluster.Settings{}, err
	}
	own, err := deploy.Decode(fmt.Appendf(nil, appwrapperOwn, p.Health, p.Certificates()))
	return cluster.Settings{
		Args:    []string{"--kubeconfig=" + p.Kubeconfig},
		Env:     []string{"NAMESPACE=appwrapper-system"},
		Objects: append(append(objects, webhooks...), own...),
		Probe:   ready(p),
	}, err
}

// appwrapperOwn is its configuration, the Secret where it keeps a certificate of its own, which names only its Service, and
// where it writes the authority of that. The webhooks are called with the sandbox's certificate instead.
const appwrapperOwn = `apiVersion: v1
kind: ConfigMap
metadata: {name: appwrapper-operator-config, namespace: appwrapper-system}
data:
  config.yaml: |
    controllerManager:
      health: {bindAddress: %q}
      metrics: {bindAddress: "0"}
      leaderElection: false
    certManagement:
      certificateDir: %q
      mutatingWebhookConfigName: appwrapper-own-certificate
      validatingWebhookConfigName: appwrapper-own-certificate
---
apiVersion: v1
kind: Secret
metadata: {name: appwrapper-webhook-server-cert, namespace: appwrapper-system}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: appwrapper-own-certificate}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: appwrapper-own-certificate}
`

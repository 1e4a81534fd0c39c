package operators

import (
	"fmt"

	"github.com/muster-dev/muster/kwok/cluster"
)

const (
	lwsCRDs     = "config/crd/bases"
	lwsWebhooks = "config/webhook/manifests.yaml"
)

// The webhook for pods sets the group of each pod and its index in it.
var lws = definition{
	name:      "lws",
	kinds:     []string{"LeaderWorkerSet"},
	module:    "sigs.k8s.io/lws",
	version:   "v0.9.0",
	sum:       "h1:DcJCgxjjoGOx//QHZkeKpyiblxYq70aCRZNYSfykWyI=",
	command:   "./cmd",
	manifests: []string{lwsCRDs, lwsWebhooks},
	namespace: "lws-system",
	components: []component{{name: "lws", settings: func(b built, p cluster.Place) (cluster.Settings, error) {
		settings, err := configured(b, p, installation{
			crds: lwsCRDs, webhooks: lwsWebhooks, prefix: "lws-", podLabel: "leaderworkerset.sigs.k8s.io/name",
			config: "config.lws.x-k8s.io/v1alpha1", certificates: "internalCertManagement",
		})
		if err != nil {
			return settings, err
		}
		settings.Files[managerFile] += fmt.Sprintf("  certDir: %q\n", p.Certificates()) // else below /tmp, whatever $TMPDIR says
		settings.Listens = p.Webhook
		return settings, nil
	}}},
}

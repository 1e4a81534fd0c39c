package operators

import "github.com/muster-dev/muster/kwok/cluster"

const (
	trainerCRDs     = "manifests/base/crds"
	trainerWebhooks = "manifests/base/webhook/manifests.yaml"
)

// A TrainJob becomes a JobSet.
var trainer = definition{
	name:      "trainer",
	kinds:     []string{"TrainJob"},
	note:      "; brings jobset",
	module:    "github.com/kubeflow/trainer/v2",
	version:   "v2.2.1",
	sum:       "h1:GsM80cgxnLnd8j8+lrX/Dpcvw7DYqpxkL0ni4XA/U7Y=",
	command:   "./cmd/trainer-controller-manager",
	manifests: []string{trainerCRDs, trainerWebhooks},
	namespace: "kubeflow-system",
	needs:     []string{"jobset"},
	components: []component{{name: "trainer", settings: func(b built, p cluster.Place) (cluster.Settings, error) {
		return configured(b, p, installation{
			crds: trainerCRDs, webhooks: trainerWebhooks, prefix: "trainer-",
			config: "config.trainer.kubeflow.org/v1alpha1", certificates: "certManagement",
		})
	}}},
}

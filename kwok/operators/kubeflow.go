package operators

import (
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
)

const (
	kubeflowCRDs     = "manifests/base/crds"
	kubeflowWebhooks = "manifests/base/webhook/manifests.yaml"
)

// kubeflowKinds leave out MPIJob: its CRD bears the same name as that of the mpi-operator, whose later version v2beta1 is
// the one in use.
var kubeflowKinds = []string{"PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob"}

var kubeflow = definition{
	name:       "kubeflow",
	kinds:      kubeflowKinds,
	note:       "; for MPIJob see mpi",
	module:     "github.com/kubeflow/training-operator",
	version:    "v1.9.3",
	sum:        "h1:aaSHqskOtCY8Dn8sVd+l9p5XAczW6O0nYMPjVLAw/lc=",
	command:    "./cmd/training-operator.v1",
	manifests:  []string{kubeflowCRDs, kubeflowWebhooks},
	namespace:  "kubeflow",
	components: []component{{name: "kubeflow", settings: trainingOperator}},
}

func trainingOperator(b built, p cluster.Place) (cluster.Settings, error) {
	var objects []*unstructured.Unstructured
	args := []string{
		"--kubeconfig=" + p.Kubeconfig, "--metrics-bind-address=0", "--health-probe-bind-address=" + p.Health,
		"--webhook-server-port=" + port(p.Webhook), "--kube-api-qps=200", "--kube-api-burst=400",
	}
	for _, kind := range kubeflowKinds {
		crd, err := b.objects(filepath.Join(kubeflowCRDs, "kubeflow.org_"+strings.ToLower(kind)+"s.yaml"))
		if err != nil {
			return cluster.Settings{}, err
		}
		objects = append(objects, crd...)
		args = append(args, "--enable-scheme="+kind)
	}
	webhooks, err := b.webhooks(kubeflowWebhooks, "kubeflow-", p)
	if err != nil {
		return cluster.Settings{}, err
	}
	own, err := deploy.Decode([]byte(kubeflowOwn))
	if err != nil {
		return cluster.Settings{}, err
	}
	return cluster.Settings{Args: args, Objects: append(append(objects, webhooks...), own...), Probe: ready(p)}, mount()
}

// kubeflowOwn is where the operator keeps a certificate of its own, which names only its Service, and where it writes the
// authority of that. The webhooks are called with the sandbox's certificate instead.
const kubeflowOwn = `apiVersion: v1
kind: Secret
metadata: {name: training-operator-webhook-cert, namespace: kubeflow}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: validator.training-operator.kubeflow.org}
`

// mount makes the file for whose appearance the operator waits, at a path that no setting changes. It does not read it, so
// several sandboxes may share it.
func mount() error {
	const dir = "/tmp/k8s-webhook-server/serving-certs"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dir, "tls.crt"), os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

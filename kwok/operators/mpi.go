package operators

import (
	"fmt"
	"net"

	"github.com/muster-dev/muster/kwok/cluster"
)

const mpiCRD = "manifests/base/kubeflow.org_mpijobs.yaml"

// mpiHealth is the port on which the operator says that it serves. No setting changes it.
const mpiHealth = "8080"

var mpi = definition{
	name:      "mpi",
	kinds:     []string{"MPIJob"},
	note:      " of kubeflow.org/v2beta1; takes port " + mpiHealth,
	module:    "github.com/kubeflow/mpi-operator",
	version:   "v0.8.2",
	sum:       "h1:7PVtV31iX3LSVW0BqRQ64w/NYNfAgP86Bmua2OEi5lg=",
	command:   "./cmd/mpi-operator",
	manifests: []string{mpiCRD},
	namespace: "mpi-operator",
	components: []component{{name: "mpi", settings: func(b built, p cluster.Place) (cluster.Settings, error) {
		if err := checkFixedPort(mpiHealth); err != nil {
			return cluster.Settings{}, err
		}
		objects, err := b.objects(mpiCRD)
		return cluster.Settings{
			Args: []string{
				"--kubeConfig=" + p.Kubeconfig, "--lock-namespace=mpi-operator", "--kube-api-qps=200", "--kube-api-burst=400",
				"--controller-queue-rate-limit=200", "--controller-queue-burst=400",
			},
			Objects: objects,
			Probe:   "http://127.0.0.1:" + mpiHealth + "/healthz",
		}, err
	}}},
}

// checkFixedPort fails if an operator cannot listen on a port that it insists on.
func checkFixedPort(port string) error {
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return fmt.Errorf("it needs port %s, which none of its settings changes (stop what listens there, perhaps another sandbox with this "+
			"operator): %w", port, err)
	}
	return listener.Close()
}

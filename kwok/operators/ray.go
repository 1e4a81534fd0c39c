package operators

import (
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/operators/standin"
)

const rayCRDs = "config/crd/bases"

// The operator reads the states of jobs from the dashboard of each Ray cluster, through a proxy. A stand-in responds there for all
// clusters.
var ray = definition{
	name:      "ray",
	kinds:     []string{"RayCluster", "RayJob", "RayService"},
	module:    "github.com/ray-project/kuberay/ray-operator",
	version:   "v1.6.2",
	sum:       "h1:XUckRswLMyk71D00L62d2Vanh0fVkNqu56+IF/rr+O0=",
	command:   ".",
	manifests: []string{rayCRDs},
	namespace: "ray-system",
	components: []component{
		{name: standin.RayDashboard, isStandIn: true, settings: func(_ built, p cluster.Place) (cluster.Settings, error) {
			return cluster.Settings{
				Args:  []string{"--kubeconfig=" + p.Kubeconfig, "--listen=" + p.Health},
				Probe: "http://" + p.Health + "/healthz",
			}, nil
		}},
		{name: "ray", settings: func(b built, p cluster.Place) (cluster.Settings, error) {
			objects, err := b.objects(rayCRDs)
			return cluster.Settings{
				Args: []string{
					"--kubeconfig=" + p.Kubeconfig, "--metrics-addr=0", "--health-probe-bind-address=" + p.Health, "--enable-leader-election=false",
				},
				Env:     []string{"HTTP_PROXY=http://" + p.Others[standin.RayDashboard], "HTTPS_PROXY=", "NO_PROXY="},
				Objects: objects,
				Probe:   ready(p),
			}, err
		}},
	},
}

package operators

import (
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/operators/standin"
)

const (
	sparkCRDs     = "config/crd/bases"
	sparkWebhooks = "config/webhook/manifests.yaml"
	sparkPrefix   = "spark-operator-"
)

// The operator runs spark-submit for each application. A stand-in simulates that, and the driver that requests its executors. The
// operator's webhook, a separate process, sets on pods what spark-submit has no settings for, such as tolerations and GPUs.
var spark = definition{
	name:      "spark",
	kinds:     []string{"SparkApplication"},
	module:    "github.com/kubeflow/spark-operator/v2",
	version:   "v2.5.1",
	sum:       "h1:7E1iz79b5p8fEcn2zr/yJ/T3kuZtJJqj+DPvvGV3WjA=",
	command:   "./cmd/operator",
	manifests: []string{sparkCRDs, sparkWebhooks},
	namespace: "spark-operator",
	components: []component{
		{name: standin.SparkDrivers, isStandIn: true, settings: func(_ built, p cluster.Place) (cluster.Settings, error) {
			return cluster.Settings{
				Args:  []string{"--kubeconfig=" + p.Kubeconfig, "--listen=" + p.Health},
				Probe: "http://" + p.Health + "/healthz",
			}, nil
		}},
		{name: "spark-webhook", settings: sparkWebhook},
		{name: "spark", settings: sparkOperator},
	},
}

func sparkOperator(b built, p cluster.Place) (cluster.Settings, error) {
	objects, err := b.objects(sparkCRDs)
	if err != nil {
		return cluster.Settings{}, err
	}
	server, err := url.Parse(p.Server)
	return cluster.Settings{
		Args: []string{
			"controller", "start", "--kubeconfig=" + p.Kubeconfig, "--namespaces=", "--health-probe-bind-address=" + p.Health,
			"--enable-ui-service=false", "--kube-api-qps=200", "--kube-api-burst=400",
		},
		Env: []string{
			"SPARK_HOME=" + filepath.Join(p.Dir, "spark"),
			"KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" + server.Port(),
		},
		Files: map[string]string{
			"spark/bin/spark-submit": fmt.Sprintf("#!/bin/sh\nexec '%s' %s %s --kubeconfig='%s' -- \"$@\"\n", p.Binary, cluster.ComponentCommand,
				standin.SparkSubmit, p.Kubeconfig),
		},
		Objects: objects,
		Probe:   ready(p),
	}, err
}

// sparkWebhook makes a certificate of its own, which is good for localhost, and writes its authority into the webhook
// configurations.
func sparkWebhook(b built, p cluster.Place) (cluster.Settings, error) {
	objects, err := b.webhooks(sparkWebhooks, sparkPrefix, p)
	if err != nil {
		return cluster.Settings{}, err
	}
	return cluster.Settings{
		Args: []string{
			"webhook", "start", "--kubeconfig=" + p.Kubeconfig, "--namespaces=", "--health-probe-bind-address=" + p.Health,
			"--webhook-port=" + port(p.Webhook), "--webhook-cert-dir=" + filepath.Join(p.Dir, "own-certificates"),
			"--mutating-webhook-name=" + sparkPrefix + "mutating-webhook-configuration",
			"--validating-webhook-name=" + sparkPrefix + "validating-webhook-configuration",
			"--webhook-secret-namespace=spark-operator", "--webhook-svc-namespace=spark-operator",
		},
		Objects: objects,
		Probe:   ready(p),
	}, forPodsOf("sparkoperator.k8s.io/launched-by-spark-operator", objects)
}

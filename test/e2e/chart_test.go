package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
)

// helmVariable names Helm.
const helmVariable = "MUSTER_HELM_BIN"

// byChart has the shared cluster run on what the charts install.
var byChart = flag.Bool("chart", false,
	"run the shared cluster on what the charts install and with their settings; needs "+helmVariable)

// charted is a whole cluster of what the charts install, apart from the pods of Muster: those
// would run as simulated ones.
func charted() (c cluster.Config, err error) {
	namespace := &unstructured.Unstructured{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	namespace.SetName(deploy.Namespace)
	objects, settings := []*unstructured.Unstructured{namespace}, ""
	for chart, values := range map[string]string{"muster-crds": "kwok=true", "muster": "kwok.enabled=true,dashboard.enabled=true"} {
		cmd := exec.Command(os.Getenv(helmVariable), "template", "muster", "../../deploy/charts/"+chart, "--namespace", deploy.Namespace,
			"--kube-version", "1.36", "--set", values)
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			return c, fmt.Errorf("%s (set %s): %w", cmd, helmVariable, err)
		}
		all, err := deploy.Decode(text)
		if err != nil {
			return c, err
		}
		for _, o := range all {
			if o.GetKind() == "ConfigMap" && o.GetName() == "muster" {
				if settings, _, err = unstructured.NestedString(o.Object, "data", "muster.yaml"); err != nil {
					return c, err
				}
			}
		}
		objects = append(objects,
			slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool { return o.GetLabels()["app.kubernetes.io/instance"] != "" })...)
	}
	if settings == "" {
		return c, fmt.Errorf("the chart has no settings")
	}
	c.Progress = os.Stderr
	sandbox.FillBy(&c, []byte(settings), objects)
	sandbox.AddCloudsOf(&c, clouds)
	return c, nil
}

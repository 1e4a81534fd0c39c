package cluster

import (
	"os/exec"
	"strings"
	"testing"
)

// Tests import this package. With one of these among its dependencies, each of them would compile Kubernetes.
func TestThisPackageStaysLight(t *testing.T) {
	forbidden := map[string]string{
		"k8s.io/kubernetes/":     "the control plane belongs in kwok/cluster/components",
		"k8s.io/apiserver/":      "the control plane belongs in kwok/cluster/components",
		"k8s.io/kubectl/":        "kubectl belongs in cmd/muster-sandbox",
		"go.etcd.io/etcd/":       "etcd belongs in kwok/cluster/components",
		"sigs.k8s.io/kwok/":      "KWOK belongs in kwok/cluster/components",
		"github.com/spf13/cobra": "commands belong in cmd/muster-sandbox",
		"github.com/muster-dev/muster/kwok/cluster/components": "the children are other processes",
	}
	output, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("listing the dependencies: %v", err)
	}
	for dependency := range strings.FieldsSeq(string(output)) {
		for prefix, why := range forbidden {
			if strings.HasPrefix(dependency+"/", prefix) {
				t.Errorf("this package depends on %s: %s", dependency, why)
			}
		}
	}
}

// Package apiserver runs an etcd and a kube-apiserver for one test.
package apiserver

import (
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/kwok/cluster"
)

// Start returns the configuration of clients of an API server, for clusters named by what they are
// tested for, and the sandbox's binary. The server ends with the test.
func Start(t *testing.T, name string) (config *rest.Config, binary string) {
	t.Helper()
	if binary = os.Getenv("MUSTER_SANDBOX_BIN"); binary == "" {
		t.Skip("MUSTER_SANDBOX_BIN does not name a sandbox's binary: run `make test`, which builds it")
	}
	c, err := cluster.Start(t.Context(), cluster.Config{
		Name: fmt.Sprintf("%s-%d", name, os.Getpid()), Binary: binary, Progress: t.Output(),
		Registry: cluster.NewRegistry(t.TempDir()), Only: []string{cluster.Etcd, cluster.APIServer},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	config = c.RESTConfig()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	return config, binary
}

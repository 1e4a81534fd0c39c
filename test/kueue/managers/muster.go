package managers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/test/testbed"
)

// NewMuster is Muster's admitter alone, as Kueue's manager is one, with the text of
// its configuration and with these flags, which come last. Its binary is Muster's own and not the sandbox's, in which
// all of Kubernetes is linked.
func NewMuster(ctx context.Context, server *rest.Config, binary, dir, settings string, flags ...string) (*Manager, error) {
	ports, err := testbed.FreePorts(1)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "muster.yaml")
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		return nil, err
	}
	return newManager(ctx, server, Manager{
		name: "muster", dir: dir, namespace: deploy.Namespace, account: deploy.ServiceAccount, health: ports[0],
		command: append([]string{
			binary, "--config=" + config, "--provisioning=false", "--leader-elect=false", "--metrics-bind-address=0",
			fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", ports[0]),
		}, flags...),
	})
}

// NewDispatcher is muster dispatcher, with its account and what it reads in the namespace.
func NewDispatcher(ctx context.Context, server *rest.Config, binary, dir, namespace string, flags ...string) (*Manager, error) {
	ports, err := testbed.FreePorts(2)
	if err != nil {
		return nil, err
	}
	return newManager(ctx, server, Manager{
		name: "dispatcher", dir: dir, namespace: namespace, account: "muster-dispatcher", health: ports[0], metrics: ports[1],
		command: append([]string{
			binary, "dispatcher", fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", ports[0]),
			fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", ports[1]), "--namespace=" + namespace,
		}, flags...),
	})
}

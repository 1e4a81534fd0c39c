package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/test/invariants"
)

// Cluster is a running sandbox, its administrator's client, and the watch over Muster's
// promises in it.
type Cluster struct {
	*cluster.Cluster
	Kube    client.WithWatch
	Watcher *invariants.Watcher
}

// Start starts a sandbox named after what it is for and the process of the tests. Its
// promises are not watched before Watch.
func Start(ctx context.Context, purpose string, c cluster.Config) (*Cluster, error) {
	c.Name, c.Binary = fmt.Sprintf("%s-%d", purpose, os.Getpid()), os.Getenv(SandboxVariable)
	running, err := cluster.Start(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("starting the sandbox: %w", err)
	}
	out, err := reach(running)
	if err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return out, nil
}

func reach(running *cluster.Cluster) (_ *Cluster, err error) {
	out := &Cluster{Cluster: running}
	out.Kube, err = out.As(nil)
	return out, err
}

// The clients of controller-runtime complain after half a minute where no logger is set.
func init() { log.SetLogger(logr.Discard()) }

// As is a client of the cluster that acts as another user; nil means the administrator.
func (c *Cluster) As(user *rest.ImpersonationConfig) (client.WithWatch, error) {
	scheme, err := app.NewScheme()
	if err != nil {
		return nil, err
	}
	config := c.RESTConfig()
	if user != nil {
		config.Impersonate = *user
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// Watch begins to watch the promises.
func (c *Cluster) Watch(ctx context.Context, changes ...func(*invariants.Options)) (err error) {
	c.Watcher, err = invariants.Watch(ctx, c.RESTConfig(), changes...)
	return err
}

// Stop stops the sandbox. It returns an error if Muster's logs show a defect, see Defect.
func (c *Cluster) Stop(ctx context.Context) error {
	return errors.Join(Defect(c.Logs(cluster.Muster), c.Logs(cluster.Standby)), c.Cluster.Stop(ctx))
}

// Defect is an error that has the first sign of a defect in one of the logs, nil if there is none: a panic, or a write that the API
// server refuses as invalid. A reconciler goes on after each, and the object that it was about stays as it is. A log that does not
// exist has none.
func Defect(logs ...string) error {
	const before, after = 500, 4 << 10
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, sign := range []string{"Observed a panic", "is invalid: "} {
			if at := bytes.Index(text, []byte(sign)); at >= 0 {
				return fmt.Errorf("%s tells of a defect:\n%s", path, text[max(0, at-before):min(len(text), at+after)])
			}
		}
	}
	return nil
}

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

// Stop ends the sandbox. That Muster has panicked in it is an error: a reconciler goes on after that, and the object that it was
// about stays as it is.
func (c *Cluster) Stop(ctx context.Context) error {
	return errors.Join(Panic(c.Logs(cluster.Muster), c.Logs(cluster.Standby)), c.Cluster.Stop(ctx))
}

// Panic is an error that has the first panic in one of the logs, nil if there is none. A log that does not exist has none.
func Panic(logs ...string) error {
	const most = 4 << 10
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if at := bytes.Index(text, []byte("Observed a panic")); at >= 0 {
			return fmt.Errorf("%s tells of a panic:\n%s", path, text[at:min(len(text), at+most)])
		}
	}
	return nil
}

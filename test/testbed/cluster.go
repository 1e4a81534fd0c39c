package testbed

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/test/invariants"
	"github.com/muster-dev/muster/test/invariants/promises"
)

// The variables that name the programs that tests run; `make test` builds and sets them.
const (
	SandboxVariable = "MUSTER_SANDBOX_BIN"
	KueueVariable   = "MUSTER_KUEUE_BIN"
)

// Cluster is a running sandbox, its administrator's client, and the watch over Muster's
// promises in it.
type Cluster struct {
	*cluster.Cluster
	Kube    client.WithWatch
	Watcher *invariants.Watcher
}

// Built reports whether the programs that the variables name have been built, and
// prints a line if the package is skipped for want of one.
func Built(variables ...string) bool {
	for _, v := range variables {
		if os.Getenv(v) == "" {
			fmt.Printf("SKIP: %s does not name a program: run `make test`, which builds it\n", v) //nolint:forbidigo // a test's own output
			return false
		}
	}
	return true
}

// Start starts a sandbox named after what it is for and the process of the tests. Its
// promises are not watched before Watch.
func Start(ctx context.Context, purpose string, c cluster.Config) (*Cluster, error) {
	c.Name, c.Binary = fmt.Sprintf("%s-%d", purpose, os.Getpid()), os.Getenv(SandboxVariable)
	running, err := cluster.Start(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("starting the sandbox: %w", err)
	}
	out := &Cluster{Cluster: running}
	if out.Kube, err = out.As(nil); err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return out, nil
}

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

// Main is what a package's TestMain returns for a run on the cluster, given the exit code
// of its tests: it judges the promises, prints the ends of the logs if anything failed,
// and stops the sandbox. A run of selected tests need not have judged what is needed.
func (c *Cluster) Main(code int, needed []promises.Check, logs ...string) int {
	if flag.Lookup("test.run").Value.String() != "" {
		needed = nil
	}
	c.Watcher.Stop()
	found := &findings{}
	c.Watcher.Check(found, needed...)
	fmt.Fprintln(os.Stderr, "Promises watched:", c.Watcher.Stats())
	if found.failed {
		code = 1
	}
	if code != 0 {
		Tail(append(logs, c.Logs(cluster.Muster))...)
	}
	if err := c.Stop(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the sandbox:", err)
		return 1
	}
	return code
}

// findings prints what the watch finds once all tests are over.
type findings struct{ failed bool }

func (*findings) Helper() {}

func (f *findings) Errorf(format string, args ...any) {
	f.failed = true
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// Tail prints the end of each log.
func Tail(logs ...string) {
	const most = 16 << 10
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		fmt.Fprintf(os.Stderr, "The end of %s:\n%s\n", path, text[max(0, len(text)-most):])
	}
}

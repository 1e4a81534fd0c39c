// Package kueue tests Muster as the provisioner of a stock Kueue: the manager of
// sigs.k8s.io/kueue, unmodified, with the manifests and the rights that it comes
// with, queues Jobs in a sandbox and asks by its admission check for their
// machines; Muster runs its provisioning half alone and knows of Kueue only what
// a ProvisioningRequest says.
//
// `make test` builds both programs; MUSTER_SANDBOX_BIN and MUSTER_KUEUE_BIN name
// them. Every test runs under the watch of test/invariants.
package kueue

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/test/invariants"
	"github.com/muster-dev/muster/test/invariants/promises"
	"github.com/muster-dev/muster/test/kueue/managers"
)

// The variables that name the programs.
const (
	sandboxVariable = "MUSTER_SANDBOX_BIN"
	kueueVariable   = "MUSTER_KUEUE_BIN"
)

// What all tests share.
var (
	kube    client.Client
	running *cluster.Cluster
	stock   *managers.Manager
	watcher *invariants.Watcher
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	for _, variable := range []string{sandboxVariable, kueueVariable} {
		if os.Getenv(variable) == "" {
			fmt.Printf("SKIP: %s does not name a program: run `make test`, which builds the sandbox and a stock Kueue\n", variable) //nolint:forbidigo // a test's own output
			return 0
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "muster-kueue-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := end(dir); err != nil {
			fmt.Fprintln(os.Stderr, "ending:", err)
			code = 1
		}
	}()
	if err := start(ctx, dir); err != nil {
		fmt.Fprintln(os.Stderr, "starting:", err)
		return 1
	}
	code = m.Run()
	watcher.Stop()
	report := &report{}
	watcher.Check(report, needed()...)
	fmt.Fprintln(os.Stderr, "Promises watched:", watcher.Stats())
	if report.failed {
		code = 1
	}
	if code != 0 {
		managers.Tail(running.Logs(cluster.Muster))
		managers.Tail(stock.Log())
	}
	return code
}

// end ends all that was started.
func end(dir string) error {
	stock.Stop()
	var err error
	if running != nil {
		err = running.Stop(context.Background())
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// needed are the checks that a full run must have had something to judge by. A
// run of selected tests need not.
func needed() []promises.Check {
	if flag.Lookup("test.run").Value.String() != "" {
		return nil
	}
	return []promises.Check{
		promises.BoundPods, promises.CreatedPods, promises.Provisions, promises.Launches, promises.RollBacks, promises.GivenBack,
		promises.Bookings, promises.Consumed, promises.Departures, promises.Reservations, promises.PendingRequests, promises.ReservedWorkloads,
	}
}

// report prints what the watcher finds once all tests are over.
type report struct{ failed bool }

func (*report) Helper() {}

func (r *report) Errorf(format string, args ...any) {
	r.failed = true
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// settings are Kueue's beside what it needs to run here: it waits seconds for pods
// where the default is half an hour.
const settings = `waitForPodsReady:
  timeout: 12s
  recoveryTimeout: 6s
  requeuingStrategy: {backoffBaseSeconds: 1}
`

// start starts a cluster with Kueue, whose files are in dir.
func start(ctx context.Context, dir string) error {
	k, err := managers.NewKueue(managers.Kueue{Binary: os.Getenv(kueueVariable), Sandbox: os.Getenv(sandboxVariable), Dir: dir, Settings: settings})
	if err != nil {
		return err
	}
	published, err := k.Manifests(ctx)
	if err != nil {
		return err
	}
	c := cluster.Config{Name: fmt.Sprintf("kueue-%d", os.Getpid()), Binary: os.Getenv(sandboxVariable), Progress: os.Stderr}
	sandbox.FillHalf(&c, deploy.Provisioning)
	ours := c.Manifests
	c.Manifests = func() ([]*unstructured.Unstructured, error) {
		objects, err := ours()
		return append(objects, published...), err
	}
	if running, err = cluster.Start(ctx, c); err != nil {
		return err
	}
	scheme, err := app.NewScheme()
	if err != nil {
		return err
	}
	if kube, err = client.New(running.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if stock, err = k.Manager(ctx, running.RESTConfig()); err != nil {
		return err
	}
	if err := stock.Start(ctx); err != nil {
		return err
	}
	// Last, since Kueue writes its certificate into its CRDs, which ends all watches of their objects.
	watcher, err = invariants.Watch(ctx, running.RESTConfig())
	return err
}

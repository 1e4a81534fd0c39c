// Package e2e tests Muster whole, on a real cluster: real etcd, kube-apiserver,
// kube-scheduler and kube-controller-manager, machines simulated by KWOK, and
// muster with the rights that deploy/ gives it. All of it runs in one sandbox,
// which `make build` builds and MUSTER_SANDBOX_BIN names, and every test runs
// under the watch of test/invariants.
package e2e

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/test/invariants"
	"github.com/muster-dev/muster/test/invariants/promises"
)

// binaryVariable names the sandbox's binary.
const binaryVariable = "MUSTER_SANDBOX_BIN"

//go:embed testdata/clouds.yaml
var clouds []byte

// What all tests share.
var (
	kube    client.Client
	running *cluster.Cluster
	watcher *invariants.Watcher
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		fmt.Printf("SKIP: %s does not name a sandbox's binary: run `make test`, which builds it\n", binaryVariable) //nolint:forbidigo // a test's own output
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, binary); err != nil {
		fmt.Fprintln(os.Stderr, "starting the sandbox:", err)
		return 1
	}
	// Parallel tests mostly wait, so more of them run than there are cores.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	watcher.Stop()
	report := &report{}
	watcher.Check(report, needed()...)
	fmt.Fprintln(os.Stderr, "Promises watched:", watcher.Stats())
	if report.failed {
		code = 1
	}
	if code != 0 {
		tail(running.Logs(cluster.Muster))
	}
	if err := running.Stop(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the sandbox:", err)
		return 1
	}
	return code
}

// needed are the checks that a full run must have had something to judge by. A
// run of selected tests need not.
func needed() []promises.Check {
	if flag.Lookup("test.run").Value.String() != "" {
		return nil
	}
	return []promises.Check{
		promises.BoundPods, promises.CreatedPods, promises.Provisions, promises.Launches, promises.RollBacks, promises.GivenBack,
		promises.Bookings, promises.Consumed, promises.Departures, promises.Reservations, promises.RunningJobs, promises.PendingWorkloads, promises.PendingRequests,
	}
}

// report prints what the watcher finds once all tests are over.
type report struct{ failed bool }

func (*report) Helper() {}

func (r *report) Errorf(format string, args ...any) {
	r.failed = true
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func start(ctx context.Context, binary string) (err error) {
	c := cluster.Config{Name: fmt.Sprintf("e2e-%d", os.Getpid()), Binary: binary, Progress: os.Stderr}
	sandbox.Fill(&c)
	sandbox.AddCloudsOf(&c, clouds)
	if running, err = cluster.Start(ctx, c); err != nil {
		return err
	}
	config := running.RESTConfig()
	scheme, err := app.NewScheme()
	if err != nil {
		return err
	}
	if kube, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	watcher, err = invariants.Watch(ctx, config)
	return err
}

// tail prints the end of a log.
func tail(path string) {
	const most = 16 << 10
	text, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Fprintf(os.Stderr, "The end of %s:\n%s\n", path, text[max(0, len(text)-most):])
}

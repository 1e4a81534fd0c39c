// Package queues tests Muster in Kueue's place: those who queued their jobs with
// Kueue go on with the same kueuectl, the same YAML and the same outcome, at no
// more cost to the API server.
//
// `make test` builds the programs, which MUSTER_SANDBOX_BIN and
// MUSTER_KUEUECTL_BIN name. Every test runs under the watch of test/invariants.
package queues

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/test/invariants"
	"github.com/muster-dev/muster/test/kueue/managers"
)

// sandboxVariable names the sandbox's program.
const sandboxVariable = "MUSTER_SANDBOX_BIN"

// What all tests share.
var (
	kube    client.WithWatch
	running *cluster.Cluster
	watcher *invariants.Watcher
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	if os.Getenv(sandboxVariable) == "" {
		fmt.Printf("SKIP: %s does not name a program: run `make test`, which builds the sandbox\n", sandboxVariable) //nolint:forbidigo // a test's own output
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer func() {
		if running == nil {
			return
		}
		if err := running.Stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the sandbox:", err)
			code = 1
		}
	}()
	dir, err := os.MkdirTemp("", "muster-queues-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := start(ctx, dir); err != nil {
		fmt.Fprintln(os.Stderr, "starting the sandbox:", err)
		return 1
	}
	code = m.Run()
	watcher.Stop()
	report := &report{}
	watcher.Check(report)
	fmt.Fprintln(os.Stderr, "Promises watched:", watcher.Stats())
	if report.failed {
		code = 1
	}
	if code != 0 {
		managers.Tail(running.Logs(cluster.Muster))
	}
	return code
}

// report prints what the watcher finds once all tests are over.
type report struct{ failed bool }

func (*report) Helper() {}

func (r *report) Errorf(format string, args ...any) {
	r.failed = true
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// settings are those that a sample needs.
const settings = `apiVersion: config.muster.dev/v1alpha1
kind: Configuration
queueing:
  fairSharing: {}
`

// start starts a cluster, whose files are in dir.
func start(ctx context.Context, dir string) error {
	file := filepath.Join(dir, "muster.yaml")
	err := os.WriteFile(file, []byte(settings), 0o600)
	if err != nil {
		return err
	}
	c := cluster.Config{Name: fmt.Sprintf("queues-%d", os.Getpid()), Binary: os.Getenv(sandboxVariable), Progress: os.Stderr, Audit: true}
	sandbox.Fill(&c)
	c.MusterFlags = append(c.MusterFlags, "--config="+file)
	if running, err = cluster.Start(ctx, c); err != nil {
		return err
	}
	scheme, err := app.NewScheme()
	if err != nil {
		return err
	}
	if kube, err = client.NewWithWatch(running.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err := kube.Create(ctx, machine()); err != nil {
		return err
	}
	watcher, err = invariants.Watch(ctx, running.RESTConfig())
	return err
}

// machine has room for all that the queues let in at once: here quota alone
// decides.
func machine() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "machine", Labels: map[string]string{corev1.LabelOSStable: "linux"}, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}}}
	n.Status.Capacity = corev1.ResourceList{
		"cpu": resource.MustParse("10k"), "memory": resource.MustParse("100Ti"), "pods": resource.MustParse("10k"),
	}
	n.Status.Allocatable = n.Status.Capacity
	return n
}

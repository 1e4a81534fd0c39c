// Package operators tests the controllers of other projects that a sandbox can run:
// each of deploy/samples/kinds is held without a pod while it is suspended, runs when it
// is resumed, and ends. Muster does not run: what is tested is the ground that tests of
// its kinds of jobs stand on.
//
// MUSTER_OPERATORS lists the operators, or is "all"; without it the tests are skipped.
// `make operators` sets it.
package operators

import (
	"context"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/operators"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/test/testbed"
)

// shared is a cluster with all operators that are wanted: they must get along, too.
var shared *testbed.Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	wanted := testbed.WantedOperators()
	for _, v := range []string{testbed.SandboxVariable, testbed.OperatorsVariable} {
		if os.Getenv(v) == "" {
			fmt.Printf("SKIP: %s is not set: run `make operators`\n", v) //nolint:forbidigo // a test's own output
			return 0
		}
	}
	if err := start(context.Background(), wanted); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if code != 0 {
		for _, name := range wanted {
			testbed.Tail(shared.Logs(name))
		}
	}
	if err := shared.Stop(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func start(ctx context.Context, wanted []string) error {
	config := cluster.Config{
		Only:     []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kwok},
		Progress: os.Stderr,
	}
	sandbox.FillHalf(&config, deploy.Provisioning)
	if err := operators.Add(ctx, &config, os.Stderr, wanted...); err != nil {
		return err
	}
	var err error
	if shared, err = testbed.Start(ctx, "operators", config); err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}}}
	node.Status.Capacity = corev1.ResourceList{
		"cpu": resource.MustParse("1k"), "memory": resource.MustParse("10Ti"), "pods": resource.MustParse("1k"),
		testbed.GPU: resource.MustParse("512"),
	}
	node.Status.Allocatable = node.Status.Capacity
	return shared.Kube.Create(ctx, node)
}

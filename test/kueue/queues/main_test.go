// Package queues tests Muster in Kueue's place: users of Kueue go on with the same
// kueuectl, the same YAML and the same outcome, at no more cost to the API server.
//
// `make test-more` builds the programs, which MUSTER_SANDBOX_BIN and
// MUSTER_KUEUECTL_BIN name. Every test runs under the watch of test/invariants.
package queues

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/test/testbed"
)

// shared is the cluster of all tests.
var shared *testbed.Cluster

func TestMain(m *testing.M) {
	os.Exit(testbed.Suite{Parallel: 4, Programs: []string{testbed.SandboxVariable}, Start: start}.Run(m))
}

// settings are the settings that a sample needs, and the host that notifications may go to.
const settings = `apiVersion: config.muster.dev/v1alpha1
kind: Configuration
queueing:
  fairSharing: {}
notifications:
  allowedHosts: [%q]
`

func start(ctx context.Context, _ string) (_ *testbed.Cluster, err error) {
	if webhooks, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	c := cluster.Config{Progress: os.Stderr, Audit: true, Settings: fmt.Appendf(nil, settings, webhooks.Addr())}
	sandbox.Fill(&c)
	if shared, err = testbed.Start(ctx, "queues", c); err != nil {
		return nil, err
	}
	if err := shared.Kube.Create(ctx, machine()); err != nil {
		return shared, err
	}
	return shared, shared.Watch(ctx)
}

// machine has room for all that the queues let in at once: here quota alone
// decides.
func machine() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "machine", Labels: map[string]string{corev1.LabelOSStable: "linux"},
		Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}}}
	n.Status.Capacity = corev1.ResourceList{
		"cpu": resource.MustParse("10k"), "memory": resource.MustParse("100Ti"), "pods": resource.MustParse("10k"),
	}
	n.Status.Allocatable = n.Status.Capacity
	return n
}

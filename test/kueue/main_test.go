// Package kueue tests Muster as the provisioner of a stock Kueue: the manager of sigs.k8s.io/kueue, unmodified, with its own manifests
// and permissions, queues Jobs in a sandbox and creates ProvisioningRequests by its admission check. Muster runs only its provisioning
// half, and reads nothing of Kueue but the ProvisioningRequests.
//
// `make test-more` builds both programs; MUSTER_SANDBOX_BIN and MUSTER_KUEUE_BIN name them. test/invariants watches every test.
package kueue

import (
	"context"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/test/invariants"
	"github.com/muster-dev/muster/test/invariants/promises"
	"github.com/muster-dev/muster/test/kueue/managers"
	"github.com/muster-dev/muster/test/testbed"
)

var (
	// shared is the cluster of all tests.
	shared *testbed.Cluster
	stock  *managers.Manager
)

func TestMain(m *testing.M) {
	os.Exit(testbed.Suite{
		Programs: []string{testbed.SandboxVariable, testbed.KueueVariable},
		Start:    start,
		Stop: func() string {
			stock.Stop()
			return stock.Log()
		},
		Needed: []promises.Check{
			promises.BoundPods, promises.BoundInDomain, promises.CreatedPods, promises.Provisions, promises.ProvisionsInDomain, promises.Launches, promises.RollBacks, promises.ScaledDown,
			promises.Bookings, promises.Consumed, promises.Departures, promises.Reservations, promises.PendingRequests, promises.ReservedWorkloads,
		},
	}.Run(m))
}

// settings are Kueue's beside what it needs to run here: it waits seconds for pods
// where the default is half an hour.
const settings = `waitForPodsReady:
  timeout: 12s
  recoveryTimeout: 8s
  requeuingStrategy: {backoffBaseSeconds: 1}
`

// start starts a cluster with Kueue, whose files are in dir.
func start(ctx context.Context, dir string) (*testbed.Cluster, error) {
	k, err := managers.NewKueue(managers.Kueue{Binary: os.Getenv(testbed.KueueVariable), Sandbox: os.Getenv(testbed.SandboxVariable),
		Dir: dir, Settings: settings})
	if err != nil {
		return nil, err
	}
	published, err := k.Manifests(ctx)
	if err != nil {
		return nil, err
	}
	c := cluster.Config{Progress: os.Stderr}
	sandbox.FillHalf(&c, deploy.Provisioning)
	ours := c.Manifests
	c.Manifests = func() ([]*unstructured.Unstructured, error) {
		objects, err := ours()
		return append(objects, published...), err
	}
	if shared, err = testbed.Start(ctx, "kueue", c); err != nil {
		return nil, err
	}
	if stock, err = k.Manager(ctx, shared.RESTConfig()); err != nil {
		return shared, err
	}
	if err := stock.Start(ctx); err != nil {
		return shared, err
	}
	// Last, since Kueue writes its certificate into its CRDs, which ends all watches of their objects.
	return shared, shared.Watch(ctx, func(o *invariants.Options) {
		// A stock Kueue gives most of the reasons here, with a client of 50 requests a second. How soon is not Muster's to promise.
		o.ExplainBound = 30 * time.Second
	})
}

// Package e2e tests Muster whole, on a real cluster: real etcd, kube-apiserver,
// kube-scheduler and kube-controller-manager, machines simulated by KWOK, and
// muster with the rights that deploy/ gives it. All of it runs in one sandbox,
// which `make build` builds and MUSTER_SANDBOX_BIN names, and every test runs
// under the watch of test/invariants.
package e2e

import (
	"context"
	_ "embed"
	"os"
	"testing"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/test/invariants/promises"
	"github.com/muster-dev/muster/test/testbed"
)

//go:embed testdata/clouds.yaml
var clouds []byte

// shared is the cluster of all tests that are not alone.
var shared *testbed.Cluster

func TestMain(m *testing.M) {
	os.Exit(testbed.Suite{
		// All of them, since they take turns: see sites.
		Parallel: 100,
		Programs: []string{testbed.SandboxVariable},
		Start: func(ctx context.Context, _ string) (_ *testbed.Cluster, err error) {
			config := withClouds()
			if *byChart {
				if config, err = charted(); err != nil {
					return nil, err
				}
			}
			config.TypeChecking, config.Dashboard = true, true
			if shared, err = testbed.Start(ctx, "e2e", config); err != nil {
				return nil, err
			}
			return shared, shared.Watch(ctx)
		},
		Needed: []promises.Check{
			promises.BoundPods, promises.BoundInDomain, promises.CreatedPods, promises.Provisions, promises.ProvisionsInDomain, promises.Launches, promises.RollBacks, promises.ScaledDown,
			promises.Bookings, promises.Consumed, promises.Departures, promises.Reservations, promises.RunningJobs, promises.PendingWorkloads, promises.PendingRequests,
		},
	}.Run(m))
}

// whole is a cluster with all of Muster.
func whole() cluster.Config {
	c := cluster.Config{Progress: os.Stderr}
	sandbox.Fill(&c)
	return c
}

// withClouds is a whole cluster and the clouds of the tests.
func withClouds() cluster.Config {
	c := whole()
	sandbox.AddCloudsOf(&c, clouds)
	return c
}

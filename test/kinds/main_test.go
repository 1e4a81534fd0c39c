// Package kinds tests that Muster queues jobs of every kind, under the real controllers of
// these kinds: each sample of deploy/samples/kinds is held without a pod until there is
// capacity for all of it, runs, is evicted, is started again on other machines, ends, and
// leaves nothing behind. All of it runs under the watch of test/invariants.
//
// MUSTER_OPERATORS lists the operators, or is "all"; without it the tests are skipped.
// `make operators` sets it.
package kinds

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/operators"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/test/testbed"
)

// shared is a cluster with all operators that are wanted.
var shared *testbed.Cluster

func TestMain(m *testing.M) {
	wanted := testbed.WantedOperators()
	if len(wanted) == 0 {
		fmt.Printf("SKIP: %s is not set: run `make operators`\n", testbed.OperatorsVariable) //nolint:forbidigo // a test's own output
		return
	}
	os.Exit(testbed.Suite{
		Programs: []string{testbed.SandboxVariable},
		Start: func(ctx context.Context, _ string) (*testbed.Cluster, error) {
			c := cluster.Config{Progress: os.Stderr}
			sandbox.Fill(&c)
			err := operators.Add(ctx, &c, os.Stderr, wanted...)
			if err != nil {
				return nil, err
			}
			if shared, err = testbed.Start(ctx, "kinds", c); err != nil {
				return nil, err
			}
			return shared, shared.Watch(ctx)
		},
	}.Run(m))
}

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
)

// upClusters runs a manager and its workers until a signal.
func upClusters(command *cobra.Command, config cluster.Config, workers int) error {
	if workers < 1 || workers > sandbox.MostWorkers {
		return fmt.Errorf("--clusters=%d: give the number of workers, from 1 to %d", workers, sandbox.MostWorkers)
	}
	config.Progress = command.ErrOrStderr()
	fmt.Fprintf(command.ErrOrStderr(), "Starting the sandbox %q: a manager and its workers, one after another\n", config.Name)
	start := func(ctx context.Context) (*cluster.Set, error) {
		return cluster.StartSet(ctx, sandbox.Clusters(config, workers, nil))
	}
	return run(command, start, func(running *cluster.Set) { printUsageOfSet(command, running) })
}

func printUsageOfSet(command *cobra.Command, running *cluster.Set) {
	state := running.State()
	call := callWith(state.Name)
	fmt.Fprintf(command.OutOrStdout(), `
The clusters of the sandbox %q run: %s. To reach them from another terminal:

  %s kubectl --context %s get nodes
  export KUBECONFIG=%s

%s status shows their components; Ctrl-C stops them all.
`, state.Name, strings.Join(running.Contexts(), ", "), call, sandbox.Worker(1), state.Kubeconfig, call)
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/kwok/cluster"
)

func newDownCommand(o *options) *cobra.Command {
	var patience time.Duration
	command := &cobra.Command{
		Use:   "down",
		Short: "Stop a running sandbox",
		Long: `Stop a running sandbox, and return when it is gone. State in --data-dir is kept for the
next start.`,
		Example: `  muster-sandbox down
  muster-sandbox down --name lab

  # At once
  muster-sandbox down --timeout 0`,
		Args: arguments.None,
		RunE: func(command *cobra.Command, _ []string) error {
			registry, err := cluster.DefaultRegistry()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(command.Context(), patience)
			defer cancel()
			if err := registry.StopRunning(ctx, o.name); err != nil {
				return err
			}
			fmt.Fprintf(command.OutOrStdout(), "The sandbox %q is stopped\n", o.name)
			return nil
		},
	}
	command.Flags().DurationVar(&patience, "timeout", time.Minute, "time after which it is killed")
	return command
}

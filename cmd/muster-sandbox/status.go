package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/kwok/cluster"
)

func newStatusCommand(o *options) *cobra.Command {
	var all, asJSON bool
	command := &cobra.Command{
		Use:   "status",
		Short: "Show the components of a running sandbox",
		Long: `List the components of a running sandbox: process, number of restarts, resident memory
(including the program's pages, which all components share), and readiness.

The exit code is 1 if the sandbox is not running or a component is not ready.`,
		Example: `  muster-sandbox status
  muster-sandbox status --all
  muster-sandbox status --name lab --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if all {
				return listAll(command.OutOrStdout())
			}
			state, err := o.find()
			if err != nil {
				return err
			}
			statuses := state.Measure(command.Context())
			if asJSON {
				err = writeJSON(command.OutOrStdout(), state, statuses)
			} else {
				err = writeTable(command.OutOrStdout(), state, statuses)
			}
			if err != nil {
				return err
			}
			for _, status := range statuses {
				if !status.Ready {
					return exitCode(1)
				}
			}
			return nil
		},
	}
	command.Flags().BoolVar(&all, "all", false, "list all running sandboxes instead")
	command.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	command.MarkFlagsMutuallyExclusive("all", "json")
	return command
}

func listAll(out io.Writer) error {
	registry, err := cluster.DefaultRegistry()
	if err != nil {
		return err
	}
	states, err := registry.List()
	if err != nil {
		return err
	}
	if len(states) == 0 {
		return errors.New("no sandbox is running: start one with `muster-sandbox up`")
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tPID\tSERVER\tAGE\tFILES")
	for _, state := range states {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\n", state.Name, state.PID, state.Server, age(state), state.Dir)
	}
	return table.Flush()
}

func writeTable(out io.Writer, state cluster.State, statuses []cluster.ComponentStatus) error {
	stage := "up"
	if !state.Ready {
		stage = "starting"
	}
	fmt.Fprintf(out, "Sandbox %q, process %d, %s for %s, %s\n", state.Name, state.PID, stage, age(state), state.Server)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tPID\tSTATE\tRESTARTS\tMEMORY\tREADY")
	for _, status := range statuses {
		pid, memory, ready := "-", "-", "no"
		if status.PID != 0 {
			pid = strconv.Itoa(status.PID)
			memory = fmt.Sprintf("%d MiB", status.MemoryBytes>>20)
		}
		if status.Ready {
			ready = "yes"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", status.Name, pid, status.Phase, status.Restarts, memory, ready)
	}
	return table.Flush()
}

func writeJSON(out io.Writer, state cluster.State, statuses []cluster.ComponentStatus) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		cluster.State
		Components []cluster.ComponentStatus `json:"components"`
	}{state, statuses})
}

func age(state cluster.State) time.Duration { return time.Since(state.Started).Round(time.Second) }

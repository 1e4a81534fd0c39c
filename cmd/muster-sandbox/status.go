package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/kwok/cluster"
)

func newStatusCommand(o *options) *cobra.Command {
	var all, asJSON bool
	command := &cobra.Command{
		Use:   "status",
		Short: "Show the components of a running sandbox",
		Long: `List the components of a running sandbox: process, number of restarts, resident memory
(including the program's pages, which all components share), and readiness. Of several
clusters that run as one sandbox all are shown.

The exit code is 1 if the sandbox is not running or a component is not ready.`,
		Example: `  muster-sandbox status
  muster-sandbox status --all
  muster-sandbox status --name lab --json`,
		Args: arguments.None,
		RunE: func(command *cobra.Command, _ []string) error {
			if all {
				return listAll(command.OutOrStdout())
			}
			state, err := o.find()
			if err != nil {
				return err
			}
			clusters, err := measure(command.Context(), state)
			if err != nil {
				return err
			}
			write := writeTables
			if asJSON {
				write = writeJSON
			}
			if err := write(command.OutOrStdout(), state, clusters); err != nil {
				return err
			}
			if !allReady(state, clusters) {
				return exitCode(1)
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

// measured is a cluster, and what its components say of themselves just now.
type measured struct {
	cluster.State
	Components []cluster.ComponentStatus `json:"components"`
}

// measure asks the components of a sandbox, which has one cluster or several.
func measure(ctx context.Context, state cluster.State) ([]measured, error) {
	registry, err := cluster.DefaultRegistry()
	if err != nil {
		return nil, err
	}
	members, err := registry.Members(state)
	if err != nil {
		return nil, err
	}
	var out []measured
	for _, member := range members {
		out = append(out, measured{member, member.Measure(ctx)})
	}
	return out, nil
}

// allReady reports whether all components of all clusters serve.
func allReady(state cluster.State, clusters []measured) bool {
	for _, c := range clusters {
		if slices.ContainsFunc(c.Components, func(s cluster.ComponentStatus) bool { return !s.Ready }) {
			return false
		}
	}
	return len(clusters) >= len(state.Clusters)
}

func writeTables(out io.Writer, state cluster.State, clusters []measured) error {
	if len(state.Clusters) > 0 {
		fmt.Fprintf(out, "Sandbox %q of %d clusters, process %d, %s for %s\n", state.Name, len(state.Clusters), state.PID,
			stage(state), age(state))
	}
	for _, c := range clusters {
		if len(state.Clusters) > 0 {
			fmt.Fprintln(out)
		}
		if err := writeTable(out, c); err != nil {
			return err
		}
	}
	return nil
}

func stage(state cluster.State) string {
	if state.Ready {
		return "up"
	}
	return "starting"
}

func writeTable(out io.Writer, c measured) error {
	fmt.Fprintf(out, "Sandbox %q, process %d, %s for %s, %s\n", c.Name, c.PID, stage(c.State), age(c.State), c.Server)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tPID\tSTATE\tRESTARTS\tMEMORY\tREADY")
	for _, status := range c.Components {
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

// writeJSON writes the state of a sandbox; that of several clusters has theirs in it.
func writeJSON(out io.Writer, state cluster.State, clusters []measured) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if len(state.Clusters) == 0 {
		return encoder.Encode(clusters[0])
	}
	return encoder.Encode(struct {
		cluster.State
		Clusters []measured `json:"clusters"`
	}{state, clusters})
}

func age(state cluster.State) time.Duration { return time.Since(state.Started).Round(time.Second) }

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/kwok/cluster"
)

func newLogsCommand(o *options) *cobra.Command {
	var follow bool
	command := &cobra.Command{
		Use:   "logs COMPONENT",
		Short: "Print the log of a component",
		Long: `Print the log of a component since the start of the sandbox. A component that restarts
continues in the same log.`,
		Example: `  muster-sandbox logs muster
  muster-sandbox logs -f kube-scheduler`,
		Args: arguments.These("the name of a component, as `muster-sandbox status` lists them,"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			state, err := o.find()
			if err != nil {
				return cluster.ComponentNames(), cobra.ShellCompDirectiveNoFileComp
			}
			return componentNames(state), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(command *cobra.Command, args []string) error {
			state, err := o.find()
			if err != nil {
				return err
			}
			path, err := logOf(state, args[0])
			if err != nil {
				return err
			}
			more := func() bool {
				_, err := o.find()
				return follow && err == nil
			}
			return printLog(command.OutOrStdout(), path, more)
		},
	}
	command.Flags().BoolVarP(&follow, "follow", "f", false, "follow the log until Ctrl-C or the sandbox's end")
	return command
}

func logOf(state cluster.State, component string) (string, error) {
	i := slices.IndexFunc(state.Components, func(c cluster.ComponentState) bool { return c.Name == component })
	if i >= 0 {
		return state.Components[i].Log, nil
	}
	if len(state.Clusters) > 0 {
		return "", fmt.Errorf("the sandbox %q has several clusters; choose one with --name: %s", state.Name, strings.Join(state.Clusters, ", "))
	}
	return "", fmt.Errorf("the sandbox %q has no component %q; its components are %s", state.Name, component,
		strings.Join(componentNames(state), ", "))
}

func componentNames(state cluster.State) []string {
	var names []string
	for _, c := range state.Components {
		names = append(names, c.Name)
	}
	return names
}

// printLog copies the log, and what is added to it for as long as there may be more.
func printLog(out io.Writer, path string, more func() bool) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no log at %s: the component has not started yet", path)
	}
	if err != nil {
		return fmt.Errorf("reading the log: %w", err)
	}
	defer file.Close()
	const pause = 200 * time.Millisecond
	for {
		if _, err := io.Copy(out, file); err != nil {
			return fmt.Errorf("copying the log: %w", err)
		}
		if !more() {
			return nil
		}
		time.Sleep(pause)
	}
}

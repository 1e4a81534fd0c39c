package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/kwok/cluster"
)

// nameVariable names the sandbox for all commands of a shell.
const nameVariable = "MUSTER_SANDBOX"

// options are shared by all commands.
type options struct{ name string }

func newRootCommand() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:   "muster-sandbox",
		Short: "A whole Kubernetes cluster with simulated machines, on this machine",
		Long: `muster-sandbox runs a real Kubernetes control plane (etcd, kube-apiserver,
kube-controller-manager, kube-scheduler), simulated machines (KWOK) and muster,
without containers and without further downloads. It listens on 127.0.0.1 only.

Several sandboxes can run under different names. Each command takes the name from
--name, else from $` + nameVariable + `, else it is "` + cluster.DefaultName + `". Running
sandboxes are recorded in the user's cache folder, or in the folder that
$` + cluster.HomeVariable + ` names.`,
		Example: `  # In one terminal: run a cluster until Ctrl-C
  muster-sandbox up

  # In another: use it
  muster-sandbox status
  muster-sandbox kubectl get namespaces`,
		SilenceUsage:  true,
		SilenceErrors: true,
		// Lets --name stand before kubectl, whose own flags begin after its name.
		TraverseChildren: true,
		// A command that runs has its arguments checked: a mistyped name is an error, not a page of help.
		Args: arguments.Of,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	name := os.Getenv(nameVariable)
	if name == "" {
		name = cluster.DefaultName
	}
	root.PersistentFlags().StringVar(&o.name, "name", name, "name of the sandbox; also from $"+nameVariable)
	_ = root.RegisterFlagCompletionFunc("name", completeNames)
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w\nSee `%s --help`", err, command.CommandPath())
	})
	root.AddCommand(
		newUpCommand(o),
		newDemoCommand(o),
		newScenarioCommand(o),
		newDownCommand(o),
		newStatusCommand(o),
		newLogsCommand(o),
		newKubectlCommand(o),
	)
	return root
}

// find returns the running sandbox that the options name.
func (o *options) find() (cluster.State, error) {
	registry, err := cluster.DefaultRegistry()
	if err != nil {
		return cluster.State{}, err
	}
	return registry.Find(o.name)
}

func completeNames(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	registry, err := cluster.DefaultRegistry()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	states, err := registry.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, state := range states {
		names = append(names, state.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/version"
	"github.com/muster-dev/muster/cmd/view"
)

// usage is the help of commands without the flags that all of them take, which the command options lists.
func usage(template string) string {
	for _, flags := range []struct{ shown, otherwise string }{
		{"{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{.LocalNonPersistentFlags.FlagUsages | trimTrailingWhitespaces}}"},
		{"Global Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}",
			"`kubectl muster options` lists the flags of all commands, such as --namespace, --context and --config."},
	} {
		template = strings.ReplaceAll(template, flags.shown, flags.otherwise)
	}
	return template
}

// options are shared by all commands.
type options struct {
	config *genericclioptions.ConfigFlags
	// file is the one that muster takes as its --config; empty if it has none.
	file string
	// contexts of worker clusters by their names.
	contexts map[string]string
	clock    clock.WithTicker
	output   string
	watch    bool
	// kube is the client of the cluster once the command has connected: --watch answers again with it.
	kube client.Client
	// past are the ConfigMaps of the history, which --watch reads each time.
	past view.KeptConfigMaps
	// patience bounds how long a forecast may take; 0 is none.
	patience time.Duration
}

func newConfigFlags() *genericclioptions.ConfigFlags {
	out := genericclioptions.NewConfigFlags(true)
	// Nil takes a flag away; nothing is cached.
	out.CacheDir, out.DisableCompression = nil, nil
	return out
}

func newRootCommand(c clock.WithTicker) *cobra.Command {
	o := &options{config: newConfigFlags(), clock: c}
	root := &cobra.Command{
		Use:   "kubectl-muster",
		Short: "Explain why jobs wait, and show queues, node groups and costs",
		Long: `kubectl muster explains why a job waits and what would unblock it, and shows the queues,
the node groups and their costs.

It reads the cluster with your rights and decides locally, with the same code as Muster.
So it works while Muster is down. If your rights do not suffice for a decision, it shows what
Muster recorded on the object and names the missing rights. Nothing is changed but by the commands
for it, which say first what would follow: add --yes to hold, stop or set-quota, and --apply to migrate.
If Muster runs with a configuration file, pass the same file to --config: settings such
as fair sharing change the order.`,
		Example: `  # Why does the job not start?
  kubectl muster explain job/train

  # List all jobs, then the pending ones in their order
  kubectl muster jobs
  kubectl muster queue

  # Would this job start, where, and at what price?
  kubectl muster simulate -f train.yaml

  # Watch the node groups: prices, sizes, chances of a launch
  kubectl muster capacity --watch

  # Which racks have room, and what runs in the others?
  kubectl muster racks

  # What do the machines cost now, and for which jobs?
  kubectl muster cost`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl muster"},
		SilenceUsage:  true,
		SilenceErrors: true,
		// A command that runs has its arguments checked: a mistyped name is an error, not a page of help.
		Args: arguments.Of,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	o.config.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&o.file, "config", "", "configuration file that muster runs with; empty means the defaults")
	if err := root.MarkPersistentFlagFilename("config"); err != nil {
		panic(err) // the flag is defined above
	}
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w\nSee `%s --help`", err, command.CommandPath())
	})
	root.AddCommand(newExplainCommand(o), newRunCommand(o), newJobsCommand(o), newQueueCommand(o), newCapacityCommand(o), newNodesCommand(o),
		newRacksCommand(o), newClustersCommand(o), newCostCommand(o), newHistoryCommand(o), newSimulateCommand(o),
		newMigrateCommand(o), newUninstallCommand(o))
	root.AddCommand(append(newActionCommands(o), newStopCommand(o), newResumeCommand(o), newSetQuotaCommand(o))...)
	version.AddTo(root)
	root.AddCommand(&cobra.Command{
		Use: "options", Short: "List the flags of all commands, such as --namespace, --context and --config", Args: arguments.None,
		Run: func(command *cobra.Command, _ []string) {
			fmt.Fprintf(command.OutOrStdout(), "Each command takes:\n\n%s", root.PersistentFlags().FlagUsages())
		},
	})
	root.SetUsageTemplate(usage(root.UsageTemplate()))
	return root
}

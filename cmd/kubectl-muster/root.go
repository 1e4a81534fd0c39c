package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/clock"
)

// options are what all commands share.
type options struct {
	config *genericclioptions.ConfigFlags
	// file is that of muster's own flag --config; empty where it has none.
	file   string
	clock  clock.WithTicker
	output string
	watch  bool
}

func newRootCommand(c clock.WithTicker) *cobra.Command {
	o := &options{config: genericclioptions.NewConfigFlags(true), clock: c}
	// Nil takes a flag away; nothing is cached.
	o.config.CacheDir, o.config.DisableCompression = nil, nil
	root := &cobra.Command{
		Use:   "kubectl-muster",
		Short: "Why a job waits, what would unblock it, and what machines can be had",
		Long: `kubectl muster tells why a job waits, what would unblock it, who is in the queues
and what machines can be had.

It reads the cluster with your own rights and decides on this machine, by the
code that Muster itself runs. So it answers while Muster is down, and it changes
nothing. Where you may not read all that a decision needs, it shows what Muster
has written, and names the right that you lack. Where Muster runs with a file of
settings, give the same to --config: fair sharing, for one, changes the order.`,
		Example: `  # Why does it not start?
  kubectl muster explain job/train

  # Who waits in which queue, and for what
  kubectl muster queue

  # Would this job start, where, and at what price
  kubectl muster simulate -f train.yaml

  # What the machines cost, and how likely they come
  kubectl muster capacity --watch

  # Who pays how much for the machines that exist
  kubectl muster cost`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl muster"},
		SilenceUsage:  true,
		SilenceErrors: true,
		// A command that runs has its arguments checked, so that a mistyped name is an error and not a page of help.
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	o.config.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&o.file, "config", "", "file that muster runs with as its own --config; empty means its defaults")
	if err := root.MarkPersistentFlagFilename("config"); err != nil {
		panic(err) // the flag is defined above
	}
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w\nSee `%s --help`", err, command.CommandPath())
	})
	root.AddCommand(newExplainCommand(o), newQueueCommand(o), newCapacityCommand(o), newCostCommand(o), newSimulateCommand(o))
	return root
}

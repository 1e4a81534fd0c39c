package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/demo"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func newDemoCommand(o *options) *cobra.Command {
	keep, cloud := false, ""
	command := &cobra.Command{
		Use:   "demo",
		Short: "Show three short stories on a sandbox, and check Muster's promises",
		Long: `Start a sandbox and show three short stories: a ProvisioningRequest grows a GPU group;
a queued Job waits until all of its machines are there; a spot pool cannot provide all
machines, so none is kept, and the Job starts on another flavor.

Meanwhile Muster's promises are checked against every change in the cluster. The exit
code is 0 only if all were kept.`,
		Example: `  # Takes a minute, and leaves nothing behind
  muster-sandbox demo

  # With machines of a simulated AWS, called through its own API
  muster-sandbox demo --cloud aws

  # Look around afterwards
  muster-sandbox demo --keep`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if !slices.Contains(demoClouds, cloud) {
				return fmt.Errorf("--cloud=%q: use one of %s", cloud, strings.Join(demoClouds, ", "))
			}
			return runDemo(command, o.name, v1alpha1.Provider(cloud), keep)
		},
	}
	command.Flags().BoolVar(&keep, "keep", false, "keep the sandbox running at the end, until Ctrl-C, and print how to reach it")
	command.Flags().StringVar(&cloud, "cloud", demoClouds[0], "`provider` of the machines: "+strings.Join(demoClouds, ", "))
	_ = command.RegisterFlagCompletionFunc("cloud", cobra.FixedCompletions(demoClouds, cobra.ShellCompDirectiveNoFileComp))
	return command
}

// demoClouds are the clouds of the demo, the default first.
var demoClouds = []string{string(v1alpha1.ProviderKwok), string(v1alpha1.ProviderAWS), string(v1alpha1.ProviderGCP)}

func runDemo(command *cobra.Command, name string, cloud v1alpha1.Provider, keep bool) (err error) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	config := cluster.Config{Name: name, Progress: command.ErrOrStderr()}
	sandbox.Fill(&config)
	config.Dashboard = keep
	if cloud != v1alpha1.ProviderKwok {
		sandbox.AddCloudsOf(&config, demo.Clouds)
	}
	fmt.Fprintf(command.ErrOrStderr(), "Starting the sandbox %q: a real cluster on this machine, without containers\n", name)
	running, err := startUnlessSignalled(command.Context(), signals, startOne(config))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(command, running, signals)) }()

	scheme, err := app.NewScheme()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(command.Context())
	defer cancel()
	told := make(chan error, 1)
	go func() {
		told <- demo.Run(ctx, demo.Options{Config: running.RESTConfig(), Scheme: scheme, Out: command.OutOrStdout(), Cloud: cloud,
			Live: isTerminal(command)})
	}()
	select {
	case err = <-told:
	case s := <-signals:
		cancel()
		return errors.Join(fmt.Errorf("interrupted by a signal (%s)", s), <-told)
	}
	if keep {
		printUsage(command, name, running)
		<-signals
	}
	return err
}

func isTerminal(command *cobra.Command) bool {
	file, ok := command.OutOrStdout().(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

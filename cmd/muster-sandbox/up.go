package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
)

func newUpCommand(o *options) *cobra.Command {
	config := cluster.Config{}
	withoutQueueing, withClouds := false, false
	command := &cobra.Command{
		Use:   "up",
		Short: "Start a sandbox and run it until Ctrl-C",
		Long: `Start a sandbox and keep it running until Ctrl-C, SIGTERM, or
` + "`muster-sandbox down`" + `. A second Ctrl-C ends it at once.

Without --data-dir the cluster's state is kept in memory where the machine has
room for that, and is gone at the end. A component that dies is started again.`,
		Example: `  # A cluster that leaves nothing behind
  muster-sandbox up

  # A second one beside it that keeps its state, on a port of your choice
  muster-sandbox up --name lab --data-dir ~/lab --port 6443

  # One whose queues Kueue is to serve, with muster as its provisioner
  muster-sandbox up --without-queueing

  # One with GPU groups of a simulated AWS and Google Cloud, found by Muster as it finds real ones
  muster-sandbox up --clouds

  # Only an API server, such as tests of controllers need
  muster-sandbox up --only etcd,kube-apiserver --kubeconfig /tmp/lab.yaml`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config.Name = o.name
			if withoutQueueing {
				sandbox.FillHalf(&config, deploy.Provisioning)
			} else {
				sandbox.Fill(&config)
			}
			config.Dashboard = true
			if withClouds {
				sandbox.AddClouds(&config)
			}
			return up(command, config)
		},
	}
	flags := command.Flags()
	flags.StringVar(&config.DataDir, "data-dir", "", "keep the cluster's state in this `folder` for the next time (default: a temporary one)")
	flags.IntVar(&config.Port, "port", 0, "`port` of kube-apiserver on 127.0.0.1; 0 picks a free one")
	flags.StringVar(&config.Kubeconfig, "kubeconfig", "", "write the administrator's kubeconfig to this `file` too, while the sandbox runs")
	flags.StringSliceVar(&config.Only, "only", nil, "start just these components, of "+strings.Join(cluster.ComponentNames(), ","))
	flags.BoolVar(&withoutQueueing, "without-queueing", false, "leave the queues to something else, such as Kueue: muster only provisions, and nothing of Kueue's API is installed")
	flags.BoolVar(&withClouds, "clouds", false, "simulate AWS and Google Cloud too, behind their own APIs, with some GPU groups for Muster to find")
	_ = command.MarkFlagDirname("data-dir")
	_ = command.MarkFlagFilename("kubeconfig")
	_ = command.RegisterFlagCompletionFunc("only", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return cluster.ComponentNames(), cobra.ShellCompDirectiveNoFileComp
	})
	return command
}

func up(command *cobra.Command, config cluster.Config) error {
	// Room for two, so that neither of two quick Ctrl-C is lost.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	config.Progress = command.ErrOrStderr()
	fmt.Fprintf(command.ErrOrStderr(), "Starting the sandbox %q\n", config.Name)
	running, err := startUnlessSignalled(command.Context(), config, signals)
	if err != nil {
		return err
	}
	printUsage(command, config.Name, running)

	<-signals
	return stop(command, running, signals)
}

// stop ends the sandbox in good order, or at once on another signal.
func stop(command *cobra.Command, running *cluster.Cluster, signals <-chan os.Signal) error {
	fmt.Fprintln(command.ErrOrStderr(), "Stopping (Ctrl-C again ends it at once)")
	ctx, cancel := context.WithCancel(command.Context())
	defer cancel()
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := running.Stop(ctx); err != nil {
		return err
	}
	fmt.Fprintln(command.ErrOrStderr(), "Stopped")
	return nil
}

// startUnlessSignalled starts the sandbox; a signal before it is ready ends the start, and all that was started.
func startUnlessSignalled(parent context.Context, config cluster.Config, signals <-chan os.Signal) (*cluster.Cluster, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	begun := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case received := <-signals:
			cancel(fmt.Errorf("interrupted by a signal (%s)", received))
		case <-begun:
		}
	}()
	running, err := cluster.Start(ctx, config)
	close(begun)
	<-watched
	if err == nil && ctx.Err() != nil {
		// The signal came in the moment between ready and here.
		return nil, fmt.Errorf("%w: %w", context.Cause(ctx), running.Stop(parent))
	}
	return running, err
}

func printUsage(command *cobra.Command, name string, running *cluster.Cluster) {
	call := "muster-sandbox"
	if name != cluster.DefaultName {
		call += " --name " + name
	}
	fmt.Fprintf(command.OutOrStdout(), `
The sandbox %q runs. To reach it from another terminal:

  %s kubectl get nodes
  export KUBECONFIG=%s

%s status tells how it is; Ctrl-C stops it.
`, name, call, running.Kubeconfig(), call)
	if page := running.DashboardURL(); page != "" {
		fmt.Fprintf(command.OutOrStdout(), "Who waits, what could be had and what it costs: %s\n", page)
	}
}

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

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/operators"
	"github.com/muster-dev/muster/kwok/sandbox"
)

func newUpCommand(o *options) *cobra.Command {
	config := cluster.Config{}
	withoutQueueing, withClouds, settings, workers := false, false, "", 0
	var beside, gates []string
	command := &cobra.Command{
		Use:   "up",
		Short: "Start a sandbox and run it until Ctrl-C",
		Long: `Start a sandbox and keep it running until Ctrl-C, SIGTERM, or
` + "`muster-sandbox down`" + `. A second Ctrl-C ends it at once.

Without --data-dir the cluster's state is kept in memory, if the machine has a file
system there, and is discarded at the end. A component that dies is restarted.

With --clusters N several clusters run as one sandbox: a manager without machines, and
the workers worker-1 to worker-N. "kubectl --context worker-1" reaches one of them. Each
is also a sandbox by its own name: the workers of "lab" are lab-worker-1 and so on, for
status, logs and kubectl with --name.

Operators are the controllers of other projects, unmodified: with --operators they run
beside the control plane, with their CRDs and webhooks. Each is built once on a machine,
which takes Go, the modules of its project and a few minutes; it is kept in the user's
cache folder, or in the folder that $` + operators.HomeVariable + ` names.

` + operators.Describe(),
		Example: `  # A cluster that leaves nothing behind
  muster-sandbox up

  # A second one that keeps its state, on a chosen port
  muster-sandbox up --name lab --data-dir ~/lab --port 6443

  # For a Kueue, with muster only as its provisioner
  muster-sandbox up --without-queueing

  # With GPU groups of a simulated AWS and Google Cloud, discovered as in real clouds
  muster-sandbox up --clouds

  # A manager and two workers; needs about 3 GiB of memory
  muster-sandbox up --clusters 2

  # With settings of muster, and what a kind of jobs of yours needs in the cluster
  muster-sandbox up --config muster.yaml

  # With the controllers of other kinds of jobs
  muster-sandbox up --operators jobset,kubeflow

  # With gang scheduling by Kubernetes itself
  muster-sandbox up --feature-gates GenericWorkload=true

  # Only an API server, for tests of controllers
  muster-sandbox up --only etcd,kube-apiserver --kubeconfig /tmp/lab.yaml`,
		Args: arguments.None,
		RunE: func(command *cobra.Command, _ []string) error {
			config.Name = o.name
			switch {
			case settings != "":
				if err := fillBy(&config, settings); err != nil {
					return err
				}
			case withoutQueueing:
				sandbox.FillHalf(&config, deploy.Provisioning)
			default:
				sandbox.Fill(&config)
			}
			config.Dashboard = true
			if withClouds {
				sandbox.AddClouds(&config)
			}
			var err error
			if config.FeatureGates, err = readGates(gates); err != nil {
				return err
			}
			if err := addOperators(command, &config, beside); err != nil {
				return err
			}
			if command.Flags().Changed("clusters") {
				return upClusters(command, config, workers)
			}
			return up(command, config)
		},
	}
	flags := command.Flags()
	flags.StringVar(&config.DataDir, "data-dir", "", "`folder` that keeps the cluster's state for the next start (default: a temporary one)")
	flags.DurationVar(&config.StartTimeout, "timeout", 0, "how long the start may make no progress until it is given up; 0 means two "+
		"minutes, and a slow machine may need more")
	flags.IntVar(&config.Port, "port", 0, "`port` of kube-apiserver on 127.0.0.1; 0 picks a free one")
	flags.StringVar(&config.Kubeconfig, "kubeconfig", "", "`file` that gets a copy of the administrator's kubeconfig while the sandbox runs")
	flags.StringSliceVar(&config.Only, "only", nil, "components to start, of "+strings.Join(cluster.ComponentNames(), ","))
	flags.BoolVar(&withoutQueueing, "without-queueing", false, "only provision, without Kueue's API, so that a Kueue can be installed")
	flags.BoolVar(&withClouds, "clouds", false, "also simulate AWS and Google Cloud behind their own APIs, with GPU groups that Muster "+
		"discovers")
	flags.StringVar(&settings, "config", "", "`file` of muster's flag of that name; policies and rights are for its queueing.jobKinds, too")
	flags.IntVar(&workers, "clusters", 0, "start a manager and `N` workers, each a cluster of its own")
	flags.StringSliceVar(&beside, "operators", nil, "operators to run beside the control plane, of "+strings.Join(operators.Names(), ","))
	flags.StringSliceVar(&gates, "feature-gates", nil, "feature gates of the control plane, as `NAME=true,...`; the beta API of "+
		"GenericWorkload is served with it")
	_ = command.MarkFlagDirname("data-dir")
	_ = command.MarkFlagFilename("kubeconfig")
	_ = command.MarkFlagFilename("config")
	command.MarkFlagsMutuallyExclusive("config", "clouds")
	command.MarkFlagsMutuallyExclusive("config", "without-queueing")
	for _, one := range []string{"only", "port", "without-queueing"} {
		command.MarkFlagsMutuallyExclusive("clusters", one)
	}
	_ = command.RegisterFlagCompletionFunc("clusters", cobra.NoFileCompletions)
	_ = command.RegisterFlagCompletionFunc("only", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return cluster.ComponentNames(), cobra.ShellCompDirectiveNoFileComp
	})
	_ = command.RegisterFlagCompletionFunc("operators", completeOperators)
	_ = command.RegisterFlagCompletionFunc("feature-gates", completeGates)
	return command
}

// fillBy completes the configuration of a cluster by the settings of a file.
func fillBy(config *cluster.Config, file string) error {
	settings, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	objects, err := app.Manifests(file)
	if err != nil {
		return err
	}
	sandbox.FillBy(config, settings, objects)
	return nil
}

// addOperators builds what is not built yet; a signal ends that.
func addOperators(command *cobra.Command, config *cluster.Config, names []string) error {
	ctx, stop := signal.NotifyContext(command.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return operators.Add(ctx, config, command.ErrOrStderr(), names...)
}

// completeOperators completes the last name of a list with those that are not in it yet.
func completeOperators(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	list := typed[:strings.LastIndex(typed, ",")+1]
	given := strings.Split(list, ",")
	var offered []string
	for _, name := range operators.Names() {
		if !slices.Contains(given, name) {
			offered = append(offered, list+name)
		}
	}
	return offered, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func up(command *cobra.Command, config cluster.Config) error {
	config.Progress = command.ErrOrStderr()
	fmt.Fprintf(command.ErrOrStderr(), "Starting the sandbox %q\n", config.Name)
	return run(command, startOne(config), func(running *cluster.Cluster) { printUsage(command, config.Name, running) })
}

func startOne(config cluster.Config) func(context.Context) (*cluster.Cluster, error) {
	return func(ctx context.Context) (*cluster.Cluster, error) { return cluster.Start(ctx, config) }
}

// run starts a sandbox, prints how to use it, and stops it at a signal.
func run[S stopper](command *cobra.Command, start func(context.Context) (S, error), tell func(S)) error {
	// Room for two, so that neither of two quick Ctrl-C is lost.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	running, err := startUnlessSignalled(command.Context(), signals, start)
	if err != nil {
		return err
	}
	tell(running)

	<-signals
	return stop(command, running, signals)
}

// stopper is a sandbox that runs, of one cluster or several.
type stopper interface {
	Stop(ctx context.Context) error
}

// stop ends the sandbox in good order, or at once on another signal.
func stop(command *cobra.Command, running stopper, signals <-chan os.Signal) error {
	fmt.Fprintln(command.ErrOrStderr(), "Stopping (Ctrl-C again kills it at once)")
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
func startUnlessSignalled[S stopper](parent context.Context, signals <-chan os.Signal, start func(context.Context) (S, error)) (S, error) {
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
	running, err := start(ctx)
	close(begun)
	<-watched
	if err == nil && ctx.Err() != nil {
		// The signal came in the moment between ready and here.
		err = errors.Join(context.Cause(ctx), running.Stop(parent))
	}
	return running, err
}

// callWith is how to call this program for a sandbox.
func callWith(name string) string {
	if name == cluster.DefaultName {
		return "muster-sandbox"
	}
	return "muster-sandbox --name " + name
}

func printUsage(command *cobra.Command, name string, running *cluster.Cluster) {
	call := callWith(name)
	fmt.Fprintf(command.OutOrStdout(), `
The sandbox %q runs. To reach it from another terminal:

  %s kubectl get nodes
  export KUBECONFIG=%s

%s status shows its components; Ctrl-C stops it.
`, name, call, running.Kubeconfig(), call)
	if page := running.DashboardURL(); page != "" {
		fmt.Fprintf(command.OutOrStdout(), "Dashboard: %s\n", page)
	}
}

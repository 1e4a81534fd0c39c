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
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/demo"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func newDemoCommand(o *options) *cobra.Command {
	keep, clusters, jobset, cloud := false, false, false, ""
	command := &cobra.Command{
		Use:   "demo",
		Short: "Show three short stories on a sandbox, and check Muster's promises",
		Long: `Start a sandbox and show three short stories: a ProvisioningRequest grows a GPU group;
a queued Job waits until all of its machines are there; a spot pool cannot provide all
machines, so none is kept, and the Job starts on another flavor.

With --clusters it shows a fourth one on a manager with two workers: the cheap cluster has
no machines, the next has them, and nothing is paid for in the first.

With --jobset it shows a fifth one: the launcher of a JobSet needs a machine without GPUs, and its
workers two with them, and no pod exists before all three are there. The operator of JobSets is
built for it once, which takes minutes.

Meanwhile Muster's promises are checked against every change in the cluster. The exit
code is 0 only if all were kept.`,
		Example: `  # Takes a minute, and leaves nothing behind
  muster-sandbox demo

  # With machines of a simulated AWS, called through its own API
  muster-sandbox demo --cloud aws

  # With several clusters; needs about 3 GiB of memory
  muster-sandbox demo --clusters

  # Look around afterwards
  muster-sandbox demo --keep`,
		Args: arguments.None,
		RunE: func(command *cobra.Command, _ []string) error {
			if !slices.Contains(demoClouds, cloud) {
				return fmt.Errorf("--cloud=%q: use one of %s", cloud, strings.Join(demoClouds, ", "))
			}
			if clusters {
				return runDemoOfClusters(command, o.name, keep)
			}
			return runDemo(command, o.name, v1alpha1.Provider(cloud), jobset, keep)
		},
	}
	command.Flags().BoolVar(&keep, "keep", false, "keep the sandbox running at the end, until Ctrl-C, and print how to reach it")
	command.Flags().StringVar(&cloud, "cloud", demoClouds[0], "`provider` of the machines: "+strings.Join(demoClouds, ", "))
	command.Flags().BoolVar(&clusters, "clusters", false, "show the story of several clusters instead")
	command.Flags().BoolVar(&jobset, "jobset", false, "show the story of a JobSet instead, with its operator")
	command.MarkFlagsMutuallyExclusive("clusters", "cloud", "jobset")
	_ = command.RegisterFlagCompletionFunc("cloud", cobra.FixedCompletions(demoClouds, cobra.ShellCompDirectiveNoFileComp))
	return command
}

// demoClouds are the clouds of the demo, the default first.
var demoClouds = []string{string(v1alpha1.ProviderKwok), string(v1alpha1.ProviderAWS), string(v1alpha1.ProviderGCP)}

func runDemo(command *cobra.Command, name string, cloud v1alpha1.Provider, jobset, keep bool) (err error) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	config := cluster.Config{Name: name, Progress: command.ErrOrStderr()}
	sandbox.Fill(&config)
	config.Dashboard = keep
	if cloud != v1alpha1.ProviderKwok {
		sandbox.AddCloudsOf(&config, demo.Clouds)
	}
	if jobset {
		if err := addOperators(command, &config, []string{"jobset"}); err != nil {
			return err
		}
	}
	fmt.Fprintf(command.ErrOrStderr(), "Starting the sandbox %q: a real cluster on this machine, without containers\n", name)
	running, err := startUnlessSignalled(command.Context(), signals, startOne(config))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(command, running, signals)) }()

	err = play(command, signals, func(ctx context.Context, scheme *runtime.Scheme) error {
		return demo.Run(ctx, demo.Options{Config: running.RESTConfig(), Scheme: scheme, Out: command.OutOrStdout(), Cloud: cloud,
			JobSet: jobset, Live: isTerminal(command)})
	})
	if keep && !errors.Is(err, errInterrupted) {
		printUsage(command, name, running)
		<-signals
	}
	return err
}

// runDemoOfClusters shows the story of a manager with two workers.
func runDemoOfClusters(command *cobra.Command, name string, keep bool) (err error) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	config := cluster.Config{Name: name, Progress: command.ErrOrStderr()}
	sandbox.Fill(&config)
	const workers = 2
	fmt.Fprintf(command.ErrOrStderr(), "Starting the sandbox %q: a manager and two workers, one after another\n", name)
	running, err := startUnlessSignalled(command.Context(), signals, func(ctx context.Context) (*cluster.Set, error) {
		return cluster.StartSet(ctx, sandbox.Clusters(config, workers, nil))
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(command, running, signals)) }()

	o := demo.ClustersOptions{Manager: running.Cluster(sandbox.Manager).RESTConfig(), Out: command.OutOrStdout()}
	for i := range o.Workers {
		o.Workers[i] = demo.Worker{Name: sandbox.Worker(i + 1), Config: running.Cluster(sandbox.Worker(i + 1)).RESTConfig()}
	}
	err = play(command, signals, func(ctx context.Context, scheme *runtime.Scheme) error {
		o.Scheme = scheme
		return demo.RunClusters(ctx, o)
	})
	if keep && !errors.Is(err, errInterrupted) {
		printUsageOfSet(command, running)
		<-signals
	}
	return err
}

var errInterrupted = errors.New("interrupted by a signal")

// play shows stories until they have ended, or a signal comes.
func play(command *cobra.Command, signals <-chan os.Signal, stories func(context.Context, *runtime.Scheme) error) error {
	scheme, err := app.NewScheme()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(command.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- stories(ctx, scheme) }()
	select {
	case err := <-ended:
		return err
	case s := <-signals:
		cancel()
		return errors.Join(fmt.Errorf("%w (%s)", errInterrupted, s), <-ended)
	}
}

func isTerminal(command *cobra.Command) bool {
	file, ok := command.OutOrStdout().(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

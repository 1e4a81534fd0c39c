// Package app is the command line of the manager, apart from main so that the
// sandbox can run it as one of its components.
package app

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cmd/guard"
	"github.com/muster-dev/muster/cmd/muster/configuration"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/queueing/config"
)

// Options of the manager.
type Options struct {
	ConfigFile     string
	Kubeconfig     string
	MetricsAddress string
	// MetricsSecure serves metrics by TLS, to users with the right to read them, with the
	// certificate of MetricsCertDir, or one of its own where that is empty.
	MetricsSecure  bool
	MetricsCertDir string
	HealthAddress  string
	LeaderElect    bool
	// LeaseDuration is how long a leader that is silent leads; whole seconds.
	LeaseDuration time.Duration
	// Provisioning and Queueing are the halves of muster, each of which works
	// without the other.
	Provisioning bool
	Queueing     bool
	Classes      []string
	Instance     string
	// Queues is what the file sets for all queues.
	Queues config.Config
	// Clouds are those that the file names.
	Clouds configuration.Clouds

	// connect makes the adapters of the clouds; nil makes none.
	connect Connect
	// mayAct refuses once another process may lead; nil where none can.
	mayAct func() error
}

// metricsSecure is a flag whose default depends on another one.
const metricsSecure = "metrics-secure"

// Connect makes adapters for clouds: those that are configured, with a way to list the
// NodeGroups that there are. They change nothing while mayAct, where it is not nil,
// returns an error.
type Connect func(ctx context.Context, clouds configuration.Clouds, groups func(context.Context) ([]*v1alpha1.NodeGroup, error), mayAct func() error) (map[v1alpha1.Provider]cloudprovider.Provider, error)

// NewCommand returns the command of the manager. The adapters of clouds are given to
// it, since they bring the clouds' SDKs with them, which few need to compile.
func NewCommand(connect Connect) *cobra.Command { return newCommand(&Options{connect: connect}) }

func newCommand(o *Options) *cobra.Command {
	logs := textlogger.NewConfig()
	cmd := &cobra.Command{
		Use:   "muster",
		Short: "Hold Kubernetes jobs until all of their machines are there, then start them",
		Long: `muster serves ProvisioningRequests (autoscaling.x-k8s.io/v1) by growing NodeGroups, all machines of a gang or
none, and admits queued Jobs by Kueue's API (kueue.x-k8s.io/v1beta2).

It talks to the cluster that --kubeconfig names, else to the one it runs in. It must act as the service account
muster-system/muster that ` + "`muster manifests`" + ` prints with all else that it needs: nobody else may start queued Jobs.`,
		Example: `  # in a cluster, as muster manifests installs it
  muster manifests | kubectl apply --server-side -f -
  muster --config muster.yaml

  # from outside, with a token of that service account, next to a cluster-autoscaler that serves the standard classes
  muster --kubeconfig muster.kubeconfig --leader-elect=false \
    --provisioning-classes check-capacity.muster.dev,atomic-scale-up.muster.dev

  # as the provisioner of a cluster whose jobs Kueue queues
  muster --queueing=false

  # as the queues of a cluster whose machines are there, or are cluster-autoscaler's; with Kueue's own settings
  muster --provisioning=false --config controller_manager_config.yaml`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			warnings, err := o.complete(cmd.Flags())
			if err != nil {
				return err
			}
			logger := textlogger.NewLogger(logs)
			ctrl.SetLogger(logger)
			for _, w := range warnings {
				logger.Info("The configuration says something in vain", "where", w)
			}
			return run(ctrl.SetupSignalHandler(), *o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.ConfigFile, "config", "", "file of kind "+configuration.Kind+" of "+configuration.APIVersion+", or of Kueue's kind of that name, that says what the other flags leave open, and has the settings of the queues")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "file with the address and credentials of the cluster; empty means the cluster that muster runs in")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8080", "address that serves /metrics; 0 serves none")
	f.BoolVar(&o.MetricsSecure, metricsSecure, true, "serve /metrics by TLS, and only with a token of the cluster whose user may get the path /metrics there; where it is not given, it is off on loopback addresses")
	f.StringVar(&o.MetricsCertDir, "metrics-cert-dir", "", "folder with tls.crt and tls.key for /metrics, read again when they change; empty means a self-signed certificate")
	f.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", "address that serves /healthz and /readyz; 0 serves none")
	f.BoolVar(&o.LeaderElect, "leader-elect", true, "lead only while holding the lease muster in namespace muster-system; turn it off where one process runs for sure")
	f.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 15*time.Second, "how long a leader that is not heard of still leads, before another does; whole seconds. It stops acting after two thirds of it")
	f.StringSliceVar(&o.Classes, "provisioning-classes", model.KnownClasses, "classes of ProvisioningRequests that are served here")
	f.StringVar(&o.Instance, "processor-instance", "", "name of this instance: requests whose parameter processorInstance is another one are left to that, those without the parameter are served by all instances")
	f.AddGoFlag(&flag.Flag{Name: "v", Usage: "how much is logged: 0 is what an operator wants, 4 is for finding faults", Value: logs.Verbosity(), DefValue: "0"})
	o.addHalves(f)
	offer(cmd, "provisioning-classes", model.KnownClasses...)
	for _, name := range []string{"config", "kubeconfig"} {
		if err := cmd.MarkFlagFilename(name); err != nil {
			panic(err) // the flags are defined above
		}
	}
	cmd.AddCommand(newManifestsCommand(), newMigrateCommand())
	return cmd
}

// addHalves adds the flags that choose which halves of muster there are.
func (o *Options) addHalves(f *pflag.FlagSet) {
	f.BoolVar(&o.Provisioning, string(deploy.Provisioning), true, "serve ProvisioningRequests; turn it off where something else does, such as cluster-autoscaler, or nothing")
	f.BoolVar(&o.Queueing, string(deploy.Queueing), true, "admit queued Jobs; turn it off where something else does, such as Kueue")
}

// halves are those that were chosen.
func (o *Options) halves() (out []deploy.Half) {
	if o.Provisioning {
		out = append(out, deploy.Provisioning)
	}
	if o.Queueing {
		out = append(out, deploy.Queueing)
	}
	return out
}

// offer says what a shell may offer as the value of a flag.
func offer(cmd *cobra.Command, name string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the caller has defined the flag
	}
}

// complete takes from the file what no flag says, and validates all of it.
func (o *Options) complete(flags *pflag.FlagSet) (warnings []string, err error) {
	file := &configuration.Configuration{}
	if o.ConfigFile != "" {
		if file, warnings, err = configuration.Load(o.ConfigFile, deploy.Namespace); err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
	} else {
		file.Queueing.SetDefaults(deploy.Namespace)
	}
	for name, value := range file.Flags() {
		if flags.Changed(name) {
			continue
		}
		if err := flags.Set(name, value); err != nil {
			return nil, fmt.Errorf("--config: %s: %w", o.ConfigFile, err)
		}
	}
	if !flags.Changed(metricsSecure) {
		o.MetricsSecure = !guard.Loopback(o.MetricsAddress)
	}
	o.Queues = file.Queueing.Config
	o.Clouds = file.Provisioning.Clouds
	return warnings, o.validate()
}

func (o *Options) validate() error {
	if len(o.halves()) == 0 {
		return fmt.Errorf("--%s and --%s are both false, which leaves nothing to do; turn one of them on", deploy.Provisioning, deploy.Queueing)
	}
	if o.LeaderElect && (o.LeaseDuration < time.Second || o.LeaseDuration%time.Second != 0) {
		return fmt.Errorf("--leader-elect-lease-duration: %s is no number of whole seconds, as the lease counts them; give 15s for example", o.LeaseDuration)
	}
	for _, c := range o.Classes {
		if !slices.Contains(model.KnownClasses, c) {
			return fmt.Errorf("--provisioning-classes: %q is no class that muster can serve; choose among %s", c, strings.Join(model.KnownClasses, ", "))
		}
	}
	return nil
}

// Package app is the command line of the manager. It is apart from main so that the sandbox can run it as one of its components.
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
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/guard"
	"github.com/muster-dev/muster/cmd/muster/configuration"
	"github.com/muster-dev/muster/cmd/muster/webhook"
	"github.com/muster-dev/muster/cmd/version"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/config"
	jobkinds "github.com/muster-dev/muster/queueing/jobs/kinds"
)

// Options of the manager.
type Options struct {
	ConfigFile     string
	Kubeconfig     string
	MetricsAddress string
	// MetricsSecure serves metrics over TLS to authorized users. The certificate is that of
	// MetricsCertDir, or self-signed if that is empty.
	MetricsSecure  bool
	MetricsCertDir string
	HealthAddress  string
	// WebhookAddress is the address of the webhook for mutations; noWebhook for none.
	WebhookAddress string
	LeaderElect    bool
	// Namespace is the namespace of muster.
	Namespace string
	// LeaseDuration is how long a silent leader keeps the lease; whole seconds.
	LeaseDuration time.Duration
	// Provisioning and Queueing are the halves of muster, each of which works
	// without the other.
	Provisioning bool
	Queueing     bool
	// DryRun makes the provisioner report what it would do, and do nothing.
	DryRun   bool
	Classes  []string
	Instance string
	// Queues are the file's settings for all queues.
	Queues config.Config
	// JobKinds are the kinds of jobs in the file, beside the built-in ones.
	JobKinds []*jobkinds.Kind
	// Clouds are the clouds that the file names.
	Clouds configuration.Clouds
	// Notifications are those that the file allows.
	Notifications configuration.Notifications

	// connect makes the adapters of the clouds; nil makes none.
	connect Connect
	// mayAct returns an error once another process may lead; nil if none can.
	mayAct func() error
	// leads answers whether the process leads or stands by; nil if it is the only one.
	leads healthz.Checker
}

// metricsSecure is a flag whose default depends on another flag.
const metricsSecure = "metrics-secure"

// Connect makes an adapter for each configured cloud.
type Connect func(context.Context, configuration.Clouds, cloudprovider.Cluster) (map[v1alpha1.Provider]cloudprovider.Provider, error)

// NewCommand returns the command of the manager. The adapters of the clouds are passed in,
// since they bring the clouds' SDKs, which take long to compile.
func NewCommand(connect Connect) *cobra.Command { return newCommand(&Options{connect: connect}) }

func newCommand(o *Options) *cobra.Command {
	logs := textlogger.NewConfig()
	cmd := &cobra.Command{
		Use:   "muster",
		Short: "Hold Kubernetes jobs until all of their machines are there, then start them",
		Long: `muster provisions and queues. It serves ProvisioningRequests (autoscaling.x-k8s.io/v1) by growing node groups, all
machines of a gang or none, and it admits queued Jobs through Kueue's API (kueue.x-k8s.io/v1beta2).

It manages the cluster of --kubeconfig, or the one it runs in. It has to authenticate as the service account that
` + "`muster manifests`" + ` contains, by default muster-system/muster: an admission policy lets only that account start queued Jobs.`,
		Example: `  # In a cluster, as muster manifests installs it
  muster manifests | kubectl apply --server-side -f -
  muster --config muster.yaml

  # From outside with a token of that service account, beside a cluster-autoscaler that serves the standard classes
  muster --kubeconfig muster.kubeconfig --leader-elect=false \
    --provisioning-classes check-capacity.muster.dev,atomic-scale-up.muster.dev

  # Only as a provisioner, in a cluster whose jobs Kueue queues
  muster --queueing=false

  # For a first week: only say what would be done
  muster --dry-run --queueing=false

  # Only as a queue controller, on fixed nodes or beside a cluster-autoscaler; with Kueue's configuration file
  muster --provisioning=false --config controller_manager_config.yaml`,
		Args:          arguments.Of,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			warnings, err := o.complete(cmd.Flags())
			if err != nil {
				return err
			}
			logger := textlogger.NewLogger(logs)
			ctrl.SetLogger(quietly(logger))
			build := version.Get()
			logger.Info("Muster", "version", build.Version, "commit", build.Revision, "go", build.Go)
			for _, w := range warnings {
				logger.Info("A field of the configuration has no effect", "where", w)
			}
			return run(ctrl.SetupSignalHandler(), *o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.ConfigFile, "config", "", "file of kind "+configuration.Kind+" of "+configuration.APIVersion+", or of Kueue's kind of "+
		"that name, with the settings of the queues; a flag that is set overrides the file")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster; empty means the cluster that muster runs in")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8080", "address that serves /metrics; 0 serves none")
	f.BoolVar(&o.MetricsSecure, metricsSecure, true,
		"serve /metrics over TLS, and only to users of the cluster with the right to get the path /metrics; the default is false on a loopback "+
			"address")
	f.StringVar(&o.MetricsCertDir, "metrics-cert-dir", "",
		"folder with tls.crt and tls.key for /metrics, reloaded on change; empty means a self-signed certificate")
	f.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", "address that serves /healthz and /readyz; 0 serves none")
	f.StringVar(&o.WebhookAddress, "webhook-bind-address", noWebhook, "address that serves a webhook, such as :9443, in clusters without "+
		"mutating admission policies (before Kubernetes 1.36); it needs what \"muster manifests --webhook\" prints; 0 serves none")
	f.StringVar(&o.Namespace, "namespace", deploy.Namespace, "namespace that muster runs in, of its Lease and of its service account")
	f.BoolVar(&o.LeaderElect, "leader-elect", true,
		"act only while holding the Lease muster of --namespace; turn it off only if exactly one process runs")
	f.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 15*time.Second,
		"how long a silent leader keeps the lease, in whole seconds; a leader that cannot renew it stops acting after two thirds of this time")
	f.StringSliceVar(&o.Classes, "provisioning-classes", transaction.KnownClasses, "provisioning classes to serve")
	f.StringVar(&o.Instance, "processor-instance", "",
		"name of this instance: it ignores requests whose parameter processorInstance has another value; requests without the parameter are "+
			"served by every instance")
	f.AddGoFlag(&flag.Flag{Name: "v", Usage: "log verbosity: 0 is for operation, 4 for debugging", Value: logs.Verbosity(), DefValue: "0"})
	o.addHalves(f)
	o.addDryRun(f, "only observe: say in events, in the log and in the condition "+transaction.DryRun+" of ProvisioningRequests what would "+
		"be launched, booked and terminated, and change nothing in the cluster or in a cloud; needs --queueing=false")
	offer(cmd, "provisioning-classes", transaction.KnownClasses...)
	for _, name := range []string{"config", "kubeconfig"} {
		if err := cmd.MarkFlagFilename(name); err != nil {
			panic(err) // the flags are defined above
		}
	}
	cmd.AddCommand(newManifestsCommand(), newExternalCommand(o.connect), newCloudCheckCommand(o.connect), newDispatcherCommand())
	version.AddTo(cmd)
	return cmd
}

// addHalves adds the flags that choose which halves of muster run.
func (o *Options) addHalves(f *pflag.FlagSet) {
	f.BoolVar(&o.Provisioning, string(deploy.Provisioning), true,
		"serve ProvisioningRequests; turn it off if cluster-autoscaler serves them, or nothing does")
	f.BoolVar(&o.Queueing, string(deploy.Queueing), true, "admit queued Jobs; turn it off if Kueue does")
}

// addDryRun adds the flag of a muster that only observes.
func (o *Options) addDryRun(f *pflag.FlagSet, usage string) {
	f.BoolVar(&o.DryRun, "dry-run", false, usage)
}

// halves lists the chosen halves.
func (o *Options) halves() (out []deploy.Half) {
	if o.Provisioning {
		out = append(out, deploy.Provisioning)
	}
	if o.Queueing {
		out = append(out, deploy.Queueing)
	}
	return out
}

// offer completes the values of a flag.
func offer(cmd *cobra.Command, name string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the caller has defined the flag
	}
}

// complete fills the flags that are not set from the file, and validates all of them.
func (o *Options) complete(flags *pflag.FlagSet) (warnings []string, err error) {
	file := &configuration.Configuration{}
	if o.ConfigFile != "" {
		if file, warnings, err = configuration.Load(o.ConfigFile, o.Namespace); err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
	} else {
		file.Queueing.SetDefaults(o.Namespace)
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
	o.Queues, o.JobKinds = file.Queueing.Config, file.Queueing.Kinds
	o.Clouds, o.Notifications = file.Provisioning.Clouds, file.Notifications
	return warnings, o.validate()
}

func (o *Options) validate() error {
	if len(o.halves()) == 0 {
		return fmt.Errorf("--%s and --%s are both false: turn at least one on", deploy.Provisioning, deploy.Queueing)
	}
	if o.DryRun && (o.Queueing || !o.Provisioning) {
		return fmt.Errorf("--dry-run: only the provisioner can observe: set --%s=false and --%s=true; `kubectl muster explain` and "+
			"`kubectl muster simulate` say what the queues would do", deploy.Queueing, deploy.Provisioning)
	}
	if o.WebhookAddress != noWebhook {
		if err := webhook.Validate(o.WebhookAddress); err != nil {
			return fmt.Errorf("--webhook-bind-address: %w", err)
		}
	}
	if o.LeaderElect && (o.LeaseDuration < time.Second || o.LeaseDuration%time.Second != 0) {
		return fmt.Errorf("--leader-elect-lease-duration: %s is not a positive number of whole seconds, for example 15s", o.LeaseDuration)
	}
	for _, c := range o.Classes {
		if !slices.Contains(transaction.KnownClasses, c) {
			return fmt.Errorf("--provisioning-classes: muster does not serve %q; choose from %s", c, strings.Join(transaction.KnownClasses, ", "))
		}
	}
	return nil
}

// Package app is the command line of the manager, apart from main so that the
// sandbox can run it as one of its components.
package app

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/muster-dev/muster/provisioning/model"
)

// Options of the manager.
type Options struct {
	Kubeconfig     string
	MetricsAddress string
	HealthAddress  string
	LeaderElect    bool
	Controllers    []string
	Classes        []string
	Instance       string
}

// The halves of muster, each of which works without the other.
const (
	provisioning = "provisioning"
	queueing     = "queueing"
)

var allControllers = []string{provisioning, queueing}

// NewCommand returns the command of the manager.
func NewCommand() *cobra.Command {
	o := Options{}
	logs := textlogger.NewConfig()
	cmd := &cobra.Command{
		Use:   "muster",
		Short: "Hold Kubernetes jobs until all of their machines are there, then start them",
		Long: `muster serves ProvisioningRequests (autoscaling.x-k8s.io/v1) by growing NodeGroups, all machines of a gang or
none, and admits queued Jobs by Kueue's API (kueue.x-k8s.io/v1beta2).

It talks to the cluster that --kubeconfig names, else to the one it runs in. It must act as the service account
muster-system/muster that deploy/ installs: nobody else may start queued Jobs.`,
		Example: `  # in a cluster, as deploy/ installs it
  muster

  # from outside, with a token of that service account, next to a cluster-autoscaler that serves the standard classes
  muster --kubeconfig muster.kubeconfig --leader-elect=false \
    --provisioning-classes check-capacity.muster.dev,atomic-scale-up.muster.dev

  # as the provisioner of a cluster whose jobs Kueue queues
  muster --controllers provisioning`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			ctrl.SetLogger(textlogger.NewLogger(logs))
			return run(ctrl.SetupSignalHandler(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "file with the address and credentials of the cluster; empty means the cluster that muster runs in")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8080", "address that serves /metrics in plain HTTP; 0 serves none")
	f.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", "address that serves /healthz and /readyz; 0 serves none")
	f.BoolVar(&o.LeaderElect, "leader-elect", true, "lead only while holding the lease muster in namespace muster-system; turn it off where one process runs for sure")
	f.StringSliceVar(&o.Controllers, "controllers", allControllers, "halves of muster that run: provisioning serves ProvisioningRequests, queueing admits queued Jobs. Leave out the one whose work something else does, such as Kueue or cluster-autoscaler")
	f.StringSliceVar(&o.Classes, "provisioning-classes", model.KnownClasses, "classes of ProvisioningRequests that are served here")
	f.StringVar(&o.Instance, "processor-instance", "", "name of this instance: requests whose parameter processorInstance is another one are left to that, those without the parameter are served by all instances")
	f.AddGoFlag(&flag.Flag{Name: "v", Usage: "how much is logged: 0 is what an operator wants, 4 is for finding faults", Value: logs.Verbosity(), DefValue: "0"})
	for name, values := range map[string][]string{"controllers": allControllers, "provisioning-classes": model.KnownClasses} {
		if err := cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // the flags are defined above
		}
	}
	return cmd
}

// runs says that a half of muster is to run.
func (o *Options) runs(controllers string) bool { return slices.Contains(o.Controllers, controllers) }

func (o *Options) validate() error {
	if len(o.Controllers) == 0 {
		return fmt.Errorf("--controllers: name at least one of %s", strings.Join(allControllers, ", "))
	}
	for _, c := range o.Controllers {
		if !slices.Contains(allControllers, c) {
			return fmt.Errorf("--controllers: muster has no half %q; choose among %s", c, strings.Join(allControllers, ", "))
		}
	}
	for _, c := range o.Classes {
		if !slices.Contains(model.KnownClasses, c) {
			return fmt.Errorf("--provisioning-classes: %q is no class that muster can serve; choose among %s", c, strings.Join(model.KnownClasses, ", "))
		}
	}
	return nil
}

package app

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/muster/configuration"
	"github.com/muster-dev/muster/cmd/muster/externalgrpc"
	"github.com/muster-dev/muster/deploy"
)

// externalLease is the lease of the processes that serve cluster-autoscalers.
const externalLease = "muster-externalgrpc"

// newExternalCommand returns the command that serves cluster-autoscalers.
func newExternalCommand(connect Connect) *cobra.Command {
	o := Options{connect: connect}
	var e externalgrpc.Options
	cmd := &cobra.Command{
		Use:   "externalgrpc",
		Short: "Serve a stock cluster-autoscaler as its external gRPC cloud provider",
		Long: `muster externalgrpc is for those who keep cluster-autoscaler: it serves the autoscaler's protocol for external cloud providers, with
the clouds that Muster knows. The autoscaler scales the NodeGroups with spec.scaledBy ClusterAutoscaler, and no others; Muster
launches and terminates no machine of these by itself.`,
		Example: `  # Beside the autoscaler, in one pod
  muster externalgrpc --config muster.yaml
  cluster-autoscaler --cloud-provider=externalgrpc --cloud-config=cloud.yaml   # address: 127.0.0.1:8086

  # On the network, for an autoscaler with a certificate that ca.crt has signed
  muster externalgrpc --config muster.yaml --address :8086 --cert tls.crt --key-cert tls.key --ca-cert ca.crt`,
		Args: arguments.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := e.Validate(); err != nil {
				return err
			}
			if o.ConfigFile != "" {
				file, _, err := configuration.Load(o.ConfigFile, o.Namespace)
				if err != nil {
					return fmt.Errorf("--config: %w", err)
				}
				o.Clouds = file.Provisioning.Clouds
			}
			return serveAutoscalers(ctrl.SetupSignalHandler(), o, e)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.ConfigFile, "config", "", "file of kind "+configuration.Kind+" of "+configuration.APIVersion+", with the clouds")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster; empty means the cluster that muster runs in")
	f.StringVar(&o.Namespace, "namespace", deploy.Namespace, "namespace that muster runs in, of the Lease "+externalLease)
	f.BoolVar(&o.LeaderElect, "leader-elect", true, "serve only while holding the Lease "+externalLease+" of --namespace; turn it off only "+
		"if exactly one process runs")
	f.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 15*time.Second,
		"how long a silent leader keeps the lease, in whole seconds")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", "0", "address that serves /metrics; 0 serves none. "+metricsBeyond)
	f.StringVar(&o.HealthAddress, "health-probe-bind-address", "127.0.0.1:8085", "address that serves /healthz and /readyz; 0 serves none")
	f.StringVar(&e.Address, "address", "127.0.0.1:8086",
		"address that serves cluster-autoscalers; one that is no loopback address needs certificates")
	f.StringVar(&e.Cert, "cert", "", "file of the server's certificate, reloaded on change")
	f.StringVar(&e.Key, "key-cert", "", "file of the certificate's key, reloaded on change")
	f.StringVar(&e.ClientCA, "ca-cert", "", "file of the authority that signs the certificates of autoscalers; others are refused")
	f.StringVar(&e.GPULabel, "gpu-label", "nvidia.com/gpu.product", "node label with the type of a node's GPUs, to be in the templates of "+
		"NodeGroups with GPUs: a node that has it is not ready for the autoscaler until its GPUs are there")
	return cmd
}

// serveAutoscalers serves until ctx is done.
func serveAutoscalers(ctx context.Context, o Options, e externalgrpc.Options) error {
	b, err := newBeside(o, o.Namespace, externalLease)
	if err != nil {
		return err
	}
	o.mayAct = b.mayAct
	mgr, err := ctrl.NewManager(b.config, b.options)
	if err != nil {
		return err
	}
	providers, err := clouds(ctx, mgr, o, nil)
	if err != nil {
		return err
	}
	scaler := externalgrpc.NewScaler(mgr.GetClient(), mgr.GetAPIReader(), providers, clock.RealClock{})
	for _, r := range []interface{ Start(context.Context) error }{scaler, &externalgrpc.Listener{Options: e, Scaler: scaler}} {
		if err := mgr.Add(r); err != nil {
			return err
		}
	}
	if err := b.addProbes(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

package app

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/muster-dev/muster/cmd/guard"
	"github.com/muster-dev/muster/cmd/muster/health"
)

// beside is a command that runs beside muster: its client of the cluster, which writes nothing unless the process leads, and the
// options of its manager.
type beside struct {
	config  *rest.Config
	options ctrl.Options
	// ready fails while the lease cannot be read, and mayAct while the process does not lead; it is nil without a lease.
	ready  healthz.Checker
	mayAct func() error
}

// metricsBeyond says in the help of such a command how metrics are served.
const metricsBeyond = "Where it is no loopback address, it serves by TLS, and only users of the cluster with the right to get the path " +
	"/metrics"

// newBeside finds the cluster. The lease in the namespace says which process leads.
func newBeside(o Options, namespace, lease string) (*beside, error) {
	ctrl.SetLogger(quietly(textlogger.NewLogger(textlogger.NewConfig())))
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("finding the cluster (set --kubeconfig if outside of it): %w", err)
	}
	config.QPS = -1
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	o.MetricsSecure = !guard.Loopback(o.MetricsAddress)
	b := &beside{config: config, ready: healthz.Ping, options: ctrl.Options{
		Scheme: scheme, Cache: cache.Options{DefaultTransform: trim}, HealthProbeBindAddress: o.HealthAddress, Metrics: metricsOptions(o),
	}}
	if !o.LeaderElect {
		return b, nil
	}
	lead, err := newLeader(rest.CopyConfig(config), namespace, lease, o.LeaseDuration)
	if err != nil {
		return nil, err
	}
	config.Wrap(lead.guard)
	config.Dial = lead.dial
	b.ready, b.mayAct = lead.ready, lead.mayAct
	lead.lead(&b.options, o.LeaseDuration)
	return b, nil
}

// addProbes has the manager answer probes.
func (b *beside) addProbes(mgr ctrl.Manager) error {
	for name, check := range map[string]healthz.Checker{"leader": b.ready, "caches": health.Synced(mgr.GetCache().WaitForCacheSync)} {
		if err := mgr.AddReadyzCheck(name, check); err != nil {
			return err
		}
	}
	return mgr.AddHealthzCheck("ping", healthz.Ping)
}

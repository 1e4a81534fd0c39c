package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/muster/stream"
	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/queueing/dispatch"
	dispatchcontroller "github.com/muster-dev/muster/queueing/dispatch/controller"
	"github.com/muster-dev/muster/queueing/dispatch/controller/snapshots"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/crdwatch"
	jobkinds "github.com/muster-dev/muster/queueing/jobs/kinds"
	"github.com/muster-dev/muster/queueing/jobs/podgroup"
)

// dispatcherLease is the lease of the processes that dispatch.
const dispatcherLease = "muster-dispatcher"

// newDispatcherCommand returns the command that chooses clusters for a stock Kueue.
func newDispatcherCommand() *cobra.Command {
	var o Options
	var d dispatchcontroller.Config
	cmd := &cobra.Command{
		Use:   "dispatcher",
		Short: "Choose the cluster of each job with MultiKueue, one at a time",
		Long: `muster dispatcher is for the manager of several clusters with MultiKueue. By itself Kueue makes a copy of a job in several
clusters, each of which launches machines for it. The dispatcher nominates one cluster at a time: the one in which the job would
start soonest and cheapest, as far as it may read that, else in the order of the MultiKueueConfig; and the next one as soon as that
refuses the job and no copy is left there.

Beside a stock Kueue (0.18 or later), Kueue makes the copies. Its configuration has to name the dispatcher, so that Kueue waits for it:

  multiKueue:
    dispatcherName: ` + dispatch.Name + `

Where Muster queues, the dispatcher makes the copies, too, has the jobs run by them, and brings their status back: run it with
--make-copies. Workers may have Muster or a stock Kueue (0.19 or later).

Where a job has been is in the annotation ` + dispatch.Annotation + ` of its Workload.`,
		Example: `  # Rights in the manager's cluster, beside those that the MultiKueueClusters' kubeconfigs have in the workers
  muster dispatcher manifests | kubectl apply --server-side -f -

  muster dispatcher --namespace kueue-system

  # Where Muster queues
  muster dispatcher manifests --make-copies --namespace muster-system | kubectl apply --server-side -f -
  muster dispatcher --make-copies --namespace muster-system

  # Rights in each worker, for the account of its kubeconfig
  muster dispatcher manifests --worker | kubectl --context worker apply --server-side -f -`,
		Args: arguments.Of,
		RunE: func(*cobra.Command, []string) error { return serveDispatcher(ctrl.SetupSignalHandler(), o, d) },
	}
	f := cmd.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file of the manager's cluster; empty means the cluster that muster runs in")
	f.BoolVar(&d.Copies, "make-copies", false, "make the copies of jobs in the workers and bring their status back, as Kueue's MultiKueue "+
		"does; for a manager in which Muster queues, never beside a Kueue that does it")
	f.StringVar(&d.Namespace, "namespace", kueueNamespace, "namespace of Kueue, or of Muster, with the Secrets of the kubeconfigs; the Lease "+
		dispatcherLease+" is there, too")
	f.StringVar(&d.Origin, "origin", kueueOrigin, "multiKueue.origin of Kueue's configuration")
	f.BoolVar(&o.LeaderElect, "leader-elect", true, "act only while holding the Lease "+dispatcherLease+" of --namespace; turn it off only "+
		"if exactly one process runs")
	f.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 15*time.Second,
		"how long a silent leader keeps the lease, in whole seconds")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", "0", "address that serves /metrics; 0 serves none. "+metricsBeyond)
	f.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", "address that serves /healthz and /readyz; 0 serves none")
	if err := cmd.MarkFlagFilename("kubeconfig"); err != nil {
		panic(err) // the flag is defined above
	}
	cmd.AddCommand(newDispatcherManifestsCommand())
	return cmd
}

// kueueNamespace is where Kueue's own manifests install it.
const kueueNamespace = "kueue-system"

// kueueOrigin is Kueue's default of multiKueue.origin.
const kueueOrigin = "multikueue"

func newDispatcherManifestsCommand() *cobra.Command {
	var copies, worker bool
	namespace, origin := kueueNamespace, kueueOrigin
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print what muster dispatcher needs in the manager's cluster, or in a worker: a service account and its rights",
		Args:  arguments.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := deploy.Dispatcher
			switch {
			case worker:
				text = strings.ReplaceAll(deploy.DispatcherWorker, dispatch.LeaseName(kueueOrigin), dispatch.LeaseName(origin))
			case copies:
				text += deploy.DispatcherCopies
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), deploy.InNamespace(text, namespace))
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&namespace, "namespace", namespace, "namespace of Kueue, or of Muster; of the account in a worker")
	f.StringVar(&origin, "origin", origin, "multiKueue.origin of Kueue's configuration, by which the manager's Lease in a worker is named")
	f.BoolVar(&copies, "make-copies", false, "with the rights for --make-copies of muster dispatcher")
	f.BoolVar(&worker, "worker", false, "print the account that the manager has in a worker, with its rights there")
	cmd.MarkFlagsMutuallyExclusive("make-copies", "worker")
	return cmd
}

// delegable returns the kinds of jobs that may run in other clusters.
func delegable() (out []dispatchcontroller.Kind) {
	for _, kind := range jobkinds.All() {
		if k, ok := kind.(jobs.Delegable); ok && k.CanDelegate() {
			out = append(out, k)
		}
	}
	for _, kind := range podgroup.Delegated() {
		out = append(out, kind)
	}
	return out
}

// foresight decides for a worker as Muster would there, with its defaults.
func foresight() snapshots.Foresight {
	settings := view.DefaultSettings()
	var lists []client.ObjectList
	for _, kind := range settings.Kinds() {
		lists = append(lists, kind.NewList())
	}
	see := func(ctx context.Context, c clock.PassiveClock, kube client.Reader) (snapshots.Foresee, error) {
		p, err := view.Look(ctx, c, settings, kube, "", view.QueueKinds)
		if err != nil {
			return nil, err
		}
		if len(p.Missing) > 0 {
			return nil, fmt.Errorf("the account in its kubeconfig may not %v", p.Missing)
		}
		return p.Prospects(), nil
	}
	return snapshots.Foresight{Lists: lists, Trim: trim, See: see}
}

// leasesIn returns the Leases of Muster and Kueue in a worker: in the manager's namespace, or in those of their own manifests.
func leasesIn(namespace string) []types.NamespacedName {
	out := []types.NamespacedName{
		{Namespace: namespace, Name: leaseName}, {Namespace: deploy.Namespace, Name: leaseName},
		{Namespace: namespace, Name: kueueconfig.DefaultLeaderElectionID},
		{Namespace: kueueNamespace, Name: kueueconfig.DefaultLeaderElectionID},
	}
	return slices.Compact(out)
}

// serveDispatcher dispatches until ctx is done.
func serveDispatcher(ctx context.Context, o Options, d dispatchcontroller.Config) error {
	b, err := newBeside(o, d.Namespace, dispatcherLease)
	if err != nil {
		return err
	}
	b.options.NewClient = stream.NewClient
	if b.options.Cache.NewInformer, err = stream.Informers(b.config); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(b.config, b.options)
	if err != nil {
		return err
	}
	metrics.Registry.MustRegister(dispatchcontroller.Collectors()...)
	d.Foresight, d.Leases = foresight(), leasesIn(d.Namespace)
	d.Served = func(kind schema.GroupVersionKind, begin func() error) error {
		return mgr.Add(&crdwatch.Runnable{Manager: mgr, Report: func(schema.GroupKind, bool) {}, // metrics of kinds are Muster's
			Waiting: []crdwatch.Integration{{Kinds: []schema.GroupVersionKind{kind}, Begin: begin}}})
	}
	if err := dispatchcontroller.Add(mgr, d, delegable()); err != nil {
		return err
	}
	if err := b.addProbes(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

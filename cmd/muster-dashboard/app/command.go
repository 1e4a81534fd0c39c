// Package app is the command line of the page, apart from main so that the sandbox can
// run it as one of its components.
package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/guard"
	"github.com/muster-dev/muster/cmd/muster-dashboard/page"
	"github.com/muster-dev/muster/cmd/muster-dashboard/watch"
	"github.com/muster-dev/muster/cmd/version"
	"github.com/muster-dev/muster/cmd/view"
)

// options of the page.
type options struct {
	listen     string
	kubeconfig string
	config     string
	prometheus string
	// hosts are the accepted host names.
	hosts []string
	// authenticate requires users that the cluster authorizes.
	authenticate bool
}

// NewCommand returns the command of the page.
func NewCommand() *cobra.Command {
	o := options{}
	logs := textlogger.NewConfig()
	cmd := &cobra.Command{
		Use:   "muster-dashboard",
		Short: "A web page with the queues, the node groups and the costs of a cluster",
		Long: `muster-dashboard serves a web page with several views. Queue: the pending jobs in order, what
each waits for, and when it is expected to start. Obtainability: the chance of a launch in
each node group, and past launches. Cost: what machines cost now, for which teams, and what
was wasted. Racks maps those of flavors with a Topology, and Clusters lists those that jobs are
given to (MultiKueue).

It reads the cluster with its own rights and decides with the same code as Muster. So it
works while Muster is down, and changes nothing.

On 127.0.0.1, the default, it has no authentication; ` + "`kubectl port-forward`" + ` reaches it. On
any other address it requires a bearer token, which an authenticating proxy passes on, and
shows everything that it can read to users with the ClusterRole muster-dashboard-viewer.
Requests must name the host by IP address, as localhost, or by a name in --allowed-hosts.`,
		Example: `  # With your own rights, on http://127.0.0.1:8090
  muster-dashboard --kubeconfig ~/.kube/config

  # With history from a Prometheus that scrapes Muster
  muster-dashboard --kubeconfig ~/.kube/config --prometheus http://127.0.0.1:9090

  # In a cluster, behind a proxy that passes on the tokens of its users
  muster-dashboard --listen :8090 --allowed-hosts muster-dashboard.muster-system.svc,queues.example.com`,
		Args:          arguments.None,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("authenticate") {
				o.authenticate = !guard.Loopback(o.listen)
			}
			logger := textlogger.NewLogger(logs)
			ctrl.SetLogger(logger)
			klog.SetLogger(logger)
			return run(ctrl.SetupSignalHandler(), o, logger)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:8090", "address that serves the page over plain HTTP; port 0 picks a free one")
	f.StringSliceVar(&o.hosts, "allowed-hosts", nil,
		"host names to accept beside localhost and IP addresses; other names are rejected, against DNS rebinding")
	f.BoolVar(&o.authenticate, "authenticate", true,
		"serve only users of the cluster with the right to get the path "+path+"; the default is false on a loopback address")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster; empty means the cluster that the page runs in")
	f.StringVar(&o.config, "config", "", "configuration file that muster runs with; empty means the defaults")
	f.StringVar(&o.prometheus, "prometheus", "",
		"`URL` of a Prometheus with Muster's metrics, for history from before the page started; empty means none")
	f.AddGoFlag(&flag.Flag{Name: "v", Usage: "log verbosity: 0 is for operation, 4 for debugging", Value: logs.Verbosity(), DefValue: "0"})
	for _, name := range []string{"config", "kubeconfig"} {
		if err := cmd.MarkFlagFilename(name); err != nil {
			panic(err) // the flags are defined above
		}
	}
	version.AddTo(cmd)
	return cmd
}

// run serves the page until ctx is done.
func run(ctx context.Context, o options, log logr.Logger) error {
	if o.prometheus != "" {
		if u, err := url.Parse(o.prometheus); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("--prometheus=%q: use a URL such as http://127.0.0.1:9090", o.prometheus)
		}
	}
	settings, err := view.LoadSettings(o.config)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("finding the cluster (set --kubeconfig if outside of it): %w", err)
	}
	kube, err := connect(config)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen %s (choose another address, or port 0 for a free one): %w", o.listen, err)
	}
	c := clock.RealClock{}
	server, err := page.New(page.Config{Cluster: watch.New(ctx, kube, c), Settings: settings, Clock: c, Prometheus: o.prometheus})
	if err != nil {
		return err
	}
	handler, err := guarded(server, o, config, log)
	if err != nil {
		return err
	}
	log.Info("Serving the page", "url", "http://"+listener.Addr().String(), "authenticate", o.authenticate)
	return serve(ctx, server, handler, listener)
}

// path is the non-resource URL that users need the right to get.
const path = "/muster-dashboard"

// guarded wraps the page with authorization. Health probes need no right.
func guarded(page http.Handler, o options, config *rest.Config, log logr.Logger) (http.Handler, error) {
	if o.authenticate {
		known, err := guard.Authenticated(config, log, path, page)
		if err != nil {
			return nil, fmt.Errorf("setting up authorization by the cluster: %w", err)
		}
		mux := http.NewServeMux()
		mux.Handle("/", known)
		mux.Handle("/healthz", page)
		page = mux
	}
	return guard.Hosts(o.hosts, page), nil
}

// connect returns a client of the cluster.
func connect(config *rest.Config) (client.WithWatch, error) {
	config = rest.CopyConfig(config)
	// It lists each kind once and then watches it; the API server has its own limits.
	config.QPS = -1
	scheme, err := view.NewScheme()
	if err != nil {
		return nil, err
	}
	kube, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reaching the cluster: %w", err)
	}
	return kube, nil
}

// farewell is how long requests may take to end at shutdown. Streams end at once.
const farewell = 3 * time.Second

// serve runs the page until ctx is done.
func serve(ctx context.Context, s *page.Server, handler http.Handler, listener net.Listener) error {
	ctx, end := context.WithCancel(ctx)
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	var working sync.WaitGroup
	working.Go(func() { s.Run(ctx) })
	working.Go(func() {
		<-ctx.Done()
		farewell, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		_ = server.Shutdown(farewell) // what is left is cut off by the end of the process
	})
	err := server.Serve(listener)
	end()
	working.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

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

	"github.com/muster-dev/muster/cmd/guard"
	"github.com/muster-dev/muster/cmd/muster-dashboard/page"
	"github.com/muster-dev/muster/cmd/muster-dashboard/watch"
	"github.com/muster-dev/muster/cmd/view"
)

// options of the page.
type options struct {
	listen     string
	kubeconfig string
	config     string
	prometheus string
	// hosts are the names by which the page may be asked for.
	hosts []string
	// authenticate asks the cluster whether a user may see the page.
	authenticate bool
}

// NewCommand returns the command of the page.
func NewCommand() *cobra.Command {
	o := options{}
	logs := textlogger.NewConfig()
	cmd := &cobra.Command{
		Use:   "muster-dashboard",
		Short: "A page about who waits, what machines could be had, and what it costs",
		Long: `muster-dashboard serves a page with three views. Queue: who waits for what, in which
order, and until when. Obtainability: how likely machines come, and what was tried. Cost:
what machines cost now, who has them, and what was paid for nothing.

It reads the cluster with the rights that it is given and decides by the code that Muster
itself runs, so it answers while Muster is down, and changes nothing.

On 127.0.0.1, which is the default, it has no log-in; ` + "`kubectl port-forward`" + ` leads there. On
any other address it takes a bearer token, which a proxy that knows its users sends along,
and shows all that it may read to those whom the ClusterRole muster-dashboard-viewer is
bound to. It is asked for by an address, by localhost, or by a name of --allowed-hosts.`,
		Example: `  # With your own rights, on http://127.0.0.1:8090
  muster-dashboard --kubeconfig ~/.kube/config

  # With the past from a Prometheus that scrapes Muster
  muster-dashboard --kubeconfig ~/.kube/config --prometheus http://127.0.0.1:9090

  # In a cluster, behind a proxy that sends the tokens of its users
  muster-dashboard --listen :8090 --allowed-hosts muster-dashboard.muster-system.svc,queues.example.com`,
		Args:          cobra.NoArgs,
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
	f.StringVar(&o.listen, "listen", "127.0.0.1:8090", "address that serves the page in plain HTTP; port 0 picks a free one")
	f.StringSliceVar(&o.hosts, "allowed-hosts", nil, "names by which the page may be asked for, beside localhost and any address; others are refused, since a name may be another site's")
	f.BoolVar(&o.authenticate, "authenticate", true, "show the page only with a token of the cluster whose user may get the path "+path+" there; where it is not given, it is off on loopback addresses")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "file with the address and credentials of the cluster; empty means the cluster that the page runs in")
	f.StringVar(&o.config, "config", "", "file that muster runs with as its own --config; empty means its defaults")
	f.StringVar(&o.prometheus, "prometheus", "", "`URL` of a Prometheus that has the metrics of muster, for the time before the page began; empty means none")
	f.AddGoFlag(&flag.Flag{Name: "v", Usage: "how much is logged: 0 is what an operator wants, 4 is for finding faults", Value: logs.Verbosity(), DefValue: "0"})
	for _, name := range []string{"config", "kubeconfig"} {
		if err := cmd.MarkFlagFilename(name); err != nil {
			panic(err) // the flags are defined above
		}
	}
	return cmd
}

// run serves the page until ctx is done.
func run(ctx context.Context, o options, log logr.Logger) error {
	if o.prometheus != "" {
		if u, err := url.Parse(o.prometheus); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("--prometheus is %q: it takes a URL such as http://127.0.0.1:9090", o.prometheus)
		}
	}
	settings, err := view.LoadSettings(o.config)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("finding the cluster (give --kubeconfig outside of one): %w", err)
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
	log.Info("The page is served", "url", "http://"+listener.Addr().String(), "authenticate", o.authenticate)
	return serve(ctx, server, handler, listener)
}

// path is what users of the page may get in the eyes of the cluster.
const path = "/muster-dashboard"

// guarded is the page behind its guard. A probe of its health needs no right.
func guarded(page http.Handler, o options, config *rest.Config, log logr.Logger) (http.Handler, error) {
	if o.authenticate {
		known, err := guard.Authenticated(config, log, path, page)
		if err != nil {
			return nil, fmt.Errorf("asking the cluster whether a user may see the page: %w", err)
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
	// It lists each kind once and watches it then; the API server has its own limits.
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

// farewell is how long requests may take to end. Streams end at once.
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

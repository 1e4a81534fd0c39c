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
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
itself runs, so it answers while Muster is down, and changes nothing. It has no log-in:
whoever reaches it sees all that it may read. So it listens on 127.0.0.1 unless told
otherwise; ` + "`kubectl port-forward`" + ` or a proxy that knows its users leads there.`,
		Example: `  # With your own rights, on http://127.0.0.1:8090
  muster-dashboard --kubeconfig ~/.kube/config

  # With the past from a Prometheus that scrapes Muster
  muster-dashboard --kubeconfig ~/.kube/config --prometheus http://127.0.0.1:9090

  # In a cluster, for Services and probes
  muster-dashboard --listen :8090`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(*cobra.Command, []string) error {
			logger := textlogger.NewLogger(logs)
			ctrl.SetLogger(logger)
			klog.SetLogger(logger)
			return run(ctrl.SetupSignalHandler(), o, logger)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:8090", "address that serves the page in plain HTTP; port 0 picks a free one")
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
	kube, err := connect(o.kubeconfig)
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
	log.Info("The page is served", "url", "http://"+listener.Addr().String())
	return serve(ctx, server, listener)
}

// connect returns a client with the rights of the kubeconfig.
func connect(kubeconfig string) (client.WithWatch, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("finding the cluster (give --kubeconfig outside of one): %w", err)
	}
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
func serve(ctx context.Context, s *page.Server, listener net.Listener) error {
	ctx, end := context.WithCancel(ctx)
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
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

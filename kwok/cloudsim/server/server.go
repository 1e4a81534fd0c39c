// Package server runs the simulated clouds as a separate process: a World, a front end for each cloud on its own port, and a port that
// reports what has happened.
//
// The world is kept in memory: when the process ends, its machines are lost.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/kwok/cloudsim/gcp"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Config is the file that says what the clouds have.
type Config struct {
	cloudsim.Config `json:",inline"`
	// AWS is an account in a region, GCP a project; what is missing is not served.
	AWS *aws.Config `json:"aws,omitempty"`
	GCP *gcp.Config `json:"gcp,omitempty"`
}

// Read reads the text of such a file. A field that there is not is an error.
func Read(text []byte) (Config, error) {
	c := Config{}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return c, err
	}
	if err := c.Validate(); err != nil {
		return c, err
	}
	if c.AWS != nil {
		if err := c.AWS.Validate(); err != nil {
			return c, fmt.Errorf("aws.%w", err)
		}
	}
	if c.GCP != nil {
		if err := c.GCP.Validate(); err != nil {
			return c, fmt.Errorf("gcp.%w", err)
		}
	}
	return c, nil
}

// Clouds are a world with its front ends.
type Clouds struct {
	*cloudsim.World
	// Handlers of the clouds that there are.
	Handlers map[v1alpha1.Provider]http.Handler
}

// New makes the clouds, from now on.
func New(c Config, clock clock.Clock) (*Clouds, error) {
	world, err := cloudsim.New(c.Config, clock)
	if err != nil {
		return nil, err
	}
	out := &Clouds{World: world, Handlers: map[v1alpha1.Provider]http.Handler{}}
	var fronts []cloudsim.Front
	if c.AWS != nil {
		f, err := aws.New(*c.AWS, world)
		if err != nil {
			return nil, fmt.Errorf("aws.%w", err)
		}
		fronts = append(fronts, f)
	}
	if c.GCP != nil {
		f, err := gcp.New(*c.GCP, world)
		if err != nil {
			return nil, fmt.Errorf("gcp.%w", err)
		}
		fronts = append(fronts, f)
	}
	for _, f := range fronts {
		out.Handlers[f.Cloud()] = world.Handler(f)
	}
	return out, nil
}

// options of the process.
type options struct {
	config, kubeconfig     string
	address                string
	awsAddress, gcpAddress string
}

// NewCommand returns the command that serves the clouds.
func NewCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "clouds",
		Short: "Serve simulated clouds whose machines join a cluster of KWOK's",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return o.run(ctx)
		},
		SilenceUsage: true,
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "file that says what the clouds have")
	f.StringVar(&o.kubeconfig, "kubeconfig", "",
		"file with the address and credentials of the cluster that machines join; empty means that they join none")
	f.StringVar(&o.address, "address", "", "address that tells of the clouds: /healthz, /bill, /calls")
	f.StringVar(&o.awsAddress, "aws-address", "", "address of AWS")
	f.StringVar(&o.gcpAddress, "gcp-address", "", "address of Google Cloud")
	return cmd
}

func (o *options) run(ctx context.Context) error {
	text, err := os.ReadFile(o.config)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	config, err := Read(text)
	if err != nil {
		return fmt.Errorf("--config: %s: %w", o.config, err)
	}
	clouds, err := New(config, clock.RealClock{})
	if err != nil {
		return fmt.Errorf("--config: %s: %w", o.config, err)
	}
	work, ctx := errgroup.WithContext(ctx)
	serve := func(address string, h http.Handler) {
		if address == "" || h == nil {
			return
		}
		work.Go(func() error { return serve(ctx, address, h) })
	}
	serve(o.address, clouds.about())
	serve(o.awsAddress, clouds.Handlers[v1alpha1.ProviderAWS])
	serve(o.gcpAddress, clouds.Handlers[v1alpha1.ProviderGCP])
	if o.kubeconfig != "" {
		kube, err := newClient(o.kubeconfig)
		if err != nil {
			return fmt.Errorf("--kubeconfig: %w", err)
		}
		work.Go(func() error {
			clouds.Join(ctx, kube, clock.RealClock{}, func(err error) { fmt.Fprintln(os.Stderr, "clouds:", err) })
			return nil
		})
	}
	return work.Wait()
}

func newClient(kubeconfig string) (client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, kwokv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// serve serves until ctx is done.
func serve(ctx context.Context, address string, h http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// about serves reports of the clouds.
func (c *Clouds) about() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	tell := func(pattern string, what func() any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(what()) // the client may have disconnected
		})
	}
	tell("GET /bill", func() any { return c.Bill() })
	tell("GET /calls", func() any {
		out := map[v1alpha1.Provider]map[string]int64{}
		for cloud := range c.Handlers {
			out[cloud] = c.Calls(cloud)
		}
		return out
	})
	return mux
}

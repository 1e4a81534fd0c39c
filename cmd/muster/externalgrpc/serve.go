package externalgrpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cmd/guard"
	"github.com/muster-dev/muster/cmd/muster/externalgrpc/protos"
)

// Options of the listener.
type Options struct {
	// Address to listen on.
	Address string
	// Cert and Key are the files of the server's certificate, and ClientCA that of the CA for clients. All are empty, or none.
	Cert, Key, ClientCA string
	// GPULabel is the node label with the type of a node's GPUs.
	GPULabel string
}

// Validate refuses options that would let others than autoscalers launch machines.
func (o *Options) Validate() error {
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		return fmt.Errorf("--address: %q is not HOST:PORT, for example 127.0.0.1:8086", o.Address)
	}
	if (o.Cert == "") != (o.Key == "") || (o.Cert == "") != (o.ClientCA == "") {
		return errors.New("--cert, --key-cert and --ca-cert belong together: set all of them, or none on a loopback address")
	}
	if o.Cert == "" && !guard.Loopback(o.Address) {
		return fmt.Errorf("--address: %s can be reached from other machines, and any of their programs could launch and terminate machines: set "+
			"--cert, --key-cert and --ca-cert, or listen on 127.0.0.1", o.Address)
	}
	return nil
}

// Listener serves autoscalers.
type Listener struct {
	Options
	Scaler *Scaler
}

// Start serves until ctx is done.
func (l *Listener) Start(ctx context.Context) error {
	var transport []grpc.ServerOption
	if l.Cert != "" {
		config, err := l.tls(ctx)
		if err != nil {
			return err
		}
		transport = append(transport, grpc.Creds(credentials.NewTLS(config)))
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.Address)
	if err != nil {
		return fmt.Errorf("--address: %w", err)
	}
	return l.serve(ctx, listener, transport...)
}

func (l *Listener) serve(ctx context.Context, listener net.Listener, options ...grpc.ServerOption) error {
	s := &server{Scaler: l.Scaler, gpuLabel: l.GPULabel}
	out := grpc.NewServer(append(options, grpc.UnaryInterceptor(s.untilSynced))...)
	protos.RegisterCloudProviderServer(out, s)
	stop := context.AfterFunc(ctx, out.GracefulStop)
	defer stop()
	log.FromContext(ctx).Info("Serving cluster-autoscalers", "address", listener.Addr().String(), "tls", l.Cert != "")
	if err := out.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving cluster-autoscalers: %w", err)
	}
	return nil
}

// tls requires a certificate of the client's, and takes up a new one of its own when its files
// change.
func (l *Listener) tls(ctx context.Context) (*tls.Config, error) {
	authority, err := os.ReadFile(l.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("--ca-cert: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("--ca-cert: %s has no certificate in PEM form", l.ClientCA)
	}
	own, err := certwatcher.New(l.Cert, l.Key)
	if err != nil {
		return nil, fmt.Errorf("--cert, --key-cert: %w", err)
	}
	go func() {
		if err := own.Start(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "A new certificate will not be noticed")
		}
	}()
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, GetCertificate: own.GetCertificate,
	}, nil
}

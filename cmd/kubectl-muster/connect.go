package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/view"
)

// connect returns a client with the caller's rights, and the current namespace.
func (o *options) connect() (kube client.Client, namespace string, err error) {
	namespace, _, err = o.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return nil, "", fmt.Errorf("finding the cluster (set --kubeconfig or $KUBECONFIG): %w", err)
	}
	kube, err = clientOf(config)
	return kube, namespace, err
}

// clientOf reads the cluster of the configuration.
func clientOf(config *rest.Config) (client.Client, error) {
	// A command makes a few dozen calls at once; the API server has its own limits.
	config.QPS = -1
	// As kubectl prints them; the client would log them.
	config.WarningHandler = rest.NewWarningWriter(os.Stderr, rest.WarningWriterOptions{Deduplicate: true})
	scheme, err := view.NewScheme()
	if err != nil {
		return nil, err
	}
	kube, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reaching the cluster: %w", err)
	}
	return kube, nil
}

// look decides what Muster would do in the cluster, which has to serve some of the needed
// kinds.
func (o *options) look(ctx context.Context, kube client.Reader, namespace string, needed []view.Kind) (*view.Picture, error) {
	settings, err := view.LoadSettings(o.file)
	if err != nil {
		return nil, err
	}
	return view.Look(ctx, o.clock, settings, kube, namespace, needed)
}

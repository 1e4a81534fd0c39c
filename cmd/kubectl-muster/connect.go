package main

import (
	"context"
	"fmt"
	"os"
	"strings"

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
	if o.kube != nil {
		return o.kube, namespace, nil
	}
	if err := o.configured(); err != nil {
		return nil, "", err
	}
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return nil, "", fmt.Errorf("finding the cluster (set --kubeconfig or $KUBECONFIG): %w", err)
	}
	o.kube, err = clientOf(config)
	return o.kube, namespace, err
}

// configured returns an error where nothing names a cluster. The libraries of kubectl would take localhost:8080 then.
func (o *options) configured() error {
	loader := o.config.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if _, err := rest.InClusterConfig(); len(raw.Clusters) > 0 || *o.config.APIServer != "" || err == nil {
		return nil
	}
	return fmt.Errorf("no cluster is configured: there is none in %s. Name a kubeconfig with --kubeconfig or $KUBECONFIG, or a server with "+
		"--server; a sandbox prints its own when it starts", strings.Join(loader.ConfigAccess().GetLoadingPrecedence(), ", "))
}

// given checks that the namespace of --namespace exists.
func (o *options) given(p *view.Picture) error {
	if name := *o.config.Namespace; name != "" && !p.HasNamespace(name) {
		return fmt.Errorf("--namespace=%q: the cluster has no such namespace; `kubectl get namespaces` lists those that are there", name)
	}
	return nil
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

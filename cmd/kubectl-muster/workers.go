package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
)

// workerTimeout bounds each call to a worker, unless --request-timeout does: one that does not answer is left out, and named.
const workerTimeout = 10 * time.Second

// contextFlag names contexts of the kubeconfig that have not the names of their clusters.
const contextFlag = "cluster-context"

func (o *options) addContexts(command *cobra.Command) {
	command.Flags().StringToStringVar(&o.contexts, contextFlag, nil,
		"with MultiKueue, the context of your kubeconfig for a worker cluster, as CLUSTER=CONTEXT; may be repeated; without, the one of its name")
}

// contextOf is the context of the caller's kubeconfig for a cluster.
func (o *options) contextOf(cluster string) string { return cmp.Or(o.contexts[cluster], cluster) }

// workers reads the clusters that jobs of this one are given to, with the caller's own rights there: the kubeconfigs by which the manager
// reaches them are Secrets. There are none where this cluster has no MultiKueueCluster.
func (o *options) workers(ctx context.Context, kube client.Reader) ([]view.Worker, error) {
	list := &kueue.MultiKueueClusterList{}
	switch err := kube.List(ctx, list); {
	case view.IsAbsent(err):
		return nil, o.knownContexts(nil)
	case apierrors.IsForbidden(err):
		return []view.Worker{{Unread: "whether jobs run in other clusters, too, is not known: you may not list multikueueclusters.kueue.x-k8s.io"}}, nil
	case err != nil:
		return nil, fmt.Errorf("listing multikueueclusters: %w", err)
	}
	out := make([]view.Worker, len(list.Items))
	for i := range list.Items {
		out[i].Name = list.Items[i].Name
	}
	if err := o.knownContexts(out); err != nil || len(out) == 0 {
		return nil, err
	}
	own, err := o.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	loader := o.config.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	var group sync.WaitGroup
	for i := range out {
		group.Go(func() { out[i] = o.read(ctx, out[i].Name, raw, own) })
	}
	group.Wait()
	return out, nil
}

// knownContexts is an error for a context of a cluster that is no worker.
func (o *options) knownContexts(workers []view.Worker) error {
	names := make([]string, len(workers))
	for i := range workers {
		names[i] = workers[i].Name
	}
	for _, cluster := range slices.Sorted(maps.Keys(o.contexts)) {
		if !slices.Contains(names, cluster) {
			return fmt.Errorf("--%s=%s=%s: there is no MultiKueueCluster %q; those that exist: %s", contextFlag, cluster, o.contexts[cluster], cluster,
				cmp.Or(strings.Join(names, ", "), "none"))
		}
	}
	return nil
}

// read reads a worker by its context.
func (o *options) read(ctx context.Context, cluster string, raw clientcmdapi.Config, own *rest.Config) view.Worker {
	out := view.Worker{Name: cluster}
	name := o.contextOf(cluster)
	if raw.Contexts[name] == nil {
		out.Unread = fmt.Sprintf("your kubeconfig has no context %s: add one, or name another with --%s %s=CONTEXT", name, contextFlag, cluster)
		return out
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(raw, name, &clientcmd.ConfigOverrides{}, o.config.ToRawKubeConfigLoader().ConfigAccess()).ClientConfig()
	if err == nil {
		config.Timeout, config.Impersonate = cmp.Or(own.Timeout, workerTimeout), own.Impersonate
		var kube client.Client
		if kube, err = clientOf(config); err == nil {
			// Its Muster's own settings are not known here, and the dispatcher takes the defaults, too.
			out.Picture, err = view.Look(ctx, o.clock, view.DefaultSettings(), kube, "", view.QueueKinds)
		}
	}
	switch {
	case err != nil:
		out.Picture, out.Unread = nil, fmt.Sprintf("with the context %s of your kubeconfig: %v", name, err)
	case !out.Picture.Decides():
		out.Unread = fmt.Sprintf("with the context %s of your kubeconfig you may not %s; the ClusterRole muster-explain has these rights", name,
			joined(out.Picture.Missing))
		out.Picture = nil
	}
	return out
}

func joined(rights []view.Right) string {
	names := make([]string, len(rights))
	for i, r := range rights {
		names[i] = r.String()
	}
	return strings.Join(names, ", ")
}

// unread names the workers that an answer leaves out.
func unread(cluster, why string) string {
	if cluster == "" {
		return why
	}
	return fmt.Sprintf("cluster %s: %s", cluster, why)
}

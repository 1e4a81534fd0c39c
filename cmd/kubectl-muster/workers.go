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
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// workers reads the clusters that jobs of this one are given to, with the caller's own rights there: the kubeconfigs by which the manager
// reaches them are Secrets. There are none where this cluster has no MultiKueueCluster.
func (o *options) workers(ctx context.Context, kube client.Reader) ([]view.Worker, error) {
	list, configs := &kueue.MultiKueueClusterList{}, &kueue.MultiKueueConfigList{}
	for i, resource := range []string{"multikueueclusters", "multikueueconfigs"} {
		switch err := kube.List(ctx, []client.ObjectList{list, configs}[i]); {
		case view.IsAbsent(err):
			return nil, o.knownContexts(nil)
		case apierrors.IsForbidden(err):
			return []view.Worker{{Unread: fmt.Sprintf("whether jobs run in other clusters, too, is not known: you may not list %s.%s", resource,
				kueue.SchemeGroupVersion.Group)}}, nil
		case err != nil:
			return nil, fmt.Errorf("listing %s: %w", resource, err)
		}
	}
	out := make([]view.Worker, len(list.Items))
	for i := range list.Items {
		out[i].Name, out[i].Places = list.Items[i].Name, map[string]int{}
		if c := apimeta.FindStatusCondition(list.Items[i].Status.Conditions, kueue.MultiKueueClusterActive); c == nil ||
			c.Status != metav1.ConditionTrue {
			out[i].Inactive = "its manager is not connected to it"
		}
		for j := range configs.Items {
			if at := slices.Index(configs.Items[j].Spec.Clusters, out[i].Name); at >= 0 {
				out[i].Places[configs.Items[j].Name] = at
			}
		}
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
		group.Go(func() { o.read(ctx, &out[i], raw, own) })
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
			return fmt.Errorf("--%s=%s=%s: there is no MultiKueueCluster %q; those that exist: %s", contextFlag, cluster,
				o.contexts[cluster], cluster, cmp.Or(strings.Join(names, ", "), "none"))
		}
	}
	return nil
}

// read reads a worker by its context.
func (o *options) read(ctx context.Context, w *view.Worker, raw clientcmdapi.Config, own *rest.Config) {
	name := cmp.Or(o.contexts[w.Name], w.Name)
	if raw.Contexts[name] == nil {
		w.Unread = fmt.Sprintf("your kubeconfig has no context %s: add one, or name another with --%s %s=CONTEXT", name, contextFlag, w.Name)
		return
	}
	p, err := o.lookBy(ctx, name, raw, own)
	switch {
	case err != nil:
		w.Unread = fmt.Sprintf("with the context %s of your kubeconfig: %v", name, err)
	case !p.Decides():
		w.Unread = fmt.Sprintf("with the context %s of your kubeconfig you may not %s; the ClusterRole muster-explain has these rights", name,
			joined(p.Missing))
	default:
		w.Picture = p
	}
}

// lookBy decides what Muster would do in the cluster of a context. Its Muster's own settings are not known here, and the dispatcher takes
// the defaults, too.
func (o *options) lookBy(ctx context.Context, name string, raw clientcmdapi.Config, own *rest.Config) (*view.Picture, error) {
	access := o.config.ToRawKubeConfigLoader().ConfigAccess()
	config, err := clientcmd.NewNonInteractiveClientConfig(raw, name, &clientcmd.ConfigOverrides{}, access).ClientConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout, config.Impersonate = cmp.Or(own.Timeout, workerTimeout), own.Impersonate
	kube, err := clientOf(config)
	if err != nil {
		return nil, err
	}
	return view.Look(ctx, o.clock, view.DefaultSettings(), kube, "", view.QueueKinds)
}

func joined(rights []view.Right) string {
	names := make([]string, len(rights))
	for i, r := range rights {
		names[i] = r.String()
	}
	return strings.Join(names, ", ")
}

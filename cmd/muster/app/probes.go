package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/muster-dev/muster/cmd/muster/health"
	"github.com/muster-dev/muster/deploy"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
)

// whoAmI returns the names of the installation that this process is of: those of its service
// account. A user that is none, such as an administrator that tries it, gets the usual ones.
func whoAmI(ctx context.Context, kube client.Client, namespace string) (deploy.Names, error) {
	names := deploy.DefaultNames
	names.Namespace = namespace
	review := &authenticationv1.SelfSubjectReview{}
	if err := kube.Create(ctx, review); err != nil {
		return names, fmt.Errorf("asking the cluster which user this process is: %w", err)
	}
	account, isAccount := strings.CutPrefix(review.Status.UserInfo.Username, "system:serviceaccount:")
	if !isAccount {
		return names, nil
	}
	in, name, _ := strings.Cut(account, ":")
	if in != namespace {
		return names, fmt.Errorf("--namespace: %q is not the namespace of the service account %s/%s that this process runs as; set it to %q",
			namespace, in, name, in)
	}
	names.ServiceAccount = name
	return names, nil
}

// addProbes has the manager answer /readyz and /healthz.
func addProbes(mgr ctrl.Manager, o Options, kube client.Client, names deploy.Names, watchdog *health.Watchdog) error {
	objects, err := installed(mgr.GetRESTMapper(), o, names)
	if err != nil {
		return err
	}
	rights, err := health.Rights(kube, names.Namespace, names.ServiceAccount, objects)
	if err != nil {
		return err
	}
	if err := errors.Join(
		health.NewWatch("installed", health.Installed(kube, objects), clock.RealClock{}).AddTo(mgr),
		health.NewWatch("rights", rights, clock.RealClock{}).AddTo(mgr),
		mgr.AddReadyzCheck("caches", health.Synced(mgr.GetCache().WaitForCacheSync)),
		mgr.AddReadyzCheck("writes", refusals.ready),
		mgr.AddHealthzCheck("loops", watchdog.Healthy),
		mgr.AddHealthzCheck("ping", healthz.Ping),
	); err != nil {
		return err
	}
	if o.leads == nil {
		return nil
	}
	return mgr.AddReadyzCheck("leader", o.leads)
}

// installed returns the objects that this process needs in the cluster.
func installed(mapper meta.RESTMapper, o Options, names deploy.Names) ([]*unstructured.Unstructured, error) {
	mutations, err := o.mutationsIn(mapper)
	if err != nil {
		return nil, err
	}
	objects, err := o.manifests()
	if err != nil {
		return nil, err
	}
	if objects, err = mutations.By(objects); err != nil {
		return nil, err
	}
	if o.DryRun {
		if objects, err = deploy.DryRun(objects); err != nil {
			return nil, err
		}
	}
	switch _, err := mapper.RESTMapping(kwokv1alpha1.GroupVersion.WithKind("Machine").GroupKind()); {
	case meta.IsNoMatchError(err):
		objects = slices.DeleteFunc(objects, deploy.ForSimulation)
	case err != nil:
		return nil, fmt.Errorf("checking for simulated machines: %w", err)
	}
	return names.In(objects), nil
}

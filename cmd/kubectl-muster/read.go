package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/muster/configuration"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/queueing/config"
)

// right is one that the caller lacks.
type right struct {
	Verb     string `json:"verb"`
	Resource string `json:"resource"`
}

func (r right) String() string { return r.Verb + " " + r.Resource }

// kind is one that decisions are made from.
type kind struct {
	resource schema.GroupResource
	list     func() client.ObjectList
}

func kindOf[L any, P interface {
	*L
	client.ObjectList
}](group, resource string) kind {
	return kind{schema.GroupResource{Group: group, Resource: resource}, func() client.ObjectList { return P(new(L)) }}
}

var (
	// queueKinds are those without which there are no queues.
	queueKinds = []kind{
		kindOf[kueue.WorkloadList](kueue.SchemeGroupVersion.Group, "workloads"),
		kindOf[kueue.ClusterQueueList](kueue.SchemeGroupVersion.Group, "clusterqueues"),
		kindOf[kueue.LocalQueueList](kueue.SchemeGroupVersion.Group, "localqueues"),
		kindOf[kueue.ResourceFlavorList](kueue.SchemeGroupVersion.Group, "resourceflavors"),
	}
	// groupKinds are those of machines to be had.
	groupKinds = []kind{kindOf[v1alpha1.NodeGroupList](v1alpha1.GroupVersion.Group, "nodegroups")}
	// namespaceQuotaKinds are for a Muster that lets jobs wait for ResourceQuotas.
	namespaceQuotaKinds = []kind{kindOf[corev1.ResourceQuotaList]("", "resourcequotas"), kindOf[corev1.LimitRangeList]("", "limitranges")}
	// decisionKinds are all others that a decision looks at. A cluster may lack some.
	decisionKinds = []kind{
		kindOf[kueue.CohortList](kueue.SchemeGroupVersion.Group, "cohorts"),
		kindOf[kueue.AdmissionCheckList](kueue.SchemeGroupVersion.Group, "admissionchecks"),
		kindOf[kueue.ProvisioningRequestConfigList](kueue.SchemeGroupVersion.Group, "provisioningrequestconfigs"),
		kindOf[v1alpha1.CapacityPolicyList](v1alpha1.GroupVersion.Group, "capacitypolicies"),
		kindOf[provreq.ProvisioningRequestList](provreq.SchemeGroupVersion.Group, "provisioningrequests"),
		kindOf[corev1.NamespaceList]("", "namespaces"),
		kindOf[corev1.NodeList]("", "nodes"),
		kindOf[corev1.PodList]("", "pods"),
		kindOf[corev1.PodTemplateList]("", "podtemplates"),
		kindOf[corev1.PersistentVolumeClaimList]("", "persistentvolumeclaims"),
		kindOf[corev1.PersistentVolumeList]("", "persistentvolumes"),
		kindOf[appsv1.DaemonSetList](appsv1.GroupName, "daemonsets"),
		kindOf[storagev1.StorageClassList](storagev1.GroupName, "storageclasses"),
		kindOf[storagev1.CSIDriverList](storagev1.GroupName, "csidrivers"),
		kindOf[storagev1.CSINodeList](storagev1.GroupName, "csinodes"),
		kindOf[nodev1.RuntimeClassList](nodev1.GroupName, "runtimeclasses"),
		kindOf[schedulingv1.PriorityClassList](schedulingv1.GroupName, "priorityclasses"),
	}
)

// newScheme knows all types that are read.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, provreq.AddToScheme, kueue.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// connect returns a client with the caller's rights, and his namespace.
func (o *options) connect() (kube client.Client, namespace string, err error) {
	namespace, _, err = o.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return nil, "", fmt.Errorf("finding the cluster (name its kubeconfig by --kubeconfig or $KUBECONFIG): %w", err)
	}
	// One command makes a few dozen calls at once; the API server has its own limits.
	config.QPS = -1
	scheme, err := newScheme()
	if err != nil {
		return nil, "", err
	}
	kube, err = client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, "", fmt.Errorf("reaching the cluster: %w", err)
	}
	return kube, namespace, nil
}

// settings are those of the Muster whose decisions are told.
type settings struct {
	queues config.Config
	served model.Instance
}

// settings reads the file that Muster runs with, if there is one.
func (o *options) settings() (out settings, err error) {
	out.served.Classes = model.KnownClasses
	if o.file == "" {
		return out, nil
	}
	file, _, err := configuration.Load(o.file, deploy.Namespace)
	if err != nil {
		return out, fmt.Errorf("--config: %w", err)
	}
	out.queues = file.Queueing.Config
	if classes := file.Provisioning.Classes; classes != nil {
		out.served.Classes = classes
	}
	if name := file.Provisioning.ProcessorInstance; name != nil {
		out.served.Name = *name
	}
	return out, nil
}

// look reads all that decisions are made from, and makes them. The cluster has to know
// some of the kinds that are needed.
func (o *options) look(ctx context.Context, kube client.Reader, namespace string, needed []kind) (*picture, error) {
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	kinds := slices.Concat(queueKinds, groupKinds, decisionKinds)
	if s.queues.NamespaceQuota {
		kinds = append(kinds, namespaceQuotaKinds...)
	}
	r, err := read(ctx, kube, namespace, kinds...)
	if err != nil {
		return nil, err
	}
	if err := r.lacks(needed); err != nil {
		return nil, err
	}
	return newPicture(o.clock, s, r), nil
}

// reading is what the caller may read of some kinds.
type reading struct {
	objects []client.Object
	// missing are the rights to list the others, absent the kinds that the cluster
	// does not know.
	missing []right
	absent  map[schema.GroupResource]bool
}

// read lists all objects of the kinds, in the order of the kinds. Of a kind that the
// caller may not list everywhere, it lists those of his namespace, if he may do that.
func read(ctx context.Context, kube client.Reader, namespace string, kinds ...kind) (*reading, error) {
	lists := make([]client.ObjectList, len(kinds))
	errs, partly := make([]error, len(kinds)), make([]bool, len(kinds))
	var group sync.WaitGroup
	for i, k := range kinds {
		group.Go(func() {
			lists[i] = k.list()
			if errs[i] = kube.List(ctx, lists[i]); apierrors.IsForbidden(errs[i]) {
				partly[i] = kube.List(ctx, lists[i], client.InNamespace(namespace)) == nil
			}
		})
	}
	group.Wait()
	out := &reading{absent: map[schema.GroupResource]bool{}}
	for i, k := range kinds {
		switch err := errs[i]; {
		case isAbsent(err):
			out.absent[k.resource] = true
			continue
		case apierrors.IsForbidden(err):
			out.missing = append(out.missing, right{"list", k.resource.String()})
			if !partly[i] {
				continue
			}
		case err != nil:
			return nil, fmt.Errorf("listing %s: %w", k.resource, err)
		}
		if err := apimeta.EachListItem(lists[i], func(o runtime.Object) error {
			out.objects = append(out.objects, o.(client.Object))
			return nil
		}); err != nil {
			return nil, fmt.Errorf("listing %s: %w", k.resource, err)
		}
	}
	return out, nil
}

// isAbsent says that the cluster does not know the kind.
func isAbsent(err error) bool {
	return apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err)
}

// lacks is an error where the cluster knows none of the kinds.
func (r *reading) lacks(kinds []kind) error {
	names := make([]schema.GroupResource, len(kinds))
	for i, k := range kinds {
		if names[i] = k.resource; !r.absent[k.resource] {
			return nil
		}
	}
	return notInstalled(names...)
}

// notInstalled is the answer of a cluster that knows none of the kinds.
func notInstalled(kinds ...schema.GroupResource) error {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.String()
	}
	return fmt.Errorf("this cluster does not know %s, which Muster works with: it is not installed here. "+
		"Install it with `muster manifests | kubectl apply --server-side -f -`, or name another cluster by --context", strings.Join(names, ", "))
}

package view

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/muster/configuration"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

// Right is a right that the caller lacks.
type Right struct {
	Verb     string `json:"verb"`
	Resource string `json:"resource"`
}

func (r Right) String() string { return r.Verb + " " + r.Resource }

// Kind is a kind that decisions read.
type Kind struct {
	Resource   schema.GroupResource
	namespaced bool
	// NewList returns an empty list of the kind.
	NewList func() client.ObjectList
}

// inNamespaces are the kinds that have namespaces.
var inNamespaces = []string{
	"workloads", "localqueues", "resourcequotas", "provisioningrequests", "limitranges", "pods", "podtemplates", "persistentvolumeclaims", "daemonsets",
	"resourceclaims", "resourceclaimtemplates",
}

func kindOf[L any, P interface {
	*L
	client.ObjectList
}](group, resource string) Kind {
	return Kind{schema.GroupResource{Group: group, Resource: resource}, slices.Contains(inNamespaces, resource),
		func() client.ObjectList { return P(new(L)) }}
}

var (
	// QueueKinds are the kinds without which there are no queues.
	QueueKinds = []Kind{
		kindOf[kueue.WorkloadList](kueue.SchemeGroupVersion.Group, "workloads"),
		kindOf[kueue.ClusterQueueList](kueue.SchemeGroupVersion.Group, "clusterqueues"),
		kindOf[kueue.LocalQueueList](kueue.SchemeGroupVersion.Group, "localqueues"),
		kindOf[kueue.ResourceFlavorList](kueue.SchemeGroupVersion.Group, "resourceflavors"),
	}
	// GroupKinds are the kinds of node groups.
	GroupKinds = []Kind{kindOf[v1alpha1.NodeGroupList](v1alpha1.GroupVersion.Group, "nodegroups")}
	// DeviceKinds are the kinds that say which devices nodes have.
	DeviceKinds = []Kind{
		kindOf[resourcev1.DeviceClassList](resourcev1.GroupName, "deviceclasses"),
		kindOf[resourcev1.DeviceTaintRuleList](resourcev1.GroupName, "devicetaintrules"),
		kindOf[resourcev1.ResourceSliceList](resourcev1.GroupName, "resourceslices"),
		kindOf[corev1.NodeList]("", "nodes"),
	}
	// namespaceQuotaKinds are read if namespaceQuota is set.
	namespaceQuotaKinds = []Kind{kindOf[corev1.ResourceQuotaList]("", "resourcequotas")}
	// decisionKinds are all other kinds that decisions read. A cluster may lack some.
	decisionKinds = []Kind{
		kindOf[kueue.CohortList](kueue.SchemeGroupVersion.Group, "cohorts"),
		kindOf[kueue.TopologyList](kueue.SchemeGroupVersion.Group, "topologies"),
		kindOf[kueue.AdmissionCheckList](kueue.SchemeGroupVersion.Group, "admissionchecks"),
		kindOf[kueue.ProvisioningRequestConfigList](kueue.SchemeGroupVersion.Group, "provisioningrequestconfigs"),
		kindOf[v1alpha1.CapacityPolicyList](v1alpha1.GroupVersion.Group, "capacitypolicies"),
		kindOf[provreq.ProvisioningRequestList](provreq.SchemeGroupVersion.Group, "provisioningrequests"),
		kindOf[corev1.NamespaceList]("", "namespaces"),
		kindOf[corev1.LimitRangeList]("", "limitranges"),
		kindOf[resourcev1.ResourceClaimTemplateList](resourcev1.GroupName, "resourceclaimtemplates"),
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
		kindOf[resourcev1.ResourceClaimList](resourcev1.GroupName, "resourceclaims"),
	}
)

// NewScheme returns a scheme with all types that are read.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, provreq.AddToScheme, kueue.AddToScheme,
		v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// Settings are those of the Muster whose decisions are repeated.
type Settings struct {
	queues config.Config
	served transaction.Instance
}

// DefaultSettings are those of a Muster without a file.
func DefaultSettings() (out Settings) {
	out.served.Classes = transaction.KnownClasses
	return out
}

// LoadSettings reads the file that Muster takes as its --config; an empty name means the
// defaults.
func LoadSettings(file string) (out Settings, err error) {
	if out = DefaultSettings(); file == "" {
		return out, nil
	}
	loaded, _, err := configuration.Load(file, deploy.Namespace)
	if err != nil {
		return out, fmt.Errorf("--config: %w", err)
	}
	out.queues = loaded.Queueing.Config
	if classes := loaded.Provisioning.Classes; classes != nil {
		out.served.Classes = classes
	}
	if name := loaded.Provisioning.ProcessorInstance; name != nil {
		out.served.Name = *name
	}
	return out, nil
}

// Kinds returns all kinds that decisions read.
func (s Settings) Kinds() []Kind {
	// What the pods of decisionKinds claim is counted when they are read: the DeviceClasses go before.
	kinds := slices.Concat(QueueKinds, GroupKinds, DeviceKinds, decisionKinds)
	if s.queues.NamespaceQuota {
		kinds = append(kinds, namespaceQuotaKinds...)
	}
	return kinds
}

// Look reads all objects that decisions need, and decides. The cluster has to serve some of
// the needed kinds.
func Look(ctx context.Context, c clock.PassiveClock, s Settings, kube client.Reader, namespace string, needed []Kind) (*Picture, error) {
	r, err := Read(ctx, kube, namespace, s.Kinds()...)
	if err != nil {
		return nil, err
	}
	if err := r.Lacks(needed); err != nil {
		return nil, err
	}
	return New(c, s, r), nil
}

// Reading is what the caller may read of some kinds.
type Reading struct {
	Objects []client.Object
	// Missing are the rights to list the others; absent are the kinds that the cluster does
	// not serve.
	Missing []Right
	absent  map[schema.GroupResource]bool
	// unread are the kinds that the caller may not even list in its namespace.
	unread map[schema.GroupResource]bool
}

// Read lists all objects of the kinds, in the order of the kinds. Of a kind that the caller
// may not list in all namespaces, it lists those of namespace if that is allowed. A caller that
// may not list the first kind is the user of one namespace: no kind that has namespaces is then
// requested in all of them.
func Read(ctx context.Context, kube client.Reader, namespace string, of ...Kind) (*Reading, error) {
	lists := make([]client.ObjectList, len(of))
	errs, partly := make([]error, len(of)), make([]bool, len(of))
	narrow := false
	list := func(i int) {
		lists[i] = of[i].NewList()
		if narrow && of[i].namespaced {
			errs[i] = apierrors.NewForbidden(of[i].Resource, "", errors.New("not asked for"))
		} else {
			errs[i] = kube.List(ctx, lists[i])
		}
		if apierrors.IsForbidden(errs[i]) && of[i].namespaced {
			partly[i] = kube.List(ctx, lists[i], client.InNamespace(namespace)) == nil
		}
	}
	if len(of) > 0 {
		list(0)
		narrow = of[0].namespaced && apierrors.IsForbidden(errs[0])
	}
	var group sync.WaitGroup
	for i := 1; i < len(of); i++ {
		group.Go(func() { list(i) })
	}
	group.Wait()
	out := &Reading{absent: map[schema.GroupResource]bool{}, unread: map[schema.GroupResource]bool{}}
	for i, k := range of {
		switch err := errs[i]; {
		case IsAbsent(err):
			out.absent[k.Resource] = true
			continue
		case apierrors.IsForbidden(err):
			out.Missing = append(out.Missing, Right{"list", k.Resource.String()})
			if !partly[i] {
				out.unread[k.Resource] = true
				continue
			}
		case err != nil:
			return nil, fmt.Errorf("listing %s: %w", k.Resource, err)
		}
		if err := apimeta.EachListItem(lists[i], func(o runtime.Object) error {
			out.Objects = append(out.Objects, o.(client.Object))
			return nil
		}); err != nil {
			return nil, fmt.Errorf("listing %s: %w", k.Resource, err)
		}
	}
	return out, nil
}

// IsAbsent reports whether the cluster does not serve the kind.
func IsAbsent(err error) bool {
	return apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err)
}

// Lacks returns an error if the cluster serves none of the kinds.
func (r *Reading) Lacks(kinds []Kind) error {
	names := make([]schema.GroupResource, len(kinds))
	for i, k := range kinds {
		if names[i] = k.Resource; !r.absent[k.Resource] {
			return nil
		}
	}
	return NotInstalled(names...)
}

// NotServed is the error for a cluster that does not serve the kind of an object of a user: Muster's own and Kueue's come with Muster,
// kinds of jobs with their controllers.
func NotServed(kind schema.GroupResource) error {
	if slices.Contains([]string{v1alpha1.GroupVersion.Group, kueue.SchemeGroupVersion.Group, provreq.SchemeGroupVersion.Group}, kind.Group) {
		return NotInstalled(kind)
	}
	name, version := "the controller of that kind of jobs", ""
	if o, known := kinds.OperatorOf(kind.Resource); known {
		name, version = o.Name, fmt.Sprintf(" (Muster is tested with %s)", o.Version)
	}
	return fmt.Errorf("this cluster does not serve %s: %s is not installed. Install it first%s; Muster then queues the jobs that have the "+
		"label %s", kind, name, version, jobs.QueueLabel)
}

// NotInstalled is the error for a cluster that serves none of the kinds.
func NotInstalled(kinds ...schema.GroupResource) error {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.String()
	}
	return fmt.Errorf("this cluster does not serve %s: Muster is not installed. "+
		"Install it with `muster manifests | kubectl apply --server-side -f -`, or choose another cluster with --context",
		strings.Join(names, ", "))
}

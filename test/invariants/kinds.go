package invariants

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/test/invariants/promises"
)

var parameterCodec = clientgoscheme.ParameterCodec

// kinds are all kinds that the Checker reads, with their resources in the API.
var kinds = []struct {
	kind     promises.Kind
	version  schema.GroupVersion
	resource string
	list     func() runtime.Object
}{
	{promises.Nodes, corev1.SchemeGroupVersion, "nodes", func() runtime.Object { return &corev1.NodeList{} }},
	{promises.Pods, corev1.SchemeGroupVersion, "pods", func() runtime.Object { return &corev1.PodList{} }},
	{promises.PodTemplates, corev1.SchemeGroupVersion, "podtemplates", func() runtime.Object { return &corev1.PodTemplateList{} }},
	{promises.Jobs, batchv1.SchemeGroupVersion, "jobs", func() runtime.Object { return &batchv1.JobList{} }},
	{promises.ProvisioningRequests, provreq.SchemeGroupVersion, "provisioningrequests", func() runtime.Object { return &provreq.ProvisioningRequestList{} }},
	{promises.Workloads, kueue.SchemeGroupVersion, "workloads", func() runtime.Object { return &kueue.WorkloadList{} }},
	{promises.ClusterQueues, kueue.SchemeGroupVersion, "clusterqueues", func() runtime.Object { return &kueue.ClusterQueueList{} }},
	{promises.LocalQueues, kueue.SchemeGroupVersion, "localqueues", func() runtime.Object { return &kueue.LocalQueueList{} }},
	{promises.Cohorts, kueue.SchemeGroupVersion, "cohorts", func() runtime.Object { return &kueue.CohortList{} }},
	{promises.AdmissionChecks, kueue.SchemeGroupVersion, "admissionchecks", func() runtime.Object { return &kueue.AdmissionCheckList{} }},
	{promises.CapacityPolicies, v1alpha1.GroupVersion, "capacitypolicies", func() runtime.Object { return &v1alpha1.CapacityPolicyList{} }},
	{promises.NodeGroups, v1alpha1.GroupVersion, "nodegroups", func() runtime.Object { return &v1alpha1.NodeGroupList{} }},
	{promises.Machines, kwokv1alpha1.GroupVersion, "machines", func() runtime.Object { return &kwokv1alpha1.MachineList{} }},
}

// newStreams returns a stream for each kind. They share one connection, and need no discovery, since the API server may not serve all
// kinds.
func newStreams(config *rest.Config) ([]*stream, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, provreq.AddToScheme, kueue.AddToScheme, v1alpha1.AddToScheme, kwokv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config = rest.AddUserAgent(config, "muster-invariants")
	config.QPS = -1
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	var out []*stream
	for _, k := range kinds {
		own := rest.CopyConfig(config)
		own.GroupVersion, own.APIPath = &k.version, "/apis"
		if k.version.Group == corev1.GroupName {
			own.APIPath = "/api"
		}
		if k.version.Group == corev1.GroupName || k.version.Group == batchv1.GroupName {
			own.AcceptContentTypes, own.ContentType = "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"
		}
		client, err := rest.RESTClientForConfigAndClient(own, transport)
		if err != nil {
			return nil, fmt.Errorf("a client for %s: %w", k.resource, err)
		}
		out = append(out, &stream{kind: k.kind, resource: k.resource, client: client, list: k.list, known: map[types.UID]metav1.Object{}})
	}
	return out, nil
}

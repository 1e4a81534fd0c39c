package e2e

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// claimed creates a DeviceClass with the site's name, a ResourceClaimTemplate for four of its devices, and a group of machines
// without a device plugin, for which a driver publishes eight devices some time after the node is Ready.
func (s *site) claimed(class func(*resourcev1.DeviceClass)) *v1alpha1.NodeGroup {
	s.Helper()
	c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	c.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
		Expression: fmt.Sprintf("device.attributes[%q].?site.orValue('') == %q", driver, s.Name)}}}
	if class != nil {
		class(c)
	}
	t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "four"}}
	t.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpus", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: s.Name, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 4}}}
	s.Create(c, t)
	return s.Group("", func(g *v1alpha1.NodeGroup) {
		delete(g.Spec.Template.Capacity, "nvidia.com/gpu")
		g.Spec.Template.Devices = []v1alpha1.DevicePool{{Driver: driver, Devices: []v1alpha1.Device{{Name: "gpu-", Count: 8,
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"site": {StringValue: &s.Name}}}}}}
		g.Spec.Kwok.DeviceDelay = metav1.Duration{Duration: 2 * time.Second}
	})
}

const driver = "gpu.example.com"

// fourEach makes pods claim four devices and request no others.
func fourEach(spec *corev1.PodSpec) {
	spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: new("four")}}
	spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpus"}}
}

// allocated returns the devices allocated to claims of the site's pods, as node/device.
func (s *site) allocated() (devices map[string]bool, claims int) {
	s.Helper()
	list := &resourcev1.ResourceClaimList{}
	s.List(list, client.InNamespace(s.Name))
	devices = map[string]bool{}
	for i := range list.Items {
		if a := list.Items[i].Status.Allocation; a != nil {
			claims++
			for _, r := range a.Devices.Results {
				devices[r.Pool+"/"+r.Device] = true
			}
		}
	}
	return devices, claims
}

func TestStoryAGangClaimsItsDevices(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.claimed(nil)
	r := s.request("gang", 4, nil, fourEach)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	nodes := s.opened("gang", 2)
	slices := &resourcev1.ResourceSliceList{}
	s.List(slices)
	for _, n := range nodes {
		published := 0
		for i := range slices.Items {
			if of := slices.Items[i].Spec.NodeName; of != nil && *of == n.Name {
				published += len(slices.Items[i].Spec.Devices)
			}
		}
		if published != 8 || n.Status.Allocatable.Name("nvidia.com/gpu", "").Value() != 0 {
			t.Errorf("node %s was booked when %d of 8 devices were published, and offers %v", n.Name, published, n.Status.Allocatable)
		}
	}
	for i := range 4 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: fmt.Sprintf("worker-%d", i),
			Annotations: map[string]string{provreq.ProvisioningRequestPodAnnotationKey: "gang", kwokv1alpha1.RunForAnnotation: "1h"}},
			Spec: s.podSpec()}
		fourEach(&p.Spec)
		s.Create(p)
	}
	s.Eventually("each pod has four devices of its own", func() bool {
		devices, claims := s.allocated()
		return claims == 4 && len(devices) == 16
	}, func() string {
		devices, claims := s.allocated()
		return fmt.Sprintf("%d claims have %d devices", claims, len(devices))
	})
	s.Eventually("the booking is used up", func() bool {
		return s.Get(r) && len(r.Status.Conditions) > 0 && transaction.IsConsumed(r)
	}, func() string { return fmt.Sprintf("conditions %+v", r.Status.Conditions) })
	// No other pod gets the gang's devices.
	second := s.request("second", 1, func(r *provreq.ProvisioningRequest) {
		r.Spec.ProvisioningClassName = transaction.ClassCheckCapacity
	}, fourEach)
	s.condition(second, provreq.Provisioned, metav1.ConditionFalse)
	for i := range 4 {
		s.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: fmt.Sprintf("worker-%d", i)}})
	}
	s.Delete(second)
	s.Delete(r)
	s.Empty(g.Name)
}

// A queue counts devices by the extended resource that their class names; the scheduler claims them for the pods.
func TestAQueuedJobHasDevicesByAnExtendedResource(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	gpus := "example.com/" + s.Name
	g := s.claimed(func(c *resourcev1.DeviceClass) { c.Spec.ExtendedResourceName = &gpus })
	s.capacityCheck()
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
	flavor.Spec.NodeLabels = map[string]string{v1alpha1.NodeGroupLabel: g.Name}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "capacity"}}}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu", corev1.ResourceName(gpus)},
		Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(g.Name), Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("64")}, {Name: corev1.ResourceName(gpus), NominalQuota: resource.MustParse("16")},
		}}}}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Name}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(s.Name)
	s.Create(flavor, cq, lq)
	eight := func(j *batchv1.Job) {
		j.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{
			"cpu": resource.MustParse("1"), corev1.ResourceName(gpus): resource.MustParse("8")}}
	}
	first := s.job("train", 2, func(j *batchv1.Job) { eight(j); lasting("1h")(j) })
	s.Eventually("each pod has eight devices of its own", func() bool {
		devices, claims := s.allocated()
		return claims == 2 && len(devices) == 16
	}, func() string {
		devices, claims := s.allocated()
		return fmt.Sprintf("%d claims have %d devices", claims, len(devices))
	})
	second := s.job("more", 1, eight)
	s.pending(second, "quota")
	s.Delete(first, client.PropagationPolicy(metav1.DeletePropagationBackground))
	s.complete(second)
	s.Empty(g.Name)
}

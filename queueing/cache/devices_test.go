package cache

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/config"
)

// TestClaimsCountAgainstQuota as Kueue 0.20 counts them.
func TestClaimsCountAgainstQuota(t *testing.T) {
	settings := config.Config{Resources: &kueueconfig.Resources{DeviceClassMappings: []kueueconfig.DeviceClassMapping{
		{Name: "example.com/gpus", DeviceClassNames: []corev1.ResourceName{"gpu", "big"}},
		{Name: "example.com/nics", DeviceClassNames: []corev1.ResourceName{"nic"}},
	}, Transformations: []kueueconfig.ResourceTransformation{
		{Input: "example.com/slots", Outputs: corev1.ResourceList{"example.com/gpus": resource.MustParse("1")}},
	}}}
	listOf := func(text string) corev1.ResourceList {
		list := corev1.ResourceList{}
		for name, q := range unmarshal[map[corev1.ResourceName]int64](t, text) {
			list[name] = *resource.NewQuantity(q, resource.DecimalSI)
		}
		return list
	}
	class := func(name, extended string) *resourcev1.DeviceClass {
		c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if extended != "" {
			c.Spec.ExtendedResourceName = &extended
		}
		return c
	}
	for name, c := range map[string]struct {
		claim, requests string
		// sidecar is the request of a sidecar container.
		sidecar, overhead string
		// shared: the pods name a ResourceClaim.
		shared  bool
		want    nodegroups.Resources
		refused string
	}{
		"a number of devices": {claim: "requests: [{name: r, exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 3}}]",
			want: nodegroups.Resources{"example.com/gpus": 3}},
		"classes of one resource": {claim: "requests: [{name: r, exactly: {deviceClassName: gpu, count: 3}}, {name: s, exactly: {deviceClassName: big, count: 1}}]",
			want: nodegroups.Resources{"example.com/gpus": 4}},
		"of two": {claim: "requests: [{name: r, exactly: {deviceClassName: gpu, count: 1}}, {name: s, exactly: {deviceClassName: nic, count: 2}}]",
			want: nodegroups.Resources{"example.com/gpus": 1, "example.com/nics": 2}},
		"a selector does not count": {claim: "requests: [{name: r, exactly: {deviceClassName: gpu, count: 3, selectors: [{cel: {expression: 'true'}}]}}]",
			want: nodegroups.Resources{"example.com/gpus": 3}},
		"a request without a mode": {claim: "requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}]",
			want: nodegroups.Resources{"example.com/gpus": 2}},
		"constraints do not count": {claim: "requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}]\nconstraints: [{matchAttribute: example.com/numa}]",
			want: nodegroups.Resources{"example.com/gpus": 2}},
		"config does not count": {claim: "requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}]\nconfig: [{opaque: {driver: d, parameters: {a: 1}}}]",
			want: nodegroups.Resources{"example.com/gpus": 2}},
		"a claim that pods share": {shared: true, refused: "a ResourceClaim that pods share is not supported"},
		"an administrator's": {claim: "requests: [{name: r, exactly: {deviceClassName: gpu, count: 3, adminAccess: true}}]",
			want: nodegroups.Resources{}},
		"alternatives of the same": {claim: "requests: [{name: r, firstAvailable: [{name: a, deviceClassName: big, count: 2}, {name: b, deviceClassName: gpu, count: 2}]}]",
			want: nodegroups.Resources{"example.com/gpus": 2}},
		"alternatives that differ": {claim: "requests: [{name: r, firstAvailable: [{name: a, deviceClassName: big, count: 1}, {name: b, deviceClassName: gpu, count: 2}]}]",
			refused: "FirstAvailable device selection is not supported"},
		"all devices": {claim: "requests: [{name: r, exactly: {deviceClassName: gpu, allocationMode: All}}]",
			refused: "AllocationMode 'All' is not supported"},
		"a class that no mapping has": {claim: "requests: [{name: r, exactly: {deviceClassName: fpga, count: 1}}]",
			refused: "DeviceClass fpga is not mapped in DRA configuration for podset main"},
		"a template that does not exist":  {claim: "", refused: "ResourceClaimTemplate c doesn't exist"},
		"an extended resource of a class": {requests: "{nvidia.com/gpu: 2}", want: nodegroups.Resources{"example.com/gpus": 2}},
		"the name that each class has": {requests: "{deviceclass.resource.kubernetes.io/nic: 2}",
			want: nodegroups.Resources{"example.com/nics": 2}},
		"an extended resource of none": {requests: "{amd.com/gpu: 2}", want: nodegroups.Resources{"amd.com/gpu": 2}},
		"two names of one resource": {requests: "{nvidia.com/gpu: 2}", claim: "requests: [{name: r, exactly: {deviceClassName: gpu, count: 1}}]",
			want: nodegroups.Resources{"example.com/gpus": 3}},
		"the pod's overhead of the same name": {overhead: "{example.com/gpus: 1}", claim: "requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}]",
			want: nodegroups.Resources{"example.com/gpus": 3}},
		"an output of the same name": {requests: "{example.com/slots: 2}", claim: "requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}]",
			want: nodegroups.Resources{"example.com/gpus": 4, "example.com/slots": 2}},
		"a sidecar's extended resource": {requests: "{nvidia.com/gpu: 2}", sidecar: "{nvidia.com/gpu: 1}",
			want: nodegroups.Resources{"example.com/gpus": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(settings)
			w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "w", UID: "w"}}
			ps := kueue.PodSet{Name: "main", Count: 1}
			ps.Template.Spec.Containers = []corev1.Container{{}}
			if c.requests != "" {
				list := listOf(c.requests)
				ps.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
			}
			if c.sidecar != "" {
				list := listOf(c.sidecar)
				ps.Template.Spec.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
					Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}
			}
			if c.overhead != "" {
				ps.Template.Spec.Overhead = listOf(c.overhead)
			}
			if c.requests == "" || c.claim != "" {
				ps.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: new("c")}}
			}
			if c.shared {
				ps.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: new("c")}}
			}
			w.Spec.PodSets = []kueue.PodSet{ps}
			s.Set(w) // before what it refers to
			for _, class := range []*resourcev1.DeviceClass{class("gpu", "nvidia.com/gpu"), class("big", ""), class("nic", ""), class("fpga", "")} {
				s.Set(class)
			}
			if c.claim != "" {
				template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c"}}
				template.Spec.Spec.Devices = unmarshal[resourcev1.DeviceClaim](t, c.claim)
				s.Set(template)
			}
			of := s.Workloads["w"]
			if why := of.RefusedClaims(); (why == "") != (c.refused == "") || !strings.Contains(why, c.refused) {
				t.Errorf("refused with %q, want %q", why, c.refused)
			}
			if c.refused == "" && !maps.Equal(of.Pod[0], c.want) {
				t.Errorf("a pod counts %v, want %v", of.Pod[0], c.want)
			}
		})
	}
}

func unmarshal[T any](t *testing.T, text string) (out T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

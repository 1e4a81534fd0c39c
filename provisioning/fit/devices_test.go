package fit

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/nodegroups"
)

// claimObjects has the class gpu, which nvidia.com/gpu stands for, the class nic, and templates by name.
func claimObjects(t *testing.T, templates map[string]string) Objects {
	t.Helper()
	resource := "nvidia.com/gpu"
	gpu, nic := &resourcev1.DeviceClass{}, &resourcev1.DeviceClass{}
	gpu.Name, nic.Name = "gpu", "nic"
	gpu.Spec.ExtendedResourceName = &resource
	classes := NewClasses(slices.Values([]*resourcev1.DeviceClass{gpu, nic}))
	return Objects{
		ClaimTemplate: func(namespace, name string) *resourcev1.ResourceClaimTemplate {
			text, ok := templates[namespace+"/"+name]
			if !ok {
				return nil
			}
			out := &resourcev1.ResourceClaimTemplate{}
			if err := yaml.UnmarshalStrict([]byte(text), &out.Spec.Spec.Devices); err != nil {
				t.Fatal(err)
			}
			return out
		},
		Classes: &classes,
	}
}

func TestClaimsAreCounted(t *testing.T) {
	const nic = "deviceclass.resource.kubernetes.io/nic"
	for name, c := range map[string]struct {
		spec, claim string
		want        nodegroups.Resources
		extended    int
	}{
		"an exact count": {"resourceClaims: [{name: c, resourceClaimTemplateName: c}]",
			"requests: [{name: a, exactly: {deviceClassName: gpu, count: 2}}, {name: b, exactly: {deviceClassName: nic, count: 1}}]",
			nodegroups.Resources{"nvidia.com/gpu": 2, nic: 1}, 0},
		"two claims of one template": {"resourceClaims: [{name: c, resourceClaimTemplateName: c}, {name: d, resourceClaimTemplateName: c}]",
			"requests: [{name: a, exactly: {deviceClassName: gpu, count: 2}}]", nodegroups.Resources{"nvidia.com/gpu": 4}, 0},
		"all devices are one at least": {"resourceClaims: [{name: c, resourceClaimTemplateName: c}]",
			"requests: [{name: a, exactly: {deviceClassName: gpu, allocationMode: All}}]", nodegroups.Resources{"nvidia.com/gpu": 1}, 0},
		"administrators take none": {"resourceClaims: [{name: c, resourceClaimTemplateName: c}]",
			"requests: [{name: a, exactly: {deviceClassName: gpu, count: 2, adminAccess: true}}]", nodegroups.Resources{}, 0},
		"a tolerated device need not be sound": {"resourceClaims: [{name: c, resourceClaimTemplateName: c}]",
			"requests: [{name: a, exactly: {deviceClassName: gpu, count: 2, tolerations: [{operator: Exists}]}}]", nodegroups.Resources{}, 0},
		"the least of alternatives": {"resourceClaims: [{name: c, resourceClaimTemplateName: c}]",
			"requests: [{name: a, firstAvailable: [{name: x, deviceClassName: gpu, count: 4}, {name: y, deviceClassName: gpu, count: 2}]}]",
			nodegroups.Resources{"nvidia.com/gpu": 2}, 0},
		"nothing of alternatives of several classes": {"resourceClaims: [{name: c, resourceClaimTemplateName: c}]",
			"requests: [{name: a, firstAvailable: [{name: x, deviceClassName: gpu, count: 4}, {name: y, deviceClassName: nic, count: 2}]}]",
			nodegroups.Resources{}, 0},
		"an extended resource": {"containers: [{name: c, resources: {limits: {nvidia.com/gpu: 3}}}]", "",
			nodegroups.Resources{"nvidia.com/gpu": 3}, 1},
		"the name that each class has": {"containers: [{name: c, resources: {limits: {deviceclass.resource.kubernetes.io/gpu: 3}}}]", "",
			nodegroups.Resources{"nvidia.com/gpu": 3}, 0},
		"that of a class without another": {"containers: [{name: c, resources: {limits: {deviceclass.resource.kubernetes.io/nic: 3}}}]", "",
			nodegroups.Resources{nic: 3}, 0},
		"a resource that stands for no class": {"containers: [{name: c, resources: {limits: {amd.com/gpu: 3}}}]", "",
			nodegroups.Resources{"amd.com/gpu": 3}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, refusal := NewPod("team", "w", 2, template(t, "app=x", c.spec), claimObjects(t, map[string]string{"team/c": c.claim}))
			if refusal.Refused() {
				t.Fatal(refusal)
			}
			got := p.Requests.Clone()
			delete(got, corev1.ResourcePods)
			if !maps.Equal(got, c.want) {
				t.Errorf("it takes %v, want %v", got, c.want)
			}
			if extended := p.Claims != nil && len(p.Claims.Extended) > 0; extended != (c.extended > 0) {
				t.Errorf("claims %+v", p.Claims)
			}
		})
	}
}

func TestClaimsThatCannotBeJudged(t *testing.T) {
	const one = "resourceClaims: [{name: c, resourceClaimTemplateName: c}]"
	for name, c := range map[string]struct {
		spec, claim, want string
		kind              RefusalKind
	}{
		"a template that does not exist": {"resourceClaims: [{name: c, resourceClaimTemplateName: d}]", "",
			"podSet w waits for ResourceClaimTemplate d, " +
				"which does not exist (spec.resourceClaims[0].resourceClaimTemplateName)", Unready},
		"a class that does not exist": {one, "requests: [{name: a, exactly: {deviceClassName: fpga}}]",
			"podSet w waits for DeviceClass fpga of " +
				"ResourceClaimTemplate c, which does not exist (spec.resourceClaims[0].resourceClaimTemplateName)", Unready},
		"a class of a resource": {"containers: [{name: c, resources: {limits: {deviceclass.resource.kubernetes.io/fpga: 3}}}]", "",
			"podSet w waits for DeviceClass fpga, which does not exist (resources of spec.containers)", Unready},
		"one device of all": {one, `requests: [{name: a, exactly: {deviceClassName: gpu,
			selectors: [{cel: {expression: 'device.attributes["gpu"].uuid == "x"'}}]}}]`,
			"podSet w uses spec.resourceClaims[0].resourceClaimTemplateName (request a of ResourceClaimTemplate c selects a device by what " +
				"identifies it), which Muster cannot judge: select by attributes that machines have in common, such as productName", Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			_, refusal := NewPod("team", "w", 2, template(t, "app=x", c.spec), claimObjects(t, map[string]string{"team/c": c.claim}))
			if refusal.Kind != c.kind || refusal.Message != c.want {
				t.Errorf("%d %s\nwant %s", refusal.Kind, refusal.Message, c.want)
			}
		})
	}
}

package devices

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
)

// classes contains the DeviceClasses that GPU drivers install, and a class without an extended resource.
const classes = `
- metadata: {name: gpu.nvidia.com}
  spec:
    extendedResourceName: nvidia.com/gpu
    selectors: [{cel: {expression: 'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu"'}}]
- metadata: {name: mig.nvidia.com}
  spec:
    selectors: [{cel: {expression: 'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "mig"'}}]
- metadata: {name: nic.example.com}
  spec: {selectors: [{cel: {expression: 'device.driver == "nic.example.com"'}}]}
`

// inventories by name.
var inventories = map[string]string{
	"8 GPUs": `
- driver: gpu.nvidia.com
  devices:
  - {name: gpu-, count: 8, attributes: {type: {string: gpu}, productName: {string: H100}}, capacity: {memory: {value: 80Gi}}}`,
	"2 GPUs beside 2 others": `
- driver: gpu.nvidia.com
  devices:
  - {name: gpu-a, count: 2, attributes: {type: {string: gpu}, productName: {string: A100}}}
  - {name: gpu-h, count: 2, attributes: {type: {string: gpu}, productName: {string: H100}}}`,
	"4 GPUs and NICs on 2 roots": `
- driver: gpu.nvidia.com
  devices:
  - {name: gpu-0, attributes: {type: {string: gpu}, resource.kubernetes.io/pcieRoot: {string: a}}}
  - {name: gpu-1, attributes: {type: {string: gpu}, resource.kubernetes.io/pcieRoot: {string: a}}}
  - {name: gpu-2, attributes: {type: {string: gpu}, resource.kubernetes.io/pcieRoot: {string: b}}}
  - {name: gpu-3, attributes: {type: {string: gpu}, resource.kubernetes.io/pcieRoot: {string: b}}}
- driver: nic.example.com
  devices:
  - {name: nic-0, attributes: {resource.kubernetes.io/pcieRoot: {string: a}}}
  - {name: nic-1, attributes: {resource.kubernetes.io/pcieRoot: {string: b}}}`,
	"a GPU in slices": `
- driver: gpu.nvidia.com
  sharedCounters: [{name: gpu-0, counters: {slices: {value: "4"}}}]
  devices:
  - {name: gpu-0, attributes: {type: {string: gpu}}, consumesCounters: [{counterSet: gpu-0, counters: {slices: {value: "4"}}}]}
  - {name: mig-a-, count: 4, attributes: {type: {string: mig}, profile: {string: 1g}},
     consumesCounters: [{counterSet: gpu-0, counters: {slices: {value: "1"}}}]}
  - {name: mig-b-, count: 2, attributes: {type: {string: mig}, profile: {string: 2g}},
     consumesCounters: [{counterSet: gpu-0, counters: {slices: {value: "2"}}}]}`,
	"a GPU that is shared": `
- driver: gpu.nvidia.com
  devices:
  - {name: gpu-0, allowMultipleAllocations: true, attributes: {type: {string: gpu}}, capacity: {memory: {value: 80Gi,
     requestPolicy: {default: 10Gi, validRange: {min: 10Gi, step: 10Gi}}}}}`,
}

// claims by name, as the requests and constraints of one claim.
var claimsOf = map[string]string{
	"a GPU":    `requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 1}}]`,
	"3 GPUs":   `requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 3}}]`,
	"all GPUs": `requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: All}}]`,
	"an H100": `requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 1,
		selectors: [{cel: {expression: 'device.attributes["gpu.nvidia.com"].productName == "H100"'}}]}}]`,
	"a 2g or 2 of 1g": `requests: [{name: r, firstAvailable: [{name: a, deviceClassName: mig.nvidia.com, allocationMode: ExactCount,
		count: 1, selectors: [{cel: {expression: 'device.attributes["gpu.nvidia.com"].profile == "2g"'}}]}, {name: b, deviceClassName: mig.nvidia.com, allocationMode: ExactCount, count: 2, selectors: [{cel: {expression: 'device.attributes["gpu.nvidia.com"].profile == "1g"'}}]}]}]`,
	"a 1g": `requests: [{name: r, exactly: {deviceClassName: mig.nvidia.com, allocationMode: ExactCount, count: 1,
		selectors: [{cel: {expression: 'device.attributes["gpu.nvidia.com"].profile == "1g"'}}]}}]`,
	"a GPU beside its NIC": `
requests:
- {name: g, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 1}}
- {name: n, exactly: {deviceClassName: nic.example.com, allocationMode: ExactCount, count: 1}}
constraints: [{matchAttribute: resource.kubernetes.io/pcieRoot}]`,
	"20Gi of a GPU": `requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 1,
		capacity: {requests: {memory: 20Gi}}}}]`,
	"administrator": `requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 1,
		adminAccess: true}}]`,
	"a tolerant GPU": `requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 1,
		tolerations: [{operator: Exists}]}}]`,
}

func read[T any](t testing.TB, text string) (out T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return out
}

func catalog(t testing.TB) *Catalog {
	t.Helper()
	return NewCatalog(slices.Values(read[[]*resourcev1.DeviceClass](t, classes)))
}

func publish(t testing.TB, c *Catalog, inventory string, change func(*Offer)) *Published {
	t.Helper()
	o := Offer{Slices: nodegroups.ResourceSlices(read[[]v1alpha1.DevicePool](t, inventories[inventory]))}
	if change != nil {
		change(&o)
	}
	return c.Publish(o)
}

func claims(t testing.TB, name string) *fit.Claims {
	t.Helper()
	if n, ok := strings.CutPrefix(name, "nvidia.com/gpu "); ok {
		count := read[int64](t, n)
		return &fit.Claims{Key: name, Extended: []fit.ExtendedRequest{{Resource: "nvidia.com/gpu", Class: "gpu.nvidia.com", Count: count}}}
	}
	return &fit.Claims{Key: name, Specs: []resourcev1.ResourceClaimSpec{{Devices: read[resourcev1.DeviceClaim](t, claimsOf[name])}}}
}

func TestAllocate(t *testing.T) {
	taint := func(device string) func(*Offer) {
		return func(o *Offer) {
			o.Rules = []*resourcev1.DeviceTaintRule{{Spec: resourcev1.DeviceTaintRuleSpec{
				DeviceSelector: &resourcev1.DeviceTaintSelector{Device: &device},
				Taint:          resourcev1.DeviceTaint{Key: "gpu.nvidia.com/xid", Effect: resourcev1.DeviceTaintEffectNoExecute},
			}}}
		}
	}
	plugin := func(o *Offer) { o.Plugin = nodegroups.Resources{"nvidia.com/gpu": 8} }
	for _, c := range []struct {
		inventory, claims string
		change            func(*Offer)
		pods              int
		obstacle          string
	}{
		{"8 GPUs", "a GPU", nil, 8, ""},
		{"8 GPUs", "3 GPUs", nil, 2, ""},
		{"8 GPUs", "nvidia.com/gpu 4", nil, 2, ""},
		{"8 GPUs", "nvidia.com/gpu 9", nil, 0, "free are 8 of 8 of DeviceClass gpu.nvidia.com"},
		{"8 GPUs", "all GPUs", nil, 1, ""},
		{"8 GPUs", "an H100", nil, 8, ""},
		{"8 GPUs", "administrator", nil, 20, ""},
		{"8 GPUs", "a GPU beside its NIC", nil, 0, "free are 8 of 8 of DeviceClass gpu.nvidia.com"},
		{"8 GPUs", "a GPU", taint("gpu-3"), 7, ""},
		{"8 GPUs", "a tolerant GPU", taint("gpu-3"), 8, ""},
		{"8 GPUs", "all GPUs", taint("gpu-3"), 0, "free are 7 of 7"},
		{"8 GPUs", "a GPU", plugin, 0, "offers nvidia.com/gpu by a device plugin, and publishes 8 devices"},
		{"8 GPUs", "nvidia.com/gpu 1", plugin, 0, "offers nvidia.com/gpu by a device plugin, and publishes 8 devices"},
		{"8 GPUs", "a GPU", func(o *Offer) { o.Slices[0].Spec.Pool.ResourceSliceCount = 2 }, 0,
			"driver gpu.nvidia.com has published 1 of the 2 ResourceSlices of its pool"},
		{"8 GPUs", "a GPU", func(o *Offer) { o.Slices[0].Spec.Devices = nil }, 0, "no devices of any DeviceClass are published"},
		{"2 GPUs beside 2 others", "an H100", nil, 2, ""},
		{"2 GPUs beside 2 others", "a GPU", nil, 4, ""},
		{"4 GPUs and NICs on 2 roots", "a GPU beside its NIC", nil, 2, ""},
		{"4 GPUs and NICs on 2 roots", "3 GPUs", nil, 1, ""},
		{"a GPU in slices", "a 1g", nil, 4, ""},
		{"a GPU in slices", "a GPU", nil, 1, ""},
		{"a GPU in slices", "a 2g or 2 of 1g", nil, 2, ""},
		{"a GPU that is shared", "20Gi of a GPU", nil, 4, ""},
	} {
		t.Run(c.inventory+"/"+c.claims, func(t *testing.T) {
			p := publish(t, catalog(t), c.inventory, c.change)
			pods, _ := p.All().Allocate(claims(t, c.claims), 20)
			if pods != c.pods {
				t.Errorf("%d pods, want %d", pods, c.pods)
			}
			if why := p.All().Obstacle(claims(t, c.claims)); (why == "") != (c.obstacle == "") || !strings.Contains(why, c.obstacle) {
				t.Errorf("obstacle %q, want %q", why, c.obstacle)
			}
		})
	}
}

func TestWhatIsAllocatedIsTaken(t *testing.T) {
	c := catalog(t)
	p := publish(t, c, "8 GPUs", func(o *Offer) { o.Slices[0].Spec.Pool.Name = "a-node" })
	result := func(pool, device string) resourcev1.DeviceRequestAllocationResult {
		return resourcev1.DeviceRequestAllocationResult{Driver: "gpu.nvidia.com", Pool: pool, Device: device}
	}
	admin := result("a-node", "gpu-1")
	admin.AdminAccess = new(true)
	left := p.Without([]resourcev1.DeviceRequestAllocationResult{result("a-node", "gpu-0"), admin, result("b-node", "gpu-2")})
	if pods, _ := left.Allocate(claims(t, "a GPU"), 20); pods != 7 || left.Amounts()["nvidia.com/gpu"] != 7 {
		t.Errorf("%d pods, %v; want 7", pods, left.Amounts())
	}
	// Neither the order of allocations nor the choice among equal nodes matters.
	q := publish(t, c, "8 GPUs", func(o *Offer) { o.Slices[0].Spec.Pool.Name = "b-node" })
	other := q.Without([]resourcev1.DeviceRequestAllocationResult{result("b-node", "gpu-0")})
	if other.Key() != left.Key() {
		t.Errorf("nodes with the same devices left are told apart")
	}
}

// Equal devices with different serial numbers make equal inventories.
func TestIdentitiesAreNotReported(t *testing.T) {
	c := catalog(t)
	keys := map[string]bool{}
	for n := range 3 {
		p := publish(t, c, "4 GPUs and NICs on 2 roots", func(o *Offer) {
			for i := range o.Slices[0].Spec.Devices {
				d := &o.Slices[0].Spec.Devices[i]
				uuid := fmt.Sprintf("GPU-%d-%d", n, i)
				d.Attributes["uuid"] = resourcev1.DeviceAttribute{StringValue: &uuid}
			}
		})
		keys[p.All().Key()] = true
	}
	if len(keys) != 1 {
		t.Errorf("%d kinds of like nodes", len(keys))
	}
	if p := publish(t, c, "4 GPUs and NICs on 2 roots", func(o *Offer) {
		const root = "resource.kubernetes.io/pcieRoot"
		o.Slices[0].Spec.Devices[1].Attributes[root] = o.Slices[0].Spec.Devices[2].Attributes[root]
	}); keys[p.All().Key()] {
		t.Error("nodes with devices on other PCIe roots are taken for alike")
	}
}

func TestAnExtendedResourceStandsForTheNewestClass(t *testing.T) {
	list := read[[]*resourcev1.DeviceClass](t, classes)
	newer := list[0].DeepCopy()
	newer.Name = "newer"
	newer.CreationTimestamp = metav1.NewTime(time.Unix(10, 0))
	c := NewCatalog(slices.Values(append(list, newer)))
	if of := c.ClassOf("nvidia.com/gpu"); of.Name != "newer" {
		t.Errorf("it stands for %s", of.Name)
	}
	if name := c.AmountName(list[0]); name != "deviceclass.resource.kubernetes.io/gpu.nvidia.com" {
		t.Errorf("the older is counted as %s", name)
	}
}

// If devices are interchangeable, counting must return the allocator's result and take the same devices.
func TestCountingIsAllocating(t *testing.T) {
	c := catalog(t)
	random := rand.New(rand.NewPCG(1, 2))
	counted := 0
	for n := range 300 {
		inventory := []string{"8 GPUs", "2 GPUs beside 2 others", "4 GPUs and NICs on 2 roots"}[random.IntN(3)]
		p := publish(t, c, inventory, nil)
		var taken []resourcev1.DeviceRequestAllocationResult
		for _, s := range p.slices {
			for i := range s.Spec.Devices {
				if random.IntN(3) == 0 {
					taken = append(taken, resourcev1.DeviceRequestAllocationResult{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name,
						Device: s.Spec.Devices[i].Name})
				}
			}
		}
		s := p.Without(taken).(*state)
		of := &fit.Claims{Key: fmt.Sprintf("claims %d", n)}
		for range 1 + random.IntN(2) {
			var spec resourcev1.ResourceClaimSpec
			for k := range 1 + random.IntN(2) {
				spec.Devices.Requests = append(spec.Devices.Requests, resourcev1.DeviceRequest{Name: fmt.Sprintf("r%d", k),
					Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com", Count: 1 + random.Int64N(3),
						AllocationMode: resourcev1.DeviceAllocationModeExactCount}})
			}
			of.Specs = append(of.Specs, spec)
		}
		if random.IntN(2) == 0 {
			of.Extended = []fit.ExtendedRequest{{Resource: "nvidia.com/gpu", Class: "gpu.nvidia.com", Count: 1 + random.Int64N(3)}}
		}
		if _, _, ok := s.uniform(of); !ok {
			t.Fatalf("%v is not uniform on %s", of, inventory)
		}
		most := random.IntN(9)
		pods, left := s.Allocate(of, most)
		want, at := 0, s
		for want < most {
			next, _ := at.with(of)
			if next == nil {
				break
			}
			at = next
			want++
		}
		if pods != want || left.(*state).key != at.key {
			t.Fatalf("%s without %v: %d pods counted, %d allocated; %v and %v are taken", inventory, taken, pods, want,
				left.(*state).taken, at.taken)
		}
		counted += pods
	}
	if counted < 100 {
		t.Errorf("only %d pods were counted", counted)
	}
}

// The devices of pods of two podSets depend on the order in which they are scheduled, unless all devices are equal.
func TestPodSetsWithOtherClaimsOnOneNode(t *testing.T) {
	c := catalog(t)
	p := publish(t, c, "a GPU in slices", nil)
	_, left := p.All().Allocate(claims(t, "a 1g"), 1)
	if pods, _ := left.Allocate(claims(t, "a 2g or 2 of 1g"), 1); pods != 0 {
		t.Error("a guess was made")
	}
	if pods, _ := left.Allocate(claims(t, "a 1g"), 9); pods != 3 {
		t.Errorf("%d more pods of the same", pods)
	}
	if pods, _ := left.ForOthers().Allocate(claims(t, "a 1g"), 9); pods != 0 {
		t.Errorf("%d pods of another gang that may come first", pods)
	}
	_, left = publish(t, c, "8 GPUs", nil).All().Allocate(claims(t, "3 GPUs"), 1)
	if pods, _ := left.Allocate(claims(t, "a GPU"), 9); pods != 5 {
		t.Errorf("%d of 5 devices are left for others where all are alike", pods)
	}
	if pods, _ := left.ForOthers().Allocate(claims(t, "a GPU"), 9); pods != 5 {
		t.Errorf("%d of 5 devices are left for another gang where all are alike", pods)
	}
}

// Pods with unknown claims take some devices of a number: others get the rest by number, and none whose choice matters.
func TestDevicesThatOthersWillTake(t *testing.T) {
	overlapping := NewCatalog(slices.Values(append(read[[]*resourcev1.DeviceClass](t, classes), read[[]*resourcev1.DeviceClass](t, `
- metadata: {name: large}
  spec: {selectors: [{cel: {expression: 'device.attributes["gpu.nvidia.com"].?productName.orValue("") == "H100"'}}]}`)...)))
	for _, tc := range []struct {
		name, inventory, claims string
		catalog                 *Catalog
		taken                   nodegroups.Resources
		want                    int
	}{
		{"by number", "8 GPUs", "a GPU", catalog(t), nodegroups.Resources{"nvidia.com/gpu": 3, "cpu": 4000}, 5},
		{"by extended resource", "8 GPUs", "nvidia.com/gpu 2", catalog(t), nodegroups.Resources{"nvidia.com/gpu": 3}, 2},
		{"nothing is taken", "2 GPUs beside 2 others", "an H100", catalog(t), nodegroups.Resources{"cpu": 4000}, 2},
		{"some of them", "2 GPUs beside 2 others", "a GPU", catalog(t), nodegroups.Resources{"nvidia.com/gpu": 3}, 1},
		{"a selection", "2 GPUs beside 2 others", "an H100", catalog(t), nodegroups.Resources{"nvidia.com/gpu": 1}, 0},
		{"together with another device", "4 GPUs and NICs on 2 roots", "a GPU beside its NIC", catalog(t),
			nodegroups.Resources{"nvidia.com/gpu": 1}, 0},
		{"partitions", "a GPU in slices", "a 1g", catalog(t), nodegroups.Resources{"deviceclass.resource.kubernetes.io/mig.nvidia.com": 1}, 0},
		{"more than there are", "8 GPUs", "a GPU", catalog(t), nodegroups.Resources{"nvidia.com/gpu": 9}, 0},
		{"of classes that have some devices in common", "2 GPUs beside 2 others", "a GPU", overlapping,
			nodegroups.Resources{"nvidia.com/gpu": 1}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			left := publish(t, tc.catalog, tc.inventory, nil).All().Less(tc.taken)
			if pods, _ := left.Allocate(claims(t, tc.claims), 20); pods != tc.want {
				t.Errorf("%d pods, want %d (%s)", pods, tc.want, left.Obstacle(claims(t, tc.claims)))
			}
		})
	}
}

// A description is short, and publishing it again gives the same inventory.
func TestDescriptionsAreReadAgain(t *testing.T) {
	c := catalog(t)
	for name := range inventories {
		p := publish(t, c, name, nil)
		again := c.Publish(Offer{Slices: nodegroups.ResourceSlices(p.Describe())})
		if again == nil || again.All().Key() != p.All().Key() {
			t.Errorf("%s is described as %+v", name, p.Describe())
		}
	}
	if d := publish(t, c, "8 GPUs",
		nil).Describe(); len(d) != 1 || len(d[0].Devices) != 1 || d[0].Devices[0].Count != 8 || d[0].Devices[0].Name != "gpu-" {
		t.Errorf("8 GPUs are described as %+v", d)
	}
	if d := publish(t, c, "8 GPUs", func(o *Offer) { o.Slices[0].Spec.Pool.ResourceSliceCount = 2 }).Describe(); d != nil {
		t.Errorf("what is not published yet is described as %+v", d)
	}
	if d := publish(t, c, "8 GPUs", func(o *Offer) { o.Slices[0].Spec.Devices = nil }).Describe(); d != nil {
		t.Errorf("nothing is described as %+v", d)
	}
}

func TestDevicesThatAreAlikeAreKeptOnce(t *testing.T) {
	var r Reducer
	slice := func(node int) *resourcev1.ResourceSlice {
		s := nodegroups.ResourceSlices(read[[]v1alpha1.DevicePool](t, inventories["4 GPUs and NICs on 2 roots"]))[0].DeepCopy()
		for i := range s.Spec.Devices {
			uuid := fmt.Sprintf("GPU-%d-%d", node, i)
			s.Spec.Devices[i].Attributes["uuid"] = resourcev1.DeviceAttribute{StringValue: &uuid}
		}
		return s
	}
	a, b := slice(1), slice(2)
	r.Reduce(a)
	r.Reduce(b)
	if &a.Spec.Devices[0] != &b.Spec.Devices[0] {
		t.Error("devices of like nodes are kept twice")
	}
	if _, ok := a.Spec.Devices[0].Attributes["resource.kubernetes.io/pcieRoot"]; !ok || len(a.Spec.Devices[0].Attributes) != 2 {
		t.Errorf("%v is left", a.Spec.Devices[0].Attributes)
	}
}

package cache

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	catalog "github.com/muster-dev/muster/provisioning/devices"
	"github.com/muster-dev/muster/queueing/config"
)

// Mappings of the tables below: two counters of the partitions of a GPU, and a capacity of devices that pods share.
const (
	byCounters = `
- name: example.com/memory
  deviceClassNames: [gpu, mig]
  sources:
  - counter: {name: memory, driver: gpu.example.com, deviceSelector: {cel: {expression: "device.attributes['gpu.example.com'].model == 'a'"}}}
- name: example.com/slices
  deviceClassNames: [mig]
  sources:
  - counter: {name: slices, driver: gpu.example.com, deviceSelector: {cel: {expression: "true"}}}
- {name: example.com/nics, deviceClassNames: [nic]}
`
	byCapacity = `
- name: example.com/memory
  deviceClassNames: [share]
  sources:
  - capacity: {name: gpu.example.com/memory, driver: gpu.example.com, deviceSelector: {cel: {expression: "true"}}}
`
)

// The devices of one GPU of model a: whole, or a half, or a quarter.
const partitions = `
- name: whole
  attributes: {gpu.example.com/model: {string: a}, gpu.example.com/profile: {string: whole}, gpu.example.com/uuid: {string: u-1}}
  consumesCounters: [{counterSet: one, counters: {memory: {value: 80Gi}, slices: {value: "8"}}}]
- name: half
  attributes: {gpu.example.com/model: {string: a}, gpu.example.com/profile: {string: half}, gpu.example.com/uuid: {string: u-2}}
  consumesCounters: [{counterSet: one, counters: {memory: {value: 40Gi}, slices: {value: "4"}}}]
- name: quarter-0
  attributes: {gpu.example.com/model: {string: a}, gpu.example.com/profile: {string: quarter}, gpu.example.com/uuid: {string: u-3}}
  consumesCounters: [{counterSet: one, counters: {memory: {value: 20Gi}, slices: {value: "2"}}}]
- name: quarter-1
  attributes: {gpu.example.com/model: {string: a}, gpu.example.com/profile: {string: quarter}, gpu.example.com/uuid: {string: u-4}}
  consumesCounters: [{counterSet: one, counters: {memory: {value: 20Gi}, slices: {value: "2"}}}]
`

const gi = int64(1) << 30

// counted is a Cache with one Workload, whose pods have the claim c.
type counted struct {
	*Cache
	t *testing.T
}

func countedBy(t *testing.T, mappings, claim string, extended corev1.ResourceList) counted {
	t.Helper()
	s := counted{New(config.Config{Resources: &kueueconfig.Resources{
		DeviceClassMappings: unmarshal[[]kueueconfig.DeviceClassMapping](t, mappings),
	}}), t}
	s.CountWith(catalog.NewSelectors())
	for _, class := range unmarshal[[]resourcev1.DeviceClass](t, `
- {metadata: {name: gpu}, spec: {extendedResourceName: example.com/gpu, selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}}
- {metadata: {name: mig}, spec: {selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}}
- {metadata: {name: share}, spec: {extendedResourceName: example.com/share}}
- {metadata: {name: nic}}
`) {
		s.Set(class.DeepCopy())
	}
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "w", UID: "w"}}
	ps := kueue.PodSet{Name: "main", Count: 1}
	ps.Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: extended, Limits: extended}}}
	if claim != "" {
		ps.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: new("c")}}
		template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c"}}
		template.Spec.Spec.Devices = unmarshal[resourcev1.DeviceClaim](t, claim)
		s.Set(template)
	}
	w.Spec.PodSets = []kueue.PodSet{ps}
	s.Set(w)
	return s
}

// slice publishes devices as one of so many slices of a node's pool.
func (s counted) slice(name, node string, generation, of int64, list string) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: generation, ResourceSliceCount: of},
		Devices: unmarshal[[]resourcev1.Device](s.t, list),
	}}
}

// group is a NodeGroup whose machines are declared to have the devices.
func (s counted) group(list string) *v1alpha1.NodeGroup {
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "g"}}
	g.Spec.Template.Devices = []v1alpha1.DevicePool{{Driver: "gpu.example.com", Devices: unmarshal[[]v1alpha1.Device](s.t, list)}}
	return g
}

// expect compares what a pod counts, or why it cannot be counted.
func (s counted) expect(want nodegroups.Resources, refused string) {
	s.t.Helper()
	s.RereadDevices()
	w := s.Workloads["w"]
	if why := w.RefusedClaims(); (why == "") != (refused == "") || !strings.Contains(why, refused) {
		s.t.Errorf("refused with %q, want %q", why, refused)
	}
	if refused == "" && !maps.Equal(w.Pod[0], want) {
		s.t.Errorf("a pod counts %v, want %v", w.Pod[0], want)
	}
}

func request(class, more string) string {
	return fmt.Sprintf("requests: [{name: r, exactly: {deviceClassName: %s, allocationMode: ExactCount, %s}}]", class, more)
}

func profile(name string) string {
	return fmt.Sprintf(`selectors: [{cel: {expression: "device.attributes['gpu.example.com'].profile == '%s'"}}]`, name)
}

// TestCountersCountAgainstQuota as Kueue counts them.
func TestCountersCountAgainstQuota(t *testing.T) {
	for name, c := range map[string]struct {
		claim, devices string
		extended       string
		want           nodegroups.Resources
		refused        string
	}{
		"a partition":                 {claim: request("mig", "count: 1, "+profile("quarter")), want: nodegroups.Resources{"example.com/memory": 20 * gi, "example.com/slices": 2}},
		"as many as requested":        {claim: request("mig", "count: 2, "+profile("quarter")), want: nodegroups.Resources{"example.com/memory": 40 * gi, "example.com/slices": 4}},
		"the largest that may serve":  {claim: request("mig", "count: 1"), want: nodegroups.Resources{"example.com/memory": 80 * gi, "example.com/slices": 8}},
		"of a class in one mapping":   {claim: request("gpu", "count: 1, "+profile("whole")), want: nodegroups.Resources{"example.com/memory": 80 * gi}},
		"of two classes in one claim": {claim: "requests: [{name: a, exactly: {deviceClassName: gpu, count: 1, " + profile("whole") + "}}, {name: b, exactly: {deviceClassName: mig, count: 1, " + profile("half") + "}}]", want: nodegroups.Resources{"example.com/memory": 120 * gi, "example.com/slices": 4}},
		"beside devices by number":    {claim: "requests: [{name: a, exactly: {deviceClassName: nic, count: 2}}, {name: b, exactly: {deviceClassName: mig, count: 1, " + profile("half") + "}}]", want: nodegroups.Resources{"example.com/memory": 40 * gi, "example.com/slices": 4, "example.com/nics": 2}},
		"no count is one":             {claim: "requests: [{name: a, exactly: {deviceClassName: gpu, " + profile("half") + "}}]", want: nodegroups.Resources{"example.com/memory": 40 * gi}},
		"an administrator's":          {claim: request("mig", "count: 1, adminAccess: true"), want: nodegroups.Resources{}},
		"more than there are":         {claim: request("mig", "count: 3, "+profile("quarter")), refused: "insufficient matching devices for counter driver: 2 device(s) match but 3 requested"},
		"none that matches":           {claim: request("mig", "count: 1, "+profile("eighth")), refused: "insufficient matching devices for counter driver: 0 device(s) match but 1 requested"},
		"a model that the source does not select": {claim: request("gpu", "count: 1"), devices: "[{name: d, attributes: {gpu.example.com/model: {string: b}}, consumesCounters: [{counterSet: s, counters: {memory: {value: 1Gi}}}]}]",
			refused: "0 device(s) match but 1 requested"},
		"devices without counters": {claim: request("gpu", "count: 1"), devices: "[{name: d, attributes: {gpu.example.com/model: {string: a}}}]",
			refused: `matched devices have no consumesCounters entry for counter "memory"`},
		"a counter below nothing": {claim: request("gpu", "count: 2"), devices: "[{name: d, attributes: {gpu.example.com/model: {string: a}}, consumesCounters: [{counterSet: s, counters: {memory: {value: \"-5\"}}}]}, {name: e, attributes: {gpu.example.com/model: {string: a}}}]",
			want: nodegroups.Resources{"example.com/memory": 0}},
		"more than an int64 holds": {claim: request("gpu", "count: 2"), devices: "[{name: d, attributes: {gpu.example.com/model: {string: a}}, consumesCounters: [{counterSet: s, counters: {memory: {value: 7Ei}}}]}, {name: e, attributes: {gpu.example.com/model: {string: a}}}]",
			want: nodegroups.Resources{"example.com/memory": math.MaxInt64}},
		"a selector that cannot be evaluated": {claim: request("gpu", "count: 1, selectors: [{cel: {expression: \"device.attributes['gpu.example.com'].vendor == 'x'\"}}]"),
			refused: "CEL evaluation error in request selector for a device of driver gpu.example.com"},
		"a selector that does not compile": {claim: request("gpu", "count: 1, selectors: [{cel: {expression: 'device.'}}]"), refused: "CEL compilation failed"},
		"one device by its identity": {claim: request("gpu", "count: 1, selectors: [{cel: {expression: \"device.attributes['gpu.example.com'].uuid == 'u-1'\"}}]"),
			refused: "a selector reads what identifies one device"},
		"all devices":             {claim: "requests: [{name: r, exactly: {deviceClassName: mig, allocationMode: All}}]", refused: "AllocationMode 'All' is not supported"},
		"alternatives of sources": {claim: "requests: [{name: r, firstAvailable: [{name: a, deviceClassName: gpu, count: 1}]}]", refused: "FirstAvailable device selection is not supported"},
		"an extended resource":    {extended: "{example.com/gpu: 1}", refused: "extended resource example.com/gpu resolves to DeviceClass gpu with counters configured"},
	} {
		t.Run(name, func(t *testing.T) {
			s := countedBy(t, byCounters, c.claim, listOf(t, c.extended))
			list := partitions
			if c.devices != "" {
				list = c.devices
			}
			s.Set(s.slice("a", "n", 1, 1, list))
			s.expect(c.want, c.refused)
		})
	}
}

func listOf(t *testing.T, text string) corev1.ResourceList {
	t.Helper()
	if text == "" {
		return nil
	}
	return unmarshal[corev1.ResourceList](t, text)
}

// TestCapacityCountsAgainstQuota as Kueue counts it: what is requested, otherwise the policy's default, otherwise all; rounded by the
// policy of each device.
func TestCapacityCountsAgainstQuota(t *testing.T) {
	device := func(capacity string) string {
		return "[{name: d, allowMultipleAllocations: true, capacity: {gpu.example.com/memory: " + capacity + "}}, " +
			"{name: e, allowMultipleAllocations: true, capacity: {gpu.example.com/memory: " + capacity + "}}]"
	}
	requested := func(amount string) string {
		return request("share", "count: 1, capacity: {requests: {gpu.example.com/memory: "+amount+"}}")
	}
	steps := device("{value: 80Gi, requestPolicy: {default: 10Gi, validRange: {min: 4Gi, step: 8Gi, max: 40Gi}}}")
	values := device("{value: 80Gi, requestPolicy: {default: 10Gi, validValues: [10Gi, 20Gi, 40Gi]}}")
	for name, c := range map[string]struct {
		claim, devices string
		extended       string
		want           int64
		refused        string
	}{
		"what is requested":               {claim: requested("8Gi"), devices: device("{value: 80Gi}"), want: 8 * gi},
		"all without a request":           {claim: request("share", "count: 1"), devices: device("{value: 80Gi}"), want: 80 * gi},
		"all where another is requested":  {claim: request("share", "count: 1, capacity: {requests: {gpu.example.com/cores: 1}}"), devices: device("{value: 80Gi}"), want: 80 * gi},
		"the default of the policy":       {claim: request("share", "count: 1"), devices: values, want: 10 * gi},
		"rounded to a valid value":        {claim: requested("11Gi"), devices: values, want: 20 * gi},
		"a valid value":                   {claim: requested("20Gi"), devices: values, want: 20 * gi},
		"beyond all valid values":         {claim: requested("41Gi"), devices: values, refused: `capacity request cannot be satisfied by any matched device's RequestPolicy for dimension "gpu.example.com/memory"`},
		"the minimum":                     {claim: requested("1Gi"), devices: steps, want: 4 * gi},
		"rounded to a step":               {claim: requested("5Gi"), devices: steps, want: 12 * gi},
		"a step":                          {claim: requested("12Gi"), devices: steps, want: 12 * gi},
		"the default, rounded to a step":  {claim: request("share", "count: 1"), devices: steps, want: 12 * gi},
		"beyond the range, once rounded":  {claim: requested("37Gi"), devices: steps, refused: "cannot be satisfied by any matched device's RequestPolicy"},
		"as often as devices requested":   {claim: request("share", "count: 2, capacity: {requests: {gpu.example.com/memory: 8Gi}}"), devices: device("{value: 80Gi}"), want: 16 * gi},
		"the largest default":             {claim: request("share", "count: 1"), devices: "[{name: d, capacity: {gpu.example.com/memory: {value: 80Gi, requestPolicy: {default: 8Gi}}}}, {name: e, capacity: {gpu.example.com/memory: {value: 80Gi, requestPolicy: {default: 16Gi}}}}]", want: 16 * gi},
		"the largest capacity":            {claim: request("share", "count: 1"), devices: "[{name: d, capacity: {gpu.example.com/memory: {value: 40Gi}}}, {name: e, capacity: {gpu.example.com/memory: {value: 80Gi}}}]", want: 80 * gi},
		"one device whose policy suits":   {claim: requested("30Gi"), devices: "[{name: d, capacity: {gpu.example.com/memory: {value: 80Gi, requestPolicy: {validValues: [8Gi]}}}}, {name: e, capacity: {gpu.example.com/memory: {value: 80Gi, requestPolicy: {validValues: [32Gi]}}}}]", want: 32 * gi},
		"one device that has it":          {claim: request("share", "count: 2"), devices: "[{name: d, capacity: {gpu.example.com/cores: {value: 8}}}, {name: e, capacity: {gpu.example.com/memory: {value: 40Gi}}}]", want: 80 * gi},
		"no device that has it":           {claim: request("share", "count: 1"), devices: "[{name: d, capacity: {gpu.example.com/cores: {value: 8}}}]", refused: `matched devices have no capacity dimension "gpu.example.com/memory"`},
		"more devices than there are":     {claim: request("share", "count: 3"), devices: device("{value: 80Gi}"), refused: "insufficient matching devices for capacity driver: 2 device(s) match but 3 requested"},
		"an extended resource":            {extended: "{example.com/share: 1}", devices: device("{value: 80Gi}"), refused: "extended resource example.com/share resolves to DeviceClass share with capacity sources configured"},
		"a range without a minimum":       {claim: requested("5Gi"), devices: device("{value: 80Gi, requestPolicy: {default: 8Gi, validRange: {step: 8Gi}}}"), want: 5 * gi},
		"a request below nothing":         {claim: requested("-5Gi"), devices: device("{value: 80Gi}"), want: 0},
		"a policy that allows any amount": {claim: requested("5Gi"), devices: device("{value: 80Gi, requestPolicy: {default: 8Gi}}"), want: 5 * gi},
	} {
		t.Run(name, func(t *testing.T) {
			s := countedBy(t, byCapacity, c.claim, listOf(t, c.extended))
			s.Set(s.slice("a", "n", 1, 1, c.devices))
			s.expect(nodegroups.Resources{"example.com/memory": c.want}, c.refused)
		})
	}
}

// TestSourcesFollowThePublishedDevices: a Workload is counted again as pools become complete, change and go.
func TestSourcesFollowThePublishedDevices(t *testing.T) {
	const lacking = "insufficient matching devices for counter driver: 0 device(s) match but 1 requested"
	half := func(memory string) string {
		return "[{name: d, attributes: {gpu.example.com/model: {string: a}}, " +
			"consumesCounters: [{counterSet: s, counters: {memory: {value: " + memory + "}}}]}]"
	}
	memory := func(n int64) nodegroups.Resources { return nodegroups.Resources{"example.com/memory": n * gi} }
	s := countedBy(t, byCounters, request("gpu", "count: 1"), nil)
	s.expect(nil, lacking)

	clear(s.Due)
	s.Set(s.slice("a", "n", 1, 2, half("40Gi")))
	s.expect(nil, lacking) // its pool has another slice
	s.Set(s.slice("b", "n", 1, 2, half("20Gi")))
	s.expect(memory(40), "")
	if s.Due["w"] == nil {
		t.Error("the Workload is not evaluated again once its devices are published")
	}

	s.Set(s.slice("a", "n", 2, 1, half("10Gi"))) // a newer generation counts alone
	s.expect(memory(10), "")
	s.Set(s.slice("a", "n", 2, 1, half("15Gi")))
	s.expect(memory(15), "")
	other := s.slice("c", "n", 1, 1, half("90Gi"))
	other.Spec.Driver = "other.example.com" // no source counts its devices
	s.Set(other)
	s.expect(memory(15), "")

	s.Set(s.group(half("30Gi"))) // machines that may be launched count as well
	s.expect(memory(30), "")
	s.Delete(s.slice("a", "n", 2, 1, half("15Gi")))
	s.Delete(s.slice("b", "n", 1, 2, half("20Gi")))
	s.expect(memory(30), "")
	s.Delete(s.group(""))
	s.expect(nil, lacking)
	if n := len(s.devices.kinds) + len(s.devices.pools) + len(s.devices.slices) + len(s.devices.groups); n != 0 {
		t.Errorf("%d entries are left of devices that are gone", n)
	}
}

// TestSourcesCountFromZero: the devices that a NodeGroup has learned or declares count while there is no node.
func TestSourcesCountFromZero(t *testing.T) {
	s := countedBy(t, byCounters, request("mig", "count: 2, "+profile("quarter")), nil)
	s.Set(s.group(partitions))
	s.expect(nodegroups.Resources{"example.com/memory": 40 * gi, "example.com/slices": 4}, "")

	copied := s.WithoutWorkloads()
	s.Delete(s.group(""))
	w := copied.Join(s.Workloads["w"])
	if w.RefusedClaims() != "" || w.Pod[0]["example.com/slices"] != 4 {
		t.Errorf("a copy counts %v (%s), want what the original counted", w.Pod[0], w.RefusedClaims())
	}
	s.expect(nil, "0 device(s) match but 2 requested")

	copied.Delete(s.group(""))
	counted{copied, t}.expect(nil, "0 device(s) match but 2 requested")
}

// TestSourcesOfTwoDrivers count the devices of their own, and follow the class that both serve.
func TestSourcesOfTwoDrivers(t *testing.T) {
	s := countedBy(t, `
- name: example.com/memory
  deviceClassNames: [share]
  sources:
  - capacity: {name: memory, driver: gpu.example.com, deviceSelector: {cel: {expression: "true"}}}
  - capacity: {name: memory, driver: nic.example.com, deviceSelector: {cel: {expression: "true"}}}
`, request("share", "count: 1"), nil)
	const device = "[{name: d, capacity: {memory: {value: %d}}}]"
	s.Set(s.slice("a", "n", 1, 1, fmt.Sprintf(device, 5)))
	s.expect(nil, "0 device(s) match but 1 requested; the job starts once driver nic.example.com")
	nic := s.slice("b", "n", 1, 1, fmt.Sprintf(device, 2))
	nic.Spec.Driver = "nic.example.com"
	s.Set(nic)
	s.expect(nodegroups.Resources{"example.com/memory": 7}, "")
	class := unmarshal[resourcev1.DeviceClass](t,
		`{metadata: {name: share}, spec: {selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}}`)
	s.Set(&class)
	s.expect(nil, "0 device(s) match but 1 requested; the job starts once driver nic.example.com")
	s.Delete(&class)
	s.expect(nil, "DeviceClass share doesn't exist")
}

// TestEqualDevicesAreOneKind: the cost of a charge does not grow with the number of nodes, and only a new kind of device has running
// Workloads counted again.
func TestEqualDevicesAreOneKind(t *testing.T) {
	s := countedBy(t, byCounters, request("mig", "count: 1"), nil)
	for n := range 100 {
		list := strings.ReplaceAll(strings.ReplaceAll(partitions, "u-", fmt.Sprintf("u-%d-", n)), "one", fmt.Sprintf("set-%d", n))
		s.Set(s.slice(fmt.Sprintf("slice-%d", n), fmt.Sprintf("node-%d", n), 1, 1, list))
	}
	if len(s.devices.kinds) != 3 {
		t.Errorf("there are %d kinds, want 3: whole, half and quarter", len(s.devices.kinds))
	}
	s.expect(nodegroups.Resources{"example.com/memory": 80 * gi, "example.com/slices": 8}, "")
	clear(s.Due)
	s.Set(s.slice("slice-100", "node-100", 1, 1, partitions))
	s.RereadDevices()
	if len(s.Due) > 0 {
		t.Error("one more node of a known kind has Workloads counted again")
	}
}

// TestSlicesAreIgnoredWithoutSources: what no source names costs nothing.
func TestSlicesAreIgnoredWithoutSources(t *testing.T) {
	s := countedBy(t, "[{name: example.com/gpus, deviceClassNames: [gpu]}]", request("gpu", "count: 2, "+profile("whole")), nil)
	s.Set(s.slice("a", "n", 1, 1, partitions))
	s.Set(s.group(partitions))
	if s.devices.numbers || len(s.devices.slices)+len(s.devices.groups)+len(s.devices.kinds) > 0 {
		t.Error("devices are stored that nothing counts")
	}
	s.expect(nodegroups.Resources{"example.com/gpus": 2}, "")
}

package cache_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/provisioning/devices"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// These are Kueue's own cases of claimed devices (DRA), see docs/kueue-dra.md. What a pod counts is tested in package cache.

const deviceMappings = `

- {name: gpus, deviceClassNames: [gpu]}
- name: memory
  deviceClassNames: [mig]
  sources: [{counter: {name: memory, driver: gpu.example.com, deviceSelector: {cel: {expression: "true"}}}}]
- name: shared
  deviceClassNames: [share]
  sources: [{capacity: {name: memory, driver: gpu.example.com, deviceSelector: {cel: {expression: "true"}}}}]
`

// deviceAmounts are the ways to have one unit of quota.
var deviceAmounts = map[string]struct{ resource, claim, extended string }{
	"by number":            {resource: "gpus", claim: "{deviceClassName: gpu, count: 1}"},
	"by a selector":        {resource: "gpus", claim: "{deviceClassName: gpu, count: 1, selectors: [{cel: {expression: 'true'}}]}"},
	"by extended resource": {resource: "gpus", extended: "example.com/gpu"},
	"by implicit name":     {resource: "gpus", extended: "deviceclass.resource.kubernetes.io/gpu"},
	"by counter":           {resource: "memory", claim: "{deviceClassName: mig, count: 1}"},
	"by capacity":          {resource: "shared", claim: "{deviceClassName: share, count: 1, capacity: {requests: {memory: 1}}}"},
}

// deviceWorld has classes and devices, and a Workload for each name.
type deviceWorld struct {
	*queues.World
	t *testing.T
}

func newDeviceWorld(t *testing.T) deviceWorld { return deviceWorldWith(t, nil) }

// deviceWorldWith is a deviceWorld with admission fair sharing; nil for none.
func deviceWorldWith(t *testing.T, sharing *kueueconfig.AdmissionFairSharing) deviceWorld {
	t.Helper()
	w := deviceWorld{queues.NewWith(config.Config{AdmissionFairSharing: sharing, Resources: &kueueconfig.Resources{
		DeviceClassMappings: read[[]kueueconfig.DeviceClassMapping](t, deviceMappings),
	}}), t}
	w.State.CountWith(devices.NewSelectors())
	w.Set(queues.Flavor("spot", nil))
	w.class("gpu", "example.com/gpu")
	w.class("mig", "")
	w.class("share", "")
	return w
}

func read[T any](t *testing.T, text string) (out T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// class sets a DeviceClass, with an extended resource unless that is empty.
func (w deviceWorld) class(name, extended string) {
	c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if extended != "" {
		c.Spec.ExtendedResourceName = &extended
	}
	w.Set(c)
}

// publish sets a slice with one device, which has one unit of everything.
func (w deviceWorld) publish() {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "slice"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: new("n"), Pool: resourcev1.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: 1},
		Devices: read[[]resourcev1.Device](w.t, `
- {name: d, capacity: {memory: {value: "8"}}, consumesCounters: [{counterSet: s, counters: {memory: {value: "1"}}}]}`),
	}}
	w.Set(s)
}

// submit adds a Workload of some pods, each with one unit of what deviceAmounts says.
func (w deviceWorld) submit(name, lq, by string, pods int32) { w.submitTo(name, lq, by, pods, nil) }

// submitWith is submit to the queue main, with a topology request.
func (w deviceWorld) submitWith(name, by string, pods int32, request *kueue.PodSetTopologyRequest) {
	w.submitTo(name, "main", by, pods, request)
}

func (w deviceWorld) submitTo(name, lq, by string, pods int32, request *kueue.PodSetTopologyRequest) {
	amount := deviceAmounts[by]
	object := w.Workload(w.t, name, map[string]string{"lq": lq})
	ps := &object.Spec.PodSets[0]
	ps.TopologyRequest = request
	ps.Count = pods
	if amount.extended != "" {
		list := corev1.ResourceList{corev1.ResourceName(amount.extended): resource.MustParse("1")}
		ps.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
	} else {
		w.template(name, amount.claim)
		ps.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: &name}}
	}
	w.Set(object)
}

func (w deviceWorld) template(name, request string) {
	t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	t.Spec.Spec.Devices = read[resourcev1.DeviceClaim](w.t, "requests: [{name: r, exactly: "+request+"}]")
	w.Set(t)
}

// expect cycles, and compares which Workloads have quota.
func (w deviceWorld) expect(want ...string) {
	w.t.Helper()
	w.Cycles(w.t)
	var got []string
	for _, x := range w.State.AllWorkloads() {
		if workload.HasQuota(x.Object) && !workload.IsFinished(x.Object) {
			got = append(got, x.Object.Name)
		}
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("%v have quota, want %v", got, want)
	}
}

// TestQuotaOfDevicesIsShared: Workloads that fit together run, one that exceeds the quota waits, and another runs once one has finished.
func TestQuotaOfDevicesIsShared(t *testing.T) {
	for _, by := range slices.Sorted(maps.Keys(deviceAmounts)) {
		t.Run(by, func(t *testing.T) {
			w := newDeviceWorld(t)
			w.publish()
			name := deviceAmounts[by].resource
			w.Set(queues.ClusterQueue(t, "team", nil, "spot "+name+"=3"))
			w.Set(queues.LocalQueue("main", "team", ""))
			w.submit("large", "main", by, 4)
			w.expect()
			w.submit("one", "main", by, 1)
			w.submit("two", "main", by, 2)
			w.expect("one", "two")
			a := w.Find(t, "two").Status.Admission.PodSetAssignments[0]
			if used := a.ResourceUsage[corev1.ResourceName(name)]; used.Value() != 2 || len(a.ResourceUsage) != 1 {
				t.Errorf("two pods are counted as %v, want 2 of %s and nothing else", a.ResourceUsage, name)
			}
			w.Now = w.Now.Add(time.Second)
			w.submit("next", "main", by, 2)
			w.expect("one", "two")
			w.Change(t, "finish", "two")
			w.expect("next", "one")
		})
	}
}

// TestQuotaOfDevicesIsBorrowed in a cohort, up to what there is.
func TestQuotaOfDevicesIsBorrowed(t *testing.T) {
	for _, by := range slices.Sorted(maps.Keys(deviceAmounts)) {
		t.Run(by, func(t *testing.T) {
			w := newDeviceWorld(t)
			w.publish()
			name := deviceAmounts[by].resource
			for _, team := range []string{"a", "b"} {
				w.Set(queues.ClusterQueue(t, team, map[string]string{"cohort": "all"}, "spot "+name+"=2"))
				w.Set(queues.LocalQueue(team, team, ""))
			}
			w.submit("beyond", "a", by, 5)
			w.submit("borrows", "a", by, 3)
			w.expect("borrows")
			w.submit("waits", "b", by, 2)
			w.expect("borrows")
			w.submit("fits", "b", by, 1)
			w.expect("borrows", "fits")
		})
	}
}

// TestDevicesCountInTheUsageOfLocalQueues: the queue that has used fewer devices goes first, unless resourceWeights give devices no weight,
// and the status of a queue has what it consumed.
func TestDevicesCountInTheUsageOfLocalQueues(t *testing.T) {
	for _, by := range slices.Sorted(maps.Keys(deviceAmounts)) {
		name := corev1.ResourceName(deviceAmounts[by].resource)
		for weight, want := range map[float64][]string{1: {"first", "light"}, 0: {"first", "heavy"}} {
			t.Run(fmt.Sprintf("%s, weight %g", by, weight), func(t *testing.T) {
				w := deviceWorldWith(t, &kueueconfig.AdmissionFairSharing{
					UsageHalfLifeTime: metav1.Duration{Duration: time.Hour}, UsageSamplingInterval: metav1.Duration{Duration: 5 * time.Minute},
					ResourceWeights: map[corev1.ResourceName]float64{name: weight},
				})
				w.publish()
				w.Set(queues.ClusterQueue(t, "team", map[string]string{"byusage": ""}, "spot "+string(name)+"=3"))
				for _, lq := range []string{"many", "few"} {
					w.Set(queues.LocalQueue(lq, "team", ""))
				}
				w.submitTo("first", "many", by, 2, nil)
				w.expect("first")
				w.Now = w.Now.Add(time.Hour)
				w.submitTo("heavy", "many", by, 1, nil)
				w.Now = w.Now.Add(time.Minute)
				w.submitTo("light", "few", by, 1, nil)
				w.Cycles(t)
				for _, x := range w.State.AllWorkloads() {
					if has := workload.HasQuota(x.Object); has != slices.Contains(want, x.Object.Name) {
						t.Errorf("%s has quota: %t, want %v to have it", x.Object.Name, has, want)
					}
				}
				w.Now = w.Now.Add(time.Hour)
				w.Cycles(t)
				report := w.State.Report(w.Now)
				status := report.LocalQueues[types.NamespacedName{Namespace: "default", Name: "many"}].FairSharing.AdmissionFairSharingStatus
				if q := status.ConsumedResources[name]; q.Sign() <= 0 || q.Value() > 3 || len(status.ConsumedResources) != 1 {
					t.Errorf("%v are consumed, want up to 3 of %s and nothing else", status.ConsumedResources, name)
				}
			})
		}
	}
}

// TestWorkloadsWakeForDevices: for a template, a class or slices that come after the Workload.
func TestWorkloadsWakeForDevices(t *testing.T) {
	for name, c := range map[string]struct {
		by string
		// lacks takes something away, and comes brings it.
		lacks, comes func(deviceWorld)
	}{
		"a slice":                              {"by counter", func(deviceWorld) {}, deviceWorld.publish},
		"a slice of devices that are shared":   {"by capacity", func(deviceWorld) {}, deviceWorld.publish},
		"a class of an extended resource":      {"by extended resource", deviceWorld.withoutClass, func(w deviceWorld) { w.class("gpu", "example.com/gpu") }},
		"a class by its implicit name":         {"by implicit name", deviceWorld.withoutClass, func(w deviceWorld) { w.class("gpu", "") }},
		"the extended resource of a class":     {"by extended resource", func(w deviceWorld) { w.class("gpu", "") }, func(w deviceWorld) { w.class("gpu", "example.com/gpu") }},
		"another extended resource of a class": {"by extended resource", func(w deviceWorld) { w.class("gpu", "example.com/other") }, func(w deviceWorld) { w.class("gpu", "example.com/gpu") }},
		"a template":                           {"by number", func(w deviceWorld) { w.Delete(w.templateOf("one")) }, func(w deviceWorld) { w.template("one", deviceAmounts["by number"].claim) }},
		"a template that requests too much":    {"by number", func(w deviceWorld) { w.template("one", "{deviceClassName: gpu, count: 9}") }, func(w deviceWorld) { w.template("one", deviceAmounts["by number"].claim) }},
		"a class that sources count, with slices": {"by counter", func(w deviceWorld) {
			w.publish()
			w.Delete(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "mig"}})
		}, func(w deviceWorld) { w.class("mig", "") }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeviceWorld(t)
			w.Set(queues.ClusterQueue(t, "team", nil, "spot "+deviceAmounts[c.by].resource+"=1"))
			w.Set(queues.LocalQueue("main", "team", ""))
			w.submit("one", "main", c.by, 1)
			c.lacks(w)
			w.expect()
			c.comes(w)
			w.expect("one")
		})
	}
}

func (w deviceWorld) withoutClass() {
	w.Delete(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
}

func (w deviceWorld) templateOf(name string) *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

// TestADeletedClassCountsNoMore: nor does one whose extended resource changes. The resource counts by its own name then, for which one of
// the queues has no quota, and a Workload in the other wakes.
func TestADeletedClassCountsNoMore(t *testing.T) {
	for name, change := range map[string]func(deviceWorld){
		"deleted": deviceWorld.withoutClass,
		"changed": func(w deviceWorld) { w.class("gpu", "example.com/other") },
		"cleared": func(w deviceWorld) { w.class("gpu", "") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeviceWorld(t)
			w.Set(queues.ClusterQueue(t, "team", nil, "spot gpus=1"))
			w.Set(queues.LocalQueue("main", "team", ""))
			w.Set(queues.ClusterQueue(t, "plugin", nil, "spot example.com/gpu=1"))
			w.Set(queues.LocalQueue("plugin", "plugin", ""))
			w.submit("waits", "plugin", "by extended resource", 1)
			w.expect()
			change(w)
			w.expect("waits")
			w.submit("late", "main", "by extended resource", 1)
			w.expect("waits")
		})
	}
}

// TestARequeuedWorkloadIsCountedAgain: one that ran when its class was deleted counts by the extended resource once it queues again.
func TestARequeuedWorkloadIsCountedAgain(t *testing.T) {
	w := newDeviceWorld(t)
	w.Set(queues.ClusterQueue(t, "team", nil, "spot gpus=1"))
	w.Set(queues.LocalQueue("main", "team", ""))
	w.submit("runs", "main", "by extended resource", 1)
	w.expect("runs")
	w.withoutClass()
	w.expect("runs") // its pods have their devices
	w.Change(t, "stopped", "runs")
	w.expect()
	if got := w.State.Workloads[w.Find(t, "runs").UID].Pod[0]; got["gpus"] != 0 || got["example.com/gpu"] != 1 {
		t.Errorf("it counts %v, want 1 of example.com/gpu", got)
	}
}

// TestRefusedClaimsSayWhy on the Workload, in QuotaReserved.
func TestRefusedClaimsSayWhy(t *testing.T) {
	w := newDeviceWorld(t)
	w.Set(queues.ClusterQueue(t, "team", nil, "spot gpus=1"))
	w.Set(queues.LocalQueue("main", "team", ""))
	for name, claim := range map[string]struct{ request, want string }{
		"all":      {"{deviceClassName: gpu, allocationMode: All}", "AllocationMode 'All' is not supported"},
		"unmapped": {"{deviceClassName: fpga, count: 1}", "DeviceClass fpga is not mapped in DRA configuration for podset main"},
		"lacking":  {"{deviceClassName: mig, count: 1}", "insufficient matching devices for counter driver: 0 device(s) match but 1 requested"},
	} {
		w.submit(name, "main", "by number", 1)
		w.template(name, claim.request)
		w.expect()
		found := ""
		for _, c := range w.Find(t, name).Status.Conditions {
			if c.Type == kueue.WorkloadQuotaReserved {
				found = c.Reason + ": " + c.Message
			}
		}
		if !strings.Contains(found, claim.want) {
			t.Errorf("%s: QuotaReserved says %q, want %q", name, found, claim.want)
		}
	}
}

// TestClaimsAreCountedInDomains: a gang is placed where its devices are, at every level, and not only where its pods' CPU fits.
func TestClaimsAreCountedInDomains(t *testing.T) {
	for _, by := range []string{"by number", "by a selector", "by extended resource", "by implicit name"} {
		t.Run(by, func(t *testing.T) {
			w := newDeviceWorld(t)
			w.Set(queues.Flavor("spot", map[string]string{"topology": "racks"}))
			topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}}
			topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}}
			w.Set(topology)
			w.Set(queues.ClusterQueue(t, "team", nil, "spot gpus=100"))
			w.Set(queues.LocalQueue("main", "team", ""))
			for rack, devices := range map[string]int{"a": 1, "b": 2} {
				w.Nodes(t, rack, map[string]string{"pool": "spot", "rack": rack, "count": "2", "cpu": "64"})
				for _, host := range []string{rack + "-1", rack + "-2"} {
					w.Set(publishedBy(queues.NodeOf(host), devices))
				}
			}
			gang := func(name string, pods int32) {
				w.submitWith(name, by, pods, queues.TopologyRequest("required:rack"))
			}
			gang("five", 5)
			w.expect() // no rack has as many
			gang("four", 4)
			w.expect("four")
			if got := queues.Places(w.Find(t, "four")); got != "main: b-1=2 b-2=2\n" {
				t.Errorf("four pods are placed at %q, want two on each node of rack b", got)
			}
			gang("three", 3)
			w.expect("four")
			w.Set(publishedBy(queues.NodeOf("a-1"), 2)) // a device is mended
			w.expect("four", "three")
			if got := queues.Places(w.Find(t, "three")); got != "main: a-1=2 a-2=1\n" {
				t.Errorf("three pods are placed at %q, want two on a-1 and one on a-2", got)
			}
			w.Change(t, "finish", "four")
			w.Nodes(t, "c", map[string]string{"pool": "spot", "rack": "c", "cpu": "64"}) // its driver has published nothing
			gang("more", 4)
			w.expect("more", "three")
		})
	}
}

// publishedBy is the slice of a node with devices of class gpu.
func publishedBy(node string, devices int) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "of-" + node}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}}
	for n := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", n)})
	}
	return s
}

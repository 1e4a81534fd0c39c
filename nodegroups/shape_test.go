package nodegroups

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	gib = 1 << 30
	gpu = corev1.ResourceName("nvidia.com/gpu")
)

// gpuGroup promises 64 cpus, 256Gi and 8 GPUs, a label and a taint.
func gpuGroup() *v1alpha1.NodeGroup {
	ng := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	ng.Spec.Zone, ng.Spec.CapacityType = "a", v1alpha1.OnDemand
	ng.Spec.Template = v1alpha1.NodeTemplate{
		Labels:   map[string]string{"team": "ml"},
		Taints:   []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}},
		Capacity: Resources{"cpu": 64_000, "memory": 256 * gib, gpu: 8}.List(),
	}
	return ng
}

// seen is a node of that group which is as old as said and offers what it promises,
// unless changed.
func seen(name string, age time.Duration, changes ...func(*SeenNode)) SeenNode {
	ng := gpuGroup()
	n := SeenNode{
		Name: name, Registered: noon.Add(-age), Labels: Labels(ng), Taints: ng.Spec.Template.Taints,
		Allocatable: ResourcesFrom(Allocatable(ng.Spec.Template)),
	}
	for _, change := range changes {
		change(&n)
	}
	return n
}

func offers(name corev1.ResourceName, v int64) func(*SeenNode) {
	return func(n *SeenNode) { n.Allocatable[name] = v }
}

// partitioned nodes offer MIG devices in place of GPUs.
func partitioned(n *SeenNode) {
	n.Allocatable[gpu], n.Allocatable["nvidia.com/mig-1g.10gb"] = 0, 56
}

func TestLearnShape(t *testing.T) {
	whole := func(changes ...func(*SeenNode)) corev1.ResourceList {
		return seen("", 0, changes...).Allocatable.List()
	}
	hash := templateHash(gpuGroup().Spec.Template)
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(d)} }
	known := &v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: whole(offers("memory", 240*gib))}
	other := &v1alpha1.LearnedShape{TemplateHash: "other", Allocatable: whole(offers("memory", 240*gib))}
	gone := &v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: known.Allocatable, UnseenSince: at(-time.Hour)}
	slices := &v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: whole(partitioned)}
	for _, tc := range []struct {
		name  string
		old   *v1alpha1.LearnedShape
		nodes []SeenNode
		want  *v1alpha1.LearnedShape
	}{
		{"nothing is known of a group without nodes", nil, nil, nil},
		{"the least of each resource counts", nil,
			[]SeenNode{seen("a", 0, offers("memory", 250*gib)), seen("b", 0, offers("cpu", 63_000)), seen("c", 0, offers("memory", 252*gib))},
			&v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: whole(offers("memory", 250*gib), offers("cpu", 63_000))}},
		{"what the template does not speak of is left out", nil, []SeenNode{seen("a", 0, offers("hugepages-2Mi", 5))},
			&v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: whole()}},
		{"a node whose GPUs are late teaches nothing", nil, []SeenNode{seen("a", 0, offers(gpu, 0), offers("memory", 1))}, nil},
		{"nor does it beside others", nil, []SeenNode{seen("a", 0, offers(gpu, 0), offers("memory", 1)), seen("b", 0)},
			&v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: whole()}},
		{"nor does one that has lost a GPU", nil, []SeenNode{seen("a", 0, offers(gpu, 7), offers("memory", 1)), seen("b", 0)},
			&v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: whole()}},
		{"where all have fewer, that is what there is", nil, []SeenNode{seen("a", 0, offers(gpu, 4)), seen("b", 0, offers(gpu, 4))},
			&v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: whole(offers(gpu, 4))}},
		{"GPUs that are partitioned are what there is, once nodes have had their time", nil,
			[]SeenNode{seen("a", 5*time.Minute, partitioned), seen("b", time.Minute, offers(gpu, 0))},
			&v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: whole(partitioned)}},
		{"before that they may become anything", nil, []SeenNode{seen("a", 4*time.Minute, partitioned)}, nil},
		{"the next node shows what is known, at once", slices, []SeenNode{seen("a", 0, partitioned)}, slices},
		{"and teaches nothing while it is not partitioned yet", slices, []SeenNode{seen("b", time.Minute)},
			&v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: slices.Allocatable, UnseenSince: at(0)}},
		{"until it has had its time", slices, []SeenNode{seen("b", 5*time.Minute)},
			&v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: whole()}},
		{"so do time slices: more than the template promises", nil, []SeenNode{seen("a", 5*time.Minute, offers(gpu, 32))},
			&v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: whole(offers(gpu, 32))}},
		{"beside nodes as promised, those others do not count", nil,
			[]SeenNode{seen("a", time.Hour, offers(gpu, 32)), seen("b", time.Hour, partitioned), seen("c", 0)},
			&v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: whole()}},
		{"devices of other makers are left out", nil, []SeenNode{seen("a", time.Hour, offers("example.com/fuse", 1))},
			&v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: whole()}},
		{"better nodes are believed", known, []SeenNode{seen("a", 0)},
			&v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: whole()}},
		{"without nodes it is remembered", known, nil,
			&v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: known.Allocatable, UnseenSince: at(0)}},
		{"for a while", gone, nil, gone},
		{"and until there is one that tells", gone, []SeenNode{seen("a", 0, offers(gpu, 0))}, gone},
		{"then it is news again", gone, []SeenNode{seen("a", 0)}, &v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: whole()}},
		{"after a day it is forgotten",
			&v1alpha1.LearnedShape{TemplateHash: hash, Allocatable: known.Allocatable, UnseenSince: at(-24 * time.Hour)}, nil,
			&v1alpha1.LearnedShape{TemplateHash: hash}},
		{"what was learned of another template is dropped, and its nodes do not tell", other, []SeenNode{seen("a", time.Minute, offers("memory", 1))},
			&v1alpha1.LearnedShape{TemplateHash: hash, Since: at(0)}},
		{"nor do they later", &v1alpha1.LearnedShape{TemplateHash: hash, Since: at(-time.Hour)},
			[]SeenNode{seen("a", 2*time.Hour, offers("memory", 1)), seen("b", time.Hour)},
			&v1alpha1.LearnedShape{TemplateHash: hash, Since: at(-time.Hour), Allocatable: whole()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := tc.old.DeepCopy()
			got := LearnShape(tc.old, gpuGroup().Spec.Template, tc.nodes, noon.Add(time.Millisecond))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("shape (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.old); diff != "" {
				t.Errorf("the old shape was changed:\n%s", diff)
			}
			if again := LearnShape(got, gpuGroup().Spec.Template, tc.nodes, noon.Add(time.Second)); !cmp.Equal(got, again) {
				t.Errorf("a second look at the same nodes changes it:\n%s", cmp.Diff(got, again))
			}
		})
	}
}

// A template that promises no devices, since they are not known, or that declares none.
func TestLearnShapeOfUnknownDevices(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.NodeTemplate){
		"none is named": func(t *v1alpha1.NodeTemplate) { delete(t.Capacity, gpu) },
		"zero is named": func(t *v1alpha1.NodeTemplate) { t.Capacity[gpu] = *quantity(gpu, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			template := gpuGroup().Spec.Template
			change(&template)
			var shape *v1alpha1.LearnedShape
			for _, tc := range []struct {
				nodes []SeenNode
				want  int64
			}{
				{[]SeenNode{seen("a", time.Minute, offers(gpu, 0))}, 0},
				{[]SeenNode{seen("a", 5*time.Minute, offers(gpu, 28))}, 28},
				{[]SeenNode{seen("a", time.Hour, offers(gpu, 28)), seen("b", time.Minute, offers(gpu, 0))}, 28},
			} {
				shape = LearnShape(shape, template, tc.nodes, noon)
				if shape == nil || ResourcesFrom(shape.Allocatable)[gpu] != tc.want || ResourcesFrom(shape.Allocatable)["cpu"] != 64_000 {
					t.Errorf("of %+v got %+v, want %d GPUs", tc.nodes, shape, tc.want)
				}
			}
		})
	}
}

func TestLearnsAt(t *testing.T) {
	for _, tc := range []struct {
		nodes []SeenNode
		want  time.Time
	}{
		{nil, time.Time{}},
		{[]SeenNode{seen("a", time.Hour, partitioned)}, time.Time{}},
		{[]SeenNode{seen("a", time.Minute)}, time.Time{}},
		{[]SeenNode{seen("a", time.Minute, partitioned), seen("b", 2*time.Minute, partitioned), seen("c", 3*time.Minute)}, noon.Add(3 * time.Minute)},
	} {
		if got := LearnsAt(gpuGroup(), tc.nodes, noon); !got.Equal(tc.want) {
			t.Errorf("of %+v something is learned at %s, want %s", tc.nodes, got, tc.want)
		}
	}
}

func TestForgottenAt(t *testing.T) {
	unseen := metav1.NewTime(noon)
	for _, tc := range []struct {
		shape *v1alpha1.LearnedShape
		want  time.Time
	}{
		{nil, time.Time{}},
		{&v1alpha1.LearnedShape{}, time.Time{}},
		{&v1alpha1.LearnedShape{UnseenSince: &unseen}, noon.Add(24 * time.Hour)},
	} {
		if got := ForgottenAt(tc.shape); got != tc.want {
			t.Errorf("%+v is forgotten at %s, want %s", tc.shape, got, tc.want)
		}
	}
}

func TestPlansCountWithWhatNodesShow(t *testing.T) {
	promised := Resources{"cpu": 64_000, "memory": 256 * gib, gpu: 8, "pods": DefaultPods}
	shapeOf := func(change func(*v1alpha1.LearnedShape), offer Resources) *v1alpha1.LearnedShape {
		s := &v1alpha1.LearnedShape{TemplateHash: templateHash(gpuGroup().Spec.Template), Allocatable: offer.List()}
		change(s)
		return s
	}
	same := func(*v1alpha1.LearnedShape) {}
	for _, tc := range []struct {
		name  string
		shape *v1alpha1.LearnedShape
		want  Resources
	}{
		{"nothing seen", nil, promised},
		{"seen as promised", shapeOf(same, promised), promised},
		{"less of one", shapeOf(same, Resources{"cpu": 64_000, "memory": 250 * gib, gpu: 8, "pods": 110}),
			Resources{"cpu": 64_000, "memory": 250 * gib, gpu: 8, "pods": 110}},
		{"more of one and less of another", shapeOf(same, Resources{"cpu": 96_000, "memory": 256 * gib, gpu: 4, "pods": 58}),
			Resources{"cpu": 64_000, "memory": 256 * gib, gpu: 4, "pods": 58}},
		{"a resource that was never promised", shapeOf(same, Resources{"hugepages-2Mi": 1}), promised},
		{"other devices", shapeOf(same, Resources{gpu: 0, "nvidia.com/mig-1g.10gb": 56}),
			Resources{"cpu": 64_000, "memory": 256 * gib, gpu: 0, "nvidia.com/mig-1g.10gb": 56, "pods": 110}},
		{"more devices", shapeOf(same, Resources{gpu: 32}), Resources{"cpu": 64_000, "memory": 256 * gib, gpu: 32, "pods": 110}},
		{"less, of another template", shapeOf(func(s *v1alpha1.LearnedShape) { s.TemplateHash = "other" }, Resources{gpu: 4}), promised},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := GroupFrom(gpuGroup(), v1alpha1.NodeGroupStatus{Shape: tc.shape}, 0)
			if diff := cmp.Diff(tc.want, g.Allocatable); diff != "" {
				t.Errorf("allocatable (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(promised, g.Promised); diff != "" {
				t.Errorf("promised (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTemplatesAreDistinguished(t *testing.T) {
	base := gpuGroup().Spec.Template
	if templateHash(base) != templateHash(*base.DeepCopy()) {
		t.Error("a copy is another template")
	}
	for name, change := range map[string]func(*v1alpha1.NodeTemplate){
		"label":       func(t *v1alpha1.NodeTemplate) { t.Labels["team"] = "web" },
		"taint":       func(t *v1alpha1.NodeTemplate) { t.Taints[0].Value = "no" },
		"capacity":    func(t *v1alpha1.NodeTemplate) { t.Capacity["cpu"] = *quantity("cpu", 1) },
		"allocatable": func(t *v1alpha1.NodeTemplate) { t.Allocatable = t.Capacity },
	} {
		changed := base.DeepCopy()
		change(changed)
		if templateHash(base) == templateHash(*changed) {
			t.Errorf("a changed %s makes no other template", name)
		}
	}
}

func TestDifferences(t *testing.T) {
	const old, young = time.Hour, time.Minute
	lacks := func(key string) func(*SeenNode) { return func(n *SeenNode) { delete(n.Labels, key) } }
	labelled := func(key, value string) func(*SeenNode) { return func(n *SeenNode) { n.Labels[key] = value } }
	bare := func(n *SeenNode) { n.Taints = nil }
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.NodeGroup)
		nodes  []SeenNode
		// want has, for each difference in order, its kind and parts of its message.
		want [][]string
		told bool
	}{
		{"no nodes", nil, nil, nil, false},
		{"nodes as promised", nil, []SeenNode{seen("a", old)}, nil, true},
		{"more than promised", nil, []SeenNode{seen("a", old, offers("memory", 300*gib), labelled("more", "x"))}, nil, true},
		{"less memory, on a young node, too", nil, []SeenNode{seen("a", young, offers("memory", 250*gib))},
			[][]string{{"LessThanPromised", "250Gi memory", "6Gi less than the 256Gi", "spec.template.allocatable[memory]"}}, false},
		{"half the GPUs and less cpu", nil, []SeenNode{seen("a", old, offers(gpu, 4), offers("cpu", 63_500))},
			[][]string{{"LessThanPromised", "63500m cpu", "500m less than the 64"},
				{"LessThanPromised", "4 nvidia.com/gpu", "4 less than the 8"}}, true},
		{"GPUs that are late", nil, []SeenNode{seen("a", young, offers(gpu, 0))}, nil, false},
		{"GPUs that never came", nil, []SeenNode{seen("b", old, offers(gpu, 0)), seen("a", old)},
			[][]string{{"LessThanPromised", "node b offers no nvidia.com/gpu", "promises 8", "device plugin"}}, true},
		{"GPUs that are partitioned", nil, []SeenNode{seen("a", old, partitioned)},
			[][]string{
				{"LessThanPromised", "0 nvidia.com/gpu", "8 less than the 8", "plans count with that"},
				{"OtherDevices", "56 nvidia.com/mig-1g.10gb", "promises 0", "plans count with that"},
			}, true},
		{"GPUs that are shared", nil, []SeenNode{seen("a", old, offers(gpu, 32))},
			[][]string{{"OtherDevices", "32 nvidia.com/gpu", "promises 8", "spec.template.allocatable[nvidia.com/gpu]"}}, true},
		{"a label of an agent that is late", nil, []SeenNode{seen("a", young, lacks("team"))}, nil, false},
		{"a label that never came, on two nodes", nil, []SeenNode{seen("b", old, lacks("team")), seen("a", old, lacks("team"))},
			[][]string{{"LabelsMissing", "node a lacks the label team=ml", "spec.template.labels"}}, true},
		{"labels of other values", nil,
			[]SeenNode{seen("a", old, labelled(corev1.LabelTopologyZone, "b"), labelled(v1alpha1.CapacityTypeLabel, "spot"),
				labelled(corev1.LabelArchStable, "arm64"))}, [][]string{
				{"LabelsMissing", "kubernetes.io/arch=arm64 instead of amd64", "spec.template.labels"},
				{"LabelsMissing", "muster.dev/capacity-type=spot instead of on-demand", "spec.capacityType"},
				{"LabelsMissing", "topology.kubernetes.io/zone=b instead of a", "spec.zone"},
			}, true},
		{"a taint that never came", nil, []SeenNode{seen("a", old, bare)},
			[][]string{{"TaintsMissing", "node a lacks the taint gpu=yes:NoSchedule", "spec.template.taints"}}, true},
		{"everything at once", nil, []SeenNode{seen("a", old, bare, lacks("team"), offers("memory", gib))},
			[][]string{{"LessThanPromised"}, {"LabelsMissing"}, {"TaintsMissing"}}, true},
		{"a node that is old for an impatient group", func(ng *v1alpha1.NodeGroup) { ng.Spec.JoinTimeout = &metav1.Duration{Duration: young} },
			[]SeenNode{seen("a", young, bare)}, [][]string{{"TaintsMissing"}}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ng := gpuGroup()
			if tc.change != nil {
				tc.change(ng)
			}
			shape := LearnShape(nil, ng.Spec.Template, tc.nodes, noon)
			got, told := Differences(ng, shape, tc.nodes, noon)
			if len(got) != len(tc.want) || told != tc.told {
				t.Fatalf("told %t of %+v, want %t of %v", told, got, tc.told, tc.want)
			}
			for i, want := range tc.want {
				for _, part := range want {
					if !strings.Contains(fmt.Sprint(got[i]), part) {
						t.Errorf("difference %d is %+v, which does not speak of %q", i, got[i], part)
					}
				}
			}
		})
	}
}

func TestJoinTimeout(t *testing.T) {
	gpus := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	pools := []v1alpha1.DevicePool{{Driver: "gpu.nvidia.com", Devices: []v1alpha1.Device{{Name: "gpu-", Count: 8}}}}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.NodeGroup)
		want   time.Duration
	}{
		"of machines without devices":         {func(*v1alpha1.NodeGroup) {}, DefaultJoinTimeout},
		"of machines with GPUs":               {func(g *v1alpha1.NodeGroup) { g.Spec.Template.Capacity = gpus }, DefaultJoinTimeoutDevices},
		"of machines with devices by claim":   {func(g *v1alpha1.NodeGroup) { g.Spec.Template.Devices = pools }, DefaultJoinTimeoutDevices},
		"of machines with devices as learned": {func(g *v1alpha1.NodeGroup) { g.Status.Shape = &v1alpha1.LearnedShape{Devices: pools} }, DefaultJoinTimeoutDevices},
		"as the group says": {func(g *v1alpha1.NodeGroup) {
			g.Spec.Template.Capacity, g.Spec.JoinTimeout = gpus, &metav1.Duration{Duration: time.Minute}
		}, time.Minute},
	} {
		g := &v1alpha1.NodeGroup{}
		tc.change(g)
		if got := JoinTimeout(g); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestNodesOfAnOlderTemplateAreNoDifference(t *testing.T) {
	ng := gpuGroup()
	shape := &v1alpha1.LearnedShape{TemplateHash: templateHash(ng.Spec.Template), Since: &metav1.Time{Time: noon.Add(-time.Hour)}}
	if got, told := Differences(ng, shape, []SeenNode{seen("a", 2*time.Hour, func(n *SeenNode) { n.Labels = nil })},
		noon); len(got) > 0 || told {
		t.Errorf("told %t of %+v", told, got)
	}
}

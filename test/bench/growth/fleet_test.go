package growth

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

const (
	seed = 1
	gpu  = corev1.ResourceName("nvidia.com/gpu")
	// groups of the fleet; mayGrow is more machines of each than any gang requests.
	groups  = 200
	mayGrow = 100_000
)

// alike says how nodes differ in what room they have left. Plans cost by the number
// of different ones.
type alike int

const (
	// aThousandWays is many for a cluster whose pods come in a few sizes.
	aThousandWays alike = 1000
	// noTwo nodes are alike.
	noTwo alike = 0
)

// fleet is the snapshot of a cluster whose nodes are machines of groups. Each runs a pod that uses all of its GPUs.
type fleet struct {
	model    *model.Model
	random   *rand.Rand
	nodes    int
	versions int
}

// newFleet is a fleet whose groups may grow to so many machines each.
func newFleet(nodes int, alike alike, most int32) *fleet {
	f := &fleet{
		model:  model.New(testingclock.NewFakePassiveClock(noon), transaction.Instance{Classes: transaction.KnownClasses}),
		random: rand.New(rand.NewPCG(seed, seed)), nodes: nodes,
	}
	for i := range groups {
		g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: groupName(i), ResourceVersion: f.version()}}
		g.Spec.CapacityType = v1alpha1.OnDemand
		g.Spec.Zone = fmt.Sprintf("zone-%d", i%3)
		g.Spec.MaxNodes = most
		g.Spec.PricePerHour = new(resource.MustParse("90"))
		g.Spec.Template.Capacity = machine()
		f.model.Set(g)
	}
	ways := nodes
	if alike != noTwo {
		ways = int(alike)
	}
	for i := range nodes {
		name := nodeName(i)
		f.model.SetMachine(cloudprovider.Machine{Name: name, Group: groupName(i % groups), ProviderID: "kwok://" + name,
			State: cloudprovider.Running})
		f.model.Set(f.node(i))
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceDefault, Name: "pod-" + name, UID: types.UID("pod-" + name), ResourceVersion: f.version(),
			CreationTimestamp: metav1.NewTime(noon),
		}}
		p.Spec.NodeName = name
		p.Spec.Containers = []corev1.Container{{Name: "main", Image: "registry.example/team/train:1.0",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(92_000+int64(i%ways)%3800, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(1<<39+int64(i%ways), resource.BinarySI),
				gpu:                   resource.MustParse("8"),
			}}}}
		f.model.Set(p)
	}
	f.model.Snapshot(noon)
	return f
}

func groupName(i int) string { return fmt.Sprintf("group-%03d", i) }
func nodeName(i int) string  { return fmt.Sprintf("node-%06d", i) }

func machine() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("96"), corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods: resource.MustParse("110"), gpu: resource.MustParse("8"),
	}
}

func (f *fleet) version() string {
	f.versions++
	return strconv.Itoa(f.versions)
}

func (f *fleet) node(i int) *corev1.Node {
	group := groupName(i % groups)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), UID: types.UID(nodeName(i)), ResourceVersion: f.version(),
		Labels: map[string]string{
			v1alpha1.NodeGroupLabel: group, corev1.LabelHostname: nodeName(i), corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%groups%3),
			corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}}}
	n.Spec.ProviderID = "kwok://" + n.Name
	n.Status.Capacity, n.Status.Allocatable = machine(), machine()
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// change has one node change and a snapshot taken, as after each event of a watch.
func (f *fleet) change() *planner.Snapshot {
	n := f.node(f.random.IntN(f.nodes))
	// One more, or one less, of what every node may lose to the system.
	n.Status.Allocatable[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(f.random.Int64N(2), resource.DecimalSI)
	f.model.Set(n)
	return f.model.Snapshot(noon)
}

// gang requests 64 machines, and a small pod that would suit any node but finds no room, so that all of the fleet is read.
func gang() state.Gang {
	podSet := func(name string, count int, requests corev1.ResourceList) state.PodSet {
		t := &corev1.PodTemplateSpec{}
		t.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests}}}
		return state.PodSet{Name: name, Count: count, Template: t}
	}
	return state.Gang{Namespace: corev1.NamespaceDefault, Name: "default/gang", PodSets: []state.PodSet{
		podSet("workers", 64, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), gpu: resource.MustParse("8")}),
		podSet("launcher", 1, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("768Gi")}),
	}}
}

func plan(s *planner.Snapshot) planner.Verdict {
	return planner.Plan(s, gang(), state.DefaultPolicy(state.AtomicScaleUp))
}

// TestFleet holds what the measures rest on.
func TestFleet(t *testing.T) {
	f := newFleet(groups*2, aThousandWays, mayGrow)
	s := f.change()
	if s.Nodes.Len() != f.nodes {
		t.Errorf("the snapshot has %d nodes, want %d", s.Nodes.Len(), f.nodes)
	}
	v := plan(s)
	machines := 0
	for _, l := range v.Launches {
		machines += l.Count
	}
	if v.Outcome != planner.Launch || machines != 64 && machines != 65 {
		t.Errorf("the plan is %s of %d machines: %s", v.Outcome, machines, v.Message())
	}
}

package kwok

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-dev/muster/cloudprovider"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

var now = time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)

func TestLaunchMakesMachinesThatCarryEverythingTheNodeNeeds(t *testing.T) {
	group := gpuGroup("h100")
	group.Spec.Zone = "zone-a"
	group.Spec.CapacityType = v1alpha1.Spot
	group.Spec.Template.Labels = map[string]string{"node.kubernetes.io/instance-type": "h100x8", "kubernetes.io/arch": "arm64"}
	group.Spec.Template.StartupTaints = []corev1.Taint{{Key: "example.com/network", Effect: corev1.TaintEffectNoSchedule}}
	group.Spec.Template.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("190")}
	group.Spec.Kwok = &v1alpha1.KwokPool{BootDelay: seconds(30), DeviceDelay: seconds(5), Faults: []v1alpha1.KwokFault{
		{Type: v1alpha1.FaultReclaim, After: new(seconds(60))}}}
	world := newWorld(t, group)

	got, err := world.provider().Launch(t.Context(), request(group, 1, "uid/1"))
	if err != nil {
		t.Fatal(err)
	}
	name := machineName("h100", "uid/1", 0)
	want := []cloudprovider.Machine{{Name: name, Group: "h100", Launch: "uid/1", ProviderID: "kwok://h100/" + name,
		State: cloudprovider.Booting}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("returned machines (-want +got):\n%s", diff)
	}

	machine := world.machines()[0]
	if got := machine.Labels[v1alpha1.NodeGroupLabel]; got != "h100" {
		t.Errorf("the machine's group label is %q", got)
	}
	wantSpec := kwokv1alpha1.MachineSpec{
		Group: "h100", Launch: "uid/1", Ordinal: 0,
		LaunchedAt:   metav1.NewMicroTime(now),
		BootDelay:    seconds(30),
		ReclaimAfter: new(seconds(60)),
		Node: kwokv1alpha1.MachineNode{
			Labels: map[string]string{
				"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64", "kubernetes.io/hostname": name,
				"kwok.muster.dev/devices":          "true",
				"node.kubernetes.io/instance-type": "h100x8", "topology.kubernetes.io/zone": "zone-a",
				"muster.dev/capacity-type": "spot", "muster.dev/node-group": "h100",
				"muster.node-restriction.kubernetes.io/held": "true",
			},
			Annotations: map[string]string{"muster.dev/launch": "uid/1", "muster.dev/cordoned": "joining",
				"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true", "muster.dev/kept-from-scale-down": "true"},
			Taints: []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule},
				{Key: "example.com/network", Effect: corev1.TaintEffectNoSchedule}}, Unschedulable: true,
			Capacity:    amounts("cpu", "192", "memory", "2Ti", "pods", "110"),
			Allocatable: amounts("cpu", "190", "memory", "2Ti", "pods", "110"),
			Devices:     amounts("nvidia.com/gpu", "8"),
			DeviceDelay: seconds(5),
		},
	}
	if diff := cmp.Diff(wantSpec, machine.Spec); diff != "" {
		t.Errorf("spec of the machine (-want +got):\n%s", diff)
	}
}

func TestNodesForPendingPodsAreNotBornCordoned(t *testing.T) {
	group := gpuGroup("h100")
	group.Spec.ScaledBy = v1alpha1.ScaledByClusterAutoscaler
	world := newWorld(t, group)
	if _, err := world.provider().Launch(t.Context(), request(group, 1, "uid-1")); err != nil {
		t.Fatal(err)
	}
	node := world.machines()[0].Spec.Node
	want := map[string]string{v1alpha1.LaunchAnnotation: "uid-1"}
	if diff := cmp.Diff(want, node.Annotations); diff != "" || node.Unschedulable || node.Labels[v1alpha1.HeldLabel] != "" {
		t.Errorf("cordoned: %t, held: %q, annotations (-want +got):\n%s", node.Unschedulable, node.Labels[v1alpha1.HeldLabel], diff)
	}
}

func TestLaunch(t *testing.T) {
	type step struct {
		token string
		count int
		// before the step
		kill      []int // ordinals that end by themselves
		terminate []int // ordinals that are deleted
		forgetful bool  // the caller's NodeGroup is as it was in the beginning

		want        []int64 // ordinals that are returned
		wantRefusal string
	}
	dryLater := []v1alpha1.KwokFault{{Type: v1alpha1.FaultDry, From: new(seconds(61))}}
	for name, tc := range map[string]struct {
		script v1alpha1.KwokPool
		max    int32
		steps  []step
	}{
		"ordinals go on from launch to launch": {
			steps: []step{
				{token: "a", count: 2, want: []int64{0, 1}},
				{token: "b", count: 2, want: []int64{2, 3}},
			},
		},
		"a repeated call returns the machines of the first": {
			steps: []step{
				{token: "a", count: 2, want: []int64{0, 1}},
				{token: "a", count: 2, want: []int64{0, 1}},
			},
		},
		"a repeated call does not ask the pool again": {
			script: v1alpha1.KwokPool{Holds: new(int32(2)), Faults: dryLater},
			steps: []step{
				{token: "a", count: 2, want: []int64{0, 1}},
				{token: "a", count: 2, want: []int64{0, 1}},
			},
		},
		"a repeated call counts a machine that died meanwhile": {
			steps: []step{
				{token: "a", count: 2, want: []int64{0, 1}},
				{token: "a", count: 2, kill: []int{0}, want: []int64{0, 1}},
			},
		},
		"a pool that runs out says so again": {
			script: v1alpha1.KwokPool{Holds: new(int32(3))},
			steps: []step{
				{token: "a", count: 4, want: []int64{0, 1, 2}, wantRefusal: "InsufficientCapacity"},
				{token: "a", count: 4, want: []int64{0, 1, 2}, wantRefusal: "InsufficientCapacity"},
				{token: "b", count: 1, wantRefusal: "InsufficientCapacity"},
			},
		},
		"what is terminated and what died is there to be had again": {
			script: v1alpha1.KwokPool{Holds: new(int32(3))},
			steps: []step{
				{token: "a", count: 3, want: []int64{0, 1, 2}},
				{token: "b", count: 2, terminate: []int{0}, kill: []int{1}, want: []int64{3, 4}},
			},
		},
		"ordinals are never used twice, though all machines are gone": {
			steps: []step{
				{token: "a", count: 2, want: []int64{0, 1}},
				{token: "b", count: 1, terminate: []int{0, 1}, want: []int64{2}},
			},
		},
		"the caller's picture of the group may be old": {
			steps: []step{
				{token: "a", count: 2, want: []int64{0, 1}},
				{token: "b", count: 1, terminate: []int{0, 1}, forgetful: true, want: []int64{2}},
			},
		},
		"the group's limit is a refusal": {
			max: 2,
			steps: []step{
				{token: "a", count: 1, want: []int64{0}},
				{token: "b", count: 2, wantRefusal: "MaxNodesExceeded"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			group := gpuGroup("h100")
			group.Spec.Kwok = &tc.script
			if tc.max > 0 {
				group.Spec.MaxNodes = tc.max
			}
			world := newWorld(t, group)
			for i, step := range tc.steps {
				world.clock.SetTime(now.Add(time.Duration(i) * time.Minute))
				world.end(step.kill)
				world.terminate(step.terminate)
				asked := group
				if !step.forgetful {
					asked = world.group("h100")
				}
				got, err := world.provider().Launch(t.Context(), request(asked, step.count, step.token))
				if diff := cmp.Diff(step.want, world.ordinals(got)); diff != "" {
					t.Errorf("step %d: machines (-want +got):\n%s", i, diff)
				}
				refusal := cloudprovider.Refusal(err)
				if err != nil && refusal == nil {
					t.Fatalf("step %d: %v", i, err)
				}
				if refusal == nil {
					refusal = &cloudprovider.Error{}
				}
				if refusal.Code != step.wantRefusal {
					t.Errorf("step %d: refusal %q, want %q", i, refusal.Code, step.wantRefusal)
				}
			}
		})
	}
}

// The process dies at its n-th write, with or without the write having taken
// effect; a new one repeats the call.
func TestACrashAtAnyWriteEndsInTheSameMachines(t *testing.T) {
	group := gpuGroup("h100")
	group.Spec.Kwok = &v1alpha1.KwokPool{Seed: 7, Holds: new(int32(12)), BootJitter: seconds(60), Faults: []v1alpha1.KwokFault{
		{Type: v1alpha1.FaultBootDeath, Percent: new(int32(50))}}}
	launch := func(t *testing.T, world *world) ([]cloudprovider.Machine, error) {
		return world.provider().Launch(t.Context(), request(group, 8, "uid/1"))
	}
	smooth := newWorld(t, group)
	if _, err := launch(t, smooth); err != nil {
		t.Fatal(err)
	}
	for n := range smooth.writes {
		for _, lost := range []bool{true, false} {
			t.Run(fmt.Sprintf("write %d, lost %t", n, lost), func(t *testing.T) {
				world := newWorld(t, group)
				world.crashAt, world.crashLoses = n, lost
				if _, err := launch(t, world); err == nil || cloudprovider.Refusal(err) != nil {
					t.Fatalf("a dead API server gave %v, want an error that is no refusal", err)
				}
				world.crashAt = -1
				got, err := launch(t, world)
				if err != nil {
					t.Fatal(err)
				}
				if len(got) != 8 {
					t.Errorf("%d machines were returned", len(got))
				}
				if diff := cmp.Diff(specs(smooth), specs(world)); diff != "" {
					t.Errorf("machines (-without the crash +with it):\n%s", diff)
				}
				var names []string
				for _, m := range got {
					names = append(names, m.Name)
				}
				if err := world.provider().Terminate(t.Context(), "h100", names); err != nil {
					t.Fatal(err)
				}
				if got := world.group("h100").Status.Launched; got != 8 {
					t.Errorf("%d machines are remembered, want 8", got)
				}
			})
		}
	}
}

func TestLaunchesAtTheSameTimeNeverOverdrawThePool(t *testing.T) {
	group := gpuGroup("h100")
	group.Spec.Kwok = &v1alpha1.KwokPool{Holds: new(int32(10))}
	world := newWorld(t, group)
	provider := world.provider()
	var launches sync.WaitGroup
	for i := range 8 {
		launches.Go(func() {
			_, err := provider.Launch(t.Context(), request(group, 3, fmt.Sprint("token/", i)))
			if err != nil && cloudprovider.Refusal(err) == nil {
				t.Error(err)
			}
		})
	}
	launches.Wait()
	ordinals := map[int64]bool{}
	for _, m := range world.machines() {
		ordinals[m.Spec.Ordinal] = true
	}
	if len(world.machines()) != 10 || len(ordinals) != 10 {
		t.Errorf("%d machines with %d ordinals, want 10 and 10", len(world.machines()), len(ordinals))
	}
}

func TestADeletedGroupIsARefusalAndABusyAPIServerIsNot(t *testing.T) {
	world := newWorld(t)
	_, err := world.provider().Launch(t.Context(), request(gpuGroup("gone"), 1, "a"))
	if refusal := cloudprovider.Refusal(err); refusal == nil || refusal.Class != v1alpha1.Config {
		t.Errorf("a launch in a deleted group gave %v", err)
	}

	group := gpuGroup("h100")
	world = newWorld(t, group)
	world.crashAt = 0
	got, err := world.provider().Launch(t.Context(), request(group, 1, "a"))
	if err == nil || cloudprovider.Refusal(err) != nil || !apierrors.IsTooManyRequests(err) {
		t.Errorf("a busy API server gave %v", err)
	}
	if len(got) != 0 {
		t.Errorf("%d machines are said to exist", len(got))
	}
}

func TestTerminate(t *testing.T) {
	group := gpuGroup("h100")
	world := newWorld(t, group)
	provider := world.provider()
	machines, err := provider.Launch(t.Context(), request(group, 3, "a"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{machines[0].Name, "never-was", machines[2].Name, machines[0].Name}
	for range 2 {
		if err := provider.Terminate(t.Context(), "h100", names); err != nil {
			t.Fatal(err)
		}
	}
	if left := world.machines(); len(left) != 1 || left[0].Name != machines[1].Name {
		t.Errorf("left are %v, want %s alone", left, machines[1].Name)
	}
	world.crashAt = 0
	if err := provider.Terminate(t.Context(), "h100", names); err == nil {
		t.Error("a dead API server gave no error")
	}
}

func TestNamesFitNodesAndTheirLabels(t *testing.T) {
	seen := map[string]string{}
	for _, group := range []string{"a", "a.b", "a-b", strings.Repeat("x", 63), strings.Repeat("x", 62) + "y", strings.Repeat("a.", 31) + "a"} {
		for _, token := range []string{"uid/1", "uid/2"} {
			name := machineName(group, token, 99999)
			if problems := slices.Concat(validation.IsDNS1123Label(name), validation.IsValidLabelValue(name)); len(problems) > 0 {
				t.Errorf("group %s: %s: %v", group, name, problems)
			}
			if other, taken := seen[name]; taken {
				t.Errorf("%s is the name for %s and for %s", name, other, group)
			}
			seen[name] = group
		}
	}
}

// world is an API server that can be made to die.
type world struct {
	t      *testing.T
	client client.WithWatch
	clock  *clocktesting.FakePassiveClock

	mu     sync.Mutex
	writes int
	// crashAt is the write at which the API server dies, counted from 0 and
	// from the moment it is set; -1 means never.
	crashAt int
	// crashLoses: the write at which it dies did not take effect.
	crashLoses bool
}

func newWorld(t *testing.T, groups ...*v1alpha1.NodeGroup) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, kwokv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(now), crashAt: -1}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.NodeGroup{}, &kwokv1alpha1.Machine{})
	for _, g := range groups {
		builder.WithObjects(g.DeepCopy())
	}
	w.client = interceptor.NewClient(builder.Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return w.write(func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return w.write(func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return w.write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
	return w
}

func (w *world) write(do func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	busy := apierrors.NewTooManyRequests("dead", 1)
	switch {
	case w.crashAt < 0:
		return do()
	case w.crashAt > 0:
		w.crashAt--
		return do()
	case !w.crashLoses:
		w.crashLoses = true
		return errors.Join(do(), busy)
	default:
		return busy
	}
}

func (w *world) provider() *Provider {
	return New(Config{Client: w.client, Live: w.client, Clock: w.clock})
}

func (w *world) group(name string) *v1alpha1.NodeGroup {
	w.t.Helper()
	group := &v1alpha1.NodeGroup{}
	if err := w.client.Get(context.Background(), client.ObjectKey{Name: name}, group); err != nil {
		w.t.Fatal(err)
	}
	return group
}

func (w *world) machines() []kwokv1alpha1.Machine {
	w.t.Helper()
	list := &kwokv1alpha1.MachineList{}
	if err := w.client.List(context.Background(), list); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

func (w *world) end(ordinals []int) {
	w.t.Helper()
	for _, m := range w.machines() {
		if slices.Contains(ordinals, int(m.Spec.Ordinal)) {
			m.Status.Phase = kwokv1alpha1.MachineTerminated
			if err := w.client.Status().Update(context.Background(), &m); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

func (w *world) terminate(ordinals []int) {
	w.t.Helper()
	for _, m := range w.machines() {
		if slices.Contains(ordinals, int(m.Spec.Ordinal)) {
			if err := w.provider().Terminate(context.Background(), m.Spec.Group, []string{m.Name}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// ordinals of the machines, in the order in which they were returned.
func (w *world) ordinals(machines []cloudprovider.Machine) (out []int64) {
	all := w.machines()
	for _, m := range machines {
		i := slices.IndexFunc(all, func(o kwokv1alpha1.Machine) bool { return o.Name == m.Name })
		if i < 0 {
			w.t.Errorf("%s was returned and does not exist", m.Name)
			continue
		}
		out = append(out, all[i].Spec.Ordinal)
	}
	return out
}

func specs(w *world) map[string]kwokv1alpha1.MachineSpec {
	out := map[string]kwokv1alpha1.MachineSpec{}
	for _, m := range w.machines() {
		out[m.Name] = m.Spec
	}
	return out
}

func gpuGroup(name string) *v1alpha1.NodeGroup {
	return &v1alpha1.NodeGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-time.Minute))},
		Spec: v1alpha1.NodeGroupSpec{
			Provider: v1alpha1.ProviderKwok,
			MaxNodes: 100,
			Kwok:     &v1alpha1.KwokPool{},
			Template: v1alpha1.NodeTemplate{
				Taints:   []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}},
				Capacity: amounts("cpu", "192", "memory", "2Ti", "nvidia.com/gpu", "8"),
			},
		},
	}
}

func request(group *v1alpha1.NodeGroup, count int, token string) cloudprovider.LaunchRequest {
	return cloudprovider.LaunchRequest{Group: group, Count: count, Token: token, Request: "team/gang"}
}

func amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for pair := range slices.Chunk(pairs, 2) {
		list[corev1.ResourceName(pair[0])] = resource.MustParse(pair[1])
	}
	return list
}

func seconds(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Second} }

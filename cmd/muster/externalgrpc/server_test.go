package externalgrpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cmd/muster/externalgrpc/protos"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
)

// sky is a cloud in which calls with one token make machines once.
type sky struct {
	mu       sync.Mutex
	machines map[string]cloudprovider.Machine
	// counts is the count of the first call of each token; calls are all calls, in order.
	counts map[string]int
	calls  []string
	taken  []string
	// stock is the number of available machines.
	stock int
	// before and after are the errors of calls, before and after their effect.
	before, after error
	// blocked calls have taken effect, and are answered once it is closed.
	blocked chan struct{}
	observe func(cloudprovider.Machine)
}

func newSky() *sky {
	return &sky{machines: map[string]cloudprovider.Machine{}, counts: map[string]int{}, stock: 1000}
}

func (c *sky) Launch(_ context.Context, req cloudprovider.LaunchRequest) (out []cloudprovider.Machine, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf("%s %d %s", req.Group.Name, req.Count, req.Token))
	if c.before != nil {
		return nil, c.before
	}
	first, again := c.counts[req.Token]
	if again && first != req.Count {
		return nil, &cloudprovider.Error{Class: v1alpha1.Config, Code: "IdempotentParameterMismatch"}
	}
	c.counts[req.Token] = req.Count
	for i := range req.Count {
		name := fmt.Sprintf("%s-%d", req.Token, i)
		if _, there := c.machines[name]; !there && !again && c.stock > 0 {
			c.stock--
			c.machines[name] = cloudprovider.Machine{Name: name, Group: req.Group.Name, Launch: req.Token, ProviderID: "sky:///" + name}
		}
		if m, there := c.machines[name]; there {
			out = append(out, m)
		}
	}
	if c.blocked != nil {
		c.mu.Unlock()
		<-c.blocked
		c.mu.Lock()
	}
	if c.after != nil {
		return nil, c.after
	}
	if len(out) < req.Count && !again {
		err = &cloudprovider.Error{Class: v1alpha1.Stockout, Code: "InsufficientInstanceCapacity", Message: "none left"}
	}
	return out, err
}

func (c *sky) Terminate(_ context.Context, _ string, names []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken = append(c.taken, names...)
	for _, name := range names {
		if m, ok := c.machines[name]; ok {
			m.State = cloudprovider.Gone
			delete(c.machines, name)
			c.observe(m)
		}
	}
	return nil
}

func (c *sky) Watch(ctx context.Context, observe func(cloudprovider.Machine), synced func()) error {
	c.mu.Lock()
	c.observe = observe
	for _, m := range c.machines {
		observe(m)
	}
	c.mu.Unlock()
	synced()
	<-ctx.Done()
	return nil
}

// list reports all machines, as clouds do at intervals.
func (c *sky) list() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.machines {
		c.observe(m)
	}
}

// pass lets so much of the bubble's time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// world is a cluster, a cloud, and the process between an autoscaler and both.
type world struct {
	*testing.T
	kube client.Client
	sky  *sky
	*server
	stop func()
}

func groupOf(name string, most int32) *v1alpha1.NodeGroup {
	return &v1alpha1.NodeGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")},
		Spec: v1alpha1.NodeGroupSpec{
			Provider: v1alpha1.ProviderAWS, MaxNodes: most, ScaledBy: v1alpha1.ScaledByClusterAutoscaler, Zone: "a",
			CapacityType: v1alpha1.Spot, PricePerHour: new(resource.MustParse("8")),
			Template: v1alpha1.NodeTemplate{
				Labels:        map[string]string{"nvidia.com/gpu.product": "H100"},
				Taints:        []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}},
				StartupTaints: []corev1.Taint{{Key: "network", Effect: corev1.TaintEffectNoSchedule}},
				Capacity: corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("32Gi"),
					"nvidia.com/gpu": resource.MustParse("4")},
			},
		},
	}
}

var scheme = sync.OnceValue(func() *runtime.Scheme {
	out := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(out); err != nil {
			panic(err)
		}
	}
	return out
})

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{T: t, kube: fake.NewClientBuilder().WithScheme(scheme()).WithObjects(objects...).Build(), sky: newSky()}
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start begins a process that remembers nothing.
func (w *world) start() {
	s := NewScaler(w.kube, w.kube, map[v1alpha1.Provider]cloudprovider.Provider{v1alpha1.ProviderAWS: w.sky}, clock.RealClock{})
	w.server = &server{Scaler: s, gpuLabel: "nvidia.com/gpu.product"}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Start(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
		w.stop = func() {}
	}
	synctest.Wait()
}

// die ends the process between two of its steps, and starts another.
func (w *world) die() {
	w.stop()
	w.start()
}

func (w *world) increase(group string, delta int32) codes.Code {
	_, err := w.NodeGroupIncreaseSize(w.Context(), &protos.NodeGroupIncreaseSizeRequest{Id: group, Delta: delta})
	synctest.Wait()
	return status.Code(err)
}

func (w *world) decrease(delta int32) codes.Code {
	_, err := w.NodeGroupDecreaseTargetSize(w.Context(), &protos.NodeGroupDecreaseTargetSizeRequest{Id: "gpu", Delta: delta})
	return status.Code(err)
}

// remove has the autoscaler delete nodes. It makes up one of the same name for an instance
// without a node.
func (w *world) remove(group string, ids ...string) codes.Code {
	req := &protos.NodeGroupDeleteNodesRequest{Id: group}
	for _, id := range ids {
		req.Nodes = append(req.Nodes, &protos.ExternalGrpcNode{Name: strings.TrimPrefix(id, "sky:///"), ProviderID: id})
	}
	_, err := w.NodeGroupDeleteNodes(w.Context(), req)
	synctest.Wait()
	return status.Code(err)
}

func (w *world) target() int {
	w.Helper()
	out, err := w.NodeGroupTargetSize(w.Context(), &protos.NodeGroupTargetSizeRequest{Id: "gpu"})
	if err != nil {
		w.Fatal(err)
	}
	return int(out.GetTargetSize())
}

// instances lists those of the group gpu, each as id, state and error.
func (w *world) instances() (out []string) {
	w.Helper()
	list, err := w.NodeGroupNodes(w.Context(), &protos.NodeGroupNodesRequest{Id: "gpu"})
	if err != nil {
		w.Fatal(err)
	}
	for _, i := range list.GetInstances() {
		s := fmt.Sprintf("%s %s", i.GetId(), strings.TrimPrefix(i.GetStatus().GetInstanceState().String(), "instance"))
		if e := i.GetStatus().GetErrorInfo(); e.GetErrorCode() != "" {
			s += fmt.Sprintf(" %d %s: %s", e.GetInstanceErrorClass(), e.GetErrorCode(), e.GetErrorMessage())
		}
		out = append(out, s)
	}
	return out
}

func (w *world) want(what string, got, want any) {
	w.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestAnIncreaseLaunchesExactlyThatMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, groupOf("gpu", 5))
		w.want("an increase", w.increase("gpu", 3), codes.OK)
		w.want("calls", w.sky.calls, []string{"gpu 3 gpu-uid-1"})
		w.want("target size", w.target(), 3)
		w.want("instances", w.instances(), []string{"sky:///gpu-uid-1-0 Creating", "sky:///gpu-uid-1-1 Creating", "sky:///gpu-uid-1-2 Creating"})

		m := w.sky.machines["gpu-uid-1-1"]
		m.State = cloudprovider.Running
		w.sky.observe(m)
		m.State = cloudprovider.Booting
		w.sky.observe(m) // an answer that comes late
		w.want("with one that runs", w.instances()[1], "sky:///gpu-uid-1-1 Running")
		w.want("one more than maxNodes", w.increase("gpu", 3), codes.OutOfRange)
		w.want("nothing", w.increase("gpu", 0), codes.InvalidArgument)
		w.want("of no group", w.increase("other", 1), codes.NotFound)
		w.want("the next", w.increase("gpu", 2), codes.OK)
		w.want("calls", w.sky.calls, []string{"gpu 3 gpu-uid-1", "gpu 2 gpu-uid-2"})
	})
}

func TestARefusalIsReportedByInstancesUntilTheyAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, groupOf("gpu", 5))
		w.sky.stock = 1
		w.increase("gpu", 3)
		refused := " Creating 1 InsufficientInstanceCapacity: none left"
		w.want("instances", w.instances(), []string{"sky:///gpu-uid-1-0 Creating", "muster-launch://gpu/1/0" + refused,
			"muster-launch://gpu/1/1" + refused})
		w.want("target size", w.target(), 3)
		w.die()
		w.want("what a new process tells", len(w.instances()), 3)
		w.want("calls", w.sky.calls, []string{"gpu 3 gpu-uid-1"})
		w.want("deleting one", w.remove("gpu", "muster-launch://gpu/1/1"), codes.OK)
		w.want("target size", w.target(), 2)
		w.want("deleting the other", w.remove("gpu", "muster-launch://gpu/1/0"), codes.OK)
		w.want("deleting it again", w.remove("gpu", "muster-launch://gpu/1/0"), codes.OK)
		w.want("target size", w.target(), 1)
		w.want("terminated", w.sky.taken, []string(nil))
		w.sky.stock = 1
		w.increase("gpu", 1)
		w.want("calls", w.sky.calls, []string{"gpu 3 gpu-uid-1", "gpu 1 gpu-uid-2"})
	})
}

func TestALaunchOutlivesItsProcess(t *testing.T) {
	for name, fail := range map[string]func(*sky, error){
		"before the call takes effect": func(c *sky, err error) { c.before = err },
		"after it":                     func(c *sky, err error) { c.after = err },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, groupOf("gpu", 5))
				fail(w.sky, errors.New("connection reset"))
				w.increase("gpu", 3)
				w.want("target size", w.target(), 3)
				w.die()
				w.want("target size", w.target(), 3)
				fail(w.sky, nil)
				pass(retryLongest)
				for _, call := range w.sky.calls {
					w.want("a call", call, "gpu 3 gpu-uid-1")
				}
				w.want("machines", len(w.sky.machines), 3)
				w.want("target size", w.target(), 3)
				w.want("instances", len(w.instances()), 3)
			})
		})
	}
}

func TestALaunchUnderWayIsGivenUpAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, groupOf("gpu", 9))
		w.sky.before = errors.New("busy")
		w.increase("gpu", 3)
		w.want("instances", w.instances(), []string{"muster-launch://gpu/1/0 Creating", "muster-launch://gpu/1/1 Creating",
			"muster-launch://gpu/1/2 Creating"})
		w.want("deleting one", w.remove("gpu", "muster-launch://gpu/1/0"), codes.FailedPrecondition)
		w.want("less by one", w.decrease(-1), codes.FailedPrecondition)
		w.want("less by four", w.decrease(-4), codes.FailedPrecondition)
		w.want("more by one", w.decrease(1), codes.InvalidArgument)
		w.increase("gpu", 2)
		w.want("less by the last", w.decrease(-2), codes.OK)
		w.want("target size", w.target(), 3)
		w.want("deleting all", w.remove("gpu", "muster-launch://gpu/1/0", "muster-launch://gpu/1/1", "muster-launch://gpu/1/2"), codes.OK)
		w.want("target size", w.target(), 0)
		w.sky.before = nil
		pass(10 * listEvery)
		w.want("machines", len(w.sky.machines), 0)
	})
}

// What the cloud has made of a launch that was given up is terminated when it shows up, and the
// group does not grow into its place before.
func TestWhatWasGivenUpIsTerminatedWhenItShowsUp(t *testing.T) {
	for name, tc := range map[string]struct {
		shows func(*world)
		taken []string
	}{
		"in a list": {func(w *world) {
			pass(settle - listEvery)
			w.sky.list()
		}, []string{"gpu-uid-1-1", "gpu-uid-1-2"}},
		"in a list after a death that lasted": {func(w *world) {
			late := w.sky.machines["gpu-uid-1-1"]
			delete(w.sky.machines, "gpu-uid-1-1")
			w.stop()
			pass(2 * settle)
			w.start()
			pass(settle - 2*listEvery)
			w.sky.machines["gpu-uid-1-1"] = late
			w.sky.list()
		}, []string{"gpu-uid-1-2", "gpu-uid-1-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, groupOf("gpu", 3))
				w.sky.after = errors.New("reset")
				w.increase("gpu", 3)
				w.sky.observe(w.sky.machines["gpu-uid-1-0"])
				w.want("giving up the two that are missing", w.remove("gpu", "muster-launch://gpu/1/0", "muster-launch://gpu/1/1"), codes.OK)
				w.want("target size", w.target(), 1)
				w.want("in their place", w.increase("gpu", 1), codes.OutOfRange)
				tc.shows(w)
				w.want("target size", w.target(), 1)
				pass(listEvery)
				w.want("terminated", w.sky.taken, tc.taken)
				pass(settle)
				w.want("in their place, later", w.increase("gpu", 2), codes.OK)
			})
		})
	}
}

func TestACallThatIsAnsweredTooLateMakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, groupOf("gpu", 3))
		w.sky.blocked = make(chan struct{})
		w.increase("gpu", 2)
		w.sky.observe(cloudprovider.Machine{Name: "cr-1", Group: "gpu", Launch: "gpu-uid-1", Hold: true})
		w.want("giving up", w.decrease(-2), codes.OK)
		pass(2 * settle)
		w.want("terminated during the call", w.sky.taken, []string(nil))
		close(w.sky.blocked)
		pass(listEvery)
		w.want("terminated", w.sky.taken, []string{"gpu-uid-1-0", "gpu-uid-1-1", "cr-1"})
		w.want("target size", w.target(), 0)
	})
}

// Two processes never give two launches one number.
func TestTheRecordIsWrittenOverNothingThatWasNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, groupOf("gpu", 9))
		other, between := NewScaler(w.kube, w.kube, nil, clock.RealClock{}), true
		w.Client = interceptor.NewClient(w.kube.(client.WithWatch), interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if between {
					between = false
					if err := other.change(ctx, "gpu", func(_ *v1alpha1.NodeGroup, r *record) error { r.begin(1, time.Now()); return nil }); err != nil {
						t.Error(err)
					}
				}
				return c.Patch(ctx, obj, patch, opts...)
			},
		})
		w.want("an increase", w.increase("gpu", 2), codes.OK)
		pass(listEvery)
		slices.Sort(w.sky.calls)
		w.want("calls", w.sky.calls, []string{"gpu 1 gpu-uid-1", "gpu 2 gpu-uid-2"})
	})
}

func TestDeletedAreTheNamedMachinesOrNone(t *testing.T) {
	booked := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-uid-1-2", Annotations: map[string]string{
		state.BookingLabel("train"): state.Booking{UID: "r"}.Encode()}}}
	own := groupOf("own", 5)
	own.Spec.ScaledBy = v1alpha1.ScaledByMuster
	least := groupOf("least", 5)
	least.Spec.MinNodes = 1
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, groupOf("gpu", 5), own, least, booked)
		w.increase("gpu", 4)
		w.increase("least", 2)
		id := func(i int) string { return fmt.Sprint("sky:///gpu-uid-1-", i) }
		w.want("one of another group beside one of this", w.remove("gpu", id(0), "sky:///least-uid-1-0"), codes.InvalidArgument)
		w.want("one that is not known", w.remove("gpu", id(0), "sky:///x"), codes.InvalidArgument)
		w.want("one that is booked", w.remove("gpu", id(0), id(2)), codes.FailedPrecondition)
		w.want("of a group of Muster's", w.remove("own", id(0)), codes.FailedPrecondition)
		w.want("below minNodes", w.remove("least", "sky:///least-uid-1-0", "sky:///least-uid-1-1"), codes.FailedPrecondition)
		w.want("terminated", w.sky.taken, []string(nil))
		w.want("two", w.remove("gpu", id(1), id(3), id(3)), codes.OK)
		w.want("terminated", w.sky.taken, []string{"gpu-uid-1-1", "gpu-uid-1-3"})
		w.want("target size", w.target(), 2)
	})
}

// A machine that was deleted is not one of the group's any more, though its cloud ends it later.
func TestADeletedMachineCountsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, groupOf("gpu", 2))
		w.increase("gpu", 2)
		w.sky.observe = func(cloudprovider.Machine) {}
		w.remove("gpu", "sky:///gpu-uid-1-0")
		w.want("target size", w.target(), 1)
		w.want("instances", w.instances(), []string{"sky:///gpu-uid-1-0 Deleting", "sky:///gpu-uid-1-1 Creating"})
		w.want("deleting it again", w.remove("gpu", "sky:///gpu-uid-1-0"), codes.OK)
		w.want("terminated", w.sky.taken, []string{"gpu-uid-1-0"})
		w.want("in its place", w.increase("gpu", 1), codes.OK)
	})
}

func TestAReservationThatNoLaunchWaitsForIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, groupOf("gpu", 2))
		w.sky.before = errors.New("busy")
		w.increase("gpu", 2)
		w.sky.observe(cloudprovider.Machine{Name: "cr-1", Group: "gpu", Launch: "gpu-uid-1", Hold: true})
		w.sky.observe(cloudprovider.Machine{Name: "cr-0", Group: "gpu", Hold: true})
		pass(3 * listEvery)
		w.want("terminated while it waits", w.sky.taken, []string(nil))
		w.want("target size", w.target(), 2)
		w.decrease(-2)
		pass(3 * listEvery)
		w.want("terminated then", slices.Compact(w.sky.taken), []string{"cr-1"})
	})
}

func TestNodesAreOfTheGroupOfTheirMachine(t *testing.T) {
	own := groupOf("own", 5)
	own.Spec.ScaledBy = v1alpha1.ScaledByMuster
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, groupOf("gpu", 5), own)
		w.increase("gpu", 1)
		w.sky.observe(cloudprovider.Machine{Name: "x", Group: "own", ProviderID: "sky:///x"})
		w.sky.observe(cloudprovider.Machine{Name: "y", Group: "deleted", ProviderID: "sky:///y"})
		for id, want := range map[string]string{"sky:///gpu-uid-1-0": "gpu", "sky:///x": "", "sky:///y": "", "sky:///z": "", "": ""} {
			out, err := w.NodeGroupForNode(t.Context(), &protos.NodeGroupForNodeRequest{Node: &protos.ExternalGrpcNode{ProviderID: id}})
			if err != nil || out.GetNodeGroup().GetId() != want {
				t.Errorf("the group of %q is %q (%v), want %q", id, out.GetNodeGroup().GetId(), err, want)
			}
		}
		out, err := w.NodeGroups(t.Context(), &protos.NodeGroupsRequest{})
		if err != nil || len(out.GetNodeGroups()) != 1 || out.GetNodeGroups()[0].GetMaxSize() != 5 {
			t.Errorf("groups: %v, %v", out, err)
		}
	})
}

func TestARecordThatCannotBeReadStopsTheGroup(t *testing.T) {
	spoilt := groupOf("gpu", 5)
	spoilt.Annotations = map[string]string{v1alpha1.AutoscalerLaunchesAnnotation: "{"}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, spoilt, groupOf("other", 5))
		w.want("an increase", w.increase("gpu", 1), codes.FailedPrecondition)
		w.want("of the other", w.increase("other", 1), codes.OK)
		w.want("calls", w.sky.calls, []string{"other 1 other-uid-1"})
	})
}

// The autoscaler does anything at any time, the cloud fails, and the process dies. No machine is made without a request, none is
// terminated without being named, and sizes agree with instances.
func TestRandomAutoscalers(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomAutoscaler(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func randomAutoscaler(t *testing.T, r *rand.Rand) {
	w := newWorld(t, groupOf("gpu", 12))
	w.sky.stock = r.IntN(30)
	granted := 0
	named, shown := map[string]bool{}, map[string]bool{}
	for range 60 {
		switch r.IntN(9) {
		case 0, 1:
			if n := 1 + r.Int32N(4); w.increase("gpu", n) == codes.OK {
				granted += int(n)
			}
		case 2:
			w.decrease(-1 - r.Int32N(3))
		case 3, 4:
			var ids []string
			for _, i := range w.instances() {
				if r.IntN(3) == 0 {
					ids = append(ids, strings.Fields(i)[0])
					named[strings.TrimPrefix(ids[len(ids)-1], "sky:///")] = true
				}
			}
			w.remove("gpu", ids...)
		case 5:
			w.sky.before, w.sky.after = nil, errors.New("reset")
		case 6:
			w.sky.before, w.sky.after = errors.New("busy"), nil
		case 7:
			w.sky.before, w.sky.after = nil, nil
			w.sky.list()
			pass(2 * retryLongest)
		case 8:
			w.die()
		}
		if n := len(w.sky.machines); n > granted || n > 12 {
			t.Fatalf("%d machines of %d that were granted, and of 12 at most", n, granted)
		}
		stay := 0
		for _, i := range w.instances() {
			if f := strings.Fields(i); f[1] != "Deleting" {
				stay++
				shown[strings.TrimPrefix(f[0], "sky:///")] = true
			}
		}
		if got := w.target(); got != stay || got > 12 {
			t.Fatalf("the target size is %d, and there are %d instances", got, stay)
		}
	}
	w.sky.before, w.sky.after = nil, nil
	w.sky.list()
	pass(settle + 2*listEvery)
	failed := 0
	for _, i := range w.instances() {
		f := strings.Fields(i)
		if len(f) > 2 {
			failed++
		}
		if _, there := w.sky.machines[strings.TrimPrefix(f[0], "sky:///")]; !there && len(f) < 3 {
			t.Errorf("%q is missing without an error", i)
		}
	}
	for _, name := range w.sky.taken {
		if shown[name] && !named[name] {
			t.Errorf("machine %s was terminated, and never named", name)
		}
	}
	w.want("machines that there are", len(w.sky.machines), w.target()-failed)
	if slices.ContainsFunc(slices.Collect(maps.Values(w.sky.machines)), func(m cloudprovider.Machine) bool {
		return state.TokenUID(m.Launch) != "gpu-uid"
	}) {
		t.Error("a machine's token names no group")
	}
}

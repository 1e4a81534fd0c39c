package scaledown

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/controller/request"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// world is an API server, a cloud and a model that sees changes of both at once. story records all events with the time since the start.
type world struct {
	*testing.T
	client     client.Client
	controller *Controller
	began      time.Time

	mu    sync.Mutex
	story []string
	// budget refuses evictions if it is set. cloud is the error of terminations.
	budget, cloud error
	known         map[types.UID]client.Object
	// slow is how long terminations in a group take.
	slow map[string]time.Duration
}

// live runs the controller in a world with these objects, beside the test.
func live(t *testing.T, clk clock.WithTicker, objects []client.Object, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clk, objects)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.controller.Start(ctx) }()
		test(w)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func newWorld(t *testing.T, clk clock.WithTicker, objects []client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme, provreq.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{T: t, began: time.Now(), known: map[types.UID]client.Object{}}
	server := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&provreq.ProvisioningRequest{}, &v1alpha1.NodeGroup{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
	w.client = interceptor.NewClient(server, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			err := c.Patch(ctx, o, p, opts...)
			w.patched(o, err)
			w.sync()
			return err
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			err := c.SubResource(sub).Patch(ctx, o, p, opts...)
			w.sync()
			return err
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, o, subresource client.Object,
			opts ...client.SubResourceCreateOption) error {
			w.mu.Lock()
			err := w.budget
			w.mu.Unlock()
			if err == nil {
				err = c.SubResource(sub).Create(ctx, o, subresource, opts...)
			}
			w.tell("%s of pod %s%s", sub, o.GetName(), outcome(err))
			w.sync()
			return err
		},
	})
	m := model.New(clk, transaction.KnownClasses)
	w.controller = &Controller{
		Client: w.client, Live: w.client, Providers: map[v1alpha1.Provider]cloudprovider.Provider{v1alpha1.ProviderKwok: w},
		Model: m, Synced: func(context.Context) bool { return true }, Changed: m.Changed(), Events: w, Clock: clk,
	}
	w.sync()
	return w
}

func outcome(err error) string {
	if err == nil {
		return ""
	}
	return " refused"
}

func (w *world) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, fmt.Sprintf("%s %s", time.Since(w.began), fmt.Sprintf(format, args...)))
}

// patched records the new state of a node.
func (w *world) patched(o client.Object, err error) {
	n, ok := o.(*corev1.Node)
	switch {
	case !ok:
	case n.Spec.Unschedulable:
		w.tell("node %s cordoned: %s%s", n.Name, n.Annotations[v1alpha1.CordonedAnnotation], outcome(err))
	default:
		w.tell("node %s open%s", n.Name, outcome(err))
	}
}

// sync stands for the informers: it updates the model.
func (w *world) sync() {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, seen := w.controller.Model, map[types.UID]bool{}
	var groups v1alpha1.NodeGroupList
	var nodes corev1.NodeList
	var pods corev1.PodList
	var templates corev1.PodTemplateList
	var requests provreq.ProvisioningRequestList
	for _, list := range []client.ObjectList{&groups, &nodes, &pods, &templates, &requests} {
		if err := w.client.List(context.Background(), list); err != nil {
			w.Error(err)
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			now := o.(client.Object)
			old := w.known[now.GetUID()]
			seen[now.GetUID()], w.known[now.GetUID()] = true, now
			if old != nil && old.GetResourceVersion() == now.GetResourceVersion() {
				return nil
			}
			switch o := o.(type) {
			case *v1alpha1.NodeGroup:
				m.Set(o)
			case *corev1.Node:
				m.Set(o)
			case *corev1.Pod:
				m.Set(o)
			case *corev1.PodTemplate:
				m.Set(o)
			case *provreq.ProvisioningRequest:
				m.Set(o)
			}
			return nil
		})
	}
	for uid, o := range w.known {
		if seen[uid] {
			continue
		}
		delete(w.known, uid)
		switch o := o.(type) {
		case *v1alpha1.NodeGroup:
			m.Delete(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: o.Name}})
		case *corev1.Node:
			m.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name}})
		case *corev1.Pod:
			m.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
		}
	}
}

func (w *world) delete(o client.Object) {
	w.Helper()
	if err := w.client.Delete(w.Context(), o); err != nil {
		w.Error(err)
	}
	w.sync()
}

// pass advances the clock and waits until all goroutines are idle.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (w *world) set(field *error, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*field = err
}

// tells compares the story so far.
func (w *world) tells(want ...string) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(want, w.story); diff != "" {
		w.Errorf("story (-want +got):\n%s", diff)
	}
}

// Eventf implements events.EventRecorder.
func (w *world) Eventf(about, _ runtime.Object, _, reason, _, note string, args ...any) {
	w.tell("%s of %T %s: %s", reason, about, about.(client.Object).GetName(), fmt.Sprintf(note, args...))
}

// Terminate implements cloudprovider.Terminator. It deletes the nodes of the machines.
func (w *world) Terminate(ctx context.Context, group string, names []string) error {
	w.mu.Lock()
	err, slow := w.cloud, w.slow[group]
	w.mu.Unlock()
	<-time.After(slow)
	w.tell("machines %s of group %s terminated%s", strings.Join(names, ", "), group, outcome(err))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := client.IgnoreNotFound(w.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})); err != nil {
			return err
		}
		w.controller.Model.SetMachine(cloudprovider.Machine{Name: name, Group: group, State: cloudprovider.Gone})
	}
	w.sync()
	return nil
}

// Launch implements cloudprovider.Launcher.
func (w *world) Launch(_ context.Context, req cloudprovider.LaunchRequest) ([]cloudprovider.Machine, error) {
	w.tell("%d machines of group %s launched", req.Count, req.Group.Name)
	return nil, nil
}

// Watch implements cloudprovider.Watcher.
func (w *world) Watch(context.Context, func(cloudprovider.Machine), func()) error { return nil }

// machines adds running machines and their nodes to the group. The request of their launch is long gone.
func (w *world) machines(group string, names ...string) {
	for _, name := range names {
		w.controller.Model.SetMachine(cloudprovider.Machine{Name: name, Group: group, ProviderID: "kwok://gpu/" + name, Launch: "gone-1",
			State: cloudprovider.Running})
	}
}

func newGroup(name string) *v1alpha1.NodeGroup {
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	g.Spec.Provider, g.Spec.MaxNodes, g.Spec.CapacityType = v1alpha1.ProviderKwok, 8, v1alpha1.OnDemand
	g.Spec.Template.Capacity = corev1.ResourceList{"cpu": resource.MustParse("96"), "memory": resource.MustParse("1Ti"),
		"nvidia.com/gpu": resource.MustParse("8")}
	return g
}

// newNode returns a node of the group, or of no group.
func newNode(name string, g *v1alpha1.NodeGroup) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi"),
		"pods": resource.MustParse("110")}
	if g != nil {
		n.Labels, n.Annotations = nodegroups.Labels(g), map[string]string{v1alpha1.LaunchAnnotation: "gone-1"}
		n.Status.Capacity = nodegroups.Capacity(g.Spec.Template)
		n.Spec.ProviderID = "kwok://gpu/" + name
	}
	n.Status.Allocatable = n.Status.Capacity
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

func newReplica(name, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: new(true)}}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}
	return p
}

func TestAnIdleMachineIsTerminated(t *testing.T) {
	g := newGroup("gpu")
	live(t, clock.RealClock{}, []client.Object{g, newNode("a", g)}, func(w *world) {
		w.machines("gpu", "a")
		w.pass(time.Hour)
		w.tells(
			"3s node a cordoned: idle",
			"10m0s node a cordoned: scaling-down",
			"10m1.2s machines a of group gpu terminated",
			"10m1.2s MachinesTerminated of *v1alpha1.NodeGroup gpu: 1 idle or orphaned machines were terminated",
		)
	})
}

// TestAPodThatCachesDoNotShowKeepsItsMachine: a machine is terminated only after its pods were listed from the API server.
func TestAPodThatCachesDoNotShowKeepsItsMachine(t *testing.T) {
	g := newGroup("gpu")
	live(t, clock.RealClock{}, []client.Object{g, newNode("a", g)}, func(w *world) {
		w.machines("gpu", "a")
		w.pass(10*time.Minute + time.Second/2)
		late := newReplica("late", "a")
		late.OwnerReferences = nil
		if err := w.client.Create(w.Context(), late); err != nil {
			w.Fatal(err)
		}
		w.pass(time.Second)
		w.sync()
		w.pass(time.Hour)
		w.tells(
			"3s node a cordoned: idle",
			"10m0s node a cordoned: scaling-down",
			"10m1.2s ScaleDownFailed of *v1alpha1.NodeGroup gpu: 1 idle or orphaned machines could not be terminated; next attempt in 1s: "+
				"node a: pod ns/late has come to it meanwhile",
			"10m1.6s node a open",
		)
	})
}

// TestAnInterruptionIsReported once: on the NodeGroup, on the gang's request and on its Workload.
func TestAnInterruptionIsReported(t *testing.T) {
	g := newGroup("gpu")
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang", UID: "gang-uid"}}
	r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "Workload", Name: "job-gang",
		Controller: new(true)}}
	r.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
	n := newNode("a", g)
	n.Annotations["booked.muster.dev/gang"] = `{"uid":"gang-uid","since":"2000-01-01T00:00:00Z","requests":{"nvidia.com/gpu":"8"}}`
	n.Labels["booked.muster.dev/gang"] = "ns"
	n.Spec.Taints = []corev1.Taint{{Key: "aws-node-termination-handler/spot-itn", Effect: corev1.TaintEffectNoSchedule}}
	live(t, clock.RealClock{}, []client.Object{g, r, n}, func(w *world) {
		w.machines("gpu", "a")
		w.pass(time.Minute)
		const message = "The machine of node a will be interrupted (taint aws-node-termination-handler/spot-itn). Nothing more is booked there"
		w.tells(
			"3s InterruptionNotice of *v1alpha1.NodeGroup gpu: "+message,
			"3s InterruptionNotice of *v1.ProvisioningRequest gang: "+message+"; the gang's pods on it end with it",
			"3s InterruptionNotice of *v1.PartialObjectMetadata job-gang: "+message+"; the gang's pods on it end with it",
		)
	})
}

// TestADryRunOnlyReports, once, which machines would be terminated.
func TestADryRunOnlyReports(t *testing.T) {
	g := newGroup("gpu")
	g.Spec.PricePerHour = resource.NewQuantity(12, resource.DecimalSI)
	live(t, clock.RealClock{}, []client.Object{g, newNode("a", g)}, func(w *world) {
		w.controller.DryRun = true
		w.machines("gpu", "a", "orphan")
		w.pass(time.Hour)
		const would = "WouldScaleDown of *v1alpha1.NodeGroup gpu: Dry run: nothing of this is done. "
		w.tells(
			"10m0s "+would+"An idle machine is drained and terminated: node a, a machine for 12.00 USD per hour",
			"10m3s "+would+"A machine that no request owns is terminated: orphan, a machine for 12.00 USD per hour",
		)
	})
}

func TestAnEarlierHumanCordonIsKept(t *testing.T) {
	g := newGroup("gpu")
	n := newNode("a", g)
	live(t, clock.RealClock{}, []client.Object{g, n}, func(w *world) {
		w.machines("gpu", "a")
		w.pass(firstPass / 2)
		// The controller decides by its cache, which does not have the change yet.
		if err := w.client.Get(w.Context(), client.ObjectKeyFromObject(n), n); err != nil {
			w.Fatal(err)
		}
		n.Spec.Unschedulable = true
		if err := w.client.Update(w.Context(), n); err != nil {
			w.Fatal(err)
		}
		w.pass(time.Hour)
		w.tells("3s node a cordoned: idle refused")
	})
}

func TestStraysAreMovedFirst(t *testing.T) {
	g := newGroup("gpu")
	budget := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
	budget.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause,
		Message: "The disruption budget web needs 1 healthy pods and has 1 currently"}}
	objects := func() []client.Object {
		return []client.Object{g.DeepCopy(), newNode("a", g), newNode("elsewhere", nil), newReplica("web-1", "a")}
	}

	t.Run("a budget that allows it", func(t *testing.T) {
		live(t, clock.RealClock{}, objects(), func(w *world) {
			w.machines("gpu", "a")
			w.pass(time.Hour)
			w.tells(
				"3s node a cordoned: idle",
				"10m0s node a cordoned: scaling-down",
				"10m1.2s eviction of pod web-1",
				"10m1.4s machines a of group gpu terminated",
				"10m1.4s MachinesTerminated of *v1alpha1.NodeGroup gpu: 1 idle or orphaned machines were terminated",
			)
		})
	})
	t.Run("one that allows it after a while", func(t *testing.T) {
		live(t, clock.RealClock{}, objects(), func(w *world) {
			w.machines("gpu", "a")
			w.set(&w.budget, budget)
			w.pass(10*time.Minute + 15*time.Second)
			w.set(&w.budget, nil)
			w.pass(time.Hour)
			w.tells(
				"3s node a cordoned: idle",
				"10m0s node a cordoned: scaling-down",
				"10m1.2s eviction of pod web-1 refused",
				"10m11.2s eviction of pod web-1 refused",
				"10m21.2s eviction of pod web-1",
				"10m21.4s machines a of group gpu terminated",
				"10m21.4s MachinesTerminated of *v1alpha1.NodeGroup gpu: 1 idle or orphaned machines were terminated",
			)
		})
	})
	t.Run("one that never does", func(t *testing.T) {
		live(t, clock.RealClock{}, objects(), func(w *world) {
			w.machines("gpu", "a")
			w.set(&w.budget, budget)
			w.pass(46 * time.Minute)
			w.mu.Lock()
			w.story = slices.DeleteFunc(w.story, func(s string) bool { return strings.HasSuffix(s, "eviction of pod web-1 refused") })
			w.mu.Unlock()
			w.tells(
				"3s node a cordoned: idle",
				"10m0s node a cordoned: scaling-down",
				"15m0.2s ScaleDownDelayed of *v1alpha1.NodeGroup gpu: Machine a is idle and could not be terminated within 5m0s, since it runs pods "+
					"that use none of its devices and could not be moved. "+
					"pod ns/web-1: The disruption budget web needs 1 healthy pods and has 1 currently. It stays open and is tried again at "+
					"2000-01-01T00:45:00Z",
				"15m0.2s node a open",
				"45m0.2s node a cordoned: scaling-down",
			)
		})
	})
}

// TestNothingIsTerminatedByAYoungModel: the request of a machine that looks like an orphan may not have been listed yet.
func TestNothingIsTerminatedByAYoungModel(t *testing.T) {
	g := newGroup("gpu")
	n := newNode("a", g)
	n.Spec.Unschedulable = true
	n.Annotations[v1alpha1.CordonedAnnotation] = v1alpha1.CordonJoining
	live(t, clock.RealClock{}, []client.Object{g, n}, func(w *world) {
		w.machines("gpu", "a")
		w.pass(firstPass - time.Second)
		w.tells()
		w.pass(2 * time.Second)
		w.tells("3s machines a of group gpu terminated", "3s MachinesTerminated of *v1alpha1.NodeGroup gpu: 1 idle or orphaned machines were "+
			"terminated")
	})
}

func TestACloudThatFailsIsLeftAloneAndBlocksNoOther(t *testing.T) {
	broken, g := newGroup("broken"), newGroup("gpu")
	held := newNode("held", g)
	held.Spec.Unschedulable = true
	held.Annotations[v1alpha1.CordonedAnnotation] = v1alpha1.CordonBooked
	live(t, clock.RealClock{}, []client.Object{broken, g, newNode("a", broken)}, func(w *world) {
		w.machines("broken", "a")
		w.set(&w.cloud, errors.New("no answer"))
		w.pass(10*time.Minute + 6*time.Second)
		if err := w.client.Create(w.Context(), held); err != nil {
			w.Fatal(err)
		}
		w.sync()
		w.pass(10 * time.Second)
		w.set(&w.cloud, nil)
		w.pass(20 * time.Second)
		w.mu.Lock()
		w.story = slices.DeleteFunc(w.story, func(s string) bool { return strings.Contains(s, "MachinesTerminated") })
		w.mu.Unlock()
		message := "ScaleDownFailed of *v1alpha1.NodeGroup broken: 1 idle or orphaned machines could not be terminated; next attempt in %s: " +
			"terminating machines of group broken: no answer"
		w.tells(
			"3s node a cordoned: idle",
			"10m0s node a cordoned: scaling-down",
			"10m1.2s machines a of group broken terminated refused", "10m1.2s "+fmt.Sprintf(message, "1s"),
			"10m2.2s machines a of group broken terminated refused", "10m2.2s "+fmt.Sprintf(message, "2s"),
			"10m4.2s machines a of group broken terminated refused", "10m4.2s "+fmt.Sprintf(message, "4s"),
			"10m6s node held open",
			"10m8.2s machines a of group broken terminated refused", "10m8.2s "+fmt.Sprintf(message, "8s"),
			"10m16.2s machines a of group broken terminated",
		)
	})
}

// TestAGroupThatTakesLongBlocksNoOther: a call to a cloud that does not respond fails after a minute or two. Meanwhile, the machines of
// other groups are terminated, and the group is called once.
func TestAGroupThatTakesLongBlocksNoOther(t *testing.T) {
	slow, g := newGroup("slow"), newGroup("gpu")
	live(t, clock.RealClock{}, []client.Object{slow, g, newNode("a", slow)}, func(w *world) {
		w.machines("slow", "a")
		w.slow = map[string]time.Duration{"slow": 90 * time.Second}
		w.pass(time.Second)
		if err := w.client.Create(w.Context(), newNode("b", g)); err != nil {
			w.Fatal(err)
		}
		w.machines("gpu", "b")
		w.sync()
		w.pass(13 * time.Minute)
		w.mu.Lock()
		w.story = slices.DeleteFunc(w.story, func(s string) bool { return !strings.Contains(s, "of group") })
		w.mu.Unlock()
		w.tells(
			"10m3.4s machines b of group gpu terminated",
			"11m31.2s machines a of group slow terminated",
		)
	})
}

func TestMachinesOfADeletedGroupAreScaledDown(t *testing.T) {
	g := newGroup("gpu")
	live(t, clock.RealClock{}, []client.Object{g, newNode("a", g)}, func(w *world) {
		w.machines("gpu", "a")
		w.pass(time.Minute)
		w.delete(g)
		w.pass(time.Hour)
		w.tells(
			"3s node a cordoned: idle",
			"10m0s node a cordoned: scaling-down",
			"10m1.2s machines a of group gpu terminated",
			"10m1.2s MachinesTerminated of *v1alpha1.NodeGroup gpu: 1 idle or orphaned machines were terminated",
		)
	})
}

func TestAMachineWhoseNodeWasDeletedIsTerminated(t *testing.T) {
	g := newGroup("gpu")
	n := newNode("a", g)
	live(t, clock.RealClock{}, []client.Object{g, n}, func(w *world) {
		w.machines("gpu", "a")
		w.pass(time.Minute)
		w.delete(n)
		w.pass(time.Hour)
		w.tells(
			"3s node a cordoned: idle",
			"11m0s machines a of group gpu terminated",
			"11m0s MachinesTerminated of *v1alpha1.NodeGroup gpu: 1 idle or orphaned machines were terminated",
		)
	})
}

// If a hundred machines seem lost at once, the cause is more likely elsewhere. Their pods keep running until a person decides.
func TestManyMachinesThatSeemLostAreKept(t *testing.T) {
	const many = 100
	names := make([]string, many)
	for i := range names {
		names[i] = fmt.Sprintf("m%03d", i)
	}
	unready := func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.Now()}}
	}
	const message = "ScaleDownBlocked of *v1alpha1.NodeGroup gpu: "
	for _, tc := range []struct {
		name string
		// there is whether the nodes exist at first. trouble is the fault that is injected.
		there   bool
		trouble func(w *world, n *corev1.Node)
		want    string
	}{
		{"etcd restored to before they joined, by a process that starts", false, nil, "3s " + message + "100 of 100 machines"},
		{"nodes deleted", true, func(w *world, n *corev1.Node) { w.delete(n) }, "1m0.2s " + message + "100 of 100 machines"},
		{"a network between them and the API server that is down", true, func(w *world, n *corev1.Node) {
			unready(n)
			if err := w.client.Status().Update(t.Context(), n); err != nil {
				w.Fatal(err)
			}
			w.sync()
		}, "2m0s " + message + "0 of 100 machines of the group have lost their node, 100 have one that is not Ready, and 0 are stopped"},
		{"stopped for the night", true, func(w *world, n *corev1.Node) {
			unready(n)
			if err := w.client.Status().Update(t.Context(), n); err != nil {
				w.Fatal(err)
			}
			w.controller.Model.SetMachine(cloudprovider.Machine{Name: n.Name, Group: "gpu", ProviderID: n.Spec.ProviderID, Launch: "gone-1",
				State: cloudprovider.Terminated, Kept: true})
			w.sync()
		}, "1m0.2s " + message + "0 of 100 machines of the group have lost their node, 0 have one that is not Ready, and 100 are stopped"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newGroup("gpu")
			g.Spec.MaxNodes = many
			objects := []client.Object{g}
			nodes := make([]*corev1.Node, many)
			for i := range nodes {
				if nodes[i] = newNode(names[i], g); tc.there {
					objects = append(objects, nodes[i])
				}
			}
			live(t, clock.RealClock{}, objects, func(w *world) {
				w.machines("gpu", names...)
				w.pass(time.Minute)
				for _, n := range nodes {
					if tc.trouble == nil {
						continue
					}
					if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
						t.Fatal(err)
					}
					tc.trouble(w, n)
				}
				w.pass(2 * time.Hour)
				w.mu.Lock()
				story := slices.DeleteFunc(slices.Clone(w.story), func(s string) bool { return strings.HasSuffix(s, "cordoned: idle") })
				w.story = nil
				w.mu.Unlock()
				if len(story) != 1 || !strings.HasPrefix(story[0], tc.want) {
					t.Errorf("the story begins %q and has %d events, want %q alone", story[:min(len(story), 3)], len(story), tc.want)
					return
				}

				approved := g.DeepCopy()
				approved.Annotations = map[string]string{v1alpha1.TerminateAtOnceAnnotation: strconv.Itoa(many)}
				if err := w.client.Patch(t.Context(), approved, client.MergeFrom(g)); err != nil {
					t.Fatal(err)
				}
				w.sync()
				w.pass(time.Hour)
				gone := 0
				for _, message := range w.story {
					if strings.Contains(message, "of group") {
						gone += strings.Count(message, ",") + 1
					}
				}
				if gone != many {
					t.Errorf("%d machines went once a person had approved it, want %d", gone, many)
				}
			})
		})
	}
}

// If there are many idle machines that no request has launched, they are kept. This is reported once. They are terminated when a person
// allows it.
func TestManyIdleMachinesOfOthersAreKept(t *testing.T) {
	g := newGroup("gpu")
	objects := []client.Object{g}
	for _, name := range []string{"a", "b", "c", "d"} {
		n := newNode(name, g)
		n.Annotations = nil
		objects = append(objects, n)
	}
	live(t, clock.RealClock{}, objects, func(w *world) {
		for _, o := range objects[1:] {
			w.controller.Model.SetMachine(cloudprovider.Machine{Name: o.GetName(), Group: "gpu", ProviderID: "kwok://gpu/" + o.GetName(),
				State: cloudprovider.Running})
		}
		w.pass(time.Hour)
		w.mu.Lock()
		story := slices.Clone(w.story)
		w.story = nil
		w.mu.Unlock()
		const want = "10m0s ScaleDownBlocked of *v1alpha1.NodeGroup gpu: 4 of 4 machines of the group are idle, and no request has launched them"
		if len(story) != 1 || !strings.HasPrefix(story[0], want) {
			t.Errorf("the story is %q, want %q alone", story, want)
		}
		approved := g.DeepCopy()
		approved.Annotations = map[string]string{v1alpha1.TerminateAtOnceAnnotation: "4"}
		if err := w.client.Patch(t.Context(), approved, client.MergeFrom(g)); err != nil {
			t.Fatal(err)
		}
		w.sync()
		w.pass(time.Minute)
		if !strings.Contains(strings.Join(w.story, "\n"), "4 idle or orphaned machines were terminated") {
			t.Errorf("once a person has approved it, the story is %q", w.story)
		}
	})
}

// slow is a clock by which each pass takes that long.
type slow struct {
	clock.RealClock
	took time.Duration
}

func (s slow) Since(time.Time) time.Duration { return s.took }

// TestLongPassesAreRare, but a machine that stood still during a pass does not end the passes for minutes.
func TestLongPassesAreRare(t *testing.T) {
	for took, want := range map[time.Duration]string{500 * time.Millisecond: "13s", time.Second: "23s", time.Minute: "23s"} {
		t.Run(took.String(), func(t *testing.T) {
			g := newGroup("gpu")
			held := newNode("held", g)
			held.Spec.Unschedulable = true
			held.Annotations[v1alpha1.CordonedAnnotation] = v1alpha1.CordonBooked
			live(t, slow{took: took}, []client.Object{g}, func(w *world) {
				w.pass(firstPass + time.Second)
				if err := w.client.Create(w.Context(), held); err != nil {
					w.Fatal(err)
				}
				w.sync()
				w.pass(time.Minute)
				w.tells(want + " node held open")
			})
		})
	}
}

// TestAWaitingRequestGetsTheIdleMachine: the machine of a group that scales down at once becomes idle, and a request for it arrives at any
// time until just before its termination. The request always gets the machine and launches none.
func TestAWaitingRequestGetsTheIdleMachine(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	const idleAt = time.Minute
	for range 30 {
		at := idleAt - time.Second + time.Duration(random.Int64N(int64(3*time.Second)))
		t.Run(at.String(), func(t *testing.T) {
			g := newGroup("gpu")
			g.Spec.IdleTimeout = &metav1.Duration{}
			gpus := corev1.ResourceRequirements{Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}
			busy := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "busy", UID: "busy"}}
			busy.Spec = corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{Resources: gpus}}}
			template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang", UID: "template"}}
			template.Template.Spec.Containers = []corev1.Container{{Resources: gpus}}
			r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang", UID: "gang"}}
			r.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
			r.Spec.PodSets = []provreq.PodSet{{Count: 1, PodTemplateRef: provreq.Reference{Name: "gang"}}}
			g.Spec.MaxNodes = 1 // a request that comes early waits

			live(t, clock.RealClock{}, []client.Object{g, newNode("a", g), busy, template}, func(w *world) {
				w.machines("gpu", "a")
				ctx, cancel := context.WithCancel(w.Context())
				ended := make(chan error)
				requests := &request.Controller{
					Client: w.client, Live: w.client, Providers: w.controller.Providers,
					Model: w.controller.Model, Synced: w.controller.Synced, Changed: w.controller.Model.Changed(), Events: w, Clock: clock.RealClock{},
				}
				go func() { ended <- requests.Start(ctx) }()
				for _, step := range []struct {
					at time.Duration
					do func()
				}{{idleAt, func() { w.delete(busy) }}, {at, func() {
					r.CreationTimestamp = metav1.Now()
					if err := w.client.Create(w.Context(), r); err != nil {
						t.Error(err)
					}
					w.sync()
				}}} {
					time.AfterFunc(step.at-time.Since(w.began), step.do)
				}
				w.pass(idleAt + 5*time.Second)
				if err := w.client.Get(w.Context(), client.ObjectKeyFromObject(r), r); err != nil {
					t.Fatal(err)
				}
				if !meta.IsStatusConditionTrue(r.Status.Conditions, provreq.Provisioned) {
					t.Errorf("the request has no machine: %v", r.Status.Conditions)
				}
				w.mu.Lock()
				if got := strings.Join(w.story, "\n"); strings.Contains(got, v1alpha1.CordonScalingDown) || strings.Contains(got, "launched") {
					t.Errorf("the story is\n%s", got)
				}
				w.mu.Unlock()
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestARequestIsDecidedFirst: a machine whose idle time is over is kept while a request that may need it is about to be decided.
func TestARequestIsDecidedFirst(t *testing.T) {
	g := newGroup("gpu")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clock.RealClock{}, []client.Object{g, newNode("a", g)})
		w.machines("gpu", "a")
		w.controller.evictions, w.controller.failed = nil, map[string]failure{}
		w.controller.Model.Snapshot(time.Now())
		w.pass(10 * time.Minute)
		r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang", UID: "gang", ResourceVersion: "1"}}
		r.Spec.ProvisioningClassName = transaction.ClassCheckCapacity
		w.controller.Model.Set(r)
		next, _ := w.controller.pass(t.Context())
		const held = "10m0s node a cordoned: idle"
		w.tells(held)
		if next.IsZero() || next.After(time.Now().Add(time.Second)) {
			t.Errorf("the next pass is at %s", next)
		}
		w.controller.Model.Due(nil) // the request is decided and does not need the machine
		w.controller.pass(t.Context())
		w.tells(held, "10m0s node a cordoned: scaling-down")
	})
}

// TestANodeThatIsBookedMeanwhileStaysAsItIs: a pass decides by a snapshot of the nodes, and a request books one of them before the pass
// writes it.
func TestANodeThatIsBookedMeanwhileStaysAsItIs(t *testing.T) {
	g := newGroup("gpu")
	booked := newNode("a", g)
	if err := request.Cordon(booked, v1alpha1.CordonBooked); err != nil {
		t.Fatal(err)
	}
	for name, u := range map[string]scaledown.Decision{"held": {Hold: []string{"a"}}, "opened": {Lift: []string{"a"}}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, clock.RealClock{}, []client.Object{g, booked.DeepCopy()})
			tidyUp := &work{}
			w.controller.changeNodes(t.Context(), tidyUp, u, map[string]string{"a": v1alpha1.CordonIdle})
			if err := tidyUp.Wait(); err != nil {
				t.Fatal(err)
			}
			w.tells()
		})
	}
}

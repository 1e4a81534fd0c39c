package request

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/controller/journal"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// site is a controller with an in-memory API server and cloud. The API server has no watches: the test updates the model for changes by
// others.
type site struct {
	*testing.T
	client.Client
	model      *model.Model
	events     *events.FakeRecorder
	controller *Controller

	mu sync.Mutex
	// writes counts writes by kind.
	writes map[string]int
	// refusal is the error of writes of nodes, mute that of writes of statuses.
	refusal, mute error
	// calls counts calls of the cloud by token.
	calls map[string]int
	// slow is the number of further calls that leave their launch in flight.
	slow int
	// answers returns the error of a launch; nil if it succeeds.
	answers func() error
	// taken are the names of terminated machines.
	taken []string
	// loses makes the cloud lose its machines: each call makes new ones.
	loses bool
	sold  int
	// away groups belong to a cloud that does not respond.
	away map[string]bool
	// logged are the log lines.
	logged []string
}

// play runs the story in virtual time.
func play(t *testing.T, story func(*site)) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{T: t, writes: map[string]int{}, calls: map[string]int{}, events: events.NewFakeRecorder(100)}
		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, provreq.AddToScheme, v1alpha1.AddToScheme} {
			if err := add(scheme); err != nil {
				t.Fatal(err)
			}
		}
		s.Client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&provreq.ProvisioningRequest{},
			&v1alpha1.CapacityPolicy{}).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				s.mu.Lock()
				s.writes["node "+o.GetName()]++
				refusal := s.refusal
				s.mu.Unlock()
				if refusal != nil {
					return refusal
				}
				return c.Patch(ctx, o, p, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				s.mu.Lock()
				s.writes["request "+o.GetName()]++
				mute := s.mute
				s.mu.Unlock()
				if mute != nil {
					return mute
				}
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
		s.model = model.New(clock.RealClock{}, transaction.KnownClasses)
		c := &Controller{
			Client: s.Client, Live: s.Client, Providers: map[v1alpha1.Provider]cloudprovider.Provider{"kwok": s},
			Model: s.model, Synced: func(context.Context) bool { return true }, Changed: s.model.Changed(), Events: s.events,
			Clock: clock.RealClock{},
		}
		s.controller = c
		ctx, cancel := context.WithCancel(log.IntoContext(journal.IntoContext(t.Context()), funcr.New(func(_, line string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.logged = append(s.logged, line)
		}, funcr.Options{})))
		ended := make(chan error)
		go func() { ended <- c.Start(ctx) }()
		story(s)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// pass advances the clock.
func (s *site) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (s *site) create(o client.Object) {
	s.Helper()
	if err := s.Create(s.Context(), o); err != nil {
		s.Fatal(err)
	}
}

var machine = corev1.ResourceList{"cpu": resource.MustParse("96"), "memory": resource.MustParse("1Ti"),
	"nvidia.com/gpu": resource.MustParse("8")}

func (s *site) group() { s.pricedGroup("0") }

// pricedGroup adds the group with a price of a machine in USD per hour.
func (s *site) pricedGroup(price string) { s.namedGroup("gpu", price) }

func (s *site) namedGroup(name, price string) {
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
	g.Spec.PricePerHour = new(resource.MustParse(price))
	g.Spec.Provider, g.Spec.MaxNodes, g.Spec.CapacityType, g.Spec.Template.Capacity = "kwok", 2, v1alpha1.OnDemand, machine
	s.create(g)
	s.model.Set(g)
}

// node adds a node. It existed before, or a machine of the launch registers it.
func (s *site) node(name, launch string) {
	g := s.model.Group("gpu")
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: nodegroups.Labels(g)}}
	n.Spec.ProviderID = "kwok://gpu/" + name
	if launch != "" {
		n.Annotations = map[string]string{v1alpha1.LaunchAnnotation: launch, v1alpha1.CordonedAnnotation: v1alpha1.CordonJoining}
		n.Spec.Unschedulable = true
	}
	n.Status.Allocatable = nodegroups.Allocatable(g.Spec.Template)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	s.create(n)
	s.model.Set(n)
}

// nodeIn adds a node in a zone that existed before.
func (s *site) nodeIn(name, zone string) {
	s.node(name, "")
	n := s.model.Node(name).DeepCopy()
	n.Labels[corev1.LabelTopologyZone] = zone
	if err := s.Update(s.Context(), n); err != nil {
		s.Fatal(err)
	}
	s.model.Set(n)
}

// podOn returns a pod of the gang that is bound to the node.
func podOn(node, gang string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "came", UID: "came", Annotations: map[string]string{
		provreq.ProvisioningRequestPodAnnotationKey: gang}}}
	p.Spec.NodeName = node
	return p
}

func (s *site) templateOf(name string) *corev1.PodTemplate {
	t := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	t.Template.Spec.Containers = []corev1.Container{{Name: "main",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}}}
	return t
}

// request creates a request for two whole machines.
func (s *site) request(class string, change func(*provreq.ProvisioningRequest)) {
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang", UID: "uid",
		CreationTimestamp: metav1.Now()}}
	r.Spec.ProvisioningClassName = class
	r.Spec.PodSets = []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: "workers"}, Count: 2}}
	if change != nil {
		change(r)
	}
	t := s.templateOf("workers")
	s.create(t)
	s.create(r)
	s.model.Set(t)
	s.model.Set(r)
}

func (s *site) conditions() []metav1.Condition {
	s.Helper()
	r := &provreq.ProvisioningRequest{}
	if err := s.Get(s.Context(), types.NamespacedName{Namespace: "ns", Name: "gang"}, r); err != nil {
		s.Fatal(err)
	}
	return r.Status.Conditions
}

func (s *site) is(kind string) bool { return meta.IsStatusConditionTrue(s.conditions(), kind) }

// bind puts a pod of the gang on each node.
func (s *site) bind(nodes ...string) {
	for i, node := range nodes {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint("pod-", i)),
			ResourceVersion:   "1",
			CreationTimestamp: metav1.Now(), Annotations: map[string]string{provreq.ProvisioningRequestPodAnnotationKey: "gang"}}}
		p.Spec = s.templateOf("").Template.Spec
		p.Spec.NodeName = node
		s.model.Set(p)
	}
}

// Launch implements cloudprovider.Launcher. The names of the machines follow from the token.
func (s *site) Launch(_ context.Context, r cloudprovider.LaunchRequest) (out []cloudprovider.Machine, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[r.Token]++; s.away[r.Group.Name] {
		return nil, errors.New("dial tcp: i/o timeout")
	}
	if s.answers != nil {
		return nil, s.answers()
	}
	if s.slow > 0 {
		s.slow--
		return nil, fmt.Errorf("operation op-1: %w", cloudprovider.ErrUnderWay)
	}
	for i := range r.Count {
		name := fmt.Sprintf("%s-%d", r.Token, i)
		if s.loses {
			name = fmt.Sprint("lost-", s.sold)
			s.sold++
		}
		out = append(out, cloudprovider.Machine{Name: name, Group: r.Group.Name, Launch: r.Token, ProviderID: "kwok://gpu/" + name})
	}
	return out, nil
}

func (s *site) Terminate(_ context.Context, _ string, names []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = append(s.taken, names...)
	return nil
}

func (s *site) Watch(ctx context.Context, _ func(cloudprovider.Machine), _ func()) error {
	<-ctx.Done()
	return nil
}

// wantWrites compares the number of writes since the beginning.
func (s *site) wantWrites(want map[string]int) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for what, n := range s.writes {
		if want[what] != n {
			s.Errorf("%s was written %d times, want %d", what, n, want[what])
		}
	}
	for what, n := range want {
		if s.writes[what] == 0 {
			s.Errorf("%s was never written, want %d", what, n)
		}
	}
}

// TestWritesOfALaunch counts the writes of a booking from the request to its end. Each of the two machines takes one write to admit the
// gang and one to lift the cordon.
func TestWritesOfALaunch(t *testing.T) {
	play(t, func(s *site) {
		s.group()
		s.request(transaction.ClassAtomicScaleUp, nil)
		s.pass(time.Second)
		s.node("uid-1-0", "uid-1")
		s.node("uid-1-1", "uid-1")
		s.pass(time.Minute)
		if !s.is(provreq.Provisioned) {
			t.Fatalf("conditions: %v", s.conditions())
		}
		s.bind("uid-1-0", "uid-1-1")
		s.pass(time.Second)
		if !s.is(provreq.BookingExpired) {
			t.Fatalf("conditions: %v", s.conditions())
		}
		s.wantWrites(map[string]int{"request gang": 3, "node uid-1-0": 2, "node uid-1-1": 2})
		if s.calls["uid-1"] != 1 {
			t.Errorf("the cloud was called %d times", s.calls["uid-1"])
		}
	})
}

// TestWritesOfABookingOfOpenNodes: nodes that are open to all pods are first closed, and opened when the request is Provisioned. If a
// queue holds the pods back, one write does both.
func TestWritesOfABookingOfOpenNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*provreq.ProvisioningRequest)
		writes int
	}{
		"pods may come at any time": {nil, 3},
		"a queue holds them back": {func(r *provreq.ProvisioningRequest) {
			r.OwnerReferences = []metav1.OwnerReference{{Kind: "Workload", UID: "w", Controller: new(true)}}
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *site) {
				s.group()
				s.node("a", "")
				s.node("b", "")
				s.request(transaction.ClassCheckCapacity, tc.change)
				s.pass(time.Minute)
				s.bind("a", "b")
				s.pass(time.Second)
				if !s.is(provreq.BookingExpired) {
					t.Fatalf("conditions: %v", s.conditions())
				}
				s.wantWrites(map[string]int{"request gang": 2, "node a": tc.writes, "node b": tc.writes})
			})
		})
	}
}

// TestNodesAreOpenedEarlyWhereThereIsRoomForIt: nodes are opened when few steps run, or when the gang's pods arrive.
func TestNodesAreOpenedEarlyWhereThereIsRoomForIt(t *testing.T) {
	for name, tc := range map[string]struct {
		then func(s *site)
		open bool
	}{
		"many steps are under way": {func(*site) {}, false},
		"but pods come": {func(s *site) {
			pod := podOn("", "gang")
			pod.Spec.Containers = s.templateOf("").Template.Spec.Containers
			s.model.Set(pod)
		}, true},
		"but one of them ends": {func(s *site) {
			s.controller.done(s.Context(), &model.Entry{Request: &transaction.Request{UID: "other-0"}}, transaction.Step{}, nil)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *site) {
				s.group()
				s.node("a", "")
				s.node("b", "")
				s.request(transaction.ClassCheckCapacity, nil)
				s.pass(settling / 2)
				s.controller.mu.Lock()
				for i := range spare {
					s.controller.busy[types.UID(fmt.Sprint("other-", i))] = true
				}
				s.controller.mu.Unlock()
				s.pass(time.Minute)
				if !s.is(provreq.Provisioned) {
					t.Fatalf("conditions: %v", s.conditions())
				}
				tc.then(s)
				s.pass(time.Second)
				for _, node := range []string{"a", "b"} {
					if open := s.model.Node(node).Labels[state.BookingLabel("gang")] != ""; open != tc.open {
						t.Errorf("node %s is open: %t, want %t", node, open, tc.open)
					}
				}
			})
		})
	}
}

// TestAGangIsNotSentAwayFromItsPods: a gang that needs one zone moves to another only if the API server has none of its pods, even if
// caches lag behind.
func TestAGangIsNotSentAwayFromItsPods(t *testing.T) {
	for name, tc := range map[string]struct {
		came *corev1.Pod
		want string
	}{
		"none has come":           {nil, "z2"},
		"one has, unnoticed":      {podOn("a", "gang"), "z1"},
		"one of another gang has": {podOn("a", "other"), "z2"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *site) {
				s.group()
				for node, zone := range map[string]string{"a": "z1", "b": "z1"} {
					s.nodeIn(node, zone)
				}
				s.request(transaction.ClassCheckCapacity, nil)
				s.pass(5 * time.Second)
				if tc.came != nil {
					s.create(tc.came)
				}
				s.nodeIn("c", "z2")
				s.nodeIn("d", "z2")
				s.model.Delete(s.model.Node("b"))
				s.pass(5 * time.Second)
				for node, zone := range map[string]string{"a": "z1", "c": "z2", "d": "z2"} {
					booked := s.model.Node(node).Annotations[state.BookingLabel("gang")] != ""
					if want := zone == tc.want; booked != want {
						t.Errorf("node %s in %s is booked %t, want %t", node, zone, booked, want)
					}
				}
			})
		})
	}
}

// TestAStatusIsWrittenWhenItChanges: the reason of a waiting request is written once, however often it is decided.
func TestAStatusIsWrittenWhenItChanges(t *testing.T) {
	play(t, func(s *site) {
		s.group()
		s.request(transaction.ClassCheckCapacity, nil)
		for i := range 20 {
			s.pass(30 * time.Second)
			// The pod comes first, so that the node is never seen free.
			s.model.Set(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i)),
				ResourceVersion: "1"},
				Spec: corev1.PodSpec{NodeName: fmt.Sprint("full-", i), Containers: s.templateOf("").Template.Spec.Containers}})
			s.node(fmt.Sprint("full-", i), "")
		}
		if n := s.writes["request gang"]; n != 1 {
			t.Errorf("the status was written %d times while nothing changed", n)
		}
	})
}

// TestNothingIsKeptOfRequestsThatAreGone: requests come and go for as long as the process lives.
func TestNothingIsKeptOfRequestsThatAreGone(t *testing.T) {
	for name, refusal := range map[string]error{"their statuses were written": nil, "no status could be written": errors.New("no")} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *site) {
				s.group()
				s.mute = refusal
				for i := range 30 {
					s.request(transaction.ClassCheckCapacity, func(r *provreq.ProvisioningRequest) { r.UID = types.UID(fmt.Sprint("uid-", i)) })
					s.pass(time.Minute)
					for _, o := range []client.Object{
						&provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang"}},
						&corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "workers"}},
					} {
						if err := s.Get(s.Context(), client.ObjectKeyFromObject(o), o); err != nil {
							t.Fatal(err)
						}
						if err := s.Delete(s.Context(), o); err != nil {
							t.Fatal(err)
						}
						s.model.Delete(o)
					}
					s.pass(time.Minute)
				}
				c := s.controller
				c.mu.Lock()
				defer c.mu.Unlock()
				if kept := len(c.busy) + len(c.later) + len(c.reported); kept > 1 {
					t.Errorf("%d busy, %d to be tried again, %d reported", len(c.busy), len(c.later), len(c.reported))
				}
			})
		})
	}
}

// TestWhatWaitsAgainHoldsNothing: a gang waits, books nodes, and loses one of them to another pod. It waits again, with the same message
// and without the nodes.
func TestWhatWaitsAgainHoldsNothing(t *testing.T) {
	play(t, func(s *site) {
		s.group()
		s.request(transaction.ClassCheckCapacity, nil)
		s.pass(time.Second)
		s.node("a", "")
		s.node("b", "")
		<-time.After(settling)
		s.model.Set(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "slipped-in", UID: "slipped-in", ResourceVersion: "1"},
			Spec: corev1.PodSpec{NodeName: "a", Containers: s.templateOf("").Template.Spec.Containers}})
		s.model.Set(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "another", UID: "another", ResourceVersion: "1"},
			Spec: corev1.PodSpec{NodeName: "b", Containers: s.templateOf("").Template.Spec.Containers}})
		s.pass(time.Minute)
		for _, name := range []string{"a", "b"} {
			n := s.model.Node(name)
			if n.Spec.Unschedulable || len(state.BookingsOn(n.Labels, n.Annotations)) > 0 {
				t.Errorf("node %s is still held: %v", name, n.Annotations)
			}
		}
		if s.writes["node a"] != 2 {
			t.Errorf("node a was written %d times, want 2: it was never held", s.writes["node a"])
		}
	})
}

// settling is enough time to claim nodes, and too little for them to settle.
const settling = 500 * time.Millisecond

func TestALostMachineIsLaunchedAgainUnderItsOwnToken(t *testing.T) {
	play(t, func(s *site) {
		s.group()
		s.request(transaction.ClassAtomicScaleUp, nil)
		s.pass(time.Second)
		s.node("uid-1-0", "uid-1")
		s.model.SetMachine(cloudprovider.Machine{Name: "uid-1-1", Group: "gpu", Launch: "uid-1", ProviderID: "kwok://gpu/uid-1-1",
			State: cloudprovider.Terminated})
		s.pass(time.Second)
		if s.calls["uid-1"] != 1 || s.calls["uid-1r1"] != 1 {
			t.Fatalf("calls of the cloud: %v", s.calls)
		}
		s.node("uid-1r1-0", "uid-1r1")
		s.pass(time.Second)
		if !s.is(provreq.Provisioned) {
			t.Errorf("conditions: %v", s.conditions())
		}
		status := s.model.Learned("gpu")
		if len(status.Attempts) != 2 || status.Attempts[0].Class != "" || status.Attempts[1].Class != v1alpha1.Lost {
			t.Errorf("learned %+v, want a loss, then a success", status.Attempts)
		}
	})
}

// TestMachinesAreTerminatedWithoutTheirGroup: the machines of a deleted NodeGroup are identified by their ID.
func TestMachinesAreTerminatedWithoutTheirGroup(t *testing.T) {
	play(t, func(s *site) {
		s.group()
		s.request(transaction.ClassAtomicScaleUp, nil)
		s.pass(time.Second)
		s.model.Delete(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
		s.pass(time.Second)
		if len(s.taken) != 2 {
			t.Errorf("terminated: %v", s.taken)
		}
	})
	terminator := Terminator{Model: model.New(clock.RealClock{}, transaction.KnownClasses)}
	err := terminator.Terminate(t.Context(),
		[]cloudprovider.Machine{{Name: "a", Group: "gone", ProviderID: "moon://a"}})
	if err == nil || !strings.Contains(err.Error(), `provider "moon" is not available`) {
		t.Errorf("a machine of an unknown cloud: %v", err)
	}
	google := &site{}
	terminator.Providers = map[v1alpha1.Provider]cloudprovider.Provider{v1alpha1.ProviderGCP: google}
	err = terminator.Terminate(t.Context(),
		[]cloudprovider.Machine{{Name: "a", Group: "gone", ProviderID: "gce://project/zone/a"}})
	if err != nil || len(google.taken) != 1 {
		t.Errorf("a machine whose ID does not name its cloud as Muster does: %v, terminated: %v", err, google.taken)
	}
}

// TestNodesThatMayNotBeWritten: a permanent refusal by the API server is reported, and the write is retried.
func TestNodesThatMayNotBeWritten(t *testing.T) {
	play(t, func(s *site) {
		s.refusal = apierrors.NewForbidden(corev1.Resource("nodes"), "a", errors.New("no"))
		s.group()
		s.node("a", "")
		s.node("b", "")
		s.request(transaction.ClassCheckCapacity, nil)
		s.pass(time.Minute)
		c := meta.FindStatusCondition(s.conditions(), provreq.Provisioned)
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "forbidden") {
			t.Fatalf("conditions: %v", s.conditions())
		}
		s.mu.Lock()
		s.refusal = nil
		s.mu.Unlock()
		s.pass(time.Minute)
		if !s.is(provreq.Provisioned) {
			t.Errorf("conditions: %v", s.conditions())
		}
	})
}

func TestALostNodeIsReportedByAnEvent(t *testing.T) {
	play(t, func(s *site) {
		s.group()
		s.node("a", "")
		s.node("b", "")
		s.request(transaction.ClassCheckCapacity, func(r *provreq.ProvisioningRequest) {
			r.Spec.Parameters = map[string]provreq.Parameter{v1alpha1.ParamOnMachineLoss: "Revoke"}
		})
		s.pass(time.Minute)
		s.bind("a", "b")
		s.pass(time.Second)
		// A status that cannot be written is retried with backoff.
		tries := func(mute error) int {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.mute = mute
			return s.writes["request gang"]
		}
		before := tries(errors.New("connection refused"))
		s.model.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
		s.pass(10 * time.Second)
		if n := tries(nil) - before; n < 2 || n > 10 {
			t.Errorf("%d writes that were refused in 10 s, want a few", n)
		}
		s.pass(time.Minute)
		if !s.is(provreq.CapacityRevoked) {
			t.Errorf("conditions: %v", s.conditions())
		}
		warned := 0
		for len(s.events.Events) > 0 {
			if strings.Contains(<-s.events.Events, "MachineLost") {
				warned++
			}
		}
		if warned != 1 {
			t.Errorf("reported %d times, want once", warned)
		}
	})
}

// TestALaunchThatIsUnderWayHasNotFailed: the same call is made again to get its result, and no failure is reported.
func TestALaunchThatIsUnderWayHasNotFailed(t *testing.T) {
	play(t, func(s *site) {
		s.slow = 2
		s.group()
		s.request(transaction.ClassAtomicScaleUp, nil)
		s.pass(5 * time.Second)
		if s.mu.Lock(); s.calls["uid-1"] != 3 {
			t.Errorf("the launch was called %d times, want three times", s.calls["uid-1"])
		}
		s.mu.Unlock()
		for len(s.events.Events) > 0 {
			if e := <-s.events.Events; strings.Contains(e, "LaunchFailed") {
				t.Errorf("people are told %q", e)
			}
		}
	})
}

// TestACloudThatDoesNotAnswer: after two minutes another offering is tried. The group is retried soon, without a person.
func TestACloudThatDoesNotAnswer(t *testing.T) {
	play(t, func(s *site) {
		s.away = map[string]bool{"gpu": true}
		s.namedGroup("gpu", "1")
		s.namedGroup("dear", "2")
		s.request(transaction.ClassAtomicScaleUp, nil)
		s.pass(2*time.Minute + 15*time.Second)
		e, _ := s.model.Request("uid")
		if a := e.Attempt; a.Number != 2 || a.Launches[0].Group != "dear" || a.Phase != transaction.Launching {
			t.Errorf("after two minutes the attempt is %+v", a)
		}
		g := s.model.Learned("gpu")
		if len(g.Backoffs) != 1 || g.Backoffs[0].Class != v1alpha1.Outage || nodegroups.NeedsPerson(&g.Backoffs[0]) ||
			time.Until(g.Backoffs[0].Until.Time) > 5*time.Minute {
			t.Errorf("the backoffs of the group are %+v", g.Backoffs)
		}
	})
}

// TestACloudWhoseCallsAllHangDelaysNoOther: the launches of one cloud occupy its lane.
func TestACloudWhoseCallsAllHangDelaysNoOther(t *testing.T) {
	for hangs, launches := range map[v1alpha1.Provider]bool{v1alpha1.ProviderAWS: true, v1alpha1.ProviderKwok: false} {
		play(t, func(s *site) {
			s.pass(time.Second)
			s.controller.mu.Lock()
			lane := s.controller.laneOf(hangs)
			s.controller.mu.Unlock()
			answers := make(chan struct{})
			for range parallel {
				lane.add(&s.controller.running, "others", func() { <-answers })
			}
			s.group()
			s.request(transaction.ClassAtomicScaleUp, nil)
			s.pass(10 * time.Second)
			if got := s.calls["uid-1"] > 0; got != launches {
				t.Errorf("%s hangs: machines of kwok are launched: %t, want %t", hangs, got, launches)
			}
			close(answers)
			s.pass(10 * time.Second)
			if s.calls["uid-1"] == 0 {
				t.Errorf("%s answers again, and nothing is launched", hangs)
			}
		})
	}
}

// TestALaunchOfARequestThatIsGoneBlamesNoGroup: what the launch has reserved is deleted during its call, which then fails.
func TestALaunchOfARequestThatIsGoneBlamesNoGroup(t *testing.T) {
	for _, gone := range []bool{true, false} {
		play(t, func(s *site) {
			s.answers = func() error {
				if gone {
					s.model.Delete(&provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang", UID: "uid"}})
				}
				return &cloudprovider.Error{Class: v1alpha1.Config, Code: "Ended", Message: "the reservation was cancelled"}
			}
			s.namedGroup("gpu", "1")
			s.request(transaction.ClassAtomicScaleUp, nil)
			s.pass(10 * time.Second)
			if s.calls["uid-1"] != 1 {
				t.Fatalf("the launch was called %d times", s.calls["uid-1"])
			}
			if got := s.model.Learned("gpu").Backoffs; len(got) == 0 != gone {
				t.Errorf("the request is gone: %t, and the backoffs of the group are %+v", gone, got)
			}
		})
	}
}

// lossesOf returns the losses of a group by stage, for each stage that has a series.
func lossesOf(t *testing.T, group string) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(Collectors()...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if labels := m.GetLabel(); f.GetName() == "muster_machines_lost_total" && labels[0].GetValue() == group {
				out[labels[1].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return out
}

// increase() ignores the first value of a series, so an alert would miss a loss that starts a series.
func TestLossesOfAGroupAreShownBeforeTheFirst(t *testing.T) {
	lost.Reset()
	play(t, func(s *site) {
		s.pass(time.Second)
		s.group()
		s.request(transaction.ClassAtomicScaleUp, nil)
		s.pass(time.Second)
		if diff := cmp.Diff(map[string]float64{"booked": 0, "launching": 0, "used": 0}, lossesOf(t, "gpu")); diff != "" {
			t.Errorf("at first (-want +got)\n%s", diff)
		}
		s.model.SetMachine(cloudprovider.Machine{Name: "uid-1-0", Group: "gpu", Launch: "uid-1", ProviderID: "kwok://gpu/uid-1-0",
			State: cloudprovider.Terminated})
		s.pass(time.Second)
		if diff := cmp.Diff(map[string]float64{"booked": 0, "launching": 1, "used": 0}, lossesOf(t, "gpu")); diff != "" {
			t.Errorf("after a machine was lost (-want +got)\n%s", diff)
		}
	})
}

var _ cloudprovider.Provider = (*site)(nil)

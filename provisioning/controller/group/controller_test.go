package group

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
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

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const gpu = corev1.ResourceName("nvidia.com/gpu")

// world is the group "gpu" in the API server and the model. Its template promises 8 GPUs and 256Gi.
type world struct {
	*testing.T
	client     client.Client
	controller *Controller
	clock      *testingclock.FakeClock
	// versions counts updates of the model, tokens counts launches.
	versions, tokens int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Generation: 1}}
	g.Spec.Template.Capacity = corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("256Gi"),
		gpu: resource.MustParse("8")}
	g.Spec.Template.Labels = map[string]string{"team": "ml"}
	w := &world{
		T:      t,
		client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(g).WithStatusSubresource(g).Build(),
		clock:  testingclock.NewFakeClock(noon),
	}
	w.restart(w.clock)
	return w
}

// restart replaces the model by a new one with the objects of the API server.
func (w *world) restart(c clock.WithTicker) {
	m := model.New(c, transaction.KnownClasses)
	w.controller = &Controller{Client: w.client, Live: w.client, Model: m, Synced: func(context.Context) bool { return true },
		Changed: m.Changed(), Clock: c}
	m.Set(w.group())
}

// group returns the NodeGroup from the API server.
func (w *world) group() *v1alpha1.NodeGroup {
	w.Helper()
	g := &v1alpha1.NodeGroup{}
	if err := w.client.Get(w.Context(), client.ObjectKey{Name: "gpu"}, g); err != nil {
		w.Fatal(err)
	}
	return g
}

// edit changes the spec and increments the generation.
func (w *world) edit(change func(*v1alpha1.NodeGroupSpec)) {
	w.Helper()
	w.change(func(g *v1alpha1.NodeGroup) { change(&g.Spec) })
}

// change changes the object, including its metadata.
func (w *world) change(change func(*v1alpha1.NodeGroup)) {
	w.Helper()
	g := w.group()
	before := g.Spec.DeepCopy()
	if change(g); !equality.Semantic.DeepEqual(before, &g.Spec) {
		g.Generation++
	}
	if err := w.client.Update(w.Context(), g); err != nil {
		w.Fatal(err)
	}
	w.controller.Model.Set(w.group())
}

// learn records a launch that ends now.
func (w *world) learn(n int32, class v1alpha1.ErrorClass) {
	w.tokens++
	w.controller.Model.Learn("gpu", v1alpha1.LaunchAttempt{
		Time: metav1.NewTime(w.controller.Clock.Now()), Token: fmt.Sprint("gang-",
			w.tokens), Requested: n, Class: class, Message: "the cloud's words",
	})
}

// node adds a Ready node that registers now. It matches the template unless changed.
func (w *world) node(name string, changes ...func(*corev1.Node)) {
	w.versions++
	g := w.group()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, ResourceVersion: fmt.Sprint(w.versions), Labels: nodegroups.Labels(g),
		CreationTimestamp: metav1.NewTime(w.controller.Clock.Now()),
	}}
	n.Status.Allocatable = nodegroups.Allocatable(g.Spec.Template)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, change := range changes {
		change(n)
	}
	w.controller.Model.Set(n)
}

func offers(name corev1.ResourceName, amount string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.Allocatable[name] = resource.MustParse(amount) }
}

// expect runs a pass and compares a condition: its status, its reason, and parts of its message.
func (w *world) expect(kind string, status metav1.ConditionStatus, reason string, parts ...string) {
	w.Helper()
	w.controller.pass(w.Context())
	c := meta.FindStatusCondition(w.group().Status.Conditions, kind)
	if c == nil {
		w.Fatalf("there is no condition %s", kind)
	}
	if c.Status != status || c.Reason != reason {
		w.Errorf("%s is %s because %s, want %s because %s: %s", kind, c.Status, c.Reason, status, reason, c.Message)
	}
	for _, part := range parts {
		if !strings.Contains(c.Message, part) {
			w.Errorf("%s does not speak of %q: %s", kind, part, c.Message)
		}
	}
	if c.LastTransitionTime.After(w.clock.Now()) {
		w.Errorf("%s changed at %s, it is %s", kind, c.LastTransitionTime, w.clock.Now())
	}
	if g := w.group(); c.ObservedGeneration != g.Generation {
		w.Errorf("%s is of generation %d, the group of %d", kind, c.ObservedGeneration, g.Generation)
	}
}

const (
	obtainable = v1alpha1.ConditionObtainable
	matches    = v1alpha1.ConditionTemplateMatches
	yes        = metav1.ConditionTrue
	no         = metav1.ConditionFalse
	unknown    = metav1.ConditionUnknown
)

func TestMachinesAndNodesAreCounted(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.controller.Model.SetMachine(cloudprovider.Machine{Group: "gpu", Name: fmt.Sprint(i)})
	}
	w.node("ready")
	w.node("unready", func(n *corev1.Node) { n.Status.Conditions = nil })
	w.node("elsewhere", func(n *corev1.Node) { n.Labels[v1alpha1.NodeGroupLabel] = "other" })
	w.node("nowhere", func(n *corev1.Node) { delete(n.Labels, v1alpha1.NodeGroupLabel) })
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang", UID: "uid", ResourceVersion: "1"}}
	r.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
	w.controller.Model.Set(r)
	w.node("booked", func(n *corev1.Node) {
		n.Labels[state.BookingLabel("gang")] = "ns"
		n.Annotations = map[string]string{state.BookingLabel("gang"): state.Booking{UID: "uid", Since: noon,
			Booked: nodegroups.Resources{gpu: 8}}.Encode()}
	})
	w.controller.pass(t.Context())
	if s := w.group().Status; s.Machines != 4 || s.ReadyNodes != 2 || s.BookedNodes != 1 {
		t.Errorf("%d machines, %d nodes ready, %d booked; want 4, 2 and 1", s.Machines, s.ReadyNodes, s.BookedNodes)
	}
}

// TestPricesAreReadable: a discovered price is stored as 6530m.
func TestPricesAreReadable(t *testing.T) {
	for price, want := range map[string]string{"6530m": "6.53", "98.32": "98.32", "0": "0.00", "": ""} {
		g := &v1alpha1.NodeGroup{}
		g.Status.USDPerHour = "7.00"
		if price != "" {
			g.Spec.PricePerHour = new(resource.MustParse(price))
		}
		if renew(g, nodeCount{}, noon); g.Status.USDPerHour != want {
			t.Errorf("the price %q is told as %q, want %q", price, g.Status.USDPerHour, want)
		}
	}
}

func TestHealth(t *testing.T) {
	w := newWorld(t)
	w.expect(obtainable, yes, "Healthy")
	w.learn(4, v1alpha1.Stockout)
	w.expect(obtainable, no, "Stockout", "wait until 2026-01-01T12:00:30Z", "the cloud's words", "fewer than 4 machines need not wait")
	w.clock.Step(30 * time.Second)
	w.expect(obtainable, yes, "Healthy")
	w.learn(4, v1alpha1.Stockout)
	w.expect(obtainable, no, "Stockout", "wait until 2026-01-01T12:01:30Z", "2nd failure in a row")

	// What a person must fix takes precedence, and is reported until it is fixed.
	w.learn(8, v1alpha1.Quota)
	w.expect(obtainable, no, "Quota", "wait until 2026-01-01T12:05:30Z", "the owner of the cloud account", "wait until 2026-01-01T12:01:30Z")
	w.clock.Step(time.Hour / 2)
	w.expect(obtainable, no, "Quota", "The next launch tries again after the cloud's words")
	w.learn(4, "")
	w.expect(obtainable, no, "Quota")
	w.learn(8, "")
	w.expect(obtainable, yes, "Healthy")
}

// TestTheLogHasWhenLaunchesWait for a group, and when they use it again.
func TestTheLogHasWhenLaunchesWait(t *testing.T) {
	w := newWorld(t)
	var lines []string
	ctx := log.IntoContext(journal.IntoContext(t.Context()), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	for _, step := range []func(){
		func() {},
		func() { w.learn(4, v1alpha1.Stockout) },
		func() {},
		func() { w.clock.Step(30 * time.Second) },
	} {
		step()
		w.controller.pass(ctx)
	}
	if len(lines) != 2 || !strings.Contains(lines[0], `"Launches wait for a group"`) || !strings.Contains(lines[0], `"reason"="Stockout"`) ||
		!strings.Contains(lines[0], `"group"="gpu"`) || !strings.Contains(lines[1], `"Launches use a group again"`) {
		t.Errorf("lines:\n%s", strings.Join(lines, "\n"))
	}
}

func TestTheSameIsReportedOnce(t *testing.T) {
	w := newWorld(t)
	w.learn(8, v1alpha1.Quota)
	w.learn(2, v1alpha1.Quota)
	w.expect(obtainable, no, "Quota", "fewer than 2 machines need not wait")
	if c := meta.FindStatusCondition(w.group().Status.Conditions, obtainable); strings.Contains(c.Message, "fewer than 8") {
		t.Errorf("launches of 8 machines are told of beside those of 2: %s", c.Message)
	}
}

func TestWhatIsCorrectedIsTriedAtOnce(t *testing.T) {
	w := newWorld(t)
	w.learn(8, v1alpha1.Config)
	w.expect(obtainable, no, "Config", "an admin must correct the spec of the NodeGroup")
	w.learn(8, v1alpha1.Auth)
	w.edit(func(s *v1alpha1.NodeGroupSpec) { s.Template.Labels["team"] = "web" })
	w.expect(obtainable, no, "Auth", "the owner of the cloud account")
	if g := w.group(); len(g.Status.Backoffs) != 1 {
		t.Errorf("backoffs %+v, want that of the credentials alone", g.Status.Backoffs)
	}
}

// TestOnlyWhatCouldMendAGroupEndsItsStop: each attempt in a broken group costs the price of its machines, while discovery writes prices
// and limits every hour.
func TestOnlyWhatCouldMendAGroupEndsItsStop(t *testing.T) {
	type group = v1alpha1.NodeGroup
	for name, tc := range map[string]struct {
		edit func(*group)
		ends bool
	}{
		"a price":            {edit: func(g *group) { g.Spec.PricePerHour = new(resource.MustParse("12")) }},
		"the limits":         {edit: func(g *group) { g.Spec.MinNodes, g.Spec.MaxNodes = 1, 9 }},
		"an end":             {edit: func(g *group) { g.Spec.EndsAt = &metav1.Time{Time: noon.Add(time.Hour)} }},
		"an idle timeout":    {edit: func(g *group) { g.Spec.IdleTimeout = &metav1.Duration{Duration: time.Hour} }},
		"another annotation": {edit: func(g *group) { g.Annotations = map[string]string{v1alpha1.TerminateAtOnceAnnotation: "9"} }},
		"the template": {ends: true, edit: func(g *group) {
			g.Spec.Template.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}},
		"its version":         {ends: true, edit: func(g *group) { g.Spec.Template.Source = "lt-1/8" }},
		"the network":         {ends: true, edit: func(g *group) { g.Spec.AWS.Subnet = "subnet-2" }},
		"the launch method":   {ends: true, edit: func(g *group) { g.Spec.AWS.LaunchMethod = v1alpha1.AWSReservation }},
		"a longer time":       {ends: true, edit: func(g *group) { g.Spec.JoinTimeout = &metav1.Duration{Duration: time.Hour} }},
		"a person's word":     {ends: true, edit: func(g *group) { g.Annotations = map[string]string{v1alpha1.RepairedAnnotation: "2026-01-01"} }},
		"a simulated pool":    {ends: true, edit: func(g *group) { g.Spec.Kwok = &v1alpha1.KwokPool{Seed: 2} }},
		"the topology labels": {ends: true, edit: func(g *group) { g.Spec.Topology = []v1alpha1.TopologyLevel{{NodeLabel: "rack"}} }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.change(func(g *group) { g.Spec.AWS = &v1alpha1.AWSGroup{AutoScalingGroup: "asg", Subnet: "subnet-1"} })
			w.controller.pass(t.Context())
			for range 3 {
				w.learn(8, v1alpha1.Timeout)
				w.clock.Step(10 * time.Minute)
			}
			w.learn(8, v1alpha1.Config)
			w.expect(obtainable, no, "Timeout", "an admin must find out")
			w.restart(w.clock) // the generation that counts is recorded
			w.change(tc.edit)
			w.controller.pass(t.Context())
			if left := len(w.group().Status.Backoffs); tc.ends && left != 0 || !tc.ends && left != 2 {
				t.Errorf("%d of 2 backoffs are left", left)
			}
			w.controller.pass(t.Context())
			w.learn(8, v1alpha1.Config)
			w.controller.pass(t.Context())
			w.controller.pass(t.Context())
			if len(w.group().Status.Backoffs) == 0 {
				t.Error("the same change ends what was learned after it")
			}
		})
	}
}

func TestTemplateMatches(t *testing.T) {
	w := newWorld(t)
	w.expect(matches, unknown, "NoNodes")

	// A starting node is no evidence. Then it offers less.
	w.node("a", offers(gpu, "0"))
	w.expect(matches, unknown, "NoNodes")
	w.node("a", offers("memory", "250Gi"))
	w.expect(matches, no, "LessThanPromised", "250Gi memory", "6Gi less than the 256Gi", "spec.template.allocatable")
	if got := w.controller.Model.Snapshot(noon).Groups[0].Allocatable; got["memory"] != 250<<30 || got[gpu] != 8 {
		t.Errorf("plans count with %v", got)
	}

	// The mismatch is remembered without nodes until the template is corrected. After that, nodes from the old template are no evidence.
	w.controller.Model.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	w.expect(matches, no, "LessThanPromised")
	w.node("b", offers("memory", "240Gi"))
	w.clock.Step(time.Minute)
	w.edit(func(s *v1alpha1.NodeGroupSpec) { s.Template.Capacity["memory"] = resource.MustParse("250Gi") })
	w.expect(matches, unknown, "NoNodes", "older than its last change, at 2026-01-01T12:01:00Z")
	w.node("c")
	w.expect(matches, yes, "NodesMatch")

	// A label is reported missing after the node had time to get it, and stays missing until a node has it.
	w.controller.Model.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	w.node("d", func(n *corev1.Node) { delete(n.Labels, "team") })
	w.expect(matches, yes, "NodesMatch")
	w.clock.Step(nodegroups.DefaultJoinTimeoutDevices)
	w.expect(matches, no, "LabelsMissing", "node d lacks the label team=ml")
	w.controller.Model.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c"}})
	w.controller.Model.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "d"}})
	w.expect(matches, no, "LabelsMissing", "node d lacks the label team=ml")
	w.node("e")
	w.expect(matches, no, "LabelsMissing")
	w.clock.Step(nodegroups.DefaultJoinTimeoutDevices)
	w.expect(matches, yes, "NodesMatch")
}

// TestAStatusThatWasRestoredIsWrittenWhole: etcd is restored to a time before a shape was learned, and the informers lag behind. A patch
// with only the difference would make an invalid status.
func TestAStatusThatWasRestoredIsWrittenWhole(t *testing.T) {
	w := newWorld(t)
	w.node("a", offers("memory", "250Gi"))
	w.controller.pass(t.Context())
	before := w.group()
	before.Status = v1alpha1.NodeGroupStatus{Launched: 7}
	if err := w.client.Status().Update(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	refusals := 0
	w.controller.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			data, err := p.Data(o)
			if err != nil {
				return err
			}
			g := &v1alpha1.NodeGroup{}
			if err := json.Unmarshal(data, g); err != nil {
				return err
			}
			if shape := g.Status.Shape; shape != nil && shape.TemplateHash == "" && w.group().Status.Shape == nil {
				refusals++
				return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("NodeGroup").GroupKind(), o.GetName(), nil)
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	w.controller.Model.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	for range 3 {
		w.controller.pass(t.Context())
	}
	s := w.group().Status
	if refusals != 1 || s.Shape == nil || s.Shape.UnseenSince == nil || s.Shape.TemplateHash == "" || s.Launched != 7 {
		t.Errorf("%d patches were refused, want one, and the status is %+v", refusals, s)
	}
}

func TestAPassSaysWhenItsWorkChangesByItself(t *testing.T) {
	w := newWorld(t)
	for _, step := range []struct {
		name string
		do   func()
		want time.Duration
	}{
		{"nothing is pending", func() {}, 0},
		{"a young node", func() { w.node("a") }, nodegroups.DefaultJoinTimeoutDevices},
		{"a backoff", func() { w.learn(8, v1alpha1.Stockout) }, 30 * time.Second},
		{"a shorter one", func() { w.learn(8, v1alpha1.Throttle) }, 5 * time.Second},
		{"backoffs are over", func() { w.clock.Step(time.Minute) }, nodegroups.DefaultJoinTimeoutDevices},
		{"no node is left", func() { w.controller.Model.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}) }, time.Minute + 24*time.Hour},
		{"the shape is forgotten", func() { w.clock.Step(24 * time.Hour) }, 0},
	} {
		step.do()
		want := noon.Add(step.want)
		if step.want == 0 {
			want = time.Time{}
		}
		if got := w.controller.pass(t.Context()); !got.Equal(want) {
			t.Errorf("%s: the next pass is due at %s, want %s", step.name, got, want)
		}
	}
}

func TestTimeAloneIsNotWritten(t *testing.T) {
	w := newWorld(t)
	w.node("a", offers("memory", "250Gi"))
	w.learn(8, "")
	w.learn(16, v1alpha1.Stockout)
	w.clock.Step(time.Hour)
	w.controller.pass(t.Context())
	before := w.group().ResourceVersion
	chance := w.controller.Model.Snapshot(w.clock.Now()).Groups[0].Chance(16, "", w.clock.Now())
	for range 10 {
		w.clock.Step(10 * time.Minute)
		w.controller.pass(t.Context())
	}
	if after := w.group().ResourceVersion; after != before {
		t.Errorf("the status was written while nothing happened: version %s, then %s", before, after)
	}
	if later := w.controller.Model.Snapshot(w.clock.Now()).Groups[0].Chance(16, "", w.clock.Now()); later <= chance {
		t.Errorf("plans see a chance of %d, and 100 minutes later of %d", chance, later)
	}
}

func TestARestartKeepsWhatWasLearned(t *testing.T) {
	w := newWorld(t)
	w.node("a", offers("memory", "250Gi"))
	w.learn(4, "")
	w.learn(16, v1alpha1.Stockout)
	w.learn(64, v1alpha1.Quota)
	now := noon.Add(10 * time.Second)
	before := w.controller.Model.Snapshot(now).Groups[0].Group
	w.controller.pass(t.Context())
	w.restart(w.clock)
	after := w.controller.Model.Snapshot(now).Groups[0].Group
	for _, n := range []int{1, 4, 16, 64} {
		x, why := before.BlockedUntil(n, "")
		y, whyAfter := after.BlockedUntil(n, "")
		if !x.Equal(y) || why != whyAfter || before.Chance(n, "", now) != after.Chance(n, "", now) {
			t.Errorf("%d machines: %s %q %d before, %s %q %d after", n, x, why, before.Chance(n, "", now), y, whyAfter, after.Chance(n, "", now))
		}
	}
	if after.Allocatable["memory"] != 250<<30 {
		t.Errorf("plans count with %v", after.Allocatable)
	}
	// Nothing is learned twice, and only the missing node is written.
	w.node("a", offers("memory", "250Gi"))
	g := w.group()
	w.controller.pass(t.Context())
	if again := w.group(); !equality.Semantic.DeepEqual(g, again) {
		t.Errorf("a second process writes\n%+v\nover\n%+v", again.Status, g.Status)
	}
}

// Changes within the pace are one write. The end of a backoff is written on time.
func TestStatusesAreWrittenAtAPace(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		w.restart(clock.RealClock{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.controller.Start(ctx) }()
		wait := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		// The first pass writes the conditions.
		wait(2 * time.Second)
		before := version(w)
		for range 9 {
			w.learn(8, "")
			wait(50 * time.Millisecond)
		}
		w.learn(8, v1alpha1.Stockout)
		wait(pace)
		if writes := version(w) - before; writes != 1 {
			t.Errorf("ten outcomes in half a second were written in %d writes, want 1", writes)
		}
		if c := meta.FindStatusCondition(w.group().Status.Conditions, obtainable); c.Status != no {
			t.Errorf("the group is obtainable (%s) after a stockout", c.Message)
		}
		wait(31 * time.Second)
		if c := meta.FindStatusCondition(w.group().Status.Conditions, obtainable); c.Status != yes {
			t.Errorf("the group is not obtainable after its backoff: %s", c.Message)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// version returns the resource version of the NodeGroup, in which the fake API server counts writes.
func version(w *world) (v int) {
	w.Helper()
	if _, err := fmt.Sscan(w.group().ResourceVersion, &v); err != nil {
		w.Fatal(err)
	}
	return v
}

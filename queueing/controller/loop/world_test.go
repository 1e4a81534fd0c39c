package loop

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/controller/writes"
)

var start = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// tick is how far the clock of a world goes on with every step.
const tick = 50 * time.Millisecond

// world is an API server, a loop and what stands between them, step by step and
// without goroutines.
type world struct {
	t *testing.T
	// api is the server itself, whatever happens to the loop's own calls.
	api  client.WithWatch
	loop *Loop
	now  time.Time
	// settings and machines hold from the next restart on. Without machines there is
	// no advice.
	settings config.Config
	machines *planner.Snapshot
	// blind says that the informers bring nothing.
	blind bool
	seen  map[types.UID]client.Object
	// events are the Events for users, as "reason name". Several writers add to them.
	events  []string
	telling sync.Mutex
}

func testScheme(t testing.TB) *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, kueue.AddToScheme, autoscaling.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// newWorld has the objects in its API server and a loop that has seen them. The
// loop's calls go through faults.
func newWorld(t *testing.T, faults func(client.WithWatch) client.WithWatch, objects ...client.Object) *world {
	t.Helper()
	created := 0
	api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...).
		WithStatusSubresource(&kueue.Workload{}, &kueue.ClusterQueue{}, &kueue.LocalQueue{}, &kueue.Cohort{}, &kueue.AdmissionCheck{},
			&autoscaling.ProvisioningRequest{}).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			created++
			o.SetUID(types.UID(fmt.Sprintf("created-%d", created)))
			return c.Create(ctx, o, opts...)
		},
	})
	w := &world{t: t, api: api, now: start}
	w.restart(faults)
	return w
}

// set has other settings from now on.
func (w *world) set(settings config.Config, faults func(client.WithWatch) client.WithWatch) {
	w.settings = settings
	w.restart(faults)
}

// die runs for a while, in which a process that dies is followed by another one.
func (w *world) die(k *killer, d time.Duration, each func()) {
	w.inform()
	for end := w.now.Add(d); w.now.Before(end); {
		w.step(end)
		if k.died {
			k.died = false
			w.restart(nil)
		}
		each()
	}
}

// create creates objects and sends their events to the loop.
func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if err := w.api.Create(context.Background(), o); err != nil {
			w.t.Fatal(err)
		}
	}
	w.inform()
}

// restart puts another process in the place of the one before.
func (w *world) restart(faults func(client.WithWatch) client.WithWatch) {
	c := w.api
	if faults != nil {
		c = faults(c)
	}
	w.loop = New(c, c, Config{Settings: w.settings, Capacity: advice{w.machines}})
	w.loop.writer.Recorder = recorder{w}
	w.loop.now = func() time.Time { return w.now }
	w.loop.start = func(_ writes.Urgency, _ string, write writes.Write) { w.loop.inbox.done(write(context.Background())) }
	w.loop.beside = func(make func() writes.Done) { make()(w.now) }
	w.seen = map[types.UID]client.Object{}
	w.inform()
}

// advice is what the provisioner says about machines, the same at all times.
type advice struct{ machines *planner.Snapshot }

func (a advice) Snapshot(time.Time) *planner.Snapshot { return a.machines }
func (a advice) Distinguish(...string)                {}
func (a advice) Fleet(now time.Time) scaledown.Fleet  { return scaledown.Fleet{Snapshot: a.machines} }
func (a advice) Changed() <-chan struct{}             { return nil }

// recorder writes down which Events users get.
type recorder struct{ w *world }

func (r recorder) Eventf(regarding, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	r.w.telling.Lock()
	defer r.w.telling.Unlock()
	r.w.events = append(r.w.events, reason+" "+regarding.(client.Object).GetName())
}

// inform brings the loop what has changed since it was called last.
func (w *world) inform() {
	w.t.Helper()
	exists := map[types.UID]bool{}
	for _, list := range []client.ObjectList{
		&corev1.NamespaceList{}, &kueue.ClusterQueueList{}, &kueue.LocalQueueList{}, &kueue.CohortList{}, &kueue.ResourceFlavorList{},
		&kueue.TopologyList{},
		&kueue.AdmissionCheckList{}, &kueue.ProvisioningRequestConfigList{}, &kueue.WorkloadList{}, &autoscaling.ProvisioningRequestList{},
		&corev1.ResourceQuotaList{}, &corev1.LimitRangeList{}, &kueue.WorkloadPriorityClassList{},
	} {
		if err := w.api.List(context.Background(), list); err != nil {
			w.t.Fatal(err)
		}
		items, err := apimeta.ExtractList(list)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, item := range items {
			o := item.(client.Object)
			exists[o.GetUID()] = true
			if have := w.seen[o.GetUID()]; have == nil || have.GetResourceVersion() != o.GetResourceVersion() {
				w.seen[o.GetUID()] = o
				w.loop.inbox.OnAdd(o, false)
			}
		}
	}
	for uid, o := range w.seen {
		if !exists[uid] {
			delete(w.seen, uid)
			w.loop.inbox.OnDelete(o)
		}
	}
}

// step is one step of the loop. Time goes on by a tick, or, where nothing happens, to
// when the loop wants to go on, but not beyond end.
func (w *world) step(end time.Time) {
	w.t.Helper()
	next := w.loop.step(w.now)
	w.now = w.now.Add(tick)
	if !w.blind {
		w.inform()
	}
	if len(w.loop.inbox.changes)+len(w.loop.inbox.ended) > 0 {
		return
	}
	if next.IsZero() || next.After(end) {
		next = end
	}
	if next.After(w.now) {
		w.now = next
	}
}

// run lets some time pass.
func (w *world) run(d time.Duration) {
	w.t.Helper()
	if !w.blind {
		w.inform()
	}
	for end := w.now.Add(d); w.now.Before(end); {
		w.step(end)
	}
}

func (w *world) get(name string, into client.Object) {
	w.t.Helper()
	if err := w.api.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, into); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) workload(name string) *kueue.Workload {
	w.t.Helper()
	out := &kueue.Workload{}
	w.get(name, out)
	return out
}

// answer is what the provisioner says about a request: whether it is Provisioned.
func (w *world) answer(name string, status metav1.ConditionStatus) {
	w.t.Helper()
	r := &autoscaling.ProvisioningRequest{}
	w.get(name, r)
	for _, x := range []metav1.Condition{{Type: autoscaling.Accepted, Status: metav1.ConditionTrue, Reason: "Accepted"},
		{Type: autoscaling.Provisioned, Status: status, Reason: "Answer"}} {
		apimeta.SetStatusCondition(&r.Status.Conditions, x)
	}
	if err := w.api.Status().Update(context.Background(), r); err != nil {
		w.t.Fatal(err)
	}
}

// queueOf is a queue with one flavor of the given quota of CPUs.
func queueOf(cpu string, checks ...kueue.AdmissionCheckStrategyRule) []client.Object {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "cq"}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu"},
		Flavors: []kueue.FlavorQuotas{{Name: "flavor", Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse(cpu)},
		}}},
	}}
	if len(checks) > 0 {
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: checks}
	}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Name: "main", Namespace: "default", UID: "lq"}}
	lq.Spec.ClusterQueue = "team"
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "capacity", UID: "ac"}}
	ac.Spec.ControllerName = cache.CapacityController
	return []client.Object{
		cq, lq, ac,
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "flavor", UID: "rf"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "ns"}},
	}
}

// ofJob makes a Workload one of a job.
func ofJob(w *kueue.Workload) *kueue.Workload {
	w.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "job", Controller: new(true)}}
	return w
}

func workloadOf(name, cpu string) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID(name), CreationTimestamp: metav1.NewTime(start),
	}}
	w.Spec.QueueName = "main"
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}},
	}}}}
	return w
}

var capacityRule = kueue.AdmissionCheckStrategyRule{Name: "capacity"}

var errDied = errors.New("the process died")

// killer lets a process die around its n-th write.
type killer struct {
	left int
	// after says that the write still takes effect.
	after bool
	died  bool
}

func (k *killer) around(write func() error) error {
	k.left--
	switch {
	case k.left > 0:
		return write()
	case k.left == 0 && k.after:
		if err := write(); err != nil {
			return err
		}
	}
	k.died = true
	return errDied
}

func (k *killer) wrap(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return k.around(func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return k.around(func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return k.around(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return k.around(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return k.around(func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
	})
}

// linesOf are what metrics show, as Prometheus reads it.
func linesOf(t *testing.T, m prometheus.Collector) (lines []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

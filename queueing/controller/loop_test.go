package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing"
)

func testScheme(t *testing.T) *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, kueue.AddToScheme, autoscaling.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
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
	ac.Spec.ControllerName = queueing.CapacityController
	return []client.Object{
		cq, lq, ac,
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "flavor", UID: "rf"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
	}
}

func workloadOf(name, cpu string) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID(name), CreationTimestamp: metav1.NewTime(start),
	}}
	w.Spec.QueueName = "main"
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}},
	}}}}
	return w
}

var start = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func newLoop(c client.WithWatch) *loop {
	return &loop{client: c, live: c, recorder: &events.FakeRecorder{}, now: func() time.Time { return start }, pending: newPendingWriter()}
}

func build(t *testing.T, objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...).
		WithStatusSubresource(&kueue.Workload{}, &kueue.ClusterQueue{}, &kueue.LocalQueue{}, &kueue.AdmissionCheck{}, &autoscaling.ProvisioningRequest{}).Build()
}

var errDied = errors.New("the process died")

// killer lets a process die around its n-th write.
type killer struct {
	left int
	// after says that the write still takes effect.
	after bool
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
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return k.around(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return k.around(func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
	})
}

// settled runs loops until nothing changes any more, which takes a few runs.
func settled(t *testing.T, l *loop) {
	t.Helper()
	for range 8 {
		if _, err := l.Reconcile(context.Background(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeathBetweenAnyTwoWrites drives a workload through a failed and a good
// attempt at capacity, kills the loop before and after each of its writes, lets
// another take over, and expects the same end each time.
func TestDeathBetweenAnyTwoWrites(t *testing.T) {
	died := 0
	for _, after := range []bool{false, true} {
		for n := 1; n <= 40; n++ {
			t.Run(fmt.Sprintf("write=%d/after=%v", n, after), func(t *testing.T) {
				c := build(t, append(queueOf("4", kueue.AdmissionCheckStrategyRule{Name: "capacity"}), workloadOf("train", "4"))...)
				k := &killer{left: n, after: after}
				l := newLoop(k.wrap(c))
				now := start
				run := func() {
					l.now = func() time.Time { return now }
					for range 8 {
						if _, err := l.Reconcile(context.Background(), reconcile.Request{}); errors.Is(err, errDied) {
							died++
							l = newLoop(c)
							l.now = func() time.Time { return now }
						} else if err != nil {
							t.Fatal(err)
						}
						expectOneRequest(t, c)
					}
				}
				run()
				answer(t, c, "train-capacity-1", autoscaling.Provisioned, metav1.ConditionFalse)
				run()
				// With one flavor only, the next attempt comes after a pause.
				now = now.Add(time.Minute)
				run()
				answer(t, c, "train-capacity-2", autoscaling.Provisioned, metav1.ConditionTrue)
				run()

				w := &kueue.Workload{}
				get(t, c, "train", w)
				if !queueing.IsAdmitted(w) || w.Status.AdmissionChecks[0].State != kueue.CheckStateReady {
					t.Errorf("not admitted: %+v", w.Status)
				}
				if got := w.Status.AdmissionChecks[0].PodSetUpdates[0].NodeSelector["booked.muster.dev/train-capacity-2"]; got != "default" {
					t.Errorf("the pods do not select their booked nodes: %+v", w.Status.AdmissionChecks[0].PodSetUpdates)
				}
				var templates corev1.PodTemplateList
				if err := c.List(context.Background(), &templates); err != nil {
					t.Fatal(err)
				}
				if len(templates.Items) > 2 {
					t.Errorf("%d templates are left", len(templates.Items))
				}
			})
		}
	}
	if died < 20 {
		t.Errorf("only %d deaths: the test does not reach the writes that it is about", died)
	}
}

func expectOneRequest(t *testing.T, c client.Client) {
	t.Helper()
	var requests autoscaling.ProvisioningRequestList
	if err := c.List(context.Background(), &requests); err != nil {
		t.Fatal(err)
	}
	if len(requests.Items) > 1 {
		t.Fatalf("%d requests are live at once", len(requests.Items))
	}
	for _, r := range requests.Items {
		for _, ps := range r.Spec.PodSets {
			get(t, c, ps.PodTemplateRef.Name, &corev1.PodTemplate{})
		}
	}
}

func get(t *testing.T, c client.Client, name string, into client.Object) {
	t.Helper()
	if err := c.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, into); err != nil {
		t.Fatal(err)
	}
}

// answer is what the provisioner says about a request.
func answer(t *testing.T, c client.Client, name, condition string, status metav1.ConditionStatus) {
	t.Helper()
	r := &autoscaling.ProvisioningRequest{}
	get(t, c, name, r)
	for _, x := range []metav1.Condition{{Type: autoscaling.Accepted, Status: metav1.ConditionTrue, Reason: "Accepted"}, {Type: condition, Status: status, Reason: "Answer"}} {
		meta.SetStatusCondition(&r.Status.Conditions, x)
	}
	if err := c.Status().Update(context.Background(), r); err != nil {
		t.Fatal(err)
	}
}

// TestStaleCache lets the cache lag behind the loop's own writes: quota that it
// has given out must not be given out again, and nothing is written twice.
func TestStaleCache(t *testing.T) {
	c := build(t, append(queueOf("1"), workloadOf("a", "1"), workloadOf("b", "1"))...)
	frozen := &kueue.WorkloadList{}
	if err := c.List(context.Background(), frozen); err != nil {
		t.Fatal(err)
	}
	writes := 0
	l := newLoop(interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if workloads, ok := list.(*kueue.WorkloadList); ok {
				frozen.DeepCopyInto(workloads)
				return nil
			}
			return c.List(ctx, list, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}))
	settled(t, l)
	a, b := &kueue.Workload{}, &kueue.Workload{}
	get(t, c, "a", a)
	get(t, c, "b", b)
	if !queueing.IsAdmitted(a) || queueing.HasQuota(b) {
		t.Errorf("a admitted: %v, b has quota: %v; want only a", queueing.IsAdmitted(a), queueing.HasQuota(b))
	}
	if writes != 2 {
		t.Errorf("%d writes to workloads, want 2: the admission of a and the reason of b", writes)
	}
}

// TestUnknownOutcome loses the answer to an admission that took effect, while the
// cache lags: the loop must look before it gives the quota to somebody else.
func TestUnknownOutcome(t *testing.T) {
	c := build(t, append(queueOf("1"), workloadOf("a", "1"), workloadOf("b", "1"))...)
	frozen := &kueue.WorkloadList{}
	if err := c.List(context.Background(), frozen); err != nil {
		t.Fatal(err)
	}
	lost := false
	l := newLoop(interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if workloads, ok := list.(*kueue.WorkloadList); ok {
				frozen.DeepCopyInto(workloads)
				return nil
			}
			return c.List(ctx, list, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			err := c.SubResource(sub).Patch(ctx, o, p, opts...)
			if !lost && o.GetName() == "a" {
				lost = true
				return context.DeadlineExceeded
			}
			return err
		},
	}))
	if _, err := l.Reconcile(context.Background(), reconcile.Request{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v, want that of the lost answer", err)
	}
	settled(t, l)
	b := &kueue.Workload{}
	get(t, c, "b", b)
	if queueing.HasQuota(b) {
		t.Error("the quota was given out twice")
	}
}

// TestStatusIsWrittenWhenItChanges counts the writes of a queue at rest.
func TestStatusIsWrittenWhenItChanges(t *testing.T) {
	c := build(t, append(queueOf("1"), workloadOf("a", "1"))...)
	writes := 0
	now := start
	l := newLoop(interceptor.NewClient(c, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			writes++
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	}))
	l.now = func() time.Time { return now }
	for range 10 {
		now = now.Add(300 * time.Millisecond)
		if _, err := l.Reconcile(context.Background(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	// The queue and the LocalQueue twice each, pending and then admitted; the
	// check once.
	if writes != 5 {
		t.Errorf("%d status writes, want 5", writes)
	}
	cq := &kueue.ClusterQueue{}
	if err := c.Get(context.Background(), client.ObjectKey{Name: "team"}, cq); err != nil {
		t.Fatal(err)
	}
	if cq.Status.AdmittedWorkloads != 1 || cq.Status.PendingWorkloads != 0 || cq.Status.FlavorsUsage[0].Resources[0].Total.String() != "1" {
		t.Errorf("status of the queue: %+v", cq.Status)
	}
}

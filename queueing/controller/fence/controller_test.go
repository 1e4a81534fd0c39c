package fence

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
)

type world struct {
	*testing.T
	kube  client.WithWatch
	clock *clocktesting.FakeClock
	*Controller
	// mute: the worker's API server refuses writes of Leases.
	mute bool
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{T: t, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w.kube = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(
		&kueue.Workload{}).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*coordinationv1.Lease); ok && w.mute {
				return errors.New("it may not")
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	log.SetLogger(logr.Discard()) // tests check what is stopped, not what is logged
	w.begin("p1")
	return w
}

// begin starts another process.
func (w *world) begin(process string) {
	w.Controller = &Controller{
		Client: w.kube, Live: w.kube, Namespace: "muster-system", Events: events.NewFakeRecorder(8), Clock: w.clock,
		process: process, silences: map[manager]*dispatch.Silence{},
	}
}

// pass lets a time pass with a check now and then. there: the manager answers.
func (w *world) pass(d time.Duration, there bool) {
	w.Helper()
	for end := w.clock.Now().Add(d); w.clock.Now().Before(end); w.clock.Step(pollEvery) {
		if err := w.poll(w.Context()); err != nil {
			w.Fatal(err)
		}
		l := &coordinationv1.Lease{}
		if err := w.kube.Get(w.Context(), client.ObjectKey{Namespace: "muster-system", Name: "muster-manager-multikueue"}, l); err != nil {
			continue
		}
		if q := l.Annotations[dispatch.QuestionAnnotation]; there && q != "" && !w.mute {
			l.Annotations[dispatch.AnswerAnnotation] = q
			if err := w.kube.Update(w.Context(), l); err != nil {
				w.Fatal(err)
			}
		}
	}
}

// stopped are the copies that are marked.
func (w *world) stopped() string {
	w.Helper()
	list := &kueue.WorkloadList{}
	if err := w.kube.List(w.Context(), list); err != nil {
		w.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		c := apimeta.FindStatusCondition(list.Items[i].Status.Conditions, kueue.WorkloadDeactivationTarget)
		if c == nil {
			continue
		}
		out = append(out, list.Items[i].Name)
		if c.Reason != ManagerLost || !strings.Contains(c.Message, "has not been heard of for") {
			w.Errorf("%s is stopped because of %s: %s", list.Items[i].Name, c.Reason, c.Message)
		}
	}
	return strings.Join(out, " ")
}

func lease() *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "muster-system", Name: "muster-manager-multikueue", Labels: map[string]string{kueue.MultiKueueOriginLabel: "multikueue"},
	}}
	l.Spec.HolderIdentity = new("m1")
	return l
}

func copyOf(name, manager, fence string, changes ...func(*kueue.Workload)) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: name, Labels: map[string]string{kueue.MultiKueueOriginLabel: "multikueue"},
		Annotations: map[string]string{dispatch.ManagerAnnotation: manager, dispatch.FenceAnnotation: fence},
	}}
	for _, c := range changes {
		c(w)
	}
	return w
}

// TestCopiesOfALostManagerAreStopped, and no others.
func TestCopiesOfALostManagerAreStopped(t *testing.T) {
	w := newWorld(t, lease(), copyOf("fast", "m1", "1m"), copyOf("slow", "m1", "10m"), copyOf("never", "m1", ""),
		copyOf("nonsense", "m1", "soon"), copyOf("finished", "m1", "1m", func(w *kueue.Workload) {
			w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: "Succeeded"}}
		}),
		copyOf("of-a-user", "m1", "1m", func(w *kueue.Workload) { w.Labels = nil }),
		copyOf("inactive", "m1", "1m", func(w *kueue.Workload) { w.Spec.Active = new(false) }))
	for _, step := range []struct {
		pass  time.Duration
		there bool
		want  string
	}{
		{2 * time.Minute, true, ""}, {45 * time.Second, false, ""}, {time.Minute, true, ""},
		{time.Minute, false, "fast"}, {8 * time.Minute, false, "fast"}, {2 * time.Minute, false, "fast slow"},
	} {
		if w.pass(step.pass, step.there); w.stopped() != step.want {
			t.Fatalf("stopped are %q, want %q", w.stopped(), step.want)
		}
	}
}

// TestAnotherProcessGoesOnCounting where the one before has stopped.
func TestAnotherProcessGoesOnCounting(t *testing.T) {
	w := newWorld(t, lease(), copyOf("train", "m1", "10m"))
	w.pass(time.Minute, true)
	w.pass(9*time.Minute, false)
	w.begin("p2")
	if w.pass(30*time.Second, false); w.stopped() != "" {
		t.Error("the next process has stopped it at once")
	}
	if w.pass(time.Minute, false); w.stopped() != "train" {
		t.Error("the next process counts from its own beginning")
	}
}

// TestALeaseThatVanishesStopsNothingAtOnce: its manager makes it again within seconds.
func TestALeaseThatVanishesStopsNothingAtOnce(t *testing.T) {
	w := newWorld(t, lease(), copyOf("train", "m1", "1m"))
	w.pass(time.Minute, true)
	if err := w.kube.Delete(t.Context(), lease()); err != nil {
		t.Fatal(err)
	}
	w.pass(30*time.Second, true)
	if err := w.kube.Create(t.Context(), lease()); err != nil {
		t.Fatal(err)
	}
	if w.pass(2*time.Minute, true); w.stopped() != "" {
		t.Errorf("stopped are %q", w.stopped())
	}
}

// TestCopiesOfAManagerWithoutLeaseAreStopped: the manager relies on that.
func TestCopiesOfAManagerWithoutLeaseAreStopped(t *testing.T) {
	w := newWorld(t, lease(), copyOf("train", "m1", "1m"), copyOf("of-another", "m2", "1m"))
	w.mute = true
	if w.pass(50*time.Second, true); w.stopped() != "" {
		t.Errorf("stopped are %q", w.stopped())
	}
	if w.pass(20*time.Second, true); w.stopped() != "of-another train" {
		t.Errorf("stopped are %q", w.stopped())
	}
}

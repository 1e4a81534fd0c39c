package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
)

// TestAManagerShowsItselfInItsWorkers where its MultiKueueCluster sets a fence. A condition reports why it cannot.
func TestAManagerShowsItselfInItsWorkers(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cluster := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "west"}}
	manager := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).Build()
	there := fake.NewClientBuilder().WithScheme(scheme).Build()
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	s := &workers{manager: manager, clock: clock, namespace: "muster-system", self: me, byName: map[string]*worker{}}
	w := &worker{name: "west", connection: &connection{client: there}, fence: fence{renewal: dispatch.NewRenewal(clock.Now())}}
	s.byName["west"] = w
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "muster-system", Name: "muster-manager-multikueue"}}
	edit := func(change func()) {
		t.Helper()
		if err := there.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil {
			t.Fatal(err)
		}
		change()
		if err := there.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(question string) func() {
		return func() {
			edit(func() { lease.Annotations = map[string]string{dispatch.QuestionAnnotation: question} })
		}
	}
	for _, step := range []struct {
		annotation string
		happens    func()
		status     metav1.ConditionStatus
		reason     string
		message    string
		answered   string
	}{
		{"", func() {}, "", "", "", ""},
		{"soon", func() {}, metav1.ConditionFalse, "BadDuration", "give a duration", ""},
		{"10m", func() {}, metav1.ConditionFalse, "NoMusterAsks", "no Muster there asks", ""},
		{"10m", ask("p/0s/0s"), metav1.ConditionTrue, "Fenced", "for 10m", "p/0s/0s"},
		{"10m", func() { clock.Step(20 * time.Second) }, metav1.ConditionTrue, "Fenced", "", "p/0s/0s"},
		{"10m", func() { clock.Step(20 * time.Second) }, metav1.ConditionFalse, "NoMusterAsks", "", "p/0s/0s"},
		{"10m", ask("p/40s/40s"), metav1.ConditionTrue, "Fenced", "", "p/40s/40s"},
		{"10m", func() { edit(func() { lease.Spec.HolderIdentity = new("m2") }) }, metav1.ConditionFalse, "LeaseFailed", "that of another manager", "p/40s/40s"},
		{"", func() {}, "", "", "", "p/40s/40s"},
	} {
		step.happens()
		if err := manager.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			t.Fatal(err)
		}
		cluster.Annotations = map[string]string{dispatch.FenceAnnotation: step.annotation}
		if err := manager.Update(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		asked, err := s.renew(t.Context(), w)
		fenced(cluster, asked, err)
		c := apimeta.FindStatusCondition(cluster.Status.Conditions, "muster.dev/Fenced")
		if c == nil {
			c = &metav1.Condition{}
		}
		if c.Status != step.status || c.Reason != step.reason || !strings.Contains(c.Message, step.message) {
			t.Errorf("annotation %q: %s %s: %s (%v); want %+v", step.annotation, c.Status, c.Reason, c.Message, err, step)
		}
		if got := w.fence.after > 0; got != (step.reason == "Fenced") {
			t.Errorf("annotation %q: copies get a fence: %t", step.annotation, got)
		}
		if err := client.IgnoreNotFound(there.Get(t.Context(), client.ObjectKeyFromObject(lease), lease)); err != nil {
			t.Fatal(err)
		}
		if got := lease.Annotations[dispatch.AnswerAnnotation]; got != step.answered {
			t.Errorf("annotation %q: the answer is %q, want %q", step.annotation, got, step.answered)
		}
	}
}

// TestAClusterIsStoppedByItsFence once it was cut off for long enough, including the grace period of the job's pods.
func TestAClusterIsStoppedByItsFence(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	w := &worker{name: "west", fence: fence{renewal: dispatch.NewRenewal(clock.Now())}}
	s := &workers{clock: clock, byName: map[string]*worker{"west": w}}
	job := ours("job-train")
	pods := func(grace *int64) kueue.PodSet {
		return kueue.PodSet{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: grace}}}
	}
	job.Spec.PodSets = []kueue.PodSet{pods(nil), pods(new(int64(120))), pods(new(int64(5)))}
	record := &dispatch.Record{In: []string{"west"}, Fence: &dispatch.Fence{Cluster: "west",
		After: metav1.Duration{Duration: 10 * time.Minute}}}
	long := 15*time.Minute + 12*time.Second // the fence, 2 % of it, 3 min, and 2 min for the pods
	clock.Step(long - time.Second)
	for _, want := range []time.Duration{time.Second, 0} {
		if left := s.stopsAt("west", job, record, clock.Now()).Sub(clock.Now()); left != want {
			t.Errorf("it is stopped in %s, want %s", left, want)
		}
		clock.Step(time.Second)
	}
	if !s.stopsAt("west", job, &dispatch.Record{In: []string{"west"}}, clock.Now()).IsZero() ||
		!s.stopsAt("east", job, record, clock.Now()).IsZero() {
		t.Error("it is stopped without a fence")
	}
	if w.connected = true; !s.stopsAt("west", job, record, clock.Now()).IsZero() {
		t.Error("a cluster that is there is asked, not concluded about")
	}
}

// TestACopyHasTheFenceOnRecord, and reading the copy returns it.
func TestACopyHasTheFenceOnRecord(t *testing.T) {
	record := dispatch.Record{In: []string{"west"}, Fence: &dispatch.Fence{Cluster: "west",
		After: metav1.Duration{Duration: 10 * time.Minute}}}
	again, err := dispatch.DecodeRecord(record.Encode())
	if err != nil {
		t.Fatal(err)
	}
	for cluster, want := range map[string]time.Duration{"west": 10 * time.Minute, "east": 0} {
		theirs := me.copyFor(ours("job-train"), again.FenceIn(cluster))
		if got := me.copyOf(theirs, ours("job-train"), nil).Fence; got != want {
			t.Errorf("a copy in %s has a fence of %s, want %s", cluster, got, want)
		}
	}
	if _, err := dispatch.DecodeRecord(`{"fence": {"cluster": "west", "after": "soon"}}`); err == nil || errors.Unwrap(err) == nil {
		t.Errorf("a record with nonsense is read: %v", err)
	}
}

package ungater

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/metrics"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/workload"
)

// placed is an admitted Workload of two pods on node a and one on b.
func placed() *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang"}}
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 3}}
	w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: new(int32(3)), TopologyAssignment: placement.Encode([]string{corev1.LabelHostname},
			[]placement.Domain{{Values: []string{"a"}, Count: 2}, {Values: []string{"b"}, Count: 1}}),
	}}}
	for _, c := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
	}
	return w
}

// pod is one of the gang, gated, or sent to a node.
func pod(name, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name),
		Annotations: map[string]string{kueue.WorkloadAnnotation: "gang"}, Labels: map[string]string{workload.PodSetLabel: "main"},
	}}
	if node == "" {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}, {Name: "of-another"}}
	} else {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	return p
}

// TestReconcile verifies where pods are sent, and which are still gated.
func TestReconcile(t *testing.T) {
	for name, tc := range map[string]struct {
		workload func(*kueue.Workload)
		pods     []*corev1.Pod
		want     map[string]string
	}{
		"each to its node":                   {pods: []*corev1.Pod{pod("x", ""), pod("y", ""), pod("z", "")}, want: map[string]string{"x": "a", "y": "a", "z": "b"}},
		"no more than there is room for":     {pods: []*corev1.Pod{pod("w", "b"), pod("x", ""), pod("y", ""), pod("z", "")}, want: map[string]string{"w": "b", "x": "a", "y": "a", "z": ""}},
		"one that can never run makes room":  {pods: []*corev1.Pod{pod("w", "lost"), pod("x", "")}, want: map[string]string{"x": "a"}},
		"an evicted gang stays where it is":  {workload: evicted, pods: []*corev1.Pod{pod("x", "")}, want: map[string]string{"x": ""}},
		"a lost node gets none":              {workload: unhealthy("a"), pods: []*corev1.Pod{pod("x", ""), pod("y", "")}, want: map[string]string{"x": "b", "y": ""}},
		"pods of another podSet are not its": {pods: []*corev1.Pod{labelled(pod("x", ""), "other"), pod("y", "")}, want: map[string]string{"x": "", "y": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := placed()
			if tc.workload != nil {
				tc.workload(w)
			}
			r, kube := world(t, w, tc.pods, interceptor.Funcs{})
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w)}); err != nil {
				t.Fatal(err)
			}
			if got := whereabouts(t, kube); fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("pods are at %v, want %v", got, tc.want)
			}
		})
	}
}

func evicted(w *kueue.Workload) {
	w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue})
}

func unhealthy(node string) func(*kueue.Workload) {
	return func(w *kueue.Workload) { w.Status.UnhealthyNodes = []kueue.UnhealthyNode{{Name: node}} }
}

func labelled(p *corev1.Pod, podSet string) *corev1.Pod {
	p.Labels[workload.PodSetLabel] = podSet
	return p
}

// TestCreatedPodsAreReconciled where they may wait for ever: behind their gate, or by places that their gang has left.
func TestCreatedPodsAreReconciled(t *testing.T) {
	bound, foreign := pod("bound", "a"), pod("foreign", "a")
	bound.Spec.NodeName = "a"
	foreign.Annotations = nil
	for _, tc := range []struct {
		pod  *corev1.Pod
		want bool
	}{{pod("gated", ""), true}, {pod("born", "lost"), true}, {bound, false}, {foreign, false}} {
		if got := podChanges.Create(event.CreateEvent{Object: tc.pod}); got != tc.want {
			t.Errorf("pod %s is looked at: %t, want %t", tc.pod.Name, got, tc.want)
		}
	}
}

// TestAPlaceIsGivenOnce though the cache does not show yet which pods were sent there.
func TestAPlaceIsGivenOnce(t *testing.T) {
	w := placed()
	stale := []corev1.Pod{*pod("x", ""), *pod("y", "")}
	r, kube := world(t, w, []*corev1.Pod{pod("u", ""), pod("v", ""), pod("x", ""), pod("y", "")}, interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			list.(*corev1.PodList).Items = stale
			return nil
		},
	})
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w)}
	for i := range stale {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(&stale[i]), &stale[i]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	// Two more come, whose names are first; the cache shows the others as they were.
	for _, name := range []string{"u", "v"} {
		p := pod(name, "")
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			t.Fatal(err)
		}
		stale = append(stale, *p)
	}
	if _, err := r.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(read(t, kube, "u", "v", "x", "y")),
		fmt.Sprint(map[string]string{"u": "b", "v": "", "x": "a", "y": "a"}); got != want {
		t.Errorf("pods are at %v, want %v", got, want)
	}
}

// TestAWriteThatFailsIsTriedAgain.
func TestAWriteThatFailsIsTriedAgain(t *testing.T) {
	w, fails := placed(), true
	r, kube := world(t, w, []*corev1.Pod{pod("x", "")}, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			if fails {
				return errors.New("the API server is away")
			}
			return c.Patch(ctx, o, p, options...)
		},
	})
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w)}
	if _, err := r.Reconcile(t.Context(), request); err == nil {
		t.Error("no error, so it is not tried again")
	}
	fails = false
	if _, err := r.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if got := whereabouts(t, kube); got["x"] != "a" {
		t.Errorf("the pod is at %v, want a", got)
	}
}

// TestStartsWhosePlacesHaveChangedAreRecorded to the policy, as long as they last.
func TestStartsWhosePlacesHaveChangedAreRecorded(t *testing.T) {
	for name, tc := range map[string]struct {
		workload func(*kueue.Workload)
		pods     []*corev1.Pod
		want     string
	}{
		"none has":                         {pods: []*corev1.Pod{pod("x", "a")}, want: "map[]"},
		"a node was lost":                  {pods: []*corev1.Pod{pod("x", "a"), pod("y", "lost")}, want: "map[uid.2:ns/gang]"},
		"more pods came than have a place": {pods: []*corev1.Pod{pod("x", "b"), pod("y", "b")}, want: "map[uid.2:ns/gang]"},
		"the gang has stopped":             {workload: evicted, pods: []*corev1.Pod{pod("y", "lost")}, want: "map[]"},
	} {
		t.Run(name, func(t *testing.T) {
			w := placed()
			w.UID, w.Status.Conditions[0].LastTransitionTime = "uid", metav1.Unix(2, 0)
			if tc.workload != nil {
				tc.workload(w)
			}
			r, kube := world(t, w, tc.pods, interceptor.Funcs{})
			for range 2 {
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w)}); err != nil {
					t.Fatal(err)
				}
			}
			told := &corev1.ConfigMap{}
			if err := kube.Get(t.Context(), starts, told); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(told.Data); got != tc.want {
				t.Errorf("%s is told, want %s", got, tc.want)
			}
		})
	}
}

// starts is the ConfigMap, in which the test's Workload has an older start, and one that is gone another.
var starts = types.NamespacedName{Namespace: "muster-system", Name: "muster-moved"}

func world(t *testing.T, w *kueue.Workload, pods []*corev1.Pod, funcs interceptor.Funcs) (*reconciler, client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	told := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: starts.Namespace, Name: starts.Name}}
	told.Data = map[string]string{"gone.1": "ns/gone", "uid.1": "ns/gang"}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w, told).WithInterceptorFuncs(funcs).WithIndex(&corev1.Pod{},
		workloadIndex, workloadOf)
	for _, p := range pods {
		b = b.WithObjects(p)
	}
	kube := b.Build()
	return &reconciler{
		client: kube, metrics: metrics.New(metrics.Config{}), now: time.Now, sent: map[types.NamespacedName]map[types.UID]map[string]string{},
		moved: &moved{client: kube, live: kube, in: starts},
	}, kube
}

func whereabouts(t *testing.T, kube client.Client) map[string]string {
	t.Helper()
	var list corev1.PodList
	if err := kube.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return read(t, kube, names...)
}

// read returns where pods are sent. Gated pods are sent nowhere.
func read(t *testing.T, kube client.Client, names ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range names {
		p := &corev1.Pod{}
		if err := kube.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: name}, p); err != nil {
			t.Fatal(err)
		}
		out[name] = p.Spec.NodeSelector[corev1.LabelHostname]
		if gated := isGated(p); gated != (out[name] == "") {
			t.Errorf("pod %s is gated: %v, and sent to %q", name, gated, out[name])
		}
	}
	return out
}

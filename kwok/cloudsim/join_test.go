package cloudsim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// joined is a cluster that one machine of the cloud, called m, has joined.
func joined(t *testing.T, cloud v1alpha1.Provider, c Config) (*World, *joining, *testingclock.FakeClock) {
	t.Helper()
	key := PoolKey{Cloud: cloud, Type: "a3", Zone: "z-a", CapacityType: v1alpha1.OnDemand}
	c.Pools = []Pool{{PoolKey: key}}
	clock := testingclock.NewFakeClock(noon)
	w, err := New(c, clock)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, kwokv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	kube := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Node{}).Build()
	if _, refused := w.Launch(Order{Pool: key, Count: 1, Min: 1, IDs: []string{"m"}, Tags: map[string]string{"muster.dev/launch": "l"},
		Node: func(string) *kwokv1alpha1.MachineNode { return &kwokv1alpha1.MachineNode{} }}); refused != nil {
		t.Fatal(refused)
	}
	j := &joining{world: w, kube: kube, clock: clock, joined: map[string]bool{}, marked: map[string]int{}}
	look(t, j)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Machine", Name: "m", UID: "u", APIVersion: "v1"}}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := kube.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return w, j, clock
}

func look(t *testing.T, j *joining) {
	t.Helper()
	if err := j.join(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func node(t *testing.T, j *joining) *corev1.Node {
	t.Helper()
	n := &corev1.Node{}
	if err := j.kube.Get(t.Context(), client.ObjectKey{Name: "m"}, n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A kubelet joins whether the machine is tagged or not.
func TestAnUntaggedMachineJoins(t *testing.T) {
	w, j, _ := joined(t, v1alpha1.ProviderAWS, Config{})
	if _, refused := w.Launch(Order{Pool: w.Pools()[0].PoolKey, Count: 1, Min: 1, IDs: []string{"untagged"}, Group: "asg",
		Node: func(string) *kwokv1alpha1.MachineNode { return &kwokv1alpha1.MachineNode{} }}); refused != nil {
		t.Fatal(refused)
	}
	look(t, j)
	if err := j.kube.Get(t.Context(), client.ObjectKey{Name: "untagged"}, &kwokv1alpha1.Machine{}); err != nil {
		t.Errorf("the machine has not joined: %v", err)
	}
}

func TestANodeOutlivesItsMachine(t *testing.T) {
	w, j, _ := joined(t, v1alpha1.ProviderGCP, Config{NodesStay: []NodeFault{{Cloud: v1alpha1.ProviderGCP}}})
	w.Terminate("m")
	look(t, j)
	if err := j.kube.Get(t.Context(), client.ObjectKey{Name: "m"}, &kwokv1alpha1.Machine{}); !apierrors.IsNotFound(err) {
		t.Errorf("the machine: %v, want that it is gone", err)
	}
	n := node(t, j)
	if len(n.OwnerReferences) > 0 || n.Annotations["kwok.x-k8s.io/node"] != "" {
		t.Errorf("the node is still the machine's, or KWOK's: %v, %v", n.OwnerReferences, n.Annotations)
	}
	if n.Status.Conditions[0].Status != corev1.ConditionUnknown || len(n.Spec.Taints) != 1 {
		t.Errorf("the node has the condition %v and the taints %v, want that it is unreachable", n.Status.Conditions, n.Spec.Taints)
	}
}

func TestANodeLeavesWithItsMachine(t *testing.T) {
	w, j, _ := joined(t, v1alpha1.ProviderGCP, Config{NodesStay: []NodeFault{{Cloud: v1alpha1.ProviderAWS}}})
	w.Terminate("m")
	look(t, j)
	if n := node(t, j); len(n.OwnerReferences) != 1 {
		t.Errorf("the node is no longer its machine's, so that it stays: %v", n)
	}
}

// TestNotices: a node shows that its machine will be stopped, as the agents of its cloud do.
func TestNotices(t *testing.T) {
	stop := func(cloud v1alpha1.Provider) Config {
		return Config{Stops: []Stop{{
			Cloud: cloud, After: metav1.Duration{Duration: 2 * time.Hour}, For: metav1.Duration{Duration: time.Hour},
			Notice: metav1.Duration{Duration: time.Hour},
		}}}
	}
	scheduled := map[string]string{"cloud.google.com/scheduled-maintenance-time": "1767276000"}
	evicting := map[string]string{"cloud.google.com/scheduled-maintenance-time": "1767276000",
		"cloud.google.com/active-node-maintenance": "ONGOING"}
	for _, tc := range []struct {
		cloud      v1alpha1.Provider
		at         time.Duration
		wantLabels map[string]string
		wantTaints []string
	}{
		{cloud: v1alpha1.ProviderGCP, at: time.Hour - 1},
		{cloud: v1alpha1.ProviderGCP, at: time.Hour, wantLabels: scheduled},
		{cloud: v1alpha1.ProviderGCP, at: 2*time.Hour - time.Minute, wantLabels: evicting, wantTaints: []string{"cloud.google.com/impending-node-termination"}},
		{cloud: v1alpha1.ProviderAWS, at: time.Hour, wantTaints: []string{"aws-node-termination-handler/scheduled-maintenance"}},
	} {
		w, j, clock := joined(t, tc.cloud, stop(tc.cloud))
		if _, next := w.Changed(); tc.at >= time.Hour && !next.Equal(noon.Add(time.Hour)) {
			t.Errorf("something happens next at %s, want the notice", next)
		}
		clock.Step(tc.at)
		look(t, j)
		look(t, j)
		n := node(t, j)
		var taints []string
		for _, taint := range n.Spec.Taints {
			taints = append(taints, taint.Key)
		}
		if diff := cmp.Diff(tc.wantLabels, n.Labels); diff != "" {
			t.Errorf("%s after %s: labels (-want +got):\n%s", tc.cloud, tc.at, diff)
		}
		if diff := cmp.Diff(tc.wantTaints, taints); diff != "" {
			t.Errorf("%s after %s: taints (-want +got):\n%s", tc.cloud, tc.at, diff)
		}
	}
}

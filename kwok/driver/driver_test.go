package driver

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
)

func TestWhatIsPublishedWhen(t *testing.T) {
	ready := time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)
	late := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	steady := kwokv1alpha1.Claimable{Delay: late(10 * time.Second)}
	vanishing := kwokv1alpha1.Claimable{Delay: late(10 * time.Second), Vanish: &kwokv1alpha1.DeviceGap{After: late(20 * time.Second),
		For: late(5 * time.Second)}}
	for _, c := range []struct {
		what       kwokv1alpha1.Claimable
		ready      time.Time
		after      time.Duration
		generation int64
		again      time.Duration
	}{
		{steady, time.Time{}, 0, 0, 0},
		{steady, ready, 4 * time.Second, 0, 6 * time.Second},
		{steady, ready, 10 * time.Second, 1, 0},
		{vanishing, ready, 12 * time.Second, 1, 18 * time.Second},
		{vanishing, ready, 31 * time.Second, 0, 4 * time.Second},
		{vanishing, ready, 40 * time.Second, 2, 0},
	} {
		generation, again := published(&c.what, c.ready, ready.Add(c.after))
		if generation != c.generation || again != c.again {
			t.Errorf("%s after it is ready: generation %d for %s, want %d for %s", c.after, generation, again, c.generation, c.again)
		}
	}
}

// TestWhatIsPublishedCostsNoMoreCalls: events of a node call the API only when its slices have to change.
func TestWhatIsPublishedCostsNoMoreCalls(t *testing.T) {
	ready := time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", Annotations: map[string]string{
		kwokv1alpha1.ClaimableAnnotation: `{"delay":"10s","vanish":{"after":"20s","for":"5s"},` +
			`"pools":[{"driver":"gpu.example.com","devices":[{"name":"gpu-","count":8}]}]}`}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(ready)}}
	nodes, slices := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	if err := nodes.Add(n); err != nil {
		t.Fatal(err)
	}
	now := testingclock.NewFakeClock(ready)
	d := &Driver{Clock: now, nodes: corelisters.NewNodeLister(nodes),
		published: resourcelisters.NewResourceSliceLister(slices)}
	for _, step := range []struct {
		after time.Duration
		calls []string
	}{
		{4 * time.Second, nil},
		{10 * time.Second, []string{"create"}},
		{11 * time.Second, nil},
		{31 * time.Second, []string{"delete-collection"}},
		{32 * time.Second, nil},
		{36 * time.Second, []string{"create"}},
		{time.Hour, nil},
	} {
		now.SetTime(ready.Add(step.after))
		client := fake.NewClientset()
		d.Client = client
		if _, err := d.publish(t.Context(), n.Name); err != nil {
			t.Fatal(err)
		}
		var calls []string
		for _, a := range client.Actions() {
			calls = append(calls, a.GetVerb())
			switch a := a.(type) {
			case kubetesting.CreateAction:
				if err := slices.Add(a.GetObject()); err != nil {
					t.Fatal(err)
				}
			case kubetesting.DeleteCollectionAction:
				if err := slices.Replace(nil, ""); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !reflect.DeepEqual(calls, step.calls) {
			t.Errorf("%s after it is ready: %v, want %v", step.after, calls, step.calls)
		}
	}
}

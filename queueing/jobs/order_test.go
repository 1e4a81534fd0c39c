package jobs

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs/order"
)

// TestPodsThatComeLater: a dataset, a trainer once that has succeeded, and an evaluator once the
// trainer is ready.
func TestPodsThatComeLater(t *testing.T) {
	podSets := []kueue.PodSet{{Name: "dataset"}, {Name: "trainer"}, {Name: "evaluator"}}
	all := []*order.After{{}, {Complete: []string{"dataset"}}, {Ready: []string{"trainer"}}}
	if got, want := order.Text(all, podSets), "trainer after the success of dataset; evaluator after trainer being ready"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for name, c := range map[string]struct {
		granted, have, succeeded []int32
		want                     []bool
	}{
		"at the start":   {granted: []int32{1, 4, 1}, have: []int32{0, 0, 0}, want: []bool{true, false, false}},
		"the first runs": {granted: []int32{1, 4, 1}, have: []int32{1, 0, 0}, want: []bool{true, false, false}},
		"the first has succeeded": {granted: []int32{1, 4, 1}, have: []int32{1, 0, 0}, succeeded: []int32{1, 0, 0},
			want: []bool{true, true, false}},
		"the quota of the first is released": {granted: []int32{0, 4, 1}, have: []int32{0, 3, 0}, want: []bool{true, true, false}},
		"the second is ready":                {granted: []int32{0, 4, 1}, have: []int32{0, 4, 0}, want: []bool{true, true, true}},
	} {
		if c.succeeded == nil {
			c.succeeded = make([]int32, len(podSets))
		}
		var got []bool
		for _, after := range all {
			got = append(got, after.IsDue(podSets, c.granted, c.have, c.succeeded))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: due %v, want %v", name, got, c.want)
		}
	}
}

// inOrder is a kind whose jobs have a dataset, and a trainer once that has succeeded.
type inOrder struct{ Kind }

func (inOrder) Order(client.Object) []*order.After {
	return []*order.After{{}, {Complete: []string{"dataset"}}}
}

// TestReadinessOfWhatComesLater: a gang is ready while only its first pods are there, is not when
// the others should be and are not, and is again when they are.
func TestReadinessOfWhatComesLater(t *testing.T) {
	w := &kueue.Workload{}
	w.Spec.PodSets = []kueue.PodSet{{Name: "dataset", Count: 1}, {Name: "trainer", Count: 2}}
	job := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1234", Namespace: "default"}}
	const ready, pending, succeeded = "ready", "pending", "succeeded"
	for _, c := range []struct {
		dataset  string
		trainers []string
		want     bool
	}{
		{dataset: pending, want: false},
		{dataset: ready, want: true},
		{dataset: succeeded, want: false},
		{dataset: succeeded, trainers: []string{ready, pending}, want: false},
		{dataset: succeeded, trainers: []string{ready, ready}, want: true},
	} {
		var objects []client.Object
		for i, state := range append([]string{c.dataset}, c.trainers...) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", i),
				Labels: map[string]string{JobUIDLabel: "1234", PodSetLabel: "dataset"}}}
			if i > 0 {
				pod.Labels[PodSetLabel] = "trainer"
			}
			switch state {
			case ready:
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			case succeeded:
				pod.Status.Phase = corev1.PodSucceeded
			}
			objects = append(objects, pod)
		}
		kube := fake.NewClientBuilder().WithObjects(objects...).WithIndex(&corev1.Pod{}, podIndex, jobUIDOf).Build()
		got, err := pods{&reconciler{kind: inOrder{}, client: kube}}.areReady(context.Background(), job, w, []int32{1, 2})
		if err != nil || got != c.want {
			t.Errorf("dataset %s, trainers %v: ready %v (%v), want %v", c.dataset, c.trainers, got, err, c.want)
		}
	}
}

func TestPodsThatCanBeAGang(t *testing.T) {
	w := &kueue.Workload{}
	for _, spec := range []corev1.PodSpec{
		{}, {SchedulerName: corev1.DefaultSchedulerName}, {SchedulerName: "own"}, {PriorityClassName: "high"}, {PriorityClassName: "high"},
		{EvictionResponders: []corev1.EvictionResponder{{Name: "example.com/drain"}}},
	} {
		w.Spec.PodSets = append(w.Spec.PodSets, kueue.PodSet{Template: corev1.PodTemplateSpec{Spec: spec}})
	}
	const unnamed, named, own, high, alsoHigh, evicted = 0, 1, 2, 3, 4, 5
	for _, c := range []struct {
		podSets []int
		want    bool
	}{
		{[]int{own}, true}, {[]int{unnamed, named}, true}, {[]int{named, own}, false}, {[]int{unnamed, own}, false},
		{[]int{high, alsoHigh}, true}, {[]int{unnamed, high}, false}, {[]int{high, named, alsoHigh}, false},
		{[]int{evicted}, false}, {[]int{named, evicted}, false},
	} {
		if got := canBeGang(w, c.podSets); got != c.want {
			t.Errorf("pod sets %v can be a gang: %v, want %v", c.podSets, got, c.want)
		}
	}
}

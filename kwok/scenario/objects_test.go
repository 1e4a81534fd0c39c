package scenario

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/kwok/faults"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func TestAJobAsAnObject(t *testing.T) {
	deadline, most := of(15*time.Minute), of(time.Minute+time.Millisecond)
	const required = "kueue.x-k8s.io/podset-required-topology"
	shape := Shape{Pods: 2, Requests: cpu(1), Priority: "urgent", Deadline: &deadline, MaximumExecution: &most,
		PodAnnotations: map[string]string{required: "rack"}}
	s := Submission{Namespace: "team", Name: "job-1", Queue: "batch", RunFor: 10 * time.Minute, Shape: &shape}
	for name, tc := range map[string]struct {
		speed        int
		queues       bool
		together     bool
		wantLabels   map[string]string
		wantRun      string
		wantDeadline int64
	}{
		"at speed 1 it is as the file says": {
			speed: 1, queues: true, wantRun: "10m0s", wantDeadline: 900,
			wantLabels: map[string]string{"kueue.x-k8s.io/queue-name": "batch", "kueue.x-k8s.io/priority-class": "urgent",
				"kueue.x-k8s.io/max-exec-time-seconds": "61"},
		},
		"at speed 40 times are divided, and whole seconds rounded up": {
			speed: 40, queues: true, wantRun: "15s", wantDeadline: 23,
			wantLabels: map[string]string{"kueue.x-k8s.io/queue-name": "batch", "kueue.x-k8s.io/priority-class": "urgent",
				"kueue.x-k8s.io/max-exec-time-seconds": "2"},
		},
		"without queues it names none":                  {speed: 1, wantRun: "10m0s", wantDeadline: 900},
		"a gang that runs together waits to be told so": {speed: 1, together: true, wantRun: unboundedRun, wantDeadline: 900},
	} {
		t.Run(name, func(t *testing.T) {
			shape.Together = tc.together
			j := s.Job(tc.speed, tc.queues)
			if diff := cmp.Diff(tc.wantLabels, j.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if got := j.Spec.Template.Annotations[kwokv1alpha1.RunForAnnotation]; got != tc.wantRun {
				t.Errorf("its pods run for %s, want %s", got, tc.wantRun)
			}
			if got := j.Spec.Template.Annotations[required]; got != "rack" {
				t.Errorf("its pods ask for one %q, want rack", got)
			}
			if got := *j.Spec.ActiveDeadlineSeconds; got != tc.wantDeadline {
				t.Errorf("the deadline is %d s, want %d", got, tc.wantDeadline)
			}
		})
	}
}

func TestANodeTakesPodsThoughItDoesNotSayHowMany(t *testing.T) {
	for name, tc := range map[string]struct {
		capacity corev1.ResourceList
		want     int64
	}{
		"where it is missing": {cpu(4), 110},
		"where it is there":   {corev1.ResourceList{"pods": resource.MustParse("7")}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			node := Nodes{Name: "node", Count: 1, Capacity: tc.capacity}.Objects()[0]
			if got := node.Status.Allocatable.Pods().Value(); got != tc.want {
				t.Errorf("it takes %d pods, want %d", got, tc.want)
			}
		})
	}
}

func TestAllTimesOfAGroupAreDivided(t *testing.T) {
	minute := of(time.Minute)
	g := &v1alpha1.NodeGroup{Spec: v1alpha1.NodeGroupSpec{JoinTimeout: &minute, Kwok: &v1alpha1.KwokPool{
		BootDelay: minute, BootJitter: minute, DeviceDelay: minute,
		Faults: []v1alpha1.KwokFault{{From: &minute, Until: &minute, After: &minute}, {Type: v1alpha1.FaultDry, Holds: 30}},
	}}}
	before := g.DeepCopy()
	second := of(6 * time.Second)
	want := v1alpha1.NodeGroupSpec{JoinTimeout: &second, IdleTimeout: &metav1.Duration{Duration: time.Minute}, Kwok: &v1alpha1.KwokPool{
		BootDelay: second, BootJitter: second, DeviceDelay: second,
		Faults: []v1alpha1.KwokFault{{From: &second, Until: &second, After: &second}, {Type: v1alpha1.FaultDry, Holds: 30}},
	}}
	if diff := cmp.Diff(want, Faster(g, 10).Spec); diff != "" {
		t.Errorf("group (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, g); diff != "" {
		t.Errorf("the scenario's own was changed (-want +got):\n%s", diff)
	}
}

func TestTheTimesOfFaultsAreDivided(t *testing.T) {
	minute, second := of(time.Minute), of(6*time.Second)
	plan := func(d metav1.Duration) *faults.Plan {
		return &faults.Plan{Seed: 1, Faults: []faults.Fault{
			{Type: faults.DelayAnswers, At: d, Every: d, Jitter: d, For: d, Delay: d, RetryAfter: d},
		}}
	}
	before := plan(minute)
	if diff := cmp.Diff(plan(second), FasterFaults(before, 10)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(plan(minute), before); diff != "" {
		t.Errorf("the scenario's own was changed (-want +got):\n%s", diff)
	}
}

func TestTheTimesOfAPolicyAreDivided(t *testing.T) {
	policy := func(bookingTimeout, onDemand string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "muster.dev/v1alpha1", "kind": "CapacityPolicy",
			"spec": map[string]any{"bookingTimeout": bookingTimeout, "fallbackAfter": map[string]any{"OnDemand": onDemand}, "split": "AnyZone",
				"overrides": map[string]any{"bookingTimeout": bookingTimeout, "fallbackAfter": map[string]any{"OnDemand": onDemand}}},
		}}
	}
	got := policy("10m", "30m")
	FasterObject(got, 10)
	if diff := cmp.Diff(policy("1m0s", "3m0s"), got); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	bad := policy("soon", "30m")
	FasterObject(bad, 10)
	if diff := cmp.Diff(policy("soon", "3m0s"), bad); diff != "" {
		t.Errorf("what is no time was changed (-want +got):\n%s", diff)
	}
	queue := &unstructured.Unstructured{Object: map[string]any{"kind": "ClusterQueue", "spec": map[string]any{"bookingTimeout": "10m"}}}
	FasterObject(queue, 10)
	if got := queue.Object["spec"].(map[string]any)["bookingTimeout"]; got != "10m" {
		t.Errorf("a ClusterQueue was changed to %v", got)
	}
}

func TestWhatABudgetReservesAndBoundsIsDivided(t *testing.T) {
	policy := func(budgets ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "muster.dev/v1alpha1", "kind": "CapacityPolicy", "spec": map[string]any{"budgets": budgets},
		}}
	}
	got := policy(
		map[string]any{"name": "a", "period": "Day", "usd": int64(5000), "reserve": "1h"},
		map[string]any{"name": "b", "period": "Week", "usd": "12.50"})
	FasterObject(got, 10)
	want := policy(
		map[string]any{"name": "a", "period": "Day", "usd": "500", "reserve": "6m0s"},
		map[string]any{"name": "b", "period": "Week", "usd": "1250m", "reserve": "2h24m0s"})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
}

func TestTheTimesOfParametersAreDivided(t *testing.T) {
	before := map[string]string{
		"startWithin": "2h", "bookingTimeout": "10m", "fallbackAfter": "OnDemand=30m, Reserved=soon", "ValidUntilSeconds": "605",
		"maxPricePerHour": "10", "onLateStart": "Hold",
	}
	want := map[string]string{
		"startWithin": "12m0s", "bookingTimeout": "1m0s", "fallbackAfter": "OnDemand=3m0s, Reserved=soon", "ValidUntilSeconds": "61",
		"maxPricePerHour": "10", "onLateStart": "Hold",
	}
	prefixed := func(parameters map[string]string) map[string]string {
		out := map[string]string{"startWithin": "2h"} // without the prefix it is not Kueue's
		for k, v := range parameters {
			out["provreq.kueue.x-k8s.io/"+k] = v
		}
		return out
	}
	annotations := prefixed(before)
	got := Submission{Shape: &Shape{Pods: 1, Annotations: annotations}}.Job(10, true).Annotations
	if diff := cmp.Diff(prefixed(want), got); diff != "" {
		t.Errorf("annotations of a Job (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(prefixed(before), annotations); diff != "" {
		t.Errorf("the scenario's own were changed (-want +got):\n%s", diff)
	}
	for kind, version := range map[string]string{"ProvisioningRequestConfig": "kueue.x-k8s.io/v1beta2",
		"ProvisioningRequest": "autoscaling.x-k8s.io/v1"} {
		object := func(parameters map[string]string) *unstructured.Unstructured {
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind}}
			_ = unstructured.SetNestedStringMap(o.Object, parameters, "spec", "parameters")
			return o
		}
		got := object(before)
		FasterObject(got, 10)
		if diff := cmp.Diff(object(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

func TestObjectsOfATeam(t *testing.T) {
	queue := unstructured.Unstructured{Object: map[string]any{"kind": "LocalQueue",
		"metadata": map[string]any{"name": "main", "namespace": TeamWord}, "spec": map[string]any{"clusterQueue": "of-" + TeamWord}}}
	s := &Scenario{Teams: &Teams{Name: "team", Count: 2, Objects: []unstructured.Unstructured{queue}}}
	got, err := s.Teams.For(1)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"kind": "LocalQueue",
		"metadata": map[string]any{"name": "main", "namespace": "team-001"}, "spec": map[string]any{"clusterQueue": "of-team-001"}}
	if diff := cmp.Diff(want, got[0].Object); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"team-000", "team-001"}, s.Namespaces()); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
}

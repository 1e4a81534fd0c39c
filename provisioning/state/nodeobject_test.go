package state

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func annotated(keysAndValues ...string) *corev1.Node {
	o := &corev1.Node{}
	for i := 0; i < len(keysAndValues); i += 2 {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, keysAndValues[i], keysAndValues[i+1])
	}
	return o
}

// TestCordons: Muster lifts a cordon only if it is its own, and lets a request book a node only if nothing else is against that.
func TestCordons(t *testing.T) {
	ours := func(reason string) *corev1.Node {
		o := annotated(v1alpha1.CordonedAnnotation, reason)
		MakeUnschedulable(o)
		return o
	}
	edited := func(o *corev1.Node, edit func(*corev1.Node)) *corev1.Node {
		edit(o)
		return o
	}
	for _, tc := range []struct {
		name string
		node *corev1.Node
		want Cordon
	}{
		{"a plain node", annotated(), Open},
		{"a node of a launch in flight", ours(v1alpha1.CordonJoining), Joining},
		{"a booked node", ours(v1alpha1.CordonBooked), Held},
		{"an idle node", ours(v1alpha1.CordonIdle), Held},
		{"a node that is to go", ours(v1alpha1.CordonScalingDown), ScalingDown},
		{"kubectl cordon", edited(annotated(), MakeUnschedulable), Foreign},
		{"a reason of a later version", ours("other"), Foreign},
		{"a cordon that others lifted", edited(ours(v1alpha1.CordonBooked), MakeSchedulable), Open},
		{"kured waits for the node", edited(annotated(v1alpha1.CordonedAnnotation, v1alpha1.CordonBooked, v1alpha1.RebootAnnotation, "now"),
			MakeUnschedulable), Foreign},
		{"held by the taint", edited(ours(v1alpha1.CordonBooked), Taint), Held},
		{"cordoned beside the taint", edited(edited(annotated(), Taint), MakeUnschedulable), Foreign},
		{"the taint is gone again", edited(edited(annotated(), Taint), Untaint), Open},
	} {
		if got := CordonOf(tc.node); got != tc.want {
			t.Errorf("%s: the cordon is %d, want %d", tc.name, got, tc.want)
		}
	}
}

// TestCordonsLeaveOtherTaints and put each taint once, however often they are repeated.
func TestCordonsLeaveOtherTaints(t *testing.T) {
	o := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}}}}
	for _, tc := range []struct {
		name   string
		edit   func(*corev1.Node)
		taints int
		closed bool
	}{
		{"cordon", MakeUnschedulable, 2, true},
		{"taint", Taint, 2, false},
		{"untaint", Untaint, 1, false},
		{"cordon again", MakeUnschedulable, 2, true},
		{"uncordon", MakeSchedulable, 1, false},
	} {
		tc.edit(o)
		tc.edit(o)
		if o.Spec.Unschedulable != tc.closed || len(o.Spec.Taints) != tc.taints || o.Spec.Taints[0].Key != "nvidia.com/gpu" {
			t.Errorf("after %s: unschedulable is %v with the taints %v", tc.name, o.Spec.Unschedulable, o.Spec.Taints)
		}
	}
}

// TestReadiness: a node that has not reported anything yet counts as unready since it was created.
func TestReadiness(t *testing.T) {
	created, changed := noon.Add(-time.Hour), noon
	for _, tc := range []struct {
		name              string
		status            corev1.ConditionStatus // empty for no condition
		deleted           bool
		ready             bool
		since, unreadySin time.Time
	}{
		{name: "it has just registered", unreadySin: created},
		{name: "it is ready", status: corev1.ConditionTrue, ready: true, since: changed},
		{name: "its kubelet reports a failure", status: corev1.ConditionFalse, unreadySin: changed},
		{name: "its kubelet is silent", status: corev1.ConditionUnknown, unreadySin: changed},
		{name: "it is being deleted", status: corev1.ConditionTrue, deleted: true, since: changed},
	} {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}}
		o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}}
		if tc.status != "" {
			o.Status.Conditions = append(o.Status.Conditions,
				corev1.NodeCondition{Type: corev1.NodeReady, Status: tc.status, LastTransitionTime: metav1.NewTime(changed)})
		}
		if tc.deleted {
			o.DeletionTimestamp = new(metav1.NewTime(noon))
		}
		if ready, since, unready := IsReady(o), ReadySince(o), UnreadySince(o); ready != tc.ready || !since.Equal(tc.since) ||
			!unready.Equal(tc.unreadySin) {
			t.Errorf("%s: ready is %v since %s, unready since %s", tc.name, ready, since, unready)
		}
	}
}

// TestKeptNodes: the annotation of cluster-autoscaler protects a node unless Muster itself has set it.
func TestKeptNodes(t *testing.T) {
	for _, tc := range []struct {
		name string
		node *corev1.Node
		want bool
	}{
		{"no annotation", annotated(), false},
		{"of cluster-autoscaler", annotated(v1alpha1.ScaleDownDisabledAnnotation, "true"), true},
		{"withdrawn", annotated(v1alpha1.ScaleDownDisabledAnnotation, "false"), false},
		{"set by Muster", annotated(v1alpha1.ScaleDownDisabledAnnotation, "true", v1alpha1.KeptAnnotation, ""), false},
		{"of Karpenter", annotated("karpenter.sh/do-not-disrupt", "true"), true},
		{"of Karpenter beside Muster's", annotated("karpenter.sh/do-not-disrupt", "true", v1alpha1.ScaleDownDisabledAnnotation, "true",
			v1alpha1.KeptAnnotation, ""), true},
	} {
		if got := IsKept(tc.node); got != tc.want {
			t.Errorf("%s: kept is %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestFewerDevices: only devices count, since a kubelet may reserve more memory at any restart.
func TestFewerDevices(t *testing.T) {
	offers := func(gpus, memory string) *corev1.Node {
		o := &corev1.Node{}
		o.Status.Allocatable = corev1.ResourceList{"memory": resource.MustParse(memory)}
		if gpus != "" {
			o.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse(gpus)
		}
		return o
	}
	for _, tc := range []struct {
		name          string
		before, after *corev1.Node
		want          bool
	}{
		{"the same", offers("8", "2Gi"), offers("8", "2Gi"), false},
		{"less memory", offers("8", "2Gi"), offers("8", "1Gi"), false},
		{"one device less", offers("8", "2Gi"), offers("7", "2Gi"), true},
		{"none any more", offers("8", "2Gi"), offers("", "2Gi"), true},
		{"the first ones", offers("", "2Gi"), offers("8", "2Gi"), false},
	} {
		if got := OffersFewerDevices(tc.after, tc.before); got != tc.want {
			t.Errorf("%s: fewer devices: %v, want %v", tc.name, got, tc.want)
		}
	}
}

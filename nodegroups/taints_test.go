package nodegroups

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

var gpuTaint = corev1.Taint{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}

// TestTaintsThatNodesKeep are planned with from the launch that has shown them, which makes no launch wait, until a node lacks them, the
// configuration changes, or none was seen for a day.
func TestTaintsThatNodesKeep(t *testing.T) {
	ng := &v1alpha1.NodeGroup{}
	ng.Spec.Template.Source = "lt-1/1"
	a := v1alpha1.LaunchAttempt{Time: metav1.NewTime(noon), Token: "gang-1", Requested: 4, Class: v1alpha1.Config,
		Taints: []corev1.Taint{gpuTaint}}
	learned := func() v1alpha1.NodeGroupStatus {
		status := Amended(v1alpha1.NodeGroupStatus{}, ng)
		return WithTaints(ng, Learn(status, a), a.Taints, a.Time)
	}
	node := func(age time.Duration, taints ...corev1.Taint) []SeenNode {
		return []SeenNode{{Name: "n", Registered: noon.Add(-age), Taints: taints}}
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.NodeGroup)
		nodes  []SeenNode
		after  time.Duration
		want   bool
	}{
		"at once":                        {want: true},
		"while nodes have it":            {nodes: node(time.Hour, gpuTaint), after: 48 * time.Hour, want: true},
		"until a node lacks it":          {nodes: node(time.Hour)},
		"which has just registered":      {nodes: node(time.Minute), want: true},
		"almost a day without nodes":     {after: 24*time.Hour - time.Second, want: true},
		"no longer":                      {after: 24 * time.Hour},
		"not for another version":        {change: func(g *v1alpha1.NodeGroup) { g.Spec.Template.Source = "lt-1/2" }},
		"nor once a person has repaired": {change: func(g *v1alpha1.NodeGroup) { g.Annotations = map[string]string{v1alpha1.RepairedAnnotation: "1"} }},
		"for any price":                  {change: func(g *v1alpha1.NodeGroup) { g.Spec.PricePerHour = quantity("cpu", 1) }, want: true},
	} {
		g, status := ng.DeepCopy(), learned()
		if tc.change != nil {
			tc.change(g)
		}
		for _, amended := range []bool{false, true} {
			if amended {
				status = Amended(status, g)
				status.Shape = LearnShape(status.Shape, g.Spec.Template, tc.nodes, noon.Add(tc.after))
			} else if len(tc.nodes) > 0 || tc.after > 0 {
				continue
			}
			read := GroupFrom(g, status, 0)
			if got := len(read.Taints) == 1 && len(read.KeptTaints) == 1; got != tc.want {
				t.Errorf("%s: the taint is planned with: %t (status amended: %t), want %t", name, got, amended, tc.want)
			}
			if until, why := read.BlockedUntil(4, ""); !until.IsZero() {
				t.Errorf("%s: launches wait until %s: %s", name, until, why)
			}
		}
	}
	status := learned()
	if d, _ := Differences(ng, status.Shape, nil, noon); len(d) != 1 || d[0].Kind != TaintsUndeclared {
		t.Errorf("the differences are %+v, want the taint", d)
	}
	if at := ForgottenAt(status.Shape); !at.Equal(noon.Add(24 * time.Hour)) {
		t.Errorf("it is forgotten at %s, want in a day", at)
	}
}

package model

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// TestATaintIsKnownInAllGroupsOfItsTemplate as soon as one launch has met it: no other zone is tried, and the gang's message names what
// it has to tolerate.
func TestATaintIsKnownInAllGroupsOfItsTemplate(t *testing.T) {
	m := New(testingclock.NewFakePassiveClock(noon), transaction.KnownClasses)
	for _, g := range []struct{ zone, source string }{
		{"a", "templates/gpu-1"}, {"b", "templates/gpu-1"}, {"c", "templates/other"}, {"d", ""},
	} {
		ng := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu-" + g.zone, UID: "1", ResourceVersion: "1"}}
		ng.Spec.CapacityType = v1alpha1.OnDemand
		ng.Spec.MaxNodes, ng.Spec.Zone, ng.Spec.Template.Source = 8, g.zone, g.source
		ng.Spec.Template.Capacity = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi")}
		m.Set(ng)
	}
	taint := corev1.Taint{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}
	tainted := func() (out []string) {
		for _, g := range m.Snapshot(noon).Groups {
			if len(g.Taints) > 0 {
				out = append(out, g.Name)
			}
		}
		return out
	}
	if got := tainted(); len(got) > 0 {
		t.Fatalf("%v have a taint before there was a launch", got)
	}
	m.Learn("gpu-a", v1alpha1.LaunchAttempt{Time: metav1.NewTime(noon), Token: "gang-1", Requested: 4, Class: v1alpha1.Config,
		Taints: []corev1.Taint{taint}})
	if got := fmt.Sprint(tainted()); got != "[gpu-a gpu-b]" {
		t.Errorf("%s have the taint, want those of the template", got)
	}
	pod := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelTopologyZone: "b"}}}
	gang := state.Gang{Namespace: "ns", Name: "ns/gang", PodSets: []state.PodSet{state.NewPodSet("ns", "main", 4, pod, fit.Objects{})}}
	verdict := planner.Plan(m.Snapshot(noon), gang, state.DefaultPolicy(state.AtomicScaleUp))
	if message := verdict.Message(); verdict.Outcome != planner.Never || !strings.Contains(message,
		"does not tolerate its taint nvidia.com/gpu:NoSchedule, which its nodes have") {
		t.Errorf("the gang has %v: %s", verdict.Outcome, message)
	}

	// What is written of one is there after a restart, and for the others.
	written := m.Group("gpu-b").DeepCopy()
	written.Status, written.ResourceVersion = m.Learned("gpu-b"), "2"
	m = New(testingclock.NewFakePassiveClock(noon.Add(time.Hour)), transaction.KnownClasses)
	m.Set(written)
	other := written.DeepCopy()
	other.Name, other.Status = "gpu-a", v1alpha1.NodeGroupStatus{}
	m.Set(other)
	if got := fmt.Sprint(tainted()); got != "[gpu-a gpu-b]" {
		t.Errorf("%s have the taint after a restart, want both", got)
	}
}

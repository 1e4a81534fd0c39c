package page

import (
	"net/http/httptest"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// TestTaintedDevicesNeedAttention, in the words of `kubectl muster capacity`.
func TestTaintedDevicesNeedAttention(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1alpha1.NodeGroupLabel: "h100"}}}
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	slice.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: new("n"),
		Pool: resourcev1.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{Name: "a", Taints: []resourcev1.DeviceTaint{
			{Key: "gpu.example.com/xid", Effect: resourcev1.DeviceTaintEffectNoSchedule}}}}}
	c := clocktesting.NewFakeClock(noon)
	p := view.New(c, view.DefaultSettings(), &view.Reading{Objects: []client.Object{
		&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}, node, slice}})
	s := &Server{config: Config{Clock: c}}
	out, err := s.obtainability(t.Context(), &decision{picture: p}, httptest.NewRequest("GET", "/api/obtainability", nil))
	if err != nil || len(out.Offerings) != 1 {
		t.Fatalf("%+v (%v), want one offering", out, err)
	}
	want := []string{"node n: claims without a toleration get no device a (taint gpu.example.com/xid)"}
	if got := out.Offerings[0].Troubles; !slices.Equal(got, want) || !slices.Equal(got, p.GroupLines()[0].Troubles) {
		t.Errorf("its troubles are %q, want %q", got, want)
	}
}

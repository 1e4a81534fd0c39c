package provisioning

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-dev/muster/nodegroups"
)

func TestTemplateRequestsAreWhatThePodsWillAskFor(t *testing.T) {
	cpu := func(v string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(v)} }
	container := func(requests, limits corev1.ResourceList) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
	}
	for _, tc := range []struct {
		name string
		spec corev1.PodSpec
		want int64
	}{
		{"a limit is the request where there is none", corev1.PodSpec{Containers: []corev1.Container{container(nil, cpu("2"))}}, 2000},
		{"a request stays what it is", corev1.PodSpec{Containers: []corev1.Container{container(cpu("1"), cpu("2"))}}, 1000},
		{"a limit of the pod counts where its containers ask for nothing", corev1.PodSpec{
			Resources: &corev1.ResourceRequirements{Limits: cpu("4")}, Containers: []corev1.Container{{}}}, 4000},
		{"what its containers ask for counts before a limit of the pod", corev1.PodSpec{
			Resources: &corev1.ResourceRequirements{Limits: cpu("4")}, Containers: []corev1.Container{container(cpu("1"), nil)}}, 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := tc.spec.DeepCopy()
			if diff := cmp.Diff(nodegroups.Resources{"cpu": tc.want, "pods": 1}, TemplateRequests(&tc.spec)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, &tc.spec); diff != "" {
				t.Errorf("the template was changed:\n%s", diff)
			}
		})
	}
}

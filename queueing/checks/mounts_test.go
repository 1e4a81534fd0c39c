package checks

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestDropForeignMounts: what mounts a volume that its controller adds to the pods is judged without it, and the Workload's template
// stays as it is.
func TestDropForeignMounts(t *testing.T) {
	claim, config := corev1.VolumeMount{Name: "data", MountPath: "/data"}, corev1.VolumeMount{Name: "config", MountPath: "/etc"}
	container := corev1.Container{
		Name: "main", VolumeMounts: []corev1.VolumeMount{claim, config},
		VolumeDevices: []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/d"}},
	}
	spec := corev1.PodSpec{
		Volumes: []corev1.Volume{{Name: "config"}}, InitContainers: []corev1.Container{container}, Containers: []corev1.Container{container},
	}
	before := spec.DeepCopy()
	got := spec
	dropForeignMounts(&got)

	want := spec.DeepCopy()
	for _, containers := range [][]corev1.Container{want.InitContainers, want.Containers} {
		containers[0].VolumeMounts, containers[0].VolumeDevices = []corev1.VolumeMount{config}, []corev1.VolumeDevice{}
	}
	if diff := cmp.Diff(want, &got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, &spec); diff != "" {
		t.Errorf("the template it is of (-want +got):\n%s", diff)
	}
}

package state

import (
	"os"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/provisioning/fit"
)

func TestAReducedPodIsReadAsTheWholeOne(t *testing.T) {
	text, err := os.ReadFile("testdata/pod.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ended := func(c *corev1.Container, p *corev1.Pod, at int64) {
		s := corev1.ContainerStatus{Name: c.Name}
		s.State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.Unix(at, 0)}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
	}
	for name, edit := range map[string]func(*corev1.Pod){
		"as it is":    func(*corev1.Pod) {},
		"by a Job":    func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Job" },
		"of a daemon": func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" },
		"with devices": func(p *corev1.Pod) {
			p.Spec.Containers[1].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("8")
		},
		"on the host's network": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"with data on the disk": func(p *corev1.Pod) { p.Spec.Volumes[2].EmptyDir.Medium = "" },
		"with data on its machine": func(p *corev1.Pod) {
			p.Spec.Volumes[0] = corev1.Volume{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}}
		},
		"with a claim": func(p *corev1.Pod) {
			p.Spec.Volumes[0] = corev1.Volume{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}
		},
		"with resources of its own": func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("16"),
				"memory": resource.MustParse("3Gi")}}
		},
		"that is being resized": func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].AllocatedResources = corev1.ResourceList{"cpu": resource.MustParse("12")}
			p.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("12")}}
		},
		"that has no request": func(p *corev1.Pod) {
			for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
				for i := range containers {
					containers[i].Resources = corev1.ResourceRequirements{}
				}
			}
		},
		"that was nominated": func(p *corev1.Pod) { p.Spec.NodeName, p.Status.NominatedNodeName = "", "node-2" },
		"that has ended": func(p *corev1.Pod) {
			p.Status.Phase, p.Status.ContainerStatuses = corev1.PodSucceeded, nil
			ended(&p.Spec.Containers[0], p, 2_000_000_000)
			ended(&p.Spec.Containers[1], p, 2_000_000_100)
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole := &corev1.Pod{}
			if err := yaml.UnmarshalStrict(text, whole); err != nil {
				t.Fatal(err)
			}
			edit(whole)
			reduced := whole.DeepCopy()
			Reduce(reduced)
			a, b := ReadPod(whole), ReadPod(reduced)
			if (a.Movable == nil) != (b.Movable == nil) {
				t.Fatalf("it may be moved: %t, reduced: %t", a.Movable != nil, b.Movable != nil)
			}
			if a.Movable != nil {
				x, y := NewStray(a.Movable, fit.Objects{}), NewStray(b.Movable, fit.Objects{})
				if !reflect.DeepEqual(x.Replica.Pod, y.Replica.Pod) || x.Replica.refusal.Refused() != y.Replica.refusal.Refused() {
					t.Errorf("elsewhere it is %+v (%v), reduced: %+v (%v)", x.Replica.Pod, x.Replica.refusal, y.Replica.Pod, y.Replica.refusal)
				}
			}
			a.Movable, b.Movable = nil, nil
			if !reflect.DeepEqual(a, b) {
				t.Errorf("read of it is %+v, reduced: %+v", a, b)
			}
			if x, y := EndOf(whole), EndOf(reduced); !x.Equal(y) {
				t.Errorf("it ended at %s, reduced: %s", x, y)
			}
		})
	}
}

// TestVolumesOfAReducedPod: claims and data on the node count, files from the API server only take memory.
func TestVolumesOfAReducedPod(t *testing.T) {
	p := &corev1.Pod{}
	for name, source := range map[string]corev1.VolumeSource{
		"config": {ConfigMap: &corev1.ConfigMapVolumeSource{}}, "secret": {Secret: &corev1.SecretVolumeSource{}},
		"token": {Projected: &corev1.ProjectedVolumeSource{}}, "labels": {DownwardAPI: &corev1.DownwardAPIVolumeSource{}},
		"data": {PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
	} {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	}
	Reduce(p)
	if len(p.Spec.Volumes) != 1 || p.Spec.Volumes[0].Name != "data" {
		t.Errorf("kept are %v, want data", p.Spec.Volumes)
	}
}

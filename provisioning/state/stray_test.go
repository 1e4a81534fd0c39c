package state

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/provisioning/fit"
)

func TestMovable(t *testing.T) {
	ofKind := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: new(true)}}
		}
	}
	noted := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
	}
	volume := func(name string, source corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		}
	}
	replica, orphan := ofKind("ReplicaSet"), func(p *corev1.Pod) { p.OwnerReferences = nil }
	scratch := volume("scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	inMemory := volume("shm", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}})
	onHost := volume("logs", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/log"}})
	config := volume("config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}})
	gpus := func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}}
	}
	claim := func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }

	for _, tc := range []struct {
		name string
		pod  []func(*corev1.Pod)
		want bool
	}{
		{"a replica of a Deployment", []func(*corev1.Pod){replica}, true},
		{"one of a ReplicationController", []func(*corev1.Pod){ofKind("ReplicationController")}, true},
		{"a pod that nobody makes anew", []func(*corev1.Pod){orphan}, false},
		{"not even if its owner gives it up", []func(*corev1.Pod){orphan, noted(safeToEvict, "true")}, false},
		{"a Job's pod would begin from the start", []func(*corev1.Pod){ofKind("Job")}, false},
		{"a StatefulSet's may lead a gang", []func(*corev1.Pod){ofKind("StatefulSet")}, false},
		{"unless its owner gives it up", []func(*corev1.Pod){ofKind("Job"), noted(safeToEvict, "true")}, true},
		{"a replica that must not be evicted", []func(*corev1.Pod){replica, noted(safeToEvict, "false")}, false},
		{"what the owner means is not clear", []func(*corev1.Pod){replica, noted(safeToEvict, "yes")}, false},
		{"a replica that must not be disrupted", []func(*corev1.Pod){replica, noted(doNotDisrupt, "true")}, false},
		{"nor for a time", []func(*corev1.Pod){replica, noted(doNotDisrupt, "4h")}, false},
		{"the stricter word counts", []func(*corev1.Pod){replica, noted(doNotDisrupt, "true"), noted(safeToEvict, "true")}, false},
		{"one that may be disrupted", []func(*corev1.Pod){replica, noted(doNotDisrupt, "false")}, true},
		{"a replica that uses a device", []func(*corev1.Pod){replica, gpus}, false},
		{"not even if its owner gives it up", []func(*corev1.Pod){replica, gpus, noted(safeToEvict, "true")}, false},
		{"one with a claim of a device", []func(*corev1.Pod){replica, claim}, false},
		{"a replica that keeps data on the node", []func(*corev1.Pod){replica, scratch}, false},
		{"or on the host", []func(*corev1.Pod){replica, onHost}, false},
		{"memory is no disk", []func(*corev1.Pod){replica, inMemory, config}, true},
		{"data that its owner gives up", []func(*corev1.Pod){replica, scratch, noted(safeToEvict, "true")}, true},
		{"volume by volume", []func(*corev1.Pod){replica, scratch, onHost, noted(safeToEvictLocalVolumes, "scratch, logs")}, true},
		{"but not all", []func(*corev1.Pod){replica, scratch, onHost, noted(safeToEvictLocalVolumes, "logs")}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &corev1.Pod{}
			for _, change := range tc.pod {
				change(p)
			}
			if got := Movable(p); got != tc.want {
				t.Errorf("movable: %t, want %t", got, tc.want)
			}
		})
	}
}

// TestAStraysReplicaMayGoAnywhere: the pod itself is bound to its node.
func TestAStraysReplicaMayGoAnywhere(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: corev1.PodSpec{NodeName: "a"}}
	s := NewStray(p, fit.Objects{})
	if _, refusal := s.Replica.Read("ns", fit.Objects{}); refusal.Refused() {
		t.Errorf("the replica cannot be placed: %s", refusal.Message)
	}
	if p.Spec.NodeName != "a" {
		t.Error("the informer's object was changed")
	}
}

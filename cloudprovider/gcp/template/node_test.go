package template

import (
	"testing"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// read is a template with metadata, given as keys and values.
func read(metadata ...string) *Template {
	in := &computepb.InstanceProperties{Metadata: &computepb.Metadata{}}
	for i := 0; i < len(metadata); i += 2 {
		in.Metadata.Items = append(in.Metadata.Items, &computepb.Items{Key: new(metadata[i]), Value: new(metadata[i+1])})
	}
	return readTemplate(in)
}

// eightGPUs is a machine type of the size of a3-highgpu-8g.
func eightGPUs() *computepb.MachineType {
	return &computepb.MachineType{
		Name: new("a3-highgpu-8g"), GuestCpus: new(int32(208)), MemoryMb: new(int32(1_916_928)),
		Accelerators: []*computepb.Accelerators{{GuestAcceleratorType: new("nvidia-h100-80gb"), GuestAcceleratorCount: new(int32(8))}},
	}
}

// TestDevices: how many devices a node offers whose eight GPUs are partitioned or shared.
func TestDevices(t *testing.T) {
	const partition, clients = gkePartition + "=", gkeClients + "="
	for name, tc := range map[string]struct {
		labels, env string
		want        int64 // 0 for unknown
	}{
		"whole GPUs":                        {want: 8},
		"seven partitions each":             {labels: partition + "1g.10gb", want: 56},
		"four of twice the memory":          {labels: partition + "1g.20gb", want: 32},
		"three":                             {labels: partition + "2g.20gb", want: 24},
		"two":                               {labels: partition + "3g.40gb", want: 16},
		"one":                               {labels: partition + "7g.80gb", want: 8},
		"a size that is not known":          {labels: partition + "1g.99gb"},
		"time slices":                       {labels: clients + "4,cloud.google.com/gke-gpu-sharing-strategy=time-sharing", want: 32},
		"time slices of partitions":         {labels: partition + "3g.40gb," + clients + "4", want: 64},
		"what the template says is counted": {labels: partition + "1g.99gb", env: "AUTOSCALER_ENV_VARS: extended_resources=nvidia.com/gpu=5", want: 5},
	} {
		gpus, named := read("kube-labels", tc.labels, "kube-env", tc.env).Node(eightGPUs(), "us-central1-a").Capacity[GPU]
		if gpus.Value() != tc.want || named != (tc.want > 0) {
			t.Errorf("%s: got %d GPUs, want %d", name, gpus.Value(), tc.want)
		}
	}
}

// TestReserve: what the template says that the kubelet reserves, else what GKE does.
func TestReserve(t *testing.T) {
	for name, tc := range map[string]struct {
		env  string
		want map[corev1.ResourceName]string // what is not allocatable of the capacity
	}{
		// 6 % of one core, 1 % of the next, 0.5 % of two, 0.25 % of 204.
		"GKE's formula":   {want: map[corev1.ResourceName]string{"cpu": "590m"}},
		"the template's":  {env: "AUTOSCALER_ENV_VARS: kube_reserved=cpu=1,memory=4Gi", want: map[corev1.ResourceName]string{"cpu": "1", "memory": "4196Mi"}},
		"one that is bad": {env: ": no\nYAML", want: map[corev1.ResourceName]string{"cpu": "590m"}},
	} {
		node := read("kube-env", tc.env).Node(eightGPUs(), "us-central1-a")
		for resourceName, want := range tc.want {
			left := node.Capacity[resourceName]
			left.Sub(node.Allocatable[resourceName])
			if left.Cmp(resource.MustParse(want)) != 0 {
				t.Errorf("%s: got a reserve of %s %s, want %s", name, left.String(), resourceName, want)
			}
		}
	}
}

func TestStartupTaints(t *testing.T) {
	const known = "startup-taint.cluster-autoscaler.kubernetes.io/network"
	got := read("muster-dev-startup-taints", "node.cilium.io/agent-not-ready=true:NoExecute",
		"kube-env", "NODE_TAINTS: nvidia.com/gpu=present:NoSchedule,node.cilium.io/agent-not-ready=true:NoExecute,"+known+"=:NoSchedule").
		Node(eightGPUs(), "us-central1-a")
	if diff := cmp.Diff([]corev1.Taint{{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}},
		got.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	want := []corev1.Taint{{Key: "node.cilium.io/agent-not-ready", Value: "true", Effect: corev1.TaintEffectNoExecute},
		{Key: known, Effect: corev1.TaintEffectNoSchedule}}
	if diff := cmp.Diff(want, got.StartupTaints); diff != "" {
		t.Errorf("startup taints (-want +got):\n%s", diff)
	}
}

package template

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Node is what a node will look like.
func (t *Template) Node(shape *computepb.MachineType, zone string) v1alpha1.NodeTemplate {
	labels := maps.Clone(t.Labels)
	labels[corev1.LabelInstanceTypeStable] = shape.GetName()
	labels[corev1.LabelTopologyRegion] = api.Region(zone)
	if shape.GetArchitecture() == "ARM64" {
		labels[corev1.LabelArchStable] = "arm64"
	}
	capacity := t.capacity(shape)
	return v1alpha1.NodeTemplate{
		Source: t.source,
		Labels: labels, Taints: t.taints, StartupTaints: t.startup, Capacity: capacity, Allocatable: t.allocatable(capacity),
	}
}

const (
	GPU     corev1.ResourceName = "nvidia.com/gpu"
	gibi                        = 1 << 30
	mebi                        = 1 << 20
	hundred                     = 100
)

func (t *Template) capacity(shape *computepb.MachineType) corev1.ResourceList {
	out := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(shape.GetGuestCpus()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(seen(int64(shape.GetMemoryMb())*mebi), resource.BinarySI),
	}
	if t.bootDiskGB > 0 {
		out[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(seen(t.bootDiskGB*gibi), resource.BinarySI)
	}
	if n, known := t.Devices(shape); known && n > 0 {
		out[GPU] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	maps.Copy(out, t.extended) // what the template says itself is known best
	return out
}

// Labels of GKE's nodes whose GPUs are shared.
const (
	gkePartition = "cloud.google.com/gke-gpu-partition-size"
	gkeClients   = "cloud.google.com/gke-max-shared-clients-per-gpu"
)

// Devices of machines of the type, as nodes offer them: GPUs, or where they are partitioned
// or shared, the places on them. They may be unknown until there is a node.
func (t *Template) Devices(shape *computepb.MachineType) (n int64, known bool) {
	n = t.gpusOf(shape)
	if size := t.Labels[gkePartition]; size != "" && n > 0 {
		each := partitions(size, slices.ContainsFunc(shape.GetAccelerators(), func(a *computepb.Accelerators) bool {
			return a.GetGuestAcceleratorType() == "nvidia-tesla-a100"
		}))
		if each == 0 {
			return 0, false
		}
		n *= each
	}
	if clients := t.Labels[gkeClients]; clients != "" {
		each, err := strconv.ParseInt(clients, 10, 64)
		if err != nil || each < 1 {
			return 0, false
		}
		n *= each
	}
	return n, true
}

// partitions of a GPU in those of a size such as 1g.5gb: a GPU has seven compute units and
// eight units of memory. 0 stands for unknown.
func partitions(size string, gpu40GB bool) int64 {
	compute, memory, _ := strings.Cut(size, "g.")
	switch compute {
	case "2":
		return 3
	case "3":
		return 2
	case "4", "7":
		return 1
	case "1":
	default:
		return 0
	}
	switch memory {
	case "5gb", "18gb", "23gb": // a unit of memory
		return 7
	case "20gb", "35gb", "45gb": // two of them
		return 4
	case "10gb":
		if gpu40GB {
			return 4
		}
		return 7
	default:
		return 0
	}
}

// gpusOf returns the number of GPUs of a machine type. If it has none, the GPUs that the template adds count.
func (t *Template) gpusOf(shape *computepb.MachineType) (n int64) {
	for _, a := range shape.GetAccelerators() {
		if strings.Contains(a.GetGuestAcceleratorType(), "nvidia") {
			n += int64(a.GetGuestAcceleratorCount())
		}
	}
	return max(n, t.gpus)
}

// seen is what of a size the node sees: kernel, firmware and the file system keep up
// to a fiftieth, which no description states.
func seen(bytes int64) int64 { return bytes - bytes/50 }

// allocatable is what is left for pods: of what the template reserves, else of what
// GKE does, which other clusters follow.
func (t *Template) allocatable(capacity corev1.ResourceList) corev1.ResourceList {
	reserved := t.kubeReserved
	if reserved == nil {
		reserved = corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(reservedMilliCPU(capacity.Cpu().Value()), resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(reservedBytes(capacity.Memory().Value()), resource.BinarySI),
		}
	}
	out := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		if left, ok := capacity[name]; ok {
			left.Sub(reserved[name])
			if name == corev1.ResourceMemory {
				left.Sub(resource.MustParse("100Mi")) // the kubelet evicts below it
			}
			out[name] = left
		}
	}
	if disk, ok := capacity[corev1.ResourceEphemeralStorage]; ok && out[corev1.ResourceEphemeralStorage] == (resource.Quantity{}) {
		// The kubelet evicts when a tenth is left; images and logs take their share.
		out[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(disk.Value()/2, resource.BinarySI)
	}
	return out
}

// reservedMilliCPU of a node: 6 % of the first core, 1 % of the next, 0.5 % of the
// two after it and 0.25 % of the rest.
func reservedMilliCPU(cores int64) int64 {
	return (600*min(cores, 1) + 100*clamp(cores-1, 1) + 50*clamp(cores-2, 2) + 25*max(cores-4, 0) + 9) / 10
}

// reservedBytes of a node: 25 % of the first 4 GiB, 20 % of the next 4, 10 % of the
// next 8, 6 % of the next 112 and 2 % of the rest.
func reservedBytes(bytes int64) int64 {
	return (25*min(bytes, 4*gibi) + 20*clamp(bytes-4*gibi, 4*gibi) + 10*clamp(bytes-8*gibi, 8*gibi) +
		6*clamp(bytes-16*gibi, 112*gibi) + 2*max(bytes-128*gibi, 0)) / hundred
}

func clamp(n, most int64) int64 { return max(0, min(n, most)) }

package discover

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Tags by which users of cluster-autoscaler say what the nodes of a group have, for
// groups that may have none to look at.
const (
	templateTag = "k8s.io/cluster-autoscaler/node-template/"
	labelTag    = templateTag + "label/"
	taintTag    = templateTag + "taint/"
	resourceTag = templateTag + "resources/"
)

// startupTaints are prefixes of taints that other components remove while a node starts.
var startupTaints = []string{"startup-taint.cluster-autoscaler.kubernetes.io/", "ignore-taint.cluster-autoscaler.kubernetes.io/"}

// nodeTemplate is what a machine of the type becomes: what EC2 says of it, less what
// the system keeps for itself, and over it what the tags of the group say.
func nodeTemplate(t *ec2types.InstanceTypeInfo, c *candidate, region string) (v1alpha1.NodeTemplate, error) {
	out := v1alpha1.NodeTemplate{
		Labels: map[string]string{
			corev1.LabelInstanceTypeStable: string(t.InstanceType), corev1.LabelTopologyRegion: region,
			corev1.LabelOSStable: "linux", corev1.LabelArchStable: archOf(t),
		},
		Capacity: capacityOf(t),
	}
	if name := c.tags[asg.ManagedTag]; name != "" {
		out.Labels["eks.amazonaws.com/nodegroup"] = name
	}
	maps.Copy(out.Labels, c.labels)
	for _, t := range c.taints {
		addTaint(&out, t)
	}
	if n := t.NetworkInfo; n != nil && n.EfaInfo != nil && c.efas > 0 {
		efas := min(c.efas, api.Deref(n.EfaInfo.MaximumEfaInterfaces))
		out.Capacity["vpc.amazonaws.com/efa"] = *resource.NewQuantity(int64(efas), resource.DecimalSI)
	}
	if c.volumeGiB > 0 {
		out.Capacity[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(c.volumeGiB)<<30, resource.BinarySI)
	}
	for _, tag := range slices.Sorted(maps.Keys(c.tags)) {
		value := c.tags[tag]
		if key, ok := strings.CutPrefix(tag, labelTag); ok {
			out.Labels[key] = value
		} else if key, ok := strings.CutPrefix(tag, taintTag); ok {
			taint, err := taintOf(key, value)
			if err != nil {
				return out, fmt.Errorf("its tag %s is %q: %w", tag, value, err)
			}
			addTaint(&out, taint)
		} else if key, ok := strings.CutPrefix(tag, resourceTag); ok {
			amount, err := resource.ParseQuantity(value)
			if err != nil {
				return out, fmt.Errorf("its tag %s is %q: give an amount, for example 8 or 100Gi", tag, value)
			}
			out.Capacity[corev1.ResourceName(key)] = amount
		}
	}
	out.Allocatable = allocatable(out.Capacity)
	return out, nil
}

// addTaint adds a taint, in place of one of its key and effect.
func addTaint(t *v1alpha1.NodeTemplate, taint corev1.Taint) {
	list := &t.Taints
	if slices.ContainsFunc(startupTaints, func(prefix string) bool { return strings.HasPrefix(taint.Key, prefix) }) {
		list = &t.StartupTaints
	}
	*list = slices.DeleteFunc(*list, func(old corev1.Taint) bool { return old.MatchTaint(&taint) })
	*list = append(*list, taint)
}

// taintOf reads a taint as cluster-autoscaler does: value:effect.
func taintOf(key, value string) (corev1.Taint, error) {
	text, effect, ok := strings.Cut(value, ":")
	t := corev1.Taint{Key: key, Value: text, Effect: corev1.TaintEffect(effect)}
	switch t.Effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		return t, nil
	}
	if !ok {
		return t, fmt.Errorf("write value:effect, for example true:NoSchedule")
	}
	return t, fmt.Errorf("the effect must be NoSchedule, PreferNoSchedule or NoExecute")
}

func archOf(t *ec2types.InstanceTypeInfo) string {
	if t.ProcessorInfo != nil && slices.Contains(t.ProcessorInfo.SupportedArchitectures, ec2types.ArchitectureTypeArm64) {
		return "arm64"
	}
	return "amd64"
}

const (
	// hidden is the part of a machine's memory, in parts per thousand, that its
	// hypervisor and kernel keep: nodes are seen to have about 7 % less than EC2
	// says.
	hidden = 75
	// mostPods is the kubelet's own default.
	mostPods = 110
)

// capacityOf is what EC2 says that a machine has, as its node will count it.
func capacityOf(t *ec2types.InstanceTypeInfo) corev1.ResourceList {
	out := corev1.ResourceList{}
	if t.VCpuInfo != nil {
		out[corev1.ResourceCPU] = *resource.NewQuantity(int64(api.Deref(t.VCpuInfo.DefaultVCpus)), resource.DecimalSI)
	}
	if t.MemoryInfo != nil {
		mib := api.Deref(t.MemoryInfo.SizeInMiB)
		out[corev1.ResourceMemory] = *resource.NewQuantity((mib-mib*hidden/1000)<<20, resource.BinarySI)
	}
	pods := int64(mostPods)
	if n := t.NetworkInfo; n != nil && api.Deref(n.MaximumNetworkInterfaces) > 0 && api.Deref(n.Ipv4AddressesPerInterface) > 1 {
		// One address of each interface is its own; two pods share the host's.
		pods = min(pods, int64(*n.MaximumNetworkInterfaces)*int64(*n.Ipv4AddressesPerInterface-1)+2)
	}
	out[corev1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
	devices := map[corev1.ResourceName]int64{}
	if t.GpuInfo != nil {
		for _, g := range t.GpuInfo.Gpus {
			switch strings.ToUpper(api.Deref(g.Manufacturer)) {
			case "NVIDIA":
				devices["nvidia.com/gpu"] += int64(api.Deref(g.Count))
			case "AMD":
				devices["amd.com/gpu"] += int64(api.Deref(g.Count))
			}
		}
	}
	if t.NeuronInfo != nil {
		for _, n := range t.NeuronInfo.NeuronDevices {
			devices["aws.amazon.com/neuron"] += int64(api.Deref(n.Count))
		}
	}
	for name, n := range devices {
		out[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return out
}

// allocatable is capacity less what the kubelet and the system are usually given: of
// the cores 6 % of the first, 1 % of the second, half a percent of the next two and a
// quarter of the rest; of the memory 255 MiB, 11 MiB a pod, and 100 MiB kept free.
func allocatable(capacity corev1.ResourceList) corev1.ResourceList {
	cores, pods := capacity.Cpu().Value(), capacity.Pods().Value()
	kept := int64(0) // in millionths of a core
	for core := range cores {
		switch {
		case core == 0:
			kept += 60_000
		case core == 1:
			kept += 10_000
		case core < 4:
			kept += 5_000
		default:
			kept += 2_500
		}
	}
	out := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(capacity.Cpu().MilliValue()-(kept+999)/1000, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(capacity.Memory().Value()-(255+11*pods+100)<<20, resource.BinarySI),
	}
	if disk, ok := capacity[corev1.ResourceEphemeralStorage]; ok {
		// The image and the system are on it, and the kubelet keeps a tenth free.
		out[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(disk.Value()*8/10, resource.BinarySI)
	}
	return out
}

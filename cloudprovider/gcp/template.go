package gcp

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cloud.google.com/go/compute/apiv1/computepb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Provisioning models of instances.
const (
	modelStandard         = "STANDARD"
	modelSpot             = "SPOT"
	modelFlexStart        = "FLEX_START"
	modelReservationBound = "RESERVATION_BOUND"
)

// templates remembers what the cloud never changes: instance templates by their
// links, and machine types by zone and name.
type templates struct {
	mu    sync.Mutex
	known map[string]*template
	types map[string]*computepb.MachineType
}

// template is what an instance template says of its nodes.
type template struct {
	machineType  string
	provisioning string
	reserved     bool
	// maintenance is what becomes of machines when their host is maintained; empty where the template does not say.
	maintenance string
	// placed tells that the template names resource policies: a machine has one placement policy at most.
	placed bool
	// reservation that the machines are bound to or consume, where the template names one.
	reservation reservationID
	// affinityKey is the key of the reservation affinity.
	affinityKey string
	bootDiskGB  int64
	gpus        int64
	// keys are what the template says to Muster, by its metadata or its labels.
	keys map[string]string
	// labels and taints of the nodes, as the boot script gives them. startup are the taints that
	// another component removes while a node starts.
	labels          map[string]string
	taints, startup []corev1.Taint
	// extended are the resources beyond the usual that the boot script promises.
	extended corev1.ResourceList
	// kubeReserved is what the kubelet keeps for itself; nil where the template does
	// not say.
	kubeReserved corev1.ResourceList
	// source names the template.
	source string
	// env is the boot script's environment, as GKE and kube-up write it.
	env map[string]string
}

// template reads an instance template; nil where the group has none.
func (p *Provider) template(ctx context.Context, project, link string) (*template, error) {
	if link == "" {
		return nil, nil
	}
	p.templates.mu.Lock()
	t := p.templates.known[link]
	p.templates.mu.Unlock()
	if t != nil {
		return t, nil
	}
	in, err := p.cloud.Template(ctx, project, link)
	if err != nil {
		return nil, err
	}
	t = readTemplate(in.GetProperties())
	t.source = sourceOf(link)
	t.reservation = reservationOf(project, in.GetProperties().GetReservationAffinity())
	p.templates.mu.Lock()
	defer p.templates.mu.Unlock()
	if p.templates.known == nil {
		p.templates.known = map[string]*template{}
	}
	p.templates.known[link] = t
	return t, nil
}

// sourceOf names the instance template of a link, with its project. Templates are never changed: a new version has a new name.
func sourceOf(link string) string {
	if _, path, full := strings.Cut(link, "/projects/"); full {
		return "projects/" + path
	}
	return link
}

// machineType reads a machine type.
func (p *Provider) machineType(ctx context.Context, project, zone, name string) (*computepb.MachineType, error) {
	key := project + "/" + zone + "/" + name
	p.templates.mu.Lock()
	t := p.templates.types[key]
	p.templates.mu.Unlock()
	if t != nil {
		return t, nil
	}
	t, err := p.cloud.MachineType(ctx, project, zone, name)
	if err != nil {
		return nil, err
	}
	p.templates.mu.Lock()
	defer p.templates.mu.Unlock()
	if p.templates.types == nil {
		p.templates.types = map[string]*computepb.MachineType{}
	}
	p.templates.types[key] = t
	return t, nil
}

func readTemplate(in *computepb.InstanceProperties) *template {
	t := &template{
		machineType: api.Base(in.GetMachineType()), provisioning: in.GetScheduling().GetProvisioningModel(),
		reserved:    in.GetReservationAffinity().GetConsumeReservationType() == "SPECIFIC_RESERVATION",
		affinityKey: in.GetReservationAffinity().GetKey(),
		maintenance: in.GetScheduling().GetOnHostMaintenance(), placed: len(in.GetResourcePolicies()) > 0,
		keys: maps.Clone(in.GetLabels()), labels: map[string]string{},
	}
	if t.keys == nil {
		t.keys = map[string]string{}
	}
	for _, d := range in.GetDisks() {
		if d.GetBoot() {
			t.bootDiskGB = d.GetInitializeParams().GetDiskSizeGb()
		}
	}
	for _, a := range in.GetGuestAccelerators() {
		if strings.Contains(api.Base(a.GetAcceleratorType()), "nvidia") {
			t.gpus += int64(a.GetAcceleratorCount())
		}
	}
	metadata := map[string]string{}
	for _, item := range in.GetMetadata().GetItems() {
		metadata[item.GetKey()] = item.GetValue()
	}
	maps.Copy(t.keys, metadata)
	t.readEnv(metadata)
	t.splitTaints()
	return t
}

// readEnv reads what the boot script is told of the node. The same things may stand
// in several places; those that cluster-autoscaler reads count most.
func (t *template) readEnv(metadata map[string]string) {
	t.env = map[string]string{}
	// It is the user's: one that cannot be read says nothing.
	_ = yaml.Unmarshal([]byte(metadata["kube-env"]), &t.env)
	auto := map[string]string{}
	for entry := range strings.SplitSeq(t.env["AUTOSCALER_ENV_VARS"], ";") {
		if key, value, ok := strings.Cut(entry, "="); ok {
			auto[key] = value
		}
	}
	for _, list := range []string{metadata["kube-labels"], t.env["NODE_LABELS"], auto["node_labels"]} {
		maps.Copy(t.labels, pairs(list))
	}
	for _, list := range []string{auto["node_taints"], t.env["NODE_TAINTS"]} {
		if t.taints = taints(list); len(t.taints) > 0 {
			break
		}
	}
	t.kubeReserved = amounts(auto["kube_reserved"])
	t.extended = amounts(auto["extended_resources"])
}

// startupTaints are prefixes of the taints that another component removes while a node starts.
var startupTaints = []string{"startup-taint.cluster-autoscaler.kubernetes.io/", "ignore-taint.cluster-autoscaler.kubernetes.io/"}

// splitTaints takes the startup taints from the others: those that the template declares, and
// those that cluster-autoscaler knows by their prefix.
func (t *template) splitTaints() {
	t.startup = taints(t.keys[keyStartup])
	declared := func(taint corev1.Taint) bool {
		return slices.ContainsFunc(t.startup, func(s corev1.Taint) bool { return s.Key == taint.Key && s.Effect == taint.Effect })
	}
	var kept []corev1.Taint
	for _, taint := range t.taints {
		switch {
		case declared(taint):
		case slices.ContainsFunc(startupTaints, func(prefix string) bool { return strings.HasPrefix(taint.Key, prefix) }):
			t.startup = append(t.startup, taint)
		default:
			kept = append(kept, taint)
		}
	}
	t.taints = kept
}

// amounts of a list such as cpu=40m,memory=1Gi; nil for none. What is no amount is
// the user's mistake, and says nothing.
func amounts(list string) corev1.ResourceList {
	var out corev1.ResourceList
	for name, amount := range pairs(list) {
		if q, err := resource.ParseQuantity(amount); err == nil {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[corev1.ResourceName(name)] = q
		}
	}
	return out
}

// pairs of a list such as a=b,c=d.
func pairs(list string) map[string]string {
	out := map[string]string{}
	for entry := range strings.SplitSeq(list, ",") {
		if key, value, _ := strings.Cut(strings.TrimSpace(entry), "="); key != "" {
			out[key] = value
		}
	}
	return out
}

// taints of a list such as key=value:NoSchedule,other=:NoExecute.
func taints(list string) (out []corev1.Taint) {
	for entry := range strings.SplitSeq(list, ",") {
		head, effect, ok := strings.Cut(strings.TrimSpace(entry), ":")
		if !ok {
			continue
		}
		key, value, _ := strings.Cut(head, "=")
		out = append(out, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return out
}

func (t *template) model() string {
	if t.provisioning == "" {
		return modelStandard
	}
	return t.provisioning
}

// capacityType is the market of the template's provisioning model. Flex-start
// machines stay until they are given back, within their seven days.
func (t *template) capacityType() v1alpha1.CapacityType {
	switch {
	case t.model() == modelSpot:
		return v1alpha1.Spot
	case t.model() == modelReservationBound || t.reserved:
		return v1alpha1.Reserved
	default:
		return v1alpha1.OnDemand
	}
}

// Keys of the metadata with which GKE says which cluster a node pool belongs to.
const (
	gkeCluster  = "cluster-name"
	gkeLocation = "cluster-location"
)

// isGKE says that the group is a node pool of GKE, which must own its machines.
func (t *template) isGKE() bool { return t.labels["cloud.google.com/gke-nodepool"] != "" }

// Labels of GKE's node pools whose machines GKE's autoscaler alone may ask for.
var gkeQueued = []string{"cloud.google.com/gke-queued", "cloud.google.com/gke-flex-start"}

// isFlexStart says that GKE alone gets machines for the node pool, on flex-start.
func (t *template) isFlexStart() bool {
	return t.isGKE() && (t.model() == modelFlexStart || slices.ContainsFunc(gkeQueued, func(key string) bool {
		return t.labels[key] == "true" || slices.ContainsFunc(t.taints, func(taint corev1.Taint) bool { return taint.Key == key })
	}))
}

// isAutoscaled says that GKE's own autoscaler looks after the node pool.
func (t *template) isAutoscaled() bool {
	return t.isGKE() && t.env["ENABLE_CLUSTER_AUTOSCALER"] == "true"
}

// nodeTemplate is what a node will look like.
func (t *template) nodeTemplate(shape *computepb.MachineType, zone string) v1alpha1.NodeTemplate {
	labels := maps.Clone(t.labels)
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
	gpu     corev1.ResourceName = "nvidia.com/gpu"
	gibi                        = 1 << 30
	mebi                        = 1 << 20
	hundred                     = 100
)

func (t *template) capacity(shape *computepb.MachineType) corev1.ResourceList {
	out := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(shape.GetGuestCpus()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(seen(int64(shape.GetMemoryMb())*mebi), resource.BinarySI),
	}
	if t.bootDiskGB > 0 {
		out[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(seen(t.bootDiskGB*gibi), resource.BinarySI)
	}
	if n, known := t.devices(shape); known && n > 0 {
		out[gpu] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	maps.Copy(out, t.extended) // what the template says itself is known best
	return out
}

// Labels of GKE's nodes whose GPUs are shared.
const (
	gkePartition = "cloud.google.com/gke-gpu-partition-size"
	gkeClients   = "cloud.google.com/gke-max-shared-clients-per-gpu"
)

// devices of machines of the type, as nodes offer them: GPUs, or where they are partitioned
// or shared, the places on them. They may be unknown until there is a node.
func (t *template) devices(shape *computepb.MachineType) (n int64, known bool) {
	n = t.gpusOf(shape)
	if size := t.labels[gkePartition]; size != "" && n > 0 {
		each := partitions(size, slices.ContainsFunc(shape.GetAccelerators(), func(a *computepb.Accelerators) bool {
			return a.GetGuestAcceleratorType() == "nvidia-tesla-a100"
		}))
		if each == 0 {
			return 0, false
		}
		n *= each
	}
	if clients := t.labels[gkeClients]; clients != "" {
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

// gpusOf machines of the type: those that it has, else those that the template adds.
func (t *template) gpusOf(shape *computepb.MachineType) (n int64) {
	for _, a := range shape.GetAccelerators() {
		if strings.Contains(a.GetGuestAcceleratorType(), "nvidia") {
			n += int64(a.GetGuestAcceleratorCount())
		}
	}
	return max(n, t.gpus)
}

// seen is what of a size the node sees: kernel, firmware and the file system keep up
// to a fiftieth, which no description tells.
func seen(bytes int64) int64 { return bytes - bytes/50 }

// allocatable is what is left for pods: of what the template reserves, else of what
// GKE does, which other clusters follow.
func (t *template) allocatable(capacity corev1.ResourceList) corev1.ResourceList {
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

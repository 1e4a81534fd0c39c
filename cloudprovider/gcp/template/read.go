package template

import (
	"maps"
	"slices"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Provisioning models of instances.
const (
	Standard         = "STANDARD"
	Spot             = "SPOT"
	FlexStart        = "FLEX_START"
	ReservationBound = "RESERVATION_BOUND"
)

// Template is what an instance template says of its nodes.
type Template struct {
	MachineType  string
	provisioning string
	reserved     bool
	// maintenance is what becomes of machines when their host is maintained; empty where the template does not say.
	Maintenance string
	// placed: the template names resource policies: a machine has one placement policy at most.
	Placed bool
	// reservation that the machines are bound to or consume, where the template names one.
	Reservation ReservationID
	// affinityKey is the key of the reservation affinity.
	AffinityKey string
	bootDiskGB  int64
	gpus        int64
	// keys are what the template says to Muster, by its metadata or its labels.
	Keys map[string]string
	// labels and taints of the nodes, as the boot script gives them. startup are the taints that
	// another component removes while a node starts.
	Labels          map[string]string
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

// sourceOf names the instance template of a link, with its project. Templates are never changed: a new version has a new name.
func sourceOf(link string) string {
	if _, path, full := strings.Cut(link, "/projects/"); full {
		return "projects/" + path
	}
	return link
}

func readTemplate(in *computepb.InstanceProperties) *Template {
	t := &Template{
		MachineType: api.Base(in.GetMachineType()), provisioning: in.GetScheduling().GetProvisioningModel(),
		reserved:    in.GetReservationAffinity().GetConsumeReservationType() == "SPECIFIC_RESERVATION",
		AffinityKey: in.GetReservationAffinity().GetKey(),
		Maintenance: in.GetScheduling().GetOnHostMaintenance(), Placed: len(in.GetResourcePolicies()) > 0,
		Keys: maps.Clone(in.GetLabels()), Labels: map[string]string{},
	}
	if t.Keys == nil {
		t.Keys = map[string]string{}
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
	maps.Copy(t.Keys, metadata)
	t.readEnv(metadata)
	t.splitTaints()
	return t
}

// readEnv reads the settings of the boot script that describe the node. A setting may be in several places; the one that
// cluster-autoscaler reads takes precedence.
func (t *Template) readEnv(metadata map[string]string) {
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
		maps.Copy(t.Labels, pairs(list))
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
// those that cluster-autoscaler recognizes by their prefix.
func (t *Template) splitTaints() {
	t.startup = taints(t.Keys[keyStartup])
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

func (t *Template) Model() string {
	if t.provisioning == "" {
		return Standard
	}
	return t.provisioning
}

// CapacityType is the capacity type of the template's provisioning model. Flex-start
// machines stay until they are terminated, within their seven days.
func (t *Template) CapacityType() v1alpha1.CapacityType {
	switch {
	case t.Model() == Spot:
		return v1alpha1.Spot
	case t.Model() == ReservationBound || t.reserved:
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

// IsGKE says that the group is a node pool of GKE, which must own its machines.
func (t *Template) IsGKE() bool { return t.Labels["cloud.google.com/gke-nodepool"] != "" }

// Labels of GKE's node pools whose machines GKE's autoscaler alone may request.
var gkeQueued = []string{"cloud.google.com/gke-queued", "cloud.google.com/gke-flex-start"}

// IsFlexStart says that GKE alone gets machines for the node pool, on flex-start.
func (t *Template) IsFlexStart() bool {
	return t.IsGKE() && (t.Model() == FlexStart || slices.ContainsFunc(gkeQueued, func(key string) bool {
		return t.Labels[key] == "true" || slices.ContainsFunc(t.taints, func(taint corev1.Taint) bool { return taint.Key == key })
	}))
}

// IsAutoscaled reports whether GKE's own autoscaler manages the node pool.
func (t *Template) IsAutoscaled() bool {
	return t.IsGKE() && t.env["ENABLE_CLUSTER_AUTOSCALER"] == "true"
}

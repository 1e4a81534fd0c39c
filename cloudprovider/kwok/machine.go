package kwok

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/kwok/pool"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// maxPrefix keeps names within 63 characters, since a node's name is also the
// value of its hostname label.
const maxPrefix = 45

// machineName returns the name of the machine and of its node.
func machineName(group, token string, place int) string {
	prefix := strings.ReplaceAll(group[:min(len(group), maxPrefix)], ".", "-")
	return fmt.Sprintf("%s-%s-%d", prefix, hash(group, token), place)
}

// hash returns 10 characters (50 bits) that are valid in names and label values.
func hash(group, token string) string {
	sum := sha256.Sum256([]byte(group + "\x00" + token))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:10])
}

func newMachine(group *v1alpha1.NodeGroup, token string, place int, fate pool.Machine, now time.Time) *kwokv1alpha1.Machine {
	name := machineName(group.Name, token, place)
	m := &kwokv1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				v1alpha1.NodeGroupLabel:  group.Name,
				kwokv1alpha1.LaunchLabel: hash(group.Name, token),
			},
		},
		Spec: kwokv1alpha1.MachineSpec{
			Group:        group.Name,
			Launch:       token,
			Ordinal:      fate.Ordinal,
			LaunchedAt:   metav1.NewMicroTime(now),
			BootDelay:    metav1.Duration{Duration: fate.BootDelay},
			DieAfter:     duration(fate.DieAfter),
			ReclaimAfter: duration(fate.ReclaimAfter),
			Node:         newNode(group, name, token),
		},
	}
	m.Spec.Node.DeviceDelay, m.Spec.Node.DevicesVanish = metav1.Duration{Duration: fate.DeviceDelay}, fate.Vanishes
	if pools := devicesOf(group); len(pools) > 0 {
		m.Spec.Node.Annotations[kwokv1alpha1.ClaimableAnnotation] = kwokv1alpha1.Claimable{
			Pools: pools, Delay: m.Spec.Node.DeviceDelay, Vanish: fate.Vanishes,
		}.Annotation()
	}
	fate.Label(m)
	return m
}

// devicesOf returns the devices that drivers publish for machines of the pool.
func devicesOf(group *v1alpha1.NodeGroup) []v1alpha1.DevicePool {
	if k := group.Spec.Kwok; k != nil && len(k.Devices) > 0 {
		return k.Devices
	}
	return group.Spec.Template.Devices
}

// newNode returns the node that the machine will register: cordoned, unless it is launched for pending pods.
func newNode(group *v1alpha1.NodeGroup, name, token string) kwokv1alpha1.MachineNode {
	template := group.Spec.Template
	node := kwokv1alpha1.MachineNode{
		Labels:      nodegroups.Labels(group),
		Annotations: map[string]string{v1alpha1.LaunchAnnotation: token},
		Taints:      slices.Concat(template.Taints, template.StartupTaints),
		Capacity:    corev1.ResourceList{},
		Allocatable: corev1.ResourceList{},
		Devices:     corev1.ResourceList{},
	}
	node.Labels[corev1.LabelHostname] = name
	if group.Spec.ScaledBy != v1alpha1.ScaledByClusterAutoscaler {
		node.Unschedulable = true
		node.Labels[v1alpha1.HeldLabel] = "true"
		node.Annotations[v1alpha1.CordonedAnnotation] = v1alpha1.CordonJoining
		node.Annotations[v1alpha1.ScaleDownDisabledAnnotation] = "true"
		node.Annotations[v1alpha1.KeptAnnotation] = "true"
	}
	allocatable := nodegroups.Allocatable(template)
	for name, amount := range nodegroups.Capacity(template) {
		if nodegroups.Extended(name) {
			node.Devices[name] = allocatable[name]
			node.Labels[kwokv1alpha1.DevicesLabel] = "true"
		} else {
			node.Capacity[name], node.Allocatable[name] = amount, allocatable[name]
		}
	}
	return node
}

// observed converts a machine to the form of package cloudprovider.
func observed(m *kwokv1alpha1.Machine) cloudprovider.Machine {
	out := cloudprovider.Machine{
		Name:       m.Name,
		Group:      m.Spec.Group,
		Launch:     m.Spec.Launch,
		ProviderID: fmt.Sprintf("kwok://%s/%s", m.Spec.Group, m.Name),
		Started:    m.CreationTimestamp.Time,
		Reason:     m.Status.Reason,
	}
	switch m.Status.Phase {
	case kwokv1alpha1.MachineRunning:
		out.State = cloudprovider.Running
	case kwokv1alpha1.MachineTerminated:
		out.State = cloudprovider.Terminated
	default:
		out.State = cloudprovider.Booting
	}
	return out
}

func duration(d *time.Duration) *metav1.Duration {
	if d == nil {
		return nil
	}
	return &metav1.Duration{Duration: *d}
}

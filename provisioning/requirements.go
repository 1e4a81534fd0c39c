package provisioning

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/muster-dev/muster/nodegroups"
)

// requirements are what a pod of a podSet asks of a node.
type requirements struct {
	name     string
	count    int
	requests nodegroups.Resources
	// affinity joins the node selector and the required node affinity.
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
}

// require reads a podSet. The reason is not empty when the pods use a feature
// that Muster cannot judge: it never guesses that such pods fit.
func require(ps PodSet) (requirements, string) {
	spec := &ps.Template.Spec
	if feature := unsupported(spec); feature != "" {
		return requirements{}, fmt.Sprintf("podSet %s uses %s, which Muster cannot judge yet: leave it out or schedule these pods without a request", ps.Name, feature)
	}
	pod := &corev1.Pod{Spec: *spec}
	return requirements{
		name:        ps.Name,
		count:       ps.Count,
		requests:    TemplateRequests(spec),
		affinity:    nodeaffinity.GetRequiredNodeAffinity(pod),
		tolerations: spec.Tolerations,
	}, ""
}

// unsupported names the first feature of the pod that plans do not understand,
// or is empty.
func unsupported(spec *corev1.PodSpec) string {
	switch {
	case spec.NodeName != "":
		return "spec.nodeName (the pod passes by the scheduler)"
	case len(spec.ResourceClaims) > 0:
		return "spec.resourceClaims (dynamic resource allocation)"
	case slices.ContainsFunc(spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable != corev1.ScheduleAnyway
	}):
		return "spec.topologySpreadConstraints with whenUnsatisfiable DoNotSchedule"
	case spec.Affinity != nil && spec.Affinity.PodAffinity != nil &&
		len(spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0:
		return "a required spec.affinity.podAffinity"
	case spec.Affinity != nil && spec.Affinity.PodAntiAffinity != nil &&
		len(spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0:
		return "a required spec.affinity.podAntiAffinity"
	}
	for _, v := range spec.Volumes {
		if v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return fmt.Sprintf("volume %s of a persistent volume claim", v.Name)
		}
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for _, c := range list {
			for _, p := range c.Ports {
				if p.HostPort != 0 || spec.HostNetwork {
					return fmt.Sprintf("a host port of container %s", c.Name)
				}
			}
		}
	}
	return ""
}

// mismatch says why a pod may not run on a node of these labels and taints, or
// is empty. A cordon of Muster's own does not count: pods of a booking tolerate it.
func (r *requirements) mismatch(name string, labels map[string]string, taints []corev1.Taint) string {
	node := &corev1.Node{}
	node.Name, node.Labels = name, labels
	switch ok, err := r.affinity.Match(node); {
	case err != nil:
		return fmt.Sprintf("the node affinity of podSet %s cannot be read: %v", r.name, err)
	case !ok:
		return fmt.Sprintf("the node selector or affinity of podSet %s does not match its labels", r.name)
	}
	if t, found := untolerated(taints, r.tolerations); found {
		return fmt.Sprintf("podSet %s does not tolerate its taint %s", r.name, t.ToString())
	}
	return ""
}

// untolerated finds a taint that keeps pods off, other than that of a cordon.
func untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) (corev1.Taint, bool) {
	return schedulinghelpers.FindMatchingUntoleratedTaint(klog.Logger{}, taints, tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && t.Key != corev1.TaintNodeUnschedulable
	}, noComparisonOperators)
}

// noComparisonOperators: the operators Gt and Lt of tolerations are behind a
// feature gate of the scheduler that is off by default.
const noComparisonOperators = false

// daemonTolerations are those that every DaemonSet's pods get from their
// controller, beside that of a cordon.
var daemonTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// RunsOn says whether the DaemonSet puts a pod on a node of these labels and
// taints.
func (d *DaemonSet) RunsOn(name string, labels map[string]string, taints []corev1.Taint) bool {
	r := requirements{
		affinity:    nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: d.Template.Spec}),
		tolerations: slices.Concat(d.Template.Spec.Tolerations, daemonTolerations),
	}
	return r.mismatch(name, labels, taints) == ""
}

// shape is what the gang's pods can use of one new machine of a group: its
// allocatable amounts, less what DaemonSets will take there.
func shape(g *nodegroups.Group, daemonSets []DaemonSet) nodegroups.Resources {
	left := g.Allocatable.Clone()
	for i := range daemonSets {
		if d := &daemonSets[i]; d.RunsOn("", g.Labels, g.Taints) {
			left.Sub(TemplateRequests(&d.Template.Spec), 1)
		}
	}
	return left
}

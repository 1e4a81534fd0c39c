package oracle

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

const (
	zoneKey = corev1.LabelTopologyZone
	rackKey = "example.com/rack"
	sizeKey = "example.com/size"
	appKey  = "app"
	// revisionKey is a second label of pods.
	revisionKey = "revision"

	gpu       = corev1.ResourceName("nvidia.com/gpu")
	hugePages = corev1.ResourceName("hugepages-2Mi")

	// A gang has at most so many podSets, of at most so many pods.
	maxSets  = 3
	maxCount = 4
)

// world is a random cluster with a gang.
type world struct {
	nodes []*corev1.Node
	// running pods, each on a node.
	running []*corev1.Pod
	sets    []*podSet
	// met are the traits that all pods of the gang meet here.
	met []string
}

// podSet of a world's gang.
type podSet struct {
	count    int
	template *corev1.PodTemplateSpec
	// traits of the template.
	traits []string
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

func podName(set, n int) string { return fmt.Sprintf("set%d-%d", set, n) }

// newWorld has one podSet of one pod, or several.
func newWorld(c choices, gang bool) *world {
	w := &world{}
	for i := range 3 + c.pick(4) {
		w.nodes = append(w.nodes, w.newNode(c, i))
	}
	for i := range c.pick(2 * len(w.nodes)) {
		w.running = append(w.running, w.newRunning(c, i))
	}
	// Some gangs do nothing but spread, so that the balance tips often.
	even, topology := gang && rarely(c, 6), topologyKey(c)
	if even {
		w.meet("even gang")
	}
	sets := 1
	if gang {
		sets += c.pick(maxSets)
	}
	for range sets {
		s := &podSet{count: 1, template: plainTemplate(c)}
		if gang {
			s.count += c.pick(maxCount)
		}
		if even {
			s.spread(topology)
			w.sets = append(w.sets, s)
			continue
		}
		for range 1 + c.pick(3) {
			s.add(c, judgedFeatures)
		}
		if rarely(c, 10) {
			s.add(c, refusedFeatures)
		}
		w.sets = append(w.sets, s)
	}
	if gang && rarely(c, 12) {
		w.shareClaim()
	}
	return w
}

// spread makes the podSet one of many small pods that spread evenly.
func (s *podSet) spread(topology string) {
	s.count = maxCount
	s.template.Labels = map[string]string{appKey: "x"}
	s.template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	s.template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		TopologyKey: topology, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{appKey: "x"}},
	}}
}

// shareClaim gives all podSets, one pod each, the claim that only one pod may use.
func (w *world) shareClaim() {
	w.meet("claim of another podSet")
	for _, s := range w.sets {
		s.count = 1
		addVolume(s.template, claimVolume("single"))
	}
}

func (s *podSet) add(c choices, from []feature) {
	f := from[c.pick(len(from))]
	f.add(c, s.template)
	s.traits = append(s.traits, f.trait)
}

func (w *world) meet(trait string) { w.met = append(w.met, trait) }

func (w *world) newNode(c choices, i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{}}}
	if !rarely(c, 12) {
		n.Labels[corev1.LabelHostname] = n.Name
	}
	if !rarely(c, 8) {
		n.Labels[zoneKey] = oneOf(c, "a", "b", "c")
	}
	if rarely(c, 6) {
		n.Labels[corev1.LabelTopologyRegion] = "r"
	}
	if rarely(c, 6) {
		n.Labels[corev1.LabelFailureDomainBetaZone] = oneOf(c, "a", "b", "c")
	}
	if c.pick(3) > 0 {
		n.Labels[rackKey] = oneOf(c, "1", "2")
	}
	if c.pick(3) > 0 {
		n.Labels[sizeKey] = oneOf(c, "4", "8", "16", "large")
	}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewMilliQuantity(int64(2000+500*c.pick(8)), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(int64(2+c.pick(6))<<30, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(int64(1+c.pick(3))<<30, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(int64(6-c.pick(5)), resource.DecimalSI),
	}
	if c.pick(3) > 0 {
		n.Status.Allocatable[gpu] = *resource.NewQuantity(int64(c.pick(5)), resource.DecimalSI)
	}
	if c.pick(2) > 0 {
		n.Status.Allocatable[hugePages] = *resource.NewQuantity(int64(c.pick(4))<<21, resource.BinarySI)
	}
	if rarely(c, 6) {
		n.Spec.Unschedulable = true
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
		w.meet("cordon")
	}
	if rarely(c, 4) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "gpu", Value: oneOf(c, "", "h100"),
			Effect: oneOf(c, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule)})
	}
	if rarely(c, 8) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "level", Value: "5", Effect: corev1.TaintEffectNoSchedule})
	}
	return n
}

// newRunning is a pod as the API server has it, on a node.
func (w *world) newRunning(c choices, i int) *corev1.Pod {
	name := fmt.Sprintf("running-%d", i)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: oneOf(c, team, team, "other", "third"), Name: name, UID: uid(name),
		Labels: podLabels(c)}}
	p.Spec.NodeName = w.nodes[c.pick(len(w.nodes))].Name
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewMilliQuantity(int64(500*c.pick(3)), resource.DecimalSI),
	}}}}
	if rarely(c, 8) {
		p.Spec.Containers[0].Resources.Requests[gpu] = *resource.NewQuantity(int64(c.pick(3)), resource.DecimalSI)
	}
	if rarely(c, 8) {
		p.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
		w.meet("terminating")
	}
	if rarely(c, 8) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{hostPort(c)}
		w.meet("host port of a running pod")
	}
	if rarely(c, 6) {
		t := podAffinityTerm(c)
		if rarely(c, 6) {
			t.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: corev1.LabelMetadataName, Operator: oneOf(c, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn),
				Values: []string{oneOf(c, team, "other")},
			}}}
		}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{t}}}
		w.meet("anti-affinity of a running pod")
		if t.NamespaceSelector != nil {
			w.meet("namespaces of a running pod")
		}
	}
	if rarely(c, 8) && p.Namespace == team {
		p.Spec.Volumes = []corev1.Volume{claimVolume(oneOf(c, "single", "bound-a", "loose-single"))}
		w.meet("claim of a running pod")
	}
	if rarely(c, 8) {
		resize(c, p)
		w.meet("resize of a running pod")
	}
	return p
}

// resize makes the pod one that is between two sizes, by container or as a whole.
func resize(c choices, p *corev1.Pod) {
	cpu := func() corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(500*c.pick(5)), resource.DecimalSI)}
	}
	if c.pick(2) > 0 {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu()}
		p.Status.Resources = &corev1.ResourceRequirements{Requests: cpu()}
		p.Status.AllocatedResources = cpu()
	} else {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResources: cpu(),
			Resources: &corev1.ResourceRequirements{Requests: cpu()}}}
	}
	if c.pick(2) > 0 {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
			Reason: oneOf(c, corev1.PodReasonInfeasible, corev1.PodReasonDeferred)}}
	}
}

// podLabels are few, so that selectors meet them often.
func podLabels(c choices) map[string]string {
	l := map[string]string{}
	if c.pick(4) > 0 {
		l[appKey] = oneOf(c, "x", "y")
	}
	if c.pick(2) > 0 {
		l[revisionKey] = strconv.Itoa(1 + c.pick(2))
	}
	return l
}

func plainTemplate(c choices) *corev1.PodTemplateSpec {
	t := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: podLabels(c)}}
	t.Spec.Containers = []corev1.Container{newContainer("main")}
	t.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewMilliQuantity(int64(500*c.pick(4)), resource.DecimalSI),
	}
	if rarely(c, 3) {
		t.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	return t
}

func newContainer(name string) corev1.Container {
	return corev1.Container{Name: name, Image: "i", ImagePullPolicy: corev1.PullAlways,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile}
}

func claimVolume(claim string) corev1.Volume {
	return corev1.Volume{Name: claim,
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}

// String is the world as manifests.
func (w *world) String() string {
	var b strings.Builder
	show := func(title string, o any) {
		text, err := yaml.Marshal(o)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&b, "--- %s\n%s", title, text)
	}
	for i, s := range w.sets {
		show(fmt.Sprintf("set%d: %d pods with %v", i, s.count, s.traits), s.template)
	}
	for _, n := range w.nodes {
		show("node", n)
	}
	for _, p := range w.running {
		show("running pod", p)
	}
	return b.String()
}

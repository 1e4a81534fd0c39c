package oracle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-dev/muster/provisioning/fit"
)

// feature is something that a template may have.
type feature struct {
	trait string
	// plugin of the scheduler that judges it.
	plugin string
	// refused says how fit refuses it, if it does, and field by which field.
	refused fit.RefusalKind
	field   string
	add     func(c choices, t *corev1.PodTemplateSpec)
}

// ofWorlds are the traits that templates do not have, with their plugins.
var ofWorlds = map[string]string{
	"terminating":                    "PodTopologySpread",
	"host port of a running pod":     "NodePorts",
	"anti-affinity of a running pod": "InterPodAffinity",
	"namespaces of a running pod":    "InterPodAffinity",
	"claim of a running pod":         "VolumeRestrictions",
	"claim of another podSet":        "VolumeRestrictions",
	"resize of a running pod":        "NodeResourcesFit",
	"even gang":                      "PodTopologySpread",
	"booked nodes":                   "PodTopologySpread",
	"more nodes":                     "PodTopologySpread",
	"given back":                     "PodTopologySpread",
}

// judgedFeatures fit must judge as the scheduler does, refusedFeatures refuse.
var judgedFeatures, refusedFeatures = allFeatures()

func allFeatures() (yes, no []feature) {
	judged := func(plugin, trait string, add func(choices, *corev1.PodTemplateSpec)) {
		yes = append(yes, feature{trait: trait, plugin: plugin, add: add})
	}
	refused := func(kind fit.RefusalKind, field, trait string, add func(choices, *corev1.PodTemplateSpec)) {
		no = append(no, feature{trait: trait, refused: kind, field: field, add: add})
	}
	resourceFeatures(judged)
	nodeFeatures(judged)
	portFeatures(judged)
	volumeFeatures(judged, refused)
	podFeatures(judged, refused)
	spreadFeatures(judged, refused)
	otherFeatures(refused)
	return yes, no
}

type (
	judgedFunc  func(plugin, trait string, add func(choices, *corev1.PodTemplateSpec))
	refusedFunc func(kind fit.RefusalKind, field, trait string, add func(choices, *corev1.PodTemplateSpec))
)

func cpu(milli int) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(milli), resource.DecimalSI)}
}

func resourceFeatures(judged judgedFunc) {
	const plugin = "NodeResourcesFit"
	judged(plugin, "requests", func(c choices, t *corev1.PodTemplateSpec) {
		request(t, corev1.ResourceMemory, *resource.NewQuantity(int64(c.pick(6))<<30, resource.BinarySI))
		request(t, corev1.ResourceEphemeralStorage, *resource.NewQuantity(int64(c.pick(4))<<30, resource.BinarySI))
	})
	judged(plugin, "fractions", func(c choices, t *corev1.PodTemplateSpec) {
		t.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		request(t, corev1.ResourceCPU, resource.MustParse(oneOf(c, "1999500u", "2000100u", "2", "2500100u")))
	})
	judged(plugin, "init container", func(c choices, t *corev1.PodTemplateSpec) {
		i := newContainer("init")
		i.Resources.Requests = cpu(500 * c.pick(8))
		addInit(t, i)
	})
	judged(plugin, "init container with limits alone", func(c choices, t *corev1.PodTemplateSpec) {
		i := newContainer("init-limits")
		i.Resources.Limits = cpu(500 * (1 + c.pick(8)))
		addInit(t, i)
	})
	judged(plugin, "sidecar", func(c choices, t *corev1.PodTemplateSpec) {
		i := newContainer("sidecar")
		i.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		i.Resources.Requests = cpu(500 * c.pick(6))
		addInit(t, i)
	})
	judged(plugin, "overhead", func(c choices, t *corev1.PodTemplateSpec) { t.Spec.Overhead = cpu(500 * c.pick(6)) })
	judged(plugin, "limits alone", func(c choices, t *corev1.PodTemplateSpec) {
		t.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: cpu(500 * (1 + c.pick(8)))}
	})
	judged(plugin, "resources of the pod", func(c choices, t *corev1.PodTemplateSpec) {
		t.Spec.Resources = &corev1.ResourceRequirements{Limits: cpu(3000 + 500*c.pick(4))}
		if c.pick(2) > 0 {
			t.Spec.Resources.Requests = cpu(1500 + 500*c.pick(3))
		}
		t.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		if c.pick(2) > 0 {
			t.Spec.Containers[0].Resources.Requests = cpu(500 * c.pick(3))
		}
		if c.pick(2) > 0 {
			t.Spec.Containers[0].Resources.Limits = corev1.ResourceList{hugePages: *resource.NewQuantity(1<<21, resource.BinarySI)}
		}
	})
	judged(plugin, "extended resource", func(c choices, t *corev1.PodTemplateSpec) {
		q := *resource.NewQuantity(int64(c.pick(5)), resource.DecimalSI)
		setBoth(t, gpu, q)
	})
	judged(plugin, "huge pages", func(c choices, t *corev1.PodTemplateSpec) {
		setBoth(t, hugePages, *resource.NewQuantity(int64(1+c.pick(3))<<21, resource.BinarySI))
	})
	judged(plugin, "nothing asked for", func(_ choices, t *corev1.PodTemplateSpec) {
		t.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	})
}

// request adds to the requests of the first container, under its limits.
func request(t *corev1.PodTemplateSpec, name corev1.ResourceName, q resource.Quantity) {
	r := &t.Spec.Containers[0].Resources
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	r.Requests[name] = q
}

// setBoth sets request and limit: they must be equal for what cannot be shared.
func setBoth(t *corev1.PodTemplateSpec, name corev1.ResourceName, q resource.Quantity) {
	r := &t.Spec.Containers[0].Resources
	if r.Limits == nil {
		r.Limits = corev1.ResourceList{}
	}
	r.Limits[name] = q
	if r.Requests != nil {
		r.Requests[name] = q
	}
}

func addInit(t *corev1.PodTemplateSpec, c corev1.Container) {
	c.Name = fmt.Sprintf("%s-%d", c.Name, len(t.Spec.InitContainers))
	t.Spec.InitContainers = append(t.Spec.InitContainers, c)
}

func nodeFeatures(judged judgedFunc) {
	const plugin = "NodeAffinity"
	selects := func(key string, value func(choices) string) func(choices, *corev1.PodTemplateSpec) {
		return func(c choices, t *corev1.PodTemplateSpec) {
			if t.Spec.NodeSelector == nil {
				t.Spec.NodeSelector = map[string]string{}
			}
			t.Spec.NodeSelector[key] = value(c)
		}
	}
	judged(plugin, "node selector", selects(zoneKey, func(c choices) string { return oneOf(c, "a", "b") }))
	judged(plugin, "host name selector", selects(corev1.LabelHostname, func(c choices) string { return nodeName(c.pick(4)) }))
	term := func(add func(c choices, t *corev1.NodeSelectorTerm)) func(choices, *corev1.PodTemplateSpec) {
		return func(c choices, t *corev1.PodTemplateSpec) {
			terms := nodeTerms(t)
			if len(*terms) > 0 && c.pick(2) > 0 {
				add(c, &(*terms)[0])
				return
			}
			var n corev1.NodeSelectorTerm
			add(c, &n)
			*terms = append(*terms, n)
		}
	}
	expr := func(key string, op corev1.NodeSelectorOperator, values func(choices) []string) func(choices, *corev1.PodTemplateSpec) {
		return term(func(c choices, t *corev1.NodeSelectorTerm) {
			t.MatchExpressions = append(t.MatchExpressions, corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values(c)})
		})
	}
	none := func(choices) []string { return nil }
	zones := func(c choices) []string { return oneOf(c, []string{"a"}, []string{"a", "b"}, []string{"c"}) }
	judged(plugin, "affinity In", expr(zoneKey, corev1.NodeSelectorOpIn, zones))
	judged(plugin, "affinity NotIn", expr(zoneKey, corev1.NodeSelectorOpNotIn, zones))
	judged(plugin, "affinity Exists", expr(rackKey, corev1.NodeSelectorOpExists, none))
	judged(plugin, "affinity DoesNotExist", expr(rackKey, corev1.NodeSelectorOpDoesNotExist, none))
	judged(plugin, "affinity Gt", expr(sizeKey, corev1.NodeSelectorOpGt, func(choices) []string { return []string{"7"} }))
	judged(plugin, "affinity Lt", expr(sizeKey, corev1.NodeSelectorOpLt, func(choices) []string { return []string{"9"} }))
	hosts := func(c choices) []string { return []string{nodeName(c.pick(3)), nodeName(3 + c.pick(2))} }
	judged(plugin, "affinity to host names", expr(corev1.LabelHostname, corev1.NodeSelectorOpIn, hosts))
	judged(plugin, "affinity off host names", expr(corev1.LabelHostname, corev1.NodeSelectorOpNotIn, hosts))
	judged(plugin, "affinity to any host name", expr(corev1.LabelHostname, corev1.NodeSelectorOpExists, none))
	field := func(op corev1.NodeSelectorOperator) func(choices, *corev1.PodTemplateSpec) {
		return term(func(c choices, t *corev1.NodeSelectorTerm) {
			t.MatchFields = append(t.MatchFields, corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: op,
				Values: []string{nodeName(c.pick(4))}})
		})
	}
	judged(plugin, "affinity off a name", field(corev1.NodeSelectorOpNotIn))
	judged("PreFilterResult", "affinity to a name", field(corev1.NodeSelectorOpIn))
	judged(plugin, "affinity to nothing", term(func(choices, *corev1.NodeSelectorTerm) {}))

	tolerates := func(tol func(choices) corev1.Toleration) func(choices, *corev1.PodTemplateSpec) {
		return func(c choices, t *corev1.PodTemplateSpec) { t.Spec.Tolerations = append(t.Spec.Tolerations, tol(c)) }
	}
	judged("TaintToleration", "toleration of a key", func(c choices, t *corev1.PodTemplateSpec) {
		t.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists,
			Effect: oneOf(c, "", corev1.TaintEffectNoSchedule)}}
	})
	judged("TaintToleration", "toleration of a value", func(c choices, t *corev1.PodTemplateSpec) {
		t.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: oneOf(c, corev1.TolerationOpEqual, ""), Value: oneOf(c, "", "h100")}}
	})
	judged("TaintToleration", "toleration of another", tolerates(func(choices) corev1.Toleration {
		return corev1.Toleration{Key: "level", Operator: corev1.TolerationOpEqual, Value: "5", Effect: corev1.TaintEffectNoSchedule}
	}))
	judged("TaintToleration", "no toleration", func(_ choices, t *corev1.PodTemplateSpec) { t.Spec.Tolerations = nil })
}

func nodeTerms(t *corev1.PodTemplateSpec) *[]corev1.NodeSelectorTerm {
	a := affinity(t)
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}
	}
	return &a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

func affinity(t *corev1.PodTemplateSpec) *corev1.Affinity {
	if t.Spec.Affinity == nil {
		t.Spec.Affinity = &corev1.Affinity{}
	}
	return t.Spec.Affinity
}

func hostPort(c choices) corev1.ContainerPort {
	return corev1.ContainerPort{
		ContainerPort: 80, HostPort: int32(80 + c.pick(2)),
		Protocol: oneOf(c, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP),
		HostIP:   oneOf(c, "", "10.0.0.1", "10.0.0.2", "0.0.0.0"),
	}
}

func portFeatures(judged judgedFunc) {
	const plugin = "NodePorts"
	judged(plugin, "host port", func(c choices, t *corev1.PodTemplateSpec) {
		if t.Spec.HostNetwork {
			return
		}
		p := hostPort(c)
		p.Protocol = oneOf(c, p.Protocol, "")
		t.Spec.Containers[0].Ports = []corev1.ContainerPort{p}
	})
	judged(plugin, "host port of a sidecar", func(c choices, t *corev1.PodTemplateSpec) {
		if t.Spec.HostNetwork {
			return
		}
		i := newContainer("ports")
		i.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		i.Ports = []corev1.ContainerPort{hostPort(c)}
		addInit(t, i)
	})
	judged(plugin, "host network", func(c choices, t *corev1.PodTemplateSpec) {
		for i := range t.Spec.InitContainers {
			t.Spec.InitContainers[i].Ports = nil
		}
		t.Spec.HostNetwork = true
		t.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: int32(80 + c.pick(2))}}
		i := newContainer("init-port")
		i.Ports = []corev1.ContainerPort{{ContainerPort: 81}}
		addInit(t, i)
	})
}

func volumeFeatures(judged judgedFunc, refused refusedFunc) {
	uses := func(claims ...string) func(choices, *corev1.PodTemplateSpec) {
		return func(c choices, t *corev1.PodTemplateSpec) { addVolume(t, claimVolume(oneOf(c, claims...))) }
	}
	judged("VolumeBinding", "bound claim", uses("bound-a", "bound-terms", "bound-host", "bound-anywhere", "bound-fields"))
	judged("VolumeZone", "claim in zones", uses("zone-label", "zones-label", "beta-label", "gap-label"))
	judged("VolumeBinding", "loose claim", uses("loose-wait-a", "loose-wait-ab", "loose-wait", "loose-old"))
	judged("VolumeBinding", "selected claim", uses("selected"))
	judged("VolumeRestrictions", "single claim", func(c choices, t *corev1.PodTemplateSpec) { uses("single", "loose-single")(c, t) })
	own := func(class string) func(choices, *corev1.PodTemplateSpec) {
		return func(_ choices, t *corev1.PodTemplateSpec) {
			addVolume(t, corev1.Volume{Name: "own-" + class, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				}},
			}}})
		}
	}
	judged("VolumeBinding", "ephemeral volume", own("wait-a"))

	refused(fit.Unsupported, "spec.volumes[", "claim that the scheduler looks for", uses("loose-static"))
	refused(fit.Unsupported, "spec.volumes[", "claim with limits", uses("limited-bound", "loose-limited", "loose-old-limited"))
	refused(fit.Unsupported, "spec.volumes[", "claim with tracked capacity", uses("loose-tracked"))
	refused(fit.Unsupported, "spec.volumes[", "volume of old", uses("old-bound"))
	refused(fit.Unsupported, "spec.volumes[", "ephemeral volume with limits", own("limited"))
	refused(fit.Unready, "spec.volumes[", "claim that is not there", uses("nobody"))
	refused(fit.Unready, "spec.volumes[", "claim to be bound", uses("loose-now", "loose-gone", "loose-classless", "half-bound"))
	refused(fit.Unready, "spec.volumes[", "claim in trouble", uses("deleting", "lost", "volume-gone"))
	disk := func(source corev1.VolumeSource) func(choices, *corev1.PodTemplateSpec) {
		return func(_ choices, t *corev1.PodTemplateSpec) {
			addVolume(t, corev1.Volume{Name: fmt.Sprintf("disk-%d", len(t.Spec.Volumes)), VolumeSource: source})
		}
	}
	refused(fit.Unsupported, "spec.volumes[", "disk of AWS",
		disk(corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "v"}}))
	refused(fit.Unsupported, "spec.volumes[", "disk of Google",
		disk(corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "v"}}))
	refused(fit.Unsupported, "spec.volumes[", "disk by iSCSI", disk(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "p",
		IQN: "iqn.2014-12.com.example:a", Lun: 1}}))
	refused(fit.Unsupported, "spec.volumes[", "disk of Ceph",
		disk(corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{CephMonitors: []string{"m"}, RBDImage: "i"}}))
}

func addVolume(t *corev1.PodTemplateSpec, v corev1.Volume) {
	for _, have := range t.Spec.Volumes {
		if have.Name == v.Name {
			return
		}
	}
	t.Spec.Volumes = append(t.Spec.Volumes, v)
}

// podAffinityTerm selects pods by their labels. Its namespaces vary. No namespace selector has only negative requirements: in a new pod's
// own terms, the scheduler v1.37.2 treats such a selector as one that selects all namespaces.
func podAffinityTerm(c choices) corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{TopologyKey: topologyKey(c), LabelSelector: podSelector(c)}
	switch c.pick(6) {
	case 3:
		t.Namespaces = []string{"other", team}[c.pick(2):]
	case 4:
		t.NamespaceSelector = &metav1.LabelSelector{}
	case 5:
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": oneOf(c, "gold", "tin", "none")}}
		if c.pick(2) > 0 {
			t.Namespaces = []string{"third"}
		}
	}
	return t
}

func topologyKey(c choices) string { return oneOf(c, zoneKey, corev1.LabelHostname, rackKey) }

func podSelector(c choices) *metav1.LabelSelector {
	switch c.pick(8) {
	case 5:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: revisionKey,
			Operator: oneOf(c, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}}}
	case 6:
		return &metav1.LabelSelector{}
	case 7:
		return nil
	default:
		return &metav1.LabelSelector{MatchLabels: map[string]string{appKey: oneOf(c, "x", "y")}}
	}
}

// isSelectorOfNamespaces says whether a term selects some namespaces by their labels.
func isSelectorOfNamespaces(t *corev1.PodAffinityTerm) bool {
	return t.NamespaceSelector != nil && len(t.NamespaceSelector.MatchLabels)+len(t.NamespaceSelector.MatchExpressions) > 0
}

func podFeatures(judged judgedFunc, refused refusedFunc) {
	const plugin = "InterPodAffinity"
	attract := func(t *corev1.PodTemplateSpec, term corev1.PodAffinityTerm) {
		a := affinity(t)
		if a.PodAffinity == nil {
			a.PodAffinity = &corev1.PodAffinity{}
		}
		terms := &a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		*terms = append(*terms, term)
	}
	repel := func(t *corev1.PodTemplateSpec, term corev1.PodAffinityTerm) {
		a := affinity(t)
		if a.PodAntiAffinity == nil {
			a.PodAntiAffinity = &corev1.PodAntiAffinity{}
		}
		terms := &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		*terms = append(*terms, term)
	}
	self := func(c choices, t *corev1.PodTemplateSpec) corev1.PodAffinityTerm {
		t.Labels[appKey] = "x"
		return corev1.PodAffinityTerm{TopologyKey: topologyKey(c),
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{appKey: "x"}}}
	}
	keys := func(c choices, t *corev1.PodTemplateSpec) corev1.PodAffinityTerm {
		term := self(c, t)
		t.Labels[revisionKey] = "1"
		if c.pick(2) > 0 {
			term.MatchLabelKeys = []string{revisionKey}
		} else {
			term.MismatchLabelKeys = []string{revisionKey}
		}
		return term
	}
	judged(plugin, "affinity to pods", func(c choices, t *corev1.PodTemplateSpec) {
		term := podAffinityTerm(c)
		if isSelectorOfNamespaces(&term) {
			term.NamespaceSelector = &metav1.LabelSelector{}
		}
		attract(t, term)
	})
	judged(plugin, "affinity to its own", func(c choices, t *corev1.PodTemplateSpec) { attract(t, self(c, t)) })
	judged(plugin, "affinity by label keys", func(c choices, t *corev1.PodTemplateSpec) { attract(t, keys(c, t)) })
	judged(plugin, "anti-affinity to pods", func(c choices, t *corev1.PodTemplateSpec) { repel(t, podAffinityTerm(c)) })
	judged(plugin, "anti-affinity to its own", func(c choices, t *corev1.PodTemplateSpec) { repel(t, self(c, t)) })
	judged(plugin, "anti-affinity by label keys", func(c choices, t *corev1.PodTemplateSpec) { repel(t, keys(c, t)) })
	refused(fit.Unsupported, "spec.affinity.podAffinity", "affinity to pods of selected namespaces",
		func(c choices, t *corev1.PodTemplateSpec) {
			term := self(c, t)
			term.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
			attract(t, term)
		})
	refused(fit.Unsupported, "spec.affinity.podAntiAffinity", "anti-affinity by a label that is missing",
		func(c choices, t *corev1.PodTemplateSpec) {
			term := self(c, t)
			term.MatchLabelKeys = []string{"controller-revision-hash"}
			repel(t, term)
		})
}

func spreadFeatures(judged judgedFunc, refused refusedFunc) {
	const plugin = "PodTopologySpread"
	spread := func(change func(c choices, s *corev1.TopologySpreadConstraint)) func(choices, *corev1.PodTemplateSpec) {
		return func(c choices, t *corev1.PodTemplateSpec) {
			s := corev1.TopologySpreadConstraint{
				TopologyKey: topologyKey(c), MaxSkew: int32(1 + c.pick(2)), WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: podSelector(c),
			}
			change(c, &s)
			for _, have := range t.Spec.TopologySpreadConstraints {
				if have.TopologyKey == s.TopologyKey && have.WhenUnsatisfiable == s.WhenUnsatisfiable {
					return
				}
			}
			t.Spec.TopologySpreadConstraints = append(t.Spec.TopologySpreadConstraints, s)
		}
	}
	judged(plugin, "spread", spread(func(choices, *corev1.TopologySpreadConstraint) {}))
	judged(plugin, "spread over domains", spread(func(c choices,
		s *corev1.TopologySpreadConstraint) {
		s.MinDomains = ptr.To(int32(1 + c.pick(4)))
	}))
	judged(plugin, "spread with a node affinity policy", spread(func(c choices, s *corev1.TopologySpreadConstraint) {
		s.NodeAffinityPolicy = ptr.To(oneOf(c, corev1.NodeInclusionPolicyIgnore, corev1.NodeInclusionPolicyHonor))
	}))
	judged(plugin, "spread with a node taints policy", spread(func(c choices, s *corev1.TopologySpreadConstraint) {
		s.NodeTaintsPolicy = ptr.To(oneOf(c, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore))
	}))
	judged(plugin, "spread by label keys", func(c choices, t *corev1.PodTemplateSpec) {
		t.Labels[revisionKey] = "1"
		spread(func(_ choices, s *corev1.TopologySpreadConstraint) {
			if s.LabelSelector != nil {
				s.MatchLabelKeys = []string{revisionKey}
				s.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{appKey: "x"}}
			}
		})(c, t)
	})
	judged(plugin, "spread where nodes are selected", func(c choices, t *corev1.PodTemplateSpec) {
		t.Spec.NodeSelector = map[string]string{rackKey: "1"}
		spread(func(_ choices, s *corev1.TopologySpreadConstraint) { s.TopologyKey = zoneKey })(c, t)
	})
	judged("NodeResourcesFit", "soft spread", spread(func(_ choices,
		s *corev1.TopologySpreadConstraint) {
		s.WhenUnsatisfiable = corev1.ScheduleAnyway
	}))
	refused(fit.Unsupported, "spec.topologySpreadConstraints[", "spread by a label that is missing",
		spread(func(_ choices, s *corev1.TopologySpreadConstraint) {
			s.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{appKey: "x"}}
			s.MatchLabelKeys = []string{"pod-template-hash"}
			s.TopologyKey = "example.com/other"
		}))
}

func otherFeatures(refused refusedFunc) {
	refused(fit.Unsupported, "spec.nodeName", "node name", func(_ choices, t *corev1.PodTemplateSpec) { t.Spec.NodeName = nodeName(0) })
	refused(fit.Unsupported, "spec.resourceClaims[0].resourceClaimName", "resource claim", func(_ choices, t *corev1.PodTemplateSpec) {
		t.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: ptr.To("c")}}
	})
	refused(fit.Unsupported, "a resource of spec.containers", "device class", func(_ choices, t *corev1.PodTemplateSpec) {
		device := newContainer("device")
		device.Resources.Limits = corev1.ResourceList{corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + "gpu"): resource.MustParse("1")}
		t.Spec.Containers = append(t.Spec.Containers, device)
	})
	refused(fit.Unsupported, "a feature that nodes must declare", "restart of all containers", func(_ choices, t *corev1.PodTemplateSpec) {
		r := newContainer("restarts")
		r.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
		r.RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{1}},
		}}
		t.Spec.Containers = append(t.Spec.Containers, r)
	})
	refused(fit.Unsupported, "spec.runtimeClassName", "runtime class",
		func(_ choices, t *corev1.PodTemplateSpec) { t.Spec.RuntimeClassName = ptr.To("kata") })
}

package fit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sharedClaim is a claim whose users must keep to a rule between them.
type sharedClaim struct {
	name string
	// single: one pod at a time (ReadWriteOncePod).
	single bool
	// unbound claims are bound where their first pod goes; until then all go there.
	unbound bool
}

// readVolumes derives the requirements of the pod's volumes on a node.
func (p *Pod) readVolumes(spec *corev1.PodSpec, objects *Objects) Refusal {
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		field := fmt.Sprintf("spec.volumes[%d]", i)
		var r Refusal
		switch source := inTreeDisk(&v.VolumeSource); {
		case source != "":
			r = unsupported(field+"."+source, "a disk that is named in the pod spec", "use a persistentVolumeClaim")
		case v.PersistentVolumeClaim != nil:
			r = p.readClaim(field+".persistentVolumeClaim", v.PersistentVolumeClaim.ClaimName, objects)
		case v.Ephemeral != nil:
			r = p.readEphemeral(field+".ephemeral", v.Name, v.Ephemeral, objects)
		}
		if r.Refused() {
			return r
		}
	}
	return Refusal{}
}

// inTreeDisk names the source of a volume that the scheduler checks in the pod itself, or is empty.
func inTreeDisk(v *corev1.VolumeSource) string {
	switch {
	case v.AWSElasticBlockStore != nil:
		return "awsElasticBlockStore"
	case v.AzureDisk != nil:
		return "azureDisk"
	case v.Cinder != nil:
		return "cinder"
	case v.GCEPersistentDisk != nil:
		return "gcePersistentDisk"
	case v.ISCSI != nil:
		return "iscsi"
	case v.PortworxVolume != nil:
		return "portworxVolume"
	case v.RBD != nil:
		return "rbd"
	default:
		return ""
	}
}

func (p *Pod) readClaim(field, name string, objects *Objects) Refusal {
	if objects.Claim == nil || objects.Volume == nil {
		return unsupported(field, name, "run these pods without a request")
	}
	claim := objects.Claim(p.Namespace, name)
	switch {
	case claim == nil:
		return unready(field, fmt.Sprintf("PersistentVolumeClaim %s, which does not exist", name))
	case claim.DeletionTimestamp != nil:
		return unready(field, fmt.Sprintf("another PersistentVolumeClaim %s, since this one is being deleted", name))
	case claim.Status.Phase == corev1.ClaimLost:
		return unready(field, fmt.Sprintf("another PersistentVolumeClaim %s, since this one has lost its PersistentVolume %s", name,
			claim.Spec.VolumeName))
	}
	single := slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod)
	if single && p.Count > 1 {
		return impossible(field, fmt.Sprintf("PersistentVolumeClaim %s is for one pod at a time (accessModes ReadWriteOncePod), and there are %d",
			name, p.Count))
	}
	bound := claim.Spec.VolumeName != ""
	if single || !bound {
		p.shared = append(p.shared, sharedClaim{name: name, single: single, unbound: !bound})
	}
	if bound {
		return p.readBound(field, claim, objects)
	}
	if node := claim.Annotations[selectedNode]; node != "" {
		p.volumes = append(p.volumes, newSelector(fmt.Sprintf("PersistentVolumeClaim %s, which is being provided on node %s", name, node),
			[]corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
				Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			}}}}, matchFields))
	}
	return p.readUnbound(field, name, claimClass(claim), &claim.Spec, objects)
}

// Annotations of claims, set by the controllers that bind and provide volumes.
const (
	bindCompleted = "pv.kubernetes.io/bind-completed"
	selectedNode  = "volume.kubernetes.io/selected-node"
)

// claimClass is the claim's storage class, or empty.
func claimClass(c *corev1.PersistentVolumeClaim) string {
	if class, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	if c.Spec.StorageClassName != nil {
		return *c.Spec.StorageClassName
	}
	return ""
}

// readBound derives where the volume of the claim can be used.
func (p *Pod) readBound(field string, claim *corev1.PersistentVolumeClaim, objects *Objects) Refusal {
	volume := objects.Volume(claim.Spec.VolumeName)
	switch {
	case !metav1.HasAnnotation(claim.ObjectMeta, bindCompleted):
		return unready(field, fmt.Sprintf("PersistentVolumeClaim %s to be bound to PersistentVolume %s", claim.Name, claim.Spec.VolumeName))
	case volume == nil:
		return unready(field, fmt.Sprintf("PersistentVolume %s of claim %s, which does not exist", claim.Spec.VolumeName, claim.Name))
	case migrates(&volume.Spec.PersistentVolumeSource):
		return unsupported(field, fmt.Sprintf("PersistentVolume %s has a removed in-tree driver", volume.Name),
			"recreate the volume with the CSI driver")
	case volume.Spec.CSI != nil:
		if r := attachable(field, volume.Spec.CSI.Driver, objects); r.Refused() {
			return r
		}
	}
	what := fmt.Sprintf("PersistentVolume %s (claim %s), which cannot be used here", volume.Name, claim.Name)
	if a := volume.Spec.NodeAffinity; a != nil && a.Required != nil {
		p.volumes = append(p.volumes, newSelector(what, a.Required.NodeSelectorTerms, ignoreFields))
	}
	for _, key := range zoneLabels {
		if value := volume.Labels[key]; isZones(value) {
			p.volumes = append(p.volumes, newSelector(what, zoneTerms(key, value), ignoreFields))
		}
	}
	return Refusal{}
}

// migrates reports whether the scheduler handles the volume as one of a CSI driver, which may be usable elsewhere, on nodes that declare
// it.
func migrates(s *corev1.PersistentVolumeSource) bool {
	return s.AWSElasticBlockStore != nil || s.AzureDisk != nil || s.Cinder != nil || s.GCEPersistentDisk != nil || s.PortworxVolume != nil
}

// zoneLabels of volumes bind their pods to nodes in the same place.
var zoneLabels = []string{
	corev1.LabelFailureDomainBetaZone,
	corev1.LabelFailureDomainBetaRegion,
	corev1.LabelTopologyZone,
	corev1.LabelTopologyRegion,
}

// zoneTerms returns the requirements of a volume's zone or region label: the node must be in one of the listed places, by the same label
// or by its replacement. A node without any such label counts as near.
func zoneTerms(key, value string) []corev1.NodeSelectorTerm {
	values := strings.Split(value, zoneSeparator)
	for i := range values {
		values[i] = strings.TrimSpace(values[i])
	}
	var nowhere corev1.NodeSelectorTerm
	for _, k := range zoneLabels {
		nowhere.MatchExpressions = append(nowhere.MatchExpressions,
			corev1.NodeSelectorRequirement{Key: k, Operator: corev1.NodeSelectorOpDoesNotExist})
	}
	out := []corev1.NodeSelectorTerm{nowhere, {MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values},
	}}}
	if successor := zoneSuccessors[key]; successor != "" {
		out = append(out, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: key, Operator: corev1.NodeSelectorOpDoesNotExist},
			{Key: successor, Operator: corev1.NodeSelectorOpIn, Values: values},
		}})
	}
	return out
}

// isZones reports whether a label lists zones: the scheduler ignores a list with an empty item.
func isZones(value string) bool {
	return !slices.ContainsFunc(strings.Split(value, zoneSeparator), func(z string) bool { return strings.TrimSpace(z) == "" })
}

// zoneSeparator is between the zones of a volume that is in several.
const zoneSeparator = "__"

var zoneSuccessors = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
}

// readEphemeral reads a volume that every pod gets one of its own of.
func (p *Pod) readEphemeral(field, name string, v *corev1.EphemeralVolumeSource, objects *Objects) Refusal {
	if v.VolumeClaimTemplate == nil {
		return impossible(field, fmt.Sprintf("volume %s has no volumeClaimTemplate", name))
	}
	spec := &v.VolumeClaimTemplate.Spec
	className := claimClass(&corev1.PersistentVolumeClaim{ObjectMeta: v.VolumeClaimTemplate.ObjectMeta, Spec: *spec})
	switch {
	case spec.VolumeName != "":
		return unsupported(field, "its claims name PersistentVolume "+spec.VolumeName, "use a persistentVolumeClaim")
	case className == "":
		return unsupported(field, "its claims name no storage class", "set storageClassName in the volumeClaimTemplate")
	}
	if objects.StorageClass != nil {
		if class := objects.StorageClass(className); class != nil && !waitsForPod(class) {
			return unsupported(field, fmt.Sprintf("StorageClass %s binds its volumes without regard to the node", className),
				"use a class with volumeBindingMode WaitForFirstConsumer")
		}
	}
	return p.readUnbound(field, name, className, spec, objects)
}

// waitsForPod reports whether volumes of the class are provided where their pod goes.
func waitsForPod(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// readUnbound derives where the storage class can provide a volume.
func (p *Pod) readUnbound(field, name, className string, spec *corev1.PersistentVolumeClaimSpec, objects *Objects) Refusal {
	if objects.StorageClass == nil || objects.CSIDriver == nil {
		return unsupported(field, name, "run these pods without a request")
	}
	class := objects.StorageClass(className)
	switch {
	case className == "" || class == nil:
		return unready(field, fmt.Sprintf("claim %s to be bound, or a StorageClass %q that provides it", name, className))
	case !waitsForPod(class):
		return unready(field, fmt.Sprintf("claim %s to be bound (StorageClass %s binds at once)", name, className))
	case class.Provisioner == noProvisioner || class.Provisioner == "":
		return unsupported(field, fmt.Sprintf("StorageClass %s has no provisioner, the scheduler looks for a volume", className),
			"bind the claim to a volume first")
	}
	driver := objects.CSIDriver(class.Provisioner)
	if _, sized := spec.Resources.Requests[corev1.ResourceStorage]; sized && driver != nil && driver.Spec.StorageCapacity != nil &&
		*driver.Spec.StorageCapacity {
		return unsupported(field, fmt.Sprintf("CSIDriver %s tracks storage capacity", class.Provisioner),
			"bind the claim first, or use another class")
	}
	if r := attachable(field, cmp.Or(successors[class.Provisioner], class.Provisioner), objects); r.Refused() {
		return r
	}
	if len(class.AllowedTopologies) == 0 {
		return Refusal{}
	}
	var terms []corev1.NodeSelectorTerm
	for _, t := range class.AllowedTopologies {
		var term corev1.NodeSelectorTerm
		for _, e := range t.MatchLabelExpressions {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: e.Key, Operator: corev1.NodeSelectorOpIn,
				Values: e.Values})
		}
		terms = append(terms, term)
	}
	p.volumes = append(p.volumes, newSelector(
		fmt.Sprintf("claim %s, for which StorageClass %s provides no volume here (allowedTopologies)", name, className), terms, ignoreFields))
	return Refusal{}
}

// noProvisioner marks a class whose volumes are created by hand.
const noProvisioner = "kubernetes.io/no-provisioner"

// successors are the CSI drivers that provide for classes whose provisioner was once
// part of Kubernetes.
var successors = map[string]string{
	"kubernetes.io/aws-ebs":         "ebs.csi.aws.com",
	"kubernetes.io/azure-disk":      "disk.csi.azure.com",
	"kubernetes.io/cinder":          "cinder.csi.openstack.org",
	"kubernetes.io/gce-pd":          "pd.csi.storage.gke.io",
	"kubernetes.io/portworx-volume": "pxd.portworx.com",
}

// attachable refuses volumes of a driver that limits their number on a node.
func attachable(field, driver string, objects *Objects) Refusal {
	if objects.Limited == nil || objects.Limited(driver) {
		return unsupported(field, fmt.Sprintf("nodes limit how many volumes of CSI driver %s they take", driver),
			"use a driver without limits, or run these pods without a request")
	}
	return Refusal{}
}

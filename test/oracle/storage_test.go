package oracle

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-dev/muster/provisioning/fit"
)

// storage is the same in all worlds: the scheduler's caches are slow to fill.
var storage = newStore()

type store struct {
	claims     map[string]*corev1.PersistentVolumeClaim
	volumes    map[string]*corev1.PersistentVolume
	classes    map[string]*storagev1.StorageClass
	drivers    map[string]*storagev1.CSIDriver
	csiNodes   []*storagev1.CSINode
	namespaces map[string]*corev1.Namespace
}

const (
	// team is the namespace of all gangs.
	team = "team"

	freeDriver    = "free.csi.example"
	limitedDriver = "limited.csi.example"
	trackedDriver = "tracked.csi.example"
	// oldLimitedDriver provides for a class that names a provisioner of old.
	oldLimitedDriver = "pd.csi.storage.gke.io"
)

func newStore() *store {
	s := &store{
		claims:     map[string]*corev1.PersistentVolumeClaim{},
		volumes:    map[string]*corev1.PersistentVolume{},
		classes:    map[string]*storagev1.StorageClass{},
		drivers:    map[string]*storagev1.CSIDriver{},
		namespaces: map[string]*corev1.Namespace{},
	}
	for name, tier := range map[string]string{team: "gold", "other": "gold", "third": "tin"} {
		s.namespaces[name] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{corev1.LabelMetadataName: name, "tier": tier}}}
	}

	wait, now := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	in := func(key string, values ...string) corev1.TopologySelectorTerm {
		return corev1.TopologySelectorTerm{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: key, Values: values}}}
	}
	s.class("wait", freeDriver, &wait)
	s.class("wait-a", freeDriver, &wait, in(zoneKey, "a"))
	s.class("wait-ab", freeDriver, &wait, in(zoneKey, "a"), in(zoneKey, "b"), corev1.TopologySelectorTerm{})
	s.class("now", freeDriver, &now)
	s.class("static", "kubernetes.io/no-provisioner", &wait)
	s.class("old", "kubernetes.io/aws-ebs", &wait)
	s.class("old-limited", "kubernetes.io/gce-pd", &wait)
	s.class("limited", limitedDriver, &wait)
	s.class("tracked", trackedDriver, &wait)
	s.drivers[trackedDriver] = &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: trackedDriver},
		Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}}
	one := &storagev1.VolumeNodeResources{Count: ptr.To[int32](1)}
	s.csiNodes = append(s.csiNodes, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: nodeName(0)}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: limitedDriver, NodeID: "x", Allocatable: one},
			{Name: oldLimitedDriver, NodeID: "x", Allocatable: one}, {Name: freeDriver, NodeID: "x"}},
	}})

	zoneIn := func(values ...string) corev1.NodeSelectorTerm { return labelIn(zoneKey, values...) }
	s.bound("bound-anywhere", nil, nil)
	s.bound("bound-a", nil, []corev1.NodeSelectorTerm{zoneIn("a")})
	s.bound("bound-terms", nil, []corev1.NodeSelectorTerm{zoneIn("b"), labelIn(rackKey, "1"), {}})
	s.bound("bound-host", nil, []corev1.NodeSelectorTerm{labelIn(corev1.LabelHostname, nodeName(1), nodeName(2))})
	s.bound("bound-fields", nil,
		[]corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn,
			Values: []string{"nobody"}}}}})
	s.bound("zone-label", map[string]string{zoneKey: "a"}, nil)
	s.bound("zones-label", map[string]string{zoneKey: "a__ b"}, nil)
	s.bound("beta-label", map[string]string{corev1.LabelFailureDomainBetaZone: "b__c", corev1.LabelFailureDomainBetaRegion: "r"}, nil)
	s.bound("gap-label", map[string]string{zoneKey: "a____b"}, nil)
	s.bound("single", nil, nil).Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	s.bound("limited-bound", nil, nil)
	s.volumes["limited-bound"].Spec.CSI.Driver = limitedDriver
	s.bound("old-bound", nil, nil)
	s.volumes["old-bound"].Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
		GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "pd"}}
	s.bound("volume-gone", nil, nil)
	delete(s.volumes, "volume-gone")
	s.bound("half-bound", nil, nil).Annotations = nil
	s.bound("deleting", nil, nil).DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
	s.claims["deleting"].Finalizers = []string{"kubernetes.io/pvc-protection"}
	s.bound("lost", nil, nil).Status.Phase = corev1.ClaimLost

	for _, class := range []string{"wait", "wait-a", "wait-ab", "now", "static", "old", "old-limited", "limited", "tracked", "gone"} {
		s.claim("loose-"+class, class)
	}
	s.claim("loose-single", "wait").Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	s.claim("loose-classless", "").Spec.StorageClassName = nil
	s.claim("selected", "wait").Annotations = map[string]string{"volume.kubernetes.io/selected-node": nodeName(2)}
	// These are the claims that the controller creates for generic ephemeral volumes. One pod more is evaluated than exists.
	for set := range maxSets {
		for n := range maxCount + 1 {
			for _, class := range []string{"wait", "wait-a", "limited"} {
				pod := podName(set, n)
				c := s.claim(pod+"-own-"+class, class)
				c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod, UID: uid(pod), Controller: ptr.To(true)}}
			}
		}
	}
	return s
}

func uid(name string) types.UID { return types.UID("uid-" + name) }

func (s *store) class(name, provisioner string, mode *storagev1.VolumeBindingMode, topologies ...corev1.TopologySelectorTerm) {
	s.classes[name] = &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: mode,
		AllowedTopologies: topologies}
}

func (s *store) claim(name, class string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, UID: uid("claim-" + name)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	s.claims[name] = c
	return c
}

// bound is a claim with a volume of the same name.
func (s *store) bound(name string, labels map[string]string, terms []corev1.NodeSelectorTerm) *corev1.PersistentVolumeClaim {
	c := s.claim(name, "wait")
	c.Spec.VolumeName, c.Status.Phase = name, corev1.ClaimBound
	c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: c.Spec.Resources.Requests, AccessModes: c.Spec.AccessModes, StorageClassName: "wait",
			ClaimRef:               &corev1.ObjectReference{Namespace: team, Name: name, UID: c.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: freeDriver, VolumeHandle: name}},
		},
	}
	if terms != nil {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
	}
	s.volumes[name] = v
	return c
}

func labelIn(key string, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key,
		Operator: corev1.NodeSelectorOpIn, Values: values}}}
}

// listOf returns objects of one type as a client takes them.
func listOf[T runtime.Object](all iter.Seq[T]) (out []runtime.Object) {
	for o := range all {
		out = append(out, o)
	}
	return out
}

// objects for the scheduler's client.
func (s *store) objects() []runtime.Object {
	out := slices.Concat(listOf(maps.Values(s.claims)), listOf(maps.Values(s.volumes)), listOf(maps.Values(s.classes)),
		listOf(maps.Values(s.drivers)), listOf(slices.Values(s.csiNodes)), listOf(maps.Values(s.namespaces)))
	// GPUs may also be had through dynamic resource allocation, which has none: only
	// what nodes advertise counts.
	return append(out, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
		Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr.To(string(gpu))}})
}

// lookups for fit.
func (s *store) lookups() fit.Objects {
	return fit.Objects{
		Claim: func(namespace, name string) *corev1.PersistentVolumeClaim {
			if namespace != team {
				panic(fmt.Sprintf("claim of namespace %s", namespace))
			}
			return s.claims[name]
		},
		Volume:       func(name string) *corev1.PersistentVolume { return s.volumes[name] },
		StorageClass: func(name string) *storagev1.StorageClass { return s.classes[name] },
		CSIDriver:    func(name string) *storagev1.CSIDriver { return s.drivers[name] },
		Limited:      func(driver string) bool { return driver == limitedDriver || driver == oldLimitedDriver },
	}
}

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/jobs/podgroup"
)

// pod is a queued pod of a whole machine.
func (s *site) pod(name, runFor string, change ...func(*corev1.Pod)) *corev1.Pod {
	s.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Name, Name: name, Labels: map[string]string{"kueue.x-k8s.io/queue-name": s.Name}, Annotations: map[string]string{},
	}}
	if runFor != "" {
		p.Annotations[kwokv1alpha1.RunForAnnotation] = runFor
	}
	p.Spec = s.podSpec()
	for _, f := range change {
		f(p)
	}
	s.Create(p)
	return p
}

// inGroup makes a pod one of a group of so many.
func inGroup(name string, total int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations["kueue.x-k8s.io/pod-group-name"] = name
		p.Annotations["kueue.x-k8s.io/pod-group-total-count"] = fmt.Sprint(total)
	}
}

// small makes a pod one that takes only a core.
func small(p *corev1.Pod) {
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}
}

func isGatedPod(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == podgroup.Gate })
}

// pods returns the pods of the site with their states.
func (s *site) pods() (out map[string]string) {
	var list corev1.PodList
	s.List(&list, client.InNamespace(s.Name))
	out = map[string]string{}
	for i := range list.Items {
		p := &list.Items[i]
		out[p.Name] = string(p.Status.Phase)
		if isGatedPod(p) {
			out[p.Name] = "Gated"
		}
	}
	return out
}

// arePods waits until all pods of the site are so.
func (s *site) arePods(count int, what string) {
	s.Helper()
	s.Eventually(fmt.Sprintf("%d pods are %s", count, what), func() bool {
		pods := s.pods()
		for _, is := range pods {
			if is != what {
				return false
			}
		}
		return len(pods) == count
	}, func() string { return fmt.Sprint(s.pods(), s.workloads()) })
}

// workloads are those of the site, in short.
func (s *site) workloads() (out []string) {
	var list kueue.WorkloadList
	s.List(&list, client.InNamespace(s.Name))
	for i := range list.Items {
		w := &list.Items[i]
		var sets []string
		for _, set := range w.Spec.PodSets {
			sets = append(sets, fmt.Sprintf("%s×%d", set.Name, set.Count))
		}
		line := w.Name + " " + strings.Join(sets, ",")
		for _, c := range w.Status.Conditions {
			line += fmt.Sprintf(" %s=%s(%s: %s)", c.Type, c.Status, c.Reason, c.Message)
		}
		out = append(out, line)
	}
	return out
}

// workload is the only one of the site; nil if there is none.
func (s *site) workload() *kueue.Workload {
	var list kueue.WorkloadList
	s.List(&list, client.InNamespace(s.Name))
	if len(list.Items) != 1 {
		return nil
	}
	return &list.Items[0]
}

func (s *site) isWorkload(condition string) {
	s.Helper()
	s.Eventually("the Workload is "+condition, func() bool {
		w := s.workload()
		return w != nil && apimeta.IsStatusConditionTrue(w.Status.Conditions, condition)
	}, func() string { return fmt.Sprint(s.workloads(), s.pods()) })
}

// events returns the messages of the events of an object.
func (s *site) events(o client.Object) (out []string) {
	var list eventsv1.EventList
	s.List(&list, client.InNamespace(s.Name))
	for i := range list.Items {
		if list.Items[i].Regarding.UID == o.GetUID() {
			out = append(out, list.Items[i].Note)
		}
	}
	return out
}

// TestAPodWaitsForItsMachine: a plain pod is held until its machine is there, runs on it, and
// ends.
func TestAPodWaitsForItsMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("a", nil)
	s.queue(g)
	p := s.pod("train", "5s")
	if !isGatedPod(p) || p.Labels["kueue.x-k8s.io/managed"] != "true" {
		t.Fatalf("it was created with the gates %v and the labels %v", p.Spec.SchedulingGates, p.Labels)
	}
	s.Eventually("it runs", func() bool { return s.Get(p) && p.Status.Phase == corev1.PodRunning },
		func() string { return fmt.Sprint(s.pods(), s.workloads()) })
	if p.Spec.NodeSelector[v1alpha1.NodeGroupLabel] != g.Name || p.Labels["kueue.x-k8s.io/podset"] != "main" {
		t.Errorf("it was sent to %v, with the labels %v", p.Spec.NodeSelector, p.Labels)
	}
	user := s.user()
	moved := p.DeepCopy()
	moved.Labels["kueue.x-k8s.io/queue-name"] = "other"
	if err := user.Patch(t.Context(), moved, client.MergeFrom(p)); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("a running pod goes to another queue: %v", err)
	}
	s.isWorkload(kueue.WorkloadFinished)
	if w := s.workload(); w.Name[:10] != "pod-train-" {
		t.Errorf("the Workload is called %s", w.Name)
	}
}

// TestStoryAPodGroupStartsAsAWhole: a group of two roles is held until all of its pods are there and
// its machines too; an eviction deletes its pods; the next pods by its name run and end.
func TestStoryAPodGroupStartsAsAWhole(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.queue(s.Group("a", nil))
	group := inGroup("ring", 3)
	s.pod("leader", "", group, small)
	second := s.pod("worker-0", "", group)
	s.Eventually("it says what it waits for", func() bool {
		return slices.ContainsFunc(s.events(second),
			func(note string) bool { return strings.HasPrefix(note, "2 of 3 pods of group ring are there") })
	}, func() string { return fmt.Sprint(s.events(second), s.workloads()) })
	if w := s.workloads(); len(w) > 0 {
		t.Fatalf("two of three pods are queued: %v", w)
	}
	s.pod("worker-1", "", group)
	// There are too many pods, so the newest of the waiting ones is deleted.
	s.pod("worker-2", "", group)
	s.arePods(3, "Running")
	if p := s.pods(); p["worker-2"] != "" {
		t.Errorf("a pod too many runs: %v", p)
	}
	w := s.workload()
	if w == nil || w.Name != "ring" || len(w.Spec.PodSets) != 2 || len(w.OwnerReferences) != 3 ||
		w.Spec.PodSets[0].Count+w.Spec.PodSets[1].Count != 3 {
		t.Fatalf("the Workload is %v", s.workloads())
	}
	s.edit(w, func() { w.Spec.Active = new(false) })
	s.arePods(0, "deleted")
	s.Eventually("its Workload goes with them", func() bool { return len(s.workloads()) == 0 },
		func() string { return fmt.Sprint(s.workloads()) })
	for _, name := range []string{"leader", "worker-0", "worker-1"} {
		change := []func(*corev1.Pod){group}
		if name == "leader" {
			change = append(change, small)
		}
		s.pod(name, "2s", change...)
	}
	s.isWorkload(kueue.WorkloadFinished)
	s.arePods(3, "Succeeded")
}

// TestPodsComeOntoTheMachinesOfKueuesCheck, which sends them there by an annotation alone.
func TestPodsComeOntoTheMachinesOfKueuesCheck(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.queue(s.Group("a", nil))
	s.checkOfKueue()
	s.pod("alone", "2s")
	for _, name := range []string{"worker-0", "worker-1"} {
		s.pod(name, "2s", inGroup("ring", 2))
	}
	s.arePods(3, "Succeeded")
}

// TestNothingButMusterTakesTheGateOff, unless an administrator may break glass.
func TestNothingButMusterTakesTheGateOff(t *testing.T) {
	s := newSite(t)
	p := s.pod("held", "")
	user := s.user()
	for name, change := range map[string]func(*corev1.Pod){
		"the gate":           func(p *corev1.Pod) { p.Spec.SchedulingGates = nil },
		"the queue":          func(p *corev1.Pod) { delete(p.Labels, "kueue.x-k8s.io/queue-name") },
		"the managed label":  func(p *corev1.Pod) { delete(p.Labels, "kueue.x-k8s.io/managed") },
		"the queue and gate": func(p *corev1.Pod) { p.Labels, p.Spec.SchedulingGates = nil, nil },
	} {
		changed := p.DeepCopy()
		change(changed)
		if err := user.Patch(t.Context(), changed, client.MergeFrom(p)); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("a user takes off %s: %v", name, err)
		}
	}
	free := p.DeepCopy()
	free.Labels = nil
	free.ObjectMeta = metav1.ObjectMeta{Namespace: s.Name, Name: "free"}
	free.Spec.SchedulingGates = nil
	if err := user.Create(t.Context(), free); err != nil || isGatedPod(free) {
		t.Errorf("a pod that names no queue: %v, gates %v", err, free.Spec.SchedulingGates)
	}
}

// TestServingKindsGoThroughTheQueue: a Deployment pod by pod, and a StatefulSet, whose second
// pod is made when the first is ready, and whose template mounts a claim of each pod's own, as
// a whole. An eviction deletes their pods, and they come back gated.
func TestServingKindsGoThroughTheQueue(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.queue(s.Group("a", nil))
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: s.podSpec()}
	template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	queued := metav1.ObjectMeta{Namespace: s.Name, Name: "web", Labels: map[string]string{"kueue.x-k8s.io/queue-name": s.Name}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}

	for i := range 2 {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", s.Name, i)}}
		v.Spec = corev1.PersistentVolumeSpec{StorageClassName: s.Name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}}
		s.Create(v)
	}
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
	claim.Spec = corev1.PersistentVolumeClaimSpec{StorageClassName: &s.Name,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}

	set := &appsv1.StatefulSet{ObjectMeta: queued}
	set.Spec = appsv1.StatefulSetSpec{Replicas: new(int32(2)), Selector: selector, ServiceName: "web", Template: *template.DeepCopy(),
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{claim}}
	set.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	s.Create(set)
	if l := set.Spec.Template.Labels["kueue.x-k8s.io/queue-name"]; l != s.Name {
		t.Fatalf("its pods are to be in queue %q", l)
	}
	s.arePods(2, "Running")
	if w := s.workload(); w == nil || len(w.Spec.PodSets) != 1 || w.Spec.PodSets[0].Count != 2 {
		t.Fatalf("its Workload is %v", s.workloads())
	}
	w := s.workload()
	s.edit(w, func() { w.Spec.Active = new(false) })
	s.arePods(1, "Gated")
	s.edit(w, func() { w.Spec.Active = new(true) })
	s.arePods(2, "Running")
	s.edit(set, func() { set.Spec.Replicas = new(int32(0)) })
	s.arePods(0, "there")
	s.Eventually("it is on hold", func() bool { return len(s.workloads()) == 0 }, func() string { return fmt.Sprint(s.workloads()) })
	s.Delete(set)

	d := &appsv1.Deployment{ObjectMeta: queued}
	d.ResourceVersion, d.UID = "", ""
	d.Spec = appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: selector, Template: template}
	s.Create(d)
	s.arePods(2, "Running")
	if w := s.workloads(); len(w) != 2 || !strings.HasPrefix(w[0], "pod-web-") {
		t.Errorf("the Workloads of its pods are %v", w)
	}
	s.Delete(d)
}

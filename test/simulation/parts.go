package simulation

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Parts of all scenarios.
const unbookedNamespace = "strangers"

const gpu = corev1.ResourceName("nvidia.com/gpu")

var (
	gpuTaint     = corev1.Taint{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}
	startupTaint = corev1.Taint{Key: "example.com/network", Effect: corev1.TaintEffectNoSchedule}
	// undeclaredTaint is a taint that no NodeGroup declares.
	undeclaredTaint = corev1.Taint{Key: "example.com/undeclared", Effect: corev1.TaintEffectNoSchedule}

	gpuMachine = amounts(8, 4)
	cpuMachine = amounts(8, 0)
)

func amounts(cpus, gpus int64) corev1.ResourceList {
	list := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI),
		corev1.ResourceMemory: resource.MustParse("32Gi")}
	if gpus > 0 {
		list[gpu] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	return list
}

// podSpec requests cpus and, if more than 0, GPUs.
func podSpec(cpus, gpus int64) corev1.PodSpec {
	requests := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI)}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main",
		Resources: corev1.ResourceRequirements{Requests: requests}}}}
	if gpus > 0 {
		requests[gpu] = *resource.NewQuantity(gpus, resource.DecimalSI)
		spec.Tolerations = []corev1.Toleration{{Key: gpuTaint.Key, Operator: corev1.TolerationOpExists}}
	}
	return spec
}

func seconds(n int64) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(n) * time.Second}
}

// newGroup is a pool of up to four machines with GPUs that boot in two seconds.
func newGroup(name string, edit func(*v1alpha1.NodeGroup)) *v1alpha1.NodeGroup {
	price := resource.MustParse("10")
	join, idle := seconds(60), seconds(20)
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeGroupSpec{
		Provider: v1alpha1.ProviderKwok, MaxNodes: 4, CapacityType: v1alpha1.OnDemand, Zone: "a", PricePerHour: &price,
		JoinTimeout: &join, IdleTimeout: &idle,
		Template: v1alpha1.NodeTemplate{Capacity: gpuMachine, Taints: []corev1.Taint{gpuTaint}},
		Kwok:     &v1alpha1.KwokPool{BootDelay: seconds(2)},
	}}
	if edit != nil {
		edit(g)
	}
	return g
}

// newNode is one that no group has.
func newNode(name string, capacity corev1.ResourceList) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelTopologyZone: "a", corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}}}
	n.Spec.ProviderID = "other://" + name
	if _, ok := capacity[gpu]; ok {
		n.Spec.Taints = []corev1.Taint{gpuTaint}
	}
	n.Status.Capacity = capacity.DeepCopy()
	n.Status.Capacity[corev1.ResourcePods] = *resource.NewQuantity(110, resource.DecimalSI)
	n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	setReady(n, corev1.ConditionTrue)
	return n
}

// devicePlugin is the DaemonSet that the GPUs of a machine wait for.
func devicePlugin() *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "device-plugin"}}
	d.Spec.Template.Labels = map[string]string{kwokv1alpha1.DevicePluginLabel: "true"}
	d.Spec.Template.Spec = podSpec(0, 0)
	d.Spec.Template.Spec.NodeSelector = map[string]string{kwokv1alpha1.DevicesLabel: "true"}
	d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: gpuTaint.Key, Operator: corev1.TolerationOpExists}}
	return d
}

// agent is a DaemonSet that takes room on every node.
func agent() *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent"}}
	d.Spec.Template.Spec = podSpec(1, 0)
	d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return d
}

// newRequest returns the request for the gang's pods.
func (g *gang) newRequest(class string, parameters map[string]string) *provreq.ProvisioningRequest {
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: g.request}}
	r.Spec.ProvisioningClassName = class
	if g.held {
		yes := true
		r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "Workload", Name: g.request,
			UID: "workload", Controller: &yes}}
	}
	for i, ps := range g.podSets {
		r.Spec.PodSets = append(r.Spec.PodSets, provreq.PodSet{PodTemplateRef: provreq.Reference{Name: g.templateName(i)},
			Count: int32(ps.count)})
	}
	for key, value := range parameters {
		if r.Spec.Parameters == nil {
			r.Spec.Parameters = map[string]provreq.Parameter{}
		}
		r.Spec.Parameters[key] = provreq.Parameter(value)
	}
	return r
}

func (g *gang) templateName(i int) string { return fmt.Sprintf("%s-%d", clipped(g.request), i) }

func (g *gang) newTemplate(i int) *corev1.PodTemplate {
	t := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: g.templateName(i)}}
	t.Template.Spec = *g.podSets[i].spec.DeepCopy()
	t.Template.Annotations = g.topology
	return t
}

// submit has a user request the gang at a time, and its Job follow the request.
func (w *world) submit(at time.Time, g *gang, class string, parameters map[string]string) {
	w.gangs = append(w.gangs, g)
	w.requestAt(at, g, class, parameters)
}

// requestAt creates the gang's templates and request at a time.
func (w *world) requestAt(at time.Time, g *gang, class string, parameters map[string]string) {
	w.plan(at, "somebody asks for "+g.String(), func() {
		for i := range g.podSets {
			w.create(g.newTemplate(i))
		}
		w.create(g.newRequest(class, parameters))
	})
}

// withdraw has a user delete the gang's request at a time.
func (w *world) withdraw(at time.Time, g *gang) {
	w.plan(at, "somebody withdraws "+g.String(), func() {
		if w.store.delete(g.newRequest("", nil)) == nil {
			w.feature("request deleted")
		}
	})
}

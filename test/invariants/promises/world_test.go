package promises

import (
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/checks"
	"github.com/muster-dev/muster/queueing/jobs"
)

const (
	namespace = "team"
	gpu       = corev1.ResourceName("nvidia.com/gpu")
)

// world plays a cluster: it gives each version its revision and shows it to the
// Checker.
type world struct {
	*Checker
	*testing.T
	now      time.Time
	revision uint64
	// exists are the objects that were shown and are not gone, the one that was
	// changed last at the end.
	exists []metav1.Object
}

func newWorld(t *testing.T) *world {
	return &world{
		Checker: New(DefaultConfig()), T: t, revision: 100,
		now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
	}
}

// show applies the next version of objects.
func (w *world) show(objects ...metav1.Object) {
	for _, o := range objects {
		w.event(o, Event{})
	}
}

// remove applies the deletion of objects.
func (w *world) remove(objects ...metav1.Object) {
	for _, o := range objects {
		w.event(o, Event{Deleted: true})
	}
}

// list applies objects as Listed events.
func (w *world) list(objects ...metav1.Object) {
	for _, o := range objects {
		w.event(o, Event{Listed: true})
	}
}

func (w *world) event(o metav1.Object, e Event) {
	w.revision++
	w.now = w.now.Add(10 * time.Millisecond)
	if o.GetUID() == "" {
		o.SetUID(types.UID("uid-of-" + string(KindOf(o)) + "-" + o.GetName()))
	}
	w.exists = slices.DeleteFunc(w.exists, func(old metav1.Object) bool { return old.GetUID() == o.GetUID() })
	if !e.Deleted {
		w.exists = append(w.exists, o)
	}
	e.Object, e.Revision, e.Time = o, w.revision, w.now
	w.Apply(e)
}

// restart has a new Checker begin with what exists.
func (w *world) restart() {
	w.Checker = New(DefaultConfig())
	for _, o := range w.exists {
		w.Gap(KindOf(o), 0, w.revision)
		w.Apply(Event{Object: o, Listed: true, Revision: w.revision, Time: w.now})
	}
}

// pass lets time pass in small ticks.
func (w *world) pass(d time.Duration) {
	const tick = 250 * time.Millisecond
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(min(tick, end.Sub(w.now)))
		w.Tick(w.now)
	}
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }

func resources(pairs ...any) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i].(string))] = resource.MustParse(fmt.Sprint(pairs[i+1]))
	}
	return out
}

// machineSize is what a machine has for pods.
var machineSize = resources("cpu", 16, "memory", "64Gi", "pods", 110, "nvidia.com/gpu", 8)

func podSpec(gpus int) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: resources("cpu", 4, "nvidia.com/gpu", gpus)}}}}
}

func condition(list *[]metav1.Condition, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(list, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

func newGroup(name string, idle time.Duration) *v1alpha1.NodeGroup {
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
	g.Spec.IdleTimeout = &metav1.Duration{Duration: idle}
	return g
}

// foreignGroup is one that a cluster-autoscaler scales, with its record of launches.
func foreignGroup(record string) *v1alpha1.NodeGroup {
	g := newGroup("foreign", time.Second)
	g.UID, g.Spec.ScaledBy = "uid-of-foreign", v1alpha1.ScaledByClusterAutoscaler
	g.Annotations = map[string]string{v1alpha1.AutoscalerLaunchesAnnotation: record}
	return g
}

func newNode(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	n.Status.Allocatable = machineSize.DeepCopy()
	ready(n, true)
	return n
}

func ready(n *corev1.Node, is bool) {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
}

func newMachine(name, group, token string) *kwokv1alpha1.Machine {
	m := &kwokv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m.Spec.Group, m.Spec.Launch = group, token
	return m
}

// nodeOf is the node that a machine registers.
func nodeOf(m *kwokv1alpha1.Machine) *corev1.Node {
	n := newNode(m.Name)
	n.Labels[v1alpha1.NodeGroupLabel] = m.Spec.Group
	n.Annotations[v1alpha1.LaunchAnnotation] = m.Spec.Launch
	n.Annotations[v1alpha1.CordonedAnnotation] = v1alpha1.CordonJoining
	n.Spec.Unschedulable = true
	n.OwnerReferences = []metav1.OwnerReference{{Kind: "Machine", Name: m.Name}}
	return n
}

// book books room for a pod of a request on a node.
func (w *world) book(n *corev1.Node, r *provreq.ProvisioningRequest, gpus int) {
	need := fit.PodRequests(&corev1.Pod{Spec: podSpec(gpus)})
	label := state.BookingLabel(r.Name)
	n.Labels[label] = r.Namespace
	n.Annotations[label] = state.Booking{UID: r.UID, Since: w.now, Booked: need}.Encode()
}

func unbook(n *corev1.Node, r *provreq.ProvisioningRequest) {
	delete(n.Labels, state.BookingLabel(r.Name))
	delete(n.Annotations, state.BookingLabel(r.Name))
}

func newTemplate(name string, gpus int) *corev1.PodTemplate {
	return &corev1.PodTemplate{ObjectMeta: named(name), Template: corev1.PodTemplateSpec{Spec: podSpec(gpus)}}
}

// newRequest returns a request for pods of the template that has its name.
func newRequest(name string, pods int) *provreq.ProvisioningRequest {
	r := &provreq.ProvisioningRequest{ObjectMeta: named(name)}
	r.UID = types.UID("uid-of-" + name)
	r.Spec.ProvisioningClassName = checks.CapacityClass
	r.Spec.PodSets = []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: name}, Count: int32(pods)}}
	return r
}

func record(r *provreq.ProvisioningRequest, number int, phase transaction.AttemptPhase, launches ...planner.GroupCount) {
	if r.Status.ProvisioningClassDetails == nil {
		r.Status.ProvisioningClassDetails = map[string]provreq.Detail{}
	}
	a := transaction.Attempt{Number: number, Phase: phase, Launches: launches}
	r.Status.ProvisioningClassDetails[transaction.AttemptDetail] = provreq.Detail(a.Encode())
}

// replace records that the first attempt launches a machine again that was lost.
func replace(r *provreq.ProvisioningRequest, lost *kwokv1alpha1.Machine) {
	a := transaction.Attempt{Number: 1, Phase: transaction.Launching, Launches: []planner.GroupCount{launches},
		Replacements: []transaction.Replacement{
			{Lost: []transaction.LostMachine{{Group: lost.Spec.Group, Name: lost.Name, Launch: lost.Spec.Launch}}},
		}}
	r.Status.ProvisioningClassDetails[transaction.AttemptDetail] = provreq.Detail(a.Encode())
}

func newPod(name string, gpus int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: named(name), Spec: podSpec(gpus)}
}

func consuming(p *corev1.Pod, request string) *corev1.Pod {
	p.Annotations = map[string]string{provreq.ProvisioningRequestPodAnnotationKey: request}
	return p
}

func controlledBy(o metav1.Object, kind string, owner metav1.Object) {
	o.SetOwnerReferences([]metav1.OwnerReference{{Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true)}})
}

func newQueue(name string, gpus int) *kueue.ClusterQueue {
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	q.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{
		AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "machines"}}}
	setQuota(q, gpus)
	return q
}

func setQuota(q *kueue.ClusterQueue, gpus int) {
	q.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{gpu},
		Flavors: []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{{
			Name: gpu, NominalQuota: resource.MustParse(fmt.Sprint(gpus))}}}},
	}}
}

func newJob(name string) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: named(name)}
	j.UID = types.UID("uid-of-job-" + name)
	j.Labels = map[string]string{jobs.QueueLabel: "local"}
	j.Spec.Suspend = new(true)
	return j
}

func newWorkload(name string, pods, gpus int) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: named(name)}
	w.UID = types.UID("uid-of-workload-" + name)
	w.Spec.QueueName = "local"
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: int32(pods), Template: corev1.PodTemplateSpec{Spec: podSpec(gpus)}}}
	return w
}

// reserve gives the workload quota for its pods.
func reserve(w *kueue.Workload, gpus int) {
	w.Status.Admission = &kueue.Admission{ClusterQueue: "research", PodSetAssignments: []kueue.PodSetAssignment{{
		Name:          "main",
		Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: "h100"},
		ResourceUsage: resources("nvidia.com/gpu", gpus),
	}}}
	condition(&w.Status.Conditions, kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", "Quota reserved")
}

// preempt has the workload stop for another one.
func preempt(w *kueue.Workload) {
	const message = "Preempted to accommodate another one"
	condition(&w.Status.Conditions, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPreemption, message)
	condition(&w.Status.Conditions, kueue.WorkloadPreempted, metav1.ConditionTrue, kueue.InCohortReclamationReason, message)
}

func resourceOf(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }

package podgroup

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// Gangs may run in another cluster, through a MultiKueue check. The pods stay gated in the manager and show the status of their copies in
// the worker. There, the copy of the Workload is created before the pods and must not be deleted with them.

// runsRemotely reports whether another cluster runs the gang of a Workload.
func runsRemotely(w *kueue.Workload) bool { return ptr.Deref(w.Status.ClusterName, "") != "" }

// isHeldElsewhere reports whether another cluster may still have something of the gang of a Workload: its machines may be the ones that
// the quota is for.
func isHeldElsewhere(w *kueue.Workload) (bool, error) {
	record, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation])
	return len(record.In) > 0 || runsRemotely(w), err
}

// isCopy reports whether a Workload was made by the manager of another cluster.
func isCopy(w *kueue.Workload) bool { return w != nil && workload.IsCopy(w) }

// copyOf is the name of the copy by which pods run that a manager of another cluster has made; empty for others.
func copyOf(job client.Object) string {
	if !isFromManager(job) {
		return ""
	}
	return jobs.PrebuiltName(job)
}

// runsByCopy reports whether a gang runs by a copy that a manager of another cluster has made. A LeaderWorkerSet has several, which go by
// their names.
func (g *gang) runsByCopy() bool {
	return copyOf(g.job) != "" || g.family == ofLeaderWorkerSet && isFromManager(g.job)
}

func isFromManager(job client.Object) bool { return job.GetLabels()[kueue.MultiKueueOriginLabel] != "" }

// originOf returns the UID of the manager's object that a job in a worker was created for, or "".
func originOf(job client.Object) types.UID {
	if uid := job.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation]; uid != "" && isFromManager(job) {
		return types.UID(uid)
	}
	return job.GetUID()
}

// take has the pods of a gang own the copy that was made for them. It reports whether they did already.
func (r *reconciler) take(ctx context.Context, g *gang, w *kueue.Workload) (taken bool, err error) {
	if w == nil {
		return false, writes.ErrBehind // it was made before them
	}
	want, err := r.wanted(ctx, g, w)
	if err != nil {
		return false, err
	}
	wrote, err := writes.Patch(ctx, r.client, w, func(w *kueue.Workload) bool {
		if metav1.GetControllerOf(w) != nil {
			return false
		}
		return own(w, want)
	})
	return !wrote, err
}

// Delegated are the kinds that may run in other clusters.
func Delegated() []Lendable { return []Lendable{{podKind}, {statefulSetKind}, {leaderWorkerSetKind}} }

// Lendable is a kind whose pods stay gated here while others run in another cluster.
type Lendable struct{ kind schema.GroupVersionKind }

// GroupVersionKind is that of the objects that are made there.
func (l Lendable) GroupVersionKind() schema.GroupVersionKind { return l.kind }

// IsShared reports whether several Workloads are for parts of one object.
func (l Lendable) IsShared() bool { return l.kind == leaderWorkerSetKind }

// IsGroup reports whether an object of the kind makes pods that start together.
func (l Lendable) IsGroup() bool { return l.kind != podKind }

// IsSuspended does not matter: what they show here is not what their pods do.
func (Lendable) IsSuspended(client.Object) bool { return false }

// Suspend has nothing to do.
func (Lendable) Suspend(client.Object) {}

// ManagedBy is MultiKueue's: there is no field that says otherwise.
func (Lendable) ManagedBy(client.Object) string { return kueue.MultiKueueControllerName }

// Delegate takes off a pod what the API server there resolves itself, by the classes that it has.
func (Lendable) Delegate(o client.Object) {
	if pod, ok := o.(*corev1.Pod); ok {
		pod.Spec.Priority, pod.Spec.PreemptionPolicy, pod.Spec.Overhead = nil, nil, nil
		pod.Spec.SchedulingGates = slices.DeleteFunc(pod.Spec.SchedulingGates,
			func(g corev1.PodSchedulingGate) bool { return g.Name == topologyGate })
	}
}

// Shown returns the status of a pod in the manager from its copy in a worker. While the copy has no node, the status stays that of a
// gated pod: an autoscaler would add nodes in the manager for a pod that is Unschedulable. The status of other kinds is written by their
// own controller.
func (l Lendable) Shown(here, there *unstructured.Unstructured) any {
	if l.kind != podKind {
		return nil
	}
	own, _, _ := unstructured.NestedSlice(here.Object, "status", "conditions")
	gated := slices.DeleteFunc(own, func(c any) bool {
		return !isScheduled(c) || c.(map[string]any)["reason"] != corev1.PodReasonSchedulingGated
	})
	if len(gated) == 0 { // it showed the other's node
		gated = []any{map[string]any{
			"type": string(corev1.PodScheduled), "status": string(corev1.ConditionFalse), "reason": corev1.PodReasonSchedulingGated,
			"message": "Scheduling is blocked due to non-empty scheduling gates",
		}}
	}
	if there == nil {
		return map[string]any{"phase": string(corev1.PodPending), "conditions": gated}
	}
	status, _, _ := unstructured.NestedMap(there.Object, "status")
	conditions, _, _ := unstructured.NestedSlice(status, "conditions")
	if !slices.ContainsFunc(conditions, func(c any) bool {
		return isScheduled(c) && c.(map[string]any)["status"] == string(corev1.ConditionTrue)
	}) {
		status["conditions"] = append(slices.DeleteFunc(conditions, isScheduled), gated...)
	}
	return status
}

func isScheduled(condition any) bool {
	c, ok := condition.(map[string]any)
	return ok && c["type"] == string(corev1.PodScheduled)
}

// IsOver reports whether a pod has run.
func (l Lendable) IsOver(here *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(here.Object, "status", "phase")
	return l.kind == podKind && (phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed))
}

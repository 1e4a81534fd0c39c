package writes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// FieldManager owns what the queues write to Workloads. Clients that clear fields of a
// Workload rely on this name.
const FieldManager = "kueue-admission"

// owned are the condition types that the queues write; an apply that left one out would
// remove it, and one with others would take them from their owner.
var owned = []string{
	kueue.WorkloadQuotaReserved,
	kueue.WorkloadBlockedOnPreemptionGates,
	kueue.WorkloadEvicted,
	kueue.WorkloadAdmitted,
	kueue.WorkloadPreempted,
	kueue.WorkloadRequeued,
	kueue.WorkloadDeactivationTarget,
	kueue.WorkloadFinished,
	kueue.WorkloadPodsReady,
	kueue.WorkloadWaitingForReplacementPods,
	workload.ConditionAdopted,
}

// configuration is the part of a Workload that an apply of its status names.
type configuration struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        identity             `json:"metadata"`
	Status          kueue.WorkloadStatus `json:"status"`
}

// identity has the UID and the resourceVersion, so that the write fails on a namesake and
// on any version but the one that was judged.
type identity struct {
	Name            string    `json:"name"`
	Namespace       string    `json:"namespace"`
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
}

// remaining are the fields that the status has and should not have, each to be set to null.
func remaining(want, have *kueue.WorkloadStatus) (out []string) {
	for field, left := range map[string]bool{
		"requeueState":          want.RequeueState == nil && have.RequeueState != nil,
		"clusterName":           want.ClusterName == nil && have.ClusterName != nil,
		"nominatedClusterNames": len(want.NominatedClusterNames) == 0 && len(have.NominatedClusterNames) > 0,
	} {
		if left {
			out = append(out, fmt.Sprintf("%q:null", field))
		}
	}
	slices.Sort(out)
	return out
}

// errFinished: caches keep finished Workloads without what they were assigned, which an apply would remove from the API server, too.
var errFinished = errors.New("it is finished, so its status is final")

// ApplyStatus makes status the status of w and returns the Workload as the API
// server has it then. w stays as it is, and must not be finished.
func ApplyStatus(ctx context.Context, c client.Client, w *kueue.Workload, status *kueue.WorkloadStatus) (*kueue.Workload, error) {
	if workload.IsFinished(w) {
		return nil, fmt.Errorf("applying the status of Workload %s/%s: %w", w.Namespace, w.Name, errFinished)
	}
	conf := configuration{
		TypeMeta: metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload"},
		Metadata: identity{w.Name, w.Namespace, w.UID, w.ResourceVersion},
		Status:   *status.DeepCopy(),
	}
	// Written by others.
	conf.Status.ReclaimablePods = nil
	conf.Status.Conditions = slices.DeleteFunc(conf.Status.Conditions, func(c metav1.Condition) bool {
		return !slices.Contains(owned, c.Type)
	})
	data, err := json.Marshal(conf)
	if err != nil {
		return nil, fmt.Errorf("encoding the status of Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	out := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: w.Name, Namespace: w.Namespace}}
	if err := c.Status().Patch(ctx, out, client.RawPatch(types.ApplyPatchType, data), client.FieldOwner(FieldManager),
		client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("applying the status of Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	if left := remaining(status, &out.Status); len(left) > 0 {
		// Other field managers have written them, too, so that the apply does not remove them.
		patch := client.RawPatch(types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"status":{%s}}`, out.ResourceVersion, strings.Join(left, ",")))
		if err := c.Status().Patch(ctx, out, patch, client.FieldOwner(FieldManager)); err != nil {
			return nil, fmt.Errorf("removing fields of the status of Workload %s/%s: %w", w.Namespace, w.Name, err)
		}
	}
	// What wrote which field is most of the object, and nothing reads it.
	out.ManagedFields = nil
	return out, nil
}

package removal

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// groups are the Workloads that Muster has made for StatefulSets and LeaderWorkerSets, whose pods Kueue queues as a group. To Kueue a
// Workload that another object controls is none of the group's, and it stops pods that have none.
func (m *Migration) groups(ctx context.Context) (out []item, err error) {
	var list kueue.WorkloadList
	if err := m.list(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		w := &list.Items[i]
		if c := metav1.GetControllerOf(w); c == nil || c.Kind != "StatefulSet" && c.Kind != "LeaderWorkerSet" {
			continue
		}
		out = append(out, item{"make " + describe(w, "Workload") + " one of a group of pods", func(ctx context.Context) error {
			before := w.DeepCopy()
			for j := range w.OwnerReferences {
				w.OwnerReferences[j].Controller = nil
			}
			w.Annotations = with(w.Annotations, workload.GroupAnnotation, "true")
			return m.Kube.Patch(ctx, w, client.MergeFrom(before))
		}})
	}
	return out, nil
}

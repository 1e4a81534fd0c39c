package removal

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// groupNameLabel on a pod that Kueue queues is the name of the Workload of its group.
const groupNameLabel = "kueue.x-k8s.io/pod-group-name"

// groups are the Workloads that Muster has made for pods that Kueue queues as a group, such as those of a StatefulSet. To Kueue what
// controls such a Workload is a stranger, so that it would stop the pods.
func (m *Migration) groups(ctx context.Context) (out []item, err error) {
	var pods corev1.PodList
	if err := m.list(ctx, &pods, client.MatchingLabels{workload.ManagedLabel: "true"}); err != nil {
		return nil, err
	}
	named := map[client.ObjectKey]bool{}
	for i := range pods.Items {
		named[client.ObjectKey{Namespace: pods.Items[i].Namespace, Name: pods.Items[i].Labels[groupNameLabel]}] = true
	}
	var list kueue.WorkloadList
	if err := m.list(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		w := &list.Items[i]
		if metav1.GetControllerOf(w) == nil || !named[client.ObjectKeyFromObject(w)] {
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

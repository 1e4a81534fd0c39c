package cloudsim

import (
	"context"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// mark is a label or taint that a node has from some time before the end of its machine.
type mark struct {
	at     time.Time
	labels map[string]string
	taints []corev1.Taint
}

// ongoing is how long before a machine is stopped its pods are being evicted.
const ongoing = time.Minute

// marks of the instance before it is stopped, the earliest first: on Google Cloud those of
// GKE, on AWS those of aws-node-termination-handler.
func (i *Instance) marks() []mark {
	if i.halt == nil || i.notice == 0 {
		return nil
	}
	at := i.halt.from.Add(-i.notice)
	if i.Pool.Cloud == v1alpha1.ProviderAWS {
		return []mark{{at: at, taints: []corev1.Taint{
			{Key: "aws-node-termination-handler/scheduled-maintenance", Value: i.ID, Effect: corev1.TaintEffectNoSchedule},
		}}}
	}
	return []mark{
		{at: at, labels: map[string]string{"cloud.google.com/scheduled-maintenance-time": strconv.FormatInt(i.halt.from.Unix(), 10)}},
		{
			at: i.halt.from.Add(-min(ongoing, i.notice)), labels: map[string]string{"cloud.google.com/active-node-maintenance": "ONGOING"},
			taints: []corev1.Taint{{Key: "cloud.google.com/impending-node-termination", Effect: corev1.TaintEffectNoSchedule}},
		},
	}
}

// mark adds the marks that are due to a node. A node that has not registered yet gets them later.
func (j *joining) mark(ctx context.Context, node string, in *Instance) error {
	for at, m := range in.marks() {
		if at < j.marked[in.ID] || j.clock.Now().Before(m.at) {
			continue
		}
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			n := &corev1.Node{}
			if err := j.kube.Get(ctx, client.ObjectKey{Name: node}, n); err != nil {
				return err
			}
			if n.Labels == nil {
				n.Labels = map[string]string{}
			}
			maps.Copy(n.Labels, m.labels)
			n.Spec.Taints = append(n.Spec.Taints, m.taints...)
			return j.kube.Update(ctx, n)
		})
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		j.marked[in.ID] = at + 1
	}
	return nil
}

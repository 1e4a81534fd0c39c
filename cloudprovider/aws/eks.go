package aws

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// clusterNameTag names the EKS cluster of a managed node group.
const clusterNameTag = "eks:cluster-name"

// taintEffects are the effects of taints in the spelling of EKS.
var taintEffects = map[string]corev1.TaintEffect{
	"NO_SCHEDULE": corev1.TaintEffectNoSchedule, "NO_EXECUTE": corev1.TaintEffectNoExecute,
	"PREFER_NO_SCHEDULE": corev1.TaintEffectPreferNoSchedule,
}

// readNodegroup looks up what the nodes of a managed node group register with. Where that cannot
// be read, what the tags of the group declare has to do.
func (d *discovery) readNodegroup(ctx context.Context, c *candidate) {
	cluster, name := c.tags[clusterNameTag], c.tags[managedTag]
	if cluster == "" || name == "" {
		return
	}
	n, err := d.api.DescribeNodegroup(ctx, cluster, name)
	if err != nil {
		c.unread = err.Error()
		log.FromContext(ctx).Error(err, "A managed node group cannot be read", "cluster", cluster, "nodegroup", name)
		return
	}
	c.labels = n.Labels
	for _, t := range n.Taints {
		c.taints = append(c.taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: taintEffects[t.Effect]})
	}
}

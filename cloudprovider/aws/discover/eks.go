package discover

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
)

// clusterNameTag names the EKS cluster of a managed node group.
const clusterNameTag = "eks:cluster-name"

// taintEffects are the effects of taints in the spelling of EKS.
var taintEffects = map[string]corev1.TaintEffect{
	"NO_SCHEDULE": corev1.TaintEffectNoSchedule, "NO_EXECUTE": corev1.TaintEffectNoExecute,
	"PREFER_NO_SCHEDULE": corev1.TaintEffectPreferNoSchedule,
}

// nodegroup is what EKS has answered about one, or why it has refused to.
type nodegroup struct {
	*api.Nodegroup
	refused error
}

// nodegroupKey names the managed node group of a candidate, and what its nodes are made from; empty for none.
func (c *candidate) nodegroupKey() string {
	if c.tags[clusterNameTag] == "" || c.tags[asg.ManagedTag] == "" {
		return ""
	}
	return strings.Join([]string{c.tags[clusterNameTag], c.tags[asg.ManagedTag], c.source}, " ")
}

// readNodegroups reads the labels and taints that nodes of managed node groups register with. Where they cannot be read, the tags of the
// group have to declare them. Where EKS does not answer, the others wait for the next discovery.
func (d *discovery) readNodegroups(ctx context.Context) {
	of := map[string]*candidate{}
	for _, c := range d.candidates {
		if key := c.nodegroupKey(); key != "" {
			of[key] = c
		}
	}
	silent := d.facts.nodegroups.read(d.clock.Now(), slices.Sorted(maps.Keys(of)), func(key string) (nodegroup, error) {
		c := of[key]
		n, err := d.api.DescribeNodegroup(ctx, c.tags[clusterNameTag], c.tags[asg.ManagedTag])
		if !cloudprovider.IsRefused(err) {
			return nodegroup{Nodegroup: n}, err
		}
		log.FromContext(ctx).Error(err, "A managed node group cannot be read", "cluster", c.tags[clusterNameTag],
			"nodegroup", c.tags[asg.ManagedTag])
		return nodegroup{refused: err}, nil
	})
	if silent != nil {
		log.FromContext(ctx).Error(silent, "EKS does not answer; what is known of managed node groups stays")
	}
	for _, c := range d.candidates {
		key := c.nodegroupKey()
		n, ok := d.facts.nodegroups.of(key)
		switch {
		case key == "":
			continue
		case !ok:
			c.unread = silent.Error()
			continue
		case n.refused != nil:
			c.unread = n.refused.Error()
			continue
		}
		c.labels, c.repaired = n.Labels, n.NodeRepairConfig != nil && n.NodeRepairConfig.Enabled
		for _, t := range n.Taints {
			c.taints = append(c.taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: taintEffects[t.Effect]})
		}
	}
}

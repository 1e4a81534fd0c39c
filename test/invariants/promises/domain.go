package promises

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// P1 with a Topology: pods that require one domain of a node label are bound in one. The annotations are read here and
// not by the packages that go by them, which are among what is checked.
const (
	requiredTopologyAnnotation = "kueue.x-k8s.io/podset-required-topology"
	podSetLabel                = "kueue.x-k8s.io/podset"
)

// crew are the pods of one podSet of a queued job that must be in one domain; empty for others.
type crew struct{ level, name string }

func crewOf(o *corev1.Pod) (k crew) {
	owner := metav1.GetControllerOf(o)
	if level := o.Annotations[requiredTopologyAnnotation]; level != "" && owner != nil && o.Labels[podSetLabel] != "" {
		k = crew{level, string(owner.UID) + "/" + o.Labels[podSetLabel]}
	}
	return k
}

// judgeDomain compares the domain of a pod that was bound with those of the others of its crew. Pods on nodes that are gone,
// and those that have been told to stop, were there before.
func (c *Checker) judgeDomain(e Event, p *pod) {
	if p.crew == (crew{}) {
		return
	}
	n := c.nodes[p.node]
	if n.uid == "" || c.unsure(e.Revision, Nodes, Pods) {
		c.unjudged(BoundInDomain)
		return
	}
	c.judged(BoundInDomain)
	domain := n.labels[p.crew.level]
	if domain == "" {
		c.suspect("domain|"+string(p.uid), e, Whole, p.String(), "was bound to node %s, which has no label %s, and requires one domain of it", p.node, p.crew.level)
		return
	}
	for _, o := range c.pods {
		if o.uid == p.uid || o.crew != p.crew || o.node == "" || o.finished || o.leaving || c.nodes[o.node].uid == "" || !c.nodes[o.node].ready {
			continue
		}
		if other := c.nodes[o.node].labels[p.crew.level]; other != domain {
			c.suspect("domain|"+string(p.uid), e, Whole, p.String(), "was bound to node %s in %s %s, and %s is on node %s in %s: both require one domain",
				p.node, p.crew.level, domain, o, o.node, other)
			return
		}
	}
}

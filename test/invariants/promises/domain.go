package promises

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// P1 with a Topology: pods that require one domain of a node label are bound in one. The annotations are read here and
// not by the packages that go by them, which are among what is checked.
const (
	requiredTopologyAnnotation = "kueue.x-k8s.io/podset-required-topology"
	sliceTopologyAnnotation    = "kueue.x-k8s.io/podset-slice-required-topology"
	sliceSizeAnnotation        = "kueue.x-k8s.io/podset-slice-size"
	podSetGroupAnnotation      = "kueue.x-k8s.io/podset-group-name"
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

// judgeDomain compares the domain of a newly bound pod with those of the other pods of its gang. Pods on deleted nodes, and pods that are
// being deleted, are ignored.
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
		c.suspect("domain|"+string(p.uid), e, Whole, p.String(), "was bound to node %s, which has no label %s, and requires one domain of it",
			p.node, p.crew.level)
		return
	}
	for _, o := range c.pods {
		if o.uid == p.uid || o.crew != p.crew || o.node == "" || o.finished || o.leaving || c.nodes[o.node].uid == "" || !c.nodes[o.node].ready {
			continue
		}
		if other := c.nodes[o.node].labels[p.crew.level]; other != domain {
			c.suspect("domain|"+string(p.uid), e, Whole, p.String(),
				"was bound to node %s in %s %s, and %s is on node %s in %s: both require one domain", p.node, p.crew.level, domain, o, o.node, other)
			return
		}
	}
}

// template is what counts of a PodTemplate.
type template struct {
	pod nodegroups.Resources
	// level is the node label that must have one value for all pods, including those of the other podSets of the group.
	level, group string
	// each slice of so many pods needs one domain of sliceLevel, and 0 is none.
	sliceLevel string
	slice      int
}

func templateOf(pod nodegroups.Resources, annotations map[string]string) *template {
	t := &template{pod: pod, level: annotations[requiredTopologyAnnotation], group: annotations[podSetGroupAnnotation]}
	if size, err := strconv.Atoi(annotations[sliceSizeAnnotation]); err == nil && size > 0 {
		t.sliceLevel, t.slice = annotations[sliceTopologyAnnotation], size
	}
	return t
}

// policy is what counts of a CapacityPolicy, and the revision that it is of.
type policy struct {
	level    string
	revision uint64
}

func (c *Checker) applyPolicy(e Event, o *v1alpha1.CapacityPolicy) {
	p := policy{o.Spec.RequiredTopology, e.Revision}
	if e.Deleted {
		p.level = ""
	}
	if old, known := c.policies[o.Name]; known && old.level == p.level {
		return
	}
	c.policies[o.Name] = p
}

// judgeTogether: if the pods of a request, or a slice of them, require one domain, the nodes that are booked when it becomes Provisioned
// have room in one domain (P1). The level that its CapacityPolicy requires applies to all podSets.
func (c *Checker) judgeTogether(e Event, r *request, good map[string]*claim) {
	crews := map[string][]podSet{}
	levels := map[string]string{}
	for i, ps := range r.podSets {
		t := c.templates[ps.template]
		if t.level == "" && t.slice == 0 {
			continue
		}
		name := fmt.Sprint("podSet ", i)
		if t.group != "" {
			name = "the podSets of group " + t.group
		}
		crews[name] = append(crews[name], ps)
		levels[name] = cmp.Or(levels[name], t.level)
	}
	named, known := c.policies[cmp.Or(r.policy, v1alpha1.DefaultPolicy)]
	if named.level != "" || known && named.revision > r.since {
		crews["all podSets"], levels["all podSets"] = r.podSets, named.level
	}
	if len(crews) == 0 {
		return
	}
	if c.unsure(e.Revision, CapacityPolicies) || known && named.revision > r.since {
		c.unjudged(ProvisionsInDomain) // it may have been planned by another policy
		return
	}
	c.judged(ProvisionsInDomain)
	for _, name := range slices.Sorted(maps.Keys(crews)) {
		domains := c.domains(good, levels[name])
		if !slices.ContainsFunc(slices.Collect(maps.Values(domains)), func(d map[string]*claim) bool { return c.holds(d, crews[name]) }) {
			c.suspect("together|"+name+"|"+string(r.uid), e, Whole, r.String(), "became Provisioned, and %s, in one domain of %q with slices in "+
				"one each, have no room in what it has booked: %s", name, levels[name], r.describeClaims())
		}
	}
}

// domains are the claims by the value of a label of their nodes. All are in one domain of the empty level.
func (c *Checker) domains(claims map[string]*claim, level string) map[string]map[string]*claim {
	out := map[string]map[string]*claim{}
	for name, cl := range claims {
		domain := ""
		if level != "" {
			if domain = cl.labels[level]; domain == "" {
				continue
			}
		}
		if out[domain] == nil {
			out[domain] = map[string]*claim{}
		}
		out[domain][name] = cl
	}
	return out
}

// holds reports whether the claims have room for all pods of each podSet, with each of its slices in one domain, and for the sum.
func (c *Checker) holds(claims map[string]*claim, podSets []podSet) bool {
	have, need := nodegroups.Resources{}, nodegroups.Resources{}
	for _, cl := range claims {
		have.Add(cl.amounts, 1)
	}
	for _, ps := range podSets {
		t := c.templates[ps.template]
		need.Add(t.pod, ps.count)
		fit := 0
		for _, domain := range c.domains(claims, t.sliceLevel) {
			n := 0
			for _, cl := range domain {
				n += cl.amounts.Times(t.pod, ps.count)
			}
			if t.slice > 0 {
				n -= n % t.slice
			}
			fit += n
		}
		if fit < ps.count {
			return false
		}
	}
	return short(have, need) == nil
}

package cache

import (
	"cmp"
	"slices"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// Rebuild derives the queues again after a change of an object other than a Workload or a request, which is rare, and
// evaluates every Workload.
func (s *Cache) Rebuild() {
	for _, q := range s.Order {
		// Cheaper than removing them one by one.
		q.Pending.Clear(false)
	}
	for _, w := range s.Workloads {
		s.remove(w)
		// The trees are rebuilt without any usage.
		w.chargedTo, w.charged, w.unobserved = nil, nil, false
	}
	s.Outdated = false
	s.Queues = make(map[kueue.ClusterQueueReference]*ClusterQueue, len(s.ClusterQueues))
	s.Order = s.Order[:0]
	for _, cq := range s.ClusterQueues {
		q := newQueue(cq)
		s.Queues[kueue.ClusterQueueReference(cq.Name)] = q
		s.Order = append(s.Order, q)
	}
	slices.SortFunc(s.Order, func(a, b *ClusterQueue) int { return strings.Compare(a.Object.Name, b.Object.Name) })
	for _, lq := range s.LocalQueues {
		lq.counts = newCounts()
		s.updateUsage(lq)
	}
	s.buildTrees()
	s.Nodes.plant(&s.Settings, s.SelectedKeys())
	for _, q := range s.Order {
		q.Status = s.clusterQueueStatus(q)
	}
	for uid, w := range s.Workloads {
		if w.Assumed != nil {
			// A deleted queue has no usage.
			w.Assumed = s.Queues[kueue.ClusterQueueReference(w.Assumed.Object.Name)]
		}
		w.TopologyUsage = s.usesOf(w)
		s.add(w)
		s.Due[uid] = w
	}
	s.MarkAllDirty()
	if s.Sharing != nil && s.sampleAt.IsZero() {
		// The sample finds out which LocalQueues have usage.
		s.sampleAt = atOnce
	}
}

// atOnce is a time in the past.
var atOnce = time.Unix(0, 0)

// buildTrees builds the trees of cohorts. A cohort without an object has no quota of its own. Cohorts in a cycle form
// no tree; each of their queues gets a tree of its own and is inactive.
func (s *Cache) buildTrees() {
	nodes := map[kueue.CohortReference]*quota.Node{}
	parents := map[kueue.CohortReference]kueue.CohortReference{}
	var names []kueue.CohortReference
	var add func(name kueue.CohortReference)
	add = func(name kueue.CohortReference) {
		if nodes[name] != nil {
			return
		}
		names = append(names, name)
		cohort := s.Cohorts[name]
		if cohort == nil {
			nodes[name] = quota.NewNode(string(name), 1000, nil)
			return
		}
		nodes[name] = quota.NewNode(string(name), weightOf(cohort.Spec.FairSharing), quotasOf(cohort.Spec.ResourceGroups))
		if cohort.Spec.ParentName != "" {
			parents[name] = cohort.Spec.ParentName
			add(cohort.Spec.ParentName)
		}
	}
	for name := range s.Cohorts {
		add(name)
	}
	for _, q := range s.Order {
		if q.Object.Spec.CohortName != "" {
			add(q.Object.Spec.CohortName)
		}
	}
	slices.Sort(names)
	// depth is the number of ancestors of a cohort; -1 in or below a cycle.
	depth := func(name kueue.CohortReference) int {
		for d := 0; ; d++ {
			parent, ok := parents[name]
			if !ok {
				return d
			}
			if d > len(names) {
				return -1
			}
			name = parent
		}
	}
	slices.SortStableFunc(names, func(a, b kueue.CohortReference) int { return cmp.Compare(depth(b), depth(a)) })
	for _, q := range s.Order {
		q.circular = q.Object.Spec.CohortName != "" && depth(q.Object.Spec.CohortName) < 0
		if q.Object.Spec.CohortName != "" && !q.circular {
			q.Node.Join(nodes[q.Object.Spec.CohortName])
		}
	}
	for _, name := range names {
		if parent, ok := parents[name]; ok && depth(name) >= 0 {
			nodes[name].Join(nodes[parent])
		}
	}
	s.CohortNodes = nodes
	s.Trees = s.Trees[:0]
	of := map[*quota.Node]*Tree{}
	for _, q := range s.Order {
		root := q.Node.Root()
		if of[root] == nil {
			of[root] = &Tree{Root: root, QuotaReleased: true}
			s.Trees = append(s.Trees, of[root])
		}
		q.Tree = of[root]
		q.Tree.Queues = append(q.Tree.Queues, q)
	}
}

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/jobs/ranks"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/test/testbed"
)

const rackLabel = "example.com/rack"

const blockLabel = "example.com/block"

// topology is one of racks and nodes, of the site's name, and of levels above them.
func (s *site) topology(above ...string) {
	s.Helper()
	t := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	for _, label := range append(above, rackLabel, corev1.LabelHostname) {
		t.Spec.Levels = append(t.Spec.Levels, kueue.TopologyLevel{NodeLabel: label})
	}
	s.Create(t)
}

// placed are the pods of a Job by host, as its Workload says, and by rack, as they are.
func (s *site) placed(j *batchv1.Job) (assigned map[string]int32, racks map[string]int32) {
	s.Helper()
	assigned, racks = map[string]int32{}, map[string]int32{}
	if w := s.Workload(j); w != nil && w.Status.Admission != nil && w.Status.Admission.PodSetAssignments[0].TopologyAssignment != nil {
		domains, err := placement.Decode(w.Status.Admission.PodSetAssignments[0].TopologyAssignment)
		if err != nil {
			s.Fatal(err)
		}
		for _, d := range domains {
			assigned[d.Values[0]] = d.Count
		}
	}
	var pods corev1.PodList
	s.List(&pods, client.InNamespace(s.Name), client.MatchingLabels{batchv1.JobNameLabel: j.Name})
	for i := range pods.Items {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pods.Items[i].Spec.NodeName}}
		if node.Name == "" || !s.Get(node) {
			continue
		}
		racks[node.Labels[rackLabel]]++
		assigned[node.Labels[corev1.LabelHostname]]--
	}
	return assigned, racks
}

// inOneRack fails unless all pods of the Job are where its Workload says, in one rack.
func (s *site) inOneRack(j *batchv1.Job) (rack string) {
	s.Helper()
	assigned, racks := s.placed(j)
	for node, n := range assigned {
		if n != 0 {
			s.Errorf("%s: %d pods more are assigned to node %s than run there", j.Name, n, node)
		}
	}
	if len(racks) != 1 {
		s.Errorf("%s is in racks %v, want it in one", j.Name, racks)
	}
	for rack = range racks {
	}
	return rack
}

// bornInPlace fails where a pod of a Job has not got its node as it was created, or still has what said which.
func (s *site) bornInPlace(j *batchv1.Job) {
	s.Helper()
	var pods corev1.PodList
	s.List(&pods, client.InNamespace(s.Name), client.MatchingLabels{batchv1.JobNameLabel: j.Name})
	for _, pod := range pods.Items {
		var writers []string
		for _, f := range pod.ManagedFields {
			if f.Subresource == "" {
				writers = append(writers, f.Manager)
			}
		}
		if fmt.Sprint(writers) != "[kube-controller-manager]" || pod.Annotations[ranks.PlanAnnotation] != "" ||
			pod.Spec.NodeSelector[corev1.LabelHostname] == "" {
			s.Errorf("pod %s was written by %v, selects %v and has the annotations %v", pod.Name, writers, pod.Spec.NodeSelector, pod.Annotations)
		}
	}
}

func indexed(j *batchv1.Job) { j.Spec.CompletionMode = new(batchv1.IndexedCompletion) }

func requiresRack(j *batchv1.Job) {
	j.Spec.Template.Annotations[kueue.PodSetRequiredTopologyAnnotation] = rackLabel
}

// TestAJobIsInOneRack of nodes that are there: its pods run on the nodes that its Workload names, and a Job
// for which no rack has room waits until one has.
func TestAJobIsInOneRack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.topology()
	for rack, count := range map[string]int{"a": 4, "b": 3} {
		for i := range count {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%s-%d", s.Name, rack, i), Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
			}}
			n.Labels = map[string]string{testbed.SiteLabel: s.Name, rackLabel: rack, corev1.LabelHostname: "host-" + n.Name}
			n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Ti"),
				"pods": resource.MustParse("100")}
			n.Status.Allocatable = n.Status.Capacity
			s.Create(n)
			s.Cleanup(func() { _ = s.Kube.Delete(s.cleanup(), n) })
		}
	}
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	flavor.Spec.NodeLabels, flavor.Spec.TopologyName = map[string]string{testbed.SiteLabel: s.Name}, new(kueue.TopologyReference(s.Name))
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu"},
		Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(s.Name), Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("64")},
		}}},
	}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Name}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(s.Name)
	s.Create(flavor, cq, lq)

	large := s.plainJob("large", 7, "1h", requiresRack, indexed)
	s.runs(large)
	s.bornInPlace(large)
	small := s.plainJob("small", 5, "1h", requiresRack)
	s.runs(small)
	if a, b := s.inOneRack(large), s.inOneRack(small); a != "a" || b != "b" {
		t.Errorf("the large gang is in rack %s and the small one in %s, want a and b", a, b)
	}
	late := s.plainJob("late", 2, "1h", requiresRack)
	s.Eventually("it is told that no rack has room", func() bool {
		w := s.Workload(late)
		return w != nil && len(w.Status.Conditions) > 0 && strings.Contains(w.Status.Conditions[0].Message,
			"allows to fit only 1 out of 2 pod(s)")
	}, func() string { return fmt.Sprint(s.Workload(late)) })
	s.Delete(small, client.PropagationPolicy(metav1.DeletePropagationBackground))
	s.runs(late)
	if rack := s.inOneRack(late); rack != "b" {
		t.Errorf("the late gang is in rack %s, want b", rack)
	}
}

// TestStoryALaunchedGangIsPlacedInItsRack: the annotation of its pods makes Muster collect machines in one rack, although the cloud
// scatters them. Then the pods are sent to these machines.
func TestStoryALaunchedGangIsPlacedInItsRack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.topology(blockLabel)
	in := func(block string) map[string]string { return map[string]string{blockLabel: block} }
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.MaxNodes = 16
		g.Spec.Topology = []v1alpha1.TopologyLevel{{NodeLabel: blockLabel}, {NodeLabel: rackLabel}}
		g.Spec.Kwok.Domains = &v1alpha1.KwokDomains{
			NodeLabel: rackLabel,
			Of:        []v1alpha1.KwokDomain{{Name: "small", Machines: 1, Labels: in("x")}, {Name: "large", Machines: 8, Labels: in("y")}},
			Placement: v1alpha1.PlacedScattered, LabelDelay: metav1.Duration{Duration: time.Second},
		}
	})
	s.queue(g)
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
	s.edit(flavor, func() { flavor.Spec.TopologyName = new(kueue.TopologyReference(s.Name)) })
	// A pod that has ended makes room for the next: on a slow machine two of one second could run on one node.
	j := s.job("gang", 4, runsInOneRack)
	s.Eventually("all pods run", func() bool {
		_, racks := s.placed(j)
		return racks["large"] == 4
	}, func() string { return fmt.Sprint(s.Workload(j)) })
	s.inOneRack(j)
	if w := s.Workload(j); w != nil && w.Status.Admission != nil {
		if state := w.Status.Admission.PodSetAssignments[0].DelayedTopologyRequest; state == nil ||
			*state != kueue.DelayedTopologyRequestStateReady {
			t.Errorf("the delayed topology request is %v", state)
		}
	}
	s.Delete(j)
	s.Empty(g.Name)
}

// TestLostNodesAreReplacedInTheirRack: of three gangs, one loses a node, one two nodes at once, and one a node whose rack has no other. The
// pods of the first two get new places beside the running ones. The third gang starts in another rack, as a whole.
func TestLostNodesAreReplacedInTheirRack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.topology()
	// A gang gets the tightest rack that holds it; the last one is left for the gang that loses its own.
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.MaxNodes, g.Spec.MinNodes = 21, 21
		g.Spec.Topology = []v1alpha1.TopologyLevel{{NodeLabel: rackLabel}}
		g.Spec.Kwok.Domains = &v1alpha1.KwokDomains{NodeLabel: rackLabel, Placement: v1alpha1.PlacedOverflow,
			Of: []v1alpha1.KwokDomain{{Name: "three", Machines: 3}, {Name: "five", Machines: 5}, {Name: "six", Machines: 6},
				{Name: "seven", Machines: 7}}}
	})
	r := s.request("stock", g.Spec.MaxNodes, nil)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	s.opened(r.Name, int(g.Spec.MaxNodes))
	s.Delete(r)
	s.Eventually("the machines are open to all", func() bool {
		return !slices.ContainsFunc(s.nodes(g.Name), func(n corev1.Node) bool {
			return n.Spec.Unschedulable || n.Annotations[v1alpha1.CordonedAnnotation] != ""
		})
	}, func() string { return fmt.Sprint(s.Left(g.Name)) })
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	flavor.Spec.NodeLabels, flavor.Spec.TopologyName = map[string]string{v1alpha1.NodeGroupLabel: g.Name}, new(kueue.TopologyReference(s.Name))
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu", testbed.GPU},
		Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(s.Name), Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("1000")}, {Name: testbed.GPU, NominalQuota: resource.MustParse("1000")},
		}}},
	}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Name}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(s.Name)
	s.Create(flavor, cq, lq)

	gang := func(name string, count int32, rack string) *batchv1.Job {
		j := s.job(name, count, func(j *batchv1.Job) { runsInOneRack(j); indexed(j) })
		s.runs(j)
		if in := s.inOneRack(j); in != rack {
			t.Errorf("gang %s is in rack %s, want %s", name, in, rack)
		}
		return j
	}
	homeless, one, two := gang("homeless", 2, "three"), gang("one", 3, "five"), gang("two", 4, "six")
	before := s.nodesOfPods(one, two)
	lost := map[string]bool{}
	lose := func(nodes ...string) {
		for _, node := range nodes {
			lost[node] = true
			s.BreakDown(node)
		}
		s.orphansGo()
	}
	lose(slices.Sorted(maps.Values(s.nodesOfPods(one)))[:1]...)
	lose(slices.Sorted(maps.Values(s.nodesOfPods(two)))[:2]...)
	for _, j := range []*batchv1.Job{one, two} {
		s.Eventually("other nodes are assigned to "+j.Name, func() bool {
			assigned, _ := s.placed(j)
			return len(assigned) > 0 && !slices.ContainsFunc(slices.Collect(maps.Keys(assigned)), func(node string) bool { return lost[node] })
		}, func() string { return fmt.Sprint(s.Workload(j)) })
	}
	// The free node of its rack goes first. If all of its own went at once, it would get new places as a whole, without an eviction.
	used := slices.Sorted(maps.Values(s.nodesOfPods(homeless)))
	for _, n := range s.nodes(g.Name) {
		if n.Labels[rackLabel] == "three" && !slices.Contains(used, n.Name) {
			lose(n.Name)
		}
	}
	lose(used[0])
	s.startsAgain(homeless, "there was no replacement for the failed nodes", "seven")
	// The Job controller makes lost pods again after 10 s, and after 20 s where there were two.
	for j, rack := range map[*batchv1.Job]string{one: "five", two: "six"} {
		s.runs(j)
		if in := s.inOneRack(j); in != rack {
			t.Errorf("gang %s is in rack %s, want it where it was, in %s", j.Name, in, rack)
		}
		if c := meta.FindStatusCondition(s.Workload(j).Status.Conditions, kueue.WorkloadEvicted); c != nil {
			t.Errorf("gang %s was evicted: %s", j.Name, c.Message)
		}
	}
	after := s.nodesOfPods(one, two)
	for pod, node := range before {
		if !lost[node] && after[pod] != node {
			t.Errorf("the pod on node %s, which was not lost, does not run there any more", node)
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d pods run, want %d", len(after), len(before))
	}
	for _, j := range []*batchv1.Job{homeless, one, two} {
		s.Delete(j)
	}
	s.Get(g)
	s.idleAtOnce(g)
	s.Empty(g.Name)
}

// TestAGangWhoseRackIsLostStartsInAnother: all of its machines are launched there. A machine that is lost before is replaced in its rack,
// and the other pod keeps running.
func TestAGangWhoseRackIsLostStartsInAnother(t *testing.T) {
	t.Parallel()
	s := newSiteAtOnce(t)
	s.topology()
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.MaxNodes = 6
		g.Spec.Topology = []v1alpha1.TopologyLevel{{NodeLabel: rackLabel}}
		g.Spec.Kwok.Domains = &v1alpha1.KwokDomains{NodeLabel: rackLabel, Placement: v1alpha1.PlacedTogether,
			Of: []v1alpha1.KwokDomain{{Name: "a", Machines: 3}, {Name: "b", Machines: 3}}}
	})
	s.queue(g)
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
	s.edit(flavor, func() { flavor.Spec.TopologyName = new(kueue.TopologyReference(s.Name)) })
	j := s.job("gang", 2, func(j *batchv1.Job) { runsInOneRack(j); indexed(j) })
	s.runs(j)
	if in := s.inOneRack(j); in != "a" {
		t.Errorf("the gang is in rack %s, want a", in)
	}
	before := s.nodesOfPods(j)
	lost := slices.Sorted(maps.Values(before))[0]
	s.BreakDown(lost)
	s.orphansGo()
	var after map[types.UID]string
	s.Eventually("the pod of the lost machine runs on another one", func() bool {
		after = s.nodesOfPods(j)
		return len(after) == 2 && !slices.Contains(slices.Collect(maps.Values(after)), lost)
	}, func() string { return fmt.Sprint(after, s.Workload(j)) })
	s.runs(j)
	if in := s.inOneRack(j); in != "a" {
		t.Errorf("the gang is in rack %s after a machine was lost, want a still", in)
	}
	for pod, node := range before {
		if node != lost && after[pod] != node {
			t.Errorf("the pod on node %s, which was not lost, does not run there any more", node)
		}
	}
	if c := meta.FindStatusCondition(s.Workload(j).Status.Conditions, kueue.WorkloadEvicted); c != nil {
		t.Errorf("the gang was evicted: %s", c.Message)
	}
	// With the rack's machines it has bought more than twice what it needs within minutes.
	s.acceptsPurchases(10)
	s.edit(g, func() {
		g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultDomainLoss, Domains: []string{"a"},
			From: testbed.After(time.Since(g.CreationTimestamp.Time))}}
	})
	for _, n := range s.nodes(g.Name) {
		s.BreakDown(n.Name)
	}
	s.startsAgain(j, "machines with its pods were lost", "b")
	s.Delete(j)
	s.Empty(g.Name)
}

// TestManyDeletedNodesStopNoGang while their machines run, by word of the cloud, until a person decides: then it starts elsewhere, and
// no pod that was made again meanwhile waits for a node that is gone.
func TestManyDeletedNodesStopNoGang(t *testing.T) {
	t.Parallel()
	s := newSiteAtOnce(t)
	s.topology()
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.MaxNodes = 10
		g.Spec.Topology = []v1alpha1.TopologyLevel{{NodeLabel: rackLabel}}
		g.Spec.Kwok.Domains = &v1alpha1.KwokDomains{NodeLabel: rackLabel, Placement: v1alpha1.PlacedTogether,
			Of: []v1alpha1.KwokDomain{{Name: "a", Machines: 5}, {Name: "b", Machines: 5}}}
	})
	s.queue(g)
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
	s.edit(flavor, func() { flavor.Spec.TopologyName = new(kueue.TopologyReference(s.Name)) })
	j := s.job("gang", 5, func(j *batchv1.Job) {
		runsInOneRack(j)
		indexed(j)
		// Without it the Job controller makes pods again only minutes later, since five have failed.
		j.Spec.BackoffLimitPerIndex = new(int32(3))
	})
	s.runs(j)
	gone := map[string]bool{}
	for _, node := range s.nodesOfPods(j) {
		gone[node] = true
		s.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	}
	s.Eventually("a person is asked, and the gang told", func() bool {
		s.orphansGo()
		s.Get(g)
		return meta.IsStatusConditionFalse(g.Status.Conditions, v1alpha1.ConditionNodesPresent) && len(s.Workload(j).Status.UnhealthyNodes) == 5
	}, func() string { return fmt.Sprint(g.Status.Conditions, s.Workload(j).Status.UnhealthyNodes) })
	<-time.After(25 * time.Second) // longer than a few are waited for, and than the Job waits before it makes pods again
	if c := meta.FindStatusCondition(s.Workload(j).Status.Conditions, kueue.WorkloadEvicted); c != nil {
		t.Fatalf("the gang was evicted: %s", c.Message)
	}
	patch := client.MergeFrom(g.DeepCopy())
	g.Annotations = map[string]string{v1alpha1.TerminateAtOnceAnnotation: "5"}
	if err := s.Kube.Patch(s.Context(), g, patch); err != nil {
		t.Fatal(err)
	}
	s.Eventually("the gang runs on other machines", func() bool {
		s.orphansGo()
		on := slices.Collect(maps.Values(s.nodesOfPods(j)))
		return len(on) == 5 && !slices.ContainsFunc(on, func(node string) bool { return gone[node] })
	}, func() string { return fmt.Sprint(s.nodesOfPods(j), s.Workload(j).Status.Conditions) })
	s.runs(j)
	s.inOneRack(j)
	s.Delete(j)
	s.Empty(g.Name)
}

// acceptsPurchases has an administrator accept that so many machines were bought for each request of the site.
func (s *site) acceptsPurchases(machines int) {
	s.Helper()
	var list provreq.ProvisioningRequestList
	s.List(&list, client.InNamespace(s.Name))
	for i := range list.Items {
		r := &list.Items[i]
		s.edit(r, func() {
			metav1.SetMetaDataAnnotation(&r.ObjectMeta, v1alpha1.AcceptedPurchasesAnnotation, strconv.Itoa(machines))
		})
	}
}

// runsInOneRack for an hour.
func runsInOneRack(j *batchv1.Job) {
	j.Spec.Template.Annotations = map[string]string{kwokv1alpha1.RunForAnnotation: "1h"}
	requiresRack(j)
}

// nodesOfPods are the nodes of the pods of Jobs that run, by the UIDs of the pods.
func (s *site) nodesOfPods(jobs ...*batchv1.Job) map[types.UID]string {
	s.Helper()
	out := map[types.UID]string{}
	for _, j := range jobs {
		var pods corev1.PodList
		s.List(&pods, client.InNamespace(s.Name), client.MatchingLabels{batchv1.JobNameLabel: j.Name})
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
				out[p.UID] = p.Spec.NodeName
			}
		}
	}
	return out
}

// orphansGo takes away the pods of nodes that are gone, for which kube-controller-manager takes a minute.
func (s *site) orphansGo() {
	s.Helper()
	var pods corev1.PodList
	s.List(&pods, client.InNamespace(s.Name))
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Spec.NodeName == "" || s.Get(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.Spec.NodeName}}) {
			continue
		}
		if err := client.IgnoreNotFound(s.Kube.Delete(s.Context(), p, client.GracePeriodSeconds(0))); err != nil {
			s.Fatal(err)
		}
	}
}

// startsAgain waits until a Job was evicted with these words and runs in another rack. It never has pods in two.
func (s *site) startsAgain(j *batchv1.Job, words, rack string) {
	s.Helper()
	said := ""
	s.Within(2*testbed.Patience, "gang "+j.Name+" runs in rack "+rack, func() bool {
		s.orphansGo()
		_, racks := s.placed(j)
		if len(racks) > 1 {
			s.Fatalf("gang %s is in racks %v", j.Name, racks)
		}
		if w := s.Workload(j); w != nil {
			if c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted); c != nil {
				said = c.Message
			}
		}
		return said != "" && racks[rack] == *j.Spec.Parallelism
	}, func() string { return fmt.Sprint(s.Workload(j)) })
	s.runs(j)
	s.inOneRack(j)
	if !strings.Contains(said, words) {
		s.Errorf("gang %s was evicted with %q, want %q in it", j.Name, said, words)
	}
}

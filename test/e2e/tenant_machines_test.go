package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/test/testbed"
)

// notHeld is the requirement that keeps unbooked pods off held machines.
var notHeld = corev1.NodeSelectorRequirement{Key: v1alpha1.HeldLabel, Operator: corev1.NodeSelectorOpDoesNotExist}

var cordonToleration = corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}

// terms of a pod's required node affinity.
func terms(p *corev1.Pod) []corev1.NodeSelectorTerm {
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	return nil
}

// TestPodsThatPassACordonAreKeptOffHeldMachines by the mutation of each sort of pod, by each creator.
func TestPodsThatPassACordonAreKeptOffHeldMachines(t *testing.T) {
	s := newSite(t)
	user := s.user()
	as := func(name string, groups ...string) client.Client {
		c, err := s.As(&rest.ImpersonationConfig{UserName: name, Groups: groups})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	tolerates := func(tolerations ...corev1.Toleration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Tolerations = tolerations }
	}
	affine := func(terms ...corev1.NodeSelectorTerm) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
			}}
		}
	}
	zone := corev1.NodeSelectorRequirement{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"zone-a"}}
	byName := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}
	consumes := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Annotations = map[string]string{provreq.ProvisioningRequestPodAnnotationKey: name}
			p.Spec.Tolerations = []corev1.Toleration{cordonToleration}
		}
	}
	forged := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "x", UID: "x", Controller: new(true)}}
		p.Spec.Tolerations = []corev1.Toleration{cordonToleration}
	}
	// The controller of DaemonSets sends each pod to its node by such a term.
	ofOneNode := affine(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{byName}})
	one := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{notHeld}}}
	for name, c := range map[string]struct {
		by     client.Client
		change func(*corev1.Pod)
		want   []corev1.NodeSelectorTerm
	}{
		"an ordinary pod":             {change: func(*corev1.Pod) {}},
		"one that tolerates a taint":  {change: tolerates(corev1.Toleration{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists})},
		"one that outlives its node":  {change: tolerates(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})},
		"one that tolerates a cordon": {change: tolerates(cordonToleration), want: one},
		"one that tolerates what stands in for it": {change: tolerates(corev1.Toleration{Key: v1alpha1.BookedTaint, Operator: corev1.TolerationOpExists}),
			want: one},
		"one that tolerates all":      {change: tolerates(corev1.Toleration{Operator: corev1.TolerationOpExists}), want: one},
		"one that names its node":     {change: func(p *corev1.Pod) { p.Spec.NodeName = "n" }, want: one},
		"one that claims a DaemonSet": {change: forged, want: one},
		"one with another affinity": {change: func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{cordonToleration}
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}
		}, want: one},
		"one with terms of its own": {
			change: affine(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{zone}},
				corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{byName}}),
			want: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{zone, notHeld}},
				{MatchExpressions: []corev1.NodeSelectorRequirement{notHeld}, MatchFields: []corev1.NodeSelectorRequirement{byName}}},
		},
		"one that wants held machines": {
			change: affine(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: v1alpha1.HeldLabel,
				Operator: corev1.NodeSelectorOpExists}}}),
			want: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: v1alpha1.HeldLabel,
				Operator: corev1.NodeSelectorOpExists}, notHeld}}},
		},
		"one that is kept off already": {change: affine(one...), want: one},
		"one with a booking":           {change: consumes("gang")},
		"one with another provisioner's": {change: func(p *corev1.Pod) {
			consumes("gang")(p)
			p.Annotations[provreq.ProvisioningClassPodAnnotationKey] = "theirs"
		}, want: one},
		"one in a queue, which is gated": {change: func(p *corev1.Pod) {
			p.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "main"}
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}},
		"one in a queue that comes with what it is a part of": {
			by: as("system:serviceaccount:kube-system:job-controller", "system:serviceaccounts", "system:authenticated"),
			change: func(p *corev1.Pod) {
				p.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/job-uid": "u"}
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "x", UID: "x", Controller: new(true)}}
				p.Spec.Tolerations = []corev1.Toleration{cordonToleration}
			}, want: one},
		"one of a DaemonSet": {by: as("system:serviceaccount:kube-system:daemon-set-controller", "system:serviceaccounts", "system:authenticated"),
			change: func(p *corev1.Pod) { ofOneNode(p); small(p) },
			want:   []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{byName}}}},
		"one of a DaemonSet that wants devices": {by: as("system:serviceaccount:kube-system:daemon-set-controller", "system:serviceaccounts", "system:authenticated"),
			change: ofOneNode, want: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{notHeld},
				MatchFields: []corev1.NodeSelectorRequirement{byName}}}},
		"one of a DaemonSet where controllers have one name":  {by: as("system:kube-controller-manager", "system:authenticated", "system:masters"), change: func(p *corev1.Pod) { forged(p); small(p) }},
		"one of a DaemonSet that wants devices where they do": {by: as("system:kube-controller-manager", "system:authenticated", "system:masters"), change: forged, want: one},
		"one of a Deployment where they do":                   {by: as("system:kube-controller-manager", "system:authenticated", "system:masters"), change: tolerates(cordonToleration), want: one},
		"one of a Deployment": {by: as("system:serviceaccount:kube-system:replicaset-controller", "system:serviceaccounts", "system:authenticated"),
			change: tolerates(cordonToleration), want: one},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "tried"}, Spec: s.podSpec()}
		c.change(p)
		by := user
		if c.by != nil {
			by = c.by
		}
		if err := by.Create(s.Context(), p, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if fmt.Sprint(terms(p)) != fmt.Sprint(c.want) {
			t.Errorf("%s has the required terms %v, want %v", name, terms(p), c.want)
		}
	}
}

// TestGatedPodsArePlacedWhenTheyLoseTheirGate: before that, a queue may still send them to the nodes of a booking. A requirement that was
// added earlier would keep them off these nodes for good.
func TestGatedPodsArePlacedWhenTheyLoseTheirGate(t *testing.T) {
	s := newSite(t)
	user := s.user()
	for name, c := range map[string]struct {
		change  func(*corev1.Pod)
		want    []corev1.NodeSelectorTerm
		refused bool
	}{
		"without a booking": {change: func(*corev1.Pod) {}, want: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{notHeld}}}},
		"with a booking": {change: func(p *corev1.Pod) {
			p.Annotations = map[string]string{provreq.ProvisioningRequestPodAnnotationKey: "gang"}
			p.Spec.NodeSelector[v1alpha1.BookedLabelPrefix+"gang"] = s.Name
		}},
		"with the annotation alone": {change: func(p *corev1.Pod) {
			p.Annotations = map[string]string{provreq.ProvisioningRequestPodAnnotationKey: "gang"}
		}},
		"with the booking of others": {change: func(p *corev1.Pod) {
			p.Spec.NodeSelector[v1alpha1.BookedLabelPrefix+"gang"] = "theirs"
		}, refused: true},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, GenerateName: "gated-"}, Spec: s.podSpec()}
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.ElasticJobSchedulingGate}}
		if err := user.Create(s.Context(), p); err != nil {
			t.Fatal(err)
		}
		if have := terms(p); len(have) > 0 {
			t.Errorf("%s: gated, it has the required terms %v", name, have)
		}
		// The scheduler writes its status meanwhile.
		p.ResourceVersion = ""
		p.Spec.SchedulingGates = nil
		c.change(p)
		switch err := user.Update(s.Context(), p, client.DryRunAll); {
		case apierrors.IsForbidden(err) && c.refused:
		case err != nil || c.refused:
			t.Errorf("%s: %v", name, err)
		case fmt.Sprint(terms(p)) != fmt.Sprint(c.want):
			t.Errorf("%s it has the required terms %v, want %v", name, terms(p), c.want)
		case p.Annotations[provreq.ProvisioningRequestPodAnnotationKey] != "" && p.Spec.NodeSelector[v1alpha1.BookedLabelPrefix+"gang"] != s.Name:
			t.Errorf("%s it goes to the nodes %v, want those of its request", name, p.Spec.NodeSelector)
		}
	}
}

// TestPodsThatWaitGetNoTolerationOfACordon, which the API server lets any pod get later, when no requirement of nodes can come
// with it any more.
func TestPodsThatWaitGetNoTolerationOfACordon(t *testing.T) {
	s := newSite(t)
	user := s.user()
	gate := corev1.PodSchedulingGate{Name: "example.com/gate"}
	for name, c := range map[string]struct {
		has, gets corev1.Toleration
		change    func(*corev1.Pod)
		refused   bool
	}{
		"a pod":                            {gets: cordonToleration, refused: true},
		"a pod, of all taints":             {gets: corev1.Toleration{Operator: corev1.TolerationOpExists}, refused: true},
		"a pod, of what stands in for one": {gets: corev1.Toleration{Key: v1alpha1.BookedTaint, Operator: corev1.TolerationOpExists}, refused: true},
		"a pod with a gate of others":      {gets: cordonToleration, change: func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{gate} }, refused: true},
		"a pod with a gate of the queues": {gets: cordonToleration, change: func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.ElasticJobSchedulingGate}}
		}},
		"a pod with a booking": {gets: cordonToleration, change: func(p *corev1.Pod) {
			p.Annotations = map[string]string{provreq.ProvisioningRequestPodAnnotationKey: "gang"}
		}},
		"a pod that is kept off by then":     {has: cordonToleration, gets: corev1.Toleration{Operator: corev1.TolerationOpExists}},
		"a pod that keeps off by itself":     {gets: cordonToleration, change: keptOff},
		"a pod that tolerates another taint": {gets: corev1.Toleration{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}},
		"a pod on its node":                  {gets: cordonToleration, change: func(p *corev1.Pod) { p.Spec.NodeName = "n" }},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, GenerateName: "waits-"}, Spec: s.podSpec()}
		// It waits for good.
		p.Spec.NodeSelector = map[string]string{"example.com/none": "x"}
		if c.has != (corev1.Toleration{}) {
			p.Spec.Tolerations = []corev1.Toleration{c.has}
		}
		if c.change != nil {
			c.change(p)
		}
		if err := user.Create(s.Context(), p); err != nil {
			t.Fatal(err)
		}
		// The scheduler writes its status meanwhile.
		p.ResourceVersion = ""
		p.Spec.Tolerations = append(p.Spec.Tolerations, c.gets)
		switch err := user.Update(s.Context(), p, client.DryRunAll); {
		case apierrors.IsForbidden(err) && c.refused:
			if !strings.Contains(err.Error(), "the nodes of a request") {
				t.Errorf("%s gets a toleration: %v", name, err)
			}
		case err != nil || c.refused:
			t.Errorf("%s gets a toleration: %v", name, err)
		}
	}
}

// keptOff has a pod require nodes that are not held.
func keptOff(p *corev1.Pod) {
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{notHeld}}},
	}}}
}

// TestBookedNodesAreSelectedByTheirGangAlone: by the label of a booking that is another's,
// or that the pod's own annotation does not name, no user selects nodes.
func TestBookedNodesAreSelectedByTheirGangAlone(t *testing.T) {
	s := newSite(t)
	user := s.user()
	selects := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{v1alpha1.BookedLabelPrefix + key: value} }
	}
	consumes := func(name string, more ...func(*corev1.Pod)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Annotations = map[string]string{provreq.ProvisioningRequestPodAnnotationKey: name}
			for _, m := range more {
				m(p)
			}
		}
	}
	affine := func(r corev1.NodeSelectorRequirement) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{r}}},
				}}}
		}
	}
	long := strings.Repeat("gang-", 20) + "1"
	for name, c := range map[string]struct {
		change  func(*corev1.Pod)
		refused bool
	}{
		"the annotation alone":         {change: consumes("gang")},
		"of a long name":               {change: consumes(long)},
		"with what the queue adds":     {change: consumes("gang", selects("gang", s.Name))},
		"with an affinity to the same": {change: consumes("gang", affine(corev1.NodeSelectorRequirement{Key: v1alpha1.BookedLabelPrefix + "gang", Operator: corev1.NodeSelectorOpIn, Values: []string{s.Name}}))},
		"away from all of a name":      {change: affine(corev1.NodeSelectorRequirement{Key: v1alpha1.BookedLabelPrefix + "gang", Operator: corev1.NodeSelectorOpDoesNotExist})},
		"without the annotation":       {change: selects("gang", s.Name), refused: true},
		"of another namespace":         {change: selects("gang", "theirs"), refused: true},
		"of another request":           {change: consumes("gang", selects("other", s.Name)), refused: true},
		"of another namespace's":       {change: consumes("gang", selects("gang", "theirs")), refused: true},
		"by an affinity":               {change: affine(corev1.NodeSelectorRequirement{Key: v1alpha1.BookedLabelPrefix + "gang", Operator: corev1.NodeSelectorOpExists}), refused: true},
		"by an affinity to another's":  {change: consumes("gang", affine(corev1.NodeSelectorRequirement{Key: v1alpha1.BookedLabelPrefix + "gang", Operator: corev1.NodeSelectorOpIn, Values: []string{"theirs"}})), refused: true},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "tried"}, Spec: s.podSpec()}
		c.change(p)
		err := user.Create(s.Context(), p, client.DryRunAll)
		if refused := apierrors.IsForbidden(err) && strings.Contains(err.Error(),
			"which are booked for a ProvisioningRequest of another name or namespace"); refused != c.refused || !c.refused && err != nil {
			t.Errorf("%s: refused %t: %v", name, refused, err)
		}
	}
}

// TestASquatterIsKeptOffAndAGangRuns: a Deployment of a user tolerates every taint. It runs
// on a free node and on no machine that joins or is booked for the gang.
func TestASquatterIsKeptOffAndAGangRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	user := s.user()
	g := s.Group("", nil)
	squatter := func(name string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name}, Spec: s.podSpec()}
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		if err := user.Create(s.Context(), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	early := squatter("early")
	r := s.request("gang", 2, nil)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	late := squatter("late")
	held := &corev1.NodeList{}
	if err := s.Kube.List(s.Context(), held, client.MatchingLabels{testbed.SiteLabel: s.Name, v1alpha1.HeldLabel: "true"}); err != nil ||
		len(held.Items) != 2 {
		t.Fatalf("%d nodes are held, want 2 (%v)", len(held.Items), err)
	}
	var gang []*corev1.Pod
	for i := range 2 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: fmt.Sprint("gang-", i), Annotations: map[string]string{
			provreq.ProvisioningRequestPodAnnotationKey: r.Name, "kwok.muster.dev/run-for": "1s"}}, Spec: s.podSpec()}
		if err := user.Create(s.Context(), p); err != nil {
			t.Fatal(err)
		}
		gang = append(gang, p)
	}
	s.Eventually("the gang runs on its machines", func() bool {
		return !slices.ContainsFunc(gang, func(p *corev1.Pod) bool { return !s.Get(p) || p.Spec.NodeName == "" })
	}, func() string { return fmt.Sprint(gang[0].Status, gang[1].Status) })
	s.condition(r, provreq.BookingExpired, metav1.ConditionTrue)
	names := []string{gang[0].Spec.NodeName, gang[1].Spec.NodeName}
	for _, n := range held.Items {
		if !slices.Contains(names, n.Name) {
			t.Errorf("node %s was held, and the gang runs on %v", n.Name, names)
		}
	}
	// Once the gang has left a machine that is open, any pod may run there.
	s.Eventually("the squatters run where nothing is held any more, or wait", func() bool {
		return s.Get(early) && s.Get(late)
	}, func() string { return "" })
	for _, n := range held.Items {
		if s.Get(&n); n.Labels[v1alpha1.HeldLabel] != "" && !n.Spec.Unschedulable {
			t.Errorf("node %s bears the label without a cordon", n.Name)
		}
	}
	s.Get(g)
	for _, a := range g.Status.Attempts {
		if a.Class != "" {
			t.Errorf("the group has learned of a failure: %+v", a)
		}
	}
	s.Delete(early)
	s.Delete(late)
	s.Delete(r)
	s.Empty(g.Name)
}

// TestADaemonSetThatWantsDevicesTakesNoneOfAGang: each of its pods requests a GPU, and its controller creates one for each node. A gang
// uses all GPUs of machines that were launched for it, and the pods wait until one is free.
func TestADaemonSetThatWantsDevicesTakesNoneOfAGang(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	user := s.user()
	g := s.Group("", nil)
	greedy := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "greedy"}}
	greedy.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "greedy"}}
	greedy.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: greedy.Spec.Selector.MatchLabels}, Spec: s.podSpec()}
	greedy.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	greedy.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Limits: corev1.ResourceList{testbed.GPU: resource.MustParse("1")},
	}
	if err := user.Create(s.Context(), greedy); err != nil {
		t.Fatal(err)
	}
	s.Eventually("its controller has seen it", func() bool { return s.Get(greedy) && greedy.Status.ObservedGeneration == 1 },
		func() string { return fmt.Sprint(greedy.Status) })
	r := s.request("gang", 2, nil)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	s.Eventually("a pod is made for each machine", func() bool { return s.Get(greedy) && greedy.Status.DesiredNumberScheduled == 2 },
		func() string { return fmt.Sprint(greedy.Status) })
	gang := s.consume(user, r, 2)
	s.Eventually("the gang runs", func() bool {
		return !slices.ContainsFunc(gang, func(p *corev1.Pod) bool { return !s.Get(p) || p.Status.Phase != corev1.PodRunning })
	}, func() string { return fmt.Sprint(s.pods(), r.Status.Conditions) })
	var pods corev1.PodList
	s.List(&pods, client.InNamespace(s.Name), client.MatchingLabels(greedy.Spec.Selector.MatchLabels))
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName != "" {
			t.Errorf("pod %s has taken a GPU of node %s", p.Name, p.Spec.NodeName)
		}
	}
	s.Delete(greedy)
	for _, p := range gang {
		s.Delete(p, client.GracePeriodSeconds(0))
	}
	s.Delete(r)
	s.Empty(g.Name)
}

// consume creates the pods of a request.
func (s *site) consume(user client.Client, r *provreq.ProvisioningRequest, count int) (out []*corev1.Pod) {
	s.Helper()
	for i := range count {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: fmt.Sprint(r.Name, "-", i), Annotations: map[string]string{
			provreq.ProvisioningRequestPodAnnotationKey: r.Name}}, Spec: s.podSpec()}
		if err := user.Create(s.Context(), p); err != nil {
			s.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

// TestMusterChangesNoMoreThanItNeeds: with its own identity, of nodes and pods.
func TestMusterChangesNoMoreThanItNeeds(t *testing.T) {
	s := newSite(t)
	muster, err := s.As(&rest.ImpersonationConfig{UserName: "system:serviceaccount:" + deploy.Namespace + ":" + deploy.ServiceAccount})
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: map[string]string{"theirs": "x"}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "gated"}, Spec: s.podSpec()}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/elastic-job"}, {Name: "theirs/gate"}}
	s.Create(node, pod)
	t.Cleanup(func() { _ = s.Kube.Delete(s.cleanup(), node) })
	for name, c := range map[string]struct {
		of      client.Object
		patch   string
		refused string
	}{
		"a cordon of its own": {of: node, patch: `{"metadata":{"labels":{"muster.node-restriction.kubernetes.io/held":"true","booked.muster.dev/gang":"ns"},
			"annotations":{"muster.dev/cordoned":"booked","cluster-autoscaler.kubernetes.io/scale-down-disabled":"true"}},"spec":{"unschedulable":true}}`},
		"another's label":      {of: node, patch: `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, refused: "node-role.kubernetes.io/control-plane"},
		"a label taken off":    {of: node, patch: `{"metadata":{"labels":{"theirs":null}}}`, refused: "the label or annotation theirs"},
		"an annotation":        {of: node, patch: `{"metadata":{"annotations":{"theirs":"x"}}}`, refused: "the label or annotation theirs"},
		"a taint":              {of: node, patch: `{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`, refused: "only unschedulable"},
		"a finalizer":          {of: node, patch: `{"metadata":{"finalizers":["theirs/keep"]}}`, refused: "only unschedulable"},
		"the gate of quota":    {of: pod, patch: `{"spec":{"schedulingGates":[{"name":"theirs/gate"},{"$patch":"delete","name":"kueue.x-k8s.io/elastic-job"}]}}`},
		"another's gate":       {of: pod, patch: `{"spec":{"schedulingGates":[{"$patch":"delete","name":"theirs/gate"}]}}`, refused: "no scheduling gate"},
		"an image":             {of: pod, patch: `{"spec":{"containers":[{"name":"main","image":"theirs"}]}}`, refused: "only its scheduling gates"},
		"an annotation of pod": {of: pod, patch: `{"metadata":{"annotations":{"x":"y"}}}`, refused: "only if it is in a queue and gated"},
	} {
		err := muster.Patch(s.Context(), c.of.DeepCopyObject().(client.Object),
			client.RawPatch(types.StrategicMergePatchType, []byte(c.patch)), client.DryRunAll)
		if c.refused == "" && err != nil || c.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: %v, want %q", name, err, c.refused)
		}
	}
	s.Eventually("a cordon with its taint is let through", func() bool {
		s.Get(node)
		cordoned := node.DeepCopy()
		state.MakeUnschedulable(cordoned)
		err := muster.Patch(s.Context(), cordoned, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}), client.DryRunAll)
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) { // other controllers taint it, too
			t.Fatal(err)
		}
		return err == nil
	}, func() string { return fmt.Sprint(node.Spec) })
}

// TestTenantsOnlyTightenTheirTerms: annotations of a job and parameters of a request that loosen an admin's bounds keep it pending, with
// the bound in the message. Tighter ones are served.
func TestTenantsOnlyTightenTheirTerms(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	s.queue(g)
	user := s.user()
	greedy := s.newPlainJob("greedy", 1, "1s", func(j *batchv1.Job) {
		j.Annotations = map[string]string{"provreq.kueue.x-k8s.io/bookingTimeout": "87600h"}
		j.Spec.Template.Spec = s.podSpec()
	})
	if err := user.Create(s.Context(), greedy); err != nil {
		t.Fatal(err)
	}
	if c := s.pending(greedy,
		`the annotation provreq.kueue.x-k8s.io/bookingTimeout is "87600h": without a CapacityPolicy it may be 10m0s at most`); c.Reason !=
		kueue.WorkloadQuotaReservedReasonMisconfigured {
		t.Errorf("the job waits: %s: %s", c.Reason, c.Message)
	}
	s.complete(s.job("modest", 1, func(j *batchv1.Job) { j.Annotations = map[string]string{"provreq.kueue.x-k8s.io/bookingTimeout": "5m"} }))

	long := s.request("long", 1, func(r *provreq.ProvisioningRequest) {
		r.Spec.Parameters = map[string]provreq.Parameter{"bookingTimeout": "87600h"}
	})
	if c := s.condition(long, provreq.Provisioned, metav1.ConditionFalse); !strings.Contains(c.Message,
		`parameter bookingTimeout is "87600h": without a CapacityPolicy it may be 10m0s at most`) {
		t.Errorf("the request waits: %s", c.Message)
	}
	// With the rights that Kueue's users have on requests, none may say which queue pays.
	meta := metav1.ObjectMeta{Namespace: s.Name, Name: "requests"}
	s.Create(
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"autoscaling.x-k8s.io"}, Resources: []string{"provisioningrequests"}, Verbs: []string{"get", "create", "patch", "delete"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "user-of-" + s.Name}}},
	)
	label := []byte(`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"free"}}}`)
	s.Eventually("the user may not say which queue pays", func() bool {
		err := user.Patch(s.Context(), long, client.RawPatch(types.MergePatchType, label))
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "says whose budget pays for it")
	}, func() string { return "it may" })
	s.Delete(long)
	s.Delete(greedy)
	s.Empty(g.Name)
}

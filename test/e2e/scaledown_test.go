package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/test/testbed"
)

// metric is the sum of the series of that name which bear all of the labels, each
// written as it is shown.
func (s *site) metric(name string, labels ...string) float64 {
	s.Helper()
	return s.scrape()(name, labels...)
}

// scrape reads all metrics at one instant.
func (s *site) scrape() (metric func(name string, labels ...string) float64) {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.MusterMetrics(), http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	series := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "} ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			series[name] = v
		}
	}
	return func(name string, labels ...string) (sum float64) {
		for s, v := range series {
			without := func(label string) bool { return !strings.Contains(s, label) }
			if strings.HasPrefix(s, name+"{") && !slices.ContainsFunc(labels, without) {
				sum += v
			}
		}
		return sum
	}
}

// lives measures the total lifetime of the machines of a group, by a watch.
func (s *site) lives(group string) (total func() time.Duration) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	s.Cleanup(cancel)
	events, err := s.Kube.Watch(ctx, &kwokv1alpha1.MachineList{}, client.MatchingLabels{v1alpha1.NodeGroupLabel: group})
	if err != nil {
		s.Fatal(err)
	}
	var mu sync.Mutex
	var sum time.Duration
	born := map[types.UID]time.Time{}
	go func() {
		for e := range events.ResultChan() {
			m, ok := e.Object.(*kwokv1alpha1.Machine)
			if !ok {
				continue
			}
			mu.Lock()
			switch e.Type {
			case watch.Added:
				born[m.UID] = time.Now()
			case watch.Deleted:
				sum += time.Since(born[m.UID])
			}
			mu.Unlock()
		}
	}()
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return sum
	}
}

func TestAPoolThatGives99Of100KeepsNothingAndShowsWhatTheyCost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.NewGroup("", func(g *v1alpha1.NodeGroup) { g.Spec.MaxNodes, g.Spec.Kwok.Holds = 100, new(int32(99)) })
	lived := s.lives(g.Name)
	s.Create(g)
	r := s.request("hundred", 100, nil)
	c := s.condition(r, provreq.Provisioned, metav1.ConditionFalse)
	if !strings.Contains(c.Message, "99 of 100 machines were made") {
		t.Errorf("the request says: %s", c.Message)
	}
	if left := s.Left(g.Name); slices.ContainsFunc(left, func(name string) bool { return strings.HasPrefix(name, "machine/") }) {
		t.Errorf("the request says that nothing was found, and %v are left", left)
	}
	s.Delete(r)     // it would launch again
	s.Empty(g.Name) // a node that was about to register may be there for a moment
	group := fmt.Sprintf("group=%q", g.Name)
	metric := s.scrape()
	wasted := func() float64 { return metric("muster_machine_seconds_total", group, `purpose="wasted"`) }
	s.Eventually("the account is closed", func() bool {
		metric = s.scrape()
		return metric("muster_machines", group) == 0 && wasted() > 0
	}, func() string {
		return fmt.Sprintf("machines %g, wasted %g s", metric("muster_machines", group), wasted())
	})
	usd, seconds, seen := metric("muster_machine_cost_usd_total", group), wasted(), lived().Seconds()
	s.Logf("the machines lived %g s in all; metric: %g s, %g USD", seen, seconds, usd)
	// Two watches observe each machine, each with its own delay.
	if seconds < seen/2 || seconds > 2*seen {
		t.Errorf("the machines lived %g s, as their watch tells; the metric says %g s", seen, seconds)
	}
	if want := seconds * 98.32 / 3600; usd < 0.99*want || usd > want {
		t.Errorf("they cost %g USD, want %g", usd, want)
	}
	// A busy machine may have launched again before the request was deleted.
	if n, all := metric("muster_launches_total", group, `outcome="Stockout"`), metric("muster_launches_total", group); n < 1 || all != n {
		t.Errorf("%g launches met a stockout, and %g ended in all; want one at least, and as many", n, all)
	}
}

func TestAnIdleMachineServesAPendingGangBeforeItIsScaledDown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) { g.Spec.MaxNodes, g.Spec.IdleTimeout = 2, &metav1.Duration{} })
	first := s.request("first", 2, nil)
	s.condition(first, provreq.Provisioned, metav1.ConditionTrue)
	for i := range 2 {
		s.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: fmt.Sprint("first-", i), Annotations: map[string]string{
			provreq.ProvisioningRequestPodAnnotationKey: "first", "kwok.muster.dev/run-for": "4s"}}, Spec: s.podSpec()})
	}
	s.condition(first, provreq.BookingExpired, metav1.ConditionTrue)
	if n := s.metric("muster_machines", fmt.Sprintf("group=%q", g.Name), `state="used"`); n != 2 {
		t.Errorf("%g machines are used, want 2", n)
	}
	before := s.Left(g.Name)
	second := s.request("second", 2, nil)
	s.condition(second, provreq.Provisioned, metav1.ConditionFalse)
	s.condition(second, provreq.Provisioned, metav1.ConditionTrue)
	if diff := cmp.Diff(before, s.Left(g.Name)); diff != "" {
		t.Errorf("the second gang has other machines than the first (-first +second):\n%s", diff)
	}
	s.Delete(second)
	s.Empty(g.Name)
}

func TestABudgetKeepsAnIdleMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) { g.Spec.MinNodes = 1 })
	r := s.request("one", 1, nil)
	s.leaveIdle(r, g)

	// A replica that uses none of the machine's GPUs comes to it.
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "web"}}
	web.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	web.Spec.Template.Labels = web.Spec.Selector.MatchLabels
	web.Spec.Template.Spec = s.podSpec()
	web.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	web.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "web"}}
	budget.Spec.Selector, budget.Spec.MinAvailable = web.Spec.Selector, &one
	s.Create(web, budget)
	replica := func() (p corev1.Pod) {
		var pods corev1.PodList
		if err := s.Kube.List(t.Context(), &pods, client.InNamespace(s.Name)); err == nil && len(pods.Items) > 0 {
			p = pods.Items[0]
		}
		return p
	}
	s.Eventually("the replica runs on the machine, under its budget", func() bool {
		return s.Get(budget) && budget.Status.CurrentHealthy == 1 && replica().Spec.NodeName != ""
	}, func() string { return fmt.Sprintf("pod %v; budget %+v", replica().Status, budget.Status) })
	before := replica()

	elsewhere := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: s.Name, Labels: map[string]string{testbed.SiteLabel: s.Name}, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
	}}
	room := corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("10")}
	elsewhere.Status.Allocatable, elsewhere.Status.Capacity = room, room
	s.Create(elsewhere)
	s.Eventually("the other node is Ready and takes pods", func() bool {
		ready := func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		return s.Get(elsewhere) && slices.ContainsFunc(elsewhere.Status.Conditions, ready) && len(elsewhere.Spec.Taints) == 0
	}, func() string { return fmt.Sprint(elsewhere.Status.Conditions, elsewhere.Spec.Taints) })
	s.idleAtOnce(g)
	s.Eventually("the machine is about to go", func() bool {
		nodes := s.nodes(g.Name)
		return len(nodes) == 1 && nodes[0].Annotations[v1alpha1.CordonedAnnotation] == v1alpha1.CordonScalingDown
	}, func() string { return fmt.Sprint(s.Left(g.Name)) })
	<-time.After(5 * time.Second) // in which it is tried to evict the replica
	if now := replica(); now.UID != before.UID || now.DeletionTimestamp != nil || len(s.Left(g.Name)) != 2 {
		t.Errorf("the budget was passed over: replica %s became %s; left %v", before.Name, now.Name, s.Left(g.Name))
	}
	s.Delete(budget)
	s.Empty(g.Name)
	s.Eventually("the replica runs elsewhere", func() bool { return replica().Spec.NodeName == elsewhere.Name },
		func() string { return fmt.Sprint(replica().Status) })
	s.Delete(web)
	s.Delete(elsewhere)
}

// TestNoUnbookedPodRunsOnAnIdleMachine: a small pod would keep it for as long as it runs, at the expense of no budget. Pods of DaemonSets
// come, and so does the next gang, which launches nothing.
func TestNoUnbookedPodRunsOnAnIdleMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) { g.Spec.IdleTimeout.Duration = time.Hour })
	s.leaveIdle(s.request("one", 1, nil), g)
	s.Eventually("the machine is held", func() bool {
		nodes := s.nodes(g.Name)
		return len(nodes) == 1 && nodes[0].Annotations[v1alpha1.CordonedAnnotation] == v1alpha1.CordonIdle
	}, func() string { return fmt.Sprint(s.nodes(g.Name)) })
	before := s.Left(g.Name)

	small := corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("10m")}}
	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "stranger"}, Spec: s.podSpec()}
	stranger.Spec.Containers[0].Resources = small
	daemon := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "daemon"}}
	daemon.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "daemon"}}
	daemon.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: daemon.Spec.Selector.MatchLabels}, Spec: s.podSpec()}
	daemon.Spec.Template.Spec.RestartPolicy, daemon.Spec.Template.Spec.Containers[0].Resources = corev1.RestartPolicyAlways, small
	s.Create(stranger, daemon)
	s.Eventually("the pod of the DaemonSet runs, and kube-scheduler has refused the stranger", func() bool {
		refused := func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
		}
		return s.Get(daemon) && daemon.Status.NumberReady == 1 && s.Get(stranger) && slices.ContainsFunc(stranger.Status.Conditions, refused)
	}, func() string { return fmt.Sprint(daemon.Status, stranger.Status) })

	next := s.request("next", 1, nil)
	s.condition(next, provreq.Provisioned, metav1.ConditionTrue)
	if diff := cmp.Diff(before, s.Left(g.Name)); diff != "" {
		t.Errorf("the next gang has other machines (-before +after):\n%s", diff)
	}
	s.Delete(next)
	s.Delete(stranger)
	s.Delete(daemon)
	s.idleAtOnce(g)
	s.Empty(g.Name)
}

// leaveIdle deletes the request of one machine once it has booked it. A moment before, the machine
// would be an orphan of a launch, which is terminated at once.
func (s *site) leaveIdle(r *provreq.ProvisioningRequest, g *v1alpha1.NodeGroup) {
	s.Helper()
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	s.Eventually("its machine is booked", func() bool {
		nodes := s.nodes(g.Name)
		return len(nodes) == 1 && nodes[0].Labels[v1alpha1.BookedLabelPrefix+state.BookingKey(r.Name)] == r.Namespace
	}, func() string { return fmt.Sprint(s.Left(g.Name)) })
	s.Delete(r)
}

// Its pods may run on, so it is kept until a person has said that it is lost, or for ten
// minutes.
func TestAMachineWhoseNodeIsDeletedIsKeptAWhile(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) { g.Spec.MinNodes = 1 })
	r := s.request("one", 1, nil)
	s.leaveIdle(r, g)
	s.Eventually("the machine is open to all", func() bool {
		nodes := s.nodes(g.Name)
		return len(nodes) == 1 && !nodes[0].Spec.Unschedulable
	}, func() string { return fmt.Sprint(s.Left(g.Name)) })
	s.Delete(&s.nodes(g.Name)[0])
	<-time.After(25 * time.Second) // longer than one that has never had a node is kept
	if left := s.Left(g.Name); len(left) != 1 {
		t.Fatalf("left are %v, want the machine", left)
	}
	patch := client.MergeFrom(g.DeepCopy())
	g.Annotations = map[string]string{v1alpha1.TerminateAtOnceAnnotation: "1"}
	if err := s.Kube.Patch(s.Context(), g, patch); err != nil {
		t.Fatal(err)
	}
	s.Empty(g.Name)
}

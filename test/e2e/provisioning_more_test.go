package e2e

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/checks"
	"github.com/muster-dev/muster/test/testbed"
)

// consumers creates n pods of a whole machine each that name the request.
func (s *site) consumers(request string, n int, annotations map[string]string) {
	s.Helper()
	for i := range n {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: fmt.Sprintf("%s-%d", request[:min(len(request), 40)], i),
			Annotations: map[string]string{provreq.ProvisioningRequestPodAnnotationKey: request}}, Spec: s.podSpec()}
		for k, v := range annotations {
			p.Annotations[k] = v
		}
		s.Create(p)
	}
}

// event waits for an Event about the request and returns its note.
func (s *site) event(r *provreq.ProvisioningRequest, reason string) (note string) {
	s.Helper()
	s.Eventually("an Event "+reason, func() bool {
		var list eventsv1.EventList
		if s.Kube.List(s.Context(), &list, client.InNamespace(s.Name)) != nil {
			return false
		}
		for _, e := range list.Items {
			if e.Regarding.UID == r.UID && e.Reason == reason {
				note = e.Note
			}
		}
		return note != ""
	}, func() string { return fmt.Sprintf("conditions: %v", r.Status.Conditions) })
	return note
}

// Pods may be there before their request, as when one manifest has both. The watch
// over the promises sees to it that none is bound before it is Provisioned.
func TestPodsThatComeEarlyWaitForTheWholeGang(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultLateDevices, Machines: []int64{2}, After: testbed.After(2 * time.Second)}}
	})
	s.consumers("launched", 3, nil)
	launched := s.request("launched", 3, nil)
	if c := s.condition(launched, provreq.BookingExpired, metav1.ConditionTrue); c.Reason != transaction.ReasonBookingConsumed {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	s.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "launched-0"}})
	s.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "launched-1"}})
	// The same on nodes that are there, and open.
	s.consumers("found", 2, nil)
	found := s.request("found", 2, func(r *provreq.ProvisioningRequest) { r.Spec.ProvisioningClassName = transaction.ClassCheckCapacity })
	if c := s.condition(found, provreq.BookingExpired, metav1.ConditionTrue); c.Reason != transaction.ReasonBookingConsumed {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	if n := len(s.nodes(g.Name)); n != 3 {
		t.Errorf("%d nodes, want the same 3", n)
	}
	s.Delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name}})
	s.Empty(g.Name)
}

func TestAMachineThatDiesWhileItBootsIsReplaced(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultBootDeath, Machines: []int64{1}}}
	})
	r := s.request("three", 3, nil)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	s.opened("three", 3)
	if note := s.event(r, "MachineReplaced"); !strings.Contains(note, "Attempt 1 launches 1 machine again") {
		t.Errorf("the Event says: %s", note)
	}
	if a, err := transaction.DecodeAttempt(string(r.Status.ProvisioningClassDetails[transaction.AttemptDetail])); err != nil ||
		a.Number != 1 || len(a.Replacements) != 1 {
		t.Errorf("attempt %+v (%v), want the first with one replacement", a, err)
	}
	s.Delete(r)
	s.Empty(g.Name)
}

func TestAMachineReclaimedBeforeThePodsComeIsReplaced(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultReclaim, Machines: []int64{0}, After: testbed.After(8 * time.Second)}}
	})
	r := s.request("two", 2, nil)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	first := s.opened("two", 2)
	if note := s.event(r, transaction.ReasonMachineLost); !strings.Contains(note, "node ") {
		t.Errorf("the Event says: %s", note)
	}
	s.Eventually("two nodes are open again", func() bool {
		now := s.opened("two", 2)
		return now[0].UID != first[0].UID || now[1].UID != first[1].UID
	}, func() string { return "" })
	if !s.Get(r) || meta.IsStatusConditionTrue(r.Status.Conditions, provreq.BookingExpired) ||
		!meta.IsStatusConditionTrue(r.Status.Conditions, provreq.Provisioned) {
		t.Errorf("the request does not stay Provisioned: %v", r.Status.Conditions)
	}
	s.consumers("two", 2, nil)
	if c := s.condition(r, provreq.BookingExpired, metav1.ConditionTrue); c.Reason != transaction.ReasonBookingConsumed {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	s.Delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name}})
	s.Empty(g.Name)
}

func TestAMachineLostUnderARunningGangIsReported(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		revoke bool
	}{{"event", false}, {"condition", true}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			g := s.Group("", func(g *v1alpha1.NodeGroup) {
				g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultReclaim, Machines: []int64{0}, After: testbed.After(10 * time.Second)}}
			})
			r := s.request("two", 2, func(r *provreq.ProvisioningRequest) {
				if tc.revoke {
					r.Spec.Parameters = map[string]provreq.Parameter{v1alpha1.ParamOnMachineLoss: "Revoke"}
				}
			})
			s.consumers("two", 2, map[string]string{"kwok.muster.dev/run-for": "60s"})
			s.condition(r, provreq.BookingExpired, metav1.ConditionTrue)
			if note := s.event(r, transaction.ReasonMachineLost); !strings.Contains(note, "was lost with 1 pod of the gang") {
				t.Errorf("the Event says: %s", note)
			}
			if tc.revoke {
				s.condition(r, provreq.CapacityRevoked, metav1.ConditionTrue)
			} else if s.Get(r); meta.FindStatusCondition(r.Status.Conditions, provreq.CapacityRevoked) != nil {
				t.Errorf("nobody has asked for CapacityRevoked: %v", r.Status.Conditions)
			}
			s.Delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name}})
			s.Empty(g.Name)
		})
	}
}

// TestAQueuedGangThatLosesAMachineIsRequeued by default, since its pods could run nowhere else: at once, since Muster observes the loss.
func TestAQueuedGangThatLosesAMachineIsRequeued(t *testing.T) {
	t.Parallel()
	newSite(t).losesAMachine("was lost with 1 pod of the gang", func(reclaimed func()) { reclaimed() })
}

// pausedWhileAMachineIsLost: the gang is queued again once its pod is seen to be stranded, for
// a minute.
func pausedWhileAMachineIsLost(s *site) {
	s.losesAMachine("1 pod of the gang could not be scheduled for", s.paused)
}

// losesAMachine runs a gang of two and removes one of its machines. The message of the eviction contains why.
func (s *site) losesAMachine(why string, during func(func())) {
	s.Helper()
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultReclaim, Machines: []int64{0}, After: testbed.After(15 * time.Second)}}
	})
	s.queue(g)
	// The pod that is left runs until it is stopped.
	j := s.job("train", 2, func(j *batchv1.Job) {
		j.Spec.Template.Annotations = map[string]string{"kwok.muster.dev/run-for": "1h"}
	})
	s.runs(j)
	workload := s.Workload(j).Name
	consumed := func(attempt int32) {
		s.condition(&provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name,
			Name: checks.RequestName(workload, "capacity", attempt)}}, provreq.BookingExpired, metav1.ConditionTrue)
	}
	consumed(1)
	during(func() { s.reclaimed(g.Name) })
	var evicted *metav1.Condition
	s.Within(2*testbed.Patience, "the eviction of the gang", func() bool {
		if w := s.Workload(j); w != nil {
			evicted = meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted)
		}
		return evicted != nil
	}, func() string { return fmt.Sprint(s.Workload(j)) })
	if evicted.Status == metav1.ConditionTrue && !strings.Contains(evicted.Message, why) {
		s.Errorf("it is evicted for %s: %s", evicted.Reason, evicted.Message)
	}
	consumed(2)
	s.runs(j)
	s.Delete(j)
	s.Empty(g.Name)
}

// TestAGangKeepsItsRoomBetweenTwoPods of a Job that has more completions than it runs at
// once: another gang waits for the only machine there is, and machines that are idle for
// a second go.
func TestAGangKeepsItsRoomBetweenTwoPods(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) { g.Spec.MaxNodes = 1 })
	s.queue(g)
	first := s.job("first", 1, func(j *batchv1.Job) {
		j.Spec.Completions = new(int32(3))
		j.Spec.Template.Annotations = map[string]string{"kwok.muster.dev/run-for": "3s"}
	})
	s.runs(first)
	machine := s.nodes(g.Name)[0].Name
	second := s.job("second", 1, nil)
	s.complete(first)
	if w := s.Workload(first); w != nil && meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted) != nil {
		t.Errorf("it was evicted: %+v", w.Status)
	}
	var pods corev1.PodList
	if err := s.Kube.List(t.Context(), &pods, client.InNamespace(s.Name), client.MatchingLabels{batchv1.JobNameLabel: "first"}); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName != machine {
			t.Errorf("pod %s ran on %q, the first one on %s", p.Name, p.Spec.NodeName, machine)
		}
	}
	s.complete(second)
	s.Empty(g.Name)
}

// reclaimed waits until one of the group's two nodes is gone, and takes away its pods, for
// which kube-controller-manager takes a minute.
func (s *site) reclaimed(group string) {
	s.Helper()
	s.Eventually("the loss of a node", func() bool { return len(s.nodes(group)) == 1 }, func() string { return fmt.Sprint(s.Left(group)) })
	left := s.nodes(group)[0].Name
	var pods corev1.PodList
	if err := s.Kube.List(s.Context(), &pods, client.InNamespace(s.Name)); err != nil {
		s.Fatal(err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName != "" && p.Spec.NodeName != left {
			if err := client.IgnoreNotFound(s.Kube.Delete(s.Context(), p, client.GracePeriodSeconds(0))); err != nil {
				s.Fatal(err)
			}
		}
	}
}

func TestANamespaceHasItsLimits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	limits := &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	three, four := int32(3), int32(4)
	limits.Spec.Limits = &v1alpha1.CapacityLimits{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Name}}, Machines: &three,
	}
	s.Create(limits, &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-generous"}})
	first := s.request("first", 2, nil)
	s.condition(first, provreq.Provisioned, metav1.ConditionTrue)
	// Naming another policy evades nothing.
	second := s.request("second", 2, func(r *provreq.ProvisioningRequest) {
		r.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamPolicy: provreq.Parameter(s.Name + "-generous")}
	})
	c := s.condition(second, provreq.Provisioned, metav1.ConditionFalse)
	if want := fmt.Sprintf("uses 2 of the 3 machines in CapacityPolicy %s (spec.limits.machines) and the gang needs 2 more, 1 too many",
		s.Name); !strings.Contains(c.Message, want) {
		t.Errorf("the request says %q, not %q", c.Message, want)
	}
	patch := client.MergeFrom(limits.DeepCopy())
	limits.Spec.Limits.Machines = &four
	if err := s.Kube.Patch(t.Context(), limits, patch); err != nil {
		t.Fatal(err)
	}
	s.condition(second, provreq.Provisioned, metav1.ConditionTrue)
	s.Delete(first)
	s.Delete(second)
	s.Empty(g.Name)
	s.Delete(limits)
}

func TestARequestIsOnlyForTheInstanceThatItNames(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	// What is seen while machines boot must last until a slow test sees it.
	g := s.Group("", func(g *v1alpha1.NodeGroup) { g.Spec.Kwok.BootDelay.Duration = time.Minute })
	r := s.request("elsewhere", 1, func(r *provreq.ProvisioningRequest) {
		r.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamProcessor: "another"}
	})
	if note := s.event(r, "NotServed"); !strings.Contains(note, `"another"`) {
		t.Errorf("the Event says: %s", note)
	}
	// A request that is moved to another class while its machines boot leaves none of them.
	moved := s.request("moved", 2, nil)
	s.Eventually("two machines boot", func() bool { return s.Get(moved) && len(s.Left(g.Name)) == 2 }, func() string { return "" })
	patch := client.MergeFrom(moved.DeepCopy())
	moved.Spec.Parameters = map[string]provreq.Parameter{transaction.ParamProcessor: "another"}
	if err := s.Kube.Patch(t.Context(), moved, patch); err != nil {
		t.Fatal(err)
	}
	s.Empty(g.Name)
	s.Delete(moved)
}

func TestMachinesOfADeletedGroupAreScaledDown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	r := s.request("two", 2, nil)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	s.opened("two", 2)
	s.Delete(g)
	launching := s.Group("-launching", func(g *v1alpha1.NodeGroup) {
		g.Spec.Kwok.BootDelay.Duration = time.Minute
		g.Spec.Template.Labels["launching"] = "true"
	})
	second := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "booting"}}
	second.Template.Spec = s.podSpec()
	second.Template.Spec.NodeSelector["launching"] = "true"
	booting := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "booting"}}
	booting.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
	booting.Spec.PodSets = []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: "booting"}, Count: 2}}
	s.Create(second, booting)
	s.Eventually("two machines boot", func() bool { return len(s.Left(launching.Name)) == 2 }, func() string { return "" })
	s.Delete(launching)
	s.Empty(launching.Name)
	s.Delete(booting)
	if !s.Get(r) || meta.IsStatusConditionTrue(r.Status.Conditions, provreq.BookingExpired) {
		t.Errorf("the booking ended with its group: %v", r.Status.Conditions)
	}
	// That machines without a group go when they are idle is for others to show.
	s.consumers("two", 2, nil)
	s.condition(r, provreq.BookingExpired, metav1.ConditionTrue)
	s.Create(s.NewGroup("", nil))
	s.Delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name}})
	s.Empty(g.Name)
}

func TestHeldNodesAreKeptFromAClusterAutoscaler(t *testing.T) {
	t.Parallel()
	const disabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	s := newSite(t)
	g := s.Group("", nil)
	r := s.request("two", 2, nil)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	for _, n := range s.opened("two", 2) {
		if n.Annotations[disabled] != "true" {
			t.Errorf("node %s: annotations %v", n.Name, n.Annotations)
		}
	}
	s.consumers("two", 2, nil)
	s.condition(r, provreq.BookingExpired, metav1.ConditionTrue)
	if nodes := s.nodes(g.Name); slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Annotations[disabled] != "" }) {
		t.Errorf("nodes that run their gang are still held: %v", nodes)
	}
	s.Delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name}})
	s.Empty(g.Name)
}

func TestLongNames(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	// They differ in the middle only, which their bookings do not show.
	names := []string{strings.Repeat("a", 126) + "b" + strings.Repeat("a", 126), strings.Repeat("a", 126) + "c" + strings.Repeat("a", 126)}
	first := s.request(names[0], 1, nil)
	s.condition(first, provreq.Provisioned, metav1.ConditionTrue)
	second := s.request(names[1], 1, nil)
	if c := s.condition(second, provreq.Provisioned, metav1.ConditionFalse); !strings.Contains(c.Message, names[0]) {
		t.Errorf("the second request says: %s", c.Message)
	}
	s.consumers(names[0], 1, nil)
	s.condition(first, provreq.BookingExpired, metav1.ConditionTrue)
	s.Delete(first)
	s.condition(second, provreq.Provisioned, metav1.ConditionTrue)
	s.Delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name}})
	s.Empty(g.Name)
}

// TestADeviceThatNoGroupDeclaresIsWaitedFor, since agents may add it to nodes that join.
func TestADeviceThatNoGroupDeclaresIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Group("", nil)
	r := s.request("abacus", 1, nil, func(p *corev1.PodSpec) {
		p.Containers[0].Resources.Limits["example.com/abacus"] = resource.MustParse("1")
	})
	c := s.condition(r, provreq.Provisioned, metav1.ConditionFalse)
	if c.Reason != transaction.ReasonCapacityIsNotFound || !strings.Contains(c.Message,
		"no NodeGroup declares the resource example.com/abacus") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
}

func TestGangsThatNoGroupCanServeFail(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Group("", nil)
	for _, tc := range []struct {
		name   string
		count  int32
		change func(*corev1.PodSpec)
		want   string
	}{
		{"two-minds", 1, func(p *corev1.PodSpec) {
			p.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: testbed.SiteLabel, Operator: corev1.NodeSelectorOpNotIn, Values: []string{s.Name}}}}}}}}
		}, "podSet two-minds"},
		{"more-pods-than-there-are-machines", math.MaxInt32, func(*corev1.PodSpec) {}, "short"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := s.in(t)
			template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: tc.name}}
			template.Template.Spec = s.podSpec()
			tc.change(&template.Template.Spec)
			r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: tc.name}}
			r.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
			r.Spec.PodSets = []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: tc.name}, Count: tc.count}}
			in.Create(template, r)
			if c := in.condition(r, provreq.Failed, metav1.ConditionTrue); c.Reason != transaction.ReasonCapacityIsNotFound ||
				!strings.Contains(c.Message, tc.want) {
				t.Errorf("%s: %s; want it to speak of %q", c.Reason, c.Message, tc.want)
			}
			in.Delete(r)
		})
	}
}

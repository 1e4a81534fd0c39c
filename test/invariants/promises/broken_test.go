package promises

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// brokenCase breaks a promise in one way.
type brokenCase struct {
	name string
	do   func(*course)
	// want are pieces of the only violation, promise and object first.
	want []string
}

func runBroken(t *testing.T, cases []brokenCase) {
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			c := newCourse(t)
			tt.do(c)
			got := c.verdict()
			if n := len(c.Violations()); n != 1 {
				t.Errorf("%d violations, want 1:\n%s", n, got)
			}
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("the violation does not say %q:\n%s", want, got)
				}
			}
		})
	}
}

// bind binds a new pod to a node.
func (c *course) bind(p *corev1.Pod, n *corev1.Node) *corev1.Pod {
	c.show(p)
	p.Spec.NodeName = n.Name
	c.show(p)
	return p
}

// other makes another request, for pods with so many GPUs each.
func (c *course) other(name string, pods, gpus int) *provreq.ProvisioningRequest {
	r := newRequest(name, pods)
	condition(&r.Status.Conditions, provreq.Provisioned, metav1.ConditionFalse, "CapacityIsNotFound", "Not yet")
	c.show(newTemplate(name, gpus), r)
	return r
}

// together makes another request, for pods with the annotations.
func (c *course) together(name string, annotations map[string]string, pods int) *provreq.ProvisioningRequest {
	t := newTemplate(name, 8)
	t.Template.Annotations = annotations
	r := newRequest(name, pods)
	c.show(t, r)
	return r
}

// bookAll books a pod's room on each node, and has the request become Provisioned.
func (c *course) bookAll(r *provreq.ProvisioningRequest, nodes ...*corev1.Node) {
	for _, n := range nodes {
		c.book(n, r, 8)
		c.show(n)
	}
	c.provision(r)
}

func (c *course) provision(r *provreq.ProvisioningRequest) {
	condition(&r.Status.Conditions, provreq.Provisioned, metav1.ConditionTrue, "CapacityIsFound", "Booked")
	c.show(r)
}

// late has a pod of a gang bound where another has booked, so long before the time is over for which its own gang had.
func late(c *course, before time.Duration) {
	n := c.static("shared")
	a, b := c.other("a", 1, 8), c.other("b", 1, 8)
	c.book(n, a, 8)
	c.show(n)
	condition(&a.Status.Conditions, provreq.Provisioned, metav1.ConditionTrue, "CapacityIsFound",
		"Capacity is booked for 1 pod until "+c.now.Add(time.Minute).UTC().Format(time.RFC3339))
	c.show(a)
	c.pass(time.Minute - before)
	unbook(n, a)
	c.book(n, b, 8)
	c.show(n)
	c.bind(consuming(newPod("a-0", 8), "a"), n)
}

// static is a node that was there before.
func (c *course) static(name string) *corev1.Node {
	n := newNode(name)
	c.show(n)
	return n
}

// rack is a node that was in a rack before.
func (c *course) rack(name, rack string) *corev1.Node {
	n := newNode(name)
	n.Labels["rack"] = rack
	c.show(n)
	return n
}

// inOneRack has a pod require one rack with the others of a Job.
func inOneRack(p *corev1.Pod, job *batchv1.Job) *corev1.Pod {
	controlledBy(p, "Job", job)
	p.Annotations = map[string]string{"kueue.x-k8s.io/podset-required-topology": "rack"}
	p.Labels = map[string]string{"kueue.x-k8s.io/podset": "main"}
	return p
}

func TestWholeIsBroken(t *testing.T) {
	runBroken(t, []brokenCase{
		{"a pod is bound before its request is Provisioned", func(c *course) {
			c.upTo("nodes are booked")
			c.bind(consuming(newPod("eager", 8), "gang"), c.nodes[0])
			c.step("request is provisioned")
		}, []string{"P1 whole: Pod team/eager", "was bound to node spot-0", "team/gang: it has not been Provisioned"}},
		{"a pod consumes a request that does not exist", func(c *course) {
			c.bind(consuming(newPod("stray", 8), "nowhere"), c.static("static"))
		}, []string{"P1 whole: Pod team/stray", "team/nowhere: none has ever been seen"}},
		{"a pod is bound after its request was deleted unserved", func(c *course) {
			c.upTo("request waits")
			c.remove(c.request)
			c.bind(consuming(newPod("orphan", 8), "gang"), c.static("static"))
		}, []string{"Pod team/orphan", "deleted without having been Provisioned"}},
		{"a queued pod runs and names no request", func(c *course) {
			c.upTo("request comes")
			condition(&c.workload.Status.Conditions, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "Too early")
			c.show(c.workload)
			p := newPod("worker", 8)
			controlledBy(p, "Job", c.job)
			c.bind(p, c.static("static"))
		}, []string{"P1 whole: Pod team/worker", "Workload team/train has a capacity check", "it has not been Provisioned"}},
		{"two pods that require one rack are in two", func(c *course) {
			c.bind(inOneRack(newPod("a", 1), c.job), c.rack("static-0", "r1"))
			c.bind(inOneRack(newPod("b", 1), c.job), c.rack("static-1", "r2"))
		}, []string{"P1 whole: Pod team/b", "was bound to node static-1 in rack r2, and Pod team/a is on node static-0 in r1"}},
		{"a pod that requires one rack is in none", func(c *course) {
			c.bind(inOneRack(newPod("a", 1), c.job), c.static("static"))
		}, []string{"P1 whole: Pod team/a", "was bound to node static, which has no label rack"}},
		{"a request that requires one rack has its room in two", func(c *course) {
			r := c.together("pair", map[string]string{requiredTopologyAnnotation: "rack"}, 2)
			c.bookAll(r, c.rack("static-0", "r1"), c.rack("static-1", "r2"))
		}, []string{"P1 whole: ProvisioningRequest team/pair", `podSet 0, in one domain of "rack"`}},
		{"a slice has its room in two racks", func(c *course) {
			r := c.together("four", map[string]string{sliceTopologyAnnotation: "rack", sliceSizeAnnotation: "2"}, 4)
			c.bookAll(r, c.rack("static-0", "r1"), c.rack("static-1", "r1"), c.rack("static-2", "r1"), c.rack("static-3", "r2"))
		}, []string{"P1 whole: ProvisioningRequest team/four", "podSet 0"}},
		{"a policy requires one rack and the room is in two", func(c *course) {
			c.show(&v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultPolicy},
				Spec: v1alpha1.CapacityPolicySpec{RequiredTopology: "rack"}})
			r := c.together("pair", nil, 2)
			c.bookAll(r, c.rack("static-0", "r1"), c.rack("static-1", "r2"))
		}, []string{"P1 whole: ProvisioningRequest team/pair", `all podSets, in one domain of "rack"`}},
		{"a booked node is not Ready", func(c *course) {
			c.upTo("nodes join")
			ready(c.nodes[1], false)
			c.show(c.nodes[1])
			c.pass(3 * time.Second)
			c.step("nodes are booked")
			c.step("request is provisioned")
		}, []string{"P1 whole: ProvisioningRequest team/gang", "room for 1 of 2 pods", "short of cpu 4, nvidia.com/gpu 8",
			"spot-1 (not Ready, "}},
		{"a booked node stopped being Ready a while ago", func(c *course) {
			c.upTo("nodes are booked")
			ready(c.nodes[1], false)
			c.show(c.nodes[1])
			c.pass(3 * time.Second)
			c.step("request is provisioned")
		}, []string{"P1 whole: ProvisioningRequest team/gang", "spot-1 (not Ready, "}},
		{"a booked node went a while ago", func(c *course) {
			c.upTo("nodes are booked")
			c.machines[1].Status.Phase = kwokv1alpha1.MachineTerminated
			c.show(c.machines[1])
			c.remove(c.nodes[1])
			c.pass(3 * time.Second)
			c.step("request is provisioned")
		}, []string{"P1 whole: ProvisioningRequest team/gang", "room for 1 of 2 pods"}},
		{"a booking was taken off again", func(c *course) {
			r, first, second := c.other("pair", 2, 8), c.static("static-0"), c.static("static-1")
			for _, n := range []*corev1.Node{first, second} {
				c.book(n, r, 8)
				c.show(n)
			}
			unbook(second, r)
			c.show(second)
			c.provision(r)
		}, []string{"P1 whole: ProvisioningRequest team/pair", "its nodes: static-0 (Ready, "}},
		{"nothing is booked at all", func(c *course) {
			c.upTo("request waits")
			c.step("request is provisioned")
		}, []string{"P1 whole: ProvisioningRequest team/gang", "its nodes: none"}},
		{"the booking is of another request's UID", func(c *course) {
			c.upTo("nodes join")
			uid := c.request.UID
			c.step("nodes are booked")
			c.request.UID = "uid-of-an-older-one"
			c.book(c.nodes[1], c.request, 8)
			c.request.UID = uid
			c.show(c.nodes[1])
			c.step("request is provisioned")
		}, []string{"P1 whole: ProvisioningRequest team/gang", "room for 1 of 2 pods"}},
		{"the label is of another namespace", func(c *course) {
			c.upTo("nodes are booked")
			c.nodes[1].Labels[state.BookingLabel("gang")] = "elsewhere"
			n := c.nodes[1].DeepCopy()
			n.UID = "uid-of-the-same-node-again"
			c.remove(c.nodes[1])
			c.pass(3 * time.Second)
			c.show(n)
			c.step("request is provisioned")
		}, []string{"P1 whole: ProvisioningRequest team/gang", "room for 1 of 2 pods"}},
		{"the room is in pieces that hold no pod", func(c *course) {
			first, second := c.static("static-0"), c.static("static-1")
			r := c.other("pieces", 2, 8)
			label := state.BookingLabel(r.Name)
			for n, gpus := range map[*corev1.Node]int64{first: 12, second: 4} {
				n.Labels[label] = namespace
				n.Status.Allocatable[gpu] = *resourceOf(16)
				n.Annotations[label] = state.Booking{UID: r.UID, Since: c.now, Booked: nodegroups.Resources{"cpu": 4000, "pods": 1, gpu: gpus}}.Encode()
				c.show(n)
			}
			c.provision(r)
		}, []string{"P1 whole: ProvisioningRequest team/pieces", "room for 1 of 2 pods of template pieces"}},
		{"a Job's pod is created while its Workload waits", func(c *course) {
			c.upTo("workload waits")
			p := newPod("worker", 8)
			controlledBy(p, "Job", c.job)
			c.show(p)
		}, []string{"P1 whole: Pod team/worker", "was created by Job train", "its Workload train is not Admitted"}},
		{"a Job's pod is created while it has no Workload", func(c *course) {
			c.upTo("job comes")
			p := newPod("worker", 8)
			controlledBy(p, "Job", c.job)
			c.show(p)
		}, []string{"P1 whole: Pod team/worker", "LocalQueue local of ClusterQueue research", "it has no Workload"}},
		{"a Job's pod is created after its Workload was evicted and released", func(c *course) {
			c.upTo("booking is consumed")
			c.workload.Status.Admission = nil
			condition(&c.workload.Status.Conditions, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Pending", "Evicted")
			condition(&c.workload.Status.Conditions, kueue.WorkloadAdmitted, metav1.ConditionFalse, "NoReservation", "Evicted")
			c.show(c.workload)
			p := newPod("replacement", 8)
			controlledBy(p, "Job", c.job)
			c.show(p)
		}, []string{"P1 whole: Pod team/replacement", "its Workload train is not Admitted"}},
		{"a Job that grows has no Workload that is Admitted", func(c *course) {
			c.upTo("workload waits")
			c.show(replacing(c, "grown"))
			p := newPod("worker", 8)
			controlledBy(p, "Job", c.job)
			c.show(p)
		}, []string{"P1 whole: Pod team/worker", "its Workload train is not Admitted"}},
		{"a Job's pod is created long after its Workload was deleted", func(c *course) {
			c.upTo("booking is consumed")
			c.remove(c.workload)
			c.pass(3 * time.Second)
			p := newPod("replacement", 8)
			controlledBy(p, "Job", c.job)
			c.show(p)
		}, []string{"P1 whole: Pod team/replacement", "its Workload train was deleted"}},
	})
}

func TestLeaksAreSeen(t *testing.T) {
	machine := func(c *course, name, group, token string) { c.show(newMachine(name, group, token)) }
	fail := func(c *course) {
		record(c.request, 1, transaction.RollingBack, launches)
		c.show(c.request)
	}
	runBroken(t, []brokenCase{
		{"a machine of no request", func(c *course) { machine(c, "stray", "spot", "uid-of-nobody-1") },
			[]string{"P2 nothing leaks: Machine stray", `no ProvisioningRequest with UID "uid-of-nobody" has ever been seen`}},
		{"a machine without a token", func(c *course) { machine(c, "stray", "spot", "") },
			[]string{"P2 nothing leaks: Machine stray", `launch token ""`}},
		{"the attempt is not on record", func(c *course) {
			c.upTo("request waits")
			machine(c, "early", "spot", state.Token(c.request.UID, 1))
		}, []string{"P2 nothing leaks: Machine early", "ProvisioningRequest team/gang has not recorded that attempt"}},
		{"the attempt is recorded after the machine", func(c *course) {
			c.upTo("request waits")
			machine(c, "early", "spot", state.Token(c.request.UID, 1))
			c.step("attempt begins")
		}, []string{"P2 nothing leaks: Machine early", "has not recorded that attempt"}},
		{"the token is of an attempt to come", func(c *course) {
			c.upTo("attempt begins")
			machine(c, "early", "spot", state.Token(c.request.UID, 2))
		}, []string{"P2 nothing leaks: Machine early", "has not recorded that attempt"}},
		{"the attempt asks nothing of the group", func(c *course) {
			c.upTo("attempt begins")
			machine(c, "stray", "on-demand", state.Token(c.request.UID, 1))
		}, []string{"P2 nothing leaks: Machine stray", "asks for 0 machines of the group, and this is number 1"}},
		{"a machine is replaced that nobody has on record as lost", func(c *course) {
			c.upTo("machines are made")
			machine(c, "third", "spot", state.Token(c.request.UID, 1)+"r1")
		}, []string{"P2 nothing leaks: Machine third", "asks for 0 machines of the group, and this is number 1"}},
		{"one machine too many", func(c *course) {
			c.upTo("machines are made")
			machine(c, "third", "spot", state.Token(c.request.UID, 1))
		}, []string{"P2 nothing leaks: Machine third", "asks for 2 machines of the group, and this is number 3"}},
		{"a launch is repeated after its machines were terminated", func(c *course) {
			c.upTo("machines are made")
			fail(c)
			c.remove(c.machines[0], c.machines[1])
			again := newMachine(c.machines[0].Name, "spot", c.machines[0].Spec.Launch)
			again.UID = "uid-of-another"
			c.show(again)
			c.remove(again)
		}, []string{"P2 nothing leaks: Machine spot-0", "this is number 3"}},
		{"a cluster-autoscaler has not asked for a machine yet", func(c *course) {
			g := foreignGroup("")
			c.show(g)
			machine(c, "early", "foreign", "uid-of-foreign-1")
		}, []string{"P2 nothing leaks: Machine early", "asked for 0 machines"}},
		{"a cluster-autoscaler gets more than it has asked for", func(c *course) {
			c.show(foreignGroup(`{"last":1,"open":[{"number":1,"count":1}]}`))
			machine(c, "one", "foreign", "uid-of-foreign-1")
			machine(c, "two", "foreign", "uid-of-foreign-1")
		}, []string{"P2 nothing leaks: Machine two", "asked for 1 machines", "this is number 2"}},
		{"a node of a cloud without Machines belongs to no request", func(c *course) {
			n := newNode("ip-10-0-0-1")
			n.Annotations[v1alpha1.LaunchAnnotation] = "uid-of-nobody-1"
			c.show(n)
		}, []string{"P2 nothing leaks: Node ip-10-0-0-1", "has ever been seen"}},
		{"a machine is left after a rollback", func(c *course) {
			c.upTo("machines are made")
			fail(c)
			c.remove(c.machines[0])
			c.pass(6 * time.Second)
		}, []string{"P2 nothing leaks: Machine spot-1", "that attempt of ProvisioningRequest team/gang has failed", "bound 5s"}},
		{"a node is left after a rollback, booked by the request itself", func(c *course) {
			c.upTo("nodes are booked")
			fail(c)
			c.remove(c.machines[0], c.nodes[0], c.machines[1])
			c.pass(6 * time.Second)
		}, []string{"P2 nothing leaks: Node spot-1 (its Machine is gone)", "bound 5s"}},
		{"a machine comes after the rollback and stays", func(c *course) {
			c.upTo("attempt begins")
			fail(c)
			c.pass(time.Minute)
			machine(c, "straggler", "spot", state.Token(c.request.UID, 1))
			c.pass(6 * time.Second)
		}, []string{"P2 nothing leaks: Machine straggler", "bound 5s"}},
		{"the next attempt begins while a machine of the last is there", func(c *course) {
			c.upTo("machines are made")
			c.remove(c.machines[0])
			record(c.request, 2, transaction.Launching, launches)
			c.show(c.request)
			c.pass(6 * time.Second)
		}, []string{"P2 nothing leaks: Machine spot-1", "has failed"}},
		{"the request fails while machines are in flight", func(c *course) {
			c.upTo("machines are made")
			c.remove(c.machines[0])
			condition(&c.request.Status.Conditions, provreq.Failed, metav1.ConditionTrue, "Expired", "Too late")
			c.show(c.request)
			c.pass(6 * time.Second)
		}, []string{"P2 nothing leaks: Machine spot-1", "has failed"}},
		{"a machine is left after its request was deleted", func(c *course) {
			c.upTo("nodes join")
			c.remove(c.request, c.machines[0], c.nodes[0])
			c.pass(50 * time.Second)
			if got := c.Violations(); len(got) > 0 {
				c.Errorf("too early: %v", got)
			}
			c.pass(20 * time.Second)
		}, []string{"P2 nothing leaks: Machine spot-1", "was deleted while that attempt was not complete", "bound 1m0s"}},
		{"an idle machine stays", func(c *course) {
			c.upTo("machines idle")
			c.remove(c.machines[0], c.nodes[0])
			c.pass(30 * time.Second)
		}, []string{"P2 nothing leaks: Machine spot-1", "idleTimeout of 1m0s"}},
		{"an idle machine stays once the group may shrink", func(c *course) {
			c.group.Spec.MinNodes = 2
			c.upTo("machines idle")
			c.pass(time.Hour)
			c.group.Spec.MinNodes = 1
			c.show(c.group)
			c.remove(c.machines[0], c.nodes[0])
			c.pass(20 * time.Second)
			c.group.Spec.MinNodes = 0
			c.show(c.group)
			c.pass(35 * time.Second)
		}, []string{"P2 nothing leaks: Machine spot-1", "more than its 0 machines"}},
	})
}

func TestDoublePromisesAreSeen(t *testing.T) {
	runBroken(t, []brokenCase{
		{"two requests book the same GPUs", func(c *course) {
			n := c.static("static")
			a, b := c.other("a", 1, 5), c.other("b", 1, 5)
			c.book(n, a, 5)
			c.show(n)
			c.book(n, b, 5)
			c.show(n)
		}, []string{"P3 no double promise: Node static", "booked with cpu 4, nvidia.com/gpu 5, pods 1 for ProvisioningRequest team/b",
			"by nvidia.com/gpu 2", "the booking of team/a since resourceVersion"}},
		{"a booking grows over another", func(c *course) {
			n := c.static("static")
			a, b := c.other("a", 1, 4), c.other("b", 1, 4)
			c.book(n, a, 4)
			c.book(n, b, 4)
			c.show(n)
			c.book(n, b, 5)
			c.show(n)
		}, []string{"P3 no double promise: Node static", "by nvidia.com/gpu 1"}},
		{"what a pod uses is booked", func(c *course) {
			n := c.static("static")
			c.bind(newPod("tenant", 6), n)
			c.pass(5 * time.Second)
			c.book(n, c.other("a", 1, 4), 4)
			c.show(n)
		}, []string{"P3 no double promise: Node static", "Pod team/tenant cpu 4, nvidia.com/gpu 6"}},
		{"what the pods of a daemon use on a new machine is booked", func(c *course) {
			c.upTo("nodes join")
			daemon := newPod("daemon", 1)
			controlledBy(daemon, "DaemonSet", &corev1.Pod{ObjectMeta: named("driver")})
			c.bind(daemon, c.nodes[0])
			c.step("nodes are booked")
		}, []string{"P3 no double promise: Node spot-0", "Pod team/daemon", "by nvidia.com/gpu 1"}},
		{"devices are booked that are not there yet", func(c *course) {
			n := newNode("young")
			delete(n.Status.Allocatable, gpu)
			c.show(n)
			c.book(n, c.other("a", 1, 4), 4)
			c.show(n)
		}, []string{"P3 no double promise: Node young", "by nvidia.com/gpu 4"}},
		{"a pod took the room before the request became Provisioned", func(c *course) {
			n := c.static("static")
			a := c.other("a", 1, 8)
			c.book(n, a, 8)
			c.show(n)
			c.bind(newPod("tenant", 1), n)
			c.pass(5 * time.Second)
			c.provision(a)
		}, []string{"P3 no double promise: Node static", "ProvisioningRequest team/a became Provisioned", "Pod team/tenant"}},
		{"a gang takes what another has booked", func(c *course) {
			n, m := c.static("shared"), c.static("own")
			a, b := c.other("a", 2, 4), c.other("b", 1, 4)
			c.book(n, a, 4)
			c.book(n, b, 4)
			c.book(m, a, 4)
			c.show(n, m)
			c.provision(a)
			c.provision(b)
			c.bind(consuming(newPod("a-0", 4), "a"), n)
			c.bind(consuming(newPod("a-1", 4), "a"), n)
		}, []string{"P3 no double promise: Node shared", "Pod team/a-1 was bound", "the booking of team/b since"}},
		{"what a gang may still use is promised to another", func(c *course) {
			late(c, time.Minute)
		}, []string{"P3 no double promise: Node shared", "Pod team/a-0 was bound", "the booking of team/b since"}},
		{"the pods of an earlier gang of the same name use up nothing", func(c *course) {
			n := c.static("static")
			old := c.other("a", 1, 4)
			c.book(n, old, 4)
			c.show(n)
			c.provision(old)
			c.bind(consuming(newPod("old", 4), "a"), n)
			c.remove(old)
			c.pass(3 * time.Second) // Muster has observed the pod by now
			again := newRequest("a", 1)
			again.UID = "uid-of-a-again"
			condition(&again.Status.Conditions, provreq.Provisioned, metav1.ConditionFalse, "CapacityIsNotFound", "Not yet")
			c.show(again)
			c.book(n, again, 8)
			c.show(n)
		}, []string{"P3 no double promise: Node static", "Pod team/old", "by nvidia.com/gpu 4"}},
		{"a machine is terminated while it is booked", func(c *course) {
			c.upTo("request is provisioned")
			c.remove(c.machines[0], c.nodes[0])
			c.pass(time.Minute)
		}, []string{"P3 no double promise: Machine spot-0", "ProvisioningRequest team/gang waits for pods with cpu 4, nvidia.com/gpu 8"}},
		{"a node is deleted while it is booked", func(c *course) {
			c.upTo("request is provisioned")
			c.remove(c.nodes[0])
			c.pass(time.Minute)
		}, []string{"P3 no double promise: Node spot-0", "its Machine is still there"}},
		{"node and then machine are terminated while booked", func(c *course) {
			c.upTo("request is provisioned")
			c.remove(c.nodes[0], c.machines[0])
			c.pass(time.Minute)
		}, []string{"P3 no double promise: Machine spot-0", "team/gang waits for pods"}},
		{"a rollback takes a machine that another request has booked", func(c *course) {
			c.upTo("nodes join")
			b := c.other("b", 1, 4)
			c.book(c.nodes[0], b, 4)
			c.show(c.nodes[0])
			record(c.request, 1, transaction.RollingBack, launches)
			c.show(c.request)
			c.remove(c.machines[0], c.nodes[0], c.machines[1], c.nodes[1])
		}, []string{"P3 no double promise: Machine spot-0", "ProvisioningRequest team/b waits for pods"}},
	})
}

// runsOnMachine binds a pod that is not the gang's to the first machine of the attempt, which has then failed.
func (c *course) runsOnMachine(p *corev1.Pod, since time.Duration) {
	c.upTo("nodes join")
	c.bind(p, c.nodes[0])
	c.pass(since)
	record(c.request, 1, transaction.RollingBack, launches)
	c.show(c.request)
}

func TestHarmIsSeen(t *testing.T) {
	runBroken(t, []brokenCase{
		{"a rollback terminates a machine on which a pod of others runs", func(c *course) {
			c.runsOnMachine(newPod("stranger", 1), 5*time.Second)
			c.remove(c.machines[0], c.nodes[0], c.machines[1], c.nodes[1])
		}, []string{"P9 do no harm: Machine spot-0", "Pod team/stranger for 5"}},
		{"a machine is terminated on which a pod of its gang runs", func(c *course) {
			c.upTo("pods are bound")
			c.pass(5 * time.Second)
			c.remove(c.machines[0], c.nodes[0])
		}, []string{"P9 do no harm: Machine spot-0", "Pod team/"}},
	})
}

func TestQuotaIsBroken(t *testing.T) {
	second := func(gpus int) *kueue.Workload {
		w := newWorkload("second", 1, gpus)
		reserve(w, gpus)
		w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "machines", State: kueue.CheckStatePending, Message: "Waiting"}}
		return w
	}
	runBroken(t, []brokenCase{
		{"more is reserved than the nominal quota", func(c *course) {
			c.upTo("quota is reserved")
			c.show(second(1))
		}, []string{"P4 quota: ClusterQueue research", "17 nvidia.com/gpu of flavor h100 is reserved, nominal quota is 16",
			"Workload team/second took it there with 1", "team/second 1, team/train 16"}},
		{"a reservation grows", func(c *course) {
			c.upTo("quota is reserved")
			reserve(c.workload, 24)
			c.show(c.workload)
		}, []string{"P4 quota: ClusterQueue research", "24 nvidia.com/gpu"}},
		{"a flavor is reserved of which there is none", func(c *course) {
			c.upTo("admin sets up")
			w := second(8)
			w.Status.Admission.PodSetAssignments[0].Flavors[gpu] = "a100"
			c.show(w)
		}, []string{"P4 quota: ClusterQueue research", "8 nvidia.com/gpu of flavor a100 is reserved, nominal quota is 0"}},
		{"a reservation counts less than its pods ask for", func(c *course) {
			c.upTo("workload waits")
			reserve(c.workload, 8)
			c.workload.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "machines", State: kueue.CheckStatePending, Message: "Waiting"}}
			c.show(c.workload)
		}, []string{"P4 quota: Workload team/train", "the 2 pods ask for nvidia.com/gpu 16", "missing are nvidia.com/gpu 8"}},
		{"quota was lowered under use, and somebody takes more", func(c *course) {
			c.upTo("quota is reserved")
			setQuota(c.queue, 8)
			c.show(c.queue)
			c.pass(5 * time.Second)
			c.show(second(1))
		}, []string{"P4 quota: ClusterQueue research", "17 nvidia.com/gpu", "nominal quota is 8"}},
		{"what was found beyond the quota was given back, and is taken again", func(c *course) {
			c.upTo("admin sets up")
			w := second(8)
			c.show(w)
			setQuota(c.queue, 4)
			c.show(c.queue)
			c.pass(5 * time.Second)
			c.remove(w)
			c.show(w)
		}, []string{"P4 quota: ClusterQueue research", "8 nvidia.com/gpu", "nominal quota is 4"}},
	})
}

// heldJob returns a suspended Job of a queue without a Workload.
func heldJob(owner *batchv1.Job) *batchv1.Job {
	j := newJob("part")
	if owner != nil {
		controlledBy(j, "Job", owner)
	}
	return j
}

func TestSilenceIsSeen(t *testing.T) {
	runBroken(t, []brokenCase{
		{"a workload is pending without a word", func(c *course) {
			c.upTo("workload comes")
			c.pass(6 * time.Second)
		}, []string{"P7 explained: Workload team/train", "pending since 12:00:00.060", "bound 5s"}},
		{"a workload is pending without a message", func(c *course) {
			c.upTo("workload comes")
			condition(&c.workload.Status.Conditions, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Pending", "")
			c.show(c.workload)
			c.pass(6 * time.Second)
		}, []string{"P7 explained: Workload team/train"}},
		{"a workload stops saying why", func(c *course) {
			c.upTo("workload waits")
			c.workload.Status.Conditions = nil
			c.show(c.workload)
			c.pass(6 * time.Second)
		}, []string{"P7 explained: Workload team/train"}},
		{"a workload is pending for a reason that nobody knows", func(c *course) {
			c.upTo("workload comes")
			condition(&c.workload.Status.Conditions, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Because", "It is Friday")
			c.show(c.workload)
			c.pass(6 * time.Second)
		}, []string{"P7 explained: Workload team/train", "a known reason"}},
		{"a workload is deactivated without a word", func(c *course) {
			c.workload.Spec.Active = new(false)
			c.show(c.workload)
			c.pass(6 * time.Second)
		}, []string{"P7 explained: Workload team/train", "has been pending"}},
		{"a workload loses its quota and is not told what it waits for", func(c *course) {
			c.upTo("booking is consumed")
			preempt(c.workload)
			c.workload.Spec.Active = new(true)
			c.workload.Status.Admission = nil
			condition(&c.workload.Status.Conditions, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "", "")
			condition(&c.workload.Status.Conditions, kueue.WorkloadAdmitted, metav1.ConditionFalse, "NoReservation", "Evicted")
			c.show(c.workload)
			c.pass(6 * time.Second)
		}, []string{"P7 explained: Workload team/train", "has been pending"}},
		{"a workload is evicted without a word", func(c *course) {
			c.upTo("booking is consumed")
			condition(&c.workload.Status.Conditions, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPodsReadyTimeout, "")
			c.show(c.workload)
		}, []string{"P7 explained: Workload team/train", "was evicted (PodsReadyTimeout) without a word why"}},
		{"a workload is preempted and is not told for whom", func(c *course) {
			c.upTo("booking is consumed")
			condition(&c.workload.Status.Conditions, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPreemption, "Preempted")
			c.show(c.workload)
		}, []string{"P7 explained: Workload team/train", "without a condition Preempted"}},
		{"a workload is preempted for a reason that nobody knows", func(c *course) {
			c.upTo("booking is consumed")
			preempt(c.workload)
			condition(&c.workload.Status.Conditions, kueue.WorkloadPreempted, metav1.ConditionTrue, "Because", "It is Friday")
			c.show(c.workload)
		}, []string{"P7 explained: Workload team/train", "without a condition Preempted that has a known reason"}},
		{"a Job is held, and has no Workload", func(c *course) {
			c.upTo("admin sets up")
			c.show(heldJob(nil))
			c.pass(6 * time.Second)
		}, []string{"P7 explained: Job team/part", "suspended since 12:00:00.300 without a Workload", "bound 5s"}},
		{"a Job is held, and its Workload goes", func(c *course) {
			j, w := heldJob(nil), replacing(c, "of-part")
			controlledBy(w, "Job", j)
			c.show(j, w)
			c.pass(time.Minute)
			c.remove(w)
			c.pass(6 * time.Second)
		}, []string{"P7 explained: Job team/part", "without a Workload"}},
		{"a part stays held while its Job runs", func(c *course) {
			c.upTo("booking is consumed")
			c.show(heldJob(c.job))
			c.pass(6 * time.Second)
		}, []string{"P7 explained: Job team/part", "not part of a Job that is held"}},
		{"a request waits without a word", func(c *course) {
			c.upTo("request comes")
			c.pass(6 * time.Second)
		}, []string{"P7 explained: ProvisioningRequest team/gang", "without a condition Provisioned"}},
		{"a workload holds quota and does not say what it waits for", func(c *course) {
			c.upTo("workload waits")
			reserve(c.workload, 16)
			c.workload.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "machines", State: kueue.CheckStatePending}}
			condition(&c.workload.Status.Conditions, kueue.WorkloadAdmitted, metav1.ConditionFalse, "Unsatisfied",
				"The workload has not all checks ready")
			c.show(c.workload)
			c.pass(6 * time.Second)
		}, []string{"P7 explained: Workload team/train", "has held quota without being Admitted"}},
		{"a workload with all checks Ready is not admitted", func(c *course) {
			c.upTo("quota is reserved")
			c.workload.Status.AdmissionChecks[0].State = kueue.CheckStateReady
			c.show(c.workload)
			c.pass(6 * time.Second)
		}, []string{"P7 explained: Workload team/train", "has held quota without being Admitted"}},
	})
}

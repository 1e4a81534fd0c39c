package promises

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/cache"
	workloads "github.com/muster-dev/muster/queueing/workload"
)

// course is the life of a queued gang of two pods with eight GPUs each, from the creation of the Job to the scale-down of its machines.
type course struct {
	*world
	group    *v1alpha1.NodeGroup
	queue    *kueue.ClusterQueue
	job      *batchv1.Job
	workload *kueue.Workload
	template *corev1.PodTemplate
	request  *provreq.ProvisioningRequest
	machines []*kwokv1alpha1.Machine
	nodes    []*corev1.Node
	pods     []*corev1.Pod
}

type step struct {
	name string
	do   func(*course)
}

var launches = planner.GroupCount{Group: "spot", Count: 2}

// steps of the good course, in which every promise is kept.
var steps = []step{
	{"admin sets up", func(c *course) {
		check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "machines"}}
		check.Spec.ControllerName = cache.CapacityController
		local := &kueue.LocalQueue{ObjectMeta: named("local")}
		local.Spec.ClusterQueue = "research"
		c.show(c.group, check, c.queue, local)
	}},
	{"job comes", func(c *course) { c.show(c.job) }},
	{"workload comes", func(c *course) { c.show(c.workload) }},
	{"workload waits", func(c *course) {
		condition(&c.workload.Status.Conditions, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "WaitingForQuota", "8 more GPUs are needed")
		c.show(c.workload)
		c.pass(20 * time.Second)
	}},
	{"quota is reserved", func(c *course) {
		reserve(c.workload, 16)
		c.workload.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "machines", State: kueue.CheckStatePending,
			Message: "Waiting for the machines"}}
		c.show(c.workload)
	}},
	{"request comes", func(c *course) { c.show(c.template, c.request) }},
	{"request waits", func(c *course) {
		condition(&c.request.Status.Conditions, provreq.Provisioned, metav1.ConditionFalse, "CapacityIsNotFound", "All groups are backing off")
		c.show(c.request)
		c.pass(20 * time.Second)
	}},
	{"attempt begins", func(c *course) {
		record(c.request, 1, transaction.Launching, launches)
		c.show(c.request)
	}},
	{"machines are made", func(c *course) {
		for i := range 2 {
			m := newMachine(fmt.Sprintf("spot-%d", i), "spot", state.Token(c.request.UID, 1))
			c.machines = append(c.machines, m)
			c.show(m)
		}
	}},
	{"machines boot", func(c *course) { c.pass(40 * time.Second) }},
	{"nodes join", func(c *course) {
		for _, m := range c.machines {
			m.Status.Phase = kwokv1alpha1.MachineRunning
			n := nodeOf(m)
			c.nodes = append(c.nodes, n)
			c.show(n, m)
		}
		c.pass(time.Second)
	}},
	{"nodes are booked", func(c *course) {
		for _, n := range c.nodes {
			c.book(n, c.request, 8)
			n.Annotations[v1alpha1.CordonedAnnotation] = v1alpha1.CordonBooked
			c.show(n)
		}
	}},
	{"request is provisioned", func(c *course) {
		record(c.request, 1, transaction.Done, launches)
		condition(&c.request.Status.Conditions, provreq.Provisioned, metav1.ConditionTrue, "CapacityIsProvisioned", "2 nodes booked")
		c.show(c.request)
	}},
	{"workload is admitted", func(c *course) {
		c.workload.Status.AdmissionChecks[0].State = kueue.CheckStateReady
		condition(&c.workload.Status.Conditions, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "The workload is admitted")
		c.show(c.workload)
		c.job.Spec.Suspend = new(false)
		c.show(c.job)
	}},
	{"pods come", func(c *course) {
		for i := range 2 {
			p := consuming(newPod(fmt.Sprintf("worker-%d", i), 8), c.request.Name)
			controlledBy(p, "Job", c.job)
			c.pods = append(c.pods, p)
			c.show(p)
		}
	}},
	{"pods are bound", func(c *course) {
		for i, p := range c.pods {
			p.Spec.NodeName = c.nodes[i].Name
			c.show(p)
		}
	}},
	{"booking is consumed", func(c *course) {
		for _, n := range c.nodes {
			n.Spec.Unschedulable = false
			delete(n.Annotations, v1alpha1.CordonedAnnotation)
			c.show(n)
		}
		condition(&c.request.Status.Conditions, provreq.BookingExpired, metav1.ConditionTrue, "CapacityBookingConsumed",
			"All 2 pods have been bound")
		c.show(c.request)
		c.pass(time.Hour)
	}},
	{"pods succeed", func(c *course) {
		for _, p := range c.pods {
			p.Status.Phase = corev1.PodSucceeded
			c.show(p)
		}
	}},
	{"workload finishes", func(c *course) {
		condition(&c.workload.Status.Conditions, kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", "Job finished")
		c.show(c.workload)
		c.remove(c.request, c.template)
	}},
	{"machines idle", func(c *course) { c.pass(time.Minute + 10*time.Second) }},
	{"machines go", func(c *course) {
		for i, n := range c.nodes {
			unbook(n, c.request)
			n.Spec.Unschedulable = true
			n.Annotations[v1alpha1.CordonedAnnotation] = v1alpha1.CordonScalingDown
			c.show(n)
			c.remove(c.machines[i], n)
		}
		c.pass(2 * time.Minute)
	}},
}

func newCourse(t *testing.T) *course {
	c := &course{
		world:    newWorld(t),
		group:    newGroup("spot", time.Minute),
		queue:    newQueue("research", 16),
		job:      newJob("train"),
		workload: newWorkload("train", 2, 8),
		template: newTemplate("gang", 8),
		request:  newRequest("gang", 2),
	}
	controlledBy(c.workload, "Job", c.job)
	controlledBy(c.request, "Workload", c.workload)
	return c
}

// replacing is another slice of the course's Job, which says why it waits.
func replacing(c *course, name string) *kueue.Workload {
	w := newWorkload(name, 3, 8)
	w.Annotations = map[string]string{workloads.ReplacementAnnotation: namespace + "/" + c.workload.Name}
	controlledBy(w, "Job", c.job)
	condition(&w.Status.Conditions, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "WaitingForQuota", "8 more GPUs are needed")
	return w
}

func find(t *testing.T, name string) int {
	t.Helper()
	i := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
	if i < 0 {
		t.Fatalf("there is no step %q", name)
	}
	return i
}

// upTo takes the good course up to and with the named step.
func (c *course) upTo(name string) {
	c.Helper()
	for _, s := range steps[:find(c.T, name)+1] {
		s.do(c)
	}
}

// step takes one step of the good course out of its order.
func (c *course) step(name string) {
	c.Helper()
	steps[find(c.T, name)].do(c)
}

// verdict returns the confirmed violations, one per line.
func (w *world) verdict() string {
	w.Finish(w.now)
	var lines []string
	for _, v := range w.Violations() {
		lines = append(lines, fmt.Sprintf("%s: %s: %s", v.Promise, v.Object, v.Message))
	}
	return strings.Join(lines, "\n")
}

func TestAGoodCourseBreaksNoPromise(t *testing.T) {
	c := newCourse(t)
	for _, s := range steps {
		s.do(c)
	}
	if got := c.verdict(); got != "" {
		t.Errorf("false alarms:\n%s", got)
	}
	want := map[Check]int{
		BoundPods: 2, CreatedPods: 2, Provisions: 1, Launches: 2, ScaledDown: 2, Bookings: 2, Consumed: 2, Departures: 2,
		Reservations: 1, PendingWorkloads: 1, PendingRequests: 1, ReservedWorkloads: 1,
		HeldJobs: 1,
	}
	got := c.Stats()
	for check, n := range want {
		if got.Judged[check] != n {
			t.Errorf("%s: judged %d times, want %d", check, got.Judged[check], n)
		}
	}
	if len(got.Unjudged) > 0 || got.Late > 0 || got.Dropped > 0 {
		t.Errorf("something was not judged: %s", got)
	}
}

// Whenever the Checker comes in, it learns the state from lists and raises no
// alarm.
func TestComingLateRaisesNoAlarm(t *testing.T) {
	for i := range steps {
		t.Run("after "+steps[i].name, func(t *testing.T) {
			c := newCourse(t)
			c.upTo(steps[i].name)
			c.restart()
			for _, s := range steps[i+1:] {
				s.do(c)
			}
			if got := c.verdict(); got != "" {
				t.Errorf("false alarms:\n%s", got)
			}
		})
	}
}

package promises

import (
	"fmt"
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
	"github.com/muster-dev/muster/queueing/jobs"
)

func TestNoFalseAlarm(t *testing.T) {
	terminate := func(c *course, i int) {
		c.machines[i].Status.Phase = kwokv1alpha1.MachineTerminated
		c.show(c.machines[i])
	}
	for _, tt := range []struct {
		name string
		do   func(*course)
	}{
		{"a node is lost a moment before its request becomes Provisioned", func(c *course) {
			c.upTo("nodes are booked")
			c.remove(c.nodes[1])
			terminate(c, 1)
			c.step("request is provisioned")
		}},
		{"machines of the attempt are opened once the request is Provisioned", func(c *course) {
			c.upTo("nodes join")
			c.step("request is provisioned")
			c.step("nodes are booked")
			c.step("workload is admitted")
			c.step("pods come")
			c.step("pods are bound")
		}},
		{"nodes are claimed first, and opened once the request is Provisioned", func(c *course) {
			r, n := c.other("claims", 1, 8), c.static("static")
			c.book(n, r, 8)
			label := state.BookingLabel(r.Name)
			delete(n.Labels, label)
			c.show(n)
			c.pass(time.Second)
			c.provision(r)
			n.Labels[label] = namespace
			c.show(n)
			c.bind(consuming(newPod("worker", 8), r.Name), n)
		}},
		{"a machine that died booting is replaced", func(c *course) {
			c.upTo("machines are made")
			terminate(c, 0)
			replace(c.request, c.machines[0])
			c.show(c.request)
			c.machines[0] = newMachine("spot-2", "spot", state.Token(c.request.UID, 1)+"r1")
			c.show(c.machines[0])
			c.step("nodes join")
			c.step("request is provisioned")
		}},
		{"a machine that is lost while it is booked is launched anew by another attempt", func(c *course) {
			c.upTo("request is provisioned")
			terminate(c, 0)
			c.remove(c.nodes[0])
			record(c.request, 2, transaction.Launching, planner.GroupCount{Group: "spot", Count: 1})
			c.show(c.request)
			c.show(newMachine("spot-2", "spot", state.Token(c.request.UID, 2)))
			c.pass(time.Minute)
		}},
		{"a booked machine is reclaimed, the machine first", func(c *course) {
			c.upTo("request is provisioned")
			terminate(c, 0)
			c.remove(c.nodes[0])
			c.pass(time.Minute)
			c.remove(c.machines[0])
		}},
		{"a booked machine is reclaimed, the node first", func(c *course) {
			c.upTo("request is provisioned")
			c.remove(c.nodes[0])
			c.pass(5 * time.Second)
			terminate(c, 0)
			c.pass(time.Minute)
		}},
		{"a booked node is reclaimed while the simulator is slow to say so", func(c *course) {
			c.upTo("nodes join")
			c.nodes[0].Annotations[kwokv1alpha1.ReclaimAtAnnotation] = c.now.Format("2006-01-02T15:04:05.000000Z07:00")
			c.step("nodes are booked")
			c.step("request is provisioned")
			c.remove(c.nodes[0])
			c.pass(time.Minute)
		}},
		{"a machine is deleted in the version that says it was terminated", func(c *course) {
			c.upTo("request is provisioned")
			c.machines[0].Status.Phase = kwokv1alpha1.MachineTerminated
			c.remove(c.machines[0], c.nodes[0])
		}},
		{"a rollback takes its own booked machines", func(c *course) {
			c.upTo("nodes are booked")
			record(c.request, 1, transaction.RollingBack, launches)
			c.show(c.request)
			c.remove(c.machines[0], c.machines[1], c.nodes[0], c.nodes[1])
			c.pass(time.Minute)
		}},
		{"a rollback leaves a machine to the pod of others that runs there, and it goes once it is idle", func(c *course) {
			p := newPod("stranger", 1)
			c.runsOnMachine(p, 5*time.Second)
			c.remove(c.machines[1], c.nodes[1])
			c.pass(time.Hour)
			c.remove(p)
			c.pass(65 * time.Second)
			c.remove(c.machines[0], c.nodes[0])
		}},
		{"a rollback takes what has slipped in a moment before, or was told to stop, or comes and goes with its node", func(c *course) {
			stopped, daemon := newPod("stopped", 0), newPod("daemon", 0)
			controlledBy(daemon, "DaemonSet", &corev1.Pod{ObjectMeta: named("driver")})
			c.runsOnMachine(stopped, 5*time.Second)
			c.bind(daemon, c.nodes[0])
			stopped.DeletionTimestamp = &metav1.Time{Time: c.now}
			c.show(stopped)
			c.pass(2 * time.Second)
			c.bind(newPod("fresh", 1), c.nodes[0])
			c.remove(c.machines[0], c.nodes[0], c.machines[1], c.nodes[1])
		}},
		{"the request goes when its nodes are booked: they stay as idle ones do", func(c *course) {
			c.upTo("nodes are booked")
			c.remove(c.request)
			for _, n := range c.nodes {
				unbook(n, c.request)
				c.show(n)
			}
			c.pass(65 * time.Second)
			c.remove(c.machines[0], c.machines[1], c.nodes[0], c.nodes[1])
		}},
		{"a person opens a machine of an attempt that failed, and the request goes: it stays as idle ones do", func(c *course) {
			c.upTo("nodes join")
			record(c.request, 1, transaction.RollingBack, launches)
			c.show(c.request)
			c.remove(c.machines[1], c.nodes[1])
			c.remove(c.request)
			c.nodes[0].Spec.Unschedulable = false
			c.show(c.nodes[0])
			c.pass(65 * time.Second)
			c.remove(c.machines[0], c.nodes[0])
		}},
		{"a machine that died booting stays on record", func(c *course) {
			c.upTo("machines are made")
			terminate(c, 0)
			record(c.request, 1, transaction.RollingBack, launches)
			c.show(c.request)
			c.remove(c.machines[1])
			c.pass(30 * time.Minute)
		}},
		{"the next attempt takes the same number of machines again", func(c *course) {
			c.upTo("machines are made")
			record(c.request, 1, transaction.RollingBack, launches)
			c.show(c.request)
			c.remove(c.machines[0], c.machines[1])
			record(c.request, 2, transaction.Launching, launches)
			c.show(c.request)
			c.machines = nil
			for _, name := range []string{"next-0", "next-1"} {
				c.machines = append(c.machines, newMachine(name, "spot", state.Token(c.request.UID, 2)))
				c.show(c.machines[len(c.machines)-1])
			}
			c.pass(time.Minute)
		}},
		{"a machine that runs pods is left after a rollback", func(c *course) {
			c.upTo("nodes join")
			c.bind(newPod("let-on-by-a-human", 1), c.nodes[0])
			record(c.request, 1, transaction.RollingBack, launches)
			c.show(c.request)
			c.remove(c.machines[1], c.nodes[1])
			c.pass(time.Minute)
		}},
		{"the node of such a machine goes before the machine", func(c *course) {
			c.upTo("nodes join")
			c.bind(newPod("let-on-by-a-human", 1), c.nodes[0])
			record(c.request, 1, transaction.RollingBack, launches)
			c.show(c.request)
			c.remove(c.machines[1], c.nodes[1])
			c.pass(time.Minute)
			c.remove(c.nodes[0])
			c.pass(time.Second)
			c.remove(c.machines[0])
		}},
		{"a node that was in use for long goes before its machine", func(c *course) {
			c.upTo("booking is consumed")
			c.remove(c.nodes[0])
			c.pass(time.Second)
			c.machines[0].Status.Phase = kwokv1alpha1.MachineTerminated
			c.show(c.machines[0])
		}},
		{"an idle machine stays under a human's cordon", func(c *course) {
			c.upTo("machines idle")
			for _, n := range c.nodes {
				unbook(n, c.request)
				n.Spec.Unschedulable = true
				c.show(n)
			}
			c.pass(time.Hour)
		}},
		{"a group keeps its least number of machines", func(c *course) {
			c.group.Spec.MinNodes = 2
			c.upTo("machines idle")
			c.pass(time.Hour)
		}},
		{"machines of a cluster-autoscaler stay as long as it likes", func(c *course) {
			c.show(foreignGroup(`{"last":2,"open":[{"number":2,"count":2}]}`))
			c.show(newMachine("one", "foreign", "uid-of-foreign-2"), newMachine("two", "foreign", "uid-of-foreign-2"))
			c.pass(time.Hour)
		}},
		{"idle machines of a group that was deleted", func(c *course) {
			c.upTo("machines idle")
			c.remove(c.group)
			c.pass(time.Hour)
		}},
		{"nobody can act while the API server is down", func(c *course) {
			c.upTo("machines are made")
			record(c.request, 1, transaction.RollingBack, launches)
			c.show(c.request, newWorkload("silent", 1, 1))
			c.StandStill(c.now.Add(time.Minute))
			c.pass(time.Minute + 4*time.Second)
			c.remove(c.machines[0], c.machines[1])
			w := newWorkload("silent", 1, 1)
			condition(&w.Status.Conditions, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Pending", "Now it says why")
			c.show(w)
		}},
		{"parts are held with their Job, by an operator, or after the end", func(c *course) {
			c.upTo("workload waits")
			part := heldJob(c.job)
			c.show(part)
			c.pass(time.Hour)
			c.job.Spec.Suspend, part.Spec.Suspend = new(false), new(false)
			c.show(c.job)
			c.pass(time.Second)
			c.show(part)
			made := newJob("made")
			made.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", Name: "set", UID: "set", Controller: new(true)}}
			over := newJob("over")
			over.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
			going := newJob("going")
			going.DeletionTimestamp = &metav1.Time{Time: c.now}
			free := newJob("free")
			free.Labels = nil
			early := newJob("early")
			early.Labels[jobs.PrebuiltLabel] = "later"
			c.show(made, over, going, free, early)
			c.pass(time.Hour)
		}},
		{"other pods slip onto a node that is booked in part", func(c *course) {
			n := c.static("static")
			a := c.other("a", 1, 4)
			c.book(n, a, 4)
			c.show(n)
			c.provision(a)
			c.bind(newPod("tenant", 6), n)
			c.bind(consuming(newPod("a-0", 2), "a"), n)
		}},
		{"a pod was bound a moment before the node was booked", func(c *course) {
			n := c.static("static")
			a := c.other("a", 1, 4)
			c.bind(newPod("tenant", 6), n)
			c.book(n, a, 4)
			c.show(n)
		}},
		{"a booking takes the place of one whose request is over", func(c *course) {
			n := c.static("static")
			a, b := c.other("a", 1, 8), c.other("b", 1, 8)
			c.book(n, a, 8)
			c.show(n)
			c.provision(a)
			condition(&a.Status.Conditions, provreq.BookingExpired, metav1.ConditionTrue, "Expired", "Nobody came")
			c.show(a)
			c.book(n, b, 8)
			c.show(n)
		}},
		{"a node is told to have outlived its machine before that is gone", func(c *course) {
			c.upTo("pods succeed")
			for i, n := range c.nodes {
				n.OwnerReferences = nil
				n.Annotations[kwokv1alpha1.MachineGoneAnnotation] = "true"
				c.show(n)
				c.pass(time.Second)
				c.remove(c.machines[i])
			}
		}},
		{"a pod that was on its way when the time of its gang was over comes where another has booked", func(c *course) {
			late(c, 0)
		}},
		{"a booking is not promised again after its pods have succeeded and are gone", func(c *course) {
			n, m := c.static("static"), c.static("another")
			a, b := c.other("a", 2, 8), c.other("b", 1, 8)
			c.book(n, a, 8)
			c.book(m, a, 8)
			c.show(n, m)
			c.provision(a)
			p := c.bind(consuming(newPod("a-0", 8), "a"), n)
			p.Status.Phase = corev1.PodSucceeded
			c.show(p)
			c.remove(p)
			c.book(n, b, 8)
			c.show(n)
		}},
		{"an admin lets a Job run outside its queue", func(c *course) {
			c.upTo("workload waits")
			c.job.Annotations = map[string]string{jobs.BreakGlassAnnotation: "the demo is in five minutes"}
			c.show(c.job)
			p := newPod("worker", 8)
			controlledBy(p, "Job", c.job)
			c.show(p)
		}},
		{"a Job ran before Muster came", func(c *course) {
			c.upTo("admin sets up")
			c.job.Spec.Suspend = nil
			c.list(c.job)
			p := newPod("worker", 8)
			controlledBy(p, "Job", c.job)
			c.show(p)
		}},
		{"a Job's pod is made while the Job is being stopped, its Workload gone", func(c *course) {
			c.upTo("booking is consumed")
			c.remove(c.workload)
			p := consuming(newPod("replacement", 8), "gang")
			controlledBy(p, "Job", c.job)
			c.show(p)
		}},
		{"the pods of a Job that grows, while its next Workload waits", func(c *course) {
			c.upTo("booking is consumed")
			c.show(replacing(c, "grown"))
			p := consuming(newPod("replacement", 8), "gang")
			controlledBy(p, "Job", c.job)
			c.show(p)
		}},
		{"a Job of a queue without a capacity check", func(c *course) {
			c.queue.Spec.AdmissionChecksStrategy = nil
			c.upTo("job comes")
			p := newPod("worker", 8)
			controlledBy(p, "Job", c.job)
			c.bind(p, c.static("static"))
		}},
		{"requests and pods of another provisioner", func(c *course) {
			r := newRequest("foreign", 1)
			r.Spec.ProvisioningClassName = "queued-provisioning.gke.io"
			c.show(r)
			c.pass(time.Minute)
			c.bind(consuming(newPod("one", 8), "foreign"), c.static("static"))
			p := consuming(newPod("two", 8), "unseen")
			p.Annotations[provreq.ProvisioningClassPodAnnotationKey] = "queued-provisioning.gke.io"
			c.bind(p, c.static("another"))
		}},
		{"quota is lowered while it is used", func(c *course) {
			c.upTo("quota is reserved")
			setQuota(c.queue, 4)
			c.show(c.queue)
			c.pass(3 * time.Second)
			c.show(c.workload)
		}},
		{"quota is lowered a moment before it is reserved", func(c *course) {
			c.upTo("workload waits")
			setQuota(c.queue, 4)
			c.show(c.queue)
			c.step("quota is reserved")
			c.pass(3 * time.Second)
			c.show(c.workload)
		}},
		{"the quota of a finished workload is given out again", func(c *course) {
			c.upTo("workload finishes")
			w := newWorkload("second", 2, 8)
			reserve(w, 16)
			condition(&w.Status.Conditions, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "Admitted")
			c.show(w)
		}},
		{"a workload whose machines are there says what its pods' places wait for", func(c *course) {
			c.upTo("request is provisioned")
			c.workload.Status.AdmissionChecks[0].State = kueue.CheckStateReady
			condition(&c.workload.Status.Conditions, kueue.WorkloadAdmitted, metav1.ConditionFalse,
				kueue.WorkloadAdmittedReasonPendingDelayedTopologyRequests, "No place on the nodes that are booked: they have no rack yet")
			c.show(c.workload)
			c.pass(time.Minute)
		}},
		{"a deactivated workload says so by its eviction", func(c *course) {
			c.workload.Spec.Active = new(false)
			condition(&c.workload.Status.Conditions, kueue.WorkloadEvicted, metav1.ConditionTrue, "DeactivatedDueToRequeuingLimitExceeded",
				"Its pods were never ready")
			c.show(c.workload)
			c.pass(time.Minute)
		}},
		{"a workload is evicted by others, for a reason of theirs", func(c *course) {
			c.upTo("booking is consumed")
			condition(&c.workload.Status.Conditions, kueue.WorkloadEvicted, metav1.ConditionTrue, "Maintenance", "The row goes down at noon")
			c.show(c.workload)
		}},
		{"an evicted workload keeps its quota until its pods are gone", func(c *course) {
			c.upTo("quota is reserved")
			c.workload.Status.AdmissionChecks = nil
			preempt(c.workload)
			c.show(c.workload)
			c.pass(time.Minute)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCourse(t)
			tt.do(c)
			if got := c.verdict(); got != "" {
				t.Errorf("false alarms:\n%s", got)
			}
		})
	}
}

func TestOrderIsDoubted(t *testing.T) {
	// eager binds a pod while its request was last observed pending.
	eager := func(c *course) {
		c.upTo("nodes are booked")
		c.revision++ // of a version that is not observed yet
		c.bind(consuming(newPod("eager", 8), "gang"), c.nodes[0])
	}
	t.Run("the version that was missing comes late", func(t *testing.T) {
		c := newCourse(t)
		eager(c)
		condition(&c.request.Status.Conditions, provreq.Provisioned, metav1.ConditionTrue, "CapacityIsProvisioned", "2 nodes booked")
		c.Apply(Event{Object: c.request, Revision: c.revision - 2, Time: c.now})
		if got := c.verdict(); got != "" || c.Stats().Late != 1 || c.Stats().Dropped != 1 {
			t.Errorf("a late event was not allowed for: %s\n%s", c.Stats(), got)
		}
	})
	t.Run("the version that was missing fell into a gap", func(t *testing.T) {
		c := newCourse(t)
		c.upTo("nodes are booked")
		condition(&c.request.Status.Conditions, provreq.Provisioned, metav1.ConditionTrue, "CapacityIsProvisioned", "2 nodes booked")
		c.Gap(ProvisioningRequests, c.revision, c.revision+3)
		c.bind(consuming(newPod("eager", 8), "gang"), c.nodes[0])
		c.list(c.request)
		if got := c.verdict(); got != "" || c.Stats().Unjudged[BoundPods] != 1 {
			t.Errorf("a gap was not allowed for: %s\n%s", c.Stats(), got)
		}
	})
	t.Run("a gap long after changes nothing", func(t *testing.T) {
		c := newCourse(t)
		eager(c)
		c.pass(5 * time.Second)
		c.Gap(ProvisioningRequests, c.revision, c.revision+3)
		if got := c.verdict(); got == "" {
			t.Error("the violation was forgotten")
		}
	})
}

func TestAViolationIsConfirmedOnlyOnceItIsCertain(t *testing.T) {
	c := newCourse(t)
	c.upTo("machines are made")
	c.show(newMachine("third", "spot", state.Token(c.request.UID, 1)))
	c.pass(time.Second)
	if v := c.Violations(); len(v) > 0 {
		t.Errorf("known at once: %v", v)
	}
	c.pass(1500 * time.Millisecond)
	if v := c.Violations(); len(v) != 1 || v[0].Revision != c.revision || v[0].Promise != NoLeak {
		t.Errorf("known after the time of confirmation: %v", v)
	}
}

func TestNodesOfCloudsWithoutMachinesAreMachines(t *testing.T) {
	c := newCourse(t)
	c.upTo("attempt begins")
	n := newNode("ip-10-0-0-1")
	n.Labels[v1alpha1.NodeGroupLabel] = "spot"
	n.Annotations[v1alpha1.LaunchAnnotation] = state.Token(c.request.UID, 1)
	c.show(n)
	record(c.request, 1, transaction.RollingBack, launches)
	c.show(c.request)
	c.remove(n)
	if got := c.verdict(); got != "" {
		t.Errorf("false alarms:\n%s", got)
	}
	if got := c.Stats().Judged; got[Launches] != 1 || got[RollBacks] != 1 {
		t.Errorf("not judged: %v", got)
	}
}

// TestOutagesPutBoundsOff, one after the other, as long as is allowed and no longer.
func TestOutagesPutBoundsOff(t *testing.T) {
	for _, tc := range []struct {
		name   string
		putOff time.Duration
		play   func(*course)
		// after is how long the outages go on until a promise counts as broken.
		after time.Duration
		want  string
	}{
		{"one that waits in silence", 5 * time.Minute, func(c *course) { c.show(newWorkload("silent", 1, 1)) }, 5*time.Minute + 5*time.Second, "Workload team/silent"},
		{"machines of an attempt that failed", 5 * time.Minute, func(c *course) {
			c.upTo("machines are made")
			record(c.request, 1, transaction.RollingBack, launches)
			c.show(c.request)
		}, 5*time.Minute + 5*time.Second, "Machine spot-0"},
		{"machines that are idle", 5 * time.Minute, func(c *course) {
			c.upTo("machines idle") // for 10 s longer than the idleTimeout
		}, 5*time.Minute + 20*time.Second, "spot-0"},
		{"without end", 0, func(c *course) { c.show(newWorkload("silent", 1, 1)) }, time.Hour, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCourse(t)
			c.config.PutOff = tc.putOff
			tc.play(c)
			outages := func(d time.Duration) {
				for end := c.now.Add(d); c.now.Before(end); {
					c.StandStill(c.now.Add(30 * time.Second))
					c.pass(time.Second)
				}
			}
			outages(tc.after - 5*time.Second)
			if v := c.Violations(); len(v) > 0 {
				t.Fatalf("too early: %v", v)
			}
			outages(10 * time.Second)
			c.pass(c.config.Confirm)
			if v := c.Violations(); (len(v) > 0) != (tc.want != "") || tc.want != "" && !strings.Contains(v[0].String(), tc.want) {
				t.Errorf("violations are %v, want one of %q", v, tc.want)
			}
		})
	}
}

// TestAClusterThatIsBehindHasLongerBounds by the time that it did not have, and no longer.
func TestAClusterThatIsBehindHasLongerBounds(t *testing.T) {
	c := newCourse(t)
	began := c.now
	c.Behind(c.now, time.Minute) // of before
	c.show(newWorkload("silent", 1, 1))
	for range 8 {
		c.pass(time.Second)
		c.Behind(c.now, time.Minute+c.now.Sub(began)/2)
	}
	c.pass(time.Second - sweepEvery)
	if v := c.Violations(); len(v) > 0 {
		t.Fatalf("after %s, of which the cluster did not have 4s: %v", c.now.Sub(began), v)
	}
	c.pass(2 * sweepEvery)
	if v := c.Violations(); len(v) != 1 || !strings.Contains(v[0].String(), "Workload team/silent") {
		t.Errorf("after %s, of which the cluster did not have 4s, violations are %v, want that of the silent Workload", c.now.Sub(began), v)
	}
}

// TestTimeInWhichBoundsHold leaves out what outages take.
func TestTimeInWhichBoundsHold(t *testing.T) {
	c := newCourse(t)
	c.pass(time.Minute)
	c.StandStill(c.now.Add(20 * time.Second))
	c.pass(time.Minute)
	if got, want := c.Stats().Bounded, 100*time.Second; (got - want).Abs() > 2*sweepEvery {
		t.Errorf("bounds held for %s, want %s", got, want)
	}
}

func TestLinesForPeople(t *testing.T) {
	c := newCourse(t)
	c.upTo("request is provisioned")
	c.show(newMachine("stray", "spot", "nobody-1"))
	c.Gap(Jobs, 5, 9)
	c.show(newMachine("another", "spot", "nobody-2"))
	c.Finish(c.now)
	want := `P2 nothing leaks: Machine another: was made in group spot with the launch token "nobody-2", ` +
		`but no ProvisioningRequest with UID "nobody" has ever been seen at 12:01:21.230 (resourceVersion 123)`
	if got := c.Violations(); len(got) != 1 || got[0].String() != want {
		t.Errorf("violations are %v, want %s", got, want)
	}
	want = "23 events; bounds held for 1m21s; judged P1 provisioned requests 1, P2 launched machines 4, P2 machines bought 2, " +
		"P3 bookings 2, P4 reservations 1, P7 held jobs 1, P7 pending requests 1, P7 pending workloads 1, " +
		"P7 reserved workloads 1; gaps Job 1; 1 suspects dropped"
	if got := c.Stats().String(); got != want {
		t.Errorf("stats are\n%s, want\n%s", got, want)
	}
}

// TestRacksThatWereLeftDoNotCount: a gang that starts in another rack has left its pods in the first.
func TestRacksThatWereLeftDoNotCount(t *testing.T) {
	for name, leave := range map[string]func(*course, *corev1.Pod, *corev1.Node){
		"together": func(*course, *corev1.Pod, *corev1.Node) {},
		"stopped": func(c *course, p *corev1.Pod, _ *corev1.Node) {
			p.DeletionTimestamp = new(metav1.NewTime(c.now))
			c.show(p)
		},
		"ended": func(c *course, p *corev1.Pod, _ *corev1.Node) { p.Status.Phase = corev1.PodFailed; c.show(p) },
		"lost":  func(c *course, _ *corev1.Pod, n *corev1.Node) { c.remove(n) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCourse(t)
			job := &batchv1.Job{ObjectMeta: named("apart")}
			first, rack := c.rack("static-0", "r1"), "r2"
			p := c.bind(inOneRack(newPod("a", 1), job), first)
			if leave(c, p, first); name == "together" {
				rack = "r1"
			}
			c.bind(inOneRack(newPod("b", 1), job), c.rack("static-1", rack))
			if got := c.verdict(); got != "" || c.Stats().Judged[BoundInDomain] != 2 {
				t.Errorf("judged %d: %s", c.Stats().Judged[BoundInDomain], got)
			}
		})
	}
}

// TestRoomInOneRackIsJudged if it is there, and not if the policy that it was planned by is unknown.
func TestRoomInOneRackIsJudged(t *testing.T) {
	slices := map[string]string{sliceTopologyAnnotation: "rack", sliceSizeAnnotation: "2"}
	newPolicy := func(level string) *v1alpha1.CapacityPolicy {
		return &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultPolicy},
			Spec: v1alpha1.CapacityPolicySpec{RequiredTopology: level}}
	}
	for name, tc := range map[string]struct {
		annotations      map[string]string
		before, after    string
		racks            string
		judged, unjudged int
	}{
		"one rack":                      {annotations: map[string]string{requiredTopologyAnnotation: "rack"}, racks: "1111", judged: 1},
		"one rack of two":               {annotations: map[string]string{requiredTopologyAnnotation: "rack"}, racks: "211112", judged: 1},
		"slices in two":                 {annotations: slices, racks: "1122", judged: 1},
		"no rule":                       {racks: "1234"},
		"a rule of the policy":          {before: "rack", racks: "1111", judged: 1},
		"a rule that came later":        {after: "rack", racks: "1234", unjudged: 1},
		"a rule that was there before":  {before: "rack", after: "other", racks: "1234", unjudged: 1},
		"a rule that was taken off":     {before: "rack", after: "none", racks: "1234", unjudged: 1},
		"a policy without a rule comes": {after: "none", racks: "1234", unjudged: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCourse(t)
			if tc.before != "" {
				c.show(newPolicy(tc.before))
			}
			r := c.together("four", tc.annotations, 4)
			if tc.after != "" {
				c.show(newPolicy(strings.TrimPrefix(tc.after, "none")))
			}
			var nodes []*corev1.Node
			for i, rack := range tc.racks {
				nodes = append(nodes, c.rack(fmt.Sprint("static-", i), string(rack)))
			}
			c.bookAll(r, nodes...)
			got := c.Stats()
			if v := c.verdict(); v != "" || got.Judged[ProvisionsInDomain] != tc.judged || got.Unjudged[ProvisionsInDomain] != tc.unjudged {
				t.Errorf("judged %d, not %d: %s", got.Judged[ProvisionsInDomain], got.Unjudged[ProvisionsInDomain], v)
			}
		})
	}
}

package growth

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/scheduler"
	"github.com/muster-dev/muster/queueing/workload"
)

const (
	flavor = "default"
	check  = "machines"
	// queuesPerCohort share their quota, and so do as many cohorts of a tree below one parent.
	queuesPerCohort = 20
	// fewShapes of Workloads: what is the same for many is judged once, so there are
	// several.
	fewShapes = 10
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// backlog is a State in which every queue has one Workload that uses all of its quota, while the others are pending with a reason.
type backlog struct {
	state *queueing.State
	// queues, and the number of Workloads and of versions of them so far.
	queues, created, versions int
	running                   []*kueue.Workload
	// shapes of Workloads.
	shapes int
	// snapshot is that of the machines.
	snapshot func() *planner.Snapshot
	// judged counts the Workloads of verdicts, and planned the plans.
	judged, planned int
}

// newBacklog has so many Workloads wait for quota in so many queues.
func newBacklog(queues, pending int) *backlog {
	b := &backlog{state: queueing.New(config.Config{}, nil), queues: queues, shapes: fewShapes}
	b.fill("10", nil, pending+queues)
	return b
}

// newTree returns a backlog of running Workloads in each queue, and of pending ones in all queues. The queues are the leaves of one tree: a
// cohort has 20 of them, and 20 cohorts have a parent below the root.
func newTree(queues, running, pending int) *backlog {
	b := &backlog{state: queueing.New(config.Config{}, nil), queues: queues, shapes: fewShapes}
	parent := func(name, parent string) {
		c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}}
		c.Spec.ParentName = kueue.CohortReference(parent)
		b.state.Set(c)
	}
	for i := range (queues + queuesPerCohort - 1) / queuesPerCohort {
		middle := fmt.Sprintf("parent-%d", i/queuesPerCohort)
		parent(cohortName(i), middle)
		parent(middle, "root")
	}
	b.fill(strconv.Itoa(10*running), nil, pending+queues*running)
	return b
}

// newWaitForMachines has so many Workloads wait, in one queue that has the quota for
// them, for machines that are not to be had.
func newWaitForMachines(pending int) *backlog {
	return newSeekers(pending, fewShapes, noMachines, noNodes)
}

// newCrowd is the same with as many shapes of Workloads as there are Workloads.
func newCrowd(pending int) *backlog { return newSeekers(pending, pending, noMachines, noNodes) }

func noMachines(*planner.Snapshot, state.Gang, state.Policy) planner.Verdict {
	return planner.Verdict{Outcome: planner.Wait, Reasons: []planner.Reason{{Code: planner.CodeNoRoom, Message: "none"}}}
}

func noNodes() *planner.Snapshot { return planner.NewSnapshot(noon, nodeset.New(), nil, nil) }

// newWaitForFleet has so many Workloads wait for a fleet that is in use and may not grow.
func newWaitForFleet(f *fleet, pending int) *backlog {
	return newSeekers(pending, fewShapes, planner.Plan, f.change)
}

func newSeekers(pending, shapes int, plan scheduler.Planner, snapshot func() *planner.Snapshot) *backlog {
	b := &backlog{queues: 1, snapshot: snapshot, shapes: shapes}
	b.state = queueing.New(config.Config{}, func(s *planner.Snapshot, g state.Gang, p state.Policy) planner.Verdict {
		b.planned++
		return plan(s, g, p)
	})
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: check}}
	ac.Spec.ControllerName = cache.CapacityController
	b.state.Set(ac)
	b.advise()
	b.fill("1G", &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: check}}}, pending)
	return b
}

func (b *backlog) fill(cpu string, checks *kueue.AdmissionChecksStrategy, workloads int) {
	b.state.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1.NamespaceDefault}})
	b.state.Set(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavor}})
	for i := range b.queues {
		q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: queueName(i)}}
		q.Spec.NamespaceSelector = &metav1.LabelSelector{}
		q.Spec.AdmissionChecksStrategy = checks
		q.Spec.QueueingStrategy = kueue.BestEffortFIFO
		q.Spec.Preemption = &kueue.ClusterQueuePreemption{
			ReclaimWithinCohort: kueue.PreemptionPolicyAny, WithinClusterQueue: kueue.PreemptionPolicyLowerPriority,
		}
		if b.queues > 1 {
			q.Spec.CohortName = kueue.CohortReference(cohortName(i / queuesPerCohort))
		}
		q.Spec.ResourceGroups = []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory},
			Flavors: []kueue.FlavorQuotas{{Name: flavor, Resources: []kueue.ResourceQuota{
				{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse(cpu)},
				{Name: corev1.ResourceMemory, NominalQuota: resource.MustParse("1Pi")},
			}}},
		}}
		b.state.Set(q)
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: queueName(i)}}
		lq.Spec.ClusterQueue = kueue.ClusterQueueReference(queueName(i))
		b.state.Set(lq)
	}
	for range workloads {
		b.state.Set(b.next())
	}
	for b.cycle() {
	}
}

func cohortName(i int) string { return fmt.Sprintf("cohort-%d", i) }
func queueName(i int) string  { return fmt.Sprintf("queue-%d", i) }

// next is one more Workload, for the next of the queues.
func (b *backlog) next() *kueue.Workload {
	i := b.created
	b.created++
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: corev1.NamespaceDefault, Name: fmt.Sprintf("job-workload-%07d", i),
		UID:        types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)),
		Generation: 1, ResourceVersion: b.version(), CreationTimestamp: metav1.NewTime(noon.AddDate(-1, 0,
			0).Add(time.Duration(i) * time.Second)),
	}}
	w.Spec.QueueName = kueue.LocalQueueName(queueName(i % b.queues))
	w.Spec.PodSets = []kueue.PodSet{{Name: kueue.DefaultPodSetName, Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "main", Image: "registry.example/team/train:1.0", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("10"),
				corev1.ResourceMemory: *resource.NewQuantity(int64(1+i/b.queues%b.shapes)<<30, resource.BinarySI),
			},
		}}},
	}}}}
	return w
}

func (b *backlog) version() string {
	b.versions++
	return strconv.Itoa(b.versions)
}

// cycle decides, and has what was decided written. It says whether there was
// anything.
func (b *backlog) cycle() bool {
	verdicts := b.state.Cycle(noon)
	b.judged += len(verdicts)
	for i := range verdicts {
		v := &verdicts[i]
		written := *v.Workload.Object
		written.ResourceVersion = b.version()
		if v.Status != nil {
			written.Status = *v.Status
		}
		if v.Action == lifecycle.Wait {
			b.state.Set(&written)
			continue
		}
		b.state.Settle(written.UID, &written)
		if v.Action == lifecycle.Reserve {
			b.running = append(b.running, &written)
		}
	}
	return len(verdicts) > 0
}

// refuse has quota come back that goes to the same Workload again, so that every Workload
// that could use it is considered in vain.
func (b *backlog) refuse() {
	again := *b.running[0]
	again.ResourceVersion = b.version()
	again.Annotations = map[string]string{"version": again.ResourceVersion}
	b.state.Delete(b.running[0])
	b.running = append(b.running[1:], &again)
	b.state.Set(&again)
	b.cycle()
}

// admit has a Workload end, another one have its place, and one more come.
func (b *backlog) admit() {
	over := *b.running[0]
	b.running = b.running[1:]
	over.ResourceVersion = b.version()
	over.Status = *workload.Finished(&over, "Succeeded", "done", noon)
	b.state.Set(&over)
	b.cycle()
	b.state.Delete(&over)
	b.state.Set(b.next())
	b.cycle()
}

// change has one Workload come and go.
func (b *backlog) change() {
	w := b.next()
	b.state.Set(w)
	b.cycle()
	b.state.Delete(w)
}

// rebuild has an object change that all is worked out of again.
func (b *backlog) rebuild() {
	f := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavor, Generation: int64(b.versions)}}
	b.versions++
	b.state.Set(f)
	b.cycle()
}

// advise has another snapshot of the machines come.
func (b *backlog) advise() {
	b.state.SetCapacity(b.snapshot())
}

// seek has all Workloads that wait for machines considered again, in vain.
func (b *backlog) seek() {
	b.advise()
	b.cycle()
}

// crowd has all Workloads that wait for machines considered again, as far as one cycle gets.
func (b *backlog) crowd() {
	b.advise()
	b.state.Cycle(noon)
}

// TestBacklog holds what the measures rest on: that they do what they say.
func TestBacklog(t *testing.T) {
	const queues, pending = 3, 30
	for name, tc := range map[string]struct {
		backlog *backlog
		do      func(*backlog)
		// admitted and planned by one go.
		admitted, planned int
	}{
		"quota that comes back to its own":   {newBacklog(queues, pending), (*backlog).refuse, 0, 0},
		"one ends, and the next is admitted": {newBacklog(queues, pending), (*backlog).admit, 1, 0},
		"one comes and goes":                 {newBacklog(queues, pending), (*backlog).change, 0, 0},
		"a flavor changes":                   {newBacklog(queues, pending), (*backlog).rebuild, 0, 0},
		"no machines":                        {newWaitForMachines(pending), (*backlog).seek, 0, fewShapes},
		"a fleet that is full":               {newWaitForFleet(newFleet(2*groups, aThousandWays, 2), pending), (*backlog).seek, 0, fewShapes},
	} {
		t.Run(name, func(t *testing.T) {
			b := tc.backlog
			running := map[types.UID]bool{}
			for _, w := range b.running {
				running[w.UID] = true
			}
			b.planned = 0
			tc.do(b)
			admitted := 0
			for _, w := range b.running {
				if !running[w.UID] {
					admitted++
				}
			}
			if admitted != tc.admitted || b.planned != tc.planned {
				t.Errorf("admitted %d and planned %d, want %d and %d", admitted, b.planned, tc.admitted, tc.planned)
			}
			wait := 0
			for _, status := range b.state.Report(noon).ClusterQueues {
				wait += int(status.PendingWorkloads)
			}
			if wait != pending {
				t.Errorf("%d wait, want %d", wait, pending)
			}
		})
	}
}

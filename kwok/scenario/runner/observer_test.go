package runner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/kwok/scenario"
	"github.com/muster-dev/muster/kwok/scenario/report"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// stage is an observer that gets objects, one a second.
type stage struct {
	*observer
	seconds  int
	revision int
}

// newStage is of a Job job-0 of two pods that run for a minute, at speed 10, and of a
// group at 2 USD.
func newStage(t *testing.T, together bool) *stage {
	t.Helper()
	price := resource.MustParse("2")
	s := &scenario.Scenario{
		Nodes:  []scenario.Nodes{{Name: "fixed", Count: 1, Capacity: corev1.ResourceList{"cpu": resource.MustParse("4")}}},
		Groups: []v1alpha1.NodeGroup{{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: v1alpha1.NodeGroupSpec{PricePerHour: &price}}},
		Arrivals: []scenario.Arrival{{Name: "job", Count: 1, Shapes: []scenario.Shape{{
			Pods: 2, Together: together, Requests: corev1.ResourceList{"cpu": resource.MustParse("1500m")},
			RunFor: scenario.RunTime{AtLeast: metav1.Duration{Duration: time.Minute}},
		}}}},
	}
	o := newObserver(s, s.Submissions(), 10)
	o.begin(start)
	o.submitted(0, start)
	return &stage{observer: o}
}

func (s *stage) now() time.Time { return start.Add(time.Duration(s.seconds) * time.Second) }

// see delivers an object a second later.
func (s *stage) see(o metav1.Object)  { s.tellOf(o, false) }
func (s *stage) miss(o metav1.Object) { s.tellOf(o, true) }

func (s *stage) tellOf(o metav1.Object, deleted bool) {
	s.seconds++
	s.revision += 10
	o.SetResourceVersion(fmt.Sprint(s.revision))
	s.observe(o, deleted, s.now())
}

func pod(n int, node string, phase corev1.PodPhase) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", n), UID: types.UID(fmt.Sprint("uid-", n)),
		Labels: map[string]string{batchv1.JobNameLabel: "job-0"}}}
	p.Spec.NodeName, p.Status.Phase = node, phase
	return p
}

func TestTheLifeOfAPod(t *testing.T) {
	s := newStage(t, false)
	stranger := pod(9, "", corev1.PodPending)
	stranger.Labels[batchv1.JobNameLabel] = "another"
	s.see(stranger)
	s.see(pod(0, "", corev1.PodPending))
	s.see(pod(0, "fixed-0", corev1.PodPending))
	s.see(pod(0, "fixed-0", corev1.PodRunning))
	s.see(pod(0, "fixed-0", corev1.PodSucceeded))
	s.miss(pod(0, "fixed-0", corev1.PodSucceeded)) // its end was earlier
	s.see(pod(1, "fixed-0", corev1.PodRunning))
	s.miss(pod(1, "fixed-0", corev1.PodRunning))
	want := []report.Pod{
		{Node: "fixed-0", Created: 2 * time.Second, Bound: 3 * time.Second, Running: 4 * time.Second, Ended: 5 * time.Second, Succeeded: true},
		{Node: "fixed-0", Created: 7 * time.Second, Bound: 7 * time.Second, Running: 7 * time.Second, Ended: 8 * time.Second},
	}
	if diff := cmp.Diff(want, s.finish(s.now()).Pods); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

func TestAGangIsToldOnceAllOfItRuns(t *testing.T) {
	s := newStage(t, true)
	told := func() (out []string) {
		for len(s.ends) > 0 {
			n := <-s.ends
			_, patch := n.patch()
			out = append(out, n.pod().Name+" "+string(patch))
		}
		slices.Sort(out)
		return out
	}
	until := func(pod, clock string) string {
		return fmt.Sprintf(`%s {"metadata":{"annotations":{"kwok.muster.dev/runs-until":"2026-01-01T%s.000000Z"}}}`, pod, clock)
	}
	s.see(pod(0, "fixed-0", corev1.PodRunning))
	if got := told(); len(got) > 0 {
		t.Errorf("told before all ran: %v", got)
	}
	s.see(pod(1, "fixed-0", corev1.PodRunning))
	s.see(pod(1, "fixed-0", corev1.PodRunning))
	// A minute at speed 10 from 12:00:02 on.
	if diff := cmp.Diff([]string{until("pod-0", "12:00:08"), until("pod-1", "12:00:08")}, told()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	// A pod that replaces another starts over.
	s.miss(pod(1, "fixed-0", corev1.PodRunning))
	s.see(pod(2, "fixed-0", corev1.PodRunning))
	if diff := cmp.Diff([]string{until("pod-2", "12:00:11")}, told()); diff != "" {
		t.Errorf("told later (-want +got):\n%s", diff)
	}
	// So does one that comes when all others have succeeded.
	s.see(pod(0, "fixed-0", corev1.PodSucceeded))
	s.miss(pod(2, "fixed-0", corev1.PodRunning))
	s.see(pod(4, "fixed-0", corev1.PodRunning))
	if diff := cmp.Diff([]string{until("pod-4", "12:00:14")}, told()); diff != "" {
		t.Errorf("told at last (-want +got):\n%s", diff)
	}
}

func TestAGangIsToldNothingWhileAPartOfItIsGone(t *testing.T) {
	s := newStage(t, true)
	s.see(pod(0, "fixed-0", corev1.PodRunning))
	s.miss(pod(0, "fixed-0", corev1.PodRunning))
	s.see(pod(3, "fixed-0", corev1.PodRunning))
	if len(s.ends) > 0 {
		t.Errorf("told while one runs alone: %v", <-s.ends)
	}
}

func TestTheEndOfAJob(t *testing.T) {
	for name, tc := range map[string]struct {
		condition batchv1.JobConditionType
		status    corev1.ConditionStatus
		want      report.Outcome
	}{
		"it is complete":              {batchv1.JobComplete, corev1.ConditionTrue, report.Succeeded},
		"it has failed":               {batchv1.JobFailed, corev1.ConditionTrue, report.Failed},
		"it is about to fail":         {batchv1.JobFailureTarget, corev1.ConditionTrue, report.Unfinished},
		"it is not complete, it says": {batchv1.JobComplete, corev1.ConditionFalse, report.Unfinished},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, false)
			j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job-0"}}
			j.Status.Conditions = []batchv1.JobCondition{{Type: tc.condition, Status: tc.status}}
			s.see(j)
			s.see(j)
			ended := false
			select {
			case <-s.allEnded:
				ended = true
			default:
			}
			got := s.finish(s.now()).Jobs[0]
			if got.Outcome != tc.want || ended != (tc.want != report.Unfinished) {
				t.Errorf("outcome %q, all ended: %t; want %q", got.Outcome, ended, tc.want)
			}
			if tc.want != report.Unfinished && got.Ended != time.Second {
				t.Errorf("it ended at %s, want when that was first seen", got.Ended)
			}
		})
	}
}

func TestTheLifeOfAMachine(t *testing.T) {
	s := newStage(t, false)
	node := func(ready corev1.ConditionStatus, cpu string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m-0"}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cpu)}
		return n
	}
	machine := &kwokv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m-0"}}
	machine.Spec.Group, machine.Spec.Node.Allocatable = "pool", corev1.ResourceList{"cpu": resource.MustParse("4")}
	s.see(machine)
	s.see(node(corev1.ConditionFalse, "4"))
	s.see(node(corev1.ConditionTrue, "0"))
	s.see(node(corev1.ConditionTrue, "4"))
	s.see(node(corev1.ConditionTrue, "4"))
	s.miss(node(corev1.ConditionTrue, "4"))
	machine.Status.Phase = kwokv1alpha1.MachineTerminated
	s.see(machine)
	s.miss(machine)
	want := []report.Machine{{
		Name: "m-0", Group: "pool", Amount: 4000, MilliUSDPerHour: 2000,
		Launched: time.Second, Ready: 4 * time.Second, Gone: 7 * time.Second,
	}}
	if diff := cmp.Diff(want, s.finish(s.now()).Machines); diff != "" {
		t.Errorf("machines (-want +got):\n%s", diff)
	}
}

func TestFixedNodesTakePodsOnceTheirTaintIsGone(t *testing.T) {
	s := newStage(t, false)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fixed-0"}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady}}
	s.see(n)
	if s.nodesReady() {
		t.Error("the node is taken for ready while it is tainted")
	}
	n = n.DeepCopy()
	n.Spec.Taints = nil
	s.see(n)
	if err := s.await(t.Context(), "the node takes pods", s.nodesReady); err != nil {
		t.Error(err)
	}
}

func TestTimeToCapacityBeginsWithTheFirstReservation(t *testing.T) {
	s := newStage(t, false)
	workload := func(conditions ...string) *kueue.Workload {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job-job-0-12345",
			OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "job-0", Controller: new(true)}}}}
		for _, c := range conditions {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
		}
		return w
	}
	s.see(workload())
	s.see(workload(kueue.WorkloadQuotaReserved))
	s.see(workload())
	s.see(workload(kueue.WorkloadQuotaReserved))
	s.see(workload(kueue.WorkloadQuotaReserved))
	s.see(workload(kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted))
	s.see(workload())
	got := s.finish(s.now()).Jobs[0]
	if got.Reserved != 2*time.Second || got.Admitted != 6*time.Second {
		t.Errorf("reserved at %s and admitted at %s, want 2s and 6s", got.Reserved, got.Admitted)
	}
}

func TestAJobThatItsQueueGaveUpHasFailed(t *testing.T) {
	s := newStage(t, false)
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job-job-0-12345",
		OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "job-0", Controller: new(true)}}}}
	for _, reserved := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse} {
		if got := s.record.Jobs[0].Outcome; got != report.Unfinished {
			t.Errorf("it counts as %s while it may still end by itself", got)
		}
		w = w.DeepCopy()
		w.Spec.Active = new(false)
		w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: reserved}}
		s.see(w)
	}
	if got := s.finish(s.now()).Jobs[0]; got.Outcome != report.Failed || got.Ended != 2*time.Second {
		t.Errorf("outcome %q at %s, want that it failed when its quota was given back", got.Outcome, got.Ended)
	}
}

// withObject has the arrival be of another kind.
func withObject(t *testing.T) *stage {
	s := newStage(t, false)
	s.jobs[0].Shape.Object = &unstructured.Unstructured{}
	return s
}

func TestTheEndOfAnObjectIsThatOfItsWorkload(t *testing.T) {
	for reason, want := range map[string]report.Outcome{
		kueue.WorkloadFinishedReasonSucceeded: report.Succeeded, kueue.WorkloadFinishedReasonFailed: report.Failed, "": report.Unfinished,
	} {
		t.Run(reason, func(t *testing.T) {
			s := withObject(t)
			// A RayJob has a Job of its own name, which submits it.
			submitter := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job-0"}}
			submitter.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
			s.see(submitter)
			w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rayjob-job-0-12345",
				OwnerReferences: []metav1.OwnerReference{{Kind: "RayJob", Name: "job-0", UID: "object", Controller: new(true)}}}}
			w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue}}
			s.see(w)
			if reason != "" {
				w = w.DeepCopy()
				w.Status.Conditions = append(w.Status.Conditions,
					metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: reason})
				s.see(w)
			}
			got := s.finish(s.now()).Jobs[0]
			if got.Admitted != 2*time.Second || got.Outcome != want || want != report.Unfinished && got.Ended != 3*time.Second {
				t.Errorf("admitted at %s, outcome %q at %s; want 2s, and %q at 3s", got.Admitted, got.Outcome, got.Ended, want)
			}
		})
	}
}

func TestThePodsOfAnObjectBearItsUID(t *testing.T) {
	s := withObject(t)
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "jobset-job-0-12345",
		OwnerReferences: []metav1.OwnerReference{{Kind: "JobSet", Name: "job-0", UID: "object", Controller: new(true)}}}}
	s.see(w)
	launcher, worker := pod(0, "fixed-0", corev1.PodRunning), pod(1, "fixed-0", corev1.PodRunning)
	for p, cpus := range map[*corev1.Pod]string{launcher: "1", worker: "2"} {
		p.Labels = map[string]string{batchv1.JobNameLabel: "job-0-workers-0", "kueue.x-k8s.io/job-uid": "object"}
		p.Spec.Containers = make([]corev1.Container, 1)
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpus)}
	}
	s.see(launcher)
	s.see(worker)
	stranger := pod(2, "fixed-0", corev1.PodRunning)
	stranger.Labels = map[string]string{"kueue.x-k8s.io/job-uid": "another"}
	s.see(stranger)
	var amounts []int64
	for _, p := range s.finish(s.now()).Pods {
		amounts = append(amounts, p.Amount)
	}
	if diff := cmp.Diff([]int64{1000, 2000}, amounts); diff != "" {
		t.Errorf("what its pods ask for (-want +got):\n%s", diff)
	}
	if got := s.progress().running; got != 1 {
		t.Errorf("%d run, want the one", got)
	}
}

// gatedPod is a pod of job-0, whose pods are gated, that runs.
func gatedPod(n int) *corev1.Pod {
	p := pod(n, "fixed-0", corev1.PodRunning)
	p.Labels = map[string]string{scenario.JobLabel: "job-0"}
	return p
}

// admittedWorkload is that of an owner.
func admittedWorkload(name string, owners ...metav1.OwnerReference) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), OwnerReferences: owners}}
	w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue}}
	return w
}

// What serves until it is deleted is deleted once all of its pods have run for its time, and has ended when they are gone.
func TestWhatServesIsDeleted(t *testing.T) {
	s := withObject(t)
	s.jobs[0].Shape.Object.SetAPIVersion("apps/v1")
	s.jobs[0].Shape.Object.SetKind("Deployment")
	s.see(gatedPod(0))
	s.see(admittedWorkload("pod-0", metav1.OwnerReference{Kind: "Pod", Name: "pod-0", UID: "uid-0", Controller: new(true)}))
	if len(s.serving) > 0 || s.finish(s.now()).Jobs[0].Admitted != report.Never {
		t.Error("one of its two pods runs, and it counts as admitted or serves")
	}
	s.see(gatedPod(1))
	s.see(admittedWorkload("pod-1", metav1.OwnerReference{Kind: "Pod", Name: "pod-1", UID: "uid-1", Controller: new(true)}))
	if got := s.finish(s.now()).Jobs[0].Admitted; got != 4*time.Second {
		t.Errorf("it is admitted at %s, want 4s, with its second Workload", got)
	}
	// A pod that is made again does not have the Deployment serve once more.
	s.miss(gatedPod(1))
	s.see(gatedPod(2))
	if got := len(s.serving); got != 1 {
		t.Errorf("it serves %d times, want once", got)
	}
	s.served(0, s.now())
	s.miss(gatedPod(0))
	if got := s.finish(s.now()).Jobs[0].Outcome; got != report.Unfinished {
		t.Errorf("a pod of it is left, and it has %s", got)
	}
	s.miss(gatedPod(2))
	if got := s.finish(s.now()).Jobs[0]; got.Outcome != report.Succeeded || got.Ended != 8*time.Second {
		t.Errorf("it has %s at %s, want succeeded at 8s", got.Outcome, got.Ended)
	}
}

// All pods of a group own its Workload, which reports its end.
func TestAGroupOfPods(t *testing.T) {
	s := withObject(t)
	s.jobs[0].Shape.Object.SetAPIVersion("v1")
	s.jobs[0].Shape.Object.SetKind("Pod")
	s.see(gatedPod(0))
	s.see(gatedPod(1))
	w := admittedWorkload("job-0", metav1.OwnerReference{Kind: "Pod", Name: "pod-0", UID: "uid-0"},
		metav1.OwnerReference{Kind: "Pod", Name: "pod-1", UID: "uid-1"})
	s.see(w)
	if len(s.serving) > 0 {
		t.Error("it is to be deleted, and ends by itself")
	}
	w = w.DeepCopy()
	w.Status.Conditions = append(w.Status.Conditions,
		metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: kueue.WorkloadFinishedReasonSucceeded})
	s.see(w)
	if got := s.finish(s.now()).Jobs[0]; got.Admitted != 3*time.Second || got.Outcome != report.Succeeded || got.Ended != 4*time.Second {
		t.Errorf("admitted at %s, %s at %s; want 3s, and succeeded at 4s", got.Admitted, got.Outcome, got.Ended)
	}
}

// A RayJob's cluster is deleted when it has succeeded; what was lost before came to nothing.
func TestThePodsOfAnObjectThatHasSucceeded(t *testing.T) {
	for reason, want := range map[string][]bool{
		kueue.WorkloadFinishedReasonSucceeded: {false, true, true}, kueue.WorkloadFinishedReasonFailed: {false, false, false},
	} {
		t.Run(reason, func(t *testing.T) {
			s := withObject(t)
			w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rayjob-job-0-12345",
				OwnerReferences: []metav1.OwnerReference{{Kind: "RayJob", Name: "job-0", UID: "object", Controller: new(true)}}}}
			s.see(w)
			of := func(n int) *corev1.Pod {
				p := pod(n, "fixed-0", corev1.PodRunning)
				p.Labels = map[string]string{"kueue.x-k8s.io/job-uid": "object"}
				return p
			}
			s.see(of(0))
			s.see(of(1))
			s.miss(of(0))
			s.see(of(2))
			s.miss(of(1))
			s.miss(of(2))
			w = w.DeepCopy()
			w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: reason}}
			s.see(w)
			var got []bool
			for _, p := range s.finish(s.now()).Pods {
				got = append(got, p.Succeeded)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("which pods came to something (-want +got):\n%s", diff)
			}
		})
	}
}

// A group keeps its minimum: only what stands beyond it is left.
func TestMachinesThatAreLeft(t *testing.T) {
	s := newStage(t, false)
	s.keeps["kept"] = 2
	for i, group := range []string{"pool", "kept", "kept", "kept", "pool"} {
		m := &kwokv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m-", i)}}
		m.Spec.Group = group
		s.see(m)
		if i == 4 {
			s.miss(m)
		}
	}
	if got := s.finish(s.now()).Left; got != 2 {
		t.Errorf("%d machines are left, want one of each group", got)
	}
}

func TestARunSeesItsIdleMachinesGo(t *testing.T) {
	machine := &kwokv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m-0"}}
	machine.Spec.Group = "pool"
	ended := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job-0"}}
	ended.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	for name, tc := range map[string]struct {
		idle *metav1.Duration
		// gone is when the machine goes; never where it is 0.
		gone       time.Duration
		unfinished bool
		want       time.Duration
	}{
		"until the last is gone":                      {gone: 7 * time.Second, want: 7 * time.Second},
		"no longer than it may stand idle by default": {want: 2 * time.Minute},
		"no longer than its group says":               {idle: &metav1.Duration{Duration: 5 * time.Minute}, want: 90 * time.Second},
		"not where Jobs still run":                    {unfinished: true, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, false)
				s.see(machine.DeepCopy())
				if !tc.unfinished {
					s.see(ended)
				}
				g := v1alpha1.NodeGroup{Spec: v1alpha1.NodeGroupSpec{IdleTimeout: tc.idle, Kwok: &v1alpha1.KwokPool{}}}
				var told strings.Builder
				r := &run{Options: Options{Scenario: &scenario.Scenario{Groups: []v1alpha1.NodeGroup{g}}, Speed: 10}, observer: s.observer}
				begun := time.Now()
				if tc.gone > 0 {
					time.AfterFunc(tc.gone, func() { s.miss(machine.DeepCopy()) })
				}
				if err := r.seeIdleMachinesGo(t.Context(), &screen{out: &told, speed: 10}, begun); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(begun); got != tc.want {
					t.Errorf("it was observed for %s, want %s", got, tc.want)
				}
				if tc.want > time.Minute && !strings.Contains(told.String(), "1 of 1 Jobs ended; 0 run, 0 wait; idle machines to be terminated: 1") {
					t.Errorf("what it waits for is not told:\n%s", told.String())
				}
			})
		})
	}
}

func TestProgress(t *testing.T) {
	s := newStage(t, false)
	s.see(pod(0, "fixed-0", corev1.PodRunning))
	s.see(pod(1, "fixed-0", corev1.PodRunning))
	text := (&screen{speed: 10}).text(30*time.Second, s.progress())
	if want := "    5m0s  ························  0 of 1 Jobs ended; 1 run, 0 wait"; text != want {
		t.Errorf("progress %q, want %q", text, want)
	}
}

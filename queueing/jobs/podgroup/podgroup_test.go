package podgroup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/metrics"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
	"github.com/muster-dev/muster/queueing/jobs/owners"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestTransitions is the whole table: what is done for each state of a gang, by that of its
// Workload.
func TestTransitions(t *testing.T) {
	want := strings.TrimSpace(`
           absent pending asking adopted reserved admitted evicted deleted finished
gone       -      drop    drop   drop    drop     drop     drop    -       -
incomplete wait   drop    drop   drop    drop     drop     drop    -       reportEnd
short      wait   drop    drop   drop    drop     keep     release -       reportEnd
held       queue  queue   queue  queue   queue    start    release -       reportEnd
running    adopt  stop    adopt  keep    stop     keep     stop    -       -
ended      -      finish  finish finish  finish   finish   finish  finish  -`)
	actions := strings.Fields("- wait queue start keep adopt stop release drop finish reportEnd")
	lines := strings.Split(want, "\n")
	for i, line := range lines[1:] {
		var got []string
		for _, a := range transitions[i] {
			got = append(got, actions[a])
		}
		if diff := cmp.Diff(strings.Fields(line)[1:], got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", strings.Fields(line)[0], diff)
		}
	}
	for s := range states {
		for w := range workload.States {
			switch a := transitions[s][w]; {
			case a == stop && (s != running || w == admitted || w == absent || w == deleted):
				t.Errorf("pods are deleted that may run: %d, %d", s, w)
			case slices.Contains([]action{release, drop, finish}, a) && s == running:
				t.Errorf("quota is released of pods that run: %d, %d", s, w)
			}
		}
	}
}

// rig is a reconciler with a cluster.
type rig struct {
	t      *testing.T
	c      client.Client
	r      *reconciler
	events *events.FakeRecorder
	born   time.Time
}

var now = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func newRig(t *testing.T, objects ...client.Object) *rig {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, kueue.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "spot"}}
	flavor.Spec.NodeLabels = map[string]string{"pool": "spot"}
	flavor.Spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(append(objects, flavor)...).WithStatusSubresource(&kueue.Workload{}).
		WithIndex(&corev1.Pod{}, gangIndex, indexOf).Build()
	g := &rig{t: t, c: c, events: events.NewFakeRecorder(100), born: now}
	g.r = &reconciler{
		client: c, live: c, recorder: g.events, metrics: metrics.New(metrics.Config{}), now: func() time.Time { return now }, podsReady: true,
	}
	return g
}

// pod creates a pod as the policies leave it. It has the CPUs, and what the pairs say.
func (g *rig) pod(name, cpus string, annotations ...string) *corev1.Pod {
	g.t.Helper()
	g.born = g.born.Add(time.Second)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(g.born),
		Labels: map[string]string{jobs.QueueLabel: "main", workload.ManagedLabel: "true"}, Annotations: map[string]string{},
	}}
	for i := 0; i < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: Gate}, {Name: topologyGate}, {Name: "foreign"}}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse(cpus)},
	}}}
	if err := g.c.Create(context.Background(), p); err != nil {
		g.t.Fatal(err)
	}
	return p
}

// inGroup are the annotations of a group of three.
var inGroup = []string{workload.GroupName, "ring", workload.GroupCountAnnotation, "3"}

func ringKey() key { return key{family: group, namespace: "default", name: "ring"} }

// settle reconciles until nothing is left to do.
func (g *rig) settle(k key) {
	g.t.Helper()
	for range 6 {
		if _, err := g.r.Reconcile(context.Background(), k); err != nil {
			g.t.Fatal(err)
		}
	}
}

// set puts pods into a phase; empty deletes them.
func (g *rig) set(phase corev1.PodPhase, names ...string) {
	g.t.Helper()
	for _, name := range names {
		p := &corev1.Pod{}
		if err := g.c.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, p); err != nil {
			g.t.Fatal(err)
		}
		var err error
		if p.Status.Phase = phase; phase == "" {
			err = g.c.Delete(context.Background(), p)
		} else {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			err = g.c.Status().Update(context.Background(), p)
		}
		if err != nil {
			g.t.Fatal(err)
		}
	}
}

// workload is the only one; nil if there is none.
func (g *rig) workload() *kueue.Workload {
	g.t.Helper()
	var list kueue.WorkloadList
	if err := g.c.List(context.Background(), &list); err != nil {
		g.t.Fatal(err)
	}
	switch len(list.Items) {
	case 0:
		return nil
	case 1:
		return &list.Items[0]
	}
	g.t.Fatalf("%d Workloads", len(list.Items))
	return nil
}

// status changes the status of the Workload as the queue controller would.
func (g *rig) status(change func(*kueue.WorkloadStatus)) {
	g.t.Helper()
	w := g.workload()
	status := w.Status.DeepCopy()
	change(status)
	if _, err := writes.ApplyStatus(context.Background(), g.c, w, status); err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) admit() {
	g.t.Helper()
	w := g.workload()
	g.status(func(s *kueue.WorkloadStatus) {
		s.Admission = &kueue.Admission{ClusterQueue: "cluster"}
		for _, set := range w.Spec.PodSets {
			s.Admission.PodSetAssignments = append(s.Admission.PodSetAssignments, kueue.PodSetAssignment{
				Name: set.Name, Count: &set.Count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "spot"},
			})
		}
		condition(s, kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted)
	})
}

func (g *rig) evict() {
	g.t.Helper()
	g.status(func(s *kueue.WorkloadStatus) { condition(s, kueue.WorkloadEvicted) })
}

func condition(s *kueue.WorkloadStatus, types ...string) {
	for _, t := range types {
		s.Conditions = append(s.Conditions, metav1.Condition{
			Type: t, Status: metav1.ConditionTrue, Reason: "Test", Message: "test", LastTransitionTime: metav1.NewTime(now),
		})
	}
}

// is compares the states of the pods, the true conditions of the Workload, its counts, and its reclaimable pods.
func (g *rig) is(step, want string) {
	g.t.Helper()
	var pods corev1.PodList
	if err := g.c.List(context.Background(), &pods); err != nil {
		g.t.Fatal(err)
	}
	got := map[string]string{}
	for i := range pods.Items {
		p := &pods.Items[i]
		switch {
		case isGated(p):
			got[p.Name] = "held"
		case p.Status.Phase != "":
			got[p.Name] = string(p.Status.Phase)
		default:
			got[p.Name] = "open"
		}
		if got[p.Name] == "open" && (p.Spec.NodeSelector["pool"] != "spot" || len(p.Spec.Tolerations) != 1 || len(p.Spec.SchedulingGates) != 1 ||
			p.Labels[jobs.ClusterQueueLabel] != "cluster") {
			g.t.Errorf("%s: pod %s was opened with the selector %v, gates %v, labels %v", step, p.Name, p.Spec.NodeSelector,
				p.Spec.SchedulingGates, p.Labels)
		}
	}
	var line []string
	for _, name := range slices.Sorted(maps.Keys(got)) {
		line = append(line, name+" "+got[name])
	}
	text := strings.Join(line, ", ") + " |"
	if w := g.workload(); w != nil {
		for _, set := range w.Spec.PodSets {
			text += fmt.Sprint(" ", set.Count)
			if n := workload.Reclaimable(w, set.Name); n > 0 {
				text += fmt.Sprint("-", n)
			}
		}
		for _, c := range w.Status.Conditions {
			if c.Status == metav1.ConditionTrue {
				text += " " + c.Type
			}
		}
	}
	if text != want {
		g.t.Errorf("%s:\n got %s\nwant %s", step, text, want)
	}
}

// TestLabelsThatTheWorkloadOfAGroupHas are those of any of its pods, as in Kueue.
func TestLabelsThatTheWorkloadOfAGroupHas(t *testing.T) {
	g := newRig(t)
	g.r.labelsToCopy = []string{"team", "stage", "none"}
	for i, labels := range []map[string]string{{"team": "blue", "other": "x"}, {"team": "red"}, {"stage": "test"}} {
		p := g.pod(fmt.Sprint("a", i), "1", inGroup...)
		maps.Copy(p.Labels, labels)
		if err := g.c.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	g.settle(ringKey())
	got := g.workload().Labels
	if _, has := got["none"]; got["team"] != "blue" || got["stage"] != "test" || got["other"] != "" || has {
		t.Errorf("the Workload has the labels %v", got)
	}
}

// TestTheUserOfAPod is that of its Workload, unless a controller has created the pod: a template may name any user.
func TestTheUserOfAPod(t *testing.T) {
	for controller, want := range map[string]string{"": "alice", "ReplicaSet": ""} {
		g := newRig(t)
		p := g.pod("train", "1", workload.SubmittedByAnnotation, "alice")
		if controller != "" {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: controller, Name: "r", UID: "r", Controller: new(true)}}
			if err := g.c.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		k, _ := keyOf(p)
		g.settle(k)
		if got := g.workload().Annotations[workload.SubmittedByAnnotation]; got != want {
			t.Errorf("controlled by %q: its Workload has the user %q, want %q", controller, got, want)
		}
	}
}

func TestAPodOnItsOwn(t *testing.T) {
	g := newRig(t)
	p := g.pod("train", "1")
	k, _ := keyOf(p)
	g.settle(k)
	g.is("it is queued", "train held | 1")
	if w := g.workload(); w.Name != jobs.WorkloadName(podKind, p) || !metav1.IsControlledBy(w, p) ||
		w.Labels[jobs.JobUIDLabel] != "uid-train" {
		t.Errorf("its Workload is %s, owned by %v, with the labels %v", w.Name, w.OwnerReferences, w.Labels)
	}
	g.admit()
	g.settle(k)
	g.is("it starts", "train open | 1 QuotaReserved Admitted")
	g.set(corev1.PodRunning, "train")
	g.settle(k)
	g.is("it runs", "train Running | 1 QuotaReserved Admitted PodsReady")
	g.set(corev1.PodSucceeded, "train")
	g.settle(k)
	g.is("it has ended", "train Succeeded | 1 QuotaReserved Admitted PodsReady Finished")
}

// A queue label that is taken off a pod that waits takes its Workload with it, also once that is admitted: nothing would use its machines.
func TestAPodThatLeavesItsQueue(t *testing.T) {
	leave := func(g *rig, p *corev1.Pod) {
		t.Helper()
		before := &corev1.Pod{}
		if err := g.c.Get(t.Context(), client.ObjectKeyFromObject(p), before); err != nil {
			t.Fatal(err)
		}
		after := before.DeepCopy()
		delete(after.Labels, jobs.QueueLabel)
		if err := g.c.Update(t.Context(), after); err != nil {
			t.Fatal(err)
		}
		if !passes(before, after) {
			t.Error("nothing looks at it")
		}
	}
	for name, annotations := range map[string][]string{
		"alone":      nil,
		"of a group": {workload.GroupName, "ring", workload.GroupCountAnnotation, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			p := g.pod("train", "1", annotations...)
			k, _ := keyOf(p)
			g.settle(k)
			g.admit()
			leave(g, p)
			g.settle(k)
			if w := g.workload(); w != nil {
				t.Errorf("its Workload %s is left", w.Name)
			}
			told := false
			for len(g.events.Events) > 0 {
				told = strings.Contains(<-g.events.Events, "NotQueued It is in no queue any more and stays gated") || told
			}
			if told != (annotations == nil) {
				t.Errorf("that it stays gated is told: %t", told)
			}
		})
	}
	running := newRig(t).pod("train", "1")
	running.Spec.SchedulingGates = nil
	unqueued := running.DeepCopy()
	delete(unqueued.Labels, jobs.QueueLabel)
	if passes(running, unqueued) {
		t.Error("quota is released of a pod that runs")
	}
}

func TestAnEvictedPodIsDeleted(t *testing.T) {
	g := newRig(t)
	k, _ := keyOf(g.pod("train", "1"))
	g.settle(k)
	g.admit()
	g.settle(k)
	g.evict()
	g.settle(k)
	// The Workload goes by its owner.
	g.is("it is evicted", " | 1 QuotaReserved Admitted Evicted")
}

func TestAGroup(t *testing.T) {
	g := newRig(t)
	g.pod("a", "1", inGroup...)
	g.pod("b", "2", inGroup...)
	g.settle(ringKey())
	g.is("one is missing", "a held, b held |")
	g.pod("c", "2", inGroup...)
	g.pod("d", "2", inGroup...)
	g.settle(ringKey())
	g.is("one too many is deleted, the newest", "a held, b held, c held | 2 1")
	w := g.workload()
	if w.Name != "ring" || len(w.OwnerReferences) != 3 || metav1.GetControllerOf(w) != nil || !workload.IsGroup(w) ||
		w.Labels[jobs.JobUIDLabel] != "" {
		t.Errorf("its Workload is %s, owned by %v, with the labels %v", w.Name, w.OwnerReferences, w.Labels)
	}
	g.admit()
	g.settle(ringKey())
	g.is("it starts", "a open, b open, c open | 2 1 QuotaReserved Admitted")
	g.set(corev1.PodRunning, "a", "b", "c")
	g.set(corev1.PodSucceeded, "b")
	g.settle(ringKey())
	g.is("one has succeeded", "a Running, b Succeeded, c Running | 2-1 1 QuotaReserved Admitted PodsReady")
	g.set("", "b")
	g.set(corev1.PodFailed, "c")
	g.settle(ringKey())
	g.is("it is gone, and another has failed", "a Running, c Failed | 2-1 1 QuotaReserved Admitted WaitingForReplacementPods")
	c := meta.FindStatusCondition(g.workload().Status.Conditions, kueue.WorkloadWaitingForReplacementPods)
	if want := "Some Failed pods need replacement: 1 of 3 "; c.Reason != "PodsFailed" || !strings.HasPrefix(c.Message, want) {
		t.Errorf("the condition says %s %q, not as Kueue %q", c.Reason, c.Message, want)
	}
	g.r.ofGang = nil // Muster starts again
	g.pod("e", "2", inGroup...)
	g.settle(ringKey())
	g.is("another is there in its place", "a Running, c Failed, e open | 2-1 1 QuotaReserved Admitted")
	if w := g.workload(); len(w.OwnerReferences) != 4 {
		t.Errorf("the Workload is owned by %v", w.OwnerReferences)
	}
	g.set(corev1.PodSucceeded, "a", "e")
	g.settle(ringKey())
	g.is("all have succeeded", "a Succeeded, c Failed, e Succeeded | 2-1 1 QuotaReserved Admitted Finished")
}

// TestAGroupByTheNameOfAnotherWorkload: that one is left alone, and the event of the pods begins as Kueue's does.
func TestAGroupByTheNameOfAnotherWorkload(t *testing.T) {
	other := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ring", UID: "other"}}
	g := newRig(t, other)
	for _, name := range []string{"a", "b", "c"} {
		g.pod(name, "1", inGroup...)
	}
	if _, err := g.r.Reconcile(context.Background(), ringKey()); err == nil {
		t.Error("the Workload of another is theirs")
	}
	if w := g.workload(); workload.IsGroup(w) || len(w.OwnerReferences) > 0 {
		t.Errorf("it has become that of the pods: %v", w.ObjectMeta)
	}
	const want = `Warning WorkloadNameConflict A Workload named "ring" already exists but is not a pod group workload; ` +
		"this pod group cannot be admitted"
	if got := <-g.events.Events; !strings.HasPrefix(got, want) {
		t.Errorf("the pods have the event %q, not %q", got, want)
	}
}

// TestAGroupThatIsBeingDeleted: what keeps its held pods for a while, such as the finalizer by which a Job counts them, keeps no quota.
func TestAGroupThatIsBeingDeleted(t *testing.T) {
	g := newRig(t)
	for _, name := range []string{"a", "b", "c"} {
		p := g.pod(name, "1", inGroup...)
		p.Finalizers = []string{batchv1.JobTrackingFinalizer}
		if err := g.c.Update(context.Background(), p); err != nil {
			t.Fatal(err)
		}
	}
	g.settle(ringKey())
	g.is("it queues", "a held, b held, c held | 3")
	g.set("", "a", "b", "c")
	g.settle(ringKey())
	g.is("it goes", "a held, b held, c held |")
}

func TestAnEvictedGroup(t *testing.T) {
	g := newRig(t)
	for _, name := range []string{"a", "b", "c"} {
		g.pod(name, "1", inGroup...)
	}
	g.settle(ringKey())
	g.admit()
	g.settle(ringKey())
	g.evict()
	// Its last pod takes its time.
	last := &corev1.Pod{}
	if err := g.c.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "c"}, last); err != nil {
		t.Fatal(err)
	}
	last.Finalizers = []string{"test/slow"}
	if err := g.c.Update(context.Background(), last); err != nil {
		t.Fatal(err)
	}
	g.settle(ringKey())
	g.is("quota is held while a pod is left", "c open | 3 QuotaReserved Admitted Evicted")
	if err := g.c.Get(context.Background(), client.ObjectKeyFromObject(last), last); err != nil {
		t.Fatal(err)
	}
	last.Finalizers = nil
	if err := g.c.Update(context.Background(), last); err != nil {
		t.Fatal(err)
	}
	g.settle(ringKey())
	g.is("then it is released", " |")
}

func TestAGroupThatIsNotRetriedFails(t *testing.T) {
	g := newRig(t)
	for _, name := range []string{"a", "b", "c"} {
		g.pod(name, "1", append(inGroup, retriableAnnotation, "false")...)
	}
	g.settle(ringKey())
	g.admit()
	g.settle(ringKey())
	g.set(corev1.PodSucceeded, "a", "b")
	g.set(corev1.PodFailed, "c")
	g.settle(ringKey())
	g.is("it is over", "a Succeeded, b Succeeded, c Failed | 3 QuotaReserved Admitted Finished")
	if c := g.workload().Status.Conditions; c[len(c)-1].Reason != kueue.WorkloadFinishedReasonFailed ||
		c[len(c)-1].Message != "Pods succeeded: 2/3." {
		t.Errorf("it ended as %+v", c[len(c)-1])
	}
}

// TestPodsWithoutAWorkloadRunOn: nothing that runs is deleted because an object is gone.
func TestPodsWithoutAWorkloadRunOn(t *testing.T) {
	g := newRig(t)
	for _, name := range []string{"a", "b", "c"} {
		g.pod(name, "1", inGroup...)
	}
	g.settle(ringKey())
	g.admit()
	g.settle(ringKey())
	if err := g.c.Delete(context.Background(), g.workload()); err != nil {
		t.Fatal(err)
	}
	g.settle(ringKey())
	g.is("they are adopted", "a open, b open, c open | 3 muster.dev/Adopted")
}

// TestPodsProveThatTheyMayBeAdopted: they ran before the policy came that gates them, or bear the marks of a start. Labels of their
// users prove nothing.
func TestPodsProveThatTheyMayBeAdopted(t *testing.T) {
	gates := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{
		Name: gatesPolicy, CreationTimestamp: metav1.NewTime(now.Add(time.Minute))}}
	for name, c := range map[string]struct {
		born   time.Duration
		labels map[string]string
		want   string
		reason string
	}{
		"they ran before":            {0, nil, "a open, b open, c open | 3 muster.dev/Adopted", workload.RanBefore},
		"they came later":            {time.Hour, nil, "a open, b open, c open |", ""},
		"they have a mark of a job":  {time.Hour, map[string]string{jobs.JobUIDLabel: "x"}, "a open, b open, c open |", ""},
		"Muster has started them":    {time.Hour, map[string]string{jobs.PodSetLabel: "p", jobs.ClusterQueueLabel: "cluster"}, "a open, b open, c open | 3 muster.dev/Adopted", workload.StartedBefore},
		"one of them proves nothing": {59 * time.Second, nil, "a open, b open, c open |", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, gates.DeepCopy())
			g.born = now.Add(c.born)
			for _, name := range []string{"a", "b", "c"} {
				p := g.pod(name, "1", inGroup...)
				maps.Copy(p.Labels, c.labels)
				p.Labels[jobs.ClusterQueueLabel] = "cluster"
				p.Spec.SchedulingGates = p.Spec.SchedulingGates[2:]
				p.Spec.NodeSelector = map[string]string{"pool": "spot"}
				p.Spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
				if err := g.c.Update(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			}
			g.settle(ringKey())
			g.is("they run", c.want)
			if w := g.workload(); c.reason != "" && meta.FindStatusCondition(w.Status.Conditions, workload.ConditionAdopted).Reason != c.reason {
				t.Errorf("they are adopted as %+v", w.Status.Conditions)
			}
		})
	}
}

func TestGroupsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		second []string
		want   string
	}{
		"no number":       {[]string{workload.GroupName, "ring"}, "the annotation kueue.x-k8s.io/pod-group-total-count is"},
		"another number":  {[]string{workload.GroupName, "ring", workload.GroupCountAnnotation, "2"}, `is "2" on pod b and "3" on pod a`},
		"fast, two roles": {append(inGroup, fastAnnotation, "true"), "remove it"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			first := inGroup
			if name == "fast, two roles" {
				first = c.second
			}
			g.pod("a", "1", first...)
			g.pod("b", "2", c.second...)
			g.pod("c", "2", c.second...)
			g.settle(ringKey())
			w := g.workload()
			if w == nil || !strings.Contains(w.Annotations[workload.RefusedAnnotation], c.want) {
				t.Errorf("refused: %v", w)
			}
		})
	}
}

// TestAGroupStartsWholeOrNotAtAll, whatever its pods say that they are.
func TestAGroupStartsWholeOrNotAtAll(t *testing.T) {
	role := roleOf(newRig(t).pod("like", "1"))
	for name, c := range map[string]struct {
		forge                  func(*corev1.Pod)
		queued, started, event string
	}{
		"a pod that has the role of others": {func(p *corev1.Pod) { p.Annotations[roleHashAnnotation] = role },
			"a held, b held, c held | 1 2", "a open, b open, c open | 1 2 QuotaReserved Admitted", ""},
		"a pod that has the podSet of others": {func(p *corev1.Pod) { p.Labels[jobs.PodSetLabel] = role },
			"a held, b held, c held | 1 2", "a open, b open, c open | 1 2 QuotaReserved Admitted", ""},
		"a pod that has the role of others by its manager": {func(p *corev1.Pod) {
			p.Annotations[roleHashAnnotation], p.Labels[kueue.MultiKueueOriginLabel] = role, "forged"
		}, "a held, b held, c held | 3", "a held, b held, c held | 3 QuotaReserved Admitted", "it asks for more cpu"},
		"a pod that contradicts a check": {func(p *corev1.Pod) { p.Labels["zone"] = "other" },
			"a held, b held, c held | 1 2", "a held, b held, c held | 1 2 QuotaReserved Admitted Finished", failedToStart},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.pod("a", "1", inGroup...)
			g.pod("b", "1", inGroup...)
			p := g.pod("c", "9", inGroup...)
			c.forge(p)
			if err := g.c.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			g.settle(ringKey())
			g.is("it queues", c.queued)
			g.admit()
			g.status(func(s *kueue.WorkloadStatus) {
				check := kueue.AdmissionCheckState{Name: "zone", State: kueue.CheckStateReady, LastTransitionTime: metav1.NewTime(now)}
				for _, a := range s.Admission.PodSetAssignments {
					check.PodSetUpdates = append(check.PodSetUpdates, kueue.PodSetUpdate{Name: a.Name, Labels: map[string]string{"zone": "one"}})
				}
				s.AdmissionChecks = []kueue.AdmissionCheckState{check}
			})
			g.settle(ringKey())
			g.is("it starts", c.started)
			close(g.events.Events)
			events := ""
			for e := range g.events.Events {
				events += e + "\n"
			}
			if !strings.Contains(events, c.event) {
				t.Errorf("events:\n%s", events)
			}
		})
	}
}

func TestFastAdmission(t *testing.T) {
	g := newRig(t)
	fast := append(inGroup, fastAnnotation, "true")
	g.pod("a", "1", fast...)
	g.settle(ringKey())
	g.is("the first pod queues for all", "a held | 3")
	g.admit()
	g.settle(ringKey())
	g.pod("b", "1", fast...)
	g.pod("large", "9", fast...)
	g.settle(ringKey())
	g.is("others follow, unless they take more", "a open, b open, large held | 3 QuotaReserved Admitted")
}

func controlledBySet(p *corev1.Pod, name string) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: name, UID: "uid-" + types.UID(name),
		Controller: new(true)}}
}

// newStatefulSet is one of two pods in a queue.
func newStatefulSet() *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "db", UID: "uid-db", Labels: map[string]string{jobs.QueueLabel: "main"},
	}}
	set.Spec.Replicas = new(int32(2))
	set.Spec.Template.Annotations = map[string]string{parentAnnotation: statefulSetParent}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
	}}}
	return set
}

func TestAStatefulSet(t *testing.T) {
	set := newStatefulSet()
	g := newRig(t, set)
	k := gangOfStatefulSet(t.Context(), set)[0]
	g.settle(k)
	g.is("it queues for all before its first pod is there", " | 2")
	g.admit()
	g.settle(k)
	add := func(name string) {
		p := g.pod(name, "1", parentAnnotation, statefulSetParent)
		controlledBySet(p, "db")
		if err := g.c.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if own, _ := keyOf(p); own != k {
			t.Fatalf("the gang of its pod is %v, want %v", own, k)
		}
		g.settle(k)
	}
	add("db-0")
	g.is("one after the other", "db-0 open | 2 QuotaReserved Admitted")
	add("db-1")
	g.is("all", "db-0 open, db-1 open | 2 QuotaReserved Admitted")
	g.evict()
	g.settle(k)
	g.is("evicted, it queues again", " | 2 Evicted")
	if err := g.c.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
		t.Fatal(err)
	}
	set.Spec.Replicas = new(int32(0))
	if err := g.c.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	g.settle(k)
	g.is("with no replicas it is on hold", " |")
	set.Spec.Replicas = new(int32(3))
	if err := g.c.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	g.settle(k)
	g.is("with more than before it queues for those", " | 3")
}

// TestAStatefulSetThatIsRolledOut: pods of the new template wait if they request more than its quota, and start otherwise.
func TestAStatefulSetThatIsRolledOut(t *testing.T) {
	for cpu, want := range map[string]string{"1": "db-0 open, db-1 open", "4": "db-0 open, db-1 held"} {
		set := newStatefulSet()
		g := newRig(t, set)
		k := gangOfStatefulSet(t.Context(), set)[0]
		g.settle(k)
		g.admit()
		add := func(name, cpu string) {
			p := g.pod(name, cpu, parentAnnotation, statefulSetParent)
			controlledBySet(p, "db")
			if err := g.c.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		add("db-0", "1")
		add("db-1", "1")
		g.settle(k)
		if err := g.c.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
			t.Fatal(err)
		}
		set.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpu)}
		if err := g.c.Update(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		g.set("", "db-1")
		add("db-1", cpu)
		g.settle(k)
		g.is(cpu, want+" | 2 QuotaReserved Admitted")
	}
}

// TestAStatefulSetThatChangesItsQueue before it starts queues there.
func TestAStatefulSetThatChangesItsQueue(t *testing.T) {
	set := newStatefulSet()
	g := newRig(t, set)
	k := gangOfStatefulSet(t.Context(), set)[0]
	g.settle(k)
	if err := g.c.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
		t.Fatal(err)
	}
	set.Labels[jobs.QueueLabel] = "other"
	if err := g.c.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	g.settle(k)
	if w := g.workload(); w == nil || w.Spec.QueueName != "other" {
		t.Fatalf("its Workload is %+v", w)
	}
	g.admit()
	p := g.pod("db-0", "1", parentAnnotation, statefulSetParent) // it has the queue of before
	controlledBySet(p, "db")
	if err := g.c.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	g.settle(k)
	g.is("it starts", "db-0 open | 2 QuotaReserved Admitted")
}

// TestAnnotationsOfAStatefulSetThatCannotBeFollowed refuse it, from its creation and after a change.
func TestAnnotationsOfAStatefulSetThatCannotBeFollowed(t *testing.T) {
	for _, later := range []bool{false, true} {
		set := newStatefulSet()
		wrong := func() { set.Spec.Template.Annotations[kueue.PodSetRequiredTopologyAnnotation] = "not a label" }
		if !later {
			wrong()
		}
		g := newRig(t, set)
		k := gangOfStatefulSet(t.Context(), set)[0]
		g.settle(k)
		if later {
			if err := g.c.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
				t.Fatal(err)
			}
			wrong()
			if err := g.c.Update(t.Context(), set); err != nil {
				t.Fatal(err)
			}
			g.settle(k)
		}
		if w := g.workload(); w == nil || !strings.Contains(w.Annotations[workload.RefusedAnnotation], "not a label") {
			t.Errorf("later %v: its Workload is %v", later, w)
		}
	}
}

// TestAStatefulSetThatIsEvictedBeforeItsPods lets its quota go: no pod of it has to stop.
func TestAStatefulSetThatIsEvictedBeforeItsPods(t *testing.T) {
	set := newStatefulSet()
	g := newRig(t, set)
	k := gangOfStatefulSet(t.Context(), set)[0]
	g.settle(k)
	g.admit()
	g.settle(k)
	g.evict()
	g.settle(k)
	g.is("it queues again", " | 2 Evicted")
}

// TestAStatefulSetThatIsBeingDeleted, which a finalizer puts off, has quota as long as its pods run: they stop like any others.
func TestAStatefulSetThatIsBeingDeleted(t *testing.T) {
	for name, runs := range map[string]bool{"before its start": false, "while it runs": true} {
		t.Run(name, func(t *testing.T) {
			set := newStatefulSet()
			set.Finalizers = []string{"example.com/mine"}
			g := newRig(t, set)
			k := gangOfStatefulSet(t.Context(), set)[0]
			g.settle(k)
			g.admit()
			add := func(name string) {
				p := g.pod(name, "1", parentAnnotation, statefulSetParent)
				controlledBySet(p, "db")
				if err := g.c.Update(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			}
			if runs {
				add("db-0")
				g.settle(k)
			}
			if err := g.c.Delete(t.Context(), set); err != nil {
				t.Fatal(err)
			}
			g.settle(k)
			if !runs {
				g.is("it holds nothing", " |")
				return
			}
			g.is("its pods hold quota", "db-0 open | 2 QuotaReserved Admitted")
			add("db-1")
			g.settle(k)
			g.is("no other starts", "db-0 open, db-1 held | 2 QuotaReserved Admitted")
			g.evict()
			g.settle(k)
			g.is("it stops, and is over", "db-1 held |")
		})
	}
}

// TestPodsOfAStatefulSetThatIsDeletedWithoutThem run on by a Workload each, until another one has them.
func TestPodsOfAStatefulSetThatIsDeletedWithoutThem(t *testing.T) {
	g := newRig(t)
	p := g.pod("db-0", "1", parentAnnotation, statefulSetParent)
	p.Spec.SchedulingGates = nil
	p.Spec.NodeSelector = map[string]string{"pool": "spot"}
	change := func(owner string) {
		t.Helper()
		before := p.DeepCopy()
		p.OwnerReferences = nil
		if owner != "" {
			controlledBySet(p, owner)
		}
		if err := g.c.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if !passes(before, p) {
			t.Error("nothing looks at it")
		}
	}
	change("db")
	change("")
	alone, _ := keyOf(p)
	g.settle(alone)
	if w := g.workload(); w == nil || !workload.IsAdopted(w) {
		t.Fatalf("it runs by the Workload %v", w)
	}
	change("db")
	g.settle(alone)
	if w := g.workload(); w != nil {
		t.Errorf("its Workload %s is left", w.Name)
	}
	for len(g.events.Events) > 0 {
		if e := <-g.events.Events; strings.Contains(e, "stays gated") {
			t.Errorf("it is told: %s", e)
		}
	}
}

func TestPodsAreNumberedByTheLabelThatTheyName(t *testing.T) {
	const own = "apps.kubernetes.io/pod-index"
	for name, tc := range map[string]struct {
		annotations []string
		want        string
	}{
		"none":                     {want: kueue.PodGroupPodIndexLabel},
		"one that they name":       {[]string{kueue.PodGroupPodIndexLabelAnnotation, own}, own},
		"of a group":               {inGroup, kueue.PodGroupPodIndexLabel},
		"of a group that names it": {append([]string{kueue.PodGroupPodIndexLabelAnnotation, own}, inGroup...), own},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newRig(t).pod("a", "1", tc.annotations...)
			g := singleOf(key{}, pod)
			if pod.Annotations[workload.GroupName] != "" {
				g = groupOfPods(ringKey(), []*corev1.Pod{pod})
			}
			if got := *g.podSets[0].TopologyRequest.PodIndexLabel; got != tc.want {
				t.Errorf("they are numbered by %s, want %s", got, tc.want)
			}
		})
	}
}

// aLeaderWorkerSet has two groups of three, whose leaders have a template of their own.
func aLeaderWorkerSet() *unstructured.Unstructured {
	template := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{parentAnnotation: leaderWorkerSetParent}},
		"spec": map[string]any{"containers": []any{map[string]any{
			"name": "main", "resources": map[string]any{"requests": map[string]any{"cpu": "1"}},
		}}},
	}
	object := newLeaderWorkerSet()
	object.SetNamespace("default")
	object.SetName("llm")
	object.SetUID("uid-llm")
	object.SetLabels(map[string]string{jobs.QueueLabel: "main"})
	object.Object["spec"] = map[string]any{"replicas": int64(2), "leaderWorkerTemplate": map[string]any{
		"size": int64(3), "leaderTemplate": template, "workerTemplate": template,
	}}
	return object
}

// leaderWorkerPods creates those pods of a group.
func (g *rig) leaderWorkerPods(index string, from, to int) {
	g.t.Helper()
	for i := from; i < to; i++ {
		p := g.pod(fmt.Sprintf("llm-%s-%d", index, i), "1", parentAnnotation, leaderWorkerSetParent)
		p.Labels[workload.LeaderWorkerSetLabel], p.Labels[workload.GroupIndexLabel], p.Labels[workerIndexLabel] = "llm", index, fmt.Sprint(i)
		if err := g.c.Update(g.t.Context(), p); err != nil {
			g.t.Fatal(err)
		}
	}
}

func TestALeaderWorkerSet(t *testing.T) {
	object := aLeaderWorkerSet()
	g := newRig(t, object)
	keys := gangsOfLeaderWorkerSet(t.Context(), object)
	if len(keys) != 2 {
		t.Fatalf("its groups are %v", keys)
	}
	g.settle(keys[1])
	g.is("a group queues", " | 1 2")
	w := g.workload()
	if first, second := w.Spec.PodSets[0].TopologyRequest, w.Spec.PodSets[1].TopologyRequest; first != nil || second == nil ||
		*second.PodIndexLabel != workerIndexLabel {
		t.Errorf("its leader is numbered by %+v, and its workers by %+v", first, second)
	}
	named := &unstructured.Unstructured{}
	named.SetName("llm-1")
	named.SetUID("uid-llm")
	if got, _ := keyOfWorkload(w); got != keys[1] || w.Name != jobs.WorkloadName(leaderWorkerSetKind, named) {
		t.Errorf("its Workload is %s, of %v", w.Name, got)
	}
	g.admit()
	g.leaderWorkerPods("1", 0, 3)
	g.settle(keys[1])
	g.is("it starts", "llm-1-0 open, llm-1-1 open, llm-1-2 open | 1 2 QuotaReserved Admitted")
	g.evict()
	g.settle(keys[1])
	g.is("evicted, it queues again", " | 1 2 Evicted")
}

// TestAGroupThatIsRolledOut: a group keeps its Workload and quota while none of its pods exists, if the new pods request no more
// and may run on the same nodes. Otherwise it queues again, once none of its pods runs according to the API server.
func TestAGroupThatIsRolledOut(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(worker map[string]any)
		runs   bool // past the cache
		kept   bool
	}{
		"another image":              {func(c map[string]any) { c["image"] = "v2" }, false, true},
		"less CPU":                   {requests("500m"), false, true},
		"more CPU":                   {requests("2"), false, false},
		"more CPU, while a pod runs": {requests("2"), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			object := aLeaderWorkerSet()
			g := newRig(t, object)
			k := gangsOfLeaderWorkerSet(t.Context(), object)[1]
			g.settle(k)
			g.admit()
			containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "leaderWorkerTemplate", "workerTemplate", "spec", "containers")
			tc.change(containers[0].(map[string]any))
			if err := unstructured.SetNestedSlice(object.Object, containers, "spec", "leaderWorkerTemplate", "workerTemplate", "spec",
				"containers"); err != nil {
				t.Fatal(err)
			}
			if err := g.c.Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			if tc.runs {
				other := newRig(t, object.DeepCopy())
				other.leaderWorkerPods("1", 1, 2)
				p := &corev1.Pod{}
				if err := other.c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "llm-1-1"}, p); err != nil {
					t.Fatal(err)
				}
				p.Spec.SchedulingGates = nil
				if err := other.c.Update(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				g.r.live = other.c
			}
			g.settle(k)
			if w := g.workload(); w == nil || workload.HasQuota(w) != tc.kept {
				t.Errorf("its Workload is there with quota: %t, want %t", w != nil && workload.HasQuota(w), tc.kept)
			}
		})
	}
}

func requests(cpu string) func(map[string]any) {
	return func(container map[string]any) {
		container["resources"] = map[string]any{"requests": map[string]any{"cpu": cpu}}
	}
}

// TestALeaderWorkerSetThatIsRolledOut has more groups for a while. Each of them queues like the others and is finished with its pods.
func TestALeaderWorkerSetThatIsRolledOut(t *testing.T) {
	for name, tc := range map[string]struct {
		surge any
		extra bool
	}{
		"by a group more": {int64(1), true}, "by a half": {"50%", true}, "by a part of a group": {"1%", true},
		"without more": {int64(0), false}, "without a word": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			object := aLeaderWorkerSet()
			if tc.surge != nil {
				if err := unstructured.SetNestedField(object.Object, tc.surge, "spec", "rolloutStrategy", "rollingUpdateConfiguration",
					"maxSurge"); err != nil {
					t.Fatal(err)
				}
			}
			g := newRig(t, object)
			k := gangsOfLeaderWorkerSet(t.Context(), object)[1]
			k.index = 2
			g.settle(k)
			g.is("it is not rolled out", " |")
			g.leaderWorkerPods("2", 0, 1)
			g.settle(k)
			if !tc.extra {
				g.is("it has no such group", "llm-2-0 held |")
				return
			}
			g.is("the leader has come", "llm-2-0 held | 1 2")
			g.admit()
			g.leaderWorkerPods("2", 1, 3)
			g.settle(k)
			g.is("the group starts", "llm-2-0 open, llm-2-1 open, llm-2-2 open | 1 2 QuotaReserved Admitted")
			for _, pod := range []string{"llm-2-0", "llm-2-1", "llm-2-2"} {
				g.set("", pod)
			}
			g.settle(k)
			g.is("it is rolled out", " |")
		})
	}
}

// TestALeaderWorkerSetWhoseSizeChanges runs no more pods of a group than the group has quota for, whatever its size says meanwhile. Kueue
// 0.20 refuses the change.
func TestALeaderWorkerSetWhoseSizeChanges(t *testing.T) {
	resize := func(g *rig, object *unstructured.Unstructured, size int64) {
		t.Helper()
		if err := unstructured.SetNestedField(object.Object, size, "spec", "leaderWorkerTemplate", "size"); err != nil {
			t.Fatal(err)
		}
		if err := g.c.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	start := func(t *testing.T) (*rig, *unstructured.Unstructured, key) {
		object := aLeaderWorkerSet()
		g := newRig(t, object)
		k := gangsOfLeaderWorkerSet(t.Context(), object)[1]
		g.settle(k)
		g.admit()
		g.leaderWorkerPods("1", 0, 3)
		g.settle(k)
		g.is("it runs", "llm-1-0 open, llm-1-1 open, llm-1-2 open | 1 2 QuotaReserved Admitted")
		return g, object, k
	}
	t.Run("more", func(t *testing.T) {
		g, object, k := start(t)
		resize(g, object, 5)
		g.settle(k)
		g.leaderWorkerPods("1", 3, 5)
		g.settle(k)
		g.is("pods of the new size come", "llm-1-0 open, llm-1-1 open, llm-1-2 open, llm-1-3 held, llm-1-4 held | 1 2 QuotaReserved Admitted")
		g.set("", "llm-1-1")
		g.settle(k)
		g.is("one takes the place of an old one", "llm-1-0 open, llm-1-2 open, llm-1-3 open, llm-1-4 held | 1 2 QuotaReserved Admitted")
		for _, pod := range []string{"llm-1-0", "llm-1-2", "llm-1-3"} {
			g.set("", pod)
		}
		g.settle(k)
		g.is("the old ones are gone", "llm-1-4 held | 1 4")
		g.admit()
		g.leaderWorkerPods("1", 0, 4)
		g.settle(k)
		g.is("it has quota for the new size", "llm-1-0 open, llm-1-1 open, llm-1-2 open, llm-1-3 open, llm-1-4 open | 1 4 QuotaReserved Admitted")
	})
	t.Run("fewer", func(t *testing.T) {
		g, object, k := start(t)
		resize(g, object, 2)
		g.settle(k)
		g.is("the old ones run", "llm-1-0 open, llm-1-1 open, llm-1-2 open | 1 2 QuotaReserved Admitted")
		for _, pod := range []string{"llm-1-0", "llm-1-1", "llm-1-2"} {
			g.set("", pod)
		}
		g.settle(k)
		g.is("they are gone", " | 1 1")
	})
	t.Run("more, while it waits", func(t *testing.T) {
		object := aLeaderWorkerSet()
		g := newRig(t, object)
		k := gangsOfLeaderWorkerSet(t.Context(), object)[1]
		g.settle(k)
		resize(g, object, 5)
		g.settle(k)
		g.is("it queues for the new size", " | 1 4")
	})
}

// TestPodsWithoutAClassGetTheDefaultOne as their Workload is created: of a pod, a group and what makes pods.
func TestPodsWithoutAClassGetTheDefaultOne(t *testing.T) {
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Value: 5}
	for name, tc := range map[string]struct {
		annotations []string
		pods        int
	}{"of a pod": {nil, 1}, "of a group": {inGroup, 3}} {
		for _, first := range []bool{true, false} {
			g := newRig(t)
			if first {
				g = newRig(t, class.DeepCopy())
			}
			var k key
			for i := range tc.pods {
				k, _ = keyOf(g.pod(fmt.Sprint("p-", i), "1", tc.annotations...))
			}
			g.settle(k)
			uid, want := g.workload().UID, int32(0)
			if first {
				want = 5
			} else if err := g.c.Create(t.Context(), class.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			g.settle(k)
			g.admit()
			g.settle(k)
			if w := g.workload(); w.UID != uid || workload.Priority(w) != want {
				t.Errorf("%s: priority %d, want %d; the same Workload: %v", name, workload.Priority(w), want, w.UID == uid)
			}
		}
	}
	object := aLeaderWorkerSet()
	g := newRig(t, object, class.DeepCopy())
	g.settle(gangsOfLeaderWorkerSet(t.Context(), object)[1])
	if w := g.workload(); workload.Priority(w) != 5 || w.Spec.PriorityClassRef.Kind != kueue.WorkloadPriorityClassKind {
		t.Errorf("of a LeaderWorkerSet: priority %d of %v", workload.Priority(w), w.Spec.PriorityClassRef)
	}
}

// TestGangsOfKueuesWorkloads: Kueue has what makes pods own their Workload beside the pods, and control it no
// more than they do.
func TestGangsOfKueuesWorkloads(t *testing.T) {
	owner := func(kind schema.GroupVersionKind, name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: name, UID: types.UID("uid-" + name)}
	}
	pod := owner(podKind, "web-0")
	for name, tt := range map[string]struct {
		owners []metav1.OwnerReference
		maker  string
		want   key
	}{
		"of a StatefulSet":       {[]metav1.OwnerReference{pod, owner(statefulSetKind, "web")}, "uid-web", key{family: ofStatefulSet, namespace: "default", name: "web"}},
		"of a LeaderWorkerSet":   {[]metav1.OwnerReference{owner(leaderWorkerSetKind, "web"), pod}, "uid-web", key{family: ofLeaderWorkerSet, namespace: "default", name: "web", index: 2}},
		"of pods":                {[]metav1.OwnerReference{pod}, "", key{family: group, namespace: "default", name: "workload"}},
		"of another StatefulSet": {[]metav1.OwnerReference{owner(statefulSetKind, "web")}, "uid-other", key{family: group, namespace: "default", name: "workload"}},
	} {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "workload", OwnerReferences: tt.owners,
			Labels: map[string]string{}, Annotations: map[string]string{workload.GroupAnnotation: "true", workload.GroupIndexAnnotation: "2"}}}
		if tt.maker != "" {
			w.Labels[jobs.JobUIDLabel] = tt.maker
		}
		if got, ok := keyOfWorkload(w); got != tt.want || !ok {
			t.Errorf("%s: it is of %v, want %v", name, got, tt.want)
		}
	}
}

// newer is a cluster whose Workloads are newer than the cache.
type newer struct{ client.Reader }

func (n newer) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	err := n.Reader.Get(ctx, key, o, options...)
	if _, ok := o.(*kueue.Workload); ok {
		o.SetResourceVersion("newer")
	}
	return err
}

// TestAnOldAdmissionStartsNothing: after a restart, the cache may have it, and others its quota.
func TestAnOldAdmissionStartsNothing(t *testing.T) {
	g := newRig(t)
	k, _ := keyOf(g.pod("train", "1"))
	g.settle(k)
	g.admit()
	g.r.live = newer{g.c}
	g.settle(k)
	g.is("the admission is old", "train held | 1 QuotaReserved Admitted")
	g.r.live = g.c
	g.settle(k)
	g.is("the admission is the newest", "train open | 1 QuotaReserved Admitted")
}

// TestPodsOfWhatQueuesAsAWhole queue with that if it is in a queue, and by themselves if it is in none: its pod template alone
// has the label then.
func TestPodsOfWhatQueuesAsAWhole(t *testing.T) {
	queued := map[string]string{jobs.QueueLabel: "main"}
	for name, tt := range map[string]struct {
		// labels are those of the Job, and above those of the JobSet that controls it; nil is none.
		labels, above map[string]string
		// gone: there is no such Job. late: it comes when the pod has a Workload.
		gone, late bool
		want       string
	}{
		"of a Job in a queue":                         {labels: queued, want: "free"},
		"of a Job in a queue, seen late":              {labels: queued, late: true, want: "free"},
		"of a Job in no queue":                        {want: "held"},
		"of a Job that is gone":                       {labels: queued, gone: true, want: "held"},
		"of a Job of a JobSet in a queue":             {above: queued, want: "free"},
		"of a Job of a JobSet, neither is in a queue": {above: map[string]string{}, want: "held"},
	} {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job", UID: "uid-job"}}
			set := &unstructured.Unstructured{}
			set.SetAPIVersion("jobset.x-k8s.io/v1alpha2")
			set.SetKind("JobSet")
			set.SetNamespace("default")
			set.SetName("set")
			set.SetUID("uid-set")
			set.SetLabels(tt.above)
			if tt.above != nil {
				job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, set.GroupVersionKind())}
			}
			g := newRig(t, set)
			g.r.parts = parts{client: g.c, live: g.c, makers: makersOf(kinds.All()), naming: owners.Naming{Client: g.c}}
			p := g.pod("worker", "1")
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
			if err := g.c.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			k, _ := keyOf(p)
			if tt.late {
				g.settle(k)
			}
			job.Labels = tt.labels
			if !tt.gone {
				if err := g.c.Create(t.Context(), job); err != nil {
					t.Fatal(err)
				}
			}
			// Once it is free, no event enqueues it again.
			for range 6 {
				if _, err := g.r.Reconcile(t.Context(), k); err != nil {
					t.Fatal(err)
				}
				if err := g.c.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
					t.Fatal(err)
				}
				if !isGated(p) {
					break
				}
			}
			got := "free"
			if isGated(p) {
				got = "held"
			}
			if len(g.r.ofGang) > 0 != (tt.want == "held") {
				t.Errorf("%d gangs are remembered", len(g.r.ofGang))
			}
			if _, queues := keyOf(p); got != tt.want || queues != (got == "held") || (g.workload() != nil) != queues {
				t.Errorf("the pod is %s, queues by itself: %v, with the Workload %v; want %s", got, queues, g.workload(), tt.want)
			}
		})
	}
}

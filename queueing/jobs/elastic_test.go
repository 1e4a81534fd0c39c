package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	. "github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/batch"
	"github.com/muster-dev/muster/queueing/workload"
)

// elastic makes a Job of two pods that may become more, in many rounds.
func elastic(j *batchv1.Job) {
	j.Annotations = map[string]string{workload.ElasticAnnotation: "true"}
	j.Generation = 1
	of(2, 100)(j)
}

// makePods simulates the Job controller: it creates as many pods as the parallelism, by the template of the Job, and deletes surplus
// pods, the highest index first.
func (g *rig) makePods() {
	g.t.Helper()
	job := g.job()
	for i := range int32(20) {
		pod := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
		pod.Name, pod.Namespace = fmt.Sprintf("train-%02d", i), job.Namespace
		pod.Labels[batchv1.ControllerUidLabel] = string(job.UID)
		if i < *job.Spec.Parallelism {
			_ = g.c.Create(context.Background(), pod) // it may be there already
		} else {
			_ = g.c.Delete(context.Background(), pod)
		}
	}
	g.updateJob(func(j *batchv1.Job) { j.Status.Active = *j.Spec.Parallelism })
}

// scaleTo edits the Job as a user would.
func (g *rig) scaleTo(parallelism int32) {
	g.t.Helper()
	g.updateJob(func(j *batchv1.Job) { j.Spec.Parallelism = &parallelism })
	g.updateJob(func(j *batchv1.Job) { j.Generation++ })
	g.makePods()
	g.settle()
}

// pods shows which bookings the pods that may be scheduled have, in the order of
// their names; - is one that may not.
func (g *rig) pods() string {
	g.t.Helper()
	var pods corev1.PodList
	if err := g.c.List(context.Background(), &pods); err != nil {
		g.t.Fatal(err)
	}
	var out []string
	for _, p := range pods.Items {
		booking := p.Annotations["booking"]
		if p.Spec.NodeSelector["booked.muster.dev/"+booking] == "" {
			booking = "nowhere"
		}
		if slices.ContainsFunc(p.Spec.SchedulingGates, IsElasticGate) {
			booking = "-"
		}
		out = append(out, booking)
	}
	return strings.Join(out, " ")
}

// slices shows the Job's Workloads, the oldest first: how many pods each is of, and
// what has come of it.
func (g *rig) slices() string {
	g.t.Helper()
	var out []string
	for _, w := range g.all() {
		state := "waits"
		if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished); c != nil {
			state = c.Reason
		} else if workload.HasQuota(w) {
			state = fmt.Sprint("has ", granted(w))
		}
		out = append(out, fmt.Sprintf("%d %s", w.Spec.PodSets[0].Count, state))
	}
	return strings.Join(out, ", ")
}

func (g *rig) all() []*kueue.Workload {
	g.t.Helper()
	all, err := SlicesOf(context.Background(), g.c, g.job())
	if err != nil {
		g.t.Fatal(err)
	}
	return all
}

// admitSlice admits the newest slice with a booking of its own.
func (g *rig) admitSlice(booking string) {
	g.t.Helper()
	w := g.all()[len(g.all())-1]
	g.statusOf(w, func(s *kueue.WorkloadStatus) {
		admitWith(w.Spec.PodSets[0].Count)(s)
		s.AdmissionChecks[0].PodSetUpdates = []kueue.PodSetUpdate{{
			Name: "main", Annotations: map[string]string{"booking": booking}, NodeSelector: map[string]string{"booked.muster.dev/" +
				booking: "default"},
		}}
	})
}

// replace is the queue's part of a replacement by the newest slice.
func (g *rig) replace(booking string) {
	g.t.Helper()
	all := g.all()
	g.admitSlice(booking)
	g.settle()
	w := all[len(all)-2]
	status := workload.Finished(w, kueue.WorkloadSliceReplaced, "Replaced", now)
	if _, err := writes.ApplyStatus(context.Background(), g.c, w, status); err != nil {
		g.t.Fatal(err)
	}
	g.settle()
}

func (g *rig) statusOf(w *kueue.Workload, change func(*kueue.WorkloadStatus)) {
	g.t.Helper()
	status := w.Status.DeepCopy()
	change(status)
	if _, err := writes.ApplyStatus(context.Background(), g.c, w, status); err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) want(wantSlices, wantPods string) {
	g.t.Helper()
	if s, p := g.slices(), g.pods(); s != wantSlices || p != wantPods {
		g.t.Errorf("the slices are %q and the pods %q, want %q and %q", s, p, wantSlices, wantPods)
	}
}

// grown is a Job that runs with two pods and has been given a third and a fourth,
// which wait. The process dies once at a write.
func grown(t *testing.T, dieAt int, after bool) *rig {
	t.Helper()
	g := newRig(t, suspendedJob(elastic))
	g.dieAt, g.after = dieAt, after
	g.settle()
	g.admitSlice("b1")
	g.settle()
	g.makePods()
	g.settle()
	g.want("2 has 2", "b1 b1")
	g.scaleTo(4)
	g.want("2 has 2, 4 waits", "b1 b1 - -")
	return g
}

// TestAnElasticJobGrows, with the process dying at each of its writes.
func TestAnElasticJobGrows(t *testing.T) {
	for _, after := range []bool{false, true} {
		for dieAt := range 12 {
			g := grown(t, dieAt, after)
			first := g.all()[0]
			if next := g.all()[1]; next.Annotations[workload.RefusedAnnotation] != "" ||
				next.Annotations[workload.ReplacementAnnotation] != SliceKey(first) ||
				next.Annotations[kueue.WorkloadSliceNameAnnotation] != first.Name ||
				!cmp.Equal(first.Spec.PodSets[0].Template, next.Spec.PodSets[0].Template) {
				t.Errorf("the next slice is %+v", next)
			}
			g.admitSlice("b2")
			g.settle()
			g.want("2 has 2, 4 has 4", "b1 b1 b2 b2")
			g.replace("b2")
			g.want("2 WorkloadSliceReplaced, 4 has 4", "b1 b1 b2 b2")
			if isSuspended(g.job()) {
				t.Fatalf("die at %d: the Job was stopped", dieAt)
			}
		}
	}
}

// TestAnElasticJobChangesItsMind.
func TestAnElasticJobChangesItsMind(t *testing.T) {
	reserve := func(g *rig) {
		w := g.all()[1]
		g.statusOf(w, func(s *kueue.WorkloadStatus) { admitWith(4)(s); set(s, kueue.WorkloadAdmitted, "False") })
		g.settle()
	}
	for name, c := range map[string]struct {
		change               func(*rig)
		wantSlices, wantPods string
	}{
		"it wants more still":                           {func(g *rig) { g.scaleTo(6) }, "2 has 2, 6 waits", "b1 b1 - - - -"},
		"it wants less":                                 {func(g *rig) { g.scaleTo(3) }, "2 has 2, 3 waits", "b1 b1 -"},
		"it wants no more":                              {func(g *rig) { g.scaleTo(2) }, "2 has 2", "b1 b1"},
		"it wants less than it had":                     {func(g *rig) { g.scaleTo(1) }, "2 has 1", "b1"},
		"it wants less than it had, and then more":      {func(g *rig) { g.scaleTo(1); g.scaleTo(3) }, "2 has 1, 3 waits", "b1 - -"},
		"its checks are not over":                       {reserve, "2 has 2, 4 has 4", "b1 b1 - -"},
		"its checks are not over, but it wants no more": {func(g *rig) { reserve(g); g.scaleTo(2) }, "2 has 2", "b1 b1"},
		"its checks are not over, but it wants more":    {func(g *rig) { reserve(g); g.scaleTo(5) }, "2 has 2, 5 waits", "b1 b1 - - -"},
	} {
		t.Run(name, func(t *testing.T) {
			g := grown(t, 0, false)
			c.change(g)
			g.want(c.wantSlices, c.wantPods)
			if isSuspended(g.job()) {
				t.Error("it was stopped")
			}
		})
	}
}

// TestAnElasticJobGrowsTwice: each pod stays where it is.
func TestAnElasticJobGrowsTwice(t *testing.T) {
	g := grown(t, 0, false)
	g.replace("b2")
	g.scaleTo(5)
	g.want("2 WorkloadSliceReplaced, 4 has 4, 5 waits", "b1 b1 b2 b2 -")
	if name := g.all()[2].Annotations[kueue.WorkloadSliceNameAnnotation]; name != g.all()[0].Name {
		t.Errorf("the third slice is of %s", name)
	}
	g.replace("b3")
	g.want("2 WorkloadSliceReplaced, 4 WorkloadSliceReplaced, 5 has 5", "b1 b1 b2 b2 b3")
	before := g.writes
	g.settle()
	if g.writes != before {
		t.Errorf("%d writes for nothing", g.writes-before)
	}
}

// TestLostPodsOfAJobThatHasGrown are made again where the lost ones had machines, which the job still has.
func TestLostPodsOfAJobThatHasGrown(t *testing.T) {
	g := grown(t, 0, false)
	g.replace("b2")
	for _, lost := range []string{"train-00", "train-03"} {
		if err := g.c.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: lost, Namespace: "default"}}); err != nil {
			t.Fatal(err)
		}
	}
	g.makePods()
	g.settle()
	g.want("2 WorkloadSliceReplaced, 4 has 4", "b2 b1 b2 b1")
	if err := g.c.Delete(t.Context(), g.all()[0]); err != nil {
		t.Fatal(err)
	}
	if err := g.c.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "train-01", Namespace: "default"}}); err != nil {
		t.Fatal(err)
	}
	g.makePods()
	g.settle()
	g.want("4 has 4", "b2 b2 b2 b1") // the state of the first slice is lost
}

// TestAGrowthThatIsTurnedOff does not outlive the number of pods that it was for.
func TestAGrowthThatIsTurnedOff(t *testing.T) {
	g := grown(t, 0, false)
	next := g.all()[1]
	next.Spec.Active = new(false)
	if err := g.c.Update(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	g.settle()
	if g.want("2 has 2, 4 waits", "b1 b1 - -"); workload.IsActive(g.all()[1]) {
		t.Error("it is asked for again")
	}
	g.scaleTo(5)
	if g.want("2 has 2, 5 waits", "b1 b1 - - -"); !workload.IsActive(g.all()[1]) {
		t.Error("another number of pods is not asked for")
	}
}

// TestAnElasticJobThatStopsWhileItGrows queues as one again, for all its pods.
func TestAnElasticJobThatStopsWhileItGrows(t *testing.T) {
	before := suspendedJob(elastic).Spec
	before.Parallelism = new(int32(4))
	for name, stop := range map[string]func(*rig){
		"evicted": func(g *rig) { g.statusOf(g.all()[0], evict) },
		"evicted while its growth waits for machines": func(g *rig) {
			g.statusOf(g.all()[1], func(s *kueue.WorkloadStatus) { admitWith(4)(s); set(s, kueue.WorkloadAdmitted, "False") })
			g.statusOf(g.all()[0], evict)
		},
		"suspended by hand": func(g *rig) { g.updateJob(func(j *batchv1.Job) { j.Spec.Suspend = new(true) }) },
	} {
		for _, after := range []bool{false, true} {
			for dieAt := range 14 {
				g := grown(t, dieAt, after)
				if gates := g.job().Spec.Template.Spec.SchedulingGates; len(gates) != 1 {
					t.Errorf("gates %v", gates)
				}
				stop(g)
				g.settle()
				g.want("2 has 2", "b1 b1 - -")
				if err := g.c.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("default")); err != nil {
					t.Fatal(err)
				}
				g.podsStop()
				g.settle()
				g.want("4 waits", "")
				if diff := cmp.Diff(before, g.job().Spec); diff != "" {
					t.Errorf("%s, die at %d: not restored (-want +got):\n%s", name, dieAt, diff)
				}
			}
		}
	}
}

// TestAnElasticJobWhoseSliceIsGone runs on, and another slice counts what it uses.
func TestAnElasticJobWhoseSliceIsGone(t *testing.T) {
	g := grown(t, 0, false)
	g.replace("b2")
	g.updateJob(func(j *batchv1.Job) { j.Generation++ })
	if err := g.c.Delete(t.Context(), g.all()[1]); err != nil {
		t.Fatal(err)
	}
	g.settle()
	if isSuspended(g.job()) || !adopted(g.workload()) {
		t.Fatalf("suspended: %v, slices %q", isSuspended(g.job()), g.slices())
	}
	g.want("2 WorkloadSliceReplaced, 4 waits", "b1 b1 b2 b2")
}

// TestAnElasticJobThatEndsWhileItGrows ends all its slices.
func TestAnElasticJobThatEndsWhileItGrows(t *testing.T) {
	g := grown(t, 0, false)
	g.updateJob(func(j *batchv1.Job) { j.Status.Conditions = condition(batchv1.JobComplete) })
	g.settle()
	if got := g.slices(); got != "2 Succeeded, 4 Succeeded" {
		t.Errorf("the slices are %q", got)
	}
}

// TestAGateOfTheUserStays: Kueue puts its gate on elastic Jobs at their creation.
func TestAGateOfTheUserStays(t *testing.T) {
	gates := []corev1.PodSchedulingGate{{Name: "mine"}, {Name: kueue.ElasticJobSchedulingGate}}
	for _, own := range [][]corev1.PodSchedulingGate{gates, gates[:1]} {
		job := suspendedJob(elastic, func(j *batchv1.Job) { j.Spec.Template.Spec.SchedulingGates = slices.Clone(own) })
		before := job.Spec.DeepCopy()
		g := newRig(t, job)
		g.settle()
		g.admitSlice("b1")
		g.settle()
		if diff := cmp.Diff(gates, g.job().Spec.Template.Spec.SchedulingGates); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		g.statusOf(g.all()[0], evict)
		g.settle()
		if diff := cmp.Diff(*before, g.job().Spec); diff != "" {
			t.Errorf("not restored (-want +got):\n%s", diff)
		}
	}
}

// TestCurrent is the truth table of two slices of a Job.
func TestCurrent(t *testing.T) {
	states := []struct {
		name   string
		status func(*kueue.WorkloadStatus)
	}{
		{"over", func(s *kueue.WorkloadStatus) { admit(s); set(s, kueue.WorkloadFinished, "True") }},
		{"waits", func(*kueue.WorkloadStatus) {}},
		{"evicted", func(s *kueue.WorkloadStatus) { admit(s); evict(s) }},
		{"reserved", func(s *kueue.WorkloadStatus) { admit(s); set(s, kueue.WorkloadAdmitted, "False") }},
		{"admitted", admit},
	}
	// want is "old" or "new" by the state of the old slice and then of the new one.
	want := map[string]string{
		"over":     "new new new new new",
		"waits":    "old old new new new",
		"evicted":  "old old new old new",
		"reserved": "old old new new new",
		"admitted": "old old old old new",
	}
	for _, first := range states {
		var got []string
		for _, second := range states {
			w := []*kueue.Workload{{ObjectMeta: metav1.ObjectMeta{Name: "old", UID: types.UID("old")}},
				{ObjectMeta: metav1.ObjectMeta{Name: "new", UID: types.UID("new")}}}
			first.status(&w[0].Status)
			second.status(&w[1].Status)
			got = append(got, CurrentSlice(w).Name)
		}
		if strings.Join(got, " ") != want[first.name] {
			t.Errorf("%s: %s, want %s", first.name, strings.Join(got, " "), want[first.name])
		}
	}
	replaced := &kueue.Workload{}
	replaced.Status = *workload.Finished(replaced, kueue.WorkloadSliceReplaced, "Replaced", now)
	for _, none := range [][]*kueue.Workload{nil, {replaced}} {
		if CurrentSlice(none) != nil {
			t.Errorf("there is one of %v", none)
		}
	}
}

func TestNamesOfSlices(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "foo", UID: "1234", Generation: 3,
		Annotations: map[string]string{workload.ElasticAnnotation: "true"}}}
	// The first digits of: printf 'Job\nbatch\nfoo\n1234\n3' | sha1sum
	if got, want := WorkloadName(batch.Kind{}.GroupVersionKind(), job), "job-foo-86d24"; got != want {
		t.Errorf("WorkloadName = %q, want %q, which is Kueue's", got, want)
	}
}

// TestElasticJobsStartWithAllTheirPods or not at all.
func TestElasticJobsStartWithAllTheirPods(t *testing.T) {
	g := newRig(t, suspendedJob(elastic, func(j *batchv1.Job) { j.Annotations[batch.MinParallelismAnnotation] = "1" }))
	g.settle()
	if why := g.all()[0].Annotations[workload.RefusedAnnotation]; !strings.Contains(why, workload.ElasticAnnotation) ||
		!strings.Contains(why, batch.MinParallelismAnnotation) {
		t.Errorf("refused because of %q", why)
	}
}

// TestReadinessOfAJobThatGrows: pods without quota are not missed.
func TestReadinessOfAJobThatGrows(t *testing.T) {
	g := grown(t, 0, false)
	*g.r.PodsReady() = true
	g.now = g.now.Add(time.Minute)
	g.updateJob(func(j *batchv1.Job) { j.Status.Ready = new(int32(2)) })
	g.settle()
	if got := readiness(g.all()[0]); got != "True Started" {
		t.Errorf("%q with all pods ready that have quota", got)
	}
}

// TestAnElasticJobThatAPersonSuspends queues again by one Workload, with as many pods as it has then.
func TestAnElasticJobThatAPersonSuspends(t *testing.T) {
	for name, c := range map[string]struct {
		grown bool
		to    int32
		want  string
	}{
		"as it is":               {want: "2 waits"},
		"and gives it more pods": {to: 4, want: "4 waits"},
		"and gives it fewer":     {to: 1, want: "1 waits"},
		"after it has grown":     {grown: true, want: "2 WorkloadSliceReplaced, 3 waits"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, suspendedJob(elastic))
			g.settle()
			g.admitSlice("a")
			g.settle()
			g.makePods()
			g.settle()
			if c.grown {
				g.scaleTo(3)
				g.replace("b")
			}
			g.updateJob(func(j *batchv1.Job) {
				if j.Spec.Suspend = new(true); c.to > 0 {
					j.Spec.Parallelism = &c.to
				}
			})
			g.settle()
			if n := len(g.all()); c.to == 0 && n != 1 && !c.grown {
				t.Errorf("as it stops, it has the Workloads %s", g.slices())
			}
			g.podsStop()
			if err := g.c.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace("default")); err != nil {
				t.Fatal(err)
			}
			g.settle()
			if got := g.slices(); got != c.want {
				t.Errorf("once it has stopped, it has the Workloads %q, want %q", got, c.want)
			}
		})
	}
}

package jobs_test

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	. "github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// busy is the ClusterQueue of admitted Workloads, with others that wait.
func busy() *kueue.ClusterQueue {
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	q.Status.PendingWorkloads = 1
	return q
}

func of(parallelism, completions int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = &parallelism, &completions }
}

func TestQuotaOfPodsThatAreOverGoesBack(t *testing.T) {
	// moment is what the Job has come to after some seconds more.
	type moment struct {
		after                          int
		succeeded, active, terminating int32
		parallelism                    int32 // 0 stays
		want, wantWrites               int32
	}
	for name, c := range map[string]struct {
		job     func(*batchv1.Job)
		queue   func(*kueue.ClusterQueue)
		moments []moment
	}{
		"by the quarter, once settled": {job: of(8, 8), moments: []moment{
			{succeeded: 1, active: 7},
			{succeeded: 2, active: 6},
			{after: 10, succeeded: 2, active: 6, want: 2, wantWrites: 1},
			{after: 10, succeeded: 3, active: 5, want: 2, wantWrites: 1},
			{after: 10, succeeded: 7, active: 1, want: 2, wantWrites: 1},
			{after: 10, succeeded: 7, active: 1, want: 7, wantWrites: 2},
		}},
		"at most three times": {job: of(100, 100), moments: []moment{
			{succeeded: 25, active: 75}, {after: 10, succeeded: 30, active: 70, want: 30, wantWrites: 1},
			{after: 10, succeeded: 60, active: 40, want: 30, wantWrites: 1}, {after: 10, succeeded: 60, active: 40, want: 60, wantWrites: 2},
			{after: 10, succeeded: 90, active: 10, want: 60, wantWrites: 2}, {after: 10, succeeded: 90, active: 10, want: 90, wantWrites: 3},
			{after: 10, succeeded: 99, active: 1, want: 90, wantWrites: 3}, {after: 60, succeeded: 99, active: 1, want: 90, wantWrites: 3},
		}},
		"none while others follow": {job: of(4, 12), moments: []moment{
			{after: 60, succeeded: 8, active: 4}, {after: 60, succeeded: 9, active: 3}, {after: 10, succeeded: 9, active: 3, want: 1, wantWrites: 1},
		}},
		"none of pods that terminate": {job: of(4, 4), moments: []moment{
			{succeeded: 2, active: 2, terminating: 2}, {after: 60, succeeded: 2, active: 2, terminating: 2},
			{after: 10, succeeded: 2, active: 2}, {after: 10, succeeded: 2, active: 2, want: 2, wantWrites: 1},
		}},
		"not while nothing waits for it": {job: of(4, 4), queue: func(q *kueue.ClusterQueue) { q.Status.PendingWorkloads = 0 }, moments: []moment{
			{succeeded: 3, active: 1}, {after: 60, succeeded: 3, active: 1},
		}},
		"in a cohort any Workload may wait": {job: of(4, 4),
			queue: func(q *kueue.ClusterQueue) { q.Status.PendingWorkloads, q.Spec.CohortName = 0, "all" }, moments: []moment{
				{succeeded: 3, active: 1}, {after: 60, succeeded: 3, active: 1, want: 3, wantWrites: 1},
			}},
		"what a user takes goes at once, when its pods are gone": {job: of(8, 80), moments: []moment{
			{parallelism: 5, active: 8},
			{parallelism: 5, active: 5, terminating: 3},
			{parallelism: 5, active: 5, want: 3, wantWrites: 1},
			{parallelism: 4, active: 4, want: 4, wantWrites: 2},
		}},
		"pods that run again have it again at once": {job: of(4, 4), moments: []moment{
			{succeeded: 3, active: 1}, {after: 10, succeeded: 3, active: 1, want: 3, wantWrites: 1},
			{succeeded: 1, active: 3, want: 1, wantWrites: 2}, {active: 4, wantWrites: 3},
		}},
		"not a pod that terminates beside its replacement": {job: of(4, 4), moments: []moment{
			{succeeded: 3, active: 1}, {after: 10, succeeded: 3, active: 1, want: 3, wantWrites: 1},
			{succeeded: 3, active: 1, terminating: 1, want: 3, wantWrites: 1},
		}},
		"a single pod has nothing to give": {job: of(1, 1), moments: []moment{
			{succeeded: 1}, {after: 60, succeeded: 1},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			queue := busy()
			if c.queue != nil {
				c.queue(queue)
			}
			g := newRig(t, suspendedJob(c.job), queue)
			g.settle()
			g.status(admitWith(*g.job().Spec.Parallelism))
			g.settle()
			g.writes = 0
			for i, m := range c.moments {
				g.now = g.now.Add(time.Duration(m.after) * time.Second)
				g.updateJob(func(j *batchv1.Job) {
					j.Status.Succeeded, j.Status.Active, j.Status.Terminating = m.succeeded, m.active, &m.terminating
					if m.parallelism > 0 {
						j.Spec.Parallelism = &m.parallelism
					}
				})
				g.settle()
				if got := reclaimed(g.workload()); got != m.want || g.writes != int(m.wantWrites) {
					t.Errorf("moment %d: %d are reclaimable in %d writes, want %d in %d", i, got, g.writes, m.want, m.wantWrites)
				}
			}
		})
	}
}

// TestReclaimedPodsAreOfOneAttempt: the next attempt has only the remaining pods, and none of them is reclaimable.
func TestReclaimedPodsAreOfOneAttempt(t *testing.T) {
	g := newRig(t, suspendedJob(of(8, 8)), busy())
	g.settle()
	g.status(admitWith(8))
	g.settle()
	g.updateJob(func(j *batchv1.Job) { j.Status.Succeeded, j.Status.Active = 6, 2 })
	g.settle()
	g.now = g.now.Add(Settling)
	g.settle()
	if got := reclaimed(g.workload()); got != 6 {
		t.Fatalf("%d are reclaimable, want 6", got)
	}
	g.status(evict)
	g.settle()
	if reclaimed(g.workload()) != 6 {
		t.Error("quota that others may have by now was taken back")
	}
	g.podsStop()
	g.settle()
	w := g.workload()
	if reclaimed(w) != 0 || w.Spec.PodSets[0].Count != 2 || workload.HasQuota(w) {
		t.Errorf("the next attempt has %d pods of which %d are reclaimable", w.Spec.PodSets[0].Count, reclaimed(w))
	}
	if err := g.c.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil || len(w.Status.ReclaimablePods) != 0 {
		t.Errorf("reclaimable pods: %v, error %v", w.Status.ReclaimablePods, err)
	}
}

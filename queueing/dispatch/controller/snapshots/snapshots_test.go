package snapshots

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestOnlySoManySnapshotsAreKept at a time. Prospects in the other workers are computed as well, each by a snapshot of its own. Snapshots
// that are kept serve the next job, and release their room once they are old or their worker is disconnected.
func TestOnlySoManySnapshotsAreKept(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	limit, made := NewLimit(3), 0
	see := func(context.Context, clock.PassiveClock, client.Reader) (Foresee, error) {
		made++
		return func([]*kueue.Workload, *kueue.Workload) *dispatch.Prospect {
			return &dispatch.Prospect{Outlook: dispatch.Launches}
		}, nil
	}
	var all []*Snapshot
	for i := range 5 {
		p := New(Config{Cluster: fmt.Sprint(i), Clock: now, Limit: limit, Foresight: Foresight{See: see}})
		close(p.opened)
		all = append(all, p)
	}
	asked := int32(0)
	ask := func() (kept int) {
		t.Helper()
		made, asked = 0, asked+1
		job := &kueue.Workload{}
		job.Spec.Priority = &asked // it is unlike all jobs before
		for _, p := range all {
			if got := p.Prospect(t.Context(), job, false); got == nil || got.Outlook != dispatch.Launches {
				t.Errorf("worker %s has the prospect %v", p.Cluster, got)
			}
		}
		for _, p := range all {
			if p.foresee != nil {
				kept++
			}
		}
		return kept
	}
	if kept := ask(); kept != 3 || made != 5 {
		t.Errorf("%d are kept of %d that were made", kept, made)
	}
	if kept := ask(); kept != 3 || made != 2 {
		t.Errorf("for the next job %d are made, and %d kept", made, kept)
	}
	all[0].forget() // its worker is gone
	all = all[1:]
	if kept := ask(); kept != 3 || made != 2 {
		t.Errorf("once a worker is gone %d are made, and %d kept", made, kept)
	}
	now.Step(time.Minute)
	for _, p := range all {
		p.Drop()
	}
	if limit.free != 3 {
		t.Errorf("there is room for %d once all are old", limit.free)
	}
}

// TestJobsThatAreAlikeHaveOneProspect in a worker, while the snapshot is fresh and no job was nominated to the worker since.
func TestJobsThatAreAlikeHaveOneProspect(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	snapshots, prospects := 0, 0
	see := func(context.Context, clock.PassiveClock, client.Reader) (Foresee, error) {
		snapshots++
		return func([]*kueue.Workload, *kueue.Workload) *dispatch.Prospect {
			prospects++
			return &dispatch.Prospect{Outlook: dispatch.Launches}
		}, nil
	}
	p := New(Config{Clock: now, Limit: NewLimit(0), Foresight: Foresight{See: see}})
	close(p.opened)
	job := func(name string, count int32) *kueue.Workload {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name), Annotations: map[string]string{
			dispatch.OriginAnnotation: name, workload.QueuedSinceAnnotation: name,
		}}}
		w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: count}}
		w.Spec.PodSets[0].Template.Labels = map[string]string{batchv1.JobNameLabel: name, batchv1.ControllerUidLabel: name}
		return w
	}
	want := func(when string, job *kueue.Workload, there bool, wantSnapshots, wantProspects int) {
		t.Helper()
		if got := p.Prospect(t.Context(), job, there); got == nil || got.Outlook != dispatch.Launches {
			t.Errorf("%s: the prospect is %v", when, got)
		}
		if snapshots != wantSnapshots || prospects != wantProspects {
			t.Errorf("%s: %d snapshots and %d prospects were made, want %d and %d", when, snapshots, prospects, wantSnapshots, wantProspects)
		}
	}
	want("the first", job("a", 1), false, 1, 1)
	want("one that is alike", job("b", 1), false, 1, 1)
	want("one that is not", job("c", 2), false, 2, 2)
	want("the first still", job("d", 1), false, 2, 2)
	want("one that is in the worker already", job("e", 1), true, 3, 3)
	p.Give(job("b", 1))
	want("once one was given to the worker", job("f", 1), false, 4, 4)
	want("that one itself", job("b", 1), false, 5, 5)
	p.Take("other")
	want("another was taken, which it did not have", job("g", 1), false, 5, 5)
	p.Take("b")
	want("once it was taken", job("h", 1), false, 6, 6)
	now.Step(2 * freshFor)
	want("later", job("i", 1), false, 7, 7)
}

// TestFreshness: what takes long to build is used for longer, but not for minutes because the machine stood still meanwhile.
func TestFreshness(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		time.Millisecond: freshFor, 100 * time.Millisecond: mostShare * 100 * time.Millisecond, time.Minute: freshForMost,
	} {
		p := &Snapshot{made: time.Unix(0, 0), took: took}
		if !p.isFresh(p.made.Add(want)) || p.isFresh(p.made.Add(want+1)) {
			t.Errorf("what took %s to build is not fresh for %s", took, want)
		}
	}
}

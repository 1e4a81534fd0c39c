package jobs_test

import (
	"context"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// TestAJobThatIsBeingDeleted, which a finalizer of its user's puts off, has its quota as long as its pods run: it stops like any other.
func TestAJobThatIsBeingDeleted(t *testing.T) {
	evict := func(s *kueue.WorkloadStatus) { set(s, kueue.WorkloadEvicted, "True") }
	for name, c := range map[string]struct {
		before, after func(*rig)
		// stopped: its pods are to stop. over: its Workload is. swept: its pods are deleted.
		stopped, over, swept bool
	}{
		"it waits":                            {before: func(*rig) {}, stopped: true, over: true},
		"it was admitted, and is not started": {after: func(g *rig) { g.status(admit) }, before: func(*rig) {}, stopped: true, over: true},
		"it runs":                             {before: func(g *rig) { g.status(admit) }},
		"it runs and is evicted": {before: func(g *rig) { g.status(admit) }, after: func(g *rig) {
			g.pod("left", corev1.PodRunning)
			g.status(evict)
		}, stopped: true, swept: true},
		"it has stopped": {before: func(g *rig) { g.status(admit) }, after: func(g *rig) {
			g.status(evict)
			g.settle()
			g.podsStop()
		}, stopped: true, over: true},
		"pods of it are left, whatever its status says": {before: func(g *rig) { g.status(admit) }, after: func(g *rig) {
			g.pod("left", corev1.PodRunning)
			g.status(evict)
			g.settle()
			g.podsStop()
		}, stopped: true, swept: true},
		"its last pod has ended, and its status stands still": {before: func(g *rig) { g.status(admit) }, after: func(g *rig) {
			g.pod("left", corev1.PodFailed)
			g.status(evict)
		}, stopped: true, over: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, suspendedJob(func(j *batchv1.Job) { j.Finalizers = []string{"example.com/mine"} }))
			g.settle()
			c.before(g)
			g.settle()
			if !isSuspended(g.job()) {
				g.updateJob(func(j *batchv1.Job) { j.Status.Active = 2 })
			}
			if err := g.c.Delete(context.Background(), g.job()); err != nil {
				t.Fatal(err)
			}
			if c.after != nil {
				c.after(g)
			}
			g.settle()
			w := g.workload()
			if isSuspended(g.job()) != c.stopped || workload.IsFinished(w) != c.over {
				t.Errorf("suspended: %v, its Workload is over: %v", isSuspended(g.job()), workload.IsFinished(w))
			}
			swept := false
			for len(g.events.Events) > 0 {
				swept = strings.Contains(<-g.events.Events, "PodsDeleted") || swept
			}
			if swept != c.swept {
				t.Errorf("its pods are deleted: %v", swept)
			}
		})
	}
}

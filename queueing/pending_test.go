package queueing

import (
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestActivePendingWorkloads counts the Workloads that a cycle has not admitted and that
// the next one considers again.
func TestActivePendingWorkloads(t *testing.T) {
	for name, tt := range map[string]struct {
		// queue and first are what is special about the queue and the first of the two
		// that wait.
		queue, first map[string]string
		// active are all, local those of the first one's LocalQueue.
		active, local int32
	}{
		"quota has to come back": {},
		"in StrictFIFO the head is asked each time": {
			queue: map[string]string{"strict": ""}, active: 2, local: 1},
		"quota is kept for one whose victim has not left": {
			queue: map[string]string{"within": "LowerPriority"}, first: map[string]string{"priority": "1"}, active: 2, local: 1},
		"the queue is stopped": {
			queue: map[string]string{"strict": "", "stop": "Hold"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.set(flavor("spot", nil))
			w.set(localQueueTo("main", "queue", ""))
			w.set(localQueueTo("other", "queue", ""))
			w.set(clusterQueue(t, "queue", tt.queue, "spot cpu=2"))
			w.set(w.workload(t, "running", map[string]string{"cpu": "2"}))
			w.cycles(t)
			first := map[string]string{"cpu": "2"}
			maps.Copy(first, tt.first)
			w.set(w.workload(t, "first", first))
			w.set(w.workload(t, "second", map[string]string{"cpu": "2", "lq": "other"}))
			w.cycles(t)
			active, local := w.s.Figures("queue").Active, w.s.LocalFigures(types.NamespacedName{Namespace: "default", Name: "main"}).Active
			if active != tt.active || local != tt.local {
				t.Errorf("%d are active, %d of them of the LocalQueue; want %d and %d", active, local, tt.active, tt.local)
			}
		})
	}
}

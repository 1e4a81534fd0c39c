package scheduler_test

import (
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/test/queues"
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
			w := queues.New()
			w.Set(queues.Flavor("spot", nil))
			w.Set(queues.LocalQueue("main", "queue", ""))
			w.Set(queues.LocalQueue("other", "queue", ""))
			w.Set(queues.ClusterQueue(t, "queue", tt.queue, "spot cpu=2"))
			w.Set(w.Workload(t, "running", map[string]string{"cpu": "2"}))
			w.Cycles(t)
			first := map[string]string{"cpu": "2"}
			maps.Copy(first, tt.first)
			w.Set(w.Workload(t, "first", first))
			w.Set(w.Workload(t, "second", map[string]string{"cpu": "2", "lq": "other"}))
			w.Cycles(t)
			active, local := w.State.Figures("queue").Active, w.State.LocalFigures(types.NamespacedName{Namespace: "default", Name: "main"}).Active
			if active != tt.active || local != tt.local {
				t.Errorf("%d are active, %d of them of the LocalQueue; want %d and %d", active, local, tt.active, tt.local)
			}
		})
	}
}

package loop

import (
	"context"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/metrics"
)

// TestALocalQueueIsShownOnceItsLabelsMatch: nothing but the label changes, so no status write would update its metrics.
func TestALocalQueueIsShownOnceItsLabelsMatch(t *testing.T) {
	w := newWorld(t, nil, append(queueOf("1"), workloadOf("first", "1"), workloadOf("second", "1"))...)
	w.loop.metrics = metrics.New(metrics.Config{LocalQueues: labels.SelectorFromSet(labels.Set{"shown": "true"})})
	w.run(20 * time.Second)
	const line = `kueue_local_queue_pending_workloads{name="main",namespace="default",replica_role="standalone",status="inadmissible"} 1`
	if slices.Contains(linesOf(t, w.loop.metrics), line) {
		t.Fatal("it is shown without the label")
	}
	lq := &kueue.LocalQueue{}
	w.get("main", lq)
	lq.Labels = map[string]string{"shown": "true"}
	if err := w.api.Update(context.Background(), lq); err != nil {
		t.Fatal(err)
	}
	w.inform()
	w.run(5 * time.Second)
	if lines := linesOf(t, w.loop.metrics); !slices.Contains(lines, line) {
		t.Errorf("there is no line %s in %q", line, lines)
	}
}

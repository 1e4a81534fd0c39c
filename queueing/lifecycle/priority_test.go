package lifecycle_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// TestAClassThatIsGoneIsNotWritten (14565): its Workloads keep their priority, and nothing is written again and again.
func TestAClassThatIsGoneIsNotWritten(t *testing.T) {
	w := queues.WithOneQueue(t)
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 5}
	w.Set(class)
	w.Set(w.Workload(t, "runs", map[string]string{"cpu": "1", "class": "high"}))
	w.Set(w.Workload(t, "waits", map[string]string{"cpu": "1", "class": "high"}))
	w.Cycles(t)
	w.Delete(class)
	if out := w.Cycles(t); out != "" {
		t.Errorf("it is written: %s", out)
	}
	w.Now = w.Now.Add(time.Hour)
	if out := w.Cycles(t); out != "" {
		t.Errorf("an hour later it is written: %s", out)
	}
	if p := workload.Priority(w.Find(t, "waits")); p != 5 {
		t.Errorf("its priority is %d", p)
	}
}

// TestANewClassReachesSlices (13780): pending ones and running ones.
func TestANewClassReachesSlices(t *testing.T) {
	w := queues.WithOneQueue(t)
	w.Set(&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 5})
	first := w.Workload(t, "first", map[string]string{"cpu": "1", "class": "high"})
	first.Annotations = map[string]string{workload.ElasticAnnotation: "true"}
	w.Set(first)
	w.Cycles(t)
	second := w.Workload(t, "second", map[string]string{"cpu": "1", "count": "2", "class": "high"})
	second.Annotations = map[string]string{workload.ElasticAnnotation: "true", workload.ReplacementAnnotation: "default/first"}
	w.Set(second)
	w.Cycles(t)
	w.Set(&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 7})
	w.Cycles(t)
	for _, name := range []string{"first", "second"} {
		if p := workload.Priority(w.Find(t, name)); p != 7 {
			t.Errorf("%s has the priority %d", name, p)
		}
	}
}

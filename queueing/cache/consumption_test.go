package cache_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/test/queues"
)

// TestAVerdictThatWasNotWrittenCostsNothing has the write of an admission fail: its
// LocalQueue is not ordered behind others for it.
func TestAVerdictThatWasNotWrittenCostsNothing(t *testing.T) {
	w := queues.NewWith(config.Config{AdmissionFairSharing: &kueueconfig.AdmissionFairSharing{
		UsageHalfLifeTime: metav1.Duration{Duration: time.Hour}}})
	w.Set(queues.Flavor("spot", nil))
	w.Set(queues.ClusterQueue(t, "team", map[string]string{"byusage": ""}, "spot cpu=1"))
	w.Set(queues.LocalQueue("main", "team", ""))
	job := w.Workload(t, "job", map[string]string{"cpu": "1"})
	w.Set(job)
	for _, v := range w.State.Cycle(w.Now) {
		if v.Workload.Local.Usage == 0 {
			t.Errorf("%v %s costs nothing before it is written", v.Action, job.Name)
		}
		w.State.Settle(job.UID, nil)
	}
	if usage := w.State.Workloads[job.UID].Local.Usage; usage != 0 {
		t.Errorf("usage is %v after the write failed, want 0", usage)
	}
}

package queueing

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/queueing/config"
)

// TestAVerdictThatWasNotWrittenCostsNothing has the write of an admission fail: its
// LocalQueue is not ordered behind others for it.
func TestAVerdictThatWasNotWrittenCostsNothing(t *testing.T) {
	w := newWorldWith(config.Config{AdmissionFairSharing: &kueueconfig.AdmissionFairSharing{
		UsageHalfLifeTime: metav1.Duration{Duration: time.Hour}}})
	w.set(flavor("spot", nil))
	w.set(clusterQueue(t, "team", map[string]string{"byusage": ""}, "spot cpu=1"))
	w.set(localQueueTo("main", "team", ""))
	job := w.workload(t, "job", map[string]string{"cpu": "1"})
	w.set(job)
	for _, v := range w.s.Cycle(w.now) {
		if v.Workload.Local.Usage == 0 {
			t.Errorf("%v %s costs nothing before it is written", v.Action, job.Name)
		}
		w.s.Settle(job.UID, nil)
	}
	if usage := w.s.Workloads[job.UID].Local.Usage; usage != 0 {
		t.Errorf("usage is %v after the write failed, want 0", usage)
	}
}

package queueing

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/quota"
)

// TestAWorkloadThatGoesBeforeItsVerdictIsSettled takes its quota with it, whether its
// object has shown that or not: the answer to a write may come after the news of all that
// came of it, or never.
func TestAWorkloadThatGoesBeforeItsVerdictIsSettled(t *testing.T) {
	for name, tc := range map[string]struct{ seen, settled bool }{
		"before anything of it was seen":              {},
		"and the answer comes late":                   {settled: true},
		"after its quota was seen":                    {seen: true},
		"after its quota was seen, and a late answer": {seen: true, settled: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldWith(config.Config{AdmissionFairSharing: &kueueconfig.AdmissionFairSharing{UsageHalfLifeTime: metav1.Duration{Duration: time.Hour}}})
			w.set(flavor("spot", nil))
			w.set(clusterQueue(t, "team", map[string]string{"byusage": ""}, "spot cpu=8"))
			w.set(localQueueTo("main", "team", ""))
			first, second := w.workload(t, "first", map[string]string{"cpu": "8"}), w.workload(t, "second", map[string]string{"cpu": "8"})
			w.set(first)
			verdicts := w.s.Cycle(w.now)
			if len(verdicts) != 1 || verdicts[0].Action != Reserve {
				t.Fatalf("verdicts are %v, want a reservation", verdicts)
			}
			w.set(second)
			if tc.seen {
				written := first.DeepCopy()
				written.Status = *verdicts[0].Status.DeepCopy()
				w.set(written)
			}
			for _, v := range w.s.Cycle(w.now) {
				if v.Action != Wait {
					t.Errorf("%v %s while the quota is taken", v.Action, v.Workload.Object.Name)
				}
			}
			w.s.Delete(first)
			if tc.settled {
				w.s.Settle(first.UID, nil)
			}
			verdicts = w.s.Cycle(w.now)
			if len(verdicts) != 1 || verdicts[0].Action != Reserve || verdicts[0].Workload.Object.Name != "second" {
				t.Errorf("then the verdicts are %v, want a reservation for the second", verdicts)
			}
			cpu := quota.FlavorResource{Flavor: "spot", Resource: corev1.ResourceCPU}
			if used := w.s.queues["team"].node.Usage(cpu); used != 8000 {
				t.Errorf("%d thousandths of a CPU are in use, want 8000", used)
			}
		})
	}
}

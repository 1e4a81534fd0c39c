package jobs

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/queueing/workload/podcounts"
)

// reportReady keeps the condition PodsReady of the Workload of a running job, if the
// configuration waits for it. It reports whether it wrote.
//
//	(none) or WaitForStart ──▶ Started ──a pod is lost──▶ WaitForRecovery ──▶ Recovered
//	                                                            ▲                 │
//	                                                            └──another is lost┘
//
// A Workload without the condition says that nothing is ready yet, too, so that costs no
// write.
func (r *reconciler) reportReady(ctx context.Context, job client.Object, w *kueue.Workload) (bool, error) {
	if !r.podsReady {
		return false, nil
	}
	ready, err := pods{r}.areReady(ctx, job, w, podcounts.Granted(w))
	if err != nil {
		return false, err
	}
	status := workload.Readiness(w, ready, r.now())
	if status == nil {
		return false, nil
	}
	_, err = writes.ApplyStatus(ctx, r.client, w, status)
	return true, err
}

package jobs

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// keep does what a job that runs by its Workload needs. What can wait does not keep the
// next from being done.
func (r *reconciler) keep(ctx context.Context, job client.Object, w *kueue.Workload) (later error) {
	for _, step := range []func(context.Context, client.Object, *kueue.Workload) (wrote bool, err error){
		r.mark, r.prioritize, r.reportReady, r.scale, r.reclaim, r.reportRefusedPods,
	} {
		wrote, err := step(ctx, job, w)
		if errors.Is(err, errTooEarly) {
			later = err
			continue
		}
		if wrote || err != nil {
			return err
		}
	}
	return later
}

package writes

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// ErrBehind: the cache has an old version of an object; the newest comes as an event.
var ErrBehind = errors.New("the cache is behind")

// IsBehind reports whether a write failed since the cache lacked something, which comes as an
// event.
func IsBehind(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, ErrBehind)
}

// Finish finishes a Workload.
func Finish(ctx context.Context, c client.Client, w *kueue.Workload, reason, message string, now time.Time) error {
	_, err := ApplyStatus(ctx, c, w, workload.Finished(w, reason, message, now))
	return err
}

// Delete deletes a Workload as it was read, with what it holds.
func Delete(ctx context.Context, c client.Client, w *kueue.Workload) error {
	if err := c.Delete(ctx, w, client.Preconditions{UID: &w.UID, ResourceVersion: &w.ResourceVersion}); err != nil {
		return fmt.Errorf("deleting Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}

// Patch changes a Workload as it was read. It reports whether it wrote.
func Patch(ctx context.Context, c client.Client, w *kueue.Workload, change func(*kueue.Workload) bool) (bool, error) {
	changed := w.DeepCopy()
	if !change(changed) {
		return false, nil
	}
	if err := c.Patch(ctx, changed, client.MergeFromWithOptions(w, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("updating Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	return true, nil
}

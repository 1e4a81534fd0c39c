package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/controller/writer"
)

// writers is how many writes are under way at once. One write takes the API
// server some milliseconds of one CPU, so more would only queue up there.
const writers = 16

// apply carries out the verdicts, except those that only tell a reason. Each
// Workload's writes are in an order in which a crash after any of them is mended
// by the next run: the status first, then what follows from it.
func (l *loop) apply(ctx context.Context, verdicts []queueing.Verdict) error {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		errs  []error
	)
	slots := make(chan struct{}, writers)
	for i := range verdicts {
		v := &verdicts[i]
		if v.Action == queueing.Wait && v.Create == nil && len(v.Delete) == 0 {
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			done, err := l.carryOut(ctx, v)
			mu.Lock()
			defer mu.Unlock()
			l.remember(v, done, err)
			errs = append(errs, err)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// done is what came of one verdict.
type done struct {
	workload *kueue.Workload
	deleted  []*autoscaling.ProvisioningRequest
}

func (l *loop) carryOut(ctx context.Context, v *queueing.Verdict) (done, error) {
	var out done
	if v.Action == queueing.Deactivate {
		return out, l.deactivate(ctx, v)
	}
	if v.Action != queueing.Wait && v.Status != nil {
		w, err := writer.ApplyStatus(ctx, l.client, v.Workload.Object, v.Status)
		if err != nil {
			return out, ignoreStale(err)
		}
		out.workload = w
		l.announce(v)
	}
	for _, r := range v.Delete {
		if err := l.client.Delete(ctx, r, client.Preconditions{UID: &r.UID}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return out, fmt.Errorf("deleting ProvisioningRequest %s/%s: %w", r.Namespace, r.Name, err)
		}
		out.deleted = append(out.deleted, r)
	}
	if v.Create == nil {
		return out, nil
	}
	err := l.create(ctx, v)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || errors.Is(err, errForeign) {
		l.recorder.Eventf(v.Workload.Object, nil, corev1.EventTypeWarning, "FailedCreate", "FailedCreate", "%s", provisioning.Clip(err.Error(), provisioning.NoteLimit))
		return l.giveUp(ctx, v, out, err)
	}
	return out, err
}

// giveUp ends the attempt of a Workload whose request the API server will not
// take however often it is asked. The quota goes to others, the server's words
// to the user.
func (l *loop) giveUp(ctx context.Context, v *queueing.Verdict, out done, why error) (done, error) {
	newest := v.Workload
	if out.workload != nil {
		newest = queueing.NewWorkload(out.workload, v.Workload)
	}
	end := queueing.Refused(newest, why.Error(), l.now())
	w, err := writer.ApplyStatus(ctx, l.client, newest.Object, end.Status)
	if err != nil {
		return out, ignoreStale(err)
	}
	out.workload = w
	l.announce(end)
	return out, nil
}

// create makes the templates first: a request whose templates are missing fails
// for good. All names follow from the Workload and the attempt, so that doing it
// twice is harmless.
func (l *loop) create(ctx context.Context, v *queueing.Verdict) error {
	for _, t := range v.Create.Templates {
		if err := l.createOwn(ctx, v.Workload.Object, t, &corev1.PodTemplate{}); err != nil {
			return fmt.Errorf("creating PodTemplate %s/%s: %w", t.Namespace, t.Name, err)
		}
	}
	r := v.Create.Object
	if err := l.createOwn(ctx, v.Workload.Object, r, &autoscaling.ProvisioningRequest{}); err != nil {
		return fmt.Errorf("creating ProvisioningRequest %s/%s: %w", r.Namespace, r.Name, err)
	}
	for _, name := range v.Create.Superseded {
		t := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.Namespace}}
		if err := l.client.Delete(ctx, t); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting PodTemplate %s/%s of the last attempt: %w", t.Namespace, t.Name, err)
		}
	}
	return nil
}

var (
	// errForeign: the name of an object to create is taken by somebody else's.
	errForeign = errors.New("an object of this name exists that Muster did not make; delete or rename it")
	// errLeftover: the object of that name is of a deleted Workload and about to go.
	errLeftover = errors.New("that of a deleted Workload of the same name is still there")
)

// createOwn creates an object unless the Workload has it already. What has its
// name but another owner is not used: it may ask for something else. The one that
// exists is read into have, past the cache.
func (l *loop) createOwn(ctx context.Context, w *kueue.Workload, object, have client.Object) error {
	err := l.client.Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := l.live.Get(ctx, client.ObjectKeyFromObject(object), have); err != nil {
		return err
	}
	switch owner := metav1.GetControllerOf(have); {
	case metav1.IsControlledBy(have, w):
		return nil
	case owner != nil && owner.Kind == "Workload" && owner.Name == w.Name:
		return errLeftover
	}
	return errForeign
}

// deactivate is the one write to a Workload's spec: a check said that it must
// not run. The eviction follows from it.
func (l *loop) deactivate(ctx context.Context, v *queueing.Verdict) error {
	w := v.Workload.Object.DeepCopy()
	w.Spec.Active = new(false)
	patch := client.MergeFromWithOptions(v.Workload.Object, client.MergeFromWithOptimisticLock{})
	if err := l.client.Patch(ctx, w, patch); err != nil {
		return ignoreStale(fmt.Errorf("deactivating Workload %s/%s: %w", w.Namespace, w.Name, err))
	}
	l.recorder.Eventf(v.Workload.Object, nil, corev1.EventTypeWarning, v.Reason, v.Reason, "%s", provisioning.Clip(v.Message, provisioning.NoteLimit))
	return nil
}

// remember keeps what was written until the caches show it. It is called by one
// goroutine at a time.
func (l *loop) remember(v *queueing.Verdict, out done, err error) {
	if out.workload != nil {
		l.picture.workloads.wrote(out.workload)
	}
	for _, r := range out.deleted {
		if l.picture.deleted == nil {
			l.picture.deleted = map[types.UID]bool{}
		}
		l.picture.deleted[r.UID] = true
	}
	if err != nil && out.workload == nil && !definite(err) {
		if l.unsettled == nil {
			l.unsettled = map[client.ObjectKey]bool{}
		}
		l.unsettled[client.ObjectKeyFromObject(v.Workload.Object)] = true
	}
}

// definite says that an error came from the API server, which so refused the
// write; after any other the write may have taken effect.
func definite(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsInternalError(err)
}

// ignoreStale drops the errors which say that the Workload has changed or gone
// since it was read: the change wakes the loop again.
func ignoreStale(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// announce tells users of the steps that they wait for.
func (l *loop) announce(v *queueing.Verdict) {
	kind := corev1.EventTypeNormal
	reason := v.Reason
	switch v.Action {
	case queueing.Reserve, queueing.Admit:
	case queueing.Evict:
		reason = "EvictedDueTo" + v.Reason
	default:
		return
	}
	l.recorder.Eventf(v.Workload.Object, nil, kind, reason, reason, "%s", provisioning.Clip(v.Message, provisioning.NoteLimit))
	if v.Action == queueing.Reserve && len(v.Status.AdmissionChecks) == 0 {
		l.recorder.Eventf(v.Workload.Object, nil, kind, "Admitted", "Admitted",
			"Admitted by ClusterQueue %s, wait time since reservation was 0s", v.Status.Admission.ClusterQueue)
	}
}

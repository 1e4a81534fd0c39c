// Package fence is the worker's side of a fence: it writes a question for each manager that has copies here, and deactivates the copies
// of a manager that has been silent for longer than they allow. They stay deactivated even if the manager answers again: it may have
// started the job elsewhere, and deletes what is left here.
package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// pollEvery is how often the Leases and copies are read.
	pollEvery = 3 * time.Second
	// callTimeout bounds a call, so that one that hangs does not keep copies running.
	callTimeout = 5 * time.Second
)

// ManagerLost is the cause for which a copy is deactivated.
const ManagerLost = "ManagerLost"

// Controller stops copies.
type Controller struct {
	// Client reads Workloads from a cache, Live the Leases.
	Client client.Client
	Live   client.Reader
	// Namespace is Muster's, where its managers have their Leases.
	Namespace string
	Events    events.EventRecorder
	Clock     clock.WithTicker

	process  string
	silences map[manager]*dispatch.Silence
}

// manager is one whose copies are here.
type manager struct{ origin, id string }

// Start implements manager.Runnable.
func (c *Controller) Start(ctx context.Context) error {
	c.process, c.silences = string(uuid.NewUUID()), map[manager]*dispatch.Silence{}
	ticker := c.Clock.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if err := c.poll(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).WithName("fence").Error(err, "Looking for managers failed, and is tried again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// poll reads the answers of managers, writes new questions, and stops the copies of managers that are lost. The answers must be read
// before the silence is judged.
func (c *Controller) poll(ctx context.Context) error {
	if err := c.hear(ctx); err != nil {
		return fmt.Errorf("reading and writing the Leases of managers: %w", err)
	}
	of, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: kueue.MultiKueueOriginLabel, Operator: metav1.LabelSelectorOpExists},
	}})
	if err != nil {
		return err
	}
	list := &kueue.WorkloadList{}
	if err := c.Client.List(ctx, list, client.MatchingLabelsSelector{Selector: of}, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	var wrong []error
	for i := range list.Items {
		wrong = append(wrong, c.judge(ctx, &list.Items[i]))
	}
	return errors.Join(wrong...)
}

// hear reads the answers of managers, and writes the next questions.
func (c *Controller) hear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	leases := &coordinationv1.LeaseList{}
	if err := c.Live.List(ctx, leases, client.InNamespace(c.Namespace), client.HasLabels{kueue.MultiKueueOriginLabel}); err != nil {
		return err
	}
	for i := range leases.Items {
		l := &leases.Items[i]
		by := manager{l.Labels[kueue.MultiKueueOriginLabel], ptr.Deref(l.Spec.HolderIdentity, "")}
		now := c.Clock.Now()
		s := c.silences[by]
		if s == nil {
			s = dispatch.NewSilence(c.process, l.Annotations[dispatch.QuestionAnnotation], l.Annotations[dispatch.AnswerAnnotation], now)
			c.silences[by] = s
		}
		s.Hear(l.Annotations[dispatch.AnswerAnnotation])
		question := s.Question(now)
		if question == "" {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, dispatch.QuestionAnnotation, question)
		if err := c.Client.Patch(ctx, l, client.RawPatch(types.MergePatchType, patch)); err != nil {
			log.FromContext(ctx).WithName("fence").Error(err, "Cannot ask a manager", "origin", by.origin)
			continue // without another question the manager counts as lost in time
		}
		s.Written(now)
	}
	return nil
}

// judge stops a copy if its manager is lost.
func (c *Controller) judge(ctx context.Context, w *kueue.Workload) error {
	after, err := dispatch.ParseFence(w.Annotations[dispatch.FenceAnnotation])
	if err != nil || after == 0 || workload.IsFinished(w) || !workload.IsActive(w) || !w.DeletionTimestamp.IsZero() ||
		workload.IsTrue(w, kueue.WorkloadDeactivationTarget) {
		return nil //nolint:nilerr // the policies refuse such a fence, and the manager counts it as none
	}
	by, now := manager{w.Labels[kueue.MultiKueueOriginLabel], w.Annotations[dispatch.ManagerAnnotation]}, c.Clock.Now()
	s := c.silences[by]
	if s == nil {
		s = dispatch.NewSilence(c.process, "", "", now)
		c.silences[by] = s
	}
	if !s.Over(after, now) {
		return nil
	}
	why := fmt.Sprintf("its manager, origin %s, has not been heard of for %s (annotation %s), and may start it in another cluster", by.origin,
		after, dispatch.FenceAnnotation)
	e := workload.Edit(w, now)
	e.Set(kueue.WorkloadDeactivationTarget, metav1.ConditionTrue, ManagerLost, why)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := writes.ApplyStatus(ctx, c.Client, w, e.Status); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil // the cache will show it as it is
		}
		return fmt.Errorf("stopping Workload %s: %w", client.ObjectKeyFromObject(w), err)
	}
	c.Events.Eventf(w, nil, corev1.EventTypeWarning, ManagerLost, "Stop", "Stopped: %s", why)
	return nil
}

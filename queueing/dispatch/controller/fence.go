package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/dispatch"
)

// conditionFenced is the condition of a MultiKueueCluster whose worker stops the manager's copies once the manager is silent.
const conditionFenced = "muster.dev/Fenced"

// Its reasons.
const (
	reasonFenced     = "Fenced"
	reasonBadFence   = "BadDuration"
	reasonUnanswered = "NoMusterAsks"
	reasonLease      = "LeaseFailed"
)

// podStop is the grace period of pods that set none.
const podStop = 30 * time.Second

// fence is the manager's side of a fence in one worker.
type fence struct {
	renewal dispatch.Renewal
	// after is how long the manager may be silent. It is zero if the MultiKueueCluster sets no fence, or the worker has no Muster to
	// count it.
	after time.Duration
}

var errUnanswered = errors.New("no Muster there asks for the manager by it yet: it has to run with the same --namespace as here, and the " +
	"fence holds only jobs that are given to the cluster from then on")

// renew shows the worker that the manager runs, if the MultiKueueCluster sets a fence. fenced is false if it sets none. err is why the
// fence does not hold.
func (s *workers) renew(ctx context.Context, w *worker) (fenced bool, err error) {
	c := &kueue.MultiKueueCluster{}
	if err := s.manager.Get(ctx, client.ObjectKey{Name: w.name}, c); err != nil {
		return false, nil //nolint:nilerr // it has been deleted, or is checked again
	}
	after, err := dispatch.ParseFence(c.Annotations[dispatch.FenceAnnotation])
	if fenced = c.Annotations[dispatch.FenceAnnotation] != ""; fenced && err == nil {
		err = s.answer(ctx, w)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fence.after = 0; fenced && err == nil {
		w.fence.after = after
	}
	return fenced, err
}

// answer answers the newest question on the manager's Lease in the worker.
func (s *workers) answer(ctx context.Context, w *worker) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: dispatch.LeaseName(s.self.origin)}}
	kube := w.connection.client
	switch err := kube.Get(ctx, client.ObjectKeyFromObject(lease), lease); {
	case apierrors.IsNotFound(err):
		lease.Labels = map[string]string{kueue.MultiKueueOriginLabel: s.self.origin}
		lease.Spec.HolderIdentity = &s.self.id
		if err := kube.Create(ctx, lease); err != nil {
			return fmt.Errorf("creating the Lease %s in it: %w", client.ObjectKeyFromObject(lease), err)
		}
	case err != nil:
		return fmt.Errorf("reading the Lease %s in it: %w", client.ObjectKeyFromObject(lease), err)
	}
	if holder := lease.Spec.HolderIdentity; holder == nil || *holder != s.self.id {
		return fmt.Errorf("the Lease %s in it is that of another manager with --origin %s: give one of them another --origin, or delete the "+
			"Lease if that manager is gone", client.ObjectKeyFromObject(lease), s.self.origin)
	}
	question := lease.Annotations[dispatch.QuestionAnnotation]
	w.mu.Lock()
	due := w.fence.renewal.Answer(question, s.clock.Now())
	w.mu.Unlock()
	if due {
		patch := client.MergeFrom(lease.DeepCopy())
		lease.Annotations[dispatch.AnswerAnnotation] = question
		lease.Spec.RenewTime = new(metav1.NewMicroTime(s.clock.Now()))
		if err := kube.Patch(ctx, lease, patch); err != nil {
			return fmt.Errorf("writing the Lease %s in it: %w", client.ObjectKeyFromObject(lease), err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.fence.renewal.Listened(s.clock.Now()) {
		return errUnanswered
	}
	return nil
}

// fenced sets the condition of a MultiKueueCluster whose fence holds or not.
func fenced(c *kueue.MultiKueueCluster, asked bool, why error) bool {
	if !asked {
		return apimeta.RemoveStatusCondition(&c.Status.Conditions, conditionFenced)
	}
	condition := metav1.Condition{Type: conditionFenced, Status: metav1.ConditionTrue, Reason: reasonFenced, ObservedGeneration: c.Generation,
		Message: "Jobs that are given to the cluster are stopped there once it has not heard of this manager for " +
			c.Annotations[dispatch.FenceAnnotation]}
	if why != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reasonLease, text.Clip(why.Error(), text.NoteLimit)
		if _, err := dispatch.ParseFence(c.Annotations[dispatch.FenceAnnotation]); err != nil {
			condition.Reason = reasonBadFence
		} else if errors.Is(why, errUnanswered) {
			condition.Reason = reasonUnanswered
		}
	}
	return apimeta.SetStatusCondition(&c.Status.Conditions, condition)
}

// stopsAt returns when the fence on record has stopped the copy of a Workload in a cluster that is cut off. It is zero for never.
func (s *workers) stopsAt(name string, w *kueue.Workload, record *dispatch.Record, now time.Time) (at time.Time) {
	k := s.find(name)
	if k == nil || record.Fence == nil || record.Fence.Cluster != name {
		return at
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.connected {
		return at
	}
	return now.Add(record.Fence.Stops(graceOf(w)) - k.fence.renewal.Silent(now))
}

// graceOf returns the longest grace period of the pods of a Workload.
func graceOf(w *kueue.Workload) time.Duration {
	longest := podStop
	for i := range w.Spec.PodSets {
		if s := w.Spec.PodSets[i].Template.Spec.TerminationGracePeriodSeconds; s != nil {
			longest = max(longest, time.Duration(*s)*time.Second)
		}
	}
	return longest
}

package e2e

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// TestAJobWhosePodsComeTooLateIsTriedAgain: the pods of a started Job are kept
// from being created until its booking is over. It must not hang with quota and
// without machines, nor run in part: it goes back to the queue, and runs once its
// pods may come. The queue is held meanwhile, so that the slowest machine makes one
// vain attempt only.
func TestAJobWhosePodsComeTooLateIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	s.queue(g)
	policy := &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	booking := func(d time.Duration) func() {
		return func() { policy.Spec.BookingTimeout = &metav1.Duration{Duration: d} }
	}
	booking(10 * time.Minute)()
	s.Create(policy)
	noPods := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "no-pods"}}
	noPods.Spec.Hard = corev1.ResourceList{"pods": resource.MustParse("0")}
	s.Create(noPods)
	s.Eventually("the namespace's quota is in force", func() bool { return s.Get(noPods) && len(noPods.Status.Hard) > 0 },
		func() string { return "" })

	j := s.job("late", 2, func(j *batchv1.Job) {
		j.Annotations = map[string]string{"provreq.kueue.x-k8s.io/capacityPolicy": s.Name}
	})
	state := func() string { return fmt.Sprintf("workload: %+v", s.Workload(j)) }
	s.Eventually("the job is started without pods", func() bool { return s.Get(j) && !*j.Spec.Suspend }, state)
	s.stopPolicy(kueue.Hold)
	s.edit(policy, booking(time.Second))
	s.Eventually("the booking is over and the job is suspended again", func() bool { return s.Get(j) && *j.Spec.Suspend }, state)
	s.edit(policy, booking(10*time.Minute))
	s.Delete(noPods)
	s.stopPolicy(kueue.None)
	s.complete(j)
	s.Empty(g.Name)
	if w := s.Workload(j); w == nil || len(w.Status.AdmissionChecks) != 1 || w.Status.AdmissionChecks[0].RetryCount == nil {
		t.Errorf("the job ran in its first attempt: %v", w)
	}
}

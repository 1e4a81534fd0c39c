package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// TestAJobWhosePodsComeTooLateIsTriedAgain: the pods of a started Job are kept
// from being created until its booking is over. It must not hang with quota and
// without machines, nor run in part: it goes back to the queue, and runs once its
// pods may come.
func TestAJobWhosePodsComeTooLateIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	s.queue(g)
	s.Create(&v1alpha1.CapacityPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		Spec:       v1alpha1.CapacityPolicySpec{BookingTimeout: &metav1.Duration{Duration: 2 * time.Second}},
	})
	noPods := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "no-pods"}}
	noPods.Spec.Hard = corev1.ResourceList{"pods": resource.MustParse("0")}
	s.Create(noPods)
	s.Eventually("the namespace's quota is in force", func() bool { return s.Get(noPods) && len(noPods.Status.Hard) > 0 },
		func() string { return "" })

	j := s.job("late", 2, func(j *batchv1.Job) {
		j.Annotations = map[string]string{"provreq.kueue.x-k8s.io/capacityPolicy": s.Name}
	})
	attempts := func() string {
		if w := s.Workload(j); w != nil && len(w.Status.AdmissionChecks) > 0 && w.Status.AdmissionChecks[0].RetryCount != nil {
			return fmt.Sprint(*w.Status.AdmissionChecks[0].RetryCount)
		}
		return "0"
	}
	s.Eventually("the booking is over and the job is queued again", func() bool { return attempts() != "0" },
		func() string { return fmt.Sprintf("workload: %+v", s.Workload(j)) })
	s.Delete(noPods)
	s.complete(j)
	s.Empty(g.Name)
	if w := s.Workload(j); strings.HasPrefix(attempts(), "0") || w == nil {
		t.Errorf("the job ran in its first attempt: %v", w)
	}
}

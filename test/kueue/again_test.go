package kueue

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/test/testbed"
)

// TestARequestOfTheSameNameGetsMachinesOfItsOwn: Kueue stops a running gang and creates a request with the same name, while the machines
// of the first request still exist. The gang's pods run on the newly booked machines.
func TestARequestOfTheSameNameGetsMachinesOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.newGroup("", 8)
	g.Spec.IdleTimeout = testbed.After(time.Hour)
	s.Create(g)
	j := s.job("train", 3, 20*time.Second)
	first, _ := s.condition(j, provreq.Provisioned, metav1.ConditionTrue)
	s.loseWithPod(j)
	var again *provreq.ProvisioningRequest
	s.Eventually("the job runs again", func() bool {
		again = s.request(j)
		return again != nil && again.UID != first.UID && meta.IsStatusConditionTrue(again.Status.Conditions, provreq.Provisioned) &&
			s.Get(j) && j.Status.Ready != nil && *j.Status.Ready == *j.Spec.Parallelism
	}, func() string { return s.standing(j) })
	if _, c := s.condition(j, provreq.BookingExpired, metav1.ConditionTrue); c.Reason != transaction.ReasonBookingConsumed {
		t.Errorf("the booking ended by %s: %s", c.Reason, c.Message)
	}
	booked := map[string]bool{}
	for _, n := range s.nodes() {
		for _, b := range state.BookingsOn(n.Labels, n.Annotations) {
			booked[n.Name] = booked[n.Name] || b.UID == again.UID
		}
	}
	var pods corev1.PodList
	s.List(&pods, client.InNamespace(s.Name))
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning && !booked[p.Spec.NodeName] {
			t.Errorf("pod %s runs on %s, which is not booked for it", p.Name, p.Spec.NodeName)
		}
	}
	s.complete(j)
}

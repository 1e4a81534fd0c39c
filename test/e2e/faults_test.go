package e2e

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/test/testbed"
)

func TestAGroupThatRefusesIsLeftAloneForAWhile(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		fault v1alpha1.KwokFault
		class v1alpha1.ErrorClass
		// pause is how long the group is left alone after the first failure.
		pause time.Duration
	}{
		{"dry", v1alpha1.KwokFault{Type: v1alpha1.FaultDry}, v1alpha1.Stockout, 30 * time.Second},
		{"quota", v1alpha1.KwokFault{Type: v1alpha1.FaultLaunchError, Error: &v1alpha1.KwokError{
			Class: v1alpha1.Quota, Code: "VcpuLimitExceeded", Message: "ask for more"}}, v1alpha1.Quota, 5 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t)
			g := s.Group("", func(g *v1alpha1.NodeGroup) { g.Spec.Kwok.Faults = []v1alpha1.KwokFault{tc.fault} })
			r := s.request("two", 2, nil)
			c := s.condition(r, provreq.Provisioned, metav1.ConditionFalse)
			if !strings.Contains(c.Message, string(tc.class)) {
				t.Errorf("the request does not name the %s: %s", tc.class, c.Message)
			}
			s.Eventually("the group remembers", func() bool { return s.Get(g) && g.Status.BackoffUntil != nil && len(g.Status.Attempts) > 0 },
				func() string { return "" })
			last := g.Status.Attempts[0]
			if pause := g.Status.BackoffUntil.Sub(last.Time.Time); last.Class != tc.class || last.Got != 0 || pause != tc.pause {
				t.Errorf("attempt %+v, left alone for %s; want class %s and %s", last, pause, tc.class, tc.pause)
			}
			s.Delete(r)
		})
	}
}

func TestLateGPUsAreWaitedFor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const late = 3 * time.Second
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultLateDevices, Machines: []int64{1}, After: testbed.After(late)}}
	})
	r := s.request("two", 2, nil)
	c := s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	// Conditions have whole seconds.
	if took := c.LastTransitionTime.Sub(r.CreationTimestamp.Time); took < late-time.Second {
		t.Errorf("Provisioned after %s, before the GPUs of all machines can have been there", took)
	}
	s.Delete(r)
	s.Empty(g.Name)
}

func TestMachinesWithoutGPUsAreTerminatedAtTheJoinTimeout(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.JoinTimeout = testbed.After(50 * time.Second)
		g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultLateDevices, Machines: []int64{1}, After: testbed.After(time.Hour)}}
	})
	r := s.request("two", 2, nil)
	c := s.condition(r, provreq.Provisioned, metav1.ConditionFalse)
	if !strings.Contains(c.Message, "1 of 2 machines were ready within 50s") || !strings.Contains(c.Message, "0 of 8 nvidia.com/gpu") {
		t.Errorf("the request says: %s", c.Message)
	}
	if left := s.Left(g.Name); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	s.Delete(r)
}

func TestAMachineReclaimedBeforeThePodsComeEndsTheBookingIfThereIsNoOther(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", func(g *v1alpha1.NodeGroup) {
		g.Spec.CapacityType = v1alpha1.Spot
		g.Spec.Kwok.Faults = []v1alpha1.KwokFault{
			{Type: v1alpha1.FaultReclaim, Machines: []int64{0}, After: testbed.After(12 * time.Second)},
			{Type: v1alpha1.FaultDry, From: testbed.After(10 * time.Second)},
		}
	})
	r := s.request("two", 2, nil)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	c := s.condition(r, provreq.BookingExpired, metav1.ConditionTrue)
	if c.Reason != transaction.ReasonReservationExpired || !strings.Contains(c.Message, "lost") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	s.Empty(g.Name)
}

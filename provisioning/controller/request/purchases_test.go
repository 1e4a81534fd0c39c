package request

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// TestACloudThatLosesWhatItSells: Muster launches at most twice the machines that a gang needs, and as many again after each pause.
func TestACloudThatLosesWhatItSells(t *testing.T) {
	before := testutil.ToFloat64(stopped)
	play(t, func(s *site) {
		s.loses = true
		s.pricedGroup("10")
		s.request(transaction.ClassAtomicScaleUp, nil)
		s.loseAll(9 * time.Minute)
		c := meta.FindStatusCondition(s.conditions(), provreq.Provisioned)
		if s.sold != 4 || c == nil || c.Reason != transaction.ReasonPurchasesStopped {
			t.Errorf("%d machines were sold for a gang of 2, and the condition is %+v", s.sold, c)
		}
		if got := testutil.ToFloat64(stopped) - before; got != 1 {
			t.Errorf("muster_purchases_stopped_total rose by %v, want 1", got)
		}
		told := 0
		for len(s.events.Events) > 0 {
			if e := <-s.events.Events; strings.Contains(e, transaction.ReasonPurchasesStopped) {
				told++
			}
		}
		if told != 1 {
			t.Errorf("%d events, want 1", told)
		}
		if n := s.writes["request gang"]; n > 12 {
			t.Errorf("the status was written %d times", n)
		}
	})
}

// loseAll removes the machines of the request from the cloud's lists for the duration, a moment after their launch.
func (s *site) loseAll(d time.Duration) {
	for range int(d / time.Second) {
		s.pass(time.Second)
		e, _ := s.model.Request("uid")
		for _, m := range s.model.View(s.model.Snapshot(time.Now()), e.Request).Machines {
			m.State = cloudprovider.Gone
			s.model.SetMachine(m)
		}
	}
}

// TestWhatIsSpentInVainIsCounted: twice, two machines of 10 USD an hour do not join within 15 minutes.
func TestWhatIsSpentInVainIsCounted(t *testing.T) {
	of := vain.WithLabelValues("ns", "gpu", string(v1alpha1.Timeout))
	before := testutil.ToFloat64(of)
	play(t, func(s *site) {
		s.loses = true
		s.pricedGroup("10")
		s.request(transaction.ClassAtomicScaleUp, nil)
		s.pass(32 * time.Minute)
		c := meta.FindStatusCondition(s.conditions(), provreq.Provisioned)
		if want := "launches in vain have cost"; c == nil || !strings.Contains(c.Message, want) {
			t.Errorf("the condition is %+v, want it to say %q", c, want)
		}
		if got := testutil.ToFloat64(of) - before; got != 10 {
			t.Errorf("muster_vain_cost_usd_total rose by %v, want 10", got)
		}
	})
}

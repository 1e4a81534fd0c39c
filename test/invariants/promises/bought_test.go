package promises

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// try makes the next attempt of the gang launch two machines, lose and replace one of them so many times, and fail. All machines are
// terminated.
func (c *course) try(number int, class v1alpha1.ErrorClass, losses int, level string) {
	a := transaction.Attempt{Number: number, Phase: transaction.Launching, Launches: []planner.GroupCount{launches}}
	write := func() {
		if c.request.Status.ProvisioningClassDetails == nil {
			c.request.Status.ProvisioningClassDetails = map[string]provreq.Detail{}
		}
		c.request.Status.ProvisioningClassDetails[transaction.AttemptDetail] = provreq.Detail(a.Encode())
		c.show(c.request)
	}
	var all []metav1.Object
	show := func(token, name string) {
		m := newMachine(name, "spot", token)
		m.UID = types.UID("uid-of-" + name)
		all = append(all, m)
		c.show(m)
	}
	write()
	token := state.Token(c.request.UID, number)
	for i := range 2 {
		show(token, fmt.Sprintf("m-%d-%d", number, i))
	}
	for i := range losses {
		a.Replacements = append(a.Replacements, transaction.Replacement{Level: level,
			Lost: []transaction.LostMachine{{Group: "spot", Name: all[len(all)-1].GetName(), Launch: token}}})
		write()
		token := fmt.Sprintf("%sr%d", state.Token(c.request.UID, number), i+1)
		show(token, fmt.Sprintf("m-%d-r%d", number, i))
	}
	a.Phase, a.Failure = transaction.RollingBack, &transaction.AttemptFailure{Class: class, Message: "failed"}
	write()
	c.remove(all...)
}

// stop records that the request has been stopped so often, and lets time pass.
func (c *course) stop(stops int, pause time.Duration) {
	c.request.Status.ProvisioningClassDetails[purchases.Detail] = provreq.Detail((&purchases.Record{Stops: stops}).Encode())
	c.show(c.request)
	c.pass(pause)
}

func TestLoopsThatBuyAreSeen(t *testing.T) {
	runBroken(t, []brokenCase{
		{"a third attempt", func(c *course) {
			c.upTo("request waits")
			c.try(1, v1alpha1.Lost, 0, "")
			c.try(2, v1alpha1.Scattered, 0, "rack")
			c.try(3, v1alpha1.Stockout, 0, "")
		}, []string{"P2 nothing leaks: Machine m-3-0", "machine number 5 that was bought for ProvisioningRequest team/gang", "it may buy 4"}},
		{"replacements count", func(c *course) {
			c.upTo("request waits")
			c.try(1, v1alpha1.Lost, 2, "")
			c.try(2, v1alpha1.Lost, 0, "")
		}, []string{"P2 nothing leaks: Machine m-2-0", "machine number 5"}},
		{"another attempt before the pause is over", func(c *course) {
			c.upTo("request waits")
			c.try(1, "", 2, "")
			c.stop(1, 9*time.Minute)
			c.try(2, "", 0, "")
		}, []string{"P2 nothing leaks: Machine m-2-0", "machine number 5"}},
	})
}

func TestPurchasesThatAreExplained(t *testing.T) {
	for name, do := range map[string]func(*course){
		"two attempts": func(c *course) {
			c.try(1, v1alpha1.Lost, 0, "")
			c.try(2, v1alpha1.Timeout, 0, "")
		},
		"refusals": func(c *course) {
			for i, class := range []v1alpha1.ErrorClass{v1alpha1.Stockout, v1alpha1.Quota, v1alpha1.Network, v1alpha1.Throttle, v1alpha1.Auth,
				v1alpha1.Outage, v1alpha1.Lost, v1alpha1.Lost} {
				c.try(i+1, class, 0, "")
			}
		},
		"misplaced machines": func(c *course) {
			c.try(1, v1alpha1.Lost, 2, "rack")
			c.try(2, v1alpha1.Lost, 0, "")
		},
		"a pause is over": func(c *course) {
			c.try(1, "", 2, "")
			c.stop(1, 10*time.Minute)
			c.try(2, "", 0, "")
		},
		"an administrator accepts what was bought": func(c *course) {
			c.try(1, "", 2, "")
			c.request.Annotations = map[string]string{v1alpha1.AcceptedPurchasesAnnotation: "4"}
			c.show(c.request)
			c.try(2, "", 2, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCourse(t)
			c.upTo("request waits")
			do(c)
			if v := c.verdict(); v != "" || c.Stats().Judged[Bought] == 0 {
				t.Errorf("%d machines judged: %s", c.Stats().Judged[Bought], v)
			}
		})
	}
}

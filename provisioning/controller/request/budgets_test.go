package request

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// budget limits all namespaces to so many USD a day. Gangs are committed for an hour.
func (s *site) budget(usd string) {
	p := &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy"}}
	p.Spec.Budgets = []v1alpha1.CapacityBudget{{
		Name: "all", USD: resource.MustParse(usd), Period: v1alpha1.BudgetDay, Reserve: &metav1.Duration{Duration: time.Hour},
	}}
	s.create(p)
	s.model.Set(p)
}

func (s *site) status() v1alpha1.BudgetStatus {
	s.Helper()
	p := &v1alpha1.CapacityPolicy{}
	if err := s.Get(s.Context(), types.NamespacedName{Name: "policy"}, p); err != nil {
		s.Fatal(err)
	}
	if len(p.Status.Budgets) != 1 {
		s.Fatalf("the status has the budgets %+v, want one", p.Status.Budgets)
	}
	return p.Status.Budgets[0]
}

// warnings returns the warnings since its last call, without the parts that vary.
func (s *site) warnings() (out []string) {
	for len(s.events.Events) > 0 {
		if e := <-s.events.Events; strings.Contains(e, "BudgetSpent") {
			text, _, _ := strings.Cut(e, ",")
			out = append(out, text)
		}
	}
	return out
}

// TestABudgetIsKeptAndReported: a gang of two machines at 6 USD an hour runs from 20:02 on. Its budget of 20 USD is used up 100 minutes
// later.
func TestABudgetIsKeptAndReported(t *testing.T) {
	play(t, func(s *site) {
		evening := time.Now().Add(20 * time.Hour)
		at := func(d time.Duration) { s.pass(time.Until(evening.Add(d))) }
		at(0)
		s.budget("20")
		s.pricedGroup("6")
		at(2*time.Minute - time.Second)
		if got := s.status(); got.Spent != "0.00" || got.PeriodEnd.Sub(got.PeriodStart.Time) != 24*time.Hour {
			t.Errorf("at first the status is %+v", got)
		}
		s.request(transaction.ClassAtomicScaleUp, nil)
		s.pass(time.Second)
		s.node("uid-1-0", "uid-1")
		s.node("uid-1-1", "uid-1")
		s.pass(time.Second)
		if !s.is(provreq.Provisioned) {
			t.Fatalf("conditions: %v", s.conditions())
		}
		s.bind("uid-1-0", "uid-1-1")
		var got []string
		for _, until := range []time.Duration{81 * time.Minute, 83 * time.Minute, 101 * time.Minute, 103 * time.Minute, 3 * time.Hour} {
			at(until)
			got = append(got, fmt.Sprintf("%s %d%% %q", until, s.status().WarnedPercent, s.warnings()))
		}
		want := []string{
			`1h21m0s 0% []`,
			`1h23m0s 80% ["Warning BudgetSpent 16.01 of 20.00 USD of budget all are spent"]`,
			`1h41m0s 80% []`,
			`1h43m0s 100% ["Warning BudgetSpent 20.01 of 20.00 USD of budget all are spent"]`,
			`3h0m0s 100% []`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if !s.is(provreq.BookingExpired) || len(s.taken) > 0 {
			t.Errorf("the gang that runs was stopped: %v, %v terminated", s.conditions(), s.taken)
		}
		s.mu.Lock()
		if n := s.writes["request policy"]; n < 175 || n > 181 {
			t.Errorf("the status was written %d times in 3 hours, want once a minute", n)
		}
		s.mu.Unlock()
		at(4*time.Hour + 10*time.Minute + time.Second)
		if got := s.status(); got.WarnedPercent != 0 || got.Spent != "2.00" {
			t.Errorf("10 minutes into the next day the status is %+v, want 2 USD spent", got)
		}
	})
}

// TestSpendInVainIsReported: machines that vanish while their gang waits for them cost more than a budget allows. The Event is created
// once.
func TestSpendInVainIsReported(t *testing.T) {
	play(t, func(s *site) {
		s.loses = true
		s.budget("1")
		s.pricedGroup("0.5")
		s.pass(time.Minute)
		s.request(transaction.ClassAtomicScaleUp, nil)
		s.pass(5 * time.Minute)
		s.loseAll(3 * time.Minute)
		warned := 0
		for len(s.events.Events) > 0 {
			if e := <-s.events.Events; strings.Contains(e, "BudgetSpentInVain launches in vain have cost") {
				warned++
			}
		}
		if got := s.status(); warned != 1 || got.SpentInVain == "0.00" || got.VainLimit != "0.01" || !got.WarnedInVain {
			t.Errorf("%d events, and the status is %+v", warned, got)
		}
	})
}

// TestABudgetWithoutSpendIsLeftAlone: it is written once a day.
func TestABudgetWithoutSpendIsLeftAlone(t *testing.T) {
	play(t, func(s *site) {
		s.budget("20")
		s.pricedGroup("6")
		s.pass(47 * time.Hour)
		s.wantWrites(map[string]int{"request policy": 2})
	})
}

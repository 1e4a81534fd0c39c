package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/test/testbed"
)

// budget of so many USD a month for the site's namespace, or these LocalQueues of it,
// which counts gangs for an hour ahead.
func (s *site) budget(usd string, queues ...string) *v1alpha1.CapacityPolicy {
	s.Helper()
	p := &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	p.Spec.Budgets = []v1alpha1.CapacityBudget{{
		Name: "team", USD: resource.MustParse(usd), Period: v1alpha1.BudgetMonth, Reserve: &metav1.Duration{Duration: time.Hour},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Name}}, Queues: queues,
	}}
	s.Create(p)
	return p
}

// TestAGangThatWouldPassTheBudgetWaits: each gang is two machines of 98.32 USD an hour.
// The second one starts when the budget is raised; the first one runs all the while.
func TestAGangThatWouldPassTheBudgetWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	s.queue(g)
	policy := s.budget("250")
	long := func(j *batchv1.Job) {
		j.Spec.Template.Annotations = map[string]string{"kwok.muster.dev/run-for": "10m"}
	}
	first := s.job("first", 2, long)
	s.Eventually("the first gang runs", func() bool { return s.Get(first) && first.Status.Active == 2 },
		func() string { return fmt.Sprint(first.Status) })

	second := s.job("second", 2, nil)
	reason := ""
	s.Eventually("the second gang's Workload says why it waits", func() bool {
		if w := s.Workload(second); w != nil {
			if c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil {
				reason = c.Message
			}
		}
		return strings.Contains(reason, "CapacityPolicy "+s.Name+" has a budget for its namespaces of 250 USD in the month that ends at ") &&
			strings.Contains(reason, "(spec.budgets[name=team].usd)") && strings.Contains(reason, "the gang needs 197 (196.64 per hour for 1h0m0s)")
	}, func() string { return "it says: " + reason })
	t.Log("the second gang waits:", reason)
	direct := s.request("direct", 2, nil)
	if c := s.condition(direct, provreq.Provisioned, metav1.ConditionFalse); !strings.Contains(c.Message, "spec.budgets[name=team].usd") {
		t.Errorf("a request that nobody queued waits: %s", c.Message)
	}
	s.Delete(direct)

	patch := client.MergeFrom(policy.DeepCopy())
	policy.Spec.Budgets[0].USD = resource.MustParse("1000")
	if err := s.Kube.Patch(t.Context(), policy, patch); err != nil {
		t.Fatal(err)
	}
	s.complete(second)
	if s.Get(first); first.Status.Active != 2 || first.Spec.Suspend != nil && *first.Spec.Suspend {
		t.Errorf("the first gang was stopped: %+v", first.Status)
	}
	s.Eventually("the status tells what was spent", func() bool {
		if !s.Get(policy) || len(policy.Status.Budgets) != 1 {
			return false
		}
		spent, err := resource.ParseQuantity(policy.Status.Budgets[0].Spent)
		return err == nil && spent.Sign() > 0 && spent.CmpInt64(250) < 0
	}, func() string { return fmt.Sprintf("%+v", policy.Status) })
	s.Delete(first)
	s.Empty(g.Name)
}

// TestQueuesOfANamespaceHaveBudgetsApart: the namespace's two LocalQueues lead to one ClusterQueue, and only one of them has a budget.
// Its second gang would exceed that. Requests without a queue belong to one if an admin's label says so, and otherwise count for all
// budgets of their namespace.
func TestQueuesOfANamespaceHaveBudgetsApart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	s.queue(g)
	free := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "free"}}
	free.Spec.ClusterQueue = kueue.ClusterQueueReference(s.Name)
	s.Create(free)
	s.budget("250", s.Name)
	first := s.job("first", 2, func(j *batchv1.Job) {
		j.Spec.Template.Annotations = map[string]string{"kwok.muster.dev/run-for": "10m"}
	})
	s.Eventually("the first gang runs", func() bool { return s.Get(first) && first.Status.Active == 2 },
		func() string { return fmt.Sprint(first.Status) })

	second := s.job("second", 2, nil)
	reason := ""
	s.Eventually("the second gang's Workload says why it waits", func() bool {
		if w := s.Workload(second); w != nil {
			if c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil {
				reason = c.Message
			}
		}
		return strings.Contains(reason, "CapacityPolicy "+s.Name+" has a budget for LocalQueue "+s.Name+
			" of its namespaces, with requests of no queue, of 250 USD in the month that ends at ")
	}, func() string { return "it says: " + reason })
	t.Log("the second gang waits:", reason)
	inQueue := func(r *provreq.ProvisioningRequest) {
		r.Labels = map[string]string{"kueue.x-k8s.io/queue-name": s.Name}
	}
	direct := s.request("direct", 2, inQueue)
	if c := s.condition(direct, provreq.Provisioned, metav1.ConditionFalse); !strings.Contains(c.Message,
		"a budget for LocalQueue "+s.Name+" of its namespaces, with requests of no queue") {
		t.Errorf("a request with the label of the queue waits: %s", c.Message)
	}
	s.Delete(direct)

	s.complete(s.job("twin", 2, func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/queue-name"] = free.Name }))
	unqueued := s.request("unqueued", 2, nil)
	if c := s.condition(unqueued, provreq.Provisioned, metav1.ConditionFalse); !strings.Contains(c.Message, "with requests of no queue") {
		t.Errorf("a request without the label of the queue waits: %s", c.Message)
	}
	s.Delete(unqueued)
	if w := s.Workload(second); w == nil || meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved) {
		t.Errorf("the second gang did not wait: %v", w)
	}
	s.Delete(first)
	s.complete(second)
	s.Empty(g.Name)
}

func TestACheaperFlavorIsTriedWithinABudget(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dear := s.Group("-dear", nil)
	cheap := s.Group("-cheap", func(g *v1alpha1.NodeGroup) { g.Spec.PricePerHour = new(resource.MustParse("10")) })
	s.queue(dear, cheap)
	s.budget("50")
	j := s.job("train", 2, nil)
	s.complete(j)
	if w := s.Workload(j); w == nil || w.Status.Admission == nil ||
		w.Status.Admission.PodSetAssignments[0].Flavors["nvidia.com/gpu"] != kueue.ResourceFlavorReference(cheap.Name) {
		t.Errorf("the workload was admitted as %v, want flavor %s", w, cheap.Name)
	}
	s.Empty(cheap.Name)
}

func TestBudgetsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.CapacityBudget)
		want   []string
	}{
		{"a negative amount", func(b *v1alpha1.CapacityBudget) { b.USD = resource.MustParse("-1") }, []string{"spec.budgets[0].usd", "must not be negative", "for example 5000"}},
		{"a period of no calendar", func(b *v1alpha1.CapacityBudget) { b.Period = "Fortnight" }, []string{"spec.budgets[0].period", "Fortnight", "Day", "Week", "Month"}},
		{"a negative reserve", func(b *v1alpha1.CapacityBudget) { b.Reserve = &metav1.Duration{Duration: -time.Hour} }, []string{"spec.budgets[0].reserve", "must not be negative", "24h"}},
		{"a queue with its namespace", func(b *v1alpha1.CapacityBudget) { b.Queues = []string{"red", "default/main"} }, []string{"spec.budgets[0].queues[1]", "must be the name of a LocalQueue, without its namespace"}},
		{"no queue", func(b *v1alpha1.CapacityBudget) { b.Queues = []string{""} }, []string{"spec.budgets[0].queues[0]", "must be the name of a LocalQueue"}},
		{"a queue twice", func(b *v1alpha1.CapacityBudget) { b.Queues = []string{"red", "red"} }, []string{"spec.budgets[0].queues[1]", "Duplicate value", "red"}},
		{"a name that is none", func(b *v1alpha1.CapacityBudget) { b.Name = "The Team" }, []string{"spec.budgets[0].name", "The Team"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: testbed.SiteName(t)}}
			p.Spec.Budgets = []v1alpha1.CapacityBudget{{Name: "team", USD: resource.MustParse("1"), Period: v1alpha1.BudgetDay}}
			tc.change(&p.Spec.Budgets[0])
			err := shared.Kube.Create(t.Context(), p, client.DryRunAll)
			for _, words := range tc.want {
				if err == nil || !strings.Contains(err.Error(), words) {
					t.Errorf("%v; want an error that says %q", err, words)
				}
			}
		})
	}
}

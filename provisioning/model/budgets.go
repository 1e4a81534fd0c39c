package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
)

// budgets are those of all CapacityPolicies, by policy and name. What was spent of them
// goes on from what their status says.
type budgets struct {
	list []*budget
	// stale says that the policies or the labels of namespaces have changed.
	stale bool
}

// budget is one with what is on record of it.
type budget struct {
	provisioning.Budget
	selector labels.Selector
	// known is the status that the budget goes on from, as it was read or written last.
	known v1alpha1.BudgetStatus
	// begun: what was spent is known.
	begun bool
}

// setBudgets reads the budgets of all policies. What is counted of one stays with its
// name, unless somebody else has written its status.
func (m *Model) setBudgets() {
	var list []*budget
	for _, policy := range slices.Sorted(maps.Keys(m.policies)) {
		p := m.policies[policy]
		for i := range p.Spec.Budgets {
			spec := &p.Spec.Budgets[i]
			b := m.budget(policy, spec.Name)
			if b == nil {
				b = &budget{}
			}
			b.Policy, b.Name, b.MicroUSD, b.Reserve = policy, spec.Name, nodegroups.MicroUSD(&spec.USD), defaultReserve
			if spec.Reserve != nil {
				b.Reserve = spec.Reserve.Duration
			}
			if b.Period != spec.Period {
				b.Period, b.Ends = spec.Period, time.Time{}
			}
			b.selector, b.Queues, b.QueuedOnly = selectorOf(spec.NamespaceSelector), spec.Queues, spec.QueuedOnly
			if status := statusIn(p, spec.Name); !equality.Semantic.DeepEqual(status, b.known) {
				b.known, b.begun = status, false
			}
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b *budget) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Name, b.Name))
	})
	m.budgets.list = list
}

// defaultReserve is that of the API server, for objects that have not been through it.
const defaultReserve = 24 * time.Hour

func (m *Model) budget(policy, name string) *budget {
	i := slices.IndexFunc(m.budgets.list, func(b *budget) bool { return b.Policy == policy && b.Name == name })
	if i < 0 {
		return nil
	}
	return m.budgets.list[i]
}

// statusIn is what a policy says of a budget; the zero value where it says nothing.
func statusIn(p *v1alpha1.CapacityPolicy, name string) (out v1alpha1.BudgetStatus) {
	for _, s := range p.Status.Budgets {
		if s.Name == name {
			return s
		}
	}
	return out
}

// selectorOf namespaces; one that cannot be read selects all, rather than none.
func selectorOf(s *metav1.LabelSelector) labels.Selector {
	if s == nil {
		return labels.Everything()
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Everything()
	}
	return selector
}

// labelsOf a namespace; of one that is not known only its name.
func (m *Model) labelsOf(namespace string) labels.Set {
	if n := m.holdings.namespaces[namespace]; n != nil {
		return n.Labels
	}
	return labels.Set{corev1.LabelMetadataName: namespace}
}

// flushBudgets brings up to date what is spent.
func (m *Model) flushBudgets() {
	now := m.now()
	if m.budgets.stale {
		m.setBudgets()
		for _, b := range m.budgets.list {
			b.Covers = m.coveredBy(b)
		}
	}
	for _, b := range m.budgets.list {
		if !now.Before(b.Ends) {
			m.beginPeriod(b, now)
		}
		if !b.begun {
			m.goOn(b, now)
		}
		if m.budgets.stale || m.spending.changed {
			b.Spent = b.Spent.Rated(m.rateOf(b), now)
		}
	}
	m.budgets.stale = false
}

// coveredBy reports of tenants whether the budget selects them, as namespaces are now. What
// names no queue counts for those of all queues, else it would evade them.
func (m *Model) coveredBy(b *budget) func(provisioning.Tenant) bool {
	selector, queues, queuedOnly := b.selector, b.Queues, b.QueuedOnly
	known := make(map[string]bool, len(m.holdings.namespaces))
	for name, n := range m.holdings.namespaces {
		known[name] = selector.Matches(labels.Set(n.Labels))
	}
	return func(t provisioning.Tenant) bool {
		if len(queues) > 0 && !slices.Contains(queues, t.Queue) && (t.Queue != "" || queuedOnly) {
			return false
		}
		covered, ok := known[t.Namespace]
		return ok && covered || !ok && selector.Matches(labels.Set{corev1.LabelMetadataName: t.Namespace})
	}
}

// beginPeriod has the budget begin anew, if its period has ended.
func (m *Model) beginPeriod(b *budget, now time.Time) {
	first := b.Ends.IsZero()
	b.Starts, b.Ends = nodegroups.PeriodAt(b.Period, now)
	if !first {
		b.Spent = provisioning.Meter{At: b.Starts, MicroUSDPerHour: b.Spent.MicroUSDPerHour}
		m.wakeAll()
	}
}

// goOn has a budget go on from what is on record of it, if that is about this period.
// Machines that are in use have cost since then, or since they came to be.
func (m *Model) goOn(b *budget, now time.Time) {
	b.begun = true
	b.Spent = provisioning.Meter{At: now}
	if b.known.At.IsZero() {
		return
	}
	at := b.known.At.Time
	if b.known.PeriodStart.Time.Before(b.Starts) {
		at = b.Starts
	} else {
		b.Spent.MicroUSD = provisioning.SpentOn(b.known)
	}
	for key, bill := range m.spending.bills {
		for _, s := range bill.shares {
			if !bill.launched || !b.Covers(s.Tenant) {
				continue
			}
			since := m.paidSince(key, s.Request)
			if since.Before(at) {
				since = at
			}
			b.Spent.MicroUSD += provisioning.Meter{At: since, MicroUSDPerHour: s.MicroUSDPerHour}.Until(now).MicroUSD
		}
	}
}

// rateOf is what machines cost that count for the budget, in millionths of a USD per
// hour.
func (m *Model) rateOf(b *budget) (perHour int64) {
	for p, r := range m.spending.rates {
		if p.Namespace != "" && b.Covers(p.Tenant) {
			perHour += r.launched
		}
	}
	return perHour
}

// budgetsNow are the budgets as they stand.
func (m *Model) budgetsNow() []provisioning.Budget {
	if len(m.budgets.list) == 0 {
		return nil
	}
	out := make([]provisioning.Budget, len(m.budgets.list))
	for i, b := range m.budgets.list {
		out[i] = b.Budget
	}
	return out
}

// periodOver says that a budget begins anew before that time.
func (b *budgets) periodOver(now time.Time) bool {
	return slices.ContainsFunc(b.list, func(b *budget) bool { return !now.Before(b.Ends) })
}

// Policies are the CapacityPolicies that have budgets, or tell of some, by name.
func (m *Model) Policies() (out []*v1alpha1.CapacityPolicy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.policies)) {
		if p := m.policies[name]; len(p.Spec.Budgets) > 0 || len(p.Status.Budgets) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// Reports are what is to be told of the policy's budgets, in their order.
func (m *Model) Reports(p *v1alpha1.CapacityPolicy, now time.Time) (out []provisioning.BudgetReport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
	for i := range p.Spec.Budgets {
		if b := m.budget(p.Name, p.Spec.Budgets[i].Name); b != nil {
			out = append(out, b.Report(statusIn(p, b.Name), now))
		}
	}
	return out
}

// PolicyWritten tells of a policy whose status Muster has just written.
func (m *Model) PolicyWritten(p *v1alpha1.CapacityPolicy) {
	m.update(func() bool {
		if m.policies[p.Name] == nil || !put(m.policies, p.Name, p) {
			return false
		}
		for _, b := range m.budgets.list {
			if b.Policy == p.Name {
				b.known = statusIn(p, b.Name)
			}
		}
		return false
	})
}

// runsOf is how long a request's gang runs at most; zero where that is not known.
func (m *Model) runsOf(e *request) time.Duration {
	gang := provisioning.Gang{}
	for _, name := range templatesOf(e.object) {
		t := m.requests.templates[name]
		if t == nil {
			return 0
		}
		gang.PodSets = append(gang.PodSets, provisioning.PodSet{Template: &t.Template})
	}
	return gang.Runs()
}

// provisionedAt is since when the pods of a request may come; zero where they may not.
func provisionedAt(e *request) time.Time {
	c := meta.FindStatusCondition(e.object.Status.Conditions, provreq.Provisioned)
	if c == nil || c.Status != metav1.ConditionTrue {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

package promises

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

// flavorResource is what quota is counted by.
type flavorResource struct{ flavor, resource string }

func (f flavorResource) String() string { return f.resource + " of flavor " + f.flavor }

func (f flavorResource) amount(v int64) string {
	return nodegroups.Quantity(corev1.ResourceName(f.resource), v)
}

// party is a ClusterQueue or a Cohort.
type party struct {
	kind Kind
	name string
}

func (p party) String() string { return string(p.kind) + " " + p.name }

// account is what the object of a party says of its quota.
type account struct {
	// cohort that it belongs to; empty for none.
	cohort string
	quota  map[flavorResource]quota
}

// quota is a party's quota of one resource of one flavor. A missing limit allows to borrow, or lend, any amount.
type quota struct {
	nominal            int64
	borrowing, lending *int64
}

func accountOf(cohort string, groups []kueue.ResourceGroup) account {
	a := account{cohort: cohort, quota: map[flavorResource]quota{}}
	for _, g := range groups {
		for _, f := range g.Flavors {
			for i := range f.Resources {
				r := &f.Resources[i]
				a.quota[flavorResource{string(f.Name), string(r.Name)}] = quota{
					nominal: nodegroups.Amount(r.Name, r.NominalQuota), borrowing: limitOf(r.Name, r.BorrowingLimit),
					lending: limitOf(r.Name, r.LendingLimit),
				}
			}
		}
	}
	return a
}

func limitOf(name corev1.ResourceName, q *resource.Quantity) *int64 {
	if q == nil {
		return nil
	}
	return new(nodegroups.Amount(name, *q))
}

// ledger is the trees of cohorts at one time. It is immutable: an edit creates another one.
//
// It is read as a balance sheet, from the bottom up. A party lends its unused nominal quota to its cohort, up to its lending limit. It
// borrows what it uses beyond its nominal quota from its cohort, up to its borrowing limit. The cohort does the same with its own nominal
// quota and the sum of what its members lend and borrow. A party without a cohort cannot borrow. Usage is valid while no party borrows
// more than it may. The lender of each unit need not be determined.
type ledger struct {
	accounts map[party]account
	// members of the cohorts, in the order of their names.
	members map[party][]party
	// until is how long after the next edit others may still act on this one.
	until time.Time
}

// with is the ledger after an edit of one account, nil for its end.
func (l *ledger) with(p party, a *account) *ledger {
	out := &ledger{accounts: maps.Clone(l.accounts), members: map[party][]party{}}
	if a == nil {
		delete(out.accounts, p)
	} else {
		out.accounts[p] = *a
	}
	for member := range out.accounts {
		if cohort, ok := out.cohortOf(member); ok {
			out.members[cohort] = append(out.members[cohort], member)
		}
	}
	// A cohort that has no object is there as long as it has members.
	for _, members := range out.members {
		slices.SortFunc(members, func(a, b party) int { return strings.Compare(a.String(), b.String()) })
	}
	return out
}

// says that the account of a party is just this.
func (l *ledger) says(p party, a *account) bool {
	have, known := l.accounts[p]
	if a == nil || !known {
		return a == nil && !known
	}
	return reflect.DeepEqual(have, *a)
}

// cohortOf is the cohort that a party belongs to. Cohorts in a circle, and all
// below them, belong to none: such a tree is disabled.
func (l *ledger) cohortOf(p party) (cohort party, ok bool) {
	up := func(p party) party { return party{Cohorts, l.accounts[p].cohort} }
	first := up(p)
	if first.name == "" {
		return party{}, false
	}
	steps := 0
	for at := first; at.name != ""; at = up(at) {
		if steps++; steps > len(l.accounts)+1 {
			return party{}, false
		}
	}
	return first, true
}

// parties are all that have an account or members.
func (l *ledger) parties() map[party]bool {
	out := map[party]bool{}
	for p := range l.accounts {
		out[p] = true
	}
	for p := range l.members {
		out[p] = true
	}
	return out
}

// path is a party and all above it.
func (l *ledger) path(p party) []party {
	out := []party{p}
	for cohort, ok := l.cohortOf(p); ok; cohort, ok = l.cohortOf(cohort) {
		out = append(out, cohort)
	}
	return out
}

// usage is what the Workloads of ClusterQueues have reserved. Sums that are too
// large for an int64, which only an edit by hand can make, wrap around, so that
// what is taken away leaves what there was before.
type usage map[string]map[flavorResource]int64

func (u usage) add(queue string, amounts map[flavorResource]int64) {
	if u[queue] == nil {
		u[queue] = map[flavorResource]int64{}
	}
	for key, v := range amounts {
		u[queue][key] += v
	}
}

func (u usage) sub(queue string, amounts map[flavorResource]int64) {
	for key, v := range amounts {
		if u[queue][key] -= v; u[queue][key] == 0 {
			delete(u[queue], key)
		}
	}
}

// balance is what a party has left; less than nothing is its debt. A quota that is
// too large for an int64 is never used up, whatever the others owe.
func (l *ledger) balance(p party, key flavorResource, used usage) int64 {
	left := l.accounts[p].quota[key].nominal
	endless := left == math.MaxInt64
	if p.kind == ClusterQueues {
		left = plus(left, -used[p.name][key])
	}
	for _, m := range l.members[p] {
		given := l.balance(m, key, used)
		if limit := l.accounts[m].quota[key].lending; limit != nil {
			given = min(given, *limit)
		}
		left, endless = plus(left, given), endless || given == math.MaxInt64
	}
	if endless {
		return math.MaxInt64
	}
	return left
}

// overdraft is by how much the debt of a party is more than it may be.
func (l *ledger) overdraft(p party, key flavorResource, used usage) int64 {
	own, listed := l.accounts[p].quota[key]
	mayOwe := int64(0)
	if _, ok := l.cohortOf(p); ok && (listed || p.kind == Cohorts) {
		if own.borrowing == nil {
			return 0
		}
		mayOwe = *own.borrowing
	}
	return max(0, plus(-l.balance(p, key, used), -mayOwe))
}

// sum is what is reserved in all ClusterQueues of a party, and what it and its
// members are given.
func (l *ledger) sum(p party, key flavorResource, used usage) (reserved, nominal int64) {
	nominal = l.accounts[p].quota[key].nominal
	if p.kind == ClusterQueues {
		reserved = used[p.name][key]
	}
	for _, m := range l.members[p] {
		r, n := l.sum(m, key, used)
		reserved, nominal = plus(reserved, r), plus(nominal, n)
	}
	return reserved, nominal
}

// describe explains how a party became overdrawn.
func (l *ledger) describe(p party, key flavorResource, used usage) string {
	over := l.overdraft(p, key, used)
	reserved, nominal := l.sum(p, key, used)
	out := fmt.Sprintf("%s %s is reserved, nominal quota is %s", key.amount(reserved), key, key.amount(nominal))
	mayOwe := int64(0)
	if _, ok := l.cohortOf(p); ok {
		if limit := l.accounts[p].quota[key].borrowing; limit != nil {
			mayOwe = *limit
			out += ", borrowing limit " + key.amount(mayOwe)
		}
	}
	if kept := over - (reserved - nominal - mayOwe); kept > 0 {
		out += fmt.Sprintf(", %s of the quota is kept back by lending limits", key.amount(kept))
	}
	return out + ", so " + key.amount(over) + " is too much"
}

// plus is a + b, or the largest or smallest int64 where that is too much for one.
func plus(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

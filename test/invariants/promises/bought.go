package promises

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/transaction"
)

const (
	// excess is how many times the machines that it needs may be bought for a request.
	excess = 2
	// shortestPause is how long a request that was stopped buys nothing at least, as far as is observed in time.
	shortestPause = 10*time.Minute - 5*time.Second
)

// bought is what was bought for a request.
type bought struct {
	// needed is the number of machines of its largest attempt.
	needed int
	// machines of each attempt, by number.
	machines map[int]map[types.UID]bool
	// groups are the groups of each attempt that was not refused by the cloud but failed.
	groups map[int][]string
	failed map[int]bool
	// explained attempts ended with a refusal of the cloud; misplaced machines came in other domains than were required.
	explained map[int]bool
	misplaced map[transaction.LostMachine]bool
	// accepted is how many attempts do not count any more, because the gang has run with them, or an administrator has accepted them.
	accepted int
	// stops are when the request was stopped.
	stops []time.Time
}

// count is how many machines nothing explains.
func (p *bought) count() int { return p.countFor(0) }

// countFor is count without the machines that failed in other groups than the attempt's: those do not keep a request from trying a group.
func (p *bought) countFor(current int) (n int) {
	elsewhere := func(attempt int) bool {
		return p.failed[attempt] && !slices.ContainsFunc(p.groups[current], func(g string) bool { return slices.Contains(p.groups[attempt], g) })
	}
	for attempt, machines := range p.machines {
		if !p.explained[attempt] && (current == 0 || !elsewhere(attempt)) {
			n += len(machines)
		}
	}
	return max(0, n-len(p.misplaced))
}

// most is how many there may be at that time.
func (p *bought) most(now time.Time) int {
	most := p.accepted + excess*p.needed
	for _, at := range p.stops {
		if !now.Before(at.Add(shortestPause)) {
			most += p.needed
		}
	}
	return most
}

// refuses reports whether a failure of the class is a refusal of the cloud.
func refuses(class v1alpha1.ErrorClass) bool {
	switch class {
	case v1alpha1.Stockout, v1alpha1.Quota, v1alpha1.Network, v1alpha1.Throttle, v1alpha1.Outage, v1alpha1.Auth:
		return true
	default:
		return false
	}
}

// notePurchases takes note of what a request has on record about what it buys.
func (c *Checker) notePurchases(e Event, r *request, o *provreq.ProvisioningRequest, a transaction.Attempt, reopened bool) {
	p := &r.bought
	if reopened {
		p.accepted = max(p.accepted, p.count())
	}
	p.accepted = max(p.accepted, purchases.AcceptedBy(o))
	if purchases.Of(o).Stops > len(p.stops) {
		p.stops = append(p.stops, e.Time)
	}
	n := 0
	p.groups[a.Number] = nil
	for _, l := range a.Launches {
		n += l.Count
		p.groups[a.Number] = append(p.groups[a.Number], l.Group)
	}
	p.needed = max(p.needed, n)
	if f := a.Failure; f != nil && f.Class != "" {
		p.explained[a.Number], p.failed[a.Number] = refuses(f.Class), !refuses(f.Class)
	}
	for _, replaced := range a.Replacements {
		for _, m := range replaced.Lost {
			if replaced.Level != "" {
				p.misplaced[m] = true
			}
		}
	}
}

// judgeBought: a request buys twice what it needs at most, beside what refusals of the cloud explain, and as much again as it needs
// after each pause (P2).
func (c *Checker) judgeBought(e Event, object string, uid types.UID, r *request, attempt int) {
	p := &r.bought
	if p.machines[attempt] == nil {
		p.machines[attempt] = map[types.UID]bool{}
	}
	p.machines[attempt][uid] = true
	if e.Listed || r.attempts[attempt] == nil {
		return
	}
	c.judged(Bought)
	if n, most := p.countFor(attempt), p.most(e.Time); n > most && !p.explained[attempt] {
		c.suspect(fmt.Sprintf("bought|%s-%d", r.uid, attempt), e, NoLeak, object, "is machine number %d that was bought for %s, beside those "+
			"that refusals explain; its largest attempt needs %d, so that it may buy %d by now", n, r, p.needed, most)
	}
}

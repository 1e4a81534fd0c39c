package dispatch

import (
	"cmp"
	"fmt"
	"time"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/text"
)

// Outlook is what would become of a job in a cluster, the best first.
type Outlook int

const (
	// Fits: it would start on machines that are there.
	Fits Outlook = iota
	// Soon: it would wait for less time than machines take to boot.
	Soon
	// Launches: it would start on machines that are launched for it.
	Launches
	// Preempts: it would start in place of others.
	Preempts
	// Awaits: it would get quota, and then the checks of other controllers decide.
	Awaits
	// Unknown: the manager may not read what the worker decides by.
	Unknown
	// Waits: it would not get quota now.
	Waits
)

// Prospect is the outlook of a job in a cluster by the manager's picture of it: advice, which the cluster is not bound by.
type Prospect struct {
	Outlook Outlook
	// MicroUSDPerHour is the price of the machines that would be launched, in millionths of a USD per hour. Unpriced: some have none
	// that is known.
	MicroUSDPerHour int64
	Unpriced        bool
	// Chance is that of all launches, in thousandths.
	Chance int
	// Start is when it is expected to start if it waits; zero if that is not known.
	Start time.Time
	// Message says what it would wait for.
	Message string
}

// compare orders prospects by their outlook, and what would launch machines as the planner orders plans within a cluster: by the price
// with the chance counted in. What waits is ordered by its start.
func (p *Prospect) compare(than *Prospect) int {
	if p.outlook() != than.outlook() {
		return cmp.Compare(p.outlook(), than.outlook())
	}
	switch p.outlook() {
	case Launches, Preempts:
		return cmp.Or(
			nodegroups.CompareBools(p.Unpriced, than.Unpriced),
			cmp.Compare(nodegroups.ExpectedCost(p.MicroUSDPerHour, p.Chance), nodegroups.ExpectedCost(than.MicroUSDPerHour, than.Chance)),
		)
	case Soon, Waits:
		return cmp.Or(nodegroups.CompareBools(p.Start.IsZero(), than.Start.IsZero()), p.Start.Compare(than.Start))
	default:
		return 0
	}
}

// outlook of a prospect; that of none is unknown.
func (p *Prospect) outlook() Outlook {
	if p == nil {
		return Unknown
	}
	return p.Outlook
}

// starts reports whether the job would start in the cluster without waiting for others.
func (p *Prospect) starts() bool { return p.outlook() == Fits || p.outlook() == Launches }

// String goes on from the name of the cluster.
func (p *Prospect) String() string {
	switch p.outlook() {
	case Fits:
		return "has machines for it"
	case Launches:
		price := text.USD(p.MicroUSDPerHour) + " USD per hour"
		if p.Unpriced {
			price = "an unknown price"
		}
		return fmt.Sprintf("would launch machines for it, at %s, with a chance of %d%%", price, p.Chance/10)
	case Preempts:
		return "would preempt others for it"
	case Awaits:
		return "has quota for it"
	case Soon, Waits:
		when := "at a time that is not known"
		if !p.Start.IsZero() {
			when = "about " + p.Start.UTC().Format(time.RFC3339)
		}
		return fmt.Sprintf("would start it %s: %s", when, p.Message)
	default:
		return "may be read in part only"
	}
}

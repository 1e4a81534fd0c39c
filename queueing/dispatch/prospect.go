package dispatch

import (
	"cmp"
	"fmt"
	"time"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/text"
)

// Outlook is what would become of a job in a cluster. Better outlooks are smaller.
type Outlook int

const (
	// Fits: it would start on existing machines.
	Fits Outlook = iota
	// Soon: it would wait for less time than a machine takes to boot.
	Soon
	// Launches: it would start on machines that are launched for it.
	Launches
	// Preempts: it would start after other jobs were preempted.
	Preempts
	// Awaits: it would get quota, and the checks of other controllers decide.
	Awaits
	// Unknown: the manager may not read enough of the worker.
	Unknown
	// Waits: it would not get quota now.
	Waits
)

// Prospect is a forecast of a job in a cluster. The cluster is not bound by it.
type Prospect struct {
	Outlook Outlook
	// MicroUSDPerHour is the price of the machines that would be launched, in millionths of a USD per hour. Unpriced: some of them have
	// no price.
	MicroUSDPerHour int64
	Unpriced        bool
	// Chance is the probability that all launches succeed, in thousandths.
	Chance int
	// Start is the estimated start of a job that waits; zero if there is no estimate.
	Start time.Time
	// Message is what the job would wait for.
	Message string
}

// compare orders prospects by their outlook. Jobs that launch machines are ordered as the planner orders plans within a cluster, by price
// divided by chance. Jobs that wait are ordered by their start.
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

// outlook returns the outlook of a prospect, or Unknown without one.
func (p *Prospect) outlook() Outlook {
	if p == nil {
		return Unknown
	}
	return p.Outlook
}

// starts reports whether the job would start in the cluster without waiting for other jobs.
func (p *Prospect) starts() bool { return p.outlook() == Fits || p.outlook() == Launches }

// String returns what follows the name of the cluster in a message.
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

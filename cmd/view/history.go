package view

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/provisioning/cost"
	recorder "github.com/muster-dev/muster/queueing/controller/history"
	"github.com/muster-dev/muster/queueing/history"
)

// Past is what Muster has recorded of some time: what ran, waited and cost.
type Past struct {
	Jobs  []PastJob
	Costs []history.Cost
	// Groups that costs are of.
	Groups map[string]history.Offering
	// LeftOut jobs were dropped for want of room.
	LeftOut int
}

// PastJob is a job that has ended.
type PastJob struct {
	history.Job
	// Waited and Ran are in seconds, see history.Job.
	WaitedSeconds int64 `json:"waitedSeconds"`
	RanSeconds    int64 `json:"ranSeconds"`
	// USD is what its machines have cost, in whole cents; those that it left idle are not its own.
	USD string `json:"usd"`

	WaitedText string `json:"-"`
	RanText    string `json:"-"`
	microUSD   int64
}

// PastSum is what the jobs of a queue, a namespace, a user or a week have come to.
type PastSum struct {
	// Of names it: NAMESPACE/QUEUE, a namespace, a user, or the Monday of a week; empty for machines that no gang has had, and for jobs
	// whose user is not recorded.
	Of     string `json:"name"`
	Jobs   int    `json:"jobs"`
	Failed int    `json:"failed"`
	// WaitedSeconds is the mean, RanSeconds the sum.
	WaitedSeconds int64   `json:"meanWaitedSeconds"`
	RanSeconds    int64   `json:"ranSeconds"`
	DeviceHours   float64 `json:"deviceHours"`
	// USD is what all machines have cost; Unused is the part of it for idle machines, and for those of launches in vain.
	USD    string `json:"usd"`
	Unused string `json:"unusedUSD"`

	WaitedText string `json:"-"`
	RanText    string `json:"-"`

	waited, microUSD, unused int64
}

// ReadPast reads what was recorded since a time, and of a namespace if one is given. Its error for a caller without the right names it.
func ReadPast(ctx context.Context, kube client.Reader, namespace string, since time.Time) (*Past, error) {
	records, err := recorder.Read(ctx, kube, deploy.Namespace)
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("you may not get the ConfigMaps muster-history-0 to -%d of namespace %s, which have what ran, waited and cost: "+
			"the ClusterRole muster-explain has the right", history.Slots-1, deploy.Namespace)
	}
	if err != nil {
		return nil, err
	}
	return pastOf(records, namespace, since), nil
}

func pastOf(records []*history.Record, namespace string, since time.Time) *Past {
	out := &Past{Jobs: []PastJob{}, Groups: map[string]history.Offering{}}
	costs := map[[2]string]int64{}
	for _, r := range records {
		for name, g := range r.Groups {
			out.Groups[name] = g
		}
		for _, c := range r.Costs {
			if namespace != "" && c.Namespace != namespace {
				continue
			}
			costs[[2]string{c.Namespace, c.Workload}] += c.MicroUSD
			if c.Day >= since.UTC().Format(time.DateOnly) {
				out.Costs = append(out.Costs, c)
			}
		}
		out.LeftOut += r.LeftOut
	}
	for _, r := range records {
		for _, j := range r.Jobs {
			if namespace != "" && j.Namespace != namespace || j.Ended.Before(since) {
				continue
			}
			l := PastJob{Job: j, WaitedSeconds: int64(j.Waited().Seconds()), RanSeconds: int64(j.Ran().Seconds()),
				microUSD: costs[[2]string{j.Namespace, j.Workload}]}
			l.USD, l.WaitedText, l.RanText = cents(l.microUSD), duration.HumanDuration(j.Waited()), duration.HumanDuration(j.Ran())
			out.Jobs = append(out.Jobs, l)
		}
	}
	slices.SortStableFunc(out.Jobs, func(a, b PastJob) int { return b.Ended.Compare(a.Ended) })
	return out
}

// AddCosts sets what ended jobs have cost. Their machines are no longer theirs, so that only the record has it.
func (p *Past) AddCosts(lines []JobLine) {
	costs := map[[2]string]string{}
	for _, j := range p.Jobs {
		costs[[2]string{j.Namespace, j.Workload}] = j.USD
	}
	for i := range lines {
		if l := &lines[i]; l.State == Failed || l.State == Finished {
			l.USDSoFar = costs[[2]string{l.Namespace, l.Workload}]
		}
	}
}

// SumsBy is what a sum can be of.
var SumsBy = []string{"queue", "namespace", "user", "week"}

// Sums are by what SumsBy names, those that have cost most first; weeks in their order.
func (p *Past) Sums(by string) []PastSum {
	out := map[string]*PastSum{}
	of := func(namespace, queue, user string, at time.Time) *PastSum {
		name := payerOf(by, namespace, queue, user)
		if by == "week" {
			name = history.WeekOf(at).String()
		}
		if out[name] == nil {
			out[name] = &PastSum{Of: name}
		}
		return out[name]
	}
	for i := range p.Jobs {
		j := &p.Jobs[i]
		s := of(j.Namespace, j.Queue, j.User, j.Ended)
		s.Jobs, s.waited, s.RanSeconds = s.Jobs+1, s.waited+j.WaitedSeconds, s.RanSeconds+j.RanSeconds
		if j.Outcome != history.Finished {
			s.Failed++
		}
		for _, n := range j.Devices {
			s.DeviceHours += float64(n) * j.Ran().Hours()
		}
	}
	for i := range p.Costs {
		c := &p.Costs[i]
		day, err := time.Parse(time.DateOnly, c.Day)
		if err != nil {
			continue // written by others
		}
		s := of(c.Namespace, c.Queue, c.User, day)
		if s.microUSD += c.MicroUSD; c.Purpose == cost.PurposeIdle.String() || c.Purpose == cost.PurposeWasted.String() {
			s.unused += c.MicroUSD
		}
	}
	sums := []PastSum{}
	for _, s := range out {
		if s.Jobs > 0 {
			s.WaitedSeconds = s.waited / int64(s.Jobs)
		}
		s.USD, s.Unused = cents(s.microUSD), cents(s.unused)
		s.WaitedText, s.RanText = inSeconds(s.WaitedSeconds), inSeconds(s.RanSeconds)
		sums = append(sums, *s)
	}
	slices.SortFunc(sums, func(a, b PastSum) int {
		if by == "week" {
			return strings.Compare(a.Of, b.Of)
		}
		return cmp.Or(cmp.Compare(b.microUSD, a.microUSD), strings.Compare(a.Of, b.Of))
	})
	return sums
}

func inSeconds(n int64) string { return duration.HumanDuration(time.Duration(n) * time.Second) }

// DailySpend is what was spent each day on what a name is of.
type DailySpend struct {
	// Of is empty for machines that no gang has had, and for users that are not recorded.
	Of string
	// MicroUSD are millionths of a USD, one for each day.
	MicroUSD []int64
	Sum      int64
}

// DailySpendBy is what daily spend can be by.
var DailySpendBy = []string{"namespace", "queue", "user", "group", "purpose"}

// Daily returns the spend of each day from one day to another, by one of DailySpendBy: the largest sum first.
func (p *Past) Daily(by string, from, to time.Time) (days []string, spend []DailySpend) {
	at := map[string]int{}
	for day := from.UTC().Truncate(24 * time.Hour); !day.After(to); day = day.AddDate(0, 0, 1) {
		at[day.Format(time.DateOnly)] = len(days)
		days = append(days, day.Format(time.DateOnly))
	}
	of := map[string]int{}
	for i := range p.Costs {
		c := &p.Costs[i]
		day, in := at[c.Day]
		if !in {
			continue
		}
		name := nameOf(c, by)
		n, known := of[name]
		if !known {
			n = len(spend)
			of[name] = n
			spend = append(spend, DailySpend{Of: name, MicroUSD: make([]int64, len(days))})
		}
		spend[n].MicroUSD[day] += c.MicroUSD
		spend[n].Sum += c.MicroUSD
	}
	slices.SortFunc(spend, func(a, b DailySpend) int { return cmp.Or(cmp.Compare(b.Sum, a.Sum), strings.Compare(a.Of, b.Of)) })
	return days, spend
}

// nameOf names what a cost is of, by one of DailySpendBy.
func nameOf(c *history.Cost, by string) string {
	switch by {
	case "group":
		return c.Group
	case "purpose":
		return c.Purpose
	}
	return payerOf(by, c.Namespace, c.Queue, c.User)
}

// payerOf names the user, the LocalQueue or the namespace of a job, or of a cost.
func payerOf(by, namespace, queue, user string) string {
	switch {
	case by == "user":
		return user
	case by == "queue" && namespace != "":
		return namespace + "/" + queue
	}
	return namespace
}

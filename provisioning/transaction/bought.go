package transaction

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/when"
)

// bought returns the request's record with all machines that were seen, before an attempt that launches so many. An administrator's
// approval counts as long as the annotation stays.
func (r *Request) bought(v View, attempt int) purchases.Record {
	p := cmp.Or(r.Purchases, v.Carried)
	if len(v.Made) > 0 {
		ours, others := r.sorted(v.Made)
		seen := p.Seen()
		p = p.With(others)
		p.Before += p.Seen() - seen
		p = p.With(ours)
	}
	p.Needed, p.Accepted = max(p.Needed, attempt), max(p.Accepted, r.Accepts)
	return p
}

// sorted returns the machines that calls of the attempt created, and those of earlier attempts, which some clouds list late.
func (r *Request) sorted(made []purchases.Machine) (ours, others []purchases.Machine) {
	calls := map[string]bool{}
	for _, c := range r.Attempt.Calls(r.UID) {
		calls[c.mark()] = true
	}
	for _, m := range made {
		if calls[m.Call] {
			ours = append(ours, m)
		} else {
			others = append(others, m)
		}
	}
	return ours, others
}

// mark identifies the call in the record.
func (c Call) mark() string { return purchases.CallMark(c.Group, c.Token) }

// mayBuy reports whether so many more machines may be bought for the attempt; otherwise stopped is the record to write.
func (r *Request) mayBuy(v View, a Attempt, more int) (stopped purchases.Record, ok bool) {
	p := r.bought(v, a.machines())
	if p.Bought()+more <= p.Most(v.Now, a.groups()) {
		return p, true
	}
	return p.StopAt(v.Now), false
}

// explains reports whether a failure of the class is a refusal of the cloud, rather than something that has befallen machines after
// they were bought.
func explains(class v1alpha1.ErrorClass) bool { return class != "" && !nodegroups.InVain(class) }

// tallied adds the record of purchases to the step if it is written and has changed.
func (s Step) tallied(r *Request, v View) Step {
	switch s.Do {
	case Rest, LookUp, Book, LaunchMachines, Terminate:
		return s
	}
	p := r.bought(v, 0)
	if s.Purchases != nil {
		p = *s.Purchases
	} else {
		p = s.counted(p, r, v)
	}
	s.Vain = s.inVain(r, v)
	for _, w := range s.Vain {
		p = p.Wasted(w.Vain)
	}
	if c := &s.Condition; c.Type == provreq.Failed || c.Type == provreq.Provisioned && c.Status != metav1.ConditionTrue {
		c.Message = and(c.Message, p.SayVain())
	}
	if s.Purchases = nil; p != r.Purchases {
		s.Purchases = &p
	}
	return s
}

// counted returns the record after the step.
func (s *Step) counted(p purchases.Record, r *Request, v View) purchases.Record {
	switch a := &s.Attempt; s.Do {
	case Begin:
		p.Needed, p.By, p.Before = max(p.Needed, a.machines()), v.Process, p.Seen()
	case Replace:
		p = r.announce(p, v, progressOf(r, v))
		if last := &a.Replacements[len(a.Replacements)-1]; last.Level != "" {
			p.Explained += len(last.Lost)
			p.By = purchases.Uncalled // the misplaced ones are terminated first
		}
	case RollBack:
		p = afterFailure(p, r, v, a.Failure)
	case Reopen:
		if !v.Now.Before(r.bookingSince().Add(servedFor)) {
			p.Accepted = max(p.Accepted, p.Bought())
		}
	}
	return p
}

// Vain are machines of a group that a step gives up, or finds lost.
type Vain struct {
	Group string
	purchases.Vain
}

// inVain returns the machines that the step gives up, or finds lost, before they have served the gang. Machines that stay because they run
// pods serve it.
func (s *Step) inVain(r *Request, v View) (out []Vain) {
	cause, ends := purchases.Undone, func(m cloudprovider.Machine) bool { return !r.Attempt.lost(m) && occupied(v, m) == nil }
	switch {
	case s.Do == RollBack && r.Attempt.Phase == Launching:
		if class := s.Attempt.Failure.Class; class != "" {
			cause = string(class)
		}
	case s.Do == Replace:
		last := &s.Attempt.Replacements[len(s.Attempt.Replacements)-1]
		cause = string(v1alpha1.Lost)
		if last.Level != "" {
			cause = string(v1alpha1.Scattered)
		}
		ends = func(m cloudprovider.Machine) bool {
			return slices.Contains(last.Lost, LostMachine{Group: m.Group, Name: m.Name, Launch: m.Launch})
		}
	default:
		return nil
	}
	for _, m := range v.Machines {
		if m.Hold || !ends(m) {
			continue
		}
		i := slices.IndexFunc(out, func(o Vain) bool { return o.Group == m.Group })
		if i < 0 {
			out = append(out, Vain{m.Group, purchases.Vain{Cause: cause}})
			i = len(out) - 1
		}
		out[i].Machines++
		if g := v.FindGroup(m.Group); g != nil {
			since := when.Latest(m.Started, r.callOf(m.Launch, m.Group).Began)
			out[i].MicroUSD += spend.PriceOf(max(0, v.Now.Sub(since).Milliseconds()), g.MicroUSDPerHour)
		}
	}
	return out
}

// servedFor is how long a gang must have had a booking before the machines that it has bought count as having served. Machines that
// replace later losses are counted from there.
const servedFor = time.Hour

// afterFailure returns the record after the attempt has failed.
func afterFailure(p purchases.Record, r *Request, v View, f *AttemptFailure) purchases.Record {
	if r.Attempt.Phase == RollingBack {
		return p // it was counted before
	}
	for _, m := range v.Machines {
		if explains(f.Class) && !m.Hold && !r.Attempt.lost(m) {
			p.Explained++
		}
	}
	if p.By != purchases.Uncalled && (p.By != v.Process || f.Class == v1alpha1.Timeout) {
		p = r.expect(p, progressOf(r, v), time.Time{})
	}
	if f.Class != "" && !explains(f.Class) {
		p = p.FailIn(min(r.Attempt.machines()+len(r.Attempt.losses()), r.boughtFor(p)), r.Attempt.groups())
	}
	return p
}

// boughtFor returns how many machines of the record the attempt has bought, including those that were never seen. A cloud that refuses a
// launch may have created fewer than were requested.
func (r *Request) boughtFor(p purchases.Record) int {
	n := max(0, p.Seen()-p.Before)
	for _, c := range r.Attempt.Calls(r.UID) {
		n += p.UnseenOf(c.mark())
	}
	return n
}

// announce returns the record before this process makes calls of the attempt. An earlier process may have made them already, with
// an unknown result.
func (r *Request) announce(p purchases.Record, v View, progress map[CallKey]*progress) purchases.Record {
	if p.By == v.Process {
		return p
	}
	if p.By != purchases.Uncalled {
		p = r.expect(p, progress, v.Now)
	}
	p.By = v.Process
	return p
}

// expect returns the record with the machines that calls of the attempt may have created by then and that were never seen; the time
// is zero if the calls are not retried.
func (r *Request) expect(p purchases.Record, progress map[CallKey]*progress, until time.Time) purchases.Record {
	vanished := max(0, p.Seen()-p.Before-made(progress))
	for _, c := range r.Attempt.Calls(r.UID) {
		of, before := progress[c.Key()], until
		missing := max(0, c.Count-of.made)
		known := min(missing, vanished)
		vanished -= known
		if of.queued {
			before = time.Time{}
		}
		p = p.Expect(c.mark(), missing-known, before)
	}
	return p
}

// made returns how many machines of the calls exist or are recorded as lost.
func made(progress map[CallKey]*progress) (n int) {
	for _, p := range progress {
		n += p.made
	}
	return n
}

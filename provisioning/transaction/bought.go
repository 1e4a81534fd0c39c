package transaction

import (
	"cmp"
	"time"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/purchases"
)

// bought is the record of the request with all machines that were seen, before an attempt that launches so many. What an administrator
// accepts counts for as long as the annotation stays.
func (r *Request) bought(v View, attempt int) purchases.Record {
	p := cmp.Or(r.Purchases, v.Carried).With(v.Made)
	p.Needed, p.Accepted = max(p.Needed, attempt), max(p.Accepted, r.Accepts)
	return p
}

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

// tallied is the step with the record of purchases, where it is written and has changed.
func (s Step) tallied(r *Request, v View) Step {
	switch s.Do {
	case Rest, LookUp, Book, LaunchMachines, TakeBack:
		return s
	}
	p := r.bought(v, 0)
	if s.Purchases != nil {
		s.set(r, *s.Purchases)
		return s
	}
	switch a := &s.Attempt; s.Do {
	case Begin:
		p.Needed, p.By, p.Before = max(p.Needed, a.machines()), v.Process, p.Seen()
	case Replace:
		p.By = v.Process
		if last := &a.Replacements[len(a.Replacements)-1]; last.Level != "" {
			p.Explained += len(last.Lost)
		}
	case RollBack:
		p = afterFailure(p, r, v, a.Failure)
	case Reopen:
		if !v.Now.Before(r.bookingSince().Add(servedFor)) {
			p.Accepted = max(p.Accepted, p.Bought())
		}
	}
	s.set(r, p)
	return s
}

// set has the record written if it changes.
func (s *Step) set(r *Request, p purchases.Record) {
	if s.Purchases = nil; p != r.Purchases {
		s.Purchases = &p
	}
}

// servedFor is how long a gang has had a booking until the machines that it has bought have served: those that stand in for machines
// that it loses after that are counted from there.
const servedFor = time.Hour

// afterFailure is the record once the attempt has failed.
func afterFailure(p purchases.Record, r *Request, v View, f *AttemptFailure) purchases.Record {
	if r.Attempt.Phase == RollingBack {
		return p // it was counted before
	}
	made := map[CallKey]int{}
	for _, m := range v.Machines {
		if !m.Hold && !r.Attempt.lost(m) {
			made[CallKey{m.Launch, m.Group}]++
			if explains(f.Class) {
				p.Explained++
			}
		}
	}
	if f.Class == v1alpha1.Timeout {
		for _, c := range r.Attempt.Calls(r.UID) {
			p.Unseen += max(0, c.Count-made[c.Key()]-lostOf(r, c))
		}
	}
	if f.Class != "" && !explains(f.Class) {
		p = p.FailIn(r.Attempt.machines()+len(r.Attempt.losses()), r.Attempt.groups())
	}
	return p
}

// lostOf is how many machines of the call are on record as lost.
func lostOf(r *Request, c Call) (n int) {
	for _, l := range r.Attempt.losses() {
		if l.Launch == c.Token && l.Group == c.Group {
			n++
		}
	}
	return n
}

// announce is the record before a call for machines of which so many are missing, and so many are there. Those that were neither seen nor
// are there may have been made for a process that was killed before it could record the answer.
func (r *Request) announce(v View, missing, made int) purchases.Record {
	p := r.bought(v, r.Attempt.machines())
	if p.By != v.Process {
		p.By = v.Process
		p.Unseen += max(0, missing-max(0, p.Seen()-p.Before-made))
	}
	return p
}

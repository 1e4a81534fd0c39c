package dispatch

import (
	"slices"
	"strings"
	"time"
)

// reconcile models Kueue's reconciler of a Workload with a MultiKueue check, after its source: it reads its own API server through a
// cache, and the workers live.
func (w *world) reconcile(v version) {
	reached := func(x *worker) bool { return !w.now.Before(x.cutUntil) }
	if !v.quota {
		for _, x := range w.workers {
			if reached(x) && x.copy != nil && !x.copy.Leaving {
				w.delete(x)
			}
		}
		return
	}
	var runs *worker
	for _, x := range w.workers {
		switch {
		case !reached(x) || x.copy == nil:
		case x.copy.Finished:
			w.finished = true
			w.note("the job has finished in %s", x.name)
			return
		case x.copy.Refused == Evicted && v.ready && !x.copy.Leaving:
			w.retry(v, "the copy was evicted in "+x.name)
			return
		case x.copy.Admitted && !x.copy.Leaving:
			runs = x
		}
	}
	if runs == nil && v.ready {
		if x := w.worker(v.cluster); x == nil || reached(x) {
			w.retry(v, "the copy has gone from "+v.cluster)
		}
		return
	}
	if runs == nil {
		w.synchronize(v)
		return
	}
	for _, x := range w.workers {
		if reached(x) && x.copy != nil && x != runs && !x.copy.Leaving {
			w.delete(x)
		}
	}
	if !v.ready && v.number == w.manager.number && slices.Contains(v.nominated, runs.name) {
		w.commit(runs.name)
	}
}

func (w *world) commit(cluster string) {
	if slices.Index(w.manager.nominated, cluster) > 0 {
		w.seen["the second was sooner"]++
	}
	w.patch(func(v *version) { v.ready, v.cluster, v.nominated = true, cluster, nil })
}

func (w *world) retry(v version, why string) {
	if v.number == w.manager.number {
		w.note("the manager tries again: %s", why)
		w.write(func(v *version) { v.quota, v.ready, v.nominated, v.cluster = false, false, nil, "" })
	}
}

// synchronize creates the copies in nominated clusters, and deletes the others.
func (w *world) synchronize(v version) {
	for _, x := range w.workers {
		cut := w.now.Before(x.cutUntil)
		if cut && !x.lossy {
			continue
		}
		switch named := slices.Contains(v.nominated, x.name); {
		case named && x.copy == nil && w.now.Before(x.foreignUntil):
			w.seen["foreign"]++
		case named && x.copy == nil:
			at := w.now.Add(w.within(500 * time.Millisecond))
			x.arrives = append(x.arrives, arrival{at: at})
			w.kueue.again = at // its worker waits for the answer
			if v.number != w.manager.number {
				w.seen["stale create"]++
			}
			if cut {
				w.seen["answer lost"]++
			}
		case !named && x.copy != nil && !x.copy.Leaving && !cut:
			w.delete(x)
		}
	}
}

// dispatch models the dispatcher. Next decides by the caches, the workers are read live before a nomination, and each write may be the
// last before a crash.
func (w *world) dispatch(v version) (s Step, is outcome) {
	j, err := w.job(v)
	if err != nil {
		w.wrong = err.Error()
		return s, done
	}
	if s = Next(j, w.clusters(&j.Record, weighed), w.now); s.Do != Rest {
		return s, w.name(v, s)
	}
	w.rests(v, s)
	return s, done
}

// patch is a write of the dispatcher.
func (w *world) patch(change func(*version)) {
	w.write(change)
	w.muster.wrote = w.manager.number
}

// rests records why the job waits.
func (w *world) rests(v version, s Step) {
	if record, _ := w.decode(v.record); record.Waits != s.Record.Waits && v.number == w.manager.number {
		w.patch(func(v *version) { v.record = s.Record.Encode() })
	}
}

// reading is how the clusters are read.
type reading int

const (
	// weighed: from caches, with their prospects.
	weighed reading = iota
	// asCached: from caches; asIs: live.
	asCached
	asIs
)

// clusters returns the clusters for the dispatcher, read in the given way.
func (w *world) clusters(record *Record, as reading) (out []Cluster) {
	generation := w.cached().generation
	if as == asIs {
		generation = w.manager.generation
	}
	for _, x := range w.workers {
		c := Cluster{Name: x.name, Connected: x.connected, Deleted: x.deleted}
		now := w.skewed(w.muster.skew)
		if f := record.Fence; !c.Connected {
			c.Ungranted = w.managed && w.muster.named[c.Name]
			if f != nil && f.Cluster == c.Name && w.fenced {
				c.StopsAt = w.now.Add(f.Stops(time.Minute) - x.renewal.Silent(now))
				c.Stopped = !w.now.Before(c.StopsAt)
			}
			out = append(out, c)
			continue
		}
		for i := len(x.deliveries) - 1; i >= 0; i-- {
			if at := x.deliveries[i].at; !at.After(w.now) {
				if c.Copy = x.deliveries[i].copy; c.Copy != nil && x.deliveries[i].generation != generation {
					c.Copy = new(*c.Copy)
					c.Copy.Stale = true
				}
				if !at.Before(x.madeAt) {
					x.made = nil
				}
				break
			}
		}
		switch {
		case as == asIs && x.copy != nil:
			c.Copy = new(x.copy.Copy)
			c.Copy.Stale = x.copy.generation != generation
		case as == asIs:
			c.Copy = nil
		case c.Copy != nil:
		case x.made != nil && w.now.Sub(x.madeAt) < 5*time.Second:
			c.Copy = x.made
		case w.now.Sub(x.foreign) < time.Minute:
			c.Copy, c.Again = &Copy{Foreign: true}, x.foreign.Add(time.Minute)
		case w.now.Sub(x.refused) < time.Minute:
			c.Lacks, c.Again = "what it takes to accept the job", x.refused.Add(time.Minute)
		case w.now.Before(x.queueless):
			c.Lacks = "LocalQueue"
		}
		if x.deleted {
			c.Lacks = "its MultiKueueCluster"
		}
		if x.idle {
			c.Idle = "it is idle"
		}
		if as == weighed {
			c.Prospect = w.prospect(x)
		}
		if w.fenced && x.renewal.Listened(now) {
			c.Fence = simulatedFence
		}
		out = append(out, c)
	}
	return out
}

// prospect returns a forecast of the worker: none, a correct one, or any other.
func (w *world) prospect(x *worker) *Prospect {
	switch w.random.IntN(4) {
	case 0:
		return nil
	case 1:
		return &Prospect{Outlook: Outlook(w.random.IntN(int(Waits) + 1)), Chance: w.random.IntN(1001), Start: w.now.Add(w.within(time.Hour))}
	}
	switch {
	case w.now.Before(x.fullUntil):
		return &Prospect{Outlook: Waits, Start: x.fullUntil}
	case w.now.Before(x.dryUntil):
		return &Prospect{Outlook: Launches, Chance: 500}
	default:
		return &Prospect{Outlook: Fits}
	}
}

// name executes a nomination or a withdrawal.
func (w *world) name(v version, s Step) outcome {
	for _, name := range s.Gone {
		switch x := w.worker(name); {
		case w.now.Before(x.cutUntil):
			return failed
		case x.copy != nil:
			return notAsSeen
		case w.now.Before(x.foreignUntil):
			if x.foreign = w.now; name == s.Cluster {
				w.seen["foreign"]++
				return notAsSeen
			}
		}
	}
	if v.number != w.manager.number {
		return notAsSeen // a conflict
	}
	w.note("muster: %s", s.Message)
	w.patch(func(v *version) { v.record = s.Record.Encode() })
	if w.chance(20) {
		w.crash()
		return done
	}
	w.patch(func(v *version) { v.nominated = s.Nominated })
	if s.Do == Withdraw {
		w.moves++
		if n := len(s.Record.Refusals); n > 0 && s.Record.Refusals[n-1].Reason == Unreached {
			w.seen["moved before its grant"]++
		}
		if n := len(s.Record.Refusals); n > 0 && s.Record.Refusals[n-1].Reason == Lost {
			w.seen["moved behind a fence"]++
		}
		if n := len(s.Record.Refusals); n > 0 && strings.Contains(s.Record.Refusals[n-1].Message, "has said nothing") {
			w.seen["left for its silence"]++
		}
		if strings.Contains(s.Message, "it is idle") {
			w.seen["left idle"]++
		}
		return done
	}
	w.muster.named[s.Cluster] = true
	return goesOn
}

// manage models Muster as the manager. Manage decides by the caches. A call to a worker may arrive much later, even after the process
// that made it has ended.
func (w *world) manage(v version) (s Step, is outcome) {
	if v.number < w.muster.wrote {
		return s, done // its own write will arrive as an event
	}
	j, err := w.job(v)
	if err != nil {
		w.wrong = err.Error()
		return s, done
	}
	clusters := w.clusters(&j.Record, weighed)
	s = Manage(j, clusters, w.now)
	x := w.worker(s.Cluster)
	reached := func(x *worker) bool { return !w.now.Before(x.cutUntil) }
	switch s.Do {
	case Rest:
		w.rests(v, s)
	case Nominate, Withdraw:
		return s, w.name(v, s)
	case Offer:
		return s, w.offer(x, s)
	case Grant:
		delete(w.muster.named, x.name)
		if !reached(x) && !x.lossy {
			return s, failed
		}
		takes := w.late("late grant")
		x.grants = append(x.grants, grant{w.now.Add(takes), find(clusters, s.Cluster).Copy.UID})
		if !reached(x) {
			w.seen["answer lost"]++
		}
		if !reached(x) || takes > callTimeout {
			return s, failed
		}
	case Commit:
		if v.number != w.manager.number {
			return s, notAsSeen
		}
		w.commit(s.Cluster)
		return s, goesOn
	case Follow:
		switch c := x.copy; {
		case !reached(x):
			return s, failed
		case c == nil || c.UID != find(clusters, s.Cluster).Copy.UID || c.Leaving:
		case !c.hasJob && w.now.Before(x.refusesJobsUntil):
			if v.number != w.manager.number {
				return s, notAsSeen
			}
			w.seen["refuses the job"]++
			record := j.Record.Refused(Refusal{Cluster: x.name, Reason: Rejected, At: w.now, Copy: c.UID})
			w.patch(func(v *version) { v.record = record.Encode() })
			w.retry(w.manager, x.name+" does not take the job")
		default:
			c.hasJob = true
		}
	case Finish:
		switch {
		case !reached(x):
			return s, failed
		case v.number != w.manager.number:
			return s, notAsSeen
		}
		w.finished, w.endedAt = true, w.now
		w.note("the job has finished in %s", s.Cluster)
		w.patch(func(v *version) { v.finished = true })
	case Retry:
		if find(clusters, s.Cluster).Stopped {
			w.seen["moved behind a fence"]++
		}
		if strings.Contains(s.Message, "it is idle") {
			w.seen["not started"]++
		}
		for _, name := range s.Gone {
			switch x := w.worker(name); {
			case x == nil:
			case !reached(x):
				return s, failed
			case x.copy != nil:
				return s, notAsSeen
			}
		}
		if v.number != w.manager.number {
			return s, notAsSeen
		}
		w.patch(func(v *version) { v.record = s.Record.Encode() })
		w.retry(w.manager, s.Message)
	case Clear:
		return s, w.clear(v, s, clusters, reached)
	}
	return s, done
}

// callTimeout is the timeout of a call to a worker.
const callTimeout = 5 * time.Second

// offer creates the copy.
func (w *world) offer(x *worker, s Step) outcome {
	switch {
	case w.now.Before(x.cutUntil):
		return failed
	case x.copy != nil:
		return notAsSeen // as a live read finds
	case w.now.Before(x.foreignUntil):
		w.seen["foreign"]++
		x.foreign = w.now
		return notAsSeen
	case w.now.Before(x.refusesUntil):
		w.seen["refuses copies"]++
		x.refused = w.now
		return notAsSeen
	}
	process := w.muster.begins
	takes := w.late("late create")
	lost := w.chance(20)
	if lost {
		w.seen["answer lost"]++ // and it is offered again
	}
	answered := !lost && takes <= callTimeout && w.muster.begins.Equal(process)
	x.arrives = append(x.arrives, arrival{w.now.Add(takes), s.Record.fence(x.name), w.cached().generation, answered})
	if !answered {
		return failed
	}
	return goesOn
}

// late returns how long a call takes to arrive. Some take long, and some of these outlive the process that made them.
func (w *world) late(what string) time.Duration {
	takes := w.within(500 * time.Millisecond)
	if w.chance(10) {
		w.seen[what]++
		takes = w.within(90 * time.Second)
	}
	w.muster.again = w.now.Add(min(takes, 5*time.Second)) // the call times out after that
	if w.chance(10) {
		w.crash()
	}
	return takes
}

func (w *world) clear(v version, s Step, clusters []Cluster, reached func(*worker) bool) (is outcome) {
	record := s.Record
	for _, name := range s.Gone {
		switch x := w.worker(name); {
		case !reached(x):
			return failed
		case x.copy != nil:
			record.In, is = append(record.In, name), leaving
			if !x.copy.Leaving {
				w.moves++
				w.delete(x)
			}
		case find(clusters, name).Copy != nil:
			record.In, is = append(record.In, name), leaving // all that its cache can show
		}
	}
	if before, _ := w.decode(v.record); len(record.In) != len(before.In) {
		if v.number != w.manager.number {
			return notAsSeen
		}
		w.patch(func(v *version) { v.record = record.Encode() })
	}
	if w.finished && is == done && len(s.Gone) > 0 {
		w.seen["cleared after its end"]++
	}
	return is
}

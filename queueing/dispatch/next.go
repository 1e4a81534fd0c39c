package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/provisioning/when"
)

const (
	// settle is how long after a withdrawal a stock Kueue may still create a copy, since its cache lags.
	settle = time.Second
	// copyBound is how long a copy may take to be created in a nominated cluster.
	copyBound = 30 * time.Second
	// quotaPatience is how long a copy may wait for quota at first. It doubles with every try up to longestPatience.
	quotaPatience   = 5 * time.Second
	longestPatience = 10 * time.Minute
	// judgedWithin is how long a worker may take to evaluate a copy. A worker whose queueing does not run never does.
	judgedWithin = time.Minute
	// judgedBy is how long a worker takes to evaluate a copy, if its status does not show whether it has.
	judgedBy = 3 * time.Second
	// startBound is how long a copy with quota may take to be admitted. The worker's own timeouts are shorter.
	startBound = 2 * time.Hour
	// capacityPause is how long a cluster without machines is not nominated. It doubles with every try.
	capacityPause   = time.Minute
	longestPause    = 30 * time.Minute
	rejectionsPause = 10 * time.Minute
	// weighAgain is how often the prospects of a job that waits in a cluster are compared with those in other clusters.
	weighAgain = 30 * time.Second
)

// Action is what a step does.
type Action int

const (
	// Rest: nothing to do until something changes, or the step's time comes.
	Rest Action = iota
	// Nominate the cluster. Live reads have to show before that no other cluster has a copy.
	Nominate
	// Withdraw the nominations.
	Withdraw

	// The other actions are for copies that Muster creates itself.

	// Offer creates a copy with a gate in the cluster.
	Offer
	// Grant removes the gate, so that the copy may take quota and machines.
	Grant
	// Commit records that the cluster runs the job.
	Commit
	// Follow creates the job in the cluster and copies its status to the manager.
	Follow
	// Finish records how the job ended in the cluster.
	Finish
	// Retry requeues a job that does not run in any cluster any more.
	Retry
	// Clear deletes the job and its copy in the clusters of Gone.
	Clear
)

func (a Action) String() string {
	return [...]string{"Rest", "Nominate", "Withdraw", "Offer", "Grant", "Commit", "Follow", "Finish", "Retry", "Clear"}[a]
}

// Step is the next thing to do for a job.
type Step struct {
	Do Action
	// Cluster is the cluster of the step; empty if it has none.
	Cluster string
	// Record is written before the step is taken, or after a Clear.
	Record Record
	// Nominated are the clusters that are nominated after the step.
	Nominated []string
	// Gone are the clusters that must not have a copy. Each is read live before the step is taken.
	Gone []string
	// At is when to decide again even if nothing changes; zero for never.
	At time.Time
	// Weigh: several clusters could be nominated, so their prospects decide.
	Weigh bool
	// Message is what the job waits for, or why the step is taken.
	Message string
}

// Next returns the next step for the job. It is called again after every change.
func Next(j *Job, clusters []Cluster, now time.Time) Step {
	switch {
	case !j.Open:
		return Step{Do: Rest, Record: j.Record}
	case len(j.Nominated) > j.mostNominated():
		// Another dispatcher has nominated them, and would do so again.
		return waits(Step{Do: Rest, Record: j.Record.with(j.Nominated...), Message: "several clusters are nominated, so Kueue asks them all: " +
			"set multiKueue.dispatcherName of its configuration to " + Name})
	case len(j.Nominated) > 0:
		return await(j, clusters, now)
	default:
		return choose(j, clusters, now)
	}
}

// await returns the step for a job that waits for the answer of one cluster, or of as many as its hedge allows.
func await(j *Job, clusters []Cluster, now time.Time) Step {
	var s Step
	for i, name := range j.Nominated {
		one := *j
		if len(j.Nominated) > 1 {
			one.Record.Waits = "" // one.Record.Waits is for the whole job
		}
		of := awaitOne(&one, name, clusters, now)
		if of.Do == Withdraw {
			of.Nominated = slices.Delete(slices.Clone(j.Nominated), i, i+1)
			return of
		}
		if i > 0 {
			of.At, of.Weigh = when.Earliest(s.At, of.At), s.Weigh || of.Weigh
			of.Message = strings.Trim(s.Message+"; "+of.Message, "; ")
			of.Record.Waits = strings.Trim(s.Record.Waits+"; "+of.Record.Waits, "; ")
		}
		s = of
	}
	if len(j.Nominated) < j.Hedge {
		more := choose(j, clusters, now)
		if more.Do == Nominate {
			return more
		}
		s.At, s.Weigh = when.Earliest(s.At, more.At), s.Weigh || more.Weigh
	}
	return s
}

func at(r Record, now time.Time) Record {
	r.At, r.Waits = now, ""
	return r
}

func find(clusters []Cluster, name string) *Cluster {
	if i, listed := index(clusters, name); listed {
		return &clusters[i]
	}
	return &Cluster{Name: name, Connected: true, Lacks: "its MultiKueueCluster, or its place in the MultiKueueConfig"}
}

// waits records the step's message, since it may stay true for long.
func waits(s Step) Step {
	s.Record.Waits = s.Message
	return s
}

// unreached returns the step for a job that waits for a cluster that is cut off, forever or until its fence has stopped the copy.
func unreached(s Step, c *Cluster, format string) Step {
	s.At, s.Message = c.StopsAt, fmt.Sprintf(format, c.Name)
	return waits(s)
}

// awaitOne returns the step for a job that waits for the answer of one cluster.
func awaitOne(j *Job, name string, clusters []Cluster, now time.Time) Step {
	c := find(clusters, name)
	record := j.Record.with(j.Nominated...)
	s := Step{Do: Rest, Record: record}
	switch {
	case c.Stopped:
		record = at(record.Refused(Refusal{Cluster: c.Name, Reason: Lost, Message: lost(c.Name), At: now}), now)
		return Step{Do: Withdraw, Record: record, Message: lost(c.Name)}
	case c.Ungranted:
		return leave(record, c, now)
	case !c.Connected:
		return unreached(s, c, "cluster %s cannot be reached, and may run the job")
	}
	refusal, bound := judge(j, c)
	switch {
	case c.Lacks != "":
		refusal, bound = Refusal{Reason: Rejected, Message: "it lacks " + c.Lacks}, time.Time{}
	case refusal.Reason == "":
		return waits(s)
	}
	other := pick(record, clusters, j.Nominated, now)
	eligible := other.eligible(now)
	if refusal.Reason == NoQuota && eligible {
		s.Weigh = true
		switch there := other.prospect; {
		case there.starts() && record.refusal(other.best).Times == 0:
			if bound = (time.Time{}); c.Copy.Unclear { // other jobs use the quota in the manager, and nothing else blocks the copy
				bound = j.Record.At.Add(judgedBy)
			}
		case !now.Before(bound) && there.outlook() == Waits && c.Prospect.compare(there) <= 0:
			s.At, s.Message = now.Add(weighAgain), fmt.Sprintf("cluster %s was asked, and no other would start the job sooner", c.Name)
			return waits(s)
		}
	}
	if now.Before(bound) {
		s.At, s.Message = bound, fmt.Sprintf("cluster %s was asked", c.Name)
		return s
	}
	refusal.Cluster, refusal.At = c.Name, now
	if c.Copy != nil {
		refusal.Copy = c.Copy.UID
	}
	why := fmt.Sprintf("cluster %s does not run the job: %s", c.Name, refusal)
	if c.Lacks == "" && c.Copy != nil && !c.Copy.Foreign && c.Copy.Changed == "" && !eligible {
		// This cluster may admit the job sooner than any other.
		s.At, s.Message = other.again(), why+noOther
		return waits(s)
	}
	return Step{Do: Withdraw, Record: at(record.Refused(refusal), now), Message: why, Weigh: s.Weigh}
}

// noOther is why a job stays in a cluster that does not run it.
const noOther = "; no other cluster can be asked now"

// leave withdraws a cluster that was not granted the job, and removes it from the record. Its copy has a gate, even if it is created
// late, and is deleted once the cluster is connected again.
func leave(record Record, c *Cluster, now time.Time) Step {
	why := fmt.Sprintf("cluster %s cannot be reached, and was not granted the job", c.Name)
	record = at(record.Refused(Refusal{Cluster: c.Name, Reason: Unreached, Message: why, At: now}), now)
	record.In = slices.DeleteFunc(slices.Clone(record.In), func(name string) bool { return name == c.Name })
	return Step{Do: Withdraw, Record: record, Message: why}
}

// lost describes a cluster whose fence has stopped the job.
func lost(cluster string) string {
	return fmt.Sprintf("cluster %s cannot be reached, and by its fence has stopped what it had of the job", cluster)
}

// judge returns how the try counts if the copy makes no progress until the bound. Its reason is empty for a copy that is admitted.
func judge(j *Job, c *Cluster) (r Refusal, bound time.Time) {
	w := c.Copy
	switch {
	case c.Idle != "" && (w == nil || w.isPending()):
		return Refusal{Reason: Late, Message: c.Idle}, time.Time{}
	case w == nil:
		return Refusal{Reason: NoCopy, Message: "no copy came"}, j.Record.At.Add(copyBound)
	case w.Foreign:
		return Refusal{Reason: Rejected, Message: "a Workload of that name is there that is no copy"}, time.Time{}
	case w.Changed != "":
		return Refusal{Reason: Rejected, Message: w.Changed}, time.Time{}
	case w.Admitted || w.Finished:
		return r, time.Time{}
	case w.Refused == NoQuota:
		return Refusal{Reason: NoQuota, Message: w.Message},
			j.Record.At.Add(backoff(quotaPatience, longestPatience, j.Record.refusal(c.Name).Times))
	case w.Refused != "":
		return Refusal{Reason: w.Refused, Message: w.Message}, time.Time{}
	case w.Unjudged:
		return Refusal{Reason: Late, Message: fmt.Sprintf("it has said nothing of the copy for %s: its Muster or Kueue may be down",
			judgedWithin)}, j.Record.At.Add(judgedWithin)
	default:
		return Refusal{Reason: Late, Message: w.Message}, j.Record.At.Add(startBound)
	}
}

func (r Refusal) String() string {
	return fmt.Sprintf("%s: %s", r.Reason, cmp.Or(r.Message, "it says no more"))
}

// choose returns the nomination of the next cluster, once no cluster has a copy that was not nominated.
func choose(j *Job, clusters []Cluster, now time.Time) Step {
	s := Step{Do: Rest, Record: j.Record}
	there := map[string]bool{}
	for i := range clusters {
		if c := &clusters[i]; c.Connected && c.Copy != nil && !c.Copy.Foreign && !slices.Contains(j.Nominated, c.Name) {
			there[c.Name] = true
			s.Message = fmt.Sprintf("cluster %s still has a copy", c.Name)
		}
	}
	left := slices.DeleteFunc(slices.Clone(j.Record.In), func(name string) bool { return slices.Contains(j.Nominated, name) })
	for _, name := range left {
		if c := find(clusters, name); !c.Connected {
			return unreached(s, c, "cluster %s cannot be reached, and may still have a copy: mend it, or delete its MultiKueueCluster if it is "+
				"gone for good")
		}
	}
	next := pick(j.Record, clusters, j.Nominated, now)
	if len(there) == 1 && len(j.Nominated) == 0 {
		// The manager has lost track of this copy, and cannot use it unless it nominates the cluster.
		for i := range clusters {
			if c := &clusters[i]; there[c.Name] && c.Copy.Admitted && !c.Copy.Leaving {
				return nominate(j, c, next.reached, now, "runs the job already")
			}
		}
	}
	if len(there) > 0 {
		return s
	}
	if ready := j.Record.At.Add(settle); len(left) > 0 && now.Before(ready) {
		s.At = ready
		return s
	}
	switch {
	case next.best == "":
		s.At, s.Message = next.again(), "no cluster can run the job: "+strings.Join(next.lacking, "; ")
		return waits(s)
	case now.Before(next.until):
		s.At, s.Message = next.again(), fmt.Sprintf("all clusters have refused the job; %s is asked next", next.best)
		return waits(s)
	}
	why := "is asked"
	if next.prospect != nil {
		why = fmt.Sprintf("%s, and is asked", next.prospect)
	}
	s = nominate(j, find(clusters, next.best), next.reached, now, why)
	s.Weigh = next.several
	return s
}

// nominate returns the step that nominates a cluster in addition to those that are nominated. No other cluster may have a copy.
func nominate(j *Job, c *Cluster, reached []string, now time.Time, why string) Step {
	s := Step{Do: Nominate, Cluster: c.Name, Record: j.Record, Nominated: append(slices.Clone(j.Nominated), c.Name),
		Message: "cluster " + c.Name + " " + why}
	s.Record.In, s.Record.Hedge = s.Nominated, 0
	if n := len(s.Nominated); n > 1 {
		s.Record.Hedge = j.Hedge
		s.Message += fmt.Sprintf(", as %d of %d at once, each of which may launch machines for the job (%s)", n, j.Hedge, HedgeAnnotation)
	} else {
		s.Record.Fence = fenceOf(c)
	}
	adopted := c.Copy != nil && !c.Copy.Foreign
	for _, name := range reached {
		if slices.Contains(j.Nominated, name) || adopted && name == c.Name {
			continue
		}
		s.Gone = append(s.Gone, name)
	}
	s.Record = at(s.Record.priced(c.Name, c.Prospect, j.Nominated), now)
	return s
}

// fenceOf returns the fence of the copy in a cluster, or of the next copy there. It is nil without a fence.
func fenceOf(c *Cluster) *Fence {
	after := c.Fence
	if c.Copy != nil && !c.Copy.Foreign {
		after = c.Copy.Fence
	}
	if after == 0 {
		return nil
	}
	return &Fence{Cluster: c.Name, After: metav1.Duration{Duration: after}}
}

// choice is the best cluster to nominate, and from when on. best is empty if there is none.
type choice struct {
	best     string
	until    time.Time
	prospect *Prospect
	// several: another cluster could be nominated now, too.
	several bool
	// readAgain is when to read a cluster that cannot be nominated; zero if events report every change.
	readAgain time.Time
	// reached are the clusters that a copy of the job could be in. lacking is why the others cannot be nominated.
	reached, lacking []string
}

// again is when the choice may change; zero if only an event changes it.
func (o *choice) again() time.Time { return when.Earliest(o.until, o.readAgain) }

// eligible reports whether the best cluster may be nominated now.
func (o choice) eligible(now time.Time) bool { return o.best != "" && !now.Before(o.until) }

// pick chooses among the clusters that are not in but.
func pick(r Record, clusters []Cluster, but []string, now time.Time) (out choice) {
	for i := range clusters {
		c := &clusters[i]
		foreign, excluded := c.Copy != nil && c.Copy.Foreign, slices.Contains(but, c.Name)
		if !excluded {
			out.readAgain = when.Earliest(out.readAgain, c.Again)
		}
		if c.Connected && !foreign {
			out.reached = append(out.reached, c.Name)
		}
		switch {
		case excluded:
			continue
		case !c.Connected:
			out.lacking = append(out.lacking, c.Name+" cannot be reached")
			continue
		case foreign:
			out.lacking = append(out.lacking, c.Name+" has a Workload of that name that is no copy")
			continue
		case c.Lacks != "":
			out.lacking = append(out.lacking, fmt.Sprintf("%s lacks %s", c.Name, c.Lacks))
			continue
		case c.Idle != "":
			out.lacking = append(out.lacking, fmt.Sprintf("%s does not queue: %s", c.Name, c.Idle))
			continue
		}
		again := r.refusal(c.Name).PausedUntil()
		out.several = out.several || out.best != "" && !now.Before(again) && !now.Before(out.until)
		if out.best == "" || out.prefers(&r, c, again, now) {
			out.best, out.until, out.prospect = c.Name, again, c.Prospect
		}
	}
	return out
}

// prefers reports whether a cluster is better than the best one so far, which comes earlier in the order of preference. The order is:
// clusters that may be nominated now before clusters that pause, then the better prospect, then fewer refusals.
func (o *choice) prefers(r *Record, c *Cluster, again, now time.Time) bool {
	if now.Before(again) || now.Before(o.until) {
		return again.Before(o.until)
	}
	return cmp.Or(c.Prospect.compare(o.prospect), cmp.Compare(r.refusal(c.Name).Times, r.refusal(o.best).Times)) < 0
}

// PausedUntil is when the cluster may be nominated again.
func (r Refusal) PausedUntil() time.Time {
	switch r.Reason {
	case NoCapacity:
		return r.At.Add(backoff(capacityPause, longestPause, r.Times-1))
	case Rejected, NoCopy, Late:
		return r.At.Add(rejectionsPause)
	default:
		return r.At
	}
}

// backoff doubles first with every time, up to most.
func backoff(first, most time.Duration, times int) time.Duration {
	for range times {
		if first >= most {
			break
		}
		first *= 2
	}
	return min(first, most)
}

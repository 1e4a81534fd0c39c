package dispatch

import (
	"fmt"
	"slices"
	"time"
)

// Manage returns the next step for a job whose copies Muster creates itself: what Next does, and all that Kueue's manager does. A copy
// is created with a gate, and the gate is only removed from a copy that was observed: a copy whose creation was late, or whose
// response was lost, takes nothing.
//
//	Nominate ──▶ Offer ──▶ Grant ──▶ Commit ──▶ Follow ──▶ Finish
//	    ▲          │         │                    │
//	    └── Clear ◀┴ refused ┘                    └ evicted there, or gone ──▶ Retry ──▶ Clear
func Manage(j *Job, clusters []Cluster, now time.Time) Step {
	if s, stray := strays(j, clusters); stray {
		return s
	}
	switch {
	case j.Over:
		return Step{Do: Rest, Record: j.Record}
	case j.Runs != "":
		return follow(j, clusters, now)
	case j.Open && len(j.Nominated) <= j.mostNominated():
		if s, found := advance(j, clusters); found {
			return s
		}
	}
	s := Next(j, clusters, now)
	if s.Do == Nominate {
		s.Gone = nil // no cluster is on record any more, and a copy that is created late has a gate
	}
	return s
}

// keeps returns the clusters whose copies the job needs.
func keeps(j *Job, clusters []Cluster) (out []string) {
	switch {
	case j.Over:
	case j.Runs != "":
		out = []string{j.Runs}
	case len(j.Nominated) <= j.mostNominated():
		out = slices.Clone(j.Nominated)
	}
	return slices.DeleteFunc(out, func(name string) bool { return find(clusters, name).Deleted })
}

func index(clusters []Cluster, name string) (int, bool) {
	i := slices.IndexFunc(clusters, func(c Cluster) bool { return c.Name == name })
	return i, i >= 0
}

// strays clears the clusters that have, or may have, a copy that the job does not need.
func strays(j *Job, clusters []Cluster) (s Step, found bool) {
	s = Step{Do: Clear, Record: j.Record}
	s.Record.In = nil
	kept, cut, stopped := keeps(j, clusters), (*Cluster)(nil), false
	for _, name := range kept {
		if _, listed := index(clusters, name); slices.Contains(j.Record.In, name) && !listed {
			s.Record.In = append(s.Record.In, name)
		}
	}
	for i := range clusters {
		c := &clusters[i]
		held := slices.Contains(j.Record.In, c.Name)
		has := c.Copy != nil && !c.Copy.Foreign
		isKept := slices.Contains(kept, c.Name)
		switch needed := isKept && (!has || !j.replaces(c)); {
		case needed && held:
			s.Record.In = append(s.Record.In, c.Name)
		case !needed && c.Connected && (held || has):
			s.Gone = append(s.Gone, c.Name)
			if isKept {
				s.Record.In = append(s.Record.In, c.Name) // the next copy is created there
			}
		case !needed && held && (c.Stopped || c.Ungranted): // a copy without grant has a gate
			stopped = true
		case !needed && held:
			s.Record.In = append(s.Record.In, c.Name)
			cut = c
		}
	}
	dead := func(name string) bool {
		_, listed := index(clusters, name)
		return !slices.Contains(kept, name) && !listed
	}
	if len(s.Gone) > 0 || stopped || slices.ContainsFunc(j.Record.In, dead) {
		return s, true
	}
	if j.Over && cut != nil {
		s.Do, s.Record = Rest, j.Record
		return unreached(s, cut, "cluster %s cannot be reached, and may still have a copy"), true
	}
	return s, false
}

// replaces reports whether the copy in the cluster must be replaced before the grant: it was created for another Workload, or its fence
// is not the one on record.
func (j *Job) replaces(c *Cluster) bool {
	return c.Copy.Stale || c.Copy.Gated && c.Copy.Fence != j.Record.fence(c.Name)
}

// advance takes the next step for the copy of a nominated cluster that may run first. It takes none while the workers have to act.
func advance(j *Job, clusters []Cluster) (s Step, found bool) {
	for _, name := range j.Nominated {
		c := find(clusters, name)
		if !c.Connected || c.Lacks != "" {
			continue
		}
		next, has := advanceOne(j, c)
		if has && next.Do == Commit {
			return next, true
		}
		if has && !found {
			s, found = next, true
		}
	}
	return s, found
}

func advanceOne(j *Job, c *Cluster) (s Step, found bool) {
	s = Step{Cluster: c.Name, Record: j.Record.with(c.Name)}
	switch w := c.Copy; {
	case w == nil && c.Idle == "":
		s.Do = Offer
	case w == nil || w.Foreign || w.Leaving || w.Changed != "":
		return s, false
	case w.Admitted || w.Finished:
		s.Do, s.Message = Commit, fmt.Sprintf("The workload was admitted on %q", c.Name)
	case c.Idle != "":
		return s, false
	case w.Gated:
		s.Do = Grant
	default:
		return s, false
	}
	return s, true
}

// follow returns the step for a job that runs in a cluster.
func follow(j *Job, clusters []Cluster, now time.Time) Step {
	c := find(clusters, j.Runs)
	s := Step{Cluster: c.Name, Record: j.Record}
	refused := func(why Reason, message string) {
		s.Do, s.Record = Retry, at(j.Record.Refused(Refusal{Cluster: c.Name, Reason: why, Message: message, At: now, Copy: c.Copy.UID}), now)
	}
	switch w := c.Copy; {
	case c.Stopped:
		s.Do, s.Message = Retry, lost(c.Name)
	case !c.Connected:
		return unreached(s, c, "cluster %s cannot be reached, and runs the job")
	case w == nil || w.Foreign:
		s.Do, s.Gone, s.Message = Retry, []string{c.Name}, "Admitting remote no longer exists"
	case w.Changed != "":
		refused(Rejected, w.Changed)
		s.Message = fmt.Sprintf("cluster %s does not run the job as it is here: %s", c.Name, w.Changed)
	case w.Finished:
		s.Do, s.Message = Finish, w.Message
	case !w.Admitted || w.Leaving:
		refused(Evicted, w.Message)
		s.Message = fmt.Sprintf("Workload evicted on worker cluster: %q, resetting for re-admission", c.Name)
	case w.Held && c.Idle != "":
		s.Message = fmt.Sprintf("cluster %s does not start the job: %s", c.Name, c.Idle)
		other := pick(j.Record, clusters, []string{c.Name}, now)
		if !other.eligible(now) {
			s.At, s.Message = other.again(), s.Message+noOther
			return waits(s)
		}
		refused(Late, c.Idle)
	case s.Record.Waits != "":
		s.Record.Waits = "" // it is over; the next step follows the job
	default:
		s.Do = Follow
	}
	return s
}

package scenario

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// whole judges what the fields of the file request together, each of which is sound.
func (j *judge) whole(s *Scenario) {
	var nodes, bought, jobs int64
	for _, n := range s.Nodes {
		nodes += int64(n.Count)
	}
	for _, g := range s.Groups {
		bought += int64(g.Spec.MaxNodes)
	}
	for _, a := range s.Arrivals {
		jobs += int64(a.Count)
	}
	j.sum(nodes, mostNodes, "nodes", field.NewPath("nodes"))
	j.sum(bought, mostBought, "machines that may be bought", field.NewPath("groups"))
	if j.sum(jobs, mostJobs, "Jobs", field.NewPath("arrivals")) {
		j.arrivals(s)
	}
	if s.Faults != nil {
		j.occurrences(s)
	}
	all := s.machines()
	for i := range s.Arrivals {
		a := &s.Arrivals[i]
		for k := range a.Shapes {
			for _, p := range a.Shapes[k].podSets() {
				j.fits(a, &a.Shapes[k], p, all, field.NewPath("arrivals").Index(i).Child("shapes").Index(k))
			}
		}
	}
}

// sum says whether the number is within its bound.
func (j *judge) sum(n, most int64, what string, path *field.Path) bool {
	if n > most {
		j.Refuse(path, "there are %d %s together; give at most %d", n, what, most)
	}
	return n <= most
}

// arrivals judges the Jobs as they are drawn.
func (j *judge) arrivals(s *Scenario) {
	var pods int64
	var runs float64 // in nanoseconds, of which 64 bits may be too few
	for i := range s.Arrivals {
		if !j.inTime(s, i) {
			continue
		}
		for _, job := range s.draw(i) {
			pods += int64(job.Shape.AllPods()) * int64(1+job.Shape.Retries)
			runs += float64(job.RunFor)
		}
	}
	path := field.NewPath("arrivals")
	j.sum(pods, mostAllPods, "pods, each counted with its retries,", path)
	if runs > float64(mostRun) {
		j.Refuse(path, "one after the other the Jobs run for %.0f years; give fewer, or a shorter runFor: at most 200", runs/float64(mostTime))
	}
}

// inTime says whether all Jobs of an arrival come before the scenario ends.
func (j *judge) inTime(s *Scenario, i int) bool {
	a, when, ends := &s.Arrivals[i], field.NewPath("arrivals").Index(i).Child("when"), s.Ends.AtMost.Duration
	from, every := a.When.From.Duration, a.When.Every.Duration
	switch {
	case from >= ends:
		j.Refuse(when.Child("from"), "it is %s, but the run ends after %s (ends.atMost); let the Jobs come sooner, or the run end later", from,
			ends)
		return false
	// Divided, since the product may pass 64 bits.
	case every > 0 && a.Count > 1 && every > (ends-from-1)/time.Duration(a.Count-1):
		j.Refuse(when.Child("every"), "with %s between two, not all %d Jobs come until the run ends after %s (ends.atMost); give less, or "+
			"fewer Jobs, or let the run end later", every, a.Count, ends)
		return false
	case a.When.PerHour == 0:
		return true
	}
	jobs := s.draw(i)
	last := jobs[len(jobs)-1].At
	if last >= ends {
		j.Refuse(when.Child("perHour"), "at %d an hour the last of %d Jobs comes after %s, but the run ends after %s (ends.atMost); give more, "+
			"or fewer Jobs, or let the run end later", a.When.PerHour, a.Count, last.Round(time.Second), ends)
	}
	return last < ends
}

// occurrences judges how often faults come.
func (j *judge) occurrences(s *Scenario) {
	var n int64
	for _, f := range s.Faults.Faults {
		n++
		if left := s.Ends.AtMost.Duration - f.At.Duration; f.Every.Duration > 0 && left > 0 {
			n += int64(left / f.Every.Duration)
		}
	}
	j.sum(n, mostOccurrences, "times at which a fault comes until ends.atMost", field.NewPath("faults", "faults"))
}

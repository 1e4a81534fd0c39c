package notify

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/standing"
	"github.com/muster-dev/muster/queueing/workload"
)

// Delays are the estimates of Workloads that wait, by their keys.
type Delays map[types.NamespacedName]*estimate

type estimate struct {
	// by is the latest start of the first estimate, and newest the start of the newest.
	by, newest time.Time
	reported   bool
}

// Estimate takes in the estimates of a LocalQueue's Workloads.
func (d Delays) Estimate(namespace string, s *standing.Standing) {
	for name, place := range s.Places {
		if place.Late.IsZero() {
			continue
		}
		key := types.NamespacedName{Namespace: namespace, Name: name}
		if d[key] == nil {
			d[key] = &estimate{by: place.Late}
		}
		d[key].newest = place.Start
	}
}

// Settle forgets a Workload that does not wait any more.
func (d Delays) Settle(w *kueue.Workload) {
	if workload.IsAdmitted(w) || workload.IsFinished(w) || !workload.IsActive(w) || !w.DeletionTimestamp.IsZero() {
		d.Forget(workload.KeyOf(w))
	}
}

// Forget forgets a Workload.
func (d Delays) Forget(key types.NamespacedName) { delete(d, key) }

// Overdue returns the keys of the Workloads whose first estimate has passed, each once.
func (d Delays) Overdue(now time.Time) (out []types.NamespacedName) {
	for key, e := range d {
		if !e.reported && e.by.Before(now) {
			e.reported = true
			out = append(out, key)
		}
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

// Of returns the Notification of a Workload that is overdue; none if it does not wait any more: an estimate may outlive its wait.
func (d Delays) Of(w *kueue.Workload) []Notification {
	d.Settle(w)
	e := d[workload.KeyOf(w)]
	if e == nil {
		return nil
	}
	job := jobOf(w, w)
	job.ExpectedBy = e.by.UTC()
	more := "."
	if e.newest.After(e.by) {
		job.NowExpected = e.newest.UTC()
		more = "; it is now expected at about " + job.NowExpected.Format(time.RFC3339) + "."
	}
	return []Notification{about(w, Delayed, e.by, job,
		"waits longer than estimated: it was expected to start by "+job.ExpectedBy.Format(time.RFC3339)+more)}
}

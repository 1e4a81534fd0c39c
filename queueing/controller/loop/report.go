package loop

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/when"
	"github.com/muster-dev/muster/queueing/controller/writes"
)

const (
	// reportEvery is the shortest interval between two status writes of one object, and between two computations of all statuses while
	// none may be written.
	reportEvery = time.Second
	// reportWithin is when a status that changed is written at the latest, however much else
	// there is to write.
	reportWithin = 10 * time.Second
	// actsPerReport is how many writes for Workloads pay for that of a status; a second pays
	// for one, too. savedReports is how many may be saved up, which is what a quiet cluster
	// lives on.
	actsPerReport = 20
	savedReports  = 20
)

// reporter spaces the status writes of queues, cohorts and checks.
type reporter struct {
	// wanted are the statuses that objects should have, as functions that set them.
	wanted map[name]status
	// last is when a status was written, or found to be right.
	last     map[types.UID]time.Time
	underWay map[types.UID]bool
	computed time.Time

	// saved counts the writes for Workloads that no status was written for.
	saved int
	// earned is until when time has paid.
	earned time.Time
}

// status puts a status into an object.
type status func(client.Object)

func newReporter() *reporter {
	return &reporter{
		wanted: map[name]status{}, last: map[types.UID]time.Time{}, underWay: map[types.UID]bool{},
		saved: savedReports * actsPerReport,
	}
}

// acted counts a write for a Workload.
func (r *reporter) acted() { r.earn(1) }

func (r *reporter) earn(acts int) { r.saved = min(r.saved+acts, savedReports*actsPerReport) }

// refill lets the time that has passed pay.
func (r *reporter) refill(now time.Time) {
	if r.earned.IsZero() {
		r.earned = now
	}
	const step = time.Second / actsPerReport
	steps := now.Sub(r.earned) / step
	r.earn(int(min(steps, savedReports*actsPerReport)))
	r.earned = r.earned.Add(steps * step)
}

// pays reports whether a status may be written that was written last at that time.
func (r *reporter) pays(last, now time.Time) bool {
	return r.saved >= actsPerReport || !now.Before(last.Add(reportWithin))
}

func (r *reporter) remove(object client.Object) {
	delete(r.wanted, nameOf(object))
	delete(r.last, object.GetUID())
}

// publish starts the writes of statuses that have changed, and returns when to continue with those that are not due yet.
func (l *Loop) publish(now time.Time) (next time.Time) {
	r := l.report
	r.refill(now)
	if r.saved < actsPerReport && now.Before(r.computed.Add(reportEvery)) {
		return r.computed.Add(reportEvery)
	}
	r.computed = now
	l.compute(now)
	for _, n := range l.waiting() {
		object := l.known.named[n]
		if object == nil {
			// It comes with the informer, or is gone.
			delete(r.wanted, n)
			continue
		}
		uid := object.GetUID()
		last := r.last[uid]
		switch {
		case r.underWay[uid]:
			continue
		case now.Before(last.Add(reportEvery)):
			next = when.Earliest(next, last.Add(reportEvery))
			continue
		case !r.pays(last, now):
			next = when.Earliest(next, now.Add(reportEvery))
			continue
		}
		want := object.DeepCopyObject().(client.Object)
		set := r.wanted[n]
		set(want)
		delete(r.wanted, n)
		if equality.Semantic.DeepEqual(object, want) {
			continue
		}
		r.saved = max(r.saved-actsPerReport, -savedReports*actsPerReport)
		r.last[uid] = now
		l.write(n, want, set)
	}
	return next
}

// waiting are the names of what is to be written, those first whose status was written longest
// ago.
func (l *Loop) waiting() []name {
	names := make([]name, 0, len(l.report.wanted))
	for n := range l.report.wanted {
		names = append(names, n)
	}
	last := func(n name) time.Time {
		if o := l.known.named[n]; o != nil {
			return l.report.last[o.GetUID()]
		}
		return time.Time{}
	}
	slices.SortFunc(names, func(a, b name) int {
		return cmp.Or(last(a).Compare(last(b)), strings.Compare(a.kind.String(), b.kind.String()),
			strings.Compare(a.key.String(), b.key.String()))
	})
	return names
}

// write updates a status. It is an update and not a patch, so that counts of zero are written,
// too.
func (l *Loop) write(n name, want client.Object, set status) {
	uid := want.GetUID()
	l.report.underWay[uid] = true
	l.start(writes.Paced, want.GetNamespace(), func(ctx context.Context) writes.Done {
		began := l.now()
		err := l.writer.Client.Status().Update(ctx, want)
		took := l.now().Sub(began)
		return func(now time.Time) {
			l.reasons.Took(took, now)
			delete(l.report.underWay, uid)
			if l.known.objects[uid] == nil {
				return
			}
			if err == nil {
				want.SetManagedFields(nil)
				l.set(want)
				return
			}
			if !writes.IsStale(err) {
				l.log.Error(err, "Writing a status failed", "kind", n.kind.Elem().Name(), "name", n.key)
			}
			if l.report.wanted[n] == nil {
				l.report.wanted[n] = set
			}
		}
	})
}

// compute takes in the statuses that have changed.
func (l *Loop) compute(now time.Time) {
	report := l.state.Report(now)
	for key, s := range report.ClusterQueues {
		l.want(nameIn[*kueue.ClusterQueue]("", key), func(o client.Object) { o.(*kueue.ClusterQueue).Status = s })
	}
	for key, s := range report.LocalQueues {
		l.want(nameIn[*kueue.LocalQueue](key.Namespace, key.Name), func(o client.Object) { o.(*kueue.LocalQueue).Status = s })
	}
	for key, s := range report.Cohorts {
		l.want(nameIn[*kueue.Cohort]("", key), func(o client.Object) { o.(*kueue.Cohort).Status = s })
	}
	for key, s := range report.Checks {
		l.want(nameIn[*kueue.AdmissionCheck]("", key), func(o client.Object) { o.(*kueue.AdmissionCheck).Status = s })
	}
	l.metrics.Cohorts(report.Trees, report.Whole)
}

func (l *Loop) want(n name, s status) {
	l.report.wanted[n] = s
	l.showStatus(l.known.named[n], s)
}

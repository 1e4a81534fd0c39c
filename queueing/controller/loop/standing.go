package loop

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/forecast"
	"github.com/muster-dev/muster/queueing/standing"
)

// mostStandings are written after a forecast, so that there is one write a second at most. The others follow after the next.
const mostStandings = 60

// tellStandings publishes for each LocalQueue how its Workloads stand, if that has changed; nil is the forecast of a cluster in which none
// waits.
func (l *Loop) tellStandings(report *forecast.Report) {
	starts := map[types.UID]*forecast.Estimate{}
	if report != nil {
		for i := range report.Estimates {
			starts[report.Estimates[i].Workload.UID] = &report.Estimates[i]
		}
	}
	type change struct {
		of  *kueue.LocalQueue
		now string
	}
	var changed []change
	for _, o := range l.known.named {
		lq, ok := o.(*kueue.LocalQueue)
		if !ok {
			continue
		}
		cq, ok := l.known.named[nameIn[*kueue.ClusterQueue]("", string(lq.Spec.ClusterQueue))].(*kueue.ClusterQueue)
		if !ok {
			continue
		}
		if now := l.standingOf(lq, cq, starts).Encode(); now != lq.Annotations[standing.Annotation] {
			changed = append(changed, change{lq, now})
		}
	}
	// Those that were written longest ago come first.
	slices.SortFunc(changed, func(a, b change) int {
		return cmp.Or(l.told[a.of.UID].Compare(l.told[b.of.UID]), strings.Compare(a.of.Namespace, b.of.Namespace),
			strings.Compare(a.of.Name, b.of.Name))
	})
	for _, c := range changed[:min(len(changed), mostStandings)] {
		l.tellStanding(c.of, c.now)
	}
}

func (l *Loop) standingOf(lq *kueue.LocalQueue, cq *kueue.ClusterQueue, starts map[types.UID]*forecast.Estimate) *standing.Standing {
	line := l.state.PendingInOrder(lq.Spec.ClusterQueue)
	out := &standing.Standing{Pending: len(line), Flavors: standing.FlavorsOf(cq, l.state.Flavors, l.state.Capacity())}
	for i, w := range line {
		if w.Namespace != lq.Namespace || string(w.Spec.QueueName) != lq.Name || len(out.Places) == standing.MostPlaces {
			continue
		}
		p := standing.Place{Position: i + 1}
		if e := starts[w.UID]; e != nil {
			p.Start, p.Early, p.Late = toTheMinute(e.Start), toTheMinute(e.Early), toTheMinute(e.Late)
		}
		if out.Places == nil {
			out.Places = map[string]standing.Place{}
		}
		out.Places[w.Name] = p
	}
	return out
}

func toTheMinute(t time.Time) time.Time { return t.UTC().Truncate(time.Minute) }

// tellStanding patches the annotation alone.
func (l *Loop) tellStanding(lq *kueue.LocalQueue, now string) {
	l.told[lq.UID] = l.now()
	l.start(writes.Paced, lq.Namespace, func(ctx context.Context) writes.Done {
		err := l.writer.Annotate(ctx, lq, standing.Annotation, now)
		return func(time.Time) {
			if err != nil {
				l.log.Error(err, "Publishing how the Workloads of a LocalQueue stand failed", "name", client.ObjectKeyFromObject(lq))
			}
		}
	})
}

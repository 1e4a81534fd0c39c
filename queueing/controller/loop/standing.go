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

// publishStandings publishes the Standing of each LocalQueue whose Standing has changed. The report is nil if no Workload waits.
func (l *Loop) publishStandings(report *forecast.Report) {
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
	queues := map[kueue.ClusterQueueReference]*queueStanding{}
	for _, o := range l.known.named {
		lq, ok := o.(*kueue.LocalQueue)
		if !ok {
			continue
		}
		cq, ok := l.known.named[nameIn[*kueue.ClusterQueue]("", string(lq.Spec.ClusterQueue))].(*kueue.ClusterQueue)
		if !ok {
			continue
		}
		q := queues[lq.Spec.ClusterQueue]
		if q == nil {
			q = l.queueStanding(cq, starts)
			queues[lq.Spec.ClusterQueue] = q
		}
		if now := q.of(lq).Encode(); now != lq.Annotations[standing.Annotation] {
			changed = append(changed, change{lq, now})
		}
	}
	// The statuses that were written longest ago come first.
	slices.SortFunc(changed, func(a, b change) int {
		return cmp.Or(l.published[a.of.UID].Compare(l.published[b.of.UID]), strings.Compare(a.of.Namespace, b.of.Namespace),
			strings.Compare(a.of.Name, b.of.Name))
	})
	for _, c := range changed[:min(len(changed), mostStandings)] {
		l.publishStanding(c.of, c.now)
	}
}

// queueStanding is what the LocalQueues of a ClusterQueue publish.
type queueStanding struct {
	pending int
	flavors []standing.Flavor
	// places are those of the Workloads of each LocalQueue.
	places map[types.NamespacedName]map[string]standing.Place
}

func (l *Loop) queueStanding(cq *kueue.ClusterQueue, starts map[types.UID]*forecast.Estimate) *queueStanding {
	pending := l.state.PendingInOrder(kueue.ClusterQueueReference(cq.Name))
	out := &queueStanding{
		pending: len(pending), flavors: standing.FlavorsOf(cq, l.state.Flavors, l.state.Capacity()),
		places: map[types.NamespacedName]map[string]standing.Place{},
	}
	for i, w := range pending {
		key := types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}
		if len(out.places[key]) == standing.MostPlaces {
			continue
		}
		p := standing.Place{Position: i + 1}
		if e := starts[w.UID]; e != nil {
			p.Start, p.Early, p.Late = toTheMinute(e.Start), toTheMinute(e.Early), toTheMinute(e.Late)
		}
		if out.places[key] == nil {
			out.places[key] = map[string]standing.Place{}
		}
		out.places[key][w.Name] = p
	}
	return out
}

// of returns the Standing of a LocalQueue.
func (q *queueStanding) of(lq *kueue.LocalQueue) *standing.Standing {
	return &standing.Standing{Pending: q.pending, Flavors: q.flavors, Places: q.places[client.ObjectKeyFromObject(lq)]}
}

func toTheMinute(t time.Time) time.Time { return t.UTC().Truncate(time.Minute) }

// publishStanding patches the annotation.
func (l *Loop) publishStanding(lq *kueue.LocalQueue, now string) {
	l.published[lq.UID] = l.now()
	l.start(writes.Paced, lq.Namespace, func(ctx context.Context) writes.Done {
		err := l.writer.Annotate(ctx, lq, standing.Annotation, now)
		return func(time.Time) {
			if err != nil {
				l.log.Error(err, "Publishing how the Workloads of a LocalQueue stand failed", "name", client.ObjectKeyFromObject(lq))
			}
		}
	})
}

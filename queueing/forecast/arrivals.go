package forecast

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/cache"
)

const (
	// leastPast is for how long Workloads must have been coming before their number says how
	// many come: the first ones of a cluster come together.
	leastPast = 3 * time.Hour
	// halfLife is after what time an arrival says half as much about those to come:
	// days differ from nights, and weeks from weekends.
	halfLife = 12 * time.Hour
	// mostArrivals are remembered of a stream, the latest ones.
	mostArrivals = 64
	// mostComers bounds how many come in one draw, and so what it costs.
	mostComers = 2000
	// usualSilence is how many mean times between arrivals may pass without one before
	// a stream is less likely to go on.
	usualSilence = 2
)

// source is what arrivals are remembered by.
type source struct {
	kind
	priority int32
}

// arrivals are those of a source.
type arrivals struct {
	// like is the one that came last, without what says nothing about when it starts.
	like *kueue.Workload
	// began is when the first came that was seen, and times are the latest, the oldest first.
	began time.Time
	times []time.Time
}

// Arrived takes in a Workload that was created, once. Others like it are expected to
// come as it did.
func (h *History) Arrived(w *kueue.Workload) {
	if len(w.Spec.PodSets) == 0 {
		// It says nothing about what others like it request.
		return
	}
	from := source{kindOf(w), priorityOf(w)}
	at := w.CreationTimestamp.Time
	if h.since.IsZero() || at.Before(h.since) {
		h.since = at
	}
	known := h.sources[from]
	if known == nil {
		if h.sources == nil {
			h.sources = map[source]*arrivals{}
		}
		if len(h.sources) >= mostKinds {
			h.forgetSource()
		}
		known = &arrivals{like: bare(w), began: at}
	}
	next := *known
	if !at.Before(next.like.CreationTimestamp.Time) {
		next.like = bare(w)
	}
	if at.Before(next.began) {
		next.began = at
	}
	if i, _ := slices.BinarySearchFunc(next.times, at, time.Time.Compare); i == len(next.times) {
		next.times = append(next.times, at)
	} else {
		next.times = slices.Insert(slices.Clone(next.times), i, at)
	}
	next.times = next.times[max(0, len(next.times)-mostArrivals):]
	h.sources[from] = &next
}

// forgetSource drops the source whose last arrival is the oldest.
func (h *History) forgetSource() {
	delete(h.sources, slices.MinFunc(slices.Collect(maps.Keys(h.sources)), func(a, b source) int {
		return h.sources[a].last().Compare(h.sources[b].last())
	}))
}

func (a *arrivals) last() time.Time { return a.times[len(a.times)-1] }

// bare is a Workload as if it had just been created, with what decides when it starts and
// how long it runs: thousands are kept, and commands and volumes are most of one.
func bare(w *kueue.Workload) *kueue.Workload {
	out := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.Namespace, Name: w.Name, UID: w.UID, CreationTimestamp: w.CreationTimestamp, Generation: 1,
		Annotations: w.Annotations, OwnerReferences: w.OwnerReferences,
	}}
	out.Spec.QueueName, out.Spec.Priority, out.Spec.PriorityClassRef = w.Spec.QueueName, w.Spec.Priority, w.Spec.PriorityClassRef
	out.Spec.MaximumExecutionTimeSeconds = w.Spec.MaximumExecutionTimeSeconds
	for i := range w.Spec.PodSets {
		ps := w.Spec.PodSets[i]
		spec := ps.Template.Spec
		ps.Template.ObjectMeta = metav1.ObjectMeta{}
		ps.Template.Spec = corev1.PodSpec{
			NodeSelector: spec.NodeSelector, Affinity: spec.Affinity, Tolerations: spec.Tolerations,
			TopologySpreadConstraints: spec.TopologySpreadConstraints, Overhead: spec.Overhead,
			ResourceClaims: spec.ResourceClaims, Resources: spec.Resources,
			InitContainers: bareContainers(spec.InitContainers), Containers: bareContainers(spec.Containers),
		}
		out.Spec.PodSets = append(out.Spec.PodSets, ps)
	}
	return out
}

func bareContainers(list []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(list))
	for i := range list {
		out[i] = corev1.Container{Name: list[i].Name, Image: list[i].Image, Resources: list[i].Resources, RestartPolicy: list[i].RestartPolicy}
	}
	return out
}

// stream are the Workloads of a source that are expected to come.
type stream struct {
	name string
	like *cache.Workload
	// gap is the mean time between two, and count how many it was learned from.
	gap   time.Duration
	count int
	// silent is for how long none has come, and seen for how long they have been coming.
	silent, seen time.Duration
	length       *length
	likeness     likeness
}

// hourly is how many come in an hour.
func (s *stream) hourly() float64 { return float64(time.Hour) / float64(s.gap) }

// streams are what is to be expected from now on, in the order of their names.
func (h *History) streams(state *queueing.State, now time.Time) []*stream {
	if h == nil || len(h.sources) == 0 || now.Sub(h.since) < leastPast {
		return nil
	}
	var out []*stream
	// What their specs come to is worked out once.
	read := state.WithoutWorkloads(nil)
	byUID := map[types.UID]*stream{}
	for from, a := range h.sources {
		rate := a.rate(h.since, now)
		if rate <= 0 {
			continue
		}
		s := &stream{
			name: fmt.Sprintf("%s %x %d", from.queue, from.template, from.priority),
			gap:  time.Duration(float64(time.Hour) / rate), count: len(a.times),
			silent: now.Sub(a.last()), seen: now.Sub(a.began), length: h.lengthOf(a.like),
		}
		byUID[a.like.UID] = s
		read.Set(a.like)
		out = append(out, s)
	}
	for _, w := range read.AllWorkloads() {
		s := byUID[w.Object.UID]
		s.like, s.likeness = w, likenessOf(w)
	}
	slices.SortFunc(out, func(a, b *stream) int { return strings.Compare(a.name, b.name) })
	return out
}

// rate is how many come in an hour: so many as have come, in the time in which they were
// looked for, where both count for less the longer ago they are.
func (a *arrivals) rate(since, now time.Time) float64 {
	times := a.times
	if len(times) == mostArrivals {
		// Older ones are forgotten. The time that is looked at begins with the oldest.
		since, times = times[0], times[1:]
	}
	faded := func(age time.Duration) float64 { return math.Exp2(-age.Hours() / halfLife.Hours()) }
	var came float64
	for _, at := range times {
		came += faded(now.Sub(at))
	}
	looked := halfLife.Hours() / math.Ln2 * (1 - faded(now.Sub(since)))
	if looked <= 0 {
		return 0
	}
	return came / looked
}

// expect has Workloads come from the streams, each with a rate that it may well have had:
// few arrivals say little about it. What has gone on for so long may go on for as long
// again, which each draw believes in part; a stream that has fallen silent may have ended.
func (f *future) expect(streams []*stream) {
	var hourly float64
	for _, s := range streams {
		hourly += s.hourly()
	}
	enough := time.Duration(mostComers / max(hourly, 1) * float64(time.Hour))
	part := (float64(f.number) + 0.5) / draws
	for _, s := range streams {
		silence := float64(s.silent)/float64(s.gap) - usualSilence
		if f.chance("end of "+s.name) > math.Exp(-max(0, silence)) {
			continue
		}
		r := rand.New(rand.NewPCG(f.number, hashOf("arrivals of "+s.name)))
		var gaps float64
		for range s.count {
			gaps += r.ExpFloat64()
		}
		gap := time.Duration(float64(s.gap) * float64(s.count) / max(gaps, 0.1))
		until := f.now.Add(min(time.Duration(part*float64(s.seen)), enough))
		f.await(s, r, gap, f.now, until)
	}
}

// await has the next of a stream come, and those after it.
func (f *future) await(s *stream, r *rand.Rand, gap time.Duration, last, until time.Time) {
	at := last.Add(time.Duration(r.ExpFloat64() * float64(gap)))
	if at.After(until) {
		return
	}
	f.at(at, func() {
		f.arrive(s)
		f.await(s, r, gap, at, until)
	})
}

// arrive has one of a stream come now.
func (f *future) arrive(s *stream) {
	f.came[s]++
	o := *s.like.Object
	o.Name = fmt.Sprintf("%s-later-%d", o.Name, f.came[s])
	o.UID, o.CreationTimestamp = types.UID(s.name+" "+o.Name), metav1.NewTime(f.now)
	w := *s.like
	w.Object = &o
	f.lengths[o.UID] = s.length
	f.lineOf[o.UID] = f.laneOf(&o).come(&w, s.likeness)
}

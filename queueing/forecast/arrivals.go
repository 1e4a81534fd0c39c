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
	// minObservation is how long arrivals must have been observed before they are extrapolated: the first Workloads of
	// a cluster arrive together.
	minObservation = 3 * time.Hour
	// halfLife is the age at which an arrival counts half: nights differ from days, and weekends from weeks.
	halfLife = 12 * time.Hour
	// maxArrivals is the number of arrivals that are kept of a source, the latest ones.
	maxArrivals = 64
	// maxArrivalsPerDraw bounds the arrivals in one draw, and so its cost.
	maxArrivalsPerDraw = 2000
	// usualSilence is how many mean gaps may pass without an arrival before a stream becomes less likely to continue.
	usualSilence = 2
)

// arrivalSource is the key of remembered arrivals.
type arrivalSource struct {
	kind
	priority int32
}

// arrivals are the arrivals of a source.
type arrivals struct {
	// like is the latest one, without the fields that do not affect its start.
	like *kueue.Workload
	// began is the first observed arrival; times are the latest ones, the oldest first.
	began time.Time
	times []time.Time
}

// Arrived records the creation of a Workload. Call it once for each. Similar Workloads are expected to arrive in the
// same way.
func (h *History) Arrived(w *kueue.Workload) {
	if len(w.Spec.PodSets) == 0 {
		// It does not show what similar Workloads request.
		return
	}
	from := arrivalSource{kindOf(w), priorityOf(w)}
	at := w.CreationTimestamp.Time
	if h.since.IsZero() || at.Before(h.since) {
		h.since = at
	}
	known := h.sources[from]
	if known == nil {
		if h.sources == nil {
			h.sources = map[arrivalSource]*arrivals{}
		}
		if len(h.sources) >= maxKinds {
			h.forgetSource()
		}
		known = &arrivals{like: stripped(w), began: at}
	}
	next := *known
	if !at.Before(next.like.CreationTimestamp.Time) {
		next.like = stripped(w)
	}
	if at.Before(next.began) {
		next.began = at
	}
	if i, _ := slices.BinarySearchFunc(next.times, at, time.Time.Compare); i == len(next.times) {
		next.times = append(next.times, at)
	} else {
		next.times = slices.Insert(slices.Clone(next.times), i, at)
	}
	next.times = next.times[max(0, len(next.times)-maxArrivals):]
	h.sources[from] = &next
}

// forgetSource forgets the source whose last arrival is the oldest.
func (h *History) forgetSource() {
	delete(h.sources, slices.MinFunc(slices.Collect(maps.Keys(h.sources)), func(a, b arrivalSource) int {
		return h.sources[a].last().Compare(h.sources[b].last())
	}))
}

func (a *arrivals) last() time.Time { return a.times[len(a.times)-1] }

// stripped returns a Workload as just created, with only the fields that affect its start and run time. Thousands are
// kept, and most of a Workload are commands and volumes.
func stripped(w *kueue.Workload) *kueue.Workload {
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
			InitContainers: strippedContainers(spec.InitContainers), Containers: strippedContainers(spec.Containers),
		}
		out.Spec.PodSets = append(out.Spec.PodSets, ps)
	}
	return out
}

func strippedContainers(list []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(list))
	for i := range list {
		out[i] = corev1.Container{Name: list[i].Name, Image: list[i].Image, Resources: list[i].Resources, RestartPolicy: list[i].RestartPolicy}
	}
	return out
}

// arrivalStream is the expected arrivals of a source.
type arrivalStream struct {
	name string
	like *cache.Workload
	// gap is the mean time between two arrivals, and count the number of arrivals that it is based on.
	gap   time.Duration
	count int
	// silent is the time since the last arrival, and seen the time since the first.
	silent, seen time.Duration
	length       *runTime
	likeness     groupKey
}

// perHour is the mean number of arrivals per hour.
func (s *arrivalStream) perHour() float64 { return float64(time.Hour) / float64(s.gap) }

// streams returns the expected arrivals, sorted by name.
func (h *History) streams(state *queueing.State, now time.Time) []*arrivalStream {
	if h == nil || len(h.sources) == 0 || now.Sub(h.since) < minObservation {
		return nil
	}
	var out []*arrivalStream
	// Derive the data of each spec once.
	read := state.WithoutWorkloads(nil)
	byUID := map[types.UID]*arrivalStream{}
	for from, a := range h.sources {
		rate := a.rate(h.since, now)
		if rate <= 0 {
			continue
		}
		s := &arrivalStream{
			name: fmt.Sprintf("%s %x %d", from.queue, from.template, from.priority),
			gap:  time.Duration(float64(time.Hour) / rate), count: len(a.times),
			silent: now.Sub(a.last()), seen: now.Sub(a.began), length: h.runTimeOf(a.like),
		}
		byUID[a.like.UID] = s
		read.Set(a.like)
		out = append(out, s)
	}
	for _, w := range read.AllWorkloads() {
		s := byUID[w.Object.UID]
		s.like, s.likeness = w, groupKeyOf(w)
	}
	slices.SortFunc(out, func(a, b *arrivalStream) int { return strings.Compare(a.name, b.name) })
	return out
}

// rate returns the arrivals per hour: the observed arrivals divided by the observed time, both weighted by age.
func (a *arrivals) rate(since, now time.Time) float64 {
	times := a.times
	if len(times) == maxArrivals {
		// Older arrivals are forgotten, so the observed time begins with the oldest one kept.
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

// addArrivals schedules arrivals of the streams. Few arrivals say little about a rate, so each draw picks a plausible
// rate of its own. Arrivals may continue for as long again as they were observed; each draw assumes a part of that. A
// stream without recent arrivals may have ended.
func (f *draw) addArrivals(streams []*arrivalStream) {
	var hourly float64
	for _, s := range streams {
		hourly += s.perHour()
	}
	enough := time.Duration(maxArrivalsPerDraw / max(hourly, 1) * float64(time.Hour))
	part := (float64(f.number) + 0.5) / draws
	for _, s := range streams {
		silence := float64(s.silent)/float64(s.gap) - usualSilence
		if f.random("end of "+s.name) > math.Exp(-max(0, silence)) {
			continue
		}
		r := rand.New(rand.NewPCG(f.number, hashOf("arrivals of "+s.name)))
		var gaps float64
		for range s.count {
			gaps += r.ExpFloat64()
		}
		gap := time.Duration(float64(s.gap) * float64(s.count) / max(gaps, 0.1))
		until := f.now.Add(min(time.Duration(part*float64(s.seen)), enough))
		f.scheduleArrival(s, r, gap, f.now, until)
	}
}

// scheduleArrival schedules the next arrival of a stream, which schedules the one after it.
func (f *draw) scheduleArrival(s *arrivalStream, r *rand.Rand, gap time.Duration, last, until time.Time) {
	at := last.Add(time.Duration(r.ExpFloat64() * float64(gap)))
	if at.After(until) {
		return
	}
	f.at(at, func() {
		f.arrive(s)
		f.scheduleArrival(s, r, gap, at, until)
	})
}

// arrive adds an arrival of a stream.
func (f *draw) arrive(s *arrivalStream) {
	f.arrived[s]++
	o := *s.like.Object
	o.Name = fmt.Sprintf("%s-later-%d", o.Name, f.arrived[s])
	o.UID, o.CreationTimestamp = types.UID(s.name+" "+o.Name), metav1.NewTime(f.now)
	w := *s.like
	w.Object = &o
	f.runTimes[o.UID] = s.length
	f.groupOf[o.UID] = f.pendingQueueOf(&o).addLast(&w, s.likeness)
}

package cloudsim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/kwok/pool"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// World is the clouds' pools, and the instances and reservations in them.
type World struct {
	config Config
	clock  clock.Clock
	began  time.Time

	mu        sync.Mutex
	pools     map[PoolKey]*Pool
	next      map[PoolKey]int64
	instances map[string]*Instance
	// launched are the instances by launch and ID.
	launched []*Instance
	// grouped are the instances by the group that owns them.
	grouped      map[string][]*Instance
	reservations map[string]*Reservation
	made         int64
	terminated   int64
	// ignored is how many terminations from now on are not carried out.
	ignored int
	calls   map[callKind]int64
	late    []lateCall
	buckets map[callKind]*rate.Limiter
	// harms are the faults of calls that have begun and not ended.
	harms []*CallFault
	// changed is closed and replaced at each change by a call.
	changed chan struct{}
}

// New returns a World that begins now.
func New(config Config, clock clock.Clock) (*World, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	w := &World{
		config: config, clock: clock, began: clock.Now(),
		pools: map[PoolKey]*Pool{}, next: map[PoolKey]int64{},
		instances: map[string]*Instance{}, grouped: map[string][]*Instance{}, reservations: map[string]*Reservation{},
		calls: map[callKind]int64{}, buckets: map[callKind]*rate.Limiter{}, changed: make(chan struct{}),
	}
	for i := range config.Pools {
		w.pools[config.Pools[i].PoolKey] = &w.config.Pools[i]
	}
	return w, nil
}

// Phase is where an instance is in its life.
type Phase string

const (
	// Pending instances are paid for and boot.
	Pending Phase = "Pending"
	// Running instances have booted.
	Running Phase = "Running"
	// Stopped instances have run, and may again. They cost nothing meanwhile.
	Stopped Phase = "Stopped"
	// Terminated instances are gone; clouds list them for a while.
	Terminated Phase = "Terminated"
)

// Instance is a machine of a cloud.
type Instance struct {
	// ID is unique in the world and names the instance in its cloud.
	ID   string
	Pool PoolKey
	// Group is the cloud's own group that owns it; empty for none.
	Group string
	Tags  map[string]string
	// Reservation that it fills a place of; empty for none.
	Reservation string
	// Together is what it shares a domain with, as its order said.
	Together string
	// Node is what registers in the cluster once it runs; nil for nothing.
	Node *kwokv1alpha1.MachineNode

	Phase Phase
	// EndsAt is when it ends by itself; zero for never.
	EndsAt time.Time
	// Ending instances are being terminated, and run until EndsAt.
	Ending bool
	// LaunchedAt, RunningAt and TerminatedAt; zero for not yet. StartedAt is when it was
	// started last: later than LaunchedAt where it was stopped in between.
	LaunchedAt, StartedAt, RunningAt, TerminatedAt time.Time
	// Reason why it was terminated: one of the constants below.
	Reason string

	// tagged are the tags by when they were given, the latest last.
	tagged []tagging

	fate pool.Machine
	// halt is the next time that it is stopped, with its notice. off are the times before.
	halt   *span
	notice time.Duration
	off    []span
	// nodeStays: its Node object outlives it.
	nodeStays bool
}

// tagging is that an instance was given tags.
type tagging struct {
	at   time.Time
	tags map[string]string
}

// Domain of its pool that it is in; empty where the pool has none.
func (i *Instance) Domain() string { return i.fate.Domain }

// span is a time from its beginning to its end; zero for no end.
type span struct{ from, to time.Time }

// Reasons of terminated instances.
const (
	ReasonTerminated = "Terminated"
	ReasonTimeOver   = "TimeOver"
	ReasonBootFailed = kwokv1alpha1.ReasonBootFailed
	ReasonReclaimed  = kwokv1alpha1.ReasonSpotReclaimed
)

// Reservation holds places in a pool, which are paid for whether or not instances
// fill them.
type Reservation struct {
	ID    string
	Pool  PoolKey
	Count int
	Tags  map[string]string
	// Together is what its places share a domain with, as its order said.
	Together string
	// Domains of its places, one for each; none where the pool has no domains.
	Domains []string
	// MadeAt is when it began, EndsAt when it ends by itself (zero for never) and
	// EndedAt when it ended. Instances go on when their reservation ends.
	MadeAt, EndsAt, EndedAt time.Time
}

// Order is the request of a launch.
type Order struct {
	Pool  PoolKey
	Count int
	// Min is the fewest that the caller takes: a pool that has less gives none.
	Min int
	// IDs that the instances get; where there are none, ID makes one up from the
	// number of the instance in the world.
	IDs []string
	ID  func(number int64) string
	// Reservation whose places are filled; empty for none.
	Reservation string
	// Together names what is in one domain of the pool, such as a placement group: with what has
	// the name already, or else in one that has room for all. Empty where the pool deals.
	Together string
	// Domains of the pool that it may use; all of them if empty.
	Domains []string
	Group   string
	Tags    map[string]string
	Node    func(id string) *kwokv1alpha1.MachineNode
}

// Launch makes instances. Fewer than Count come beside a refusal, whose code is that
// of the pool's script, or one of the constants of kwok/pool.
func (w *World) Launch(o Order) ([]Instance, *v1alpha1.KwokError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.settle()
	granted, refusal := w.grant(o, now)
	if len(granted) < o.Min {
		return nil, refusal
	}
	var out []Instance
	for i, fate := range granted {
		in := &Instance{
			Pool: o.Pool, Group: o.Group, Tags: maps.Clone(o.Tags), Reservation: o.Reservation,
			Together: o.Together, Phase: Pending, LaunchedAt: now, StartedAt: now, fate: fate,
		}
		in.tagged = []tagging{{now, maps.Clone(o.Tags)}}
		in.halt, in.notice = w.haltOf(in)
		in.nodeStays = w.nodeStays(in)
		if w.made++; i < len(o.IDs) {
			in.ID = o.IDs[i]
		} else {
			in.ID = o.ID(w.made)
		}
		if o.Node != nil {
			in.Node = o.Node(in.ID)
		}
		w.instances[in.ID] = in
		at, _ := slices.BinarySearchFunc(w.launched, in, byLaunch)
		w.launched = slices.Insert(w.launched, at, in)
		w.grouped[in.Group] = append(w.grouped[in.Group], in)
		w.next[o.Pool] = fate.Ordinal + 1
		out = append(out, in.copy())
	}
	w.tell()
	return out, refusal
}

// grant takes machines from the reservation, the quotas and the pool.
func (w *World) grant(o Order, now time.Time) ([]pool.Machine, *v1alpha1.KwokError) {
	p := w.pools[o.Pool]
	if p == nil {
		return nil, &v1alpha1.KwokError{Class: v1alpha1.Stockout, Code: pool.CodeNoCapacity, Message: fmt.Sprintf("there is no pool %s", o.Pool)}
	}
	state := pool.State{Live: w.live(o.Pool), Next: w.next[o.Pool], InDomain: map[string]int{}}
	for _, at := range w.places() {
		if at.pool == o.Pool {
			state.InDomain[at.domain]++
		}
	}
	r := w.reservations[o.Reservation]
	if r != nil && !r.EndedAt.IsZero() {
		r = nil
	}
	script := p.Script
	if script.Domains != nil {
		script.Domains = w.domainsFor(o, r, script.Domains, state.InDomain)
	}
	if r != nil {
		// Its places are there, whatever the pool says by now.
		if free := r.Count - w.filled(r.ID); o.Count > free {
			return nil, &v1alpha1.KwokError{Class: v1alpha1.Stockout, Code: CodeReservationFull,
				Message: fmt.Sprintf("reservation %s has %d free places: asked for %d", r.ID, free, o.Count)}
		}
		script.Holds = nil
		script.Faults = slices.DeleteFunc(slices.Clone(script.Faults), func(f v1alpha1.KwokFault) bool {
			return f.Type == v1alpha1.FaultDry
		})
	} else if refusal := w.overQuota(o.Pool, o.Count); refusal != nil {
		return nil, refusal
	}
	return pool.Pool{Script: script, Created: w.began, MaxMachines: state.Live + o.Count}.Launch(state, o.Count, now)
}

// place is what a machine has, or a reservation that none fills.
type place struct {
	pool             PoolKey
	domain, together string
}

func (w *World) places() (out []place) {
	for _, in := range w.instances {
		if in.Phase != Terminated {
			out = append(out, place{in.Pool, in.fate.Domain, in.Together})
		}
	}
	for _, r := range w.reservations {
		if r.EndedAt.IsZero() {
			for domain, n := range w.unfilled(r) {
				out = append(out, slices.Repeat([]place{{r.Pool, domain, r.Together}}, n)...)
			}
		}
	}
	return out
}

// unfilled are the places of a reservation in domains that no machine fills, by domain.
func (w *World) unfilled(r *Reservation) map[string]int {
	out := map[string]int{}
	for _, d := range r.Domains {
		out[d]++
	}
	for _, in := range w.instances {
		if in.Reservation == r.ID && in.Phase != Terminated && out[in.fate.Domain] > 0 {
			out[in.fate.Domain]--
		}
	}
	return out
}

// domainsFor are the domains of a pool as they are open to an order, beside what is used: one into a reservation gets its
// places, which count as used, and one that is to be together with what is there gets the domain of that.
func (w *World) domainsFor(o Order, r *Reservation, all *v1alpha1.KwokDomains, used map[string]int) *v1alpha1.KwokDomains {
	out := *all
	if r != nil {
		free := w.unfilled(r)
		out.Of, out.Placement = slices.Clone(all.Of), v1alpha1.PlacedOverflow
		for i := range out.Of {
			d := &out.Of[i]
			d.Machines = int32(used[d.Name] + free[d.Name])
		}
	}
	if len(o.Domains) > 0 {
		out.Of = slices.DeleteFunc(slices.Clone(out.Of), func(d v1alpha1.KwokDomain) bool { return !slices.Contains(o.Domains, d.Name) })
	}
	if o.Together == "" {
		return &out
	}
	out.Placement = v1alpha1.PlacedTogether
	there := map[string]bool{}
	for _, at := range w.places() {
		if at.together == o.Together {
			there[at.domain] = true
		}
	}
	if len(there) > 0 {
		out.Of = slices.DeleteFunc(slices.Clone(out.Of), func(d v1alpha1.KwokDomain) bool { return !there[d.Name] })
	}
	return &out
}

// CodeReservationFull is the code of a launch into a reservation without room.
const CodeReservationFull = "ReservationFull"

func (w *World) overQuota(k PoolKey, count int) *v1alpha1.KwokError {
	for _, q := range w.config.Quotas {
		if !q.covers(k) {
			continue
		}
		used := 0
		for other := range w.pools {
			if q.covers(other) {
				used += w.live(other)
			}
		}
		if used+count > q.Machines {
			return &v1alpha1.KwokError{Class: v1alpha1.Quota, Code: pool.CodeMaxMachines,
				Message: fmt.Sprintf("the account may have %d machines of capacity type %s in %s%s, has %d and asked for %d more",
					q.Machines, q.CapacityType, q.Cloud, " "+q.Region, used, count)}
		}
	}
	return nil
}

// live is the number of used places of the pool: of instances, and of reservations that are
// not filled.
func (w *World) live(k PoolKey) (n int) {
	for _, in := range w.instances {
		if in.Pool == k && in.Phase != Terminated {
			n++
		}
	}
	for _, r := range w.reservations {
		if r.Pool == k && r.EndedAt.IsZero() {
			n += r.Count - w.filled(r.ID)
		}
	}
	return n
}

func (w *World) filled(reservation string) (n int) {
	for _, in := range w.instances {
		if in.Reservation == reservation && in.Phase != Terminated {
			n++
		}
	}
	return n
}

// Reserve holds the places of an order, all or none, until endsAt (zero for ever).
func (w *World) Reserve(id string, o Order, endsAt time.Time) (Reservation, *v1alpha1.KwokError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.settle()
	granted, refusal := w.grant(o, now)
	if len(granted) < o.Count {
		return Reservation{}, refusal
	}
	r := &Reservation{ID: id, Pool: o.Pool, Count: o.Count, Tags: maps.Clone(o.Tags), Together: o.Together, MadeAt: now, EndsAt: endsAt}
	for _, place := range granted {
		if place.Domain != "" {
			r.Domains = append(r.Domains, place.Domain)
		}
	}
	w.reservations[id] = r
	w.tell()
	return r.copy(), nil
}

// EndReservation ends a reservation and releases its free places. Instances keep theirs. It reports whether there was such a reservation.
func (w *World) EndReservation(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.settle()
	r := w.reservations[id]
	if r != nil && r.EndedAt.IsZero() {
		r.EndedAt = now
		w.tell()
	}
	return r != nil
}

// haltOf is when the instance, the next that is made, will be stopped; nil for never.
func (w *World) haltOf(in *Instance) (halt *span, notice time.Duration) {
	for i := range w.config.Stops {
		s := &w.config.Stops[i]
		if s.Cloud == in.Pool.Cloud && s.hits(w.config.Seed, fmt.Sprintf("stop/%d", i), w.made) {
			out := &span{from: in.LaunchedAt.Add(in.fate.BootDelay + s.After.Duration)}
			if s.For.Duration > 0 {
				out.to = out.from.Add(s.For.Duration)
			}
			return out, s.Notice.Duration
		}
	}
	return nil, 0
}

// nodeStays reports whether the Node object of the instance, the next that is made, will
// outlive it.
func (w *World) nodeStays(in *Instance) bool {
	for i := range w.config.NodesStay {
		f := &w.config.NodesStay[i]
		if f.Cloud == in.Pool.Cloud && f.hits(w.config.Seed, fmt.Sprintf("node stays/%d", i), w.made) {
			return true
		}
	}
	return false
}

// Stop stops a running instance, which starts again after the pause; zero is for never.
func (w *World) Stop(id string, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.settle()
	if in := w.instances[id]; in != nil && in.Phase == Running {
		if in.halt = (&span{from: now}); pause > 0 {
			in.halt.to = now.Add(pause)
		}
		w.settle()
		w.tell()
	}
}

// Terminate ends an instance. It says whether there is or was such an instance.
func (w *World) Terminate(id string) bool { return w.TerminateAfter(id, 0) }

// TerminateAfter is Terminate of an instance that first goes on for a while, as while a lifecycle
// hook holds it. Its group does not lose it on the way.
func (w *World) TerminateAfter(id string, delay time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.settle()
	in := w.instances[id]
	if in == nil || in.Phase == Terminated {
		return in != nil
	}
	if w.ignored > 0 && delay == 0 {
		w.ignored--
		return true
	}
	place := w.terminated
	w.terminated++
	for i := range w.config.Terminations {
		f := &w.config.Terminations[i]
		if f.Cloud != in.Pool.Cloud || !f.hits(w.config.Seed, fmt.Sprintf("terminate/%d", i), place) {
			continue
		}
		if f.Delay == nil && delay == 0 {
			return true
		}
		if f.Delay != nil {
			delay += f.Delay.Duration
		}
		break
	}
	if at := now.Add(delay); !in.Ending || at.Before(in.EndsAt) {
		in.Ending, in.EndsAt = true, at
	}
	w.settle()
	w.tell()
	return true
}

// Fail ends an instance at once for a reason of its cloud's.
func (w *World) Fail(id, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.settle()
	if in := w.instances[id]; in != nil && in.Phase != Terminated {
		in.Phase, in.TerminatedAt, in.Reason = Terminated, now, reason
		w.tell()
	}
}

// IgnoreTerminations has so many terminations from now on accepted and not carried out.
func (w *World) IgnoreTerminations(number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ignored = number
}

// EndAt ends an instance at a time, as for an instance with a limited run time. It reports whether there is or was such an instance.
func (w *World) EndAt(id string, at time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settle()
	in := w.instances[id]
	if in != nil {
		in.EndsAt = at
		w.tell()
	}
	return in != nil
}

// Hold has a pool hold so many machines from now on, whatever its script says. It says
// whether there is such a pool.
func (w *World) Hold(k PoolKey, machines int32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pools[k]
	if p != nil {
		p.Script.Holds = &machines
	}
	return p != nil
}

// Tag adds tags to an instance or a reservation. It says whether there is such a one.
func (w *World) Tag(id string, tags map[string]string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.settle()
	var on *map[string]string
	if in := w.instances[id]; in != nil {
		on = &in.Tags
		in.tagged = append(in.tagged, tagging{now, maps.Clone(tags)})
	} else if r := w.reservations[id]; r != nil {
		on = &r.Tags
	} else {
		return false
	}
	if *on == nil {
		*on = map[string]string{}
	}
	maps.Copy(*on, tags)
	w.tell()
	return true
}

// Instances returns all instances that ever existed, by launch and ID. Unless all is set, it returns what lists show: instances and tags
// that are too new are left out.
func (w *World) Instances(all bool) []Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.settle()
	out := make([]Instance, 0, len(w.launched))
	for _, in := range w.launched {
		switch {
		case all:
			out = append(out, in.copy())
		case now.Sub(in.LaunchedAt) >= w.config.Lag.Duration:
			out = append(out, in.listed(now.Add(-w.config.TagLag.Duration)))
		}
	}
	return out
}

// Owned are the instances that a group has ever owned, by launch and ID.
func (w *World) Owned(group string) []Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	owned := slices.SortedFunc(slices.Values(w.grouped[group]), byLaunch)
	out := make([]Instance, 0, len(owned))
	for _, in := range owned {
		in.settle(now)
		out = append(out, in.copy())
	}
	return out
}

// byLaunch orders instances by launch and ID.
func byLaunch(a, b *Instance) int {
	return cmp.Or(a.LaunchedAt.Compare(b.LaunchedAt), cmp.Compare(a.ID, b.ID))
}

// Visible reports whether lists return an object that was created at that time.
func (w *World) Visible(madeAt time.Time) bool {
	return w.clock.Since(madeAt) >= w.config.Lag.Duration
}

// Reservations are all that ever were, by their beginning and ID.
func (w *World) Reservations() []Reservation {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settle()
	var out []Reservation
	for _, r := range w.reservations {
		out = append(out, r.copy())
	}
	slices.SortFunc(out, func(a, b Reservation) int {
		return cmp.Or(a.MadeAt.Compare(b.MadeAt), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Price of a machine of the pool now, in millionths of a USD per hour; false where
// there is no such pool.
func (w *World) Price(k PoolKey) (microUSDPerHour int64, ok bool) {
	p := w.pools[k]
	if p == nil {
		return 0, false
	}
	perHour, _ := p.microUSD(w.clock.Since(w.began))
	return perHour, true
}

// Pools are those of the world, in the order of the configuration.
func (w *World) Pools() []Pool { return w.config.Pools }

// Now is the time of the world's clock.
func (w *World) Now() time.Time { return w.clock.Now() }

// Changed is closed at the next change that a call makes, and Next is when
// something will change by itself; zero for never.
func (w *World) Changed() (changed <-chan struct{}, next time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.settle()
	for _, in := range w.instances {
		for _, at := range in.turns() {
			if at.After(now) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return w.changed, next
}

func (w *World) tell() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// settle works out what has happened by now.
func (w *World) settle() time.Time {
	now := w.clock.Now()
	for _, in := range w.instances {
		in.settle(now)
	}
	for _, r := range w.reservations {
		if r.EndedAt.IsZero() && !r.EndsAt.IsZero() && !now.Before(r.EndsAt) {
			r.EndedAt = r.EndsAt
		}
	}
	return now
}

// turns are the times at which something becomes of the instance by itself.
func (i *Instance) turns() (out []time.Time) {
	if i.Phase == Terminated {
		return nil
	}
	if !i.EndsAt.IsZero() {
		out = append(out, i.EndsAt)
	}
	if i.fate.DieAfter != nil {
		return append(out, i.LaunchedAt.Add(*i.fate.DieAfter))
	}
	runs := i.LaunchedAt.Add(i.fate.BootDelay)
	out = append(out, runs)
	if i.halt != nil {
		out = append(out, i.halt.from, i.halt.to)
		for _, m := range i.marks() {
			out = append(out, m.at)
		}
	}
	if i.fate.ReclaimAfter != nil {
		out = append(out, runs.Add(*i.fate.ReclaimAfter))
	}
	return out
}

func (i *Instance) settle(now time.Time) {
	if i.EndsAt.IsZero() || now.Before(i.EndsAt) {
		i.live(now)
		return
	}
	i.live(i.EndsAt)
	if i.Phase != Terminated {
		i.Phase, i.TerminatedAt, i.Reason = Terminated, i.EndsAt, ReasonTimeOver
		if i.Ending {
			i.Reason = ReasonTerminated
		}
	}
}

// live works out what the instance's fate has made of it by now.
func (i *Instance) live(now time.Time) {
	if i.Phase == Terminated {
		return
	}
	if i.fate.DieAfter != nil {
		if at := i.LaunchedAt.Add(*i.fate.DieAfter); !now.Before(at) {
			i.Phase, i.TerminatedAt, i.Reason = Terminated, at, ReasonBootFailed
		}
		return
	}
	runs := i.LaunchedAt.Add(i.fate.BootDelay)
	if i.Phase == Pending && !now.Before(runs) {
		i.Phase, i.RunningAt = Running, runs
	}
	if i.Phase == Running && i.halt != nil && !now.Before(i.halt.from) {
		i.Phase, i.off = Stopped, append(i.off, *i.halt)
	}
	if i.Phase == Stopped && !i.halt.to.IsZero() && !now.Before(i.halt.to) {
		i.Phase, i.StartedAt, i.halt = Running, i.halt.to, nil
	}
	if i.Phase == Running && i.fate.ReclaimAfter != nil {
		if at := runs.Add(*i.fate.ReclaimAfter); !now.Before(at) {
			i.Phase, i.TerminatedAt, i.Reason = Terminated, at, ReasonReclaimed
		}
	}
}

func (i *Instance) copy() Instance {
	out := *i
	out.Tags = maps.Clone(i.Tags)
	return out
}

// listed is the instance with the tags that it was given until then.
func (i *Instance) listed(until time.Time) Instance {
	out := *i
	out.Tags = map[string]string{}
	for _, t := range i.tagged {
		if !t.at.After(until) {
			maps.Copy(out.Tags, t.tags)
		}
	}
	return out
}

func (r *Reservation) copy() Reservation {
	out := *r
	out.Tags, out.Domains = maps.Clone(r.Tags), slices.Clone(r.Domains)
	return out
}

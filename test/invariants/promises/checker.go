package promises

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Config bounds what is expected. All times are those of the wall.
type Config struct {
	// Classes of ProvisioningRequests that Muster serves here.
	Classes []string
	// RollbackBound is how long a machine or node of a failed attempt may be left.
	RollbackBound time.Duration
	// OrphanBound is the same for an attempt in flight whose request was deleted.
	OrphanBound time.Duration
	// IdleBound is how long after its group's idleTimeout an idle machine may stay.
	IdleBound time.Duration
	// ExplainBound is how long something may wait without saying why.
	ExplainBound time.Duration
	// OverrunBound is how long more pods of a Job may run than it has quota for.
	OverrunBound time.Duration
	// Race is how long after a change others may still act as if it were not.
	Race time.Duration
	// Unseen is how long before the end of its machine a pod may be bound without being observed by Muster: its last read is followed by
	// a call that takes a while.
	Unseen time.Duration
	// LossBound is how long after its node a Machine may be seen to be Terminated.
	LossBound time.Duration
	// Confirm is how long a suspect is kept back.
	Confirm time.Duration
	// PutOff is by how much outages put off a bound at most: one after the other they
	// are no excuse for ever. Zero means without end.
	PutOff time.Duration
}

// DefaultConfig is what the design promises.
func DefaultConfig() Config {
	return Config{
		Classes: []string{
			provreq.ProvisioningClassCheckCapacity, provreq.ProvisioningClassBestEffortAtomicScaleUp,
			"check-capacity.muster.dev", "atomic-scale-up.muster.dev",
		},
		RollbackBound: 5 * time.Second,
		OrphanBound:   time.Minute,
		IdleBound:     30 * time.Second,
		ExplainBound:  5 * time.Second,
		OverrunBound:  30 * time.Second,
		Race:          2 * time.Second,
		Unseen:        2 * time.Second,
		LossBound:     10 * time.Second,
		Confirm:       2 * time.Second,
	}
}

// sweepEvery is how often bounds are checked. One check of 3,000 machines takes 2 ms.
const sweepEvery = 250 * time.Millisecond

// Checker is for one goroutine.
type Checker struct {
	config Config

	now, swept time.Time
	// resumed is when bounds restart, see StandStill.
	resumed time.Time
	// behind has every time at which the cluster fell behind, see Behind.
	behind   []behind
	revision uint64
	gaps     map[Kind][]span

	nodes map[string]*node
	// losses are nodes that were deleted while booked, until the cause is known.
	losses    []loss
	pods      map[types.UID]*pod
	templates map[types.NamespacedName]*template
	policies  map[string]policy
	jobs      map[types.UID]*job
	// running are the pods of a Job that take what it has quota for.
	running  map[types.UID]int
	members  map[member]*members
	requests map[types.UID]*request
	// named are the requests of a name, the oldest first.
	named map[types.NamespacedName][]*request
	// asked are the requests of a Workload.
	asked    map[types.UID][]*request
	machines map[string]*machine
	// made are the machines that were ever made, by token and group.
	made      map[launch]map[types.UID]bool
	groups    map[string]*group
	workloads map[types.UID]*workload
	// queued is the newest Workload of a Job.
	queued map[types.UID]*workload
	queues map[string]*queue
	// used is the quota that is reserved. ledger is how much may be, and older are the ledgers that a writer may still have read. excused
	// is existing overuse, which only shrinks until the next edit.
	used    usage
	ledger  *ledger
	older   []*ledger
	excused map[debt]int64
	local   map[types.NamespacedName]string
	// checks are the controllers of AdmissionChecks.
	checks map[string]string

	suspects   []suspect
	violations []Violation
	raised     map[string]bool
	stats      Stats
}

// New returns a Checker of an empty cluster. Existing objects are applied as Listed events.
func New(config Config) *Checker {
	return &Checker{
		config:    config,
		gaps:      map[Kind][]span{},
		nodes:     map[string]*node{},
		pods:      map[types.UID]*pod{},
		templates: map[types.NamespacedName]*template{},
		policies:  map[string]policy{},
		jobs:      map[types.UID]*job{},
		running:   map[types.UID]int{},
		members:   map[member]*members{},
		requests:  map[types.UID]*request{},
		named:     map[types.NamespacedName][]*request{},
		asked:     map[types.UID][]*request{},
		machines:  map[string]*machine{},
		made:      map[launch]map[types.UID]bool{},
		groups:    map[string]*group{},
		workloads: map[types.UID]*workload{},
		queued:    map[types.UID]*workload{},
		queues:    map[string]*queue{},
		used:      usage{},
		ledger:    &ledger{accounts: map[party]account{}},
		excused:   map[debt]int64{},
		local:     map[types.NamespacedName]string{},
		checks:    map[string]string{},
		raised:    map[string]bool{},
		stats:     newStats(),
	}
}

// Apply applies an event. Events come in the order of their revisions, except for Listed ones. A late event casts doubt on what was
// concluded before it.
func (c *Checker) Apply(e Event) {
	c.Tick(e.Time)
	if !e.Listed {
		if e.Revision < c.revision {
			c.stats.Late++
			c.doubt(e.Revision)
		}
		c.revision = max(c.revision, e.Revision)
	}
	c.stats.Events[KindOf(e.Object)]++
	switch o := e.Object.(type) {
	case *corev1.Node:
		c.applyNode(e, o)
	case *corev1.Pod:
		c.applyPod(e, o)
	case *corev1.PodTemplate:
		c.applyTemplate(e, o)
	case *batchv1.Job:
		c.applyJob(e, o)
	case *provreq.ProvisioningRequest:
		c.applyRequest(e, o)
	case *kueue.Workload:
		c.applyWorkload(e, o)
	case *kueue.ClusterQueue:
		c.applyQueue(e, o)
	case *kueue.Cohort:
		c.applyCohort(e, o)
	case *kueue.LocalQueue:
		c.applyLocalQueue(e, o)
	case *kueue.AdmissionCheck:
		c.applyCheck(e, o)
	case *v1alpha1.CapacityPolicy:
		c.applyPolicy(e, o)
	case *v1alpha1.NodeGroup:
		c.applyGroup(e, o)
	case *kwokv1alpha1.Machine:
		c.applyMachine(e, o)
	}
}

// Tick sets the time. All events observed before it have been applied.
func (c *Checker) Tick(now time.Time) {
	c.now = later(c.now, now)
	if c.now.Sub(c.swept) >= sweepEvery {
		c.sweep()
	}
}

// Gap reports that versions of a kind may have been missed from one revision to another, both included; 0 is the beginning. It comes
// before the events that end the gap.
func (c *Checker) Gap(k Kind, from, to uint64) {
	if from > 0 {
		c.stats.Gaps[k]++
	}
	c.gaps[k] = append(c.gaps[k], span{from, to})
	c.doubt(0)
}

// StandStill says that no controller can be expected to act before that time, because
// the API server or Muster is down. All bounds restart then, but see PutOff.
func (c *Checker) StandStill(until time.Time) {
	if until.After(c.resumed) {
		c.resumed = until
	}
}

// Finish confirms all suspects. Nothing may be applied after it.
func (c *Checker) Finish(now time.Time) {
	c.now = later(c.now, now)
	c.sweep()
	for _, s := range c.suspects {
		c.violations = append(c.violations, s.Violation)
	}
	c.suspects = nil
}

// Violations returns all confirmed violations, in the order of confirmation.
func (c *Checker) Violations() []Violation { return slices.Clone(c.violations) }

// Stats returns what was checked so far.
func (c *Checker) Stats() Stats { return c.stats.clone() }

// sweep checks bounds that have passed.
func (c *Checker) sweep() {
	if from := later(c.swept, c.resumed); !c.swept.IsZero() && c.now.After(from) {
		c.stats.Bounded += c.now.Sub(from)
	}
	c.swept = c.now
	c.confirm()
	known := len(c.violations)
	c.sweepLosses()
	c.sweepMachines()
	c.sweepWaiting()
	c.sweepJobs()
	c.sweepPodSets()
	slices.SortFunc(c.violations[known:], func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Promise, b.Promise), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Message, b.Message))
	})
}

// overdue says that what began then is past its bound.
func (c *Checker) overdue(since time.Time, bound time.Duration) bool {
	return c.overdueSince(since, c.resumed, bound)
}

// overdueSince is overdue for a bound that restarted at resumed, if that is later.
func (c *Checker) overdueSince(since, resumed time.Time, bound time.Duration) bool {
	from := later(since, resumed)
	most := since.Add(bound + c.config.PutOff + c.behindSince(since))
	return c.now.After(from.Add(bound+c.behindSince(from))) || c.config.PutOff > 0 && c.now.After(most)
}

func (c *Checker) judged(check Check) { c.stats.Judged[check]++ }

func (c *Checker) unjudged(check Check) { c.stats.Unjudged[check]++ }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

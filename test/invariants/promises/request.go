package promises

import (
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

const (
	// processorParameter of a request names the one processor that it is meant for.
	processorParameter = "processorInstance"
	// policyParameter names its CapacityPolicy.
	policyParameter = "capacityPolicy"
)

// request is a ProvisioningRequest, kept also after its end: pods and machines
// may refer to it then.
type request struct {
	uid             types.UID
	namespace, name string
	key             string
	// served: Muster handles its provisioning class.
	served  bool
	podSets []podSet
	// policy is the name of its CapacityPolicy, empty for the default one; since is the revision that it came with.
	policy string
	since  uint64

	provisioned bool
	// provisionedAt is the revision at which it became Provisioned; 0 if that was listed, so that the time is unknown.
	provisionedAt uint64
	// until is the time up to which its status says that its capacity is booked; zero if it says none.
	until time.Time
	over  bool
	// repair is the number of the last repair of its gang: only bookings for it are promises.
	repair    int
	deleted   bool
	deletedAt time.Time

	attempts map[int]*attempt
	bought   bought
	// claims are the nodes that are booked for it, by name.
	claims  map[string]*claim
	waiting waiting
}

type podSet struct {
	template types.NamespacedName
	count    int
}

// attempt is what is on record of an attempt.
type attempt struct {
	phase transaction.AttemptPhase
	calls map[launch]call
	// failed is when it was seen to be given up; zero if it was not.
	failed time.Time
}

// call is what is on record of a call for machines.
type call struct {
	// recorded is the revision that first had it; 0 if that was listed.
	recorded uint64
	count    int
}

// claim is room that is booked on a node.
type claim struct {
	amounts nodegroups.Resources
	labels  map[string]string
	good    bool
	// lost is when the node was last seen Ready.
	lost time.Time
}

// is says that the booking is the request's. One that is not open yet has no label,
// and so no namespace.
func (r *request) is(b booking) bool {
	return r.key == b.key && (b.namespace == "" || r.namespace == b.namespace)
}

// bookedUntil finds the time in the message of the condition Provisioned.
var bookedUntil = regexp.MustCompile(`booked for .* until ([0-9TZ:-]+)`)

// awaits reports whether pods of the request may still come. Pods that come after the end of its booking, before the status says so, do
// not count.
func (r *request) awaits(now time.Time) bool {
	return r.live() && (r.until.IsZero() || now.Before(r.until))
}

// live says that what is booked for it is a promise.
func (r *request) live() bool { return r.served && !r.deleted && !r.over }

func (r *request) String() string { return "ProvisioningRequest " + r.namespace + "/" + r.name }

func (c *Checker) applyTemplate(e Event, o *corev1.PodTemplate) {
	if e.Deleted {
		return // the spec is immutable
	}
	c.templates[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = templateOf(fit.TemplateRequests(&o.Template.Spec),
		o.Template.Annotations)
}

func (c *Checker) applyRequest(e Event, o *provreq.ProvisioningRequest) {
	r := c.requests[o.UID]
	if r == nil {
		r = c.newRequest(e, o)
	}
	for name := range r.claims {
		if n := c.nodes[name]; n != nil {
			c.noteBusy(n)
		}
	}
	if e.Deleted {
		r.deleted, r.deletedAt, r.waiting, r.claims = true, e.Time, waiting{}, nil
		return
	}
	is := func(t string) bool { return meta.IsStatusConditionTrue(o.Status.Conditions, t) }
	failed, reopened := is(provreq.Failed), false
	if c := meta.FindStatusCondition(o.Status.Conditions, provreq.BookingExpired); c != nil && c.Status == metav1.ConditionFalse {
		reopened = r.over
		r.over = false
	}
	r.repair = transaction.RepairOf(o).Number
	r.over = r.over || failed || is(provreq.BookingExpired) || is(provreq.CapacityRevoked)
	first := !r.provisioned && is(provreq.Provisioned)
	r.provisioned = r.provisioned || first
	c.record(e, r, o, failed)
	c.notePurchases(e, r, o, transaction.AttemptOf(o), reopened)
	if first && !e.Listed {
		r.provisionedAt = e.Revision
		if r.served {
			c.judgeProvisioned(e, r)
		}
	}
	waits := r.served && !r.provisioned && !r.over
	reason := meta.FindStatusCondition(o.Status.Conditions, provreq.Provisioned)
	r.until = time.Time{}
	if reason != nil && r.provisioned {
		if found := bookedUntil.FindStringSubmatch(reason.Message); found != nil {
			r.until, _ = time.Parse(time.RFC3339, found[1])
		}
	}
	c.noteWaiting(&r.waiting, waits, reason != nil && reason.Reason != "" && reason.Message != "", PendingRequests)
}

func (c *Checker) newRequest(e Event, o *provreq.ProvisioningRequest) *request {
	r := &request{
		uid: o.UID, namespace: o.Namespace, name: o.Name, key: state.BookingKey(o.Name),
		served:   slices.Contains(c.config.Classes, o.Spec.ProvisioningClassName) && o.Spec.Parameters[processorParameter] == "",
		policy:   string(o.Spec.Parameters[policyParameter]),
		since:    e.Revision,
		attempts: map[int]*attempt{},
		bought: bought{machines: map[int]map[types.UID]bool{}, explained: map[int]bool{}, groups: map[int][]string{}, failed: map[int]bool{},
			misplaced: map[transaction.LostMachine]bool{}},
		claims: map[string]*claim{},
	}
	for _, ps := range o.Spec.PodSets {
		r.podSets = append(r.podSets, podSet{types.NamespacedName{Namespace: o.Namespace, Name: ps.PodTemplateRef.Name}, int(ps.Count)})
	}
	c.requests[r.uid] = r
	name := types.NamespacedName{Namespace: r.namespace, Name: r.name}
	c.named[name] = append(c.named[name], r)
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == string(Workloads) {
		c.asked[owner.UID] = append(c.asked[owner.UID], r)
	}
	return r
}

// record notes the attempt on record. Attempts that came before it and did not
// end in capacity have failed, whatever they say. A request that is Provisioned may
// try again for machines that it has lost since.
func (c *Checker) record(e Event, r *request, o *provreq.ProvisioningRequest, failed bool) {
	a, err := transaction.DecodeAttempt(string(o.Status.ProvisioningClassDetails[transaction.AttemptDetail]))
	if err != nil || a.Number == 0 {
		return
	}
	known := r.attempts[a.Number]
	if known == nil {
		known = &attempt{calls: map[launch]call{}}
		r.attempts[a.Number] = known
	}
	for _, asked := range a.Calls(r.uid) {
		key := launch{asked.Token, asked.Group}
		now, old := known.calls[key]
		if !old && !e.Listed {
			now.recorded = e.Revision
		}
		now.count = asked.Count
		known.calls[key] = now
	}
	known.phase = a.Phase
	giveUp := func(a *attempt) {
		if a.failed.IsZero() {
			a.failed = e.Time
		}
	}
	if a.Phase == transaction.RollingBack || failed && a.Phase != transaction.Done {
		giveUp(known)
	}
	for number, old := range r.attempts {
		if number < a.Number && (!r.provisioned || old.phase != transaction.Done) {
			giveUp(old)
		}
	}
}

// claim notes on the requests of a node's bookings what they have there. A node that an
// attempt has launched, and that is not booked, is claimed by the attempt.
func (c *Checker) claim(e Event, n *node) {
	before := n.claims
	n.claims = n.bookings
	if r, a := c.attemptOf(n.token); r != nil && a != nil && a.failed.IsZero() && len(n.bookings) == 0 {
		n.claims = []booking{{key: r.key, namespace: r.namespace, uid: r.uid, amounts: c.room(n, c.requestsOfPods(r)...)}}
	}
	for _, b := range before {
		if r := c.requests[b.uid]; r != nil && !slices.ContainsFunc(n.claims, func(o booking) bool { return o.uid == b.uid }) {
			delete(r.claims, n.name)
		}
	}
	for _, b := range n.claims {
		r := c.requests[b.uid]
		if r == nil || r.deleted || !r.is(b) {
			continue
		}
		if n.ready {
			r.claims[n.name] = &claim{amounts: b.amounts, labels: n.labels, good: true}
		} else if r.claims[n.name] == nil {
			r.claims[n.name] = &claim{amounts: b.amounts, labels: n.labels}
		} else {
			c.lapse(n, b, e.Time)
		}
	}
}

// requestsOfPods returns what a pod of each podSet requests.
func (c *Checker) requestsOfPods(r *request) (out []nodegroups.Resources) {
	for _, ps := range r.podSets {
		if t := c.templates[ps.template]; t != nil {
			out = append(out, t.pod)
		}
	}
	return out
}

// lapse notes that a node which is booked is not there any more.
func (c *Checker) lapse(n *node, b booking, at time.Time) {
	r := c.requests[b.uid]
	if r == nil {
		return
	}
	if cl := r.claims[n.name]; cl != nil && cl.good {
		cl.good, cl.lost = false, at
	}
}

package model

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
)

// Provisioning classes that Muster knows, with the aliases that only Muster
// serves.
const (
	ClassCheckCapacity      = "check-capacity.muster.dev"
	ClassAtomicScaleUp      = "atomic-scale-up.muster.dev"
	classCheckCapacityStock = provreq.ProvisioningClassCheckCapacity
	classAtomicScaleUpStock = provreq.ProvisioningClassBestEffortAtomicScaleUp
)

// KnownClasses are all classes that Muster can serve.
var KnownClasses = Classes{classCheckCapacityStock, classAtomicScaleUpStock, ClassCheckCapacity, ClassAtomicScaleUp}

// Server says which requests are served here.
type Server interface {
	Serves(r *provreq.ProvisioningRequest) bool
}

// Classes are the provisioning classes that an instance without a name serves.
type Classes []string

// Serves says whether the request is of a served class, and names no instance.
func (c Classes) Serves(r *provreq.ProvisioningRequest) bool { return Instance{Classes: c}.Serves(r) }

// Instance is one of several provisioners in a cluster.
type Instance struct {
	Classes Classes
	// Name of the instance, which requests may ask for; empty without.
	Name string
}

// Serves says whether the request is of a served class, and names this instance or
// none.
func (i Instance) Serves(r *provreq.ProvisioningRequest) bool {
	name := string(r.Spec.Parameters[ParamProcessor])
	return slices.Contains(i.Classes, r.Spec.ProvisioningClassName) && (name == "" || name == i.Name)
}

// Parameters of requests that Muster reads, beside those that come before a
// CapacityPolicy.
const (
	ParamValidUntil = "ValidUntilSeconds"
	ParamNoRetry    = "noRetry"
	ParamPolicy     = "capacityPolicy"
	ParamProcessor  = "processorInstance"
)

// defaultValidFor is how long a request waits for capacity by default.
const defaultValidFor = 7 * 24 * time.Hour

// Entry is a request with its API object. It is shared: nobody changes it.
type Entry struct {
	*provisioning.Request
	Object *provreq.ProvisioningRequest
}

// requests are the ProvisioningRequests with their PodTemplates.
type requests struct {
	byUID map[types.UID]*request
	// live requests are not over. Of these, waiting ones wait for capacity that others
	// leave, and launching ones have an attempt in flight that launches machines.
	live, waiting, launching map[types.UID]bool

	named map[consumerKey]types.UID
	// gone requests were not found when they were to be written. Until informers
	// know, what they tell of them is old.
	gone map[consumerKey]types.UID

	templates map[types.NamespacedName]*corev1.PodTemplate
	// using finds the requests that refer to a template.
	using map[types.NamespacedName]map[types.UID]bool

	// due requests have something to be decided; with all, so have those that wait.
	due map[types.UID]bool
	all bool

	// lost are the nodes of each request that are lost, until it is gone.
	lost map[types.UID]map[string]*loss
	// stranded are the pods of requests that have no room.
	stranded map[consumerKey]map[types.UID]strandedPod
}

// loss is a node that a request has lost.
type loss struct {
	provisioning.LostNode
	at time.Time
	// told: whoever looks after the request knows.
	told bool
}

// request is a request with what has been read of it.
type request struct {
	object  *provreq.ProvisioningRequest
	status  provisioning.Status
	attempt provisioning.Attempt
	// seen is when it was first heard of.
	seen time.Time
	// read is the request as decisions see it; nil where it has to be read again.
	read *provisioning.Request
	// looksUp says that its pods refer to objects beside their templates.
	looksUp bool
}

// tenant is who pays for the request's machines.
func (e *request) tenant() provisioning.Tenant {
	return provisioning.Tenant{Namespace: e.object.Namespace, Queue: e.object.Labels[provisioning.QueueLabel]}
}

func newRequests() requests {
	return requests{
		byUID: map[types.UID]*request{}, live: map[types.UID]bool{}, waiting: map[types.UID]bool{}, launching: map[types.UID]bool{},
		named: map[consumerKey]types.UID{}, gone: map[consumerKey]types.UID{},
		templates: map[types.NamespacedName]*corev1.PodTemplate{}, using: map[types.NamespacedName]map[types.UID]bool{},
		due: map[types.UID]bool{}, lost: map[types.UID]map[string]*loss{},
		stranded: map[consumerKey]map[types.UID]strandedPod{},
	}
}

// SetRequest tells of a ProvisioningRequest. One that is being deleted is as good as
// gone; so is one that somebody has handed over to another instance.
func (m *Model) SetRequest(r *provreq.ProvisioningRequest) {
	m.update(func() bool {
		key := consumerKey{r.Namespace, r.Name}
		if uid, gone := m.requests.gone[key]; gone && uid == r.UID {
			return false
		}
		delete(m.requests.gone, key)
		if r.DeletionTimestamp != nil || !m.served.Serves(r) {
			return m.requests.byUID[r.UID] != nil && m.deleteRequest(r)
		}
		return m.setRequest(r)
	})
}

// RequestWritten tells of a request that Muster has just written. Unlike
// SetRequest it does not bring back one that has been deleted meanwhile.
func (m *Model) RequestWritten(r *provreq.ProvisioningRequest) {
	m.update(func() bool { return m.requests.byUID[r.UID] != nil && m.setRequest(r) })
}

func (m *Model) setRequest(r *provreq.ProvisioningRequest) bool {
	old := m.requests.byUID[r.UID]
	if old != nil && !newer(r, old.object) {
		return false
	}
	e := &request{object: r, status: statusOf(r), attempt: attemptOf(r), seen: m.now()}
	if old == nil {
		m.recall(e)
	} else {
		e.seen = old.seen
	}
	m.requests.byUID[r.UID] = e
	m.requests.named[consumerKey{r.Namespace, r.Name}] = r.UID
	for _, name := range templatesOf(r) {
		if m.requests.using[name] == nil {
			m.requests.using[name] = map[types.UID]bool{}
		}
		m.requests.using[name][r.UID] = true
	}
	if e.status == provisioning.Over {
		delete(m.requests.live, r.UID)
	} else {
		m.requests.live[r.UID] = true
	}
	m.requestChanged(r.UID, old == nil || old.status != e.status || old.attempt.Phase != e.attempt.Phase || old.attempt.Number != e.attempt.Number ||
		old.attempt.Owned(old.status) != e.attempt.Owned(e.status) || old.tenant() != e.tenant() || isConsumed(old.object) != isConsumed(e.object))
	return true
}

// requestChanged notes what a change of the request concerns. In another place of
// its course, or of another queue, it leaves room, or its turn, to others.
func (m *Model) requestChanged(uid types.UID, elsewhere bool) {
	m.touch(uid)
	m.attemptChanged(uid)
	m.spending.changed = true
	if elsewhere {
		m.nodes.requestChanged(uid)
		for key := range m.links.lone[uid] {
			m.machineStale(key)
		}
		m.groups.changed = true
		m.wakeAll()
	}
}

// recallable is for how long a failure may be on record in a request and not yet in
// the status of its group.
const recallable = time.Minute

// recall learns of the last failure of a request that is new here: the process that
// saw it may have ended before it wrote down what that teaches.
func (m *Model) recall(e *request) {
	f := e.attempt.Failure
	if f == nil || f.Class == "" || m.now().Sub(f.Time) > recallable {
		return
	}
	l := f.Lesson(e.object.Namespace + "/" + e.object.Name)
	m.groups.learned[l.Group] = append(m.groups.learned[l.Group], l.LaunchAttempt)
	m.groupChanged(l.Group)
}

// DeleteRequest tells that a request is gone.
func (m *Model) DeleteRequest(r *provreq.ProvisioningRequest) {
	m.update(func() bool {
		delete(m.requests.gone, consumerKey{r.Namespace, r.Name})
		return m.deleteRequest(r)
	})
}

// RequestGone tells that this request was not found when it was to be written.
func (m *Model) RequestGone(r *provreq.ProvisioningRequest) {
	m.update(func() bool {
		if m.requests.byUID[r.UID] == nil {
			return false
		}
		m.requests.gone[consumerKey{r.Namespace, r.Name}] = r.UID
		return m.deleteRequest(r)
	})
}

func (m *Model) deleteRequest(r *provreq.ProvisioningRequest) bool {
	key := consumerKey{r.Namespace, r.Name}
	m.ended[keyOf(key)] = m.now()
	if m.requests.byUID[r.UID] == nil {
		return false
	}
	delete(m.requests.byUID, r.UID)
	delete(m.requests.live, r.UID)
	delete(m.requests.due, r.UID)
	delete(m.requests.lost, r.UID)
	if m.requests.named[key] == r.UID {
		delete(m.requests.named, key)
	}
	for _, name := range templatesOf(r) {
		if delete(m.requests.using[name], r.UID); len(m.requests.using[name]) == 0 {
			delete(m.requests.using, name)
		}
	}
	m.requestChanged(r.UID, true)
	return true
}

// owner is the request that looks after the machines of that launch, with its
// attempt.
func (m *Model) owner(token string) (e *request, a provisioning.Attempt, owned bool) {
	if e = m.requests.byUID[provisioning.TokenUID(token)]; e == nil {
		return nil, a, false
	}
	a = m.attempt(e)
	return e, a, a.Owned(e.status) && slices.Contains(a.Tokens(e.object.UID), token)
}

// nodeLost notes that a node went, or its machine ended: requests that have booked
// it, or whose pods it runs, have to be told.
func (m *Model) nodeLost(n *provisioning.Node) {
	for i := range n.Labelled {
		b := &n.Labelled[i]
		e := m.requests.byUID[b.UID]
		if e == nil || e.status == provisioning.Pending || e.status == provisioning.Over && b.Running == 0 {
			continue
		}
		if m.requests.lost[b.UID] == nil {
			m.requests.lost[b.UID] = map[string]*loss{}
		}
		if m.requests.lost[b.UID][n.Name] == nil {
			m.requests.lost[b.UID][n.Name] = &loss{LostNode: provisioning.LostNode{Name: n.Name, Group: n.Group, Pods: b.Running}, at: m.now()}
		}
	}
}

// nodeBack forgets that a node of that name was lost, once that has been told: the one
// that is booked now may be lost, too.
func (m *Model) nodeBack(n *provisioning.Node) {
	for i := range n.Labelled {
		uid := n.Labelled[i].UID
		if l := m.requests.lost[uid][n.Name]; l != nil && l.told {
			delete(m.requests.lost[uid], n.Name)
		}
	}
}

// LossTold says that nobody needs to be told any more of these nodes.
func (m *Model) LossTold(uid types.UID, lost []provisioning.LostNode) {
	m.update(func() bool {
		for _, n := range lost {
			if l := m.requests.lost[uid][n.Name]; l != nil {
				l.told = true
			}
		}
		return false
	})
}

// untold are the lost nodes of a request that have to be told of, by name.
func (rs *requests) untold(uid types.UID) (out []provisioning.LostNode) {
	for _, name := range slices.Sorted(maps.Keys(rs.lost[uid])) {
		if l := rs.lost[uid][name]; !l.told {
			out = append(out, l.LostNode)
		}
	}
	return out
}

func templatesOf(r *provreq.ProvisioningRequest) []types.NamespacedName {
	out := make([]types.NamespacedName, len(r.Spec.PodSets))
	for i, ps := range r.Spec.PodSets {
		out[i] = types.NamespacedName{Namespace: r.Namespace, Name: ps.PodTemplateRef.Name}
	}
	return out
}

// SetTemplate tells of a PodTemplate.
func (m *Model) SetTemplate(t *corev1.PodTemplate) {
	m.update(func() bool {
		name := types.NamespacedName{Namespace: t.Namespace, Name: t.Name}
		return put(m.requests.templates, name, t) && m.templateChanged(name)
	})
}

// DeleteTemplate tells that a PodTemplate is gone.
func (m *Model) DeleteTemplate(t *corev1.PodTemplate) {
	m.update(func() bool {
		name := types.NamespacedName{Namespace: t.Namespace, Name: t.Name}
		delete(m.requests.templates, name)
		return m.templateChanged(name)
	})
}

func (m *Model) templateChanged(name types.NamespacedName) bool {
	m.spending.changed = true
	for uid := range m.requests.using[name] {
		m.reread(uid)
	}
	return len(m.requests.using[name]) > 0
}

// reread has a request read again before it is decided on.
func (m *Model) reread(uid types.UID) {
	if e := m.requests.byUID[uid]; e != nil {
		e.read = nil
		m.touch(uid)
		m.soon.stale = true
	}
}

// rereadAll has all requests read again, also those whose gangs run.
func (m *Model) rereadAll() {
	for uid := range m.requests.byUID {
		m.reread(uid)
	}
}

// touch says that there may be something to decide for the request.
func (m *Model) touch(uid types.UID) {
	if m.requests.live[uid] || m.requests.strandedOf(uid).Pods > 0 {
		m.requests.due[uid] = true
	}
}

// touchNamed is touch by the name that pods give.
func (rs *requests) touchNamed(key consumerKey) {
	if uid, ok := rs.named[key]; ok && rs.live[uid] {
		rs.due[uid] = true
	}
}

// strandedPod has no room, as has been known since then.
type strandedPod struct {
	since    time.Time
	requests nodegroups.Resources
}

// strands notes that a pod of a request has found no room, if so.
func (rs *requests) strands(p *pod, uid types.UID, now time.Time) {
	if !p.stranded {
		rs.unstrand(p, uid)
		return
	}
	if rs.stranded[p.consumes] == nil {
		rs.stranded[p.consumes] = map[types.UID]strandedPod{}
	}
	if _, known := rs.stranded[p.consumes][uid]; !known {
		rs.stranded[p.consumes][uid] = strandedPod{now, p.requests}
	}
	if uid, ok := rs.named[p.consumes]; ok {
		rs.due[uid] = true
	}
}

// unstrand says that the pod has room, or is gone.
func (rs *requests) unstrand(p *pod, uid types.UID) {
	if delete(rs.stranded[p.consumes], uid); len(rs.stranded[p.consumes]) == 0 {
		delete(rs.stranded, p.consumes)
	}
}

// strandedOf are the pods of a gang that ran, and that would run again if there were
// room.
func (rs *requests) strandedOf(uid types.UID) (out provisioning.Stranded) {
	e := rs.byUID[uid]
	if e == nil || e.status != provisioning.Over || !isConsumed(e.object) {
		return out
	}
	for _, p := range rs.stranded[consumerKey{e.object.Namespace, e.object.Name}] {
		if out.Pods++; out.Pods == 1 {
			out.Since, out.Requests = p.since, nodegroups.Resources{}
		}
		if p.since.Before(out.Since) {
			out.Since = p.since
		}
		out.Requests.Add(p.requests, 1)
	}
	return out
}

// isConsumed says that all pods of a request have come, and that nobody has said since
// that they are to stop.
func isConsumed(r *provreq.ProvisioningRequest) bool {
	c := meta.FindStatusCondition(r.Status.Conditions, provreq.BookingExpired)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == provisioning.ReasonBookingConsumed &&
		!meta.IsStatusConditionTrue(r.Status.Conditions, provreq.CapacityRevoked)
}

// wakeAll says that those who wait for capacity may find it now.
func (m *Model) wakeAll() { m.requests.all = true }

// Due returns, once, the requests for which there may be something to decide
// since it was last called, in the order in which they are served: the highest
// priority first, then the oldest, then by UID. Those that are given are due, too.
func (m *Model) Due(more []types.UID) []Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
	for _, uid := range more {
		m.touch(uid)
	}
	if m.requests.all {
		maps.Copy(m.requests.due, m.requests.waiting)
	}
	var out []Entry
	for uid := range m.requests.lost {
		if e := m.requests.byUID[uid]; e.status == provisioning.Over && len(m.requests.untold(uid)) > 0 {
			out = append(out, m.entry(e))
		}
	}
	for uid := range m.requests.due {
		if m.requests.live[uid] || m.requests.strandedOf(uid).Pods > 0 && len(m.requests.untold(uid)) == 0 {
			out = append(out, m.entry(m.requests.byUID[uid]))
		}
	}
	clear(m.requests.due)
	m.requests.all = false
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(-cmp.Compare(a.Priority, b.Priority), a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
	})
	return out
}

// attemptChanged notes what the attempt of the request means to others by now.
func (m *Model) attemptChanged(uid types.UID) {
	e := m.requests.byUID[uid]
	set := func(uids map[types.UID]bool, in bool) {
		if delete(uids, uid); in {
			uids[uid] = true
		}
	}
	pending, launching, flying := false, false, false
	if e != nil && m.requests.live[uid] {
		a := m.attempt(e)
		pending = e.status == provisioning.Pending && (!a.InFlight() || len(a.Shares) > 0)
		launching = a.Phase == provisioning.Launching
		flying = e.status == provisioning.Pending && m.flightOf(e).Phase == provisioning.Launching
	}
	set(m.requests.waiting, pending)
	set(m.requests.launching, launching)
	set(m.soon.flying, flying)
}

// Request returns the request of that UID, if it is there.
func (m *Model) Request(uid types.UID) (e Entry, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.requests.byUID[uid]
	if r == nil {
		return e, false
	}
	return m.entry(r), true
}

func (m *Model) entry(e *request) Entry {
	if e.read == nil {
		e.read = m.readRequest(e)
	}
	return Entry{Request: e.read, Object: e.object}
}

func (m *Model) readRequest(e *request) *provisioning.Request {
	r := e.object
	class := provisioning.AtomicScaleUp
	if c := r.Spec.ProvisioningClassName; c == classCheckCapacityStock || c == ClassCheckCapacity {
		class = provisioning.CheckCapacity
	}
	out := &provisioning.Request{
		UID:       r.UID,
		Namespace: r.Namespace,
		Name:      r.Name,
		Created:   r.CreationTimestamp.Time,
		Seen:      e.seen,
		ValidFor:  defaultValidFor,
		PodsHeld:  isHeld(r),
		Policy:    provisioning.DefaultPolicy(class),
		Attempt:   e.attempt,
		Status:    e.status,
		Gang: provisioning.Gang{
			Namespace: r.Namespace, Queue: e.tenant().Queue, Name: r.Namespace + "/" + r.Name, UID: r.UID, Key: provisioning.BookingKey(r.Name),
		},
	}
	if e.attempt.Owned(e.status) {
		out.Gang.Launch = provisioning.Token(r.UID, e.attempt.Number)
	}
	if c := meta.FindStatusCondition(r.Status.Conditions, provreq.Provisioned); c != nil {
		out.Provisioned = *c
	}
	e.looksUp = false
	for _, ps := range r.Spec.PodSets {
		out.Pods += int(ps.Count)
		name := ps.PodTemplateRef.Name
		t := m.requests.templates[types.NamespacedName{Namespace: r.Namespace, Name: name}]
		if t == nil {
			out.Missing = append(out.Missing, name)
			continue
		}
		e.looksUp = e.looksUp || refers(&t.Template.Spec)
		out.Priority = max(out.Priority, m.objects.priority(&t.Template.Spec))
		set := provisioning.NewPodSet(r.Namespace, name, int(ps.Count), &t.Template, m.objects.lookup())
		m.distinguish(set.Keys())
		out.Gang.PodSets = append(out.Gang.PodSets, set)
	}
	m.readParameters(out, r.Spec.Parameters, class)
	if out.Policy.Topology != "" {
		m.distinguish([]string{out.Policy.Topology})
	}
	out.Likeness = provisioning.Likeness(&out.Gang, &out.Policy)
	return out
}

// isHeld says that the request belongs to a Workload: its queue lets no pod be
// created before the capacity is there. Whoever only claims so lets his own gang
// begin in part.
func isHeld(r *provreq.ProvisioningRequest) bool {
	owner := metav1.GetControllerOf(r)
	return owner != nil && owner.Kind == "Workload"
}

func (m *Model) readParameters(e *provisioning.Request, parameters map[string]provreq.Parameter, class provisioning.Class) {
	if v := string(parameters[ParamValidUntil]); v != "" {
		seconds, err := strconv.ParseInt(v, 10, 32)
		if err != nil || seconds <= 0 {
			e.Invalid = `parameter ValidUntilSeconds is "` + v + `": give a whole number of seconds greater than 0`
			return
		}
		e.ValidFor = time.Duration(seconds) * time.Second
	}
	switch v := string(parameters[ParamNoRetry]); v {
	case "", "false":
	case "true":
		e.NoRetry = true
	default:
		e.Invalid = `parameter noRetry is "` + v + `": give true or false`
		return
	}
	policy, lacking := m.policyOf(e.Namespace, string(parameters[ParamPolicy]))
	e.Lacking = lacking
	spec, err := policy.Overridden(func(name string) string { return string(parameters[name]) })
	var looser *v1alpha1.LooserError
	switch {
	case errors.As(err, &looser):
		// An admin may still allow it.
		e.Lacking = cmp.Or(e.Lacking, "parameter "+err.Error())
	case err != nil:
		e.Invalid = "parameter " + err.Error()
		return
	}
	e.Policy = provisioning.PolicyFrom(class, spec)
}

// policyOf is the CapacityPolicy that a request of the namespace has, and what is lacking
// if it cannot have the one that it names. The waits of fallbackAfter are for queues.
func (m *Model) policyOf(namespace, name string) (policy *v1alpha1.CapacityPolicy, lacking string) {
	named := m.policies[cmp.Or(name, v1alpha1.DefaultPolicy)]
	switch {
	case named == nil && name == "":
		return &v1alpha1.CapacityPolicy{}, ""
	case named == nil:
		return &v1alpha1.CapacityPolicy{}, fmt.Sprintf("parameter capacityPolicy is %q: there is no CapacityPolicy of that name: create it", name)
	case !selectorOf(named.Spec.NamespaceSelector).Matches(m.labelsOf(namespace)):
		return &v1alpha1.CapacityPolicy{}, fmt.Sprintf("CapacityPolicy %s is not for namespace %s (spec.namespaceSelector): name another in parameter capacityPolicy, "+
			"or have an admin give the namespace the labels that it selects", named.Name, namespace)
	}
	policy = named.DeepCopy()
	policy.Spec.FallbackAfter = nil
	if policy.Spec.Overrides != nil {
		policy.Spec.Overrides.FallbackAfter = nil
	}
	return policy, ""
}

func statusOf(r *provreq.ProvisioningRequest) provisioning.Status {
	is := func(t string) bool { return meta.IsStatusConditionTrue(r.Status.Conditions, t) }
	switch {
	case is(provreq.Failed), is(provreq.BookingExpired), is(provreq.CapacityRevoked):
		return provisioning.Over
	case is(provreq.Provisioned):
		return provisioning.Provisioned
	default:
		return provisioning.Pending
	}
}

// attemptOf reads the attempt on record. A record that cannot be read, because
// somebody edited it, counts as none: its machines are orphans then, and go.
func attemptOf(r *provreq.ProvisioningRequest) provisioning.Attempt {
	a, err := provisioning.DecodeAttempt(string(r.Status.ProvisioningClassDetails[provisioning.AttemptDetail]))
	if err != nil {
		return provisioning.Attempt{Phase: provisioning.Done}
	}
	return a
}

// attempt of a request: what is being written, else what is on record.
func (m *Model) attempt(e *request) provisioning.Attempt {
	if assumed, ok := m.assumed[e.object.UID]; ok && assumed.Attempt.Number >= max(1, e.attempt.Number) {
		return assumed.Attempt
	}
	return e.attempt
}

// View is what the next step of a request depends on.
func (m *Model) View(s *provisioning.Snapshot, r *provisioning.Request) provisioning.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := provisioning.View{Snapshot: s}
	for _, token := range r.Attempt.Tokens(r.UID) {
		v.Machines = append(v.Machines, m.groups.machinesOf(token)...)
	}
	v.Active = m.consumers[consumerKey{r.Namespace, r.Name}]
	v.KeyTaken = m.keyTaken(r)
	v.Lost = m.requests.untold(r.UID)
	v.Stranded = m.requests.strandedOf(r.UID)
	if v.Limits = m.limitsOf(r.Namespace); len(v.Limits) > 0 {
		v.Has = m.has(r.Namespace)
	}
	return v
}

// keyTaken names a request that came first and has the same booking key.
func (m *Model) keyTaken(r *provisioning.Request) string {
	taken := ""
	if len(r.Name) < provisioning.CutKey {
		return taken // only names that are cut, and those of the cut's length, can meet
	}
	begun := func(status provisioning.Status, a provisioning.Attempt) int {
		if status == provisioning.Provisioned || a.InFlight() {
			return 0
		}
		return 1
	}
	for _, other := range m.requests.byUID {
		o := other.object
		if o.UID == r.UID || o.Namespace != r.Namespace || provisioning.BookingKey(o.Name) != provisioning.BookingKey(r.Name) || other.status == provisioning.Over {
			continue
		}
		// Times of creation are whole seconds, so of two in the same second the one
		// that has capacity already, or is getting it, came first.
		if cmp.Or(cmp.Compare(begun(other.status, other.attempt), begun(r.Status, r.Attempt)),
			o.CreationTimestamp.Compare(r.Created), cmp.Compare(o.UID, r.UID)) < 0 {
			taken = max(taken, o.Namespace+"/"+o.Name)
		}
	}
	return taken
}

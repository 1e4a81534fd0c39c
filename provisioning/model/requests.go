package model

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/cloudprovider"
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
var KnownClasses = []string{classCheckCapacityStock, classAtomicScaleUpStock, ClassCheckCapacity, ClassAtomicScaleUp}

// Classes are the provisioning classes that are served here.
type Classes []string

// Serves says whether the request is Muster's: of a served class, and not meant
// for one instance of another processor.
func (c Classes) Serves(r *provreq.ProvisioningRequest) bool {
	return slices.Contains(c, r.Spec.ProvisioningClassName) && r.Spec.Parameters[ParamProcessor] == ""
}

// Parameters of requests that Muster reads.
const (
	ParamValidUntil = "ValidUntilSeconds"
	ParamNoRetry    = "noRetry"
	ParamPolicy     = "capacityPolicy"
	ParamProcessor  = "processorInstance"
)

// defaultValidFor is how long a request waits for capacity by default.
const defaultValidFor = 7 * 24 * time.Hour

// Entry is a request with its API object.
type Entry struct {
	provisioning.Request
	Object *provreq.ProvisioningRequest
}

// Requests returns all requests in the order in which they are served: by the
// time of their creation, then by UID.
func (m *Model) Requests() []Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Entry, 0, len(m.requests))
	for _, r := range m.requests {
		out = append(out, m.entry(r))
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
	})
	return out
}

func (m *Model) entry(r *provreq.ProvisioningRequest) Entry {
	class := provisioning.AtomicScaleUp
	if c := r.Spec.ProvisioningClassName; c == classCheckCapacityStock || c == ClassCheckCapacity {
		class = provisioning.CheckCapacity
	}
	e := Entry{Object: r, Request: provisioning.Request{
		UID:       r.UID,
		Namespace: r.Namespace,
		Name:      r.Name,
		Created:   r.CreationTimestamp.Time,
		ValidFor:  defaultValidFor,
		Policy:    provisioning.DefaultPolicy(class),
		Attempt:   attemptOf(r),
		Status:    statusOf(r),
		Gang:      provisioning.Gang{Name: r.Namespace + "/" + r.Name, UID: r.UID, Key: provisioning.BookingKey(r.Name)},
	}}
	if e.Attempt.InFlight() {
		e.Gang.Launch = provisioning.Token(r.UID, e.Attempt.Number)
	}
	if c := meta.FindStatusCondition(r.Status.Conditions, provreq.Provisioned); c != nil {
		e.ProvisionedAt = c.LastTransitionTime.Time
	}
	for _, ps := range r.Spec.PodSets {
		e.Pods += int(ps.Count)
		t := m.templates[types.NamespacedName{Namespace: r.Namespace, Name: ps.PodTemplateRef.Name}]
		if t == nil {
			e.Missing = append(e.Missing, ps.PodTemplateRef.Name)
			continue
		}
		e.Gang.PodSets = append(e.Gang.PodSets, provisioning.PodSet{
			Name: ps.PodTemplateRef.Name, Count: int(ps.Count), Template: &t.Template,
		})
	}
	m.readParameters(&e, class)
	return e
}

func (m *Model) readParameters(e *Entry, class provisioning.Class) {
	parameters := e.Object.Spec.Parameters
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
	if name := string(parameters[ParamPolicy]); name != "" {
		p := m.policies[name]
		if p == nil {
			e.Lacking = `parameter capacityPolicy is "` + name + `": there is no CapacityPolicy of that name: create it`
			return
		}
		e.Policy = provisioning.PolicyFrom(class, p.Spec)
	}
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

// View is what the next step of a request depends on.
func (m *Model) View(s *provisioning.Snapshot, r *provisioning.Request) provisioning.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := provisioning.View{Snapshot: s}
	if r.Gang.Launch != "" {
		for _, c := range m.machines {
			if c.Launch == r.Gang.Launch {
				v.Machines = append(v.Machines, c)
			}
		}
		sortMachines(v.Machines)
	}
	v.Active = m.consumers[consumerKey{r.Namespace, r.Name}]
	v.KeyTaken = m.keyTaken(r)
	return v
}

// keyTaken names a request that came first and has the same booking key.
func (m *Model) keyTaken(r *provisioning.Request) string {
	taken := ""
	if len(r.Name) < provisioning.CutKey {
		return taken // only names that are cut, and those of the cut's length, can meet
	}
	for _, o := range m.requests {
		if o.UID != r.UID && o.Namespace == r.Namespace && provisioning.BookingKey(o.Name) == provisioning.BookingKey(r.Name) &&
			statusOf(o) != provisioning.Over && cmp.Or(o.CreationTimestamp.Compare(r.Created), cmp.Compare(o.UID, r.UID)) < 0 {
			taken = max(taken, o.Namespace+"/"+o.Name)
		}
	}
	return taken
}

// Fleet is what upkeep depends on.
func (m *Model) Fleet(now time.Time) provisioning.Fleet {
	s := m.Snapshot(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	f := provisioning.Fleet{Snapshot: s, Requests: map[types.UID]*provisioning.Request{}}
	for uid, r := range m.requests {
		e := m.entry(r)
		e.Attempt = m.attempt(r)
		f.Requests[uid] = &e.Request
	}
	for _, c := range m.machines {
		f.Machines = append(f.Machines, c)
	}
	sortMachines(f.Machines)
	active := map[consumerKey]int{}
	for key, n := range m.consumers {
		active[keyOf(key)] += n
	}
	ended := maps.Clone(m.ended)
	for key, at := range m.ended {
		if now.Sub(at) > remembered {
			delete(m.ended, key)
		}
	}
	f.Consumers = func(namespace, key string) (int, time.Time) {
		k := consumerKey{namespace, key}
		if at, ok := ended[k]; ok {
			return active[k], at
		}
		return active[k], m.began
	}
	return f
}

// remembered is how long the end of a gang is remembered: longer than anything
// waits for it.
const remembered = time.Hour

// Group returns the newest version of a NodeGroup that the model knows, or nil.
func (m *Model) Group(name string) *v1alpha1.NodeGroup {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups[name]
}

// Node returns the newest version of a node that the model knows, or nil.
func (m *Model) Node(name string) *corev1.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.nodes[name]; n != nil {
		return n.object
	}
	return nil
}

func sortMachines(list []cloudprovider.Machine) {
	slices.SortFunc(list, func(a, b cloudprovider.Machine) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name))
	})
}

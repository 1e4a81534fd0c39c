package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// world is all that goes on beside muster: machines, kubelets, the controllers of
// Kubernetes, its scheduler, and people. What it does next follows from the store,
// so it needs no memory of its own, save for what people mean to do.
type world struct {
	*simulator
	// cordoned are the nodes that a human has cordoned.
	cordoned map[string]bool
	// undeclared is how long nodes of a NodeGroup keep a taint that it does not declare; zero means forever. outlive are the NodeGroups
	// whose Node objects outlive their machines.
	undeclared map[string]time.Duration
	outlive    map[string]bool
	// outages are when the clouds of NodeGroups do not answer.
	outages map[string]outage
	// assumed are the nodes that the scheduler has chosen and not bound pods to yet, and pending the devices that it has chosen there and
	// not written to their claims yet.
	assumed map[types.UID]string
	pending map[types.UID]allocations
	// withClaims reports whether pods claim devices. drivers are the faults of the drivers of NodeGroups.
	withClaims bool
	drivers    map[string][]driverFault
	// answers caches what the scheduler's allocator has found, and expressions what it has compiled.
	answers     map[string]allocations
	expressions *dracel.Cache
	// worsened is when devices of a node last became fewer. judged are the requests whose devices were judged.
	worsened map[string]time.Time
	judged   map[types.UID]bool
	// plans are what people will do; planned counts all that there ever were.
	plans    []plan
	planned  int
	gangs    []*gang
	services []*service

	// offers are the options at that revision of the store; nil if they have to be determined again.
	offers   []option
	revision uint64
}

// longestRetry is after what time Muster repeats a call at the latest that has failed again and again.
const longestRetry = 30 * time.Second

// outage is a time in which a cloud does not answer.
type outage struct{ from, until time.Time }

// away reports whether the cloud of the group does not answer a call that is made now. Nothing can be terminated there then.
func (w *world) away(group string) bool {
	o := w.outages[group]
	if time.Now().Before(o.from) || !time.Now().Before(o.until) {
		return false
	}
	w.checker.StandStill(o.until.Add(recovery + longestRetry))
	return true
}

// plan is an action that a user or another client takes once.
type plan struct {
	key string
	at  time.Time
	do  func()
}

// How long the parts of the cluster take at most.
const (
	kubeletTime   = time.Second
	schedulerTime = 500 * time.Millisecond
	// collectorTime is how long what lacks its owner or its node is left.
	collectorTime = 2 * time.Second
	agentTime     = 3 * time.Second
	// evictTime is how long pods are left on a node whose kubelet is silent.
	evictTime = 5 * time.Minute
)

const unschedulable = corev1.TaintNodeUnschedulable

// plan has something done at a time.
func (w *world) plan(at time.Time, key string, do func()) {
	w.planned++
	w.plans = append(w.plans, plan{key: fmt.Sprintf("%s (plan %d)", key, w.planned), at: at, do: do})
}

// offer offers what may happen in the world. That changes only with the store and
// with what happens in the world itself.
func (w *world) offer(offer func(option)) {
	if w.offers == nil || w.revision != w.store.revision {
		w.offers, w.revision = []option{}, w.store.revision
		w.look(func(o option) {
			do := o.do
			o.do = func() {
				w.offers = nil
				do()
			}
			w.offers = append(w.offers, o)
		})
	}
	for _, o := range w.offers {
		offer(o)
	}
}

func (w *world) look(offer func(option)) {
	for _, p := range w.plans {
		offer(option{key: p.key, at: p.at, within: wakeTime, do: func() {
			w.plans = slices.DeleteFunc(w.plans, func(o plan) bool { return o.key == p.key })
			p.do()
		}})
	}
	for _, m := range all[*kwokv1alpha1.Machine](w.store) {
		w.offerMachine(m, offer)
	}
	for _, n := range all[*corev1.Node](w.store) {
		w.offerNode(n, offer)
	}
	for _, p := range all[*corev1.Pod](w.store) {
		w.offerPod(p, offer)
	}
	for _, s := range all[*resourcev1.ResourceSlice](w.store) {
		w.offerSlice(s, offer)
	}
	for _, c := range all[*resourcev1.ResourceClaim](w.store) {
		w.offerClaim(c, offer)
	}
	for _, g := range all[*v1alpha1.NodeGroup](w.store) {
		w.offerDecision(g, offer)
	}
	for _, g := range w.gangs {
		g.offer(w, offer)
	}
	for _, r := range w.services {
		r.offer(w, offer)
	}
}

// offerDecision lets an admin confirm that the machines of a group are lost when many of them seem to be.
func (w *world) offerDecision(g *v1alpha1.NodeGroup, offer func(option)) {
	c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionNodesPresent)
	if c == nil || c.Status != metav1.ConditionFalse || g.Annotations[v1alpha1.TerminateAtOnceAnnotation] != "" {
		return
	}
	at := c.LastTransitionTime.Add(20 * time.Second)
	offer(option{key: "a person decides about group " + g.Name, at: at, within: kubeletTime, do: func() {
		w.feature("person decides about lost machines")
		change(w.store, g, func(g *v1alpha1.NodeGroup) {
			metav1.SetMetaDataAnnotation(&g.ObjectMeta, v1alpha1.TerminateAtOnceAnnotation, "1000")
		})
	}})
}

// create stores an object of the world's own.
func (w *world) create(o client.Object) {
	if _, err := w.store.create(o); err != nil {
		w.note("  %v", err)
	}
}

// clipped is a name that fits into a label beside a suffix.
func clipped(name string) string { return strings.TrimRight(name[:min(len(name), 40)], ".-") }

// lose has a node break down: its machine is Terminated first, where it has one.
func (w *world) lose(n *corev1.Node) {
	w.feature("node lost")
	w.note("  node %s is lost", n.Name)
	if m := find[*kwokv1alpha1.Machine](w.store, "", n.Name); m != nil {
		change(w.store, m, func(m *kwokv1alpha1.Machine) {
			now := metav1.NewTime(moment(time.Now()))
			m.Status.Phase, m.Status.Reason, m.Status.TerminatedAt = kwokv1alpha1.MachineTerminated, "BrokenDown", &now
		})
	}
	_ = w.store.delete(n)
}

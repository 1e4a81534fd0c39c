package state

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
)

// Gang is a set of pods that must run together.
type Gang struct {
	// Namespace of the pods.
	Namespace string
	// Queue is the LocalQueue of the pods; empty for none.
	Queue string
	// Name as namespace/name of the request or workload, for messages.
	Name string
	// UID of the request, which owns what it has booked or launched already. Empty for a gang without a request.
	UID types.UID
	// Key is the booking key of the request; empty for none.
	Key string
	// Launch is the token of the attempt whose machines are the request's own; empty for none.
	Launch  string
	PodSets []PodSet
}

// Tenant returns the tenant that pays for the machines of the gang.
func (g *Gang) Tenant() Tenant { return Tenant{g.Namespace, g.Queue} }

// PodSet is Count pods of one template.
type PodSet struct {
	Name  string
	Count int
	// Template after the API server's defaulting. It is not changed.
	Template *corev1.PodTemplateSpec

	// Pod and refusal are the results of NewPodSet.
	Pod     *fit.Pod
	refusal fit.Refusal
}

// Class is what may be done for a gang.
type Class int

const (
	// CheckCapacity books what exists and launches nothing.
	CheckCapacity Class = iota
	// AtomicScaleUp launches the whole gang's machines or none.
	AtomicScaleUp
)

// Policy bounds and orders the options for a gang.
type Policy struct {
	Class Class
	Split v1alpha1.Split
	// CapacityTypes that may be used, the most wanted first.
	CapacityTypes []v1alpha1.CapacityType
	// Topology is a node label. All pods of the gang must be in one of its domains; empty for none. Its podSets may have bounds of their
	// own, see fit.Domains.
	Topology string
	// MaxMicroUSDPerHour bounds the price of the launched machines of the gang,
	// in millionths of a USD per hour; negative means no bound.
	MaxMicroUSDPerHour int64
	// BookingTimeout is how long booked capacity waits for its pods.
	BookingTimeout time.Duration
	// RevokeOnLoss: a request whose pods run gets CapacityRevoked=True when one of
	// their machines is lost.
	RevokeOnLoss bool
	// StartTimeout is how long pods may fail to start before their gang is revoked, if it may be; 0 means for ever.
	StartTimeout time.Duration
}

// DefaultPolicy is the policy if no CapacityPolicy is named.
func DefaultPolicy(class Class) Policy {
	return Policy{
		Class:              class,
		Split:              v1alpha1.SingleZone,
		CapacityTypes:      []v1alpha1.CapacityType{v1alpha1.Reserved, v1alpha1.Spot, v1alpha1.OnDemand},
		MaxMicroUSDPerHour: -1,
		BookingTimeout:     v1alpha1.DefaultBookingTimeout,
		StartTimeout:       v1alpha1.DefaultStartTimeout,
	}
}

// PolicyFrom reads a CapacityPolicy.
func PolicyFrom(class Class, spec v1alpha1.CapacityPolicySpec) Policy {
	p := DefaultPolicy(class)
	if spec.Split != "" {
		p.Split = spec.Split
	}
	p.Topology = spec.RequiredTopology
	if len(spec.CapacityTypes) > 0 {
		p.CapacityTypes = spec.CapacityTypes
	}
	if spec.MaxPricePerHour != nil {
		p.MaxMicroUSDPerHour = nodegroups.MicroUSD(spec.MaxPricePerHour)
	}
	if spec.BookingTimeout != nil {
		p.BookingTimeout = spec.BookingTimeout.Duration
	}
	if spec.StartTimeout != nil {
		p.StartTimeout = spec.StartTimeout.Duration
	}
	p.RevokeOnLoss = spec.OnMachineLoss == v1alpha1.LossRevoke
	return p
}

// NewPodSet reads count pods of the template, which run in the namespace. objects are the objects that it refers to.
func NewPodSet(namespace, name string, count int, template *corev1.PodTemplateSpec, objects fit.Objects) PodSet {
	ps := PodSet{Name: name, Count: count, Template: template}
	ps.Pod, ps.refusal = fit.NewPod(namespace, name, count, template, objects)
	return ps
}

// Read returns the demand of a pod of the podSet; the refusal says why it is unknown. objects are the objects that a template refers to
// which NewPodSet has not read.
func (ps *PodSet) Read(namespace string, objects fit.Objects) (*fit.Pod, fit.Refusal) {
	if ps.Pod != nil || ps.refusal.Refused() {
		return ps.Pod, ps.refusal
	}
	return fit.NewPod(namespace, ps.Name, ps.Count, ps.Template, objects)
}

// Keys returns the node labels that pods of the podSet select or depend on.
func (ps *PodSet) Keys() []string {
	if ps.Pod == nil {
		return nil
	}
	return slices.Concat(ps.Pod.Keys(), ps.Pod.Topologies())
}

// QueueLabel on a ProvisioningRequest names the LocalQueue of its job. It is the label by which a job names its queue in Kueue. A policy
// lets only Muster, and users with the right to update LocalQueues, set it on a request.
const QueueLabel = "kueue.x-k8s.io/queue-name"

// Tenant pays for machines; the zero value stands for no tenant.
type Tenant struct {
	Namespace string
	// Queue is the LocalQueue of the request's job; empty for none.
	Queue string
}

func (t Tenant) String() string { return t.Namespace + "/" + t.Queue }

// TenantNamed reads what String has written; anything else is no tenant.
func TenantNamed(text string) Tenant {
	namespace, queue, ok := strings.Cut(text, "/")
	if !ok || namespace == "" {
		return Tenant{}
	}
	return Tenant{namespace, queue}
}

// Kept returns the podSet with that many pods, bound to nodes with the labels.
func (ps PodSet) Kept(namespace string, objects fit.Objects, count int, labels map[string]string) PodSet {
	pod, refusal := ps.Read(namespace, objects)
	ps.Count, ps.refusal = count, refusal
	if pod != nil {
		ps.Pod = pod.Kept(count, labels)
	}
	return ps
}

// IsHeldByTaint reports whether all pods of the gang tolerate the taint of bookings by its name.
func (g *Gang) IsHeldByTaint() bool {
	tolerates := func(t corev1.Toleration) bool {
		return t.Key == v1alpha1.BookedTaint && fit.Untolerated([]corev1.Taint{bookedTaint}, []corev1.Toleration{t}) == nil
	}
	return len(g.PodSets) > 0 && !slices.ContainsFunc(g.PodSets, func(ps PodSet) bool {
		return !slices.ContainsFunc(ps.Template.Spec.Tolerations, tolerates)
	})
}

// Again returns the podSet with that many of its pods, which ran on nodes with the labels and are recreated there.
func (ps PodSet) Again(namespace string, objects fit.Objects, count int, labels map[string]string) PodSet {
	pod, refusal := ps.Read(namespace, objects)
	ps.Count, ps.refusal = count, refusal
	if pod != nil {
		ps.Pod = pod.Again(count, labels)
	}
	return ps
}

// Slices returns the podSet with that many of its pods, which are whole slices.
func (ps PodSet) Slices(namespace string, objects fit.Objects, count int, labels map[string]string) PodSet {
	pod, refusal := ps.Read(namespace, objects)
	ps.Count, ps.refusal = count, refusal
	if pod != nil {
		ps.Pod = pod.Slices(count, labels)
	}
	return ps
}

// Levels returns the node labels of the domains that pods of the gang must be within.
func (g *Gang) Levels(p *Policy) (levels []string) {
	if p.Topology != "" {
		levels = append(levels, p.Topology)
	}
	for i := range g.PodSets {
		domains, _ := fit.DomainsOf(g.PodSets[i].Template, g.PodSets[i].Count)
		for _, level := range domains.Levels() {
			if !slices.Contains(levels, level) {
				levels = append(levels, level)
			}
		}
	}
	return levels
}

// Runs returns how long the gang's pods run at most, by their activeDeadlineSeconds; zero if one has none.
func (g *Gang) Runs() (longest time.Duration) {
	for i := range g.PodSets {
		deadline := g.PodSets[i].Template.Spec.ActiveDeadlineSeconds
		if deadline == nil {
			return 0
		}
		longest = max(longest, time.Duration(*deadline)*time.Second)
	}
	return longest
}

// Refused reports whether the demand of the pods is unknown.
func (ps PodSet) Refused() bool { return ps.refusal.Refused() }

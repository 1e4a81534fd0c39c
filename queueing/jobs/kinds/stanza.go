package kinds

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Stanza describes a kind of jobs. Fields that are read are CEL expressions. Fields that are written are JSON pointers (RFC 6901), since
// the value of an expression cannot be written back.
//
// Expressions have the object as self, and as types the list of the types of its conditions that are True. Expressions of a podSet have
// its element as self, the object as job, and its index in a list or its key in a map as key.
type Stanza struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
	// Resource is the plural in URLs; empty is the kind in lower case and an s.
	Resource string `json:"resource,omitempty"`
	// Framework is what Kueue's setting integrations.frameworks calls the kind; empty for
	// kinds of users.
	Framework string `json:"framework,omitempty"`

	Suspend Suspend  `json:"suspend"`
	PodSets []PodSet `json:"podSets"`

	// Elastic objects may change the counts of their pod sets while they run, if they have Kueue's
	// annotation for that. Their pod sets are lists.
	Elastic bool `json:"elastic,omitempty"`
	// Scaled is where the counts of an elastic object change once it runs, if not in itself.
	Scaled *Scaled `json:"scaled,omitempty"`

	// ManagedBy is the field that names the controller of an object, where its kind has one.
	ManagedBy *ManagedBy `json:"managedBy,omitempty"`

	// Refuse says what cannot be queued.
	Refuse []Refusal `json:"refuse,omitempty"`
	// Defaults are set on a queued object at its creation where it has no value.
	Defaults []Default `json:"defaults,omitempty"`

	// Succeeded and Failed report whether the object has come to its end.
	Succeeded string `json:"succeeded,omitempty"`
	Failed    string `json:"failed,omitempty"`
	// Message is what the object says of its end.
	Message string `json:"message,omitempty"`
	// Stopped reports whether the operator says that a suspended object has no pods left.
	// Its pods are counted all the same.
	Stopped string `json:"stopped,omitempty"`
	// Source is the kind, as group/Kind, of the object of the same name that an operator makes
	// for the object, and in which its pod templates are read.
	Source *string `json:"source,omitempty"`
	// Requeues suspends a running object in the same request that changes its pods, so that it queues again with its new pods. It is for
	// services, which never end. Without it such a change is refused.
	Requeues bool `json:"requeues,omitempty"`
	// Immutable are fields beside the pod templates that may not change while the object runs.
	Immutable []string `json:"immutable,omitempty"`
	// PriorityClassName is that of the whole object; empty is that of its first pod set that
	// names one.
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// PodLabels select the pods of an object that ran before Muster was installed, by expressions. Pods that Muster starts have Muster's
	// own label.
	PodLabels map[string]string `json:"podLabels,omitempty"`
	// Stale are objects that the operator makes while the object is suspended, and whose pod
	// templates it does not clean from what an earlier start has added: Muster deletes them
	// before the next start, and the operator makes them again.
	Stale []Child `json:"stale,omitempty"`
}

// Suspend is how an object is kept from having pods.
type Suspend struct {
	Path string `json:"path"`
	// Held is the value that keeps it, by default true. Running lets it go, by default false;
	// null removes the field.
	Held    any `json:"held,omitempty"`
	Running any `json:"running,omitempty"`
}

// ManagedBy is the field that names the controller of an object.
type ManagedBy struct {
	Path string `json:"path"`
	// Own is the name of the kind's own controller. Objects of MultiKueue's controller run in another cluster. Objects of any other
	// controller are not queued.
	Own string `json:"own"`
	// TTL is the field that says how soon a finished object is deleted. A copy in another cluster has none: it would be gone before its end
	// was seen here.
	TTL string `json:"ttl,omitempty"`
	// Forwards lists fields that may change while the object runs in another cluster, and take effect there. They do not change its
	// pods.
	Forwards []string `json:"forwards,omitempty"`
}

// Scaled is an object that an operator makes, and that is scaled in place of the queued one. Its pod sets have the same names.
type Scaled struct {
	// Kind is a built-in one, as group/Kind.
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// PodSet is one or several pod sets of an object, in the order of Kueue.
type PodSet struct {
	// Path is an object that has a pod template; each one of the list or map at Each is one,
	// too. Where there is nothing, there is no such pod set.
	Path string `json:"path,omitempty"`
	Each string `json:"each,omitempty"`
	// If says which elements are pod sets; empty is all.
	If    string `json:"if,omitempty"`
	Name  string `json:"name"`
	Count string `json:"count"`
	// AfterReady and AfterComplete are lists of the names of pod sets that have to be ready, or to
	// have succeeded, before the operator creates the pods; empty is none. Quota and machines are
	// for all pod sets together.
	AfterReady    string `json:"afterReady,omitempty"`
	AfterComplete string `json:"afterComplete,omitempty"`
	// Final is how many pods are over and are not followed by others; empty is none.
	Final string `json:"final,omitempty"`
	// Template points from the element to its pod template.
	Template string `json:"template"`
	// Absent is the template that a start adds where the element has none: what the operator
	// would use.
	Absent string `json:"absent,omitempty"`
	// Hidden are containers that the operator adds to the pods.
	Hidden []Hidden `json:"hidden,omitempty"`
	// IndexLabel is the label that numbers the pods, from 0; empty is none. Pods of neighbouring
	// numbers are placed near to each other.
	IndexLabel string `json:"indexLabel,omitempty"`
	// SubGroups are groups of pods of the same size, each with its own numbering; nil for none.
	SubGroups *SubGroups `json:"subGroups,omitempty"`
}

// SubGroups number the groups of pods of a pod set, from 0.
type SubGroups struct {
	IndexLabel string `json:"indexLabel"`
	Count      string `json:"count"`
}

// Hidden is a container that an operator adds to pods.
type Hidden struct {
	Name string `json:"name"`
	// If says to which it is added; empty is to all.
	If string `json:"if,omitempty"`
	// Init containers end before the others start.
	Init bool `json:"init,omitempty"`
	// OnlyAsked counts only the resources that the pods request themselves, so that a queue need not cover any others. It is for
	// containers that Kueue does not count.
	OnlyRequested bool              `json:"onlyRequested,omitempty"`
	Requests      map[string]string `json:"requests"`
}

// Refusal is why an object cannot be queued.
type Refusal struct {
	If string `json:"if"`
	// Message names the field, its value and what to do about it.
	Message string `json:"message"`
}

// Default is a value of a queued object where its user gives none.
type Default struct {
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Child is a kind of objects that have the name of the queued object as the value of a label.
type Child struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Kind     string `json:"kind"`
	Resource string `json:"resource,omitempty"`
	Label    string `json:"label"`
}

// GroupVersionKind is the API type of the objects.
func (s *Stanza) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: s.Group, Version: s.Version, Kind: s.Kind}
}

// GroupVersionKind is the API type of the children.
func (c *Child) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: c.Group, Version: c.Version, Kind: c.Kind}
}

package jobs

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs/children"
	"github.com/muster-dev/muster/queueing/jobs/order"
	"github.com/muster-dev/muster/queueing/jobs/templates"
)

// Source is where Workloads come from.
type Source interface {
	// GroupVersionKind is the API type of the jobs.
	GroupVersionKind() schema.GroupVersionKind
	// PodSets are the pods that the whole job runs at once, whatever has ended of it,
	// with a minCount where it may start with fewer. Refusals are why it cannot be
	// queued as it is, each with what to do about it.
	PodSets(job client.Object) (podSets []kueue.PodSet, refusals []string)
}

// Kind is a kind of job: how its jobs are suspended, started and restored, and what
// their status says. Methods read and change the object that they are given and
// nothing else. The framework reads it, and writes what a method has changed in one
// patch of the version that was read. The object has the Go type of the scheme, or is
// unstructured where the scheme has none.
//
// All lists are in the order of the pod sets. What only some kinds can do stands in
// the interfaces below.
type Kind interface {
	Source

	// StartPolicy is the ValidatingAdmissionPolicy that keeps queued jobs from starting by
	// themselves, from its creation on.
	StartPolicy() string

	// IsSuspended reports whether the job is kept from creating pods.
	IsSuspended(job client.Object) bool
	// Suspend makes the job create no pods, and its controller delete the existing ones.
	Suspend(job client.Object)
	// Resume is the opposite of Suspend: Start without what Muster adds.
	Resume(job client.Object)
	// Start lets the job create its pods as they were admitted, and returns what
	// Restore needs to undo that, to be kept as JSON. The error is templates.ErrConflict if the
	// job can never start so.
	Start(job client.Object, placements []templates.Placement) (record any, err error)
	// Restore undoes a start by its record. Without a record, Kueue may have started
	// the job: podSets, of the Workload, are then how it was. It reports whether it
	// changed the job.
	Restore(job client.Object, record []byte, podSets []kueue.PodSet) (changed bool, err error)

	// IsStopped reports whether the status says that a suspended job has no pods. While it says otherwise, the pods need not be listed.
	// It is no proof, since controllers write it before the pods are gone.
	IsStopped(job client.Object) bool
	// PodLabels returns selectors for all pods of the job. Each pod matches one of them.
	PodLabels(job client.Object) []client.MatchingLabels
	// Outcome is what became of the job, and its own message about that.
	Outcome(job client.Object) (Outcome, string)
}

// Outcome is what became of a job.
type Outcome int

const (
	// Unfinished jobs wait or run.
	Unfinished Outcome = iota
	// Ending jobs have an outcome, and only their last pods have to go.
	Ending
	Succeeded
	Failed
)

// Tracker is a Kind whose controller counts the pods of a job in its status, and does so
// rightly: one that has ended has none left. The pods of all other kinds are watched and
// counted here, and an ended job keeps its quota and its machines until its pods are gone.
type Tracker interface {
	Kind
	// IsReady reports whether all pods that the job should have are ready or have
	// succeeded, if as many of each pod set as granted have quota.
	IsReady(job client.Object, granted []int32) bool
}

// Parent is a Kind whose controller makes objects while a job is suspended, and leaves in them
// what an earlier start has added to their pod templates.
type Parent interface {
	Kind
	// Children are those objects. They are deleted before the job is started again, and its
	// controller makes them again.
	Children(job client.Object) []children.Kind
}

// Resolver is a Kind whose jobs may have their pods, or how many, from another object, which their
// controller makes.
type Resolver interface {
	Kind
	// Source is the type of that object, which the job controls; empty for a kind without.
	Source() schema.GroupVersionKind
	// SourceName is its name; empty for a job that needs none.
	SourceName(job client.Object) string
	// Resolve gives a job what its source says, to be read by the methods above; nil if there
	// is none. It reports whether that follows from the job as it is now.
	Resolve(job, source client.Object) (current bool)
}

// Delegable is a Kind whose jobs name their controller, which may be one that has them run in another cluster.
type Delegable interface {
	Kind
	// CanDelegate reports whether the kind has a field for that.
	CanDelegate() bool
	// ManagedBy names the controller of a job; empty is that of the kind.
	ManagedBy(job client.Object) string
	// Delegate makes of a job what is to be created in another cluster, for the controller of the kind there.
	Delegate(job client.Object)
}

// Prioritized is a Kind whose jobs may name a PriorityClass beside that of their pods, before
// which it takes precedence.
type Prioritized interface {
	Source
	// PriorityClass is the name of the class; empty if the job names none.
	PriorityClass(job client.Object) string
}

// Counted is a Kind whose jobs report which pods they do not need any more. The quota of finished pods is released while others run, and
// an evicted job queues only for its remaining pods.
type Counted interface {
	Kind
	// Counts are those of each pod set.
	Counts(job client.Object) []Counts
}

// Counts are of the pods of one pod set.
type Counts struct {
	// Requested is how many pods can run at once, no matter how many have ended.
	Requested int32
	// Needed is how many run at once at most from now on.
	Needed int32
	// Left is how many pods exist and are not over. A terminating pod counts, since it uses its node. Only a Tracker reports it.
	Left int32
	// Created is how many pods have been created since the start. Only a Tracker reports it.
	Created int32
}

// Elastic is a Kind whose jobs may change their number of pods while they run. Its pods
// are created with a scheduling gate, since their template must not change then.
type Elastic interface {
	Counted
	// CanScale reports whether objects of the kind can be elastic.
	CanScale() bool
	// MayHaveGated reports whether a pod of the job may still have its gate, by the status. If not, the pods need not be listed.
	MayHaveGated(job client.Object) bool
	// Compare orders pods by how long the job keeps them when it shrinks, the longest
	// first.
	Compare(a, b *corev1.Pod) int
}

// Refusable is a Kind whose controller reports in Events on the job that the API server
// refuses its pods.
type Refusable interface {
	Counted
	Tracker
	// CreatesPodsSince is when the job was started as its controller sees it; zero
	// while it creates no pods.
	CreatesPodsSince(job client.Object) time.Time
	// RefusalEvents select those Events among all on the job.
	RefusalEvents() client.MatchingFields
}

// Unlocker is a Kind whose jobs cannot be started or restored as long as their status shows a start.
type Unlocker interface {
	Kind
	// Unlock takes the start off the status. It reports whether it changed that.
	Unlock(job client.Object) bool
}

// Ordered is a Kind whose controller may create the pods of one podSet after those of another.
type Ordered interface {
	Source
	// Order returns what the pods of each podSet come after; nil if that is not determined.
	Order(job client.Object) []*order.After
}

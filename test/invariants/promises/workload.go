package promises

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/checks"
	"github.com/muster-dev/muster/queueing/scheduler"
	workloads "github.com/muster-dev/muster/queueing/workload"
)

// workload is what counts of a Workload.
type workload struct {
	uid             types.UID
	namespace, name string
	// job is the UID of the Job that it stands for, if it is one.
	job   types.UID
	queue string
	// holds quota of clusterQueue.
	holds        bool
	clusterQueue string
	usage        map[flavorResource]int64
	// granted are the pods that it has quota for, also while a successor counts for it.
	granted int
	// remaining are those of each pod set that are not reclaimable, and owner is the UID that they name.
	remaining map[kueue.PodSetReference]int
	owner     types.UID
	// reclaimed are the pods that were reclaimable before quota was reserved.
	reclaimed map[kueue.PodSetReference]int32
	// adopted: its job ran before Muster came.
	adopted  bool
	admitted bool
	evicted  bool
	// replaces is the Workload slice of the same Job whose place it takes.
	replaces *workload
	// successor has taken its place, and with it its quota; yielded is what it had of that.
	successor *workload
	yielded   map[flavorResource]int64
	checks    []string
	deleted   bool
	deletedAt time.Time
	// pending for quota; reserved, but not admitted.
	pending, reserved waiting
}

func (w *workload) String() string { return "Workload " + w.namespace + "/" + w.name }

func (c *Checker) applyWorkload(e Event, o *kueue.Workload) {
	w := c.workloads[o.UID]
	if w == nil {
		w = &workload{uid: o.UID, namespace: o.Namespace, name: o.Name}
		c.workloads[w.uid] = w
	}
	// A prebuilt one is there before its Job takes it.
	if owner := metav1.GetControllerOf(o); w.job == "" && owner != nil && owner.Kind == string(Jobs) {
		w.job = owner.UID
		w.replaces = c.replacedBy(o, c.queued[w.job])
		c.queued[w.job] = w
	}
	before := *w
	if e.Deleted {
		w.holds, w.usage, w.granted = false, nil, 0
		w.deleted, w.deletedAt, w.yielded = true, e.Time, nil
		w.pending, w.reserved = waiting{}, waiting{}
		delete(c.workloads, w.uid)
		if c.queued[w.job] == w && !before.admitted && w.replaces != nil && !w.replaces.deleted {
			c.queued[w.job] = w.replaces
		}
		c.applyUsage(e, &before, w, o)
		c.recede(&before, w)
		return
	}
	is := func(t string) bool { return meta.IsStatusConditionTrue(o.Status.Conditions, t) }
	reserved, finished := is(kueue.WorkloadQuotaReserved), is(kueue.WorkloadFinished)
	w.queue = string(o.Spec.QueueName)
	w.admitted = is(kueue.WorkloadAdmitted)
	w.checks = nil
	for _, s := range o.Status.AdmissionChecks {
		w.checks = append(w.checks, string(s.Name))
	}
	w.holds = reserved && !finished && o.Status.Admission != nil && (w.successor == nil || !w.successor.holds)
	w.clusterQueue, w.usage, w.yielded, w.granted = "", nil, nil, 0
	if reserved && !finished && o.Status.Admission != nil {
		if !w.holds {
			w.clusterQueue, w.yielded = string(o.Status.Admission.ClusterQueue), usageOf(o, w.reclaimed)
		}
		for i := range o.Status.Admission.PodSetAssignments {
			w.granted += int(countOf(o, &o.Status.Admission.PodSetAssignments[i]))
		}
	}
	if w.holds {
		if !before.holds && !e.Listed {
			w.reclaimed = reclaimable(o)
		}
		w.clusterQueue, w.usage = string(o.Status.Admission.ClusterQueue), usageOf(o, w.reclaimed)
		w.remaining, w.owner = remaining(o, w.reclaimed), types.UID(o.Labels[workloads.JobUIDLabel])
		c.succeed(w)
	}
	evicted := meta.FindStatusCondition(o.Status.Conditions, kueue.WorkloadEvicted)
	w.adopted = workloads.IsAdopted(o)
	c.applyUsage(e, &before, w, o)
	c.recede(&before, w)
	w.evicted = evicted != nil && evicted.Status == metav1.ConditionTrue
	if w.evicted && !before.evicted {
		c.judgeEvicted(e, w, o)
	}

	waits := !reserved && !finished && o.DeletionTimestamp == nil
	c.noteWaiting(&w.pending, waits, saysWhyPending(o), PendingWorkloads)
	c.noteWaiting(&w.reserved, w.holds && !w.admitted && o.DeletionTimestamp == nil, saysWhy(o), ReservedWorkloads)
}

// succeed takes the quota of a Workload slice off its queue once another one has quota in
// its place: the pods are the same.
func (c *Checker) succeed(w *workload) {
	if old := w.replaces; old != nil && old.holds {
		c.used.sub(old.clusterQueue, old.usage)
		old.holds, old.yielded, old.usage, old.successor = false, old.usage, nil, w
	}
}

// recede gives its quota back to the Workload in whose place one had it, once that has none.
func (c *Checker) recede(before, w *workload) {
	if old := w.replaces; before.holds && !w.holds && old != nil && old.successor == w && old.yielded != nil {
		old.holds, old.usage, old.yielded, old.successor = true, old.yielded, nil, nil
		c.used.add(old.clusterQueue, old.usage)
	}
}

// replacedBy is the Workload of the same Job that a new one says to replace; nil if
// it replaces none.
func (c *Checker) replacedBy(o *kueue.Workload, last *workload) *workload {
	name := o.Annotations[workloads.ReplacementAnnotation]
	if last != nil && (name == last.name || name == last.namespace+"/"+last.name) {
		return last
	}
	return nil
}

// pendingReasons are the reasons that QuotaReserved=False may have.
var pendingReasons = map[string]bool{
	kueue.WorkloadQuotaReservedReasonNoMatchingFlavor:             true,
	kueue.WorkloadQuotaReservedReasonWaitingForQuota:              true,
	kueue.WorkloadQuotaReservedReasonExceedsMaxQuota:              true,
	kueue.WorkloadQuotaReservedReasonTopologyPlacementFailed:      true,
	kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads: true,
	kueue.WorkloadQuotaReservedReasonMisconfigured:                true,
	kueue.WorkloadQuotaReservedReasonSuspended:                    true,
	kueue.WorkloadQuotaReservedReasonPendingEvaluation:            true,
	kueue.WorkloadQuotaReservedReasonWaitingForPodsReady:          true,
	kueue.WorkloadAdmissionGated:                                  true,
	kueue.WorkloadOnHold:                                          true,
	kueue.WorkloadDeactivated:                                     true,
	// A stock Kueue has these reasons unless UnadmittedWorkloadsObservability is on.
	"Pending":                  true,
	kueue.WorkloadInadmissible: true,
	"Waiting":                  true,
	// Muster's own.
	workloads.ReasonWaitingForCapacity:       true,
	scheduler.ReasonWaitingForNamespaceQuota: true,
	checks.ReasonStartByPassed:               true,
}

// saysWhyPending reports whether a Workload without quota has a known reason and a message. A deactivated Workload may have them in its
// Evicted condition.
func saysWhyPending(o *kueue.Workload) bool {
	if o.Spec.Active != nil && !*o.Spec.Active && meta.IsStatusConditionTrue(o.Status.Conditions, kueue.WorkloadEvicted) {
		return true
	}
	c := meta.FindStatusCondition(o.Status.Conditions, kueue.WorkloadQuotaReserved)
	return c != nil && pendingReasons[c.Reason] && c.Message != ""
}

// saysWhy says that a Workload which holds quota names what it waits for: a
// check that is not Ready does, or its eviction, or an Admitted=False that names
// such a check.
func saysWhy(o *kueue.Workload) bool {
	if c := meta.FindStatusCondition(o.Status.Conditions, kueue.WorkloadEvicted); c != nil &&
		c.Status == metav1.ConditionTrue && c.Message != "" {
		return true
	}
	admitted := meta.FindStatusCondition(o.Status.Conditions, kueue.WorkloadAdmitted)
	if admitted != nil && admitted.Status == metav1.ConditionFalse && admitted.Message != "" &&
		admitted.Reason == kueue.WorkloadAdmittedReasonPendingDelayedTopologyRequests {
		return true
	}
	return slices.ContainsFunc(o.Status.AdmissionChecks, func(s kueue.AdmissionCheckState) bool {
		return s.State != kueue.CheckStateReady &&
			(s.Message != "" || admitted != nil && strings.Contains(admitted.Message, string(s.Name)))
	})
}

func (c *Checker) applyLocalQueue(e Event, o *kueue.LocalQueue) {
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	if e.Deleted {
		delete(c.local, key)
		return
	}
	c.local[key] = string(o.Spec.ClusterQueue)
}

func (c *Checker) applyCheck(e Event, o *kueue.AdmissionCheck) {
	if e.Deleted {
		delete(c.checks, o.Name)
		return
	}
	c.checks[o.Name] = o.Spec.ControllerName
}

// isCapacity reports whether an AdmissionCheck provisions machines: Muster's own, or that by which a stock Kueue creates
// ProvisioningRequests.
func (c *Checker) isCapacity(check string) bool {
	by := c.checks[check]
	return by == cache.CapacityController || by == cache.ProvisioningRequestController
}

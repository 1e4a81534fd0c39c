package history

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/cost"
	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/queueing/workload"
)

// NameOf returns the job's name with its kind, or the Workload's if it has no job.
func NameOf(w *kueue.Workload) string {
	if owner := metav1.GetControllerOf(w); owner != nil {
		return strings.ToLower(owner.Kind) + "/" + owner.Name
	}
	return "workload/" + w.Name
}

// Succeeded reports whether a Workload that is finished ended with success.
func Succeeded(w *kueue.Workload) bool {
	c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
	return c != nil && (c.Reason == kueue.WorkloadFinishedReasonSucceeded || c.Reason == kueue.WorkloadFinishedReasonOwnerNotFound)
}

// DevicesOf are the extended resources that all pods of a Workload request. With partial admission these are the admitted pods.
func DevicesOf(w *kueue.Workload) (pods int32, devices nodegroups.Resources) {
	devices = nodegroups.Resources{}
	for i := range w.Spec.PodSets {
		ps := &w.Spec.PodSets[i]
		count := ps.Count
		if a := w.Status.Admission; a != nil && ps.MinCount != nil && i < len(a.PodSetAssignments) {
			count = workload.CountOf(&a.PodSetAssignments[i])
		}
		pods += count
		for name, each := range workload.PodRequests(&ps.Template.Spec) {
			if nodegroups.Extended(name) {
				devices[name] += each * int64(count)
			}
		}
	}
	return pods, devices
}

// End returns the job of a Workload that is finished, or that was deleted at that time. before is an earlier version with its podSets,
// because finished Workloads do not keep them.
func End(w, before *kueue.Workload, deleted time.Time) Job {
	out := Job{
		Namespace: w.Namespace, Name: NameOf(w), Workload: w.Name, Queue: string(w.Spec.QueueName), Outcome: Cancelled,
		User: w.Annotations[workload.SubmittedByAnnotation],
		Why:  "its Workload was deleted", Created: w.CreationTimestamp.Time, Ended: deleted,
	}
	if w.Spec.Priority != nil {
		out.Priority = *w.Spec.Priority
	}
	if w.Status.Admission != nil {
		out.ClusterQueue = string(w.Status.Admission.ClusterQueue)
	}
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished); c != nil && c.Status == metav1.ConditionTrue {
		out.Outcome, out.Why, out.Ended = Failed, c.Message, c.LastTransitionTime.Time
		if Succeeded(w) {
			out.Outcome, out.Why = Finished, ""
		}
	}
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil && c.Status == metav1.ConditionTrue {
		out.Reserved = c.LastTransitionTime.Time
	}
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted); c != nil && c.Status == metav1.ConditionTrue {
		out.Started = c.LastTransitionTime.Time
	}
	if s := w.Status.SchedulingStats; s != nil {
		for i := range s.Evictions {
			out.Evictions += s.Evictions[i].Count
		}
	}
	var devices nodegroups.Resources
	if out.Pods, devices = DevicesOf(before); len(devices) > 0 {
		out.Devices = map[string]int64{}
		for name, n := range devices {
			out.Devices[string(name)] = n
		}
	}
	return out
}

// Catalog is what groups are of, and their list prices.
type Catalog []*v1alpha1.NodeGroup

// find returns the group; nil if it is not there any more.
func (c Catalog) find(name string) *v1alpha1.NodeGroup {
	for _, g := range c {
		if g.Name == name {
			return g
		}
	}
	return nil
}

// Offering returns the offering of a group; it is empty if the group is gone.
func (c Catalog) Offering(name string) Offering {
	g := c.find(name)
	if g == nil {
		return Offering{}
	}
	return Offering{
		Provider: string(g.Spec.Provider), Region: g.Spec.Template.Labels[corev1.LabelTopologyRegion], Zone: g.Spec.Zone,
		CapacityType: string(g.Spec.CapacityType), MachineType: nodegroups.MachineType(&g.Spec),
	}
}

// ListPrice is what a machine of a group costs on demand, by the group of the same type in the same zone that is, or else in the
// zone where it costs least; without one it is the group's own price. It is in millionths of a USD per hour.
func (c Catalog) ListPrice(name string) (price int64, known bool) {
	g := c.find(name)
	if g == nil {
		return 0, false
	}
	kind, here := nodegroups.MachineType(&g.Spec), false
	for _, o := range c {
		if g.Spec.CapacityType == v1alpha1.OnDemand || kind == "" || o.Spec.CapacityType != v1alpha1.OnDemand ||
			o.Spec.Provider != g.Spec.Provider || nodegroups.MachineType(&o.Spec) != kind || o.Spec.PricePerHour == nil {
			continue
		}
		each, same := nodegroups.MicroUSD(o.Spec.PricePerHour), o.Spec.Zone == g.Spec.Zone
		if !known || same && !here || same == here && each < price {
			price, known, here = each, true, same
		}
	}
	return price, known
}

// CostOf is the cost of a line of the ledger's book, by the name of the job that pays.
func (c Catalog) CostOf(line cost.Line, e cost.Entry, job string) Cost {
	cause := line.Cause()
	out := Cost{
		Day: line.Day.Format(time.DateOnly), Namespace: cause.Namespace, Queue: cause.Queue, Workload: job, Group: line.Group,
		Purpose: line.Purpose.String(), Milliseconds: e.Milliseconds, MicroUSD: e.MicroUSD, ListMicroUSD: e.MicroUSD,
	}
	if price, known := c.ListPrice(line.Group); known {
		out.ListMicroUSD = spend.PriceOf(e.Milliseconds, price)
	}
	return out
}

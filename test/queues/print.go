package queues

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/workload"
)

// Describe prints what a status says, without the messages.
func Describe(w *kueue.Workload) string {
	var out strings.Builder
	for _, c := range w.Status.Conditions {
		fmt.Fprintf(&out, "%s=%s %s\n", c.Type, c.Status, c.Reason)
	}
	if w.Status.SchedulingStats != nil {
		for _, x := range w.Status.SchedulingStats.Evictions {
			fmt.Fprintf(&out, "evicted %s/%s: %d\n", x.Reason, x.UnderlyingCause, x.Count)
		}
	}
	if a := w.Status.Admission; a != nil {
		for i := range a.PodSetAssignments {
			fmt.Fprintf(&out, "admission: %d pods of %s\n", workload.CountOf(&a.PodSetAssignments[i]), a.PodSetAssignments[i].Name)
		}
	}
	for _, n := range w.Status.UnhealthyNodes {
		fmt.Fprintf(&out, "unhealthy node: %s\n", n.Name)
	}
	if r := w.Status.RequeueState; r != nil {
		fmt.Fprintf(&out, "requeueState:")
		if r.Count != nil {
			fmt.Fprintf(&out, " count %d", *r.Count)
		}
		if r.RequeueAt != nil {
			fmt.Fprintf(&out, " at %s", r.RequeueAt.UTC().Format(time.TimeOnly))
		}
		fmt.Fprintln(&out)
	}
	if v := w.Status.AccumulatedPastExecutionTimeSeconds; v != nil {
		fmt.Fprintf(&out, "ran %ds before\n", *v)
	}
	return out.String()
}

// requests prints the requests of a workload with their specs.
func (w *World) requests(t *testing.T, name string) string {
	var out strings.Builder
	requests := slices.Clone(w.State.Requests[w.Find(t, name).UID])
	slices.SortFunc(requests, func(a, b *autoscaling.ProvisioningRequest) int { return strings.Compare(a.Name, b.Name) })
	for _, r := range requests {
		fmt.Fprintf(&out, "%s: %s", r.Name, r.Spec.ProvisioningClassName)
		if ahead := r.Annotations[workload.ProvisionFirstAnnotation]; ahead != "" {
			fmt.Fprintf(&out, " ahead of quota for %s", ahead)
		}
		for _, k := range slices.Sorted(maps.Keys(r.Spec.Parameters)) {
			fmt.Fprintf(&out, " %s=%s", k, r.Spec.Parameters[k])
		}
		out.WriteString("\n")
		for _, ps := range r.Spec.PodSets {
			fmt.Fprintf(&out, "  %d of %s\n", ps.Count, ps.PodTemplateRef.Name)
		}
	}
	return out.String()
}

// checkStates prints the states of a workload's checks.
func checkStates(object *kueue.Workload) string {
	var out strings.Builder
	for i := range object.Status.AdmissionChecks {
		c := &object.Status.AdmissionChecks[i]
		fmt.Fprintf(&out, "%s: %s, %d retries: %s\n", c.Name, c.State, workload.Retries(c), c.Message)
		for _, u := range c.PodSetUpdates {
			fmt.Fprintf(&out, "  %s: %v %v\n", u.Name, u.Annotations, u.NodeSelector)
		}
	}
	return out.String()
}

// queues prints what the report says of each queue.
func (w *World) queues() string {
	var out strings.Builder
	w.State.MarkAllDirty()
	report := w.State.Report(w.Now)
	for _, q := range w.State.Order {
		st := report.ClusterQueues[q.Object.Name]
		fmt.Fprintf(&out, "%s: %s, %d pending, %d reserving, %d admitted", q.Object.Name, st.Conditions[0].Reason, st.PendingWorkloads,
			st.ReservingWorkloads, st.AdmittedWorkloads)
		for _, f := range st.FlavorsReservation {
			for _, r := range f.Resources {
				fmt.Fprintf(&out, " %s/%s=%s", f.Name, r.Name, r.Total.String())
			}
		}
		fmt.Fprintf(&out, "\n  %s\n", st.Conditions[0].Message)
	}
	for _, name := range slices.SortedFunc(maps.Keys(report.LocalQueues),
		func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) }) {
		for _, c := range report.LocalQueues[name].Conditions {
			fmt.Fprintf(&out, "%s: %s (%s)\n", name.Name, c.Reason, c.Message)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.State.Checks)) {
		if st, ok := report.Checks[string(name)]; ok {
			fmt.Fprintf(&out, "%s: %s (%s)\n", name, st.Conditions[0].Reason, st.Conditions[0].Message)
		}
	}
	return out.String()
}

// consumed writes the statuses of the LocalQueues that have changed, and prints what
// they have used.
func (w *World) consumed() string {
	var out strings.Builder
	report := w.State.Report(w.Now).LocalQueues
	for _, key := range slices.SortedFunc(maps.Keys(report), func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) }) {
		lq := w.State.LocalQueues[key].Object.DeepCopy()
		lq.Status = report[key]
		w.Write(lq)
		w.State.Set(lq)
		if fs := lq.Status.FairSharing; fs != nil {
			fmt.Fprintf(&out, "%s at %s:", key.Name, fs.AdmissionFairSharingStatus.LastUpdate.UTC().Format(time.TimeOnly))
			list := fs.AdmissionFairSharingStatus.ConsumedResources
			for _, name := range slices.Sorted(maps.Keys(list)) {
				v := list[name]
				fmt.Fprintf(&out, " %s=%s", name, v.String())
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

// Places prints the domains of the pods of a workload.
func Places(object *kueue.Workload) string {
	var out strings.Builder
	if object.Status.Admission == nil {
		return "nowhere\n"
	}
	for i := range object.Status.Admission.PodSetAssignments {
		a := &object.Status.Admission.PodSetAssignments[i]
		fmt.Fprintf(&out, "%s:", a.Name)
		if a.DelayedTopologyRequest != nil {
			fmt.Fprintf(&out, " (delayed, %s)", *a.DelayedTopologyRequest)
		}
		for _, c := range object.Status.AdmissionChecks {
			for _, u := range c.PodSetUpdates {
				if u.Name == a.Name && u.Annotations[workload.FillsNodesAnnotation] != "" {
					out.WriteString(" filling the nodes")
				}
			}
		}
		if a.TopologyAssignment != nil {
			domains, err := placement.Decode(a.TopologyAssignment)
			if err != nil {
				return err.Error()
			}
			for _, d := range domains {
				fmt.Fprintf(&out, " %s=%d", strings.Join(d.Values, "/"), d.Count)
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/podgroup"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/scheduler"
	"github.com/muster-dev/muster/queueing/workload"
)

// ExplainJob explains a job, or a pod that queues, by its Workload.
func (p *Picture) ExplainJob(job client.Object) *Explanation {
	if w := p.WorkloadFor(job); w != nil {
		out := p.ExplainWorkload(w)
		out.Kind, out.Name, out.Workload = kindOfJob(job), job.GetName(), w.Name
		return out
	}
	out := &Explanation{Kind: kindOfJob(job), Namespace: job.GetNamespace(), Name: job.GetName(), Missing: p.Missing}
	if name := jobs.PrebuiltName(job); name != "" && job.GetLabels()[jobs.QueueLabel] != "" {
		out.Summary = "waits for its Workload"
		out.Causes = []string{fmt.Sprintf("label %s names Workload %s, which does not exist or belongs to another job", jobs.PrebuiltLabel, name)}
		out.Unblock = []string{fmt.Sprintf("create a Workload with that name for the job's pods, or remove the label %s so that Muster creates "+
			"one", jobs.PrebuiltLabel)}
		return out
	}
	if queue := job.GetLabels()[jobs.QueueLabel]; queue != "" {
		out.Summary = "has no Workload yet"
		out.Causes = []string{fmt.Sprintf("it names LocalQueue %s; its Workload is created within seconds, unless the job was never suspended",
			queue)}
		if gang := podgroup.Gang(job); gang != "" {
			out.Causes = []string{fmt.Sprintf("it names LocalQueue %s, and queues with %s, which has no Workload: a group has one once all of its "+
				"pods are there, a StatefulSet or LeaderWorkerSet if it names a queue itself", queue, gang)}
		}
		out.Unblock = []string{"if it stays so: kubectl describe has the Events of the job, and kubectl get pods -A -l " +
			"app.kubernetes.io/name=muster shows an administrator whether Muster runs"}
		if workloads := QueueKinds[0].Resource; p.unread[workloads] {
			out.Summary = "is in a queue, and your rights do not show its state"
			out.Causes = []string{fmt.Sprintf("it names LocalQueue %s; whether it waits, and for what, is told by its Workload, and you may not "+
				"list %s in namespace %s", queue, workloads, job.GetNamespace())}
			out.Unblock = []string{fmt.Sprintf("ask an administrator for the role view in the namespace, which has that right: kubectl create "+
				"rolebinding view-YOU --clusterrole=view --user=YOU -n %s", job.GetNamespace())}
		}
		return out
	}
	out.Summary = "is not in a queue, so Muster ignores it"
	out.Causes = []string{fmt.Sprintf("it has no label %s", jobs.QueueLabel)}
	out.Unblock = []string{"recreate it with that label set to a LocalQueue of its namespace"}
	return out
}

// kindOfJob is that of a job; one that was read with its Go type does not say.
func kindOfJob(job client.Object) string {
	return cmp.Or(job.GetObjectKind().GroupVersionKind().Kind, "Job")
}

// ExplainWorkload reports the state of a Workload and what holds it there.
func (p *Picture) ExplainWorkload(w *kueue.Workload) *Explanation {
	out := &Explanation{Kind: "Workload", Namespace: w.Namespace, Name: w.Name, Missing: p.Missing}
	account, ok := p.Queues.Explain(w.UID, p.Now)
	verdict, decided := p.verdicts[w.UID]
	if ok && account.Queue != "" {
		out.Place = &Place{ClusterQueue: string(account.Queue), LocalQueue: string(w.Spec.QueueName), Priority: priorityOf(w)}
	}
	if order := w.Annotations[workload.OrderAnnotation]; order != "" && !workload.IsFinished(w) {
		out.Order = append(strings.Split(order, "; "), "quota and machines are for all of them from the start")
	}
	switch {
	case workload.IsFinished(w):
		out.Place, out.Summary = nil, "is finished"
		out.Causes = causesOf(w, kueue.WorkloadFinished)
	case decided && verdict.Action != lifecycle.Wait && verdict.Action != lifecycle.Advance:
		p.explainVerdict(out, &verdict)
	case workload.HasQuota(w):
		p.explainHolding(out, w)
	case !p.Decides():
		p.explainRecorded(out, w)
	default:
		p.explainWaiting(out, &account)
	}
	return out
}

func priorityOf(w *kueue.Workload) int32 {
	if w.Spec.Priority == nil {
		return 0
	}
	return *w.Spec.Priority
}

func causesOf(w *kueue.Workload, condition string) []string {
	if c := apimeta.FindStatusCondition(w.Status.Conditions, condition); c != nil && c.Message != "" {
		return []string{c.Message}
	}
	return nil
}

// explainVerdict explains a Workload that Muster would act on at once.
func (p *Picture) explainVerdict(out *Explanation, v *lifecycle.Verdict) {
	out.Causes = []string{v.Message}
	switch v.Action {
	case lifecycle.Reserve:
		out.Summary = "is next: Muster is about to reserve its quota on " + flavorsOf(v.Status.Admission)
		out.Causes = append(out.Causes, p.placesOf(v.Status.Admission)...)
		if v.Plan != nil {
			out.Causes = append(out.Causes, machinesOf(v.Plan))
			out.Capacity, _ = p.groupsFor("", podSetsOf(v.Workload.Object), v.Plan)
		}
		for i := range v.Status.AdmissionChecks {
			if c := &v.Status.AdmissionChecks[i]; c.State != kueue.CheckStateReady {
				out.Causes = append(out.Causes, fmt.Sprintf("it starts once AdmissionCheck %s is Ready: %s", c.Name,
					cmp.Or(c.Message, "its controller has not answered yet")))
			}
		}
	case lifecycle.Admit:
		out.Summary = "meets all conditions: Muster is about to admit it"
	case lifecycle.Evict, lifecycle.Release:
		out.Summary = "is about to lose its quota"
	case lifecycle.Deactivate:
		out.Summary = "is about to be deactivated"
	case lifecycle.Finish:
		out.Summary = "is about to be finished: " + v.Message
	case lifecycle.Remove:
		out.Summary = "is about to be deleted: its retention period is over"
	}
}

// machinesOf describes the machines of a plan.
func machinesOf(plan *planner.Verdict) string {
	said := func(of []planner.GroupCount) string {
		var out []string
		for _, l := range of {
			out = append(out, fmt.Sprintf("%d of NodeGroup %s", l.Count, l.Group))
		}
		return strings.Join(out, " and ")
	}
	launch := fmt.Sprintf("machines to launch: %s, at %s USD per hour, with a %d%% chance of success",
		said(plan.Launches), text.USD(plan.MicroUSDPerHour), plan.Chance/10)
	switch {
	case len(plan.Shares) > 0 && len(plan.Launches) > 0:
		return launch + "; it also shares machines with other requests: " + said(plan.Shares)
	case len(plan.Shares) > 0:
		return "its pods fit on machines shared with other requests: " + said(plan.Shares)
	case len(plan.Launches) > 0:
		return launch
	default:
		return fmt.Sprintf("its pods fit on existing machines: %d", len(plan.Placement))
	}
}

// explainHolding explains a Workload that has quota.
func (p *Picture) explainHolding(out *Explanation, w *kueue.Workload) {
	switch {
	case workload.IsEvicted(w):
		out.Summary = "is being stopped; its quota is released when its pods have ended"
		out.Causes = causesOf(w, kueue.WorkloadEvicted)
		return
	case p.explainClusters(out, w):
		return
	case workload.IsAdmitted(w) && workload.IsOrphan(w):
		p.explainOrphan(out, w)
		return
	case workload.IsAdmitted(w):
		since := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime.Time
		out.Summary = fmt.Sprintf("was admitted at %s (%s ago) on %s", since.UTC().Format(time.RFC3339), ago(p.Now, since),
			flavorsOf(w.Status.Admission))
		out.Causes = nil
		if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady); c != nil && c.Status == metav1.ConditionFalse {
			out.Causes = []string{c.Message}
		}
		p.explainBlocked(out, w)
		return
	}
	if awaitsPlaces(w) {
		p.explainPlaces(out, w)
		return
	}
	out.Summary = fmt.Sprintf("has quota reserved on %s and waits for its admission checks", flavorsOf(w.Status.Admission))
	out.Causes = nil
	for i := range w.Status.AdmissionChecks {
		if c := &w.Status.AdmissionChecks[i]; c.State != kueue.CheckStateReady {
			out.Causes = append(out.Causes, fmt.Sprintf("AdmissionCheck %s is %s: %s", c.Name, c.State,
				cmp.Or(c.Message, "its controller has not answered yet")))
		}
	}
	for _, r := range p.requestsOf(w) {
		about := p.ExplainRequest(r)
		out.Causes = append(out.Causes, fmt.Sprintf("ProvisioningRequest %s %s", r.Name,
			strings.Join(append([]string{about.Summary}, about.Causes...), ": ")))
		out.Capacity, out.Unblock = append(out.Capacity, about.Capacity...), append(out.Unblock, about.Unblock...)
	}
}

// flavorsOf names the flavors of an admission, sorted.
func flavorsOf(a *kueue.Admission) string {
	var names []string
	for i := range a.PodSetAssignments {
		for _, f := range a.PodSetAssignments[i].Flavors {
			names = append(names, string(f))
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 1 {
		return "flavor " + names[0]
	}
	return "flavors " + strings.Join(names, ", ")
}

// explainRecorded repeats what Muster wrote on the object, for a caller whose rights do not
// suffice to decide.
func (p *Picture) explainRecorded(out *Explanation, w *kueue.Workload) {
	for _, cq := range p.ClusterQueues {
		line := p.Queues.PendingInOrder(kueue.ClusterQueueReference(cq.Name))
		if i := slices.IndexFunc(line, func(other *kueue.Workload) bool { return other.UID == w.UID }); i >= 0 && p.KnowsQueues() {
			out.Place = &Place{
				ClusterQueue: cq.Name, LocalQueue: string(w.Spec.QueueName), Priority: priorityOf(w),
				Position: i + 1, Pending: len(line), Waited: ago(p.Now, w.CreationTimestamp.Time),
			}
		}
	}
	p.explainStanding(out, w)
	c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	if c == nil {
		out.Summary = "waits; Muster has not recorded a reason yet"
		return
	}
	out.Summary = fmt.Sprintf("%s, as recorded %s ago", p.wordsFor(w, c.Reason), ago(p.Now, c.LastTransitionTime.Time))
	out.Causes = []string{plainly(c.Message)}
}

// explainWaiting explains a Workload that has no quota.
func (p *Picture) explainWaiting(out *Explanation, a *scheduler.Explanation) {
	because := p.whyWaits(a.Workload)
	because.withoutMachines(hopeless(a.Flavors))
	out.Summary, out.Never = because.words, because.never
	if out.Place != nil {
		out.Place.Position, out.Place.Pending = len(a.Ahead)+1, a.Pending
		out.Place.Waited = ago(p.Now, a.Workload.CreationTimestamp.Time)
	}
	out.Causes = causes(a)
	if out.Place != nil {
		out.Expected = p.Expected(a.Workload.UID)
	}
	if behind(a) {
		first := a.Ahead[0]
		out.Unblock = append(out.Unblock, fmt.Sprintf("%s/%s (priority %d), the head of the queue, starts or is removed", first.Namespace,
			first.Name, priorityOf(first)))
	}
	for i := range a.Flavors {
		o := &a.Flavors[i]
		for _, amount := range o.Quota {
			out.Quota = append(out.Quota, quotaLineOf(o.Flavor, amount))
			out.Unblock = append(out.Unblock, unblockQuota(a, o, amount)...)
		}
		if o.Topology != nil {
			line := roomLineOf(o)
			out.Rooms = append(out.Rooms, line)
			out.Causes, out.Unblock = append(out.Causes, line.causes()...), append(out.Unblock, line.unblock()...)
		}
		if o.Plan != nil {
			lines, unblock := p.groupsFor(string(o.Flavor), podSetsOf(a.Workload), o.Plan)
			out.Capacity, out.Unblock = append(out.Capacity, lines...), append(out.Unblock, unblock...)
			out.Machines = append(out.Machines, p.machinesTaken(o.Plan)...)
		}
	}
	if slices.ContainsFunc(a.Flavors, func(o scheduler.FlavorExplanation) bool { return noMachineSuits(&o) }) {
		out.Unblock = append(out.Unblock, "each pod requests no more than a machine of a NodeGroup has, or an administrator adds a NodeGroup "+
			"that suits its pods")
	}
	for _, h := range a.Holders {
		out.Holders = append(out.Holders, holderLineOf(h))
	}
	next := p.next(a.Workload)
	if said := slices.ContainsFunc(out.Unblock, func(u string) bool { return strings.HasSuffix(u, in(p.Now, next)) }); !next.IsZero() &&
		!said {
		out.Unblock = append(out.Unblock, "time: Muster retries "+in(p.Now, next))
	}
}

// behind reports whether only the Workloads ahead of it keep the Workload waiting: one of
// its options is open.
func behind(a *scheduler.Explanation) bool {
	return len(a.Ahead) > 0 && a.Reason == kueue.WorkloadQuotaReservedReasonWaitingForQuota &&
		slices.ContainsFunc(a.Flavors, func(o scheduler.FlavorExplanation) bool { return o.Message == "" })
}

func quotaLineOf(flavor kueue.ResourceFlavorReference, a scheduler.Amount) QuotaLine {
	show := func(v int64) string { return nodegroups.Quantity(a.Resource, v) }
	return QuotaLine{
		Flavor: string(flavor), Resource: string(a.Resource), Requested: show(a.Requested), Free: show(a.Free),
		Short: show(a.Short()), Whole: show(a.Maximum), Borrowable: show(a.Borrowable),
	}
}

func holderLineOf(h scheduler.Holder) HolderLine {
	return HolderLine{
		Workload: h.Workload.Namespace + "/" + h.Workload.Name, Queue: string(h.Queue), Priority: h.Priority,
		Has: inUnits(h.Usage), Borrows: h.Borrows,
	}
}

// inUnits formats amounts with their resource and flavor.
func inUnits(amounts quota.Amounts) string {
	var has []string
	for _, fr := range amounts.Keys() {
		has = append(has, fmt.Sprintf("%s %s of %s", nodegroups.Quantity(fr.Resource, amounts[fr]), fr.Resource, fr.Flavor))
	}
	return strings.Join(has, ", ")
}

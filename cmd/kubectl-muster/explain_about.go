package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/jobs"
)

// explanation is all that there is to say about one object.
type explanation struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Workload  string `json:"workload,omitempty"`
	// Summary goes on from the name of the object, and makes a sentence with it.
	Summary string `json:"summary"`
	// Place in its queue; nil outside of one.
	Place *place `json:"place,omitempty"`
	// Causes are what is short and by how much; Unblock is what would change that.
	Causes  []string `json:"causes,omitempty"`
	Unblock []string `json:"unblock,omitempty"`

	Quota    []quotaLine    `json:"quota,omitempty"`
	Capacity []capacityLine `json:"capacity,omitempty"`
	Holders  []holderLine   `json:"holders,omitempty"`
	Machines []machinesLine `json:"machines,omitempty"`

	// Recorded is what Muster has written, where the caller may not read what it takes
	// to decide; Missing are the rights for that.
	Recorded []string `json:"recorded,omitempty"`
	Missing  []right  `json:"missingRights,omitempty"`
}

// place is where a Workload stands.
type place struct {
	ClusterQueue string `json:"clusterQueue"`
	LocalQueue   string `json:"localQueue"`
	// Position is from 1; 0 where it is in no line.
	Position int    `json:"position,omitempty"`
	Pending  int    `json:"pending,omitempty"`
	Priority int32  `json:"priority"`
	Waited   string `json:"waited,omitempty"`
}

// quotaLine is what a queue has of one resource of a flavor.
type quotaLine struct {
	Flavor     string `json:"flavor"`
	Resource   string `json:"resource"`
	Asked      string `json:"asked"`
	Free       string `json:"free"`
	Short      string `json:"short"`
	Whole      string `json:"whole"`
	Borrowable string `json:"borrowable"`
}

// capacityLine is what a group could do for the object.
type capacityLine struct {
	Flavor      string `json:"flavor,omitempty"`
	Group       string `json:"group"`
	Market      string `json:"market"`
	USDPerHour  string `json:"usdPerHour"`
	Machines    int    `json:"machines"`
	MaxMachines int    `json:"maxMachines"`
	// Needed is how many machines it would take if all came from this group; Chance
	// that such a launch comes whole, in percent.
	Needed int `json:"needed"`
	Chance int `json:"chancePercent"`
	// LastFailure is empty where none is on record.
	LastFailure string `json:"lastFailure,omitempty"`
	Backoff     string `json:"backoff,omitempty"`
	// Why says what speaks against it.
	Why string `json:"why,omitempty"`
}

// holderLine is somebody with quota that is short.
type holderLine struct {
	Workload string `json:"workload"`
	Queue    string `json:"clusterQueue"`
	Priority int32  `json:"priority"`
	Has      string `json:"has"`
	Borrows  bool   `json:"borrows"`
}

// machinesLine is a request with machines of a group that has no more to give.
type machinesLine struct {
	Group    string `json:"group"`
	Request  string `json:"provisioningRequest"`
	Priority int32  `json:"priority"`
	Machines int    `json:"machines"`
	// Pods of its gang that run there; 0 where they are still to come.
	Pods int `json:"pods"`
}

// explainJob tells about a job by its Workload.
func (p *picture) explainJob(job client.Object) *explanation {
	if w := p.workloadOf(job.GetUID()); w != nil {
		out := p.explainWorkload(w)
		out.Kind, out.Name, out.Workload = "Job", job.GetName(), w.Name
		return out
	}
	out := &explanation{Kind: "Job", Namespace: job.GetNamespace(), Name: job.GetName(), Missing: p.missing}
	if queue := job.GetLabels()[jobs.QueueLabel]; queue != "" {
		out.Summary = "has no Workload yet"
		out.Causes = []string{fmt.Sprintf("it names LocalQueue %s, and Muster makes its Workload within seconds, unless Muster is down or the job was never suspended", queue)}
		out.Unblock = []string{"see whether Muster runs: kubectl -n muster-system get pods"}
		return out
	}
	out.Summary = "is in no queue, so Muster leaves it alone"
	out.Causes = []string{fmt.Sprintf("it has no label %s", jobs.QueueLabel)}
	out.Unblock = []string{"create it anew with that label, naming a LocalQueue of its namespace"}
	return out
}

// explainWorkload tells where a Workload stands, and why it goes no further.
func (p *picture) explainWorkload(w *kueue.Workload) *explanation {
	out := &explanation{Kind: "Workload", Namespace: w.Namespace, Name: w.Name, Missing: p.missing}
	account, ok := p.queues.Account(w.UID)
	verdict, decided := p.verdicts[w.UID]
	if ok && account.Queue != "" {
		out.Place = &place{ClusterQueue: string(account.Queue), LocalQueue: string(w.Spec.QueueName), Priority: priorityOf(w)}
	}
	switch {
	case queueing.IsFinished(w):
		out.Place, out.Summary = nil, "is finished"
		out.Causes = causesOf(w, kueue.WorkloadFinished)
	case decided && verdict.Action != queueing.Wait && verdict.Action != queueing.Advance:
		p.explainVerdict(out, &verdict)
	case queueing.HasQuota(w):
		p.explainHolding(out, w)
	case !p.decides():
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

// explainVerdict tells of what Muster would do with the Workload at once.
func (p *picture) explainVerdict(out *explanation, v *queueing.Verdict) {
	out.Causes = []string{v.Message}
	switch v.Action {
	case queueing.Reserve:
		out.Summary = "has its turn: Muster gives it quota next, on " + flavorsOf(v.Status.Admission)
		if v.Plan != nil {
			out.Causes = append(out.Causes, machinesOf(v.Plan))
			out.Capacity, _ = p.groupsFor("", podSetsOf(v.Workload.Object), v.Plan)
		}
		for i := range v.Status.AdmissionChecks {
			if c := &v.Status.AdmissionChecks[i]; c.State != kueue.CheckStateReady {
				out.Causes = append(out.Causes, fmt.Sprintf("it starts once AdmissionCheck %s is Ready: %s", c.Name, cmp.Or(c.Message, "its controller has to answer")))
			}
		}
	case queueing.Admit:
		out.Summary = "has all that it needs: Muster admits it next"
	case queueing.Evict, queueing.Release:
		out.Summary = "is about to lose what it has: Muster takes it back next"
	case queueing.Deactivate:
		out.Summary = "is about to be deactivated"
	case queueing.Remove:
		out.Summary = "is about to be deleted, since the time is over for which it was to be kept"
	}
}

// machinesOf says what a plan takes.
func machinesOf(plan *provisioning.Verdict) string {
	if len(plan.Launches) == 0 {
		return fmt.Sprintf("its pods have room on machines that exist: %d", len(plan.Placement))
	}
	var launches []string
	for _, l := range plan.Launches {
		launches = append(launches, fmt.Sprintf("%d machines of group %s", l.Count, l.Group))
	}
	return fmt.Sprintf("it takes a launch of %s, for %s USD per hour, with a chance of %d%%",
		strings.Join(launches, " and "), provisioning.USD(plan.MicroUSDPerHour), plan.Chance/10)
}

// explainHolding tells about a Workload with quota.
func (p *picture) explainHolding(out *explanation, w *kueue.Workload) {
	switch {
	case queueing.IsEvicted(w):
		out.Summary = "is being stopped; its quota is free when its pods have ended"
		out.Causes = causesOf(w, kueue.WorkloadEvicted)
		return
	case queueing.IsAdmitted(w):
		since := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime.Time
		out.Summary = fmt.Sprintf("is admitted since %s (%s ago) on %s", since.UTC().Format(time.RFC3339), ago(p.now, since), flavorsOf(w.Status.Admission))
		out.Causes = nil
		if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady); c != nil && c.Status == metav1.ConditionFalse {
			out.Causes = []string{c.Message}
		}
		return
	}
	out.Summary = fmt.Sprintf("has its quota on %s, and waits for what its queue checks before it starts", flavorsOf(w.Status.Admission))
	out.Causes = nil
	for i := range w.Status.AdmissionChecks {
		if c := &w.Status.AdmissionChecks[i]; c.State != kueue.CheckStateReady {
			out.Causes = append(out.Causes, fmt.Sprintf("AdmissionCheck %s is %s: %s", c.Name, c.State, cmp.Or(c.Message, "nobody has answered it yet")))
		}
	}
	for _, r := range p.requestsOf(w) {
		about := p.explainRequest(r)
		out.Causes = append(out.Causes, fmt.Sprintf("ProvisioningRequest %s %s", r.Name, strings.Join(append([]string{about.Summary}, about.Causes...), ": ")))
		out.Capacity, out.Unblock = append(out.Capacity, about.Capacity...), append(out.Unblock, about.Unblock...)
	}
}

// flavorsOf are those of an admission, in their order.
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

// explainRecorded tells what Muster has written, where nothing can be decided here.
func (p *picture) explainRecorded(out *explanation, w *kueue.Workload) {
	for _, cq := range p.clusterQueues {
		line := p.queues.InLine(kueue.ClusterQueueReference(cq.Name))
		if i := slices.IndexFunc(line, func(other *kueue.Workload) bool { return other.UID == w.UID }); i >= 0 && p.knowsQueues() {
			out.Place = &place{
				ClusterQueue: cq.Name, LocalQueue: string(w.Spec.QueueName), Priority: priorityOf(w),
				Position: i + 1, Pending: len(line), Waited: ago(p.now, w.CreationTimestamp.Time),
			}
		}
	}
	c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	if c == nil {
		out.Summary = "waits, and Muster has not written yet for what"
		return
	}
	out.Summary = fmt.Sprintf("%s, as Muster wrote %s ago", inWords(c.Reason), ago(p.now, c.LastTransitionTime.Time))
	out.Causes = []string{c.Message}
}

// explainWaiting tells why a Workload has no quota.
func (p *picture) explainWaiting(out *explanation, a *queueing.Account) {
	out.Summary = inWords(a.Reason)
	if out.Place != nil {
		out.Place.Position, out.Place.Pending = len(a.Ahead)+1, a.Pending
		out.Place.Waited = ago(p.now, a.Workload.CreationTimestamp.Time)
	}
	if why := hopeless(a.Options); why != "" {
		out.Summary = "can never start as it is: " + why
	}
	out.Causes = causes(a)
	if behind(a) {
		first := a.Ahead[0]
		out.Unblock = append(out.Unblock, fmt.Sprintf("%s/%s (priority %d), which is first in line, starts or leaves", first.Namespace, first.Name, priorityOf(first)))
	}
	for i := range a.Options {
		o := &a.Options[i]
		for _, amount := range o.Quota {
			out.Quota = append(out.Quota, quotaLineOf(o.Flavor, amount))
			out.Unblock = append(out.Unblock, unblockQuota(a, o, amount)...)
		}
		if o.Plan != nil {
			lines, unblock := p.groupsFor(string(o.Flavor), podSetsOf(a.Workload), o.Plan)
			out.Capacity, out.Unblock = append(out.Capacity, lines...), append(out.Unblock, unblock...)
			out.Machines = append(out.Machines, p.machinesTaken(o.Plan)...)
		}
	}
	for _, h := range a.Holders {
		out.Holders = append(out.Holders, holderLineOf(h))
	}
	next := p.next(a.Workload)
	if said := slices.ContainsFunc(out.Unblock, func(u string) bool { return strings.HasSuffix(u, in(p.now, next)) }); !next.IsZero() && !said {
		out.Unblock = append(out.Unblock, "time: Muster tries again "+in(p.now, next))
	}
}

// hopeless says why none of the options can ever have machines; empty if one may, or
// if it is not machines that are short.
func hopeless(options []queueing.Option) (why string) {
	for i := range options {
		switch o := &options[i]; {
		case o.Reason == kueue.WorkloadQuotaReservedReasonNoMatchingFlavor || o.Reason == kueue.WorkloadQuotaReservedReasonExceedsMaxQuota:
		case o.Plan == nil || o.Plan.Outcome != provisioning.Never:
			return ""
		case slices.ContainsFunc(o.Plan.Reasons, func(r provisioning.Reason) bool { return r.Code == provisioning.CodePrice }):
			why = "its machines cost more than its policy allows"
		default:
			why = cmp.Or(why, "no group could ever give its machines")
		}
	}
	return why
}

// causes are the message that the Workload is told, a line for each flavor.
func causes(a *queueing.Account) []string {
	var lines []string
	for i := range a.Options {
		if o := &a.Options[i]; o.Message != "" {
			lines = append(lines, fmt.Sprintf("flavor %s: %s", o.Flavor, o.Message))
		}
	}
	rest, same := strings.CutPrefix(a.Message, strings.Join(lines, "; "))
	switch rest = strings.TrimPrefix(rest, "; "); {
	case !same:
		return append([]string{a.Message}, lines...)
	case rest != "":
		return append(lines, rest)
	}
	return lines
}

// behind says that it is others who keep the Workload waiting, since nothing speaks
// against one of its options.
func behind(a *queueing.Account) bool {
	return len(a.Ahead) > 0 && a.Reason == kueue.WorkloadQuotaReservedReasonWaitingForQuota &&
		slices.ContainsFunc(a.Options, func(o queueing.Option) bool { return o.Message == "" })
}

func quotaLineOf(flavor kueue.ResourceFlavorReference, a queueing.Amount) quotaLine {
	show := func(v int64) string { return nodegroups.Quantity(a.Resource, v) }
	return quotaLine{
		Flavor: string(flavor), Resource: string(a.Resource), Asked: show(a.Asked), Free: show(a.Free),
		Short: show(a.Short()), Whole: show(a.Whole), Borrowable: show(a.Borrowable),
	}
}

// unblockQuota says what would make up for quota that is short.
func unblockQuota(a *queueing.Account, o *queueing.Option, amount queueing.Amount) []string {
	show := func(v int64) string {
		return fmt.Sprintf("%s %s", nodegroups.Quantity(amount.Resource, v), amount.Resource)
	}
	switch {
	case o.Reason == kueue.WorkloadQuotaReservedReasonNoMatchingFlavor || amount.Short() == 0:
		return nil
	case amount.Asked > amount.Whole:
		return []string{fmt.Sprintf("flavor %s: it asks for %s less, or an admin raises nominalQuota of ClusterQueue %s by as much", o.Flavor, show(amount.Asked-amount.Whole), a.Queue)}
	}
	return []string{fmt.Sprintf("flavor %s: %s come back from those below, or an admin raises nominalQuota of ClusterQueue %s by as much", o.Flavor, show(amount.Short()), a.Queue)}
}

func holderLineOf(h queueing.Holder) holderLine {
	var has []string
	for _, fr := range h.Usage.Keys() {
		has = append(has, fmt.Sprintf("%s %s of %s", nodegroups.Quantity(fr.Resource, h.Usage[fr]), fr.Resource, fr.Flavor))
	}
	return holderLine{
		Workload: h.Workload.Namespace + "/" + h.Workload.Name, Queue: string(h.Queue), Priority: h.Priority,
		Has: strings.Join(has, ", "), Borrows: h.Borrows,
	}
}

// podsLike is a number of like pods.
type podsLike struct {
	count    int
	requests nodegroups.Resources
}

func podSetsOf(w *kueue.Workload) (out []podsLike) {
	for i := range w.Spec.PodSets {
		ps := &w.Spec.PodSets[i]
		out = append(out, podsLike{int(ps.Count), fit.TemplateRequests(&ps.Template.Spec)})
	}
	return out
}

// needed is how many machines of the group such pods take; 0 if none takes any.
func needed(g *provisioning.Group, pods []podsLike) (n int) {
	for _, p := range pods {
		if per := g.Usable.Times(p.requests, p.count); per > 0 {
			n += (p.count + per - 1) / per
		}
	}
	return n
}

// groupsFor tells what each group could do that the plan would launch in or speaks of;
// those that never suited are left out where there are others.
func (p *picture) groupsFor(flavor string, pods []podsLike, plan *provisioning.Verdict) (lines []capacityLine, unblock []string) {
	misfit := func(code provisioning.ReasonCode) bool {
		return code == provisioning.CodeConstraint || code == provisioning.CodeMarket || code == provisioning.CodeTooSmall
	}
	some := len(plan.Launches) > 0 || slices.ContainsFunc(plan.Reasons, func(r provisioning.Reason) bool { return r.Group != "" && !misfit(r.Code) })
	for i := range p.snapshot.Groups {
		g := &p.snapshot.Groups[i]
		line := p.capacityOf(g, pods)
		line.Flavor = flavor
		var said []string
		for _, r := range plan.Reasons {
			if r.Group == g.Name && (!some || !misfit(r.Code)) {
				said = append(said, r.Message)
			}
			switch {
			case r.Group != g.Name:
			case !r.Until.IsZero():
				unblock = append(unblock, fmt.Sprintf("time: group %s may be tried again %s", g.Name, in(p.now, r.Until)))
			case r.Code == provisioning.CodeMaxNodes:
				unblock = append(unblock, fmt.Sprintf("an admin raises spec.maxNodes of NodeGroup %s by %d%s", g.Name, line.Needed-max(0, g.Max-g.Machines), orLess(g)))
			}
		}
		launched := slices.ContainsFunc(plan.Launches, func(l provisioning.GroupCount) bool { return l.Group == g.Name })
		if len(said) > 0 || launched {
			line.Why = strings.Join(said, "; ")
			lines = append(lines, line)
		}
	}
	return lines, unblock
}

// machinesTaken tells who has the machines of those groups that may not grow as far as
// the plan wants, by group and request.
func (p *picture) machinesTaken(plan *provisioning.Verdict) (out []machinesLine) {
	full := map[string]bool{}
	for _, r := range plan.Reasons {
		full[r.Group] = full[r.Group] || r.Code == provisioning.CodeMaxNodes
	}
	for n := range p.snapshot.Nodes.All() {
		if !full[n.Group] {
			continue
		}
		for _, b := range n.Labelled {
			request := b.Namespace + "/" + b.Key
			i := slices.IndexFunc(out, func(l machinesLine) bool { return l.Group == n.Group && l.Request == request })
			if i < 0 {
				i = len(out)
				out = append(out, machinesLine{Group: n.Group, Request: request})
				if e, ok := p.machines.Request(b.UID); ok {
					out[i].Priority = e.Priority
				}
			}
			out[i].Machines++
			out[i].Pods += b.Running
		}
	}
	slices.SortFunc(out, func(a, b machinesLine) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Request, b.Request))
	})
	return out
}

// orLess says that machines of others may go, too.
func orLess(g *provisioning.Group) string {
	if g.Machines == 0 {
		return ""
	}
	return fmt.Sprintf(", or some of its %d machines are given back", g.Machines)
}

// capacityOf is what is known of a group, for such pods.
func (p *picture) capacityOf(g *provisioning.Group, pods []podsLike) capacityLine {
	n := needed(g, pods)
	out := capacityLine{
		Group: g.Name, Market: string(g.CapacityType), USDPerHour: provisioning.USD(g.MicroUSDPerHour),
		Machines: g.Machines, MaxMachines: g.Max, Needed: n, Chance: g.Chance(max(1, n), p.now) / 10,
	}
	if failure := lastFailure(p.groups[g.Name]); failure != nil {
		out.LastFailure = fmt.Sprintf("%s, %s ago", failure.Class, ago(p.now, failure.Time.Time))
	}
	if until, _ := g.BlockedUntil(n); p.now.Before(until) {
		out.Backoff = until.UTC().Format(time.RFC3339)
	}
	return out
}

// lastFailure is the newest on record; nil if there is none.
func lastFailure(g *v1alpha1.NodeGroup) *v1alpha1.LaunchAttempt {
	for i := range g.Status.Attempts {
		if a := &g.Status.Attempts[i]; a.Class != "" {
			return a
		}
	}
	return nil
}

// explainRequest tells where a ProvisioningRequest stands.
func (p *picture) explainRequest(r *provreq.ProvisioningRequest) *explanation {
	out := &explanation{Kind: "ProvisioningRequest", Namespace: r.Namespace, Name: r.Name, Missing: p.missing}
	for _, end := range []struct{ condition, summary string }{
		{provreq.Failed, "has failed for good"},
		{provreq.CapacityRevoked, "has lost its machines"},
		{provreq.BookingExpired, "is over: its booking has ended"},
		{provreq.Provisioned, "is Provisioned: all of its machines are ready and booked"},
	} {
		if c := apimeta.FindStatusCondition(r.Status.Conditions, end.condition); c != nil && c.Status == metav1.ConditionTrue {
			out.Summary, out.Causes = end.summary, []string{c.Message}
			return out
		}
	}
	e, ok := p.machines.Request(r.UID)
	switch told := apimeta.FindStatusCondition(r.Status.Conditions, provreq.Provisioned); {
	case !p.served.Serves(r):
		out.Summary = fmt.Sprintf("is not Muster's: its class is %s, of processorInstance %q", r.Spec.ProvisioningClassName, r.Spec.Parameters[model.ParamProcessor])
		out.Unblock = []string{fmt.Sprintf("whoever serves that, or a new request of one of the classes %s", strings.Join(model.KnownClasses, ", "))}
	case !ok:
		out.Summary = "is being deleted"
	case told != nil && (!p.decides() || e.Attempt.InFlight()):
		out.Summary, out.Causes = fmt.Sprintf("is under way, as Muster wrote %s ago", ago(p.now, told.LastTransitionTime.Time)), []string{told.Message}
		if told.Status == metav1.ConditionFalse {
			out.Summary = fmt.Sprintf("waits for capacity, as Muster wrote %s ago", ago(p.now, told.LastTransitionTime.Time))
		}
	case !p.decides():
		out.Summary = "waits, and Muster has not written yet for what"
	default:
		p.explainPending(out, e.Request)
	}
	return out
}

// explainPending tells what Muster would do next for a request without capacity.
func (p *picture) explainPending(out *explanation, r *provisioning.Request) {
	step := provisioning.Next(r, p.machines.View(p.snapshot, r))
	switch step.Do {
	case provisioning.Begin:
		out.Summary = "has its turn: Muster launches its machines next"
	case provisioning.Fail, provisioning.LookUp:
		out.Summary = "can never be served as it is"
	case provisioning.Report:
		out.Summary = "waits for capacity"
	default:
		out.Summary = "has its turn: Muster books its machines next"
	}
	if step.Condition.Message != "" {
		out.Causes = []string{step.Condition.Message}
	}
	if len(r.Missing) > 0 {
		out.Causes = append(out.Causes, fmt.Sprintf("PodTemplates %q do not exist in namespace %s: create them", r.Missing, r.Namespace))
		return
	}
	var pods []podsLike
	for i := range r.Gang.PodSets {
		ps := &r.Gang.PodSets[i]
		if ps.Template != nil {
			pods = append(pods, podsLike{ps.Count, fit.TemplateRequests(&ps.Template.Spec)})
		}
	}
	plan := provisioning.Plan(p.snapshot, r.Gang, r.Policy)
	out.Capacity, out.Unblock = p.groupsFor("", pods, &plan)
	out.Machines = p.machinesTaken(&plan)
	if step.Do == provisioning.Report && !step.At.IsZero() && len(out.Unblock) == 0 {
		out.Unblock = append(out.Unblock, "time: Muster looks at it again "+in(p.now, step.At))
	}
}

// record adds what Muster has told about the object by Events, the newest first.
func (e *explanation) record(now time.Time, events []corev1.Event) {
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return happened(&b).Compare(happened(&a)) })
	for i := range events {
		e.Recorded = append(e.Recorded, fmt.Sprintf("%s ago, %s: %s", ago(now, happened(&events[i])), events[i].Reason, events[i].Message))
	}
}

// happened is when the Event was seen last; the API has several fields for it.
func happened(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

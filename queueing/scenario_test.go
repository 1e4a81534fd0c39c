package queueing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/scheduler"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestScenarios runs the texts in testdata: objects and events go in, a cycle
// prints what it decides and carries it out. Run with -rewrite to accept changes.
//
//	flavor NAME [unlabelled | labels=K:V] [taint=K:V] [tolerate=K] [topology=NAME]     (else its nodes have the label pool=NAME)
//	topology NAME levels=(LABEL,...)
//	node NAME [pool=FLAVOR] [count=N] [taint=KEY[:EFFECT]] [unready] [LABEL=V] RESOURCE=QUANTITY ...     (N of them, numbered; label rack and those with a slash)
//	gone NAME [topology]                (a node, or a Topology, is deleted)
//	vanished [soon=(NODE,...)] [many=(NODE,...)]   (which of those that are gone the provisioner thinks may come back; none)
//	places NAME                         (where the pods of a workload go)
//	pod NAME node=NODE [workload=NAME podset=NAME] [leaving] RESOURCE=QUANTITY ...  (of no Workload where none is named; done takes it away)
//	check NAME [controller=C] [config=PROVISIONINGREQUESTCONFIG] [policy=CAPACITYPOLICY]
//	requestconfig NAME class=C [limit=N] [base=SECONDS] [managed=RESOURCE] [merge=POLICY] [selector=KEY:DETAIL] [set=NAME:VALUE]
//	policy NAME FIELD=VALUE ...         (as a parameter of that name would say it)
//	cq NAME [strict] [backfill] [byusage] [adopt-beyond-nominal] [stop=Hold] [cohort=C] [weight=N] [within=P] [reclaim=P] [borrow=P] [whenCanBorrow=F]
//
// [whenCanPreempt=F] [prefers=P] [check=(NAME[@FLAVOR],...)]
//
//	FLAVOR RESOURCE=NOMINAL[/BORROWING[/LENDING]] ...   (one line a flavor, in order)
//	cohort NAME [parent=C] [weight=N], and quotas as above
//	lq NAME cq=NAME [stop=Hold] [weight=N]
//	class NAME value=N                  (a WorkloadPriorityClass)
//	runtimeclass NAME [pool=FLAVOR] [tolerate=K]
//	workload NAME [lq=main] [priority=N] [class=NAME | podclass=NAME] [count=N] [min=N] [max=SECONDS] [select=K=V] [tolerate=K] [runtime=NAME]
//
// [owner=KIND] [launcher=RESOURCE:QUANTITY] [PREFIX/ANNOTATION=V] RESOURCE=QUANTITY ...
//
//	machines FLAVOR=N ...               (how many pods fit; the planner's answer)
//	request NAME Provisioned=True|False|Failed|... [reason=R]  [message]
//	active                              (all checks' controllers say that they are)
//	external NAME CHECK=Ready|Retry|Rejected [after=SECONDS]   (what the controller of a check says)
//	detail NAME KEY=VALUE               (what the provisioner reports about its request)
//	drop NAME                           (its requests are deleted from outside)
//	requests NAME                       (in full)
//	checks NAME                         (the states of its checks)
//	adopt | finish | deactivate | activate | delete | deleting NAME
//	tick DURATION
//	config                              (as YAML, at the start)
//	annotate NAME KEY=VALUE             (empty takes it away)
//	spec NAME [max=SECONDS] [gate=NAME] [count=N] [priority=N] [job=NAME]
//	reclaimable NAME PODSET=N           (as the controller of its job counts them)
//	ready NAME [Started|WaitForStart|WaitForRecovery|Recovered]
//	open NAME gate=NAME
//	resourcequota NAME [scope=S] RESOURCE=HARD[/USED] ...
//	replaced NAME SLICE                 (finished, as before a SLICE is admitted)
//	consumed                            (what the LocalQueues have used lately, as is written to their statuses)
//	status NAME                         (its conditions and numbers)
//	restart                             (with what the API server has)
//	blind                               (no advice from the provisioner)
//	cycle                               (repeats until nothing changes)
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(path, "/fuzz/") {
			return // a corpus, see FuzzEditedWorkloads
		}
		w := newWorld()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return w.run(t, d) })
	})
}

// world is a cluster that does at once what cycles decide.
type world struct {
	s        *State
	now      time.Time
	machines map[string]int
	// created and version number the objects and their versions.
	created, version int
	// sees, if set, is called with each verdict before it is executed.
	sees func(*lifecycle.Verdict)
}

// cases is the number of random cases that a test plays: with -short, a quarter.
func cases(all uint64) uint64 {
	if testing.Short() {
		return all / 4
	}
	return all
}

func newWorld() *world { return newWorldWith(config.Config{}) }

func newWorldWith(c config.Config) *world {
	w := &world{machines: map[string]int{}, now: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)}
	w.s = New(c, w.plan)
	w.s.Nodes.Known = true
	w.s.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"team": "a"}}})
	w.s.SetCapacity(planner.NewSnapshot(time.Time{}, nodeset.New(), nil, nil))
	return w
}

// set makes an object, or a newer version of it, be there.
func (w *world) set(object metav1.Object) {
	w.version++
	object.SetResourceVersion(strconv.Itoa(w.version))
	object.SetGeneration(int64(w.version))
	w.s.Set(object)
}

// plan has room for as many pods as the flavor's label says there are machines.
// Those of the flavor ondemand are bought on demand.
func (w *world) plan(_ *planner.Snapshot, gang state.Gang, policy state.Policy) planner.Verdict {
	pool := gang.PodSets[0].Template.Spec.NodeSelector["pool"]
	if pool == "ondemand" && !slices.Contains(policy.CapacityTypes, v1alpha1.OnDemand) {
		return planner.Verdict{Outcome: planner.Wait, Reasons: []planner.Reason{{
			Code: planner.CodeCapacityType, Group: pool, Message: "the policy does not allow OnDemand",
		}}}
	}
	if have := w.machines[pool]; gang.PodSets[0].Count > have {
		return planner.Verdict{Outcome: planner.Wait, Until: w.now.Add(time.Minute), Reasons: []planner.Reason{{
			Code: planner.CodeBackoff, Group: pool, Message: fmt.Sprintf("%d of %d machines", have, gang.PodSets[0].Count),
		}}}
	}
	return planner.Verdict{Outcome: planner.Launch}
}

func (w *world) run(t *testing.T, d *datadriven.TestData) string {
	name, args, rest := "", map[string]string{}, d.CmdArgs
	if len(rest) > 0 && len(rest[0].Vals) == 0 {
		name, rest = rest[0].Key, rest[1:]
	}
	for _, a := range rest {
		args[a.Key] = strings.Join(a.Vals, ",")
	}
	switch d.Cmd {
	case "blind":
		w.s.SetCapacity(nil)
	case "flavor":
		w.set(flavor(name, args))
	case "check":
		ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
		ac.Spec.ControllerName = orDefault(args["controller"], cache.CapacityController)
		if name, ok := args["config"]; ok {
			ac.Spec.ControllerName = cache.ProvisioningRequestController
			ac.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group,
				Kind: "ProvisioningRequestConfig", Name: name}
		}
		if name, ok := args["policy"]; ok {
			ac.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: v1alpha1.GroupVersion.Group,
				Kind: cache.CapacityPolicyKind, Name: name}
		}
		w.set(ac)
	case "topology":
		o := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for level := range strings.SplitSeq(args["levels"], ",") {
			o.Spec.Levels = append(o.Spec.Levels, kueue.TopologyLevel{NodeLabel: level})
		}
		w.set(o)
	case "node":
		w.nodes(t, name, args)
	case "gone":
		if _, is := args["topology"]; is {
			w.s.Delete(&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: name}})
			break
		}
		w.s.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOf(name)}})
	case "vanished":
		v := scaledown.Vanished{Machines: map[string]bool{}, Many: args["many"] != ""}
		for kind, hosts := range args {
			for host := range strings.SplitSeq(hosts, ",") {
				v.Machines[idOf(host)] = kind == "many"
			}
		}
		w.s.Nodes.Vanished = v
	case "pod":
		w.pod(name, args)
	case "places":
		return places(w.find(t, name))
	case "policy":
		w.set(capacityPolicy(t, name, args))
	case "requestconfig":
		w.set(requestConfig(t, name, args))
	case "cq":
		w.set(clusterQueue(t, name, args, d.Input))
	case "cohort":
		w.set(cohort(t, name, args, d.Input))
	case "lq":
		lq := localQueueTo(name, args["cq"], args["stop"])
		lq.Spec.FairSharing = weight(args)
		w.set(lq)
	case "workload":
		w.set(w.workload(t, name, args))
	case "class":
		class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		value, err := strconv.Atoi(args["value"])
		if err != nil {
			t.Fatal(err)
		}
		class.Value = int32(value)
		w.set(class)
	case "runtimeclass":
		w.set(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Scheduling: &nodev1.Scheduling{
			NodeSelector: map[string]string{"pool": args["pool"]},
			Tolerations:  []corev1.Toleration{{Key: args["tolerate"], Operator: corev1.TolerationOpExists}},
		}})
	case "machines":
		for k, v := range args {
			w.machines[k], _ = strconv.Atoi(v)
		}
		w.s.SetCapacity(w.s.capacity)
	case "request":
		w.condition(t, name, args, d.Input)
	case "external":
		object := w.find(t, name)
		for i := range object.Status.AdmissionChecks {
			c := &object.Status.AdmissionChecks[i]
			if says, ok := args[string(c.Name)]; ok {
				c.State, c.Message = kueue.CheckState(says), "as it says"
				if after, err := strconv.Atoi(args["after"]); err == nil {
					c.RequeueAfterSeconds = new(int32(after))
				}
			}
		}
		w.set(object)
	case "detail":
		for _, have := range w.s.Requests[w.find(t, name).UID] {
			r := have.DeepCopy()
			defer w.set(r)
			r.Status.ProvisioningClassDetails = map[string]autoscaling.Detail{}
			for k, v := range args {
				r.Status.ProvisioningClassDetails[k] = autoscaling.Detail(v)
			}
		}
	case "drop":
		for _, r := range slices.Clone(w.s.Requests[w.find(t, name).UID]) {
			w.s.Delete(r)
		}
	case "requests":
		return w.requests(t, name)
	case "checks":
		return checkStates(w.find(t, name))
	case "active":
		for _, have := range w.s.Checks {
			ac := have.DeepCopy()
			defer w.set(ac)
			ac.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
		}
	case "adopt", "finish", "deactivate", "activate", "delete", "deleting", "stopped", "copied", "cleared":
		w.change(t, d.Cmd, name)
	case "tick":
		by, err := time.ParseDuration(name)
		if err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(by)
	case "cycle":
		return w.cycles(t)
	case "queues":
		return w.queues()
	case "consumed":
		return w.consumed()
	default:
		return w.life(t, d, name, args)
	}
	return ""
}

// cycles runs cycles until nothing is written any more, and prints each write.
func (w *world) cycles(t *testing.T) string {
	var out strings.Builder
	for rounds, all := 0, 0; rounds < 20; all++ {
		if all == 10_000 {
			t.Fatal("cycles defer Workloads again and again")
		}
		verdicts := w.s.Cycle(w.now)
		if w.s.ResumeAt.IsZero() {
			rounds++
		}
		for i := range verdicts {
			if w.sees != nil {
				w.sees(&verdicts[i])
			}
			w.apply(&verdicts[i], &out)
		}
		checkQuota(t, w.s)
		if len(verdicts) == 0 && w.s.ResumeAt.IsZero() {
			if wake := w.s.WakeAt(); !wake.IsZero() {
				fmt.Fprintf(&out, "wake in %s\n", wake.Sub(w.now))
			}
			return out.String()
		}
	}
	t.Fatalf("no rest after 20 cycles:\n%s", out.String())
	return ""
}

// mustNotBeHollow panics if the status has an object without fields: an apply that takes away all fields which its manager has set makes
// that null, and the API server refuses it, so that the Workload would stay as it is for ever.
func mustNotBeHollow(status *kueue.WorkloadStatus) {
	data, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	if bytes.Contains(data, []byte("{}")) {
		panic(fmt.Sprintf("an object of the status has no fields: %s", data))
	}
}

// apply carries a verdict out, and prints it if there is somewhere to print to.
func (w *world) apply(v *lifecycle.Verdict, out *strings.Builder) {
	object := v.Workload.Object
	var written *kueue.Workload
	if v.Action == lifecycle.Prioritize {
		w.prioritize(v, out)
		return
	}
	tell := func(format string, args ...any) {
		if out == nil {
			return
		}
		fmt.Fprintf(out, "%s: ", object.Name)
		fmt.Fprintf(out, format+"\n", args...)
	}
	if v.Action == lifecycle.Deactivate {
		tell("%v (%s)", v.Action, v.Message)
		written = object.DeepCopy()
		written.Spec.Active = new(false)
		written.Generation++
	}
	if v.Status != nil {
		mustNotBeHollow(v.Status)
		written = object.DeepCopy()
		written.Status = *v.Status.DeepCopy()
		switch v.Action {
		case lifecycle.Wait:
			tell("%s: %s", v.Reason, v.Message)
		case lifecycle.Reserve:
			tell("%v on %v%s", v.Action, workload.AssignedFlavors(v.Status.Admission), admittedToo(v.Status))
		default:
			tell("%v %s (%s)", v.Action, v.Reason, v.Message)
		}
	}
	if v.Action == lifecycle.Remove {
		w.remove(v, tell)
	}
	for _, r := range v.Delete {
		tell("delete request %s", r.Name)
		w.s.Delete(r)
	}
	if v.Create != nil {
		unasked := ""
		for _, template := range v.Create.Templates {
			if template.Template.Annotations[kueue.PodSetUnconstrainedTopologyAnnotation] != "" {
				unasked = ", which a topology places"
			}
		}
		tell("create request %s for %d pods%s", v.Create.Object.Name, v.Create.Object.Spec.PodSets[0].Count, unasked)
		v.Create.Object.UID = types.UID(v.Create.Object.Name)
		w.set(v.Create.Object)
	}
	if written != nil {
		w.version++
		written.ResourceVersion = strconv.Itoa(w.version)
	}
	if v.Acts() {
		w.s.Settle(object.UID, written)
	} else if written != nil {
		w.s.Set(written)
	}
}

func (w *world) prioritize(v *lifecycle.Verdict, out *strings.Builder) {
	written := v.Workload.Object.DeepCopy()
	if out != nil {
		fmt.Fprintf(out, "%s: %v %d instead of %d (%s)\n", written.Name, v.Action, v.Priority, workload.Priority(written), v.Message)
	}
	written.Spec.Priority = &v.Priority
	w.set(written)
	w.s.Prioritized(written.UID)
}

func admittedToo(s *kueue.WorkloadStatus) string {
	if len(s.AdmissionChecks) == 0 {
		return ", admitted"
	}
	return ""
}

func (w *world) find(t *testing.T, name string) *kueue.Workload {
	for _, x := range w.s.Workloads {
		if x.Object.Name == name {
			return x.Object.DeepCopy()
		}
	}
	t.Fatalf("no workload %s", name)
	return nil
}

func (w *world) change(t *testing.T, what, name string) {
	object := w.find(t, name)
	switch what {
	case "finish":
		object.Status = *workload.Finished(object, kueue.WorkloadFinishedReasonSucceeded, "done", w.now)
	case "adopt":
		object.Status = *workload.Adopted(object, workload.RanBefore, w.now)
	case "stopped":
		object.Status = *workload.Released(object, w.now)
	case "deactivate":
		object.Spec.Active = new(false)
	case "activate":
		object.Spec.Active = new(true)
	case "deleting":
		object.DeletionTimestamp, object.Finalizers = &metav1.Time{Time: w.now}, append(object.Finalizers, "example.com/mine")
	case "copied":
		controllerutil.AddFinalizer(object, workload.CopiesFinalizer)
	case "cleared":
		controllerutil.RemoveFinalizer(object, workload.CopiesFinalizer)
	case "delete":
		w.s.Delete(object)
		for _, r := range slices.Clone(w.s.Requests[object.UID]) {
			w.s.Delete(r)
		}
		return
	}
	w.set(object)
}

// condition sets a condition of the workload's only request.
func (w *world) condition(t *testing.T, name string, args map[string]string, message string) {
	requests := w.s.Requests[w.find(t, name).UID]
	if len(requests) != 1 {
		t.Fatalf("%s has %d requests", name, len(requests))
	}
	r := requests[0].DeepCopy()
	reason := args["reason"]
	delete(args, "reason")
	for k, v := range args {
		for _, c := range []metav1.Condition{{Type: autoscaling.Accepted, Status: metav1.ConditionTrue},
			{Type: k, Status: metav1.ConditionStatus(v)}} {
			c.Message, c.Reason, c.LastTransitionTime = message, reason, metav1.NewTime(w.now)
			apimeta.SetStatusCondition(&r.Status.Conditions, c)
		}
	}
	w.set(r)
}

// requests prints the requests of a workload with their specs.
func (w *world) requests(t *testing.T, name string) string {
	var out strings.Builder
	requests := slices.Clone(w.s.Requests[w.find(t, name).UID])
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
func (w *world) queues() string {
	var out strings.Builder
	w.s.MarkAllDirty()
	report := w.s.Report(w.now)
	for _, q := range w.s.Order {
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
	for _, name := range slices.Sorted(maps.Keys(w.s.Checks)) {
		if st, ok := report.Checks[string(name)]; ok {
			fmt.Fprintf(&out, "%s: %s (%s)\n", name, st.Conditions[0].Reason, st.Conditions[0].Message)
		}
	}
	return out.String()
}

// consumed writes the statuses of the LocalQueues that have changed, and prints what
// they have used.
func (w *world) consumed() string {
	var out strings.Builder
	report := w.s.Report(w.now).LocalQueues
	for _, key := range slices.SortedFunc(maps.Keys(report), func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) }) {
		lq := w.s.LocalQueues[key].Object.DeepCopy()
		lq.Status = report[key]
		w.version++
		lq.ResourceVersion = strconv.Itoa(w.version)
		w.s.Set(lq)
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

// checkQuota verifies promise P4: reservations never exceed the quota, except for jobs that ran before Muster was installed.
func checkQuota(t *testing.T, s *State) {
	t.Helper()
	for _, w := range s.Workloads {
		// What ran before, or runs again, is counted whether it is free or not.
		if w.Phase == cache.Reserving && w.Queue != nil && (workload.IsTrue(w.Object, workload.ConditionAdopted) || w.QuotaRestored) {
			w.Queue.Node.Sub(w.Usage)
			defer w.Queue.Node.Add(w.Usage)
		}
	}
	for _, q := range s.Order {
		for _, fr := range q.Node.Keys() {
			if v := q.Node.Available(fr); v < 0 {
				t.Errorf("queue %s uses %d of %v more than it may", q.Object.Name, -v, fr)
			}
		}
	}
}

func flavor(name string, args map[string]string) *kueue.ResourceFlavor {
	f := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, ok := args["unlabelled"]; !ok {
		f.Spec.NodeLabels = map[string]string{"pool": name}
	}
	if topology, ok := args["topology"]; ok {
		f.Spec.TopologyName = new(kueue.TopologyReference(topology))
	}
	if k, v, ok := strings.Cut(args["labels"], ":"); ok {
		f.Spec.NodeLabels = map[string]string{k: v}
	}
	if key, ok := args["tolerate"]; ok {
		f.Spec.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
	}
	if k, v, ok := strings.Cut(args["taint"], ":"); ok {
		f.Spec.NodeTaints = []corev1.Taint{{Key: k, Value: v, Effect: corev1.TaintEffectNoSchedule}}
	}
	return f
}

// capacityPolicy has the fields of the arguments. Fields that begin with may. are the limits to which jobs may loosen them.
func capacityPolicy(t *testing.T, name string, args map[string]string) *v1alpha1.CapacityPolicy {
	spec, err := v1alpha1.CapacityPolicySpec{}.With(func(field string) string { return args[field] })
	if err != nil {
		t.Fatal(err)
	}
	may, err := v1alpha1.CapacityPolicySpec{}.With(func(field string) string { return args["may."+field] })
	if err != nil {
		t.Fatal(err)
	}
	spec.Overrides = &v1alpha1.CapacityOverrides{
		CapacityTypes: may.CapacityTypes, FallbackAfter: may.FallbackAfter, MaxPricePerHour: may.MaxPricePerHour,
		BookingTimeout: may.BookingTimeout, StartWithin: may.StartWithin, CapacityPolicies: strings.Fields(args["may.capacityPolicies"]),
	}
	return &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func requestConfig(t *testing.T, name string, args map[string]string) *kueue.ProvisioningRequestConfig {
	c := &kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.ProvisioningClassName = args["class"]
	strategy := &kueue.ProvisioningRequestRetryStrategy{}
	for k, to := range map[string]**int32{"limit": &strategy.BackoffLimitCount, "base": &strategy.BackoffBaseSeconds} {
		if v, ok := args[k]; ok {
			n, err := strconv.Atoi(v)
			if err != nil {
				t.Fatalf("%s=%s: %v", k, v, err)
			}
			*to = new(int32(n))
			c.Spec.RetryStrategy = strategy
		}
	}
	if v, ok := args["managed"]; ok {
		c.Spec.ManagedResources = []corev1.ResourceName{corev1.ResourceName(v)}
	}
	if v, ok := args["merge"]; ok {
		c.Spec.PodSetMergePolicy = new(kueue.ProvisioningRequestConfigPodSetMergePolicy(v))
	}
	if k, v, ok := strings.Cut(args["selector"], ":"); ok {
		c.Spec.PodSetUpdates = &kueue.ProvisioningRequestPodSetUpdates{
			NodeSelector: []kueue.ProvisioningRequestPodSetUpdatesNodeSelector{{Key: k, ValueFromProvisioningClassDetail: v}},
		}
	}
	if k, v, ok := strings.Cut(args["set"], ":"); ok {
		c.Spec.Parameters = map[string]kueue.Parameter{k: kueue.Parameter(v)}
	}
	return c
}

func clusterQueue(t *testing.T, name string, args map[string]string, input string) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	if _, ok := args["backfill"]; ok {
		cq.Annotations = map[string]string{scheduler.BackfillAnnotation: "true"}
	}
	if _, ok := args["adopt-beyond-nominal"]; ok {
		cq.Annotations = map[string]string{scheduler.AdoptBeyondNominalAnnotation: "true"}
	}
	if _, ok := args["byusage"]; ok {
		cq.Spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}
	}
	if team, ok := args["team"]; ok {
		cq.Spec.NamespaceSelector.MatchLabels = map[string]string{"team": team}
	}
	cq.Spec.CohortName = kueue.CohortReference(args["cohort"])
	cq.Spec.QueueingStrategy = kueue.BestEffortFIFO
	if _, ok := args["strict"]; ok {
		cq.Spec.QueueingStrategy = kueue.StrictFIFO
	}
	cq.Spec.StopPolicy = stopPolicy(args["stop"])
	if checks, ok := args["check"]; ok {
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{}
		for c := range strings.SplitSeq(checks, ",") {
			check, on, _ := strings.Cut(c, "@")
			rule := kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(check)}
			if on != "" {
				rule.OnFlavors = []kueue.ResourceFlavorReference{kueue.ResourceFlavorReference(on)}
			}
			cq.Spec.AdmissionChecksStrategy.AdmissionChecks = append(cq.Spec.AdmissionChecksStrategy.AdmissionChecks, rule)
		}
	}
	cq.Spec.FairSharing = weight(args)
	cq.Spec.Preemption = preemptionPolicy(args)
	cq.Spec.FlavorFungibility = fungibilityOf(args)
	cq.Spec.ResourceGroups = resourceGroups(t, input)
	return cq
}

func cohort(t *testing.T, name string, args map[string]string, input string) *kueue.Cohort {
	c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.ParentName = kueue.CohortReference(args["parent"])
	c.Spec.FairSharing = weight(args)
	if input != "" {
		c.Spec.ResourceGroups = resourceGroups(t, input)
	}
	return c
}

func weight(args map[string]string) *kueue.FairSharing {
	w, ok := args["weight"]
	if !ok {
		return nil
	}
	return &kueue.FairSharing{Weight: new(resource.MustParse(w))}
}

func preemptionPolicy(args map[string]string) *kueue.ClusterQueuePreemption {
	return &kueue.ClusterQueuePreemption{
		WithinClusterQueue:  kueue.PreemptionPolicy(orDefault(args["within"], "Never")),
		ReclaimWithinCohort: kueue.PreemptionPolicy(orDefault(args["reclaim"], "Never")),
		BorrowWithinCohort:  &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicy(orDefault(args["borrow"], "Never"))},
	}
}

func fungibilityOf(args map[string]string) *kueue.FlavorFungibility {
	return &kueue.FlavorFungibility{
		WhenCanBorrow:  kueue.FlavorFungibilityPolicy(orDefault(args["whenCanBorrow"], string(kueue.MayStopSearch))),
		WhenCanPreempt: kueue.FlavorFungibilityPolicy(orDefault(args["whenCanPreempt"], string(kueue.TryNextFlavor))),
		Preference:     new(kueue.FlavorFungibilityPreference(orDefault(args["prefers"], string(kueue.BorrowingOverPreemption)))),
	}
}

// resourceGroups parses quotas like cpu=10/4/2: nominal, borrowing limit and lending limit, with - for none. A line of other resources
// starts another group.
func resourceGroups(t *testing.T, input string) []kueue.ResourceGroup {
	groups := []kueue.ResourceGroup{{}}
	for line := range strings.Lines(input) {
		fields := strings.Fields(line)
		quotas := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(fields[0])}
		var covered []corev1.ResourceName
		for _, f := range fields[1:] {
			r, q, ok := strings.Cut(f, "=")
			if !ok {
				t.Fatalf("bad quota %q", f)
			}
			covered = append(covered, corev1.ResourceName(r))
			amounts := append(strings.Split(q, "/"), "-", "-")
			limit := func(s string) *resource.Quantity {
				if s == "-" {
					return nil
				}
				return new(resource.MustParse(s))
			}
			quotas.Resources = append(quotas.Resources, kueue.ResourceQuota{
				Name: corev1.ResourceName(r), NominalQuota: resource.MustParse(amounts[0]), BorrowingLimit: limit(amounts[1]),
				LendingLimit: limit(amounts[2]),
			})
		}
		group := &groups[len(groups)-1]
		if len(group.Flavors) > 0 && !slices.Equal(group.CoveredResources, covered) {
			groups = append(groups, kueue.ResourceGroup{})
			group = &groups[len(groups)-1]
		}
		group.CoveredResources, group.Flavors = covered, append(group.Flavors, quotas)
	}
	return groups
}

func localQueueTo(name, clusterQueue, stop string) *kueue.LocalQueue {
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(clusterQueue)
	lq.Spec.StopPolicy = stopPolicy(stop)
	return lq
}

func stopPolicy(s string) *kueue.StopPolicy {
	if s == "" {
		return nil
	}
	return new(kueue.StopPolicy(s))
}

func orDefault(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

func (w *world) workload(t *testing.T, name string, args map[string]string) *kueue.Workload {
	w.created++
	object := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID(fmt.Sprintf("uid-%03d", w.created)), Generation: 1,
		CreationTimestamp: metav1.NewTime(w.now),
		// A job owns it, so its quota is not released before its pods are gone.
		OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: name, Controller: new(true)}},
	}}
	object.Spec.QueueName = kueue.LocalQueueName(orDefault(args["lq"], "main"))
	spec := corev1.PodSpec{}
	requests := corev1.ResourceList{}
	count := 1
	var minCount *int32
	var group []kueue.PodSet
	for k, v := range args {
		var err error
		switch k {
		case "lq":
		case "priority":
			var p int
			p, err = strconv.Atoi(v)
			object.Spec.Priority = new(int32(p))
		case "class":
			object.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(v)
		case "podclass":
			object.Spec.PriorityClassRef = kueue.NewPodPriorityClassRef(v)
		case "max":
			var n int
			n, err = strconv.Atoi(v)
			object.Spec.MaximumExecutionTimeSeconds = new(int32(n))
		case "count":
			count, err = strconv.Atoi(v)
		case "min":
			var n int
			n, err = strconv.Atoi(v)
			minCount = new(int32(n))
		case "select":
			spec.NodeSelector = map[string]string{"pool": v}
		case "tolerate":
			spec.Tolerations = []corev1.Toleration{{Key: v, Operator: corev1.TolerationOpExists}}
		case "runtime":
			spec.RuntimeClassName = new(v)
		case "topology":
			// required:LEVEL, preferred:LEVEL, unconstrained, or slice:LEVEL:SIZE
			object.Spec.PodSets = []kueue.PodSet{{TopologyRequest: topologyRequest(v)}}
		case "slices":
			// LEVEL:SIZE of the last podSet, beside what its topology says.
		case "owner":
			object.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: v, Name: name, UID: types.UID(name), Controller: new(true)}}
		case "group":
			// Sizes of further podSets, which are placed together with the first.
			for i, size := range strings.Split(v, ":") {
				var n int
				n, err = strconv.Atoi(size)
				group = append(group, kueue.PodSet{Name: kueue.PodSetReference(fmt.Sprint("group-", i+1)), Count: int32(n)})
			}
		case "waited":
			// A copy of a Workload that has waited for so long elsewhere.
			var before time.Duration
			before, err = time.ParseDuration(v)
			object.Labels = map[string]string{kueue.MultiKueueOriginLabel: "manager"}
			object.Annotations = orEmpty(object.Annotations)
			object.Annotations[workload.QueuedSinceAnnotation] = w.now.Add(-before).Format(time.RFC3339)
		case "launcher":
			// A second podSet of one pod, which comes first.
			name, amount, _ := strings.Cut(v, ":")
			object.Spec.PodSets = []kueue.PodSet{{Name: "launcher", Count: 1, Template: podTemplate(name, resource.MustParse(amount))}}
		default:
			if strings.HasPrefix(k, workload.ParameterPrefix) {
				object.Annotations = orEmpty(object.Annotations)
				object.Annotations[k] = v
				continue
			}
			requests[corev1.ResourceName(k)], err = resource.ParseQuantity(v)
		}
		if err != nil {
			t.Fatalf("%s=%s: %v", k, v, err)
		}
	}
	spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}}
	podSet := kueue.PodSet{Name: "main", Count: int32(count), MinCount: minCount, Template: corev1.PodTemplateSpec{Spec: spec}}
	if _, ok := args["launcher"]; ok {
		object.Spec.PodSets = append(object.Spec.PodSets, podSet)
		return object
	}
	if len(object.Spec.PodSets) > 0 {
		podSet.TopologyRequest = object.Spec.PodSets[0].TopologyRequest
	}
	object.Spec.PodSets = []kueue.PodSet{podSet}
	for _, ps := range group {
		podSet.TopologyRequest.PodSetGroupName = new("group")
		ps.TopologyRequest, ps.Template = podSet.TopologyRequest, podSet.Template
		object.Spec.PodSets[0].TopologyRequest = podSet.TopologyRequest
		object.Spec.PodSets = append(object.Spec.PodSets, ps)
	}
	if v, ok := args["slices"]; ok {
		last := &object.Spec.PodSets[len(object.Spec.PodSets)-1]
		last.TopologyRequest = last.TopologyRequest.DeepCopy()
		slices := topologyRequest("slice:" + v)
		last.TopologyRequest.PodSetSliceRequiredTopology, last.TopologyRequest.PodSetSliceSize = slices.PodSetSliceRequiredTopology,
			slices.PodSetSliceSize
	}
	return object
}

// topologyRequest reads required:LEVEL, preferred:LEVEL, unconstrained, and slice:LEVEL:SIZE.
func topologyRequest(text string) *kueue.PodSetTopologyRequest {
	how, level, _ := strings.Cut(text, ":")
	switch how {
	case "required":
		return &kueue.PodSetTopologyRequest{Required: &level}
	case "preferred":
		return &kueue.PodSetTopologyRequest{Preferred: &level}
	case "slice":
		out := &kueue.PodSetTopologyRequest{}
		for layer := range strings.SplitSeq(level, ",") {
			level, size, _ := strings.Cut(layer, ":")
			n, _ := strconv.Atoi(size)
			out.PodsetSliceRequiredTopologyConstraints = append(out.PodsetSliceRequiredTopologyConstraints,
				kueue.PodsetSliceRequiredTopologyConstraint{Topology: level, Size: int32(n)})
		}
		if l := out.PodsetSliceRequiredTopologyConstraints; len(l) == 1 {
			return &kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: &l[0].Topology, PodSetSliceSize: &l[0].Size}
		}
		return out
	}
	return &kueue.PodSetTopologyRequest{Unconstrained: new(true)}
}

// nodes makes nodes of one kind.
func (w *world) nodes(t *testing.T, name string, args map[string]string) {
	count := 1
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
	for k, v := range args {
		switch k {
		case "count":
			var err error
			if count, err = strconv.Atoi(v); err != nil {
				t.Fatal(err)
			}
		case "cordoned":
			n.Spec.Unschedulable = true
		case "taint":
			key, effect, ok := strings.Cut(v, ":")
			if !ok {
				effect = string(corev1.TaintEffectNoSchedule)
			}
			n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffect(effect)}}
		case "unready":
			n.Status.Conditions[0].Status = corev1.ConditionFalse
		case "booked":
			// By the only request of a workload, as the provisioner books it.
			r := w.s.Requests[w.find(t, v).UID][0]
			n.Annotations = map[string]string{state.BookingLabel(r.Name): state.Booking{UID: r.UID}.Encode()}
			n.Labels[state.BookingLabel(r.Name)], n.Spec.Unschedulable = r.Namespace, true
		case "pool", "rack", "block":
			n.Labels[k] = v
		default:
			n.Status.Allocatable[corev1.ResourceName(k)] = resource.MustParse(v)
		}
	}
	for i := range count {
		one := n.DeepCopy()
		host := name
		if count > 1 {
			host = fmt.Sprintf("%s-%d", name, i+1)
		}
		one.Name, one.UID = nodeOf(host), types.UID("node "+host)
		one.Labels[corev1.LabelHostname], one.Spec.ProviderID = host, idOf(host)
		w.set(one)
	}
}

// nodeOf returns the name of the node with that host name: the two differ in many clusters, and domains use the host name.
func nodeOf(host string) string { return "node-of-" + host }

func idOf(host string) string { return "cloud://" + host }

// pod makes a pod on a node that no Workload has.
func (w *world) pod(name string, args map[string]string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("pod " + name)}}
	if _, done := args["done"]; done {
		w.s.Delete(p)
		return
	}
	requests := corev1.ResourceList{}
	for k, v := range args {
		switch k {
		case "node":
			p.Spec.NodeName = nodeOf(v)
		case "workload":
			p.Annotations = map[string]string{kueue.WorkloadAnnotation: v}
		case "leaving":
			p.DeletionTimestamp = &metav1.Time{Time: w.now}
		case "podset":
			p.Labels = map[string]string{workload.PodSetLabel: v}
		default:
			requests[corev1.ResourceName(k)] = resource.MustParse(v)
		}
	}
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}}
	w.set(p)
}

// places prints the domains of the pods of a workload.
func places(object *kueue.Workload) string {
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

func podTemplate(name string, amount resource.Quantity) corev1.PodTemplateSpec {
	requests := corev1.ResourceList{corev1.ResourceName(name): amount}
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
		Resources: corev1.ResourceRequirements{Requests: requests}}}}}
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

package queueing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
)

// TestScenarios runs the texts in testdata: objects and events go in, a cycle
// prints what it decides and carries it out. Run with -rewrite to accept changes.
//
//	flavor NAME [label=K=V] [taint=K=V] [tolerate=K]
//	check NAME [controller=C]
//	cq NAME [strict] [stop=Hold] [cohort=C] [check=(NAME[@FLAVOR],...)]
//	FLAVOR RESOURCE=QUANTITY ...        (one line a flavor, in order)
//	lq NAME cq=NAME [stop=Hold]
//	workload NAME [lq=main] [priority=N] [count=N] [select=K=V] [tolerate=K] RESOURCE=QUANTITY ...
//	machines FLAVOR=N ...               (how many pods fit; the planner's answer)
//	request NAME Provisioned=True|False|Failed|... [reason=R]  [message]
//	active                              (all checks' controllers say that they are)
//	external NAME CHECK=Ready|Retry|Rejected   (what the controller of a check says)
//	finish | deactivate | activate | delete NAME
//	tick DURATION
//	blind                               (no advice from the provisioner)
//	cycle                               (repeats until nothing changes)
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return w.run(t, d) })
	})
}

// world is a cluster that does at once what cycles decide.
type world struct {
	s        *Snapshot
	machines map[string]int
	created  int
}

func newWorld() *world {
	w := &world{machines: map[string]int{}, s: &Snapshot{
		Now:        time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		Namespaces: map[string]labels.Set{"default": {"team": "a"}},
		Requests:   map[types.UID][]*autoscaling.ProvisioningRequest{},
		Capacity:   provisioning.NewSnapshot(time.Time{}, provisioning.NewNodes(), nil, nil),
	}}
	w.s.Plan = w.plan
	return w
}

// plan has room for as many pods as the flavor's label says there are machines.
func (w *world) plan(_ *provisioning.Snapshot, gang provisioning.Gang, _ provisioning.Policy) provisioning.Verdict {
	pool := gang.PodSets[0].Template.Spec.NodeSelector["pool"]
	if have := w.machines[pool]; gang.PodSets[0].Count > have {
		return provisioning.Verdict{Outcome: provisioning.Wait, Until: w.s.Now.Add(time.Minute), Reasons: []provisioning.Reason{{
			Code: provisioning.CodeBackoff, Group: pool, Message: fmt.Sprintf("%d of %d machines", have, gang.PodSets[0].Count),
		}}}
	}
	return provisioning.Verdict{Outcome: provisioning.Launch}
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
		w.s.Capacity = nil
	case "flavor":
		w.s.Flavors = append(w.s.Flavors, flavor(name, args))
	case "check":
		ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
		ac.Spec.ControllerName = orDefault(args["controller"], CapacityController)
		w.s.Checks = append(w.s.Checks, ac)
	case "cq":
		w.s.ClusterQueues = slices.DeleteFunc(w.s.ClusterQueues, func(cq *kueue.ClusterQueue) bool { return cq.Name == name })
		w.s.ClusterQueues = append(w.s.ClusterQueues, clusterQueue(t, name, args, d.Input))
	case "lq":
		w.s.LocalQueues = slices.DeleteFunc(w.s.LocalQueues, func(lq *kueue.LocalQueue) bool { return lq.Name == name })
		w.s.LocalQueues = append(w.s.LocalQueues, localQueue(name, args["cq"], args["stop"]))
	case "workload":
		w.created++
		w.s.Workloads = append(w.s.Workloads, NewWorkload(w.workload(t, name, args), nil))
	case "machines":
		for k, v := range args {
			w.machines[k], _ = strconv.Atoi(v)
		}
	case "request":
		w.condition(t, name, args, d.Input)
	case "external":
		object := w.find(t, name)
		for i := range object.Status.AdmissionChecks {
			c := &object.Status.AdmissionChecks[i]
			if says, ok := args[string(c.Name)]; ok {
				c.State, c.Message = kueue.CheckState(says), "as it says"
			}
		}
		w.replace(object)
	case "active":
		for _, ac := range w.s.Checks {
			ac.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
		}
	case "finish", "deactivate", "activate", "delete", "stopped":
		w.change(t, d.Cmd, name)
	case "tick":
		by, err := time.ParseDuration(name)
		if err != nil {
			t.Fatal(err)
		}
		w.s.Now = w.s.Now.Add(by)
	case "cycle":
		return w.cycles(t)
	case "queues":
		return w.queues()
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	return ""
}

// cycles runs cycles until nothing is written any more, and prints each write.
func (w *world) cycles(t *testing.T) string {
	var out strings.Builder
	var wake time.Time
	for range 20 {
		verdicts := Cycle(w.s)
		wrote := false
		for i := range verdicts {
			v := &verdicts[i]
			w.apply(v, &out, &wrote)
		}
		checkQuota(t, w.s)
		wake = WakeAt(verdicts)
		if !wrote {
			if !wake.IsZero() {
				fmt.Fprintf(&out, "wake in %s\n", wake.Sub(w.s.Now))
			}
			return out.String()
		}
	}
	t.Fatalf("no rest after 20 cycles:\n%s", out.String())
	return ""
}

func (w *world) apply(v *Verdict, out *strings.Builder, wrote *bool) {
	object := v.Workload.Object
	tell := func(format string, args ...any) {
		*wrote = true
		fmt.Fprintf(out, "%s: ", object.Name)
		fmt.Fprintf(out, format+"\n", args...)
	}
	if v.Action == Deactivate {
		tell("%v (%s)", v.Action, v.Message)
		changed := object.DeepCopy()
		changed.Spec.Active = new(false)
		w.replace(changed)
		return
	}
	if v.Status != nil {
		changed := object.DeepCopy()
		changed.Status = *v.Status.DeepCopy()
		w.replace(changed)
		switch v.Action {
		case Wait:
			tell("%s: %s", v.Reason, v.Message)
		case Reserve:
			tell("%v on %v%s", v.Action, assignedFlavors(v.Status.Admission), admittedToo(v.Status))
		default:
			tell("%v %s (%s)", v.Action, v.Reason, v.Message)
		}
	}
	for _, r := range v.Delete {
		tell("delete request %s", r.Name)
		w.s.Requests[object.UID] = slices.DeleteFunc(slices.Clone(w.s.Requests[object.UID]), func(x *autoscaling.ProvisioningRequest) bool { return x == r })
	}
	if v.Create != nil {
		tell("create request %s for %d pods", v.Create.Object.Name, v.Create.Object.Spec.PodSets[0].Count)
		w.s.Requests[object.UID] = append(w.s.Requests[object.UID], v.Create.Object)
	}
}

func admittedToo(s *kueue.WorkloadStatus) string {
	if len(s.AdmissionChecks) == 0 {
		return ", admitted"
	}
	return ""
}

func (w *world) replace(object *kueue.Workload) {
	for i, x := range w.s.Workloads {
		if x.Object.UID == object.UID {
			w.s.Workloads[i] = NewWorkload(object, x)
		}
	}
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
		object.Status = *Finished(object, kueue.WorkloadFinishedReasonSucceeded, "done", w.s.Now)
	case "stopped":
		object.Status = *Released(object, w.s.Now)
	case "deactivate":
		object.Spec.Active = new(false)
	case "activate":
		object.Spec.Active = new(true)
	case "delete":
		w.s.Workloads = slices.DeleteFunc(w.s.Workloads, func(x *Workload) bool { return x.Object.UID == object.UID })
		delete(w.s.Requests, object.UID)
	}
	w.replace(object)
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
		for _, c := range []metav1.Condition{{Type: autoscaling.Accepted, Status: metav1.ConditionTrue}, {Type: k, Status: metav1.ConditionStatus(v)}} {
			c.Message, c.Reason, c.LastTransitionTime = message, reason, metav1.NewTime(w.s.Now)
			apimeta.SetStatusCondition(&r.Status.Conditions, c)
		}
	}
	requests[0] = r
}

// queues prints what the report says of each queue.
func (w *world) queues() string {
	var out strings.Builder
	report := MakeReport(w.s)
	for _, q := range newIndex(w.s).order {
		st := report.ClusterQueues[q.object.Name]
		fmt.Fprintf(&out, "%s: %s, %d pending, %d reserving, %d admitted", q.object.Name, st.Conditions[0].Reason, st.PendingWorkloads, st.ReservingWorkloads, st.AdmittedWorkloads)
		for _, f := range st.FlavorsReservation {
			for _, r := range f.Resources {
				fmt.Fprintf(&out, " %s/%s=%s", f.Name, r.Name, r.Total.String())
			}
		}
		fmt.Fprintf(&out, "\n  %s\n", st.Conditions[0].Message)
	}
	for _, lq := range w.s.LocalQueues {
		c := report.LocalQueues[types.NamespacedName{Namespace: lq.Namespace, Name: lq.Name}].Conditions[0]
		fmt.Fprintf(&out, "%s: %s (%s)\n", lq.Name, c.Reason, c.Message)
	}
	for _, ac := range w.s.Checks {
		if st, ok := report.Checks[ac.Name]; ok {
			fmt.Fprintf(&out, "%s: %s (%s)\n", ac.Name, st.Conditions[0].Reason, st.Conditions[0].Message)
		}
	}
	return out.String()
}

// checkQuota is promise P4: what is reserved never exceeds the quota.
func checkQuota(t *testing.T, s *Snapshot) {
	t.Helper()
	for _, q := range newIndex(s).order {
		for _, fr := range q.reserved.Keys() {
			if q.reserved[fr] > q.nominal[fr] {
				t.Errorf("queue %s: %d of %v reserved, quota %d", q.object.Name, q.reserved[fr], fr, q.nominal[fr])
			}
		}
	}
}

func flavor(name string, args map[string]string) *kueue.ResourceFlavor {
	f := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}}
	f.Spec.NodeLabels = map[string]string{"pool": name}
	if k, v, ok := strings.Cut(args["taint"], ":"); ok {
		f.Spec.NodeTaints = []corev1.Taint{{Key: k, Value: v, Effect: corev1.TaintEffectNoSchedule}}
	}
	return f
}

func clusterQueue(t *testing.T, name string, args map[string]string, input string) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
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
	var group kueue.ResourceGroup
	for line := range strings.Lines(input) {
		fields := strings.Fields(line)
		quotas := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(fields[0])}
		group.CoveredResources = nil
		for _, f := range fields[1:] {
			r, q, ok := strings.Cut(f, "=")
			if !ok {
				t.Fatalf("bad quota %q", f)
			}
			group.CoveredResources = append(group.CoveredResources, corev1.ResourceName(r))
			quotas.Resources = append(quotas.Resources, kueue.ResourceQuota{Name: corev1.ResourceName(r), NominalQuota: resource.MustParse(q)})
		}
		group.Flavors = append(group.Flavors, quotas)
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{group}
	return cq
}

func localQueue(name, clusterQueue, stop string) *kueue.LocalQueue {
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
	object := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID(fmt.Sprintf("uid-%03d", w.created)), Generation: 1,
		CreationTimestamp: metav1.NewTime(w.s.Now),
		// A job runs it, so its quota is not given back before its pods are gone.
		OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: name, Controller: new(true)}},
	}}
	object.Spec.QueueName = kueue.LocalQueueName(orDefault(args["lq"], "main"))
	spec := corev1.PodSpec{}
	requests := corev1.ResourceList{}
	count := 1
	for k, v := range args {
		var err error
		switch k {
		case "lq":
		case "priority":
			var p int
			p, err = strconv.Atoi(v)
			object.Spec.Priority = new(int32(p))
		case "count":
			count, err = strconv.Atoi(v)
		case "select":
			spec.NodeSelector = map[string]string{"pool": v}
		case "tolerate":
			spec.Tolerations = []corev1.Toleration{{Key: v, Operator: corev1.TolerationOpExists}}
		case "topology":
			object.Spec.PodSets = []kueue.PodSet{{TopologyRequest: &kueue.PodSetTopologyRequest{Required: &v}}}
		default:
			requests[corev1.ResourceName(k)], err = resource.ParseQuantity(v)
		}
		if err != nil {
			t.Fatalf("%s=%s: %v", k, v, err)
		}
	}
	spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}}
	podSet := kueue.PodSet{Name: "main", Count: int32(count), Template: corev1.PodTemplateSpec{Spec: spec}}
	if len(object.Spec.PodSets) > 0 {
		podSet.TopologyRequest = object.Spec.PodSets[0].TopologyRequest
	}
	object.Spec.PodSets = []kueue.PodSet{podSet}
	return object
}

package queues

import (
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
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/workload"
)

// RunScenarios plays the texts in testdata of a package: objects and events go in, a cycle prints what it decides and carries it out. With
// -rewrite the test accepts what is printed.
//
//	flavor NAME [unlabelled | labels=K:V] [taint=K:V] [tolerate=K] [topology=NAME]     (else its nodes have the label pool=NAME)
//	topology NAME levels=(LABEL,...)
//	node NAME [pool=FLAVOR] [count=N] [taint=KEY[:EFFECT]] [unready] [LABEL=V] RESOURCE=QUANTITY ...     (N of them, numbered; label rack and those with a slash)
//	gone NAME [topology]                (a node, or a Topology, is deleted)
//	vanished [soon=(NODE,...)] [many=(NODE,...)]   (the lost nodes that may come back according to the provisioner; without arguments none)
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
func RunScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(path, "/fuzz/") {
			return // a corpus
		}
		w := New()
		datadriven.RunTest(t, path, w.Run)
	})
}

// Run executes a command of a scenario, and returns what it prints.
func (w *World) Run(t *testing.T, d *datadriven.TestData) string {
	name, args, rest := "", map[string]string{}, d.CmdArgs
	if len(rest) > 0 && len(rest[0].Vals) == 0 {
		name, rest = rest[0].Key, rest[1:]
	}
	for _, a := range rest {
		args[a.Key] = strings.Join(a.Vals, ",")
	}
	switch d.Cmd {
	case "blind":
		w.State.SetCapacity(nil)
	case "flavor":
		w.Set(Flavor(name, args))
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
		w.Set(ac)
	case "topology":
		o := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for level := range strings.SplitSeq(args["levels"], ",") {
			o.Spec.Levels = append(o.Spec.Levels, kueue.TopologyLevel{NodeLabel: level})
		}
		w.Set(o)
	case "node":
		w.Nodes(t, name, args)
	case "gone":
		if _, is := args["topology"]; is {
			w.Delete(&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: name}})
			break
		}
		w.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeOf(name)}})
	case "vanished":
		v := scaledown.Vanished{Machines: map[string]bool{}, Many: args["many"] != ""}
		for kind, hosts := range args {
			for host := range strings.SplitSeq(hosts, ",") {
				v.Machines[idOf(host)] = kind == "many"
			}
		}
		w.State.Nodes.Vanished = v
	case "pod":
		w.Pod(name, args)
	case "places":
		return Places(w.Find(t, name))
	case "policy":
		w.Set(CapacityPolicy(t, name, args))
	case "requestconfig":
		w.Set(RequestConfig(t, name, args))
	case "cq":
		w.Set(ClusterQueue(t, name, args, d.Input))
	case "cohort":
		w.Set(Cohort(t, name, args, d.Input))
	case "lq":
		lq := LocalQueue(name, args["cq"], args["stop"])
		lq.Spec.FairSharing = weight(args)
		w.Set(lq)
	case "workload":
		w.Set(w.Workload(t, name, args))
	case "class":
		class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		value, err := strconv.Atoi(args["value"])
		if err != nil {
			t.Fatal(err)
		}
		class.Value = int32(value)
		w.Set(class)
	case "runtimeclass":
		w.Set(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Scheduling: &nodev1.Scheduling{
			NodeSelector: map[string]string{"pool": args["pool"]},
			Tolerations:  []corev1.Toleration{{Key: args["tolerate"], Operator: corev1.TolerationOpExists}},
		}})
	case "machines":
		for k, v := range args {
			w.Machines[k], _ = strconv.Atoi(v)
		}
		w.State.SetCapacity(w.State.Capacity())
	case "request":
		w.Condition(t, name, args, d.Input)
	case "external":
		object := w.Find(t, name)
		for i := range object.Status.AdmissionChecks {
			c := &object.Status.AdmissionChecks[i]
			if says, ok := args[string(c.Name)]; ok {
				c.State, c.Message = kueue.CheckState(says), "as it says"
				if after, err := strconv.Atoi(args["after"]); err == nil {
					c.RequeueAfterSeconds = new(int32(after))
				}
			}
		}
		w.Set(object)
	case "detail":
		for _, have := range w.State.Requests[w.Find(t, name).UID] {
			r := have.DeepCopy()
			defer w.Set(r)
			r.Status.ProvisioningClassDetails = map[string]autoscaling.Detail{}
			for k, v := range args {
				r.Status.ProvisioningClassDetails[k] = autoscaling.Detail(v)
			}
		}
	case "drop":
		for _, r := range slices.Clone(w.State.Requests[w.Find(t, name).UID]) {
			w.Delete(r)
		}
	case "requests":
		return w.requests(t, name)
	case "checks":
		return checkStates(w.Find(t, name))
	case "active":
		for _, have := range w.State.Checks {
			ac := have.DeepCopy()
			defer w.Set(ac)
			ac.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
		}
	case "adopt", "finish", "deactivate", "activate", "delete", "deleting", "stopped", "copied", "cleared":
		w.Change(t, d.Cmd, name)
	case "tick":
		by, err := time.ParseDuration(name)
		if err != nil {
			t.Fatal(err)
		}
		w.Now = w.Now.Add(by)
	case "cycle":
		return w.Cycles(t)
	case "queues":
		return w.queues()
	case "consumed":
		return w.consumed()
	default:
		return w.life(t, d, name, args)
	}
	return ""
}

// Change makes of a Workload what its job, a user or another controller does.
func (w *World) Change(t *testing.T, what, name string) {
	object := w.Find(t, name)
	switch what {
	case "finish":
		object.Status = *workload.Finished(object, kueue.WorkloadFinishedReasonSucceeded, "done", w.Now)
	case "adopt":
		object.Status = *workload.Adopted(object, workload.RanBefore, w.Now)
	case "stopped":
		object.Status = *workload.Released(object, w.Now)
	case "deactivate":
		object.Spec.Active = new(false)
	case "activate":
		object.Spec.Active = new(true)
	case "deleting":
		object.DeletionTimestamp, object.Finalizers = &metav1.Time{Time: w.Now}, append(object.Finalizers, "example.com/mine")
	case "copied":
		controllerutil.AddFinalizer(object, workload.CopiesFinalizer)
	case "cleared":
		controllerutil.RemoveFinalizer(object, workload.CopiesFinalizer)
	case "delete":
		w.Delete(object)
		for _, r := range slices.Clone(w.State.Requests[object.UID]) {
			w.Delete(r)
		}
		return
	}
	w.Set(object)
}

// Condition sets a condition of the workload's only request.
func (w *World) Condition(t *testing.T, name string, args map[string]string, message string) {
	requests := w.State.Requests[w.Find(t, name).UID]
	if len(requests) != 1 {
		t.Fatalf("%s has %d requests", name, len(requests))
	}
	r := requests[0].DeepCopy()
	reason := args["reason"]
	delete(args, "reason")
	for k, v := range args {
		for _, c := range []metav1.Condition{{Type: autoscaling.Accepted, Status: metav1.ConditionTrue},
			{Type: k, Status: metav1.ConditionStatus(v)}} {
			c.Message, c.Reason, c.LastTransitionTime = message, reason, metav1.NewTime(w.Now)
			apimeta.SetStatusCondition(&r.Status.Conditions, c)
		}
	}
	w.Set(r)
}

// life runs the commands of scenarios about Workloads that hold quota.
func (w *World) life(t *testing.T, d *datadriven.TestData, name string, args map[string]string) string {
	switch d.Cmd {
	case "config":
		var c config.Config
		if err := yaml.UnmarshalStrict([]byte(d.Input), &c); err != nil {
			t.Fatal(err)
		}
		w.Configure(c)
	case "resourcequota":
		w.Set(ResourceQuota(name, args))
	case "status":
		return Describe(w.Find(t, name))
	case "admitted":
		// As another process has left it.
		object, like := w.Find(t, name), w.Find(t, args["like"])
		object.Status = *like.Status.DeepCopy()
		ps := &object.Status.Admission.PodSetAssignments[0]
		ps.Count = &object.Spec.PodSets[0].Count
		for name, each := range object.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests {
			ps.ResourceUsage[name] = *resource.NewMilliQuantity(each.MilliValue()*int64(*ps.Count), resource.DecimalSI)
		}
		w.Set(object)
	case "restart":
		w.Restart()
	case "annotate", "spec", "ready", "open", "reclaimable":
		object := w.Find(t, name)
		w.edit(t, d.Cmd, object, args)
		w.Set(object)
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	return ""
}

// edit changes a Workload as its job's controller or a person would.
func (w *World) edit(t *testing.T, what string, object *kueue.Workload, args map[string]string) {
	number := func(v string) int32 {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		return int32(n)
	}
	if what == "ready" {
		setReady(object, args, w.Now)
		return
	}
	for k, v := range args {
		switch {
		case what == "annotate" && v == "":
			delete(object.Annotations, k)
		case what == "annotate":
			if object.Annotations == nil {
				object.Annotations = map[string]string{}
			}
			object.Annotations[k] = v
		case what == "open":
			object.Status.PreemptionGates = []kueue.PreemptionGateState{{
				Name: v, Position: kueue.PreemptionGatePositionOpen, LastTransitionTime: metav1.NewTime(w.Now),
			}}
		case what == "reclaimable":
			object.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: kueue.PodSetReference(k), Count: number(v)}}
		case k == "max":
			object.Spec.MaximumExecutionTimeSeconds = new(number(v))
		case k == "gate":
			object.Spec.PreemptionGates = []kueue.PreemptionGate{{Name: v}}
		case k == "count":
			object.Spec.PodSets[0].Count = number(v)
		case k == "priority":
			object.Spec.Priority = new(number(v))
		case k == "job":
			object.OwnerReferences[0].Name = v
		default:
			t.Fatalf("%s %s=%s", what, k, v)
		}
	}
}

func setReady(object *kueue.Workload, args map[string]string, now time.Time) {
	for reason, message := range args {
		status := metav1.ConditionTrue
		if strings.HasPrefix(reason, "WaitFor") || reason == workload.ReasonPodsRefused {
			status = metav1.ConditionFalse
		}
		apimeta.SetStatusCondition(&object.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadPodsReady, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now),
		})
	}
}

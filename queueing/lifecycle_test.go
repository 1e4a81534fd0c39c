package queueing

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// life runs the commands of scenarios about Workloads that hold quota.
func (w *world) life(t *testing.T, d *datadriven.TestData, name string, args map[string]string) string {
	switch d.Cmd {
	case "config":
		var c config.Config
		if err := yaml.UnmarshalStrict([]byte(d.Input), &c); err != nil {
			t.Fatal(err)
		}
		w.s = newWorldWith(c).s
		w.s.plan = w.plan
	case "resourcequota":
		w.set(resourceQuota(name, args))
	case "status":
		return describe(w.find(t, name))
	case "admitted":
		// As another process has left it.
		object, like := w.find(t, name), w.find(t, args["like"])
		object.Status = *like.Status.DeepCopy()
		ps := &object.Status.Admission.PodSetAssignments[0]
		ps.Count = &object.Spec.PodSets[0].Count
		for name, each := range object.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests {
			ps.ResourceUsage[name] = *resource.NewMilliQuantity(each.MilliValue()*int64(*ps.Count), resource.DecimalSI)
		}
		w.set(object)
	case "restart":
		w.restart()
	case "annotate", "spec", "ready", "open", "reclaimable":
		object := w.find(t, name)
		w.edit(t, d.Cmd, object, args)
		w.set(object)
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	return ""
}

// edit changes a Workload as its job's controller or a person would.
func (w *world) edit(t *testing.T, what string, object *kueue.Workload, args map[string]string) {
	number := func(v string) int32 {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		return int32(n)
	}
	if what == "ready" {
		setReady(object, args, w.now)
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
				Name: v, Position: kueue.PreemptionGatePositionOpen, LastTransitionTime: metav1.NewTime(w.now),
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

func resourceQuota(name string, args map[string]string) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	q.Spec.Hard, q.Status.Used = corev1.ResourceList{}, corev1.ResourceList{}
	for k, v := range args {
		if k == "scope" {
			q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScope(v)}
			continue
		}
		hard, used, _ := strings.Cut(v, "/")
		q.Spec.Hard[corev1.ResourceName(k)] = resource.MustParse(hard)
		q.Status.Used[corev1.ResourceName(k)] = resource.MustParse(orDefault(used, "0"))
	}
	return q
}

// restart makes a new State of what was written.
func (w *world) restart() {
	old := w.s
	w.s = New(old.Config, old.plan)
	w.s.Nodes.TopologyCache, w.s.Nodes.Known = old.Nodes.Clone(), true
	for _, o := range old.Topologies {
		w.s.Set(o)
	}
	for _, o := range old.ClusterQueues {
		w.s.Set(o)
	}
	for _, o := range old.LocalQueues {
		w.s.Set(o.Object)
	}
	for _, o := range old.Flavors {
		w.s.Set(o)
	}
	for _, o := range old.Checks {
		w.s.Set(o)
	}
	for _, o := range old.Classes {
		w.s.Set(o)
	}
	for name, ns := range old.Namespaces {
		w.s.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: ns.Labels}})
		for _, q := range ns.Quotas {
			w.s.Set(q)
		}
	}
	for _, o := range old.Workloads {
		w.s.Set(o.Object)
	}
	for _, requests := range old.Requests {
		for _, r := range requests {
			w.s.Set(r)
		}
	}
	w.s.SetCapacity(planner.NewSnapshot(time.Time{}, nodeset.New(), nil, nil))
}

func (w *world) remove(v *lifecycle.Verdict, tell func(string, ...any)) {
	what := "the workload"
	if v.Job != nil {
		what = "job " + v.Job.Name
	}
	tell("%v %s (%s)", v.Action, what, v.Message)
	w.s.Delete(v.Workload.Object)
}

// describe prints what a status says, without the messages.
func describe(w *kueue.Workload) string {
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

// TestAWorkloadWhoseJobIsGone without it, as a deletion with --cascade=orphan leaves it,
// is over at once where no pods of it may run. Else it keeps its quota until they have ended.
func TestAWorkloadWhoseJobIsGone(t *testing.T) {
	for name, tt := range map[string]struct {
		job, owned, waits, group bool
		want                     string
	}{
		"it ran":                           {job: true},
		"it waited":                        {job: true, waits: true, want: kueue.WorkloadFinishedReasonOwnerNotFound},
		"its job is there":                 {job: true, owned: true},
		"Kueue has its StatefulSet own it": {job: true, group: true, owned: true},
		"its group of pods is gone":        {job: true, group: true},
		"it is of no job":                  {},
		"it is of no job and it waited":    {waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.set(flavor("spot", nil))
			w.set(localQueueTo("main", "queue", ""))
			w.set(clusterQueue(t, "queue", nil, "spot cpu=1"))
			args := map[string]string{"cpu": "1", "count": "1"}
			if tt.waits {
				args["cpu"] = "2"
			}
			object := w.workload(t, "one", args)
			if tt.job {
				object.Labels = map[string]string{workload.JobUIDLabel: "1234"}
			}
			w.set(object)
			w.cycles(t)
			left := w.find(t, "one")
			if tt.group {
				left.Annotations = map[string]string{workload.GroupAnnotation: "true"}
				left.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "one", UID: "1234"}}
			}
			if !tt.owned {
				left.OwnerReferences = nil
			}
			w.set(left)
			w.set(w.workload(t, "next", map[string]string{"cpu": "1", "count": "1"}))
			w.cycles(t)
			got := ""
			if c := apimeta.FindStatusCondition(w.find(t, "one").Status.Conditions, kueue.WorkloadFinished); c != nil {
				got = c.Reason
			}
			if got != tt.want || workload.HasQuota(w.find(t, "next")) != (tt.waits || tt.want != "") {
				t.Errorf("it is finished as %q, want %q; the next has quota: %v", got, tt.want, workload.HasQuota(w.find(t, "next")))
			}
		})
	}
}

// TestFewerPodsThanItsLeastAreLeft: a Workload then requests all of its remaining pods.
func TestFewerPodsThanItsLeastAreLeft(t *testing.T) {
	w := newWorld()
	w.set(flavor("spot", nil))
	w.set(localQueueTo("main", "queue", ""))
	w.set(clusterQueue(t, "queue", nil, "spot cpu=0"))
	object := w.workload(t, "one", map[string]string{"cpu": "1", "count": "5", "min": "3"})
	object.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: object.Spec.PodSets[0].Name, Count: 4}}
	w.set(object)
	w.cycles(t)
	if got := w.find(t, "one").Status.Conditions[0].Message; !strings.Contains(got, "current podset request (1)") {
		t.Errorf("it waits for %q", got)
	}
}

// TestOneOfWhichPodsAreOverIsNoneOfItsKind: what is too much for a Workload of the same podSets may be there for it.
func TestOneOfWhichPodsAreOverIsNoneOfItsKind(t *testing.T) {
	w := newWorld()
	w.set(flavor("spot", nil))
	w.set(localQueueTo("main", "queue", ""))
	w.set(clusterQueue(t, "queue", nil, "spot cpu=2"))
	args := map[string]string{"cpu": "1", "count": "4"}
	w.set(w.workload(t, "whole", args))
	over := w.workload(t, "over", args)
	over.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: over.Spec.PodSets[0].Name, Count: 3}}
	w.set(over)
	w.cycles(t)
	if whole, over := workload.HasQuota(w.find(t, "whole")), workload.HasQuota(w.find(t, "over")); whole || !over {
		t.Errorf("the whole one has quota: %v, that of which one pod is left: %v", whole, over)
	}
}

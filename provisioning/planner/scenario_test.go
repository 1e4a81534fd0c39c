package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
)

// noon is when all scenarios play.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// TestPlan plays the scenarios of testdata/plan. A scenario builds a snapshot
// with the commands group, node and daemonset, and asks with plan. On a node that repels=
// a topology key, a pod keeps those of gangs out of its domain. Run with
// -rewrite to accept what the planner says now.
func TestPlan(t *testing.T) {
	datadriven.Walk(t, "testdata/plan", func(t *testing.T, path string) {
		w := &world{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t, w.d = t, d
			switch d.Cmd {
			case "reset":
				*w = world{t: t, d: d}
			case "group":
				w.addGroup()
			case "node":
				w.addNode()
			case "daemonset":
				w.addDaemonSet()
			case "budget":
				w.addBudget()
			case "plan":
				return w.plan()
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return ""
		})
	})
}

type world struct {
	t          *testing.T
	d          *datadriven.TestData
	nodes      []state.Node
	groups     []nodegroups.Group
	daemonSets []state.DaemonSet
	budgets    []spend.Budget
}

// arg reads key=value from the command.
func (w *world) arg(key, otherwise string) string {
	for _, a := range w.d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return strings.Join(a.Vals, ",")
		}
	}
	return otherwise
}

func (w *world) has(key string) bool {
	return slices.ContainsFunc(w.d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == key })
}

func (w *world) number(key string, otherwise int) int {
	n, err := strconv.Atoi(w.arg(key, strconv.Itoa(otherwise)))
	if err != nil {
		w.d.Fatalf(w.t, "%s: %v", key, err)
	}
	return n
}

func (w *world) duration(key string) time.Duration {
	d, err := time.ParseDuration(w.arg(key, "0s"))
	if err != nil {
		w.d.Fatalf(w.t, "%s: %v", key, err)
	}
	return d
}

// name is the first word of the command.
func (w *world) name() string { return w.d.CmdArgs[0].Key }

// amounts reads cpu=, memory= (Gi), gpu=, mig=, efa=, huge= and pods=.
func (w *world) amounts() corev1.ResourceList {
	list := corev1.ResourceList{}
	for key, name := range map[string]corev1.ResourceName{
		"cpu": "cpu", "memory": "memory", "gpu": "nvidia.com/gpu", "mig": "nvidia.com/mig-1g.10gb", "efa": "vpc.amazonaws.com/efa",
		"huge": "hugepages-2Mi", "pods": "pods",
	} {
		if v := w.arg(key, ""); v != "" {
			list[name] = resource.MustParse(v)
		}
	}
	return list
}

func (w *world) taints() []corev1.Taint {
	if key := w.arg("taint", ""); key != "" {
		return []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
	}
	return nil
}

func (w *world) labels() map[string]string {
	out := map[string]string{}
	if kv := w.arg("label", ""); kv != "" {
		k, v, _ := strings.Cut(kv, ":")
		out[k] = v
	}
	return out
}

func (w *world) addGroup() {
	var price *resource.Quantity
	if p := w.arg("price", "1"); p != "unknown" {
		price = new(resource.MustParse(p))
	}
	var ends *metav1.Time
	if left := w.duration("ends"); left > 0 {
		ends = &metav1.Time{Time: noon.Add(left)}
	}
	ng := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: w.name()}}
	ng.Spec = v1alpha1.NodeGroupSpec{
		Zone:         w.arg("zone", "a"),
		CapacityType: v1alpha1.CapacityType(w.arg("capacity-type", "OnDemand")),
		PricePerHour: price,
		MaxNodes:     int32(w.number("max", 100)),
		EndsAt:       ends,
		Template:     v1alpha1.NodeTemplate{Labels: w.labels(), Taints: w.taints(), Capacity: w.amounts()},
	}
	if l := w.arg("level", ""); l != "" {
		ng.Spec.Topology = []v1alpha1.TopologyLevel{{NodeLabel: l, MachinesPerDomain: int32(w.number("per-domain", 0))}}
	}
	if w.has("flex-start") {
		ng.Spec.GCP = &v1alpha1.GCPGroup{LaunchMethod: v1alpha1.GCPResizeRequest}
	}
	if w.has("launch-instances") {
		ng.Spec.AWS = &v1alpha1.AWSGroup{LaunchMethod: v1alpha1.AWSLaunchInstances}
	}
	if w.has("foreign") {
		ng.Spec.ScaledBy = v1alpha1.ScaledByClusterAutoscaler
	}
	var status v1alpha1.NodeGroupStatus
	if wait := w.duration("backoff"); wait > 0 {
		status.Backoffs = []v1alpha1.Backoff{{Class: v1alpha1.Stockout, AtLeast: int32(w.number("at-least", 1)), Failures: 1,
			Until: metav1.NewTime(noon.Add(wait)), Message: "7 of 8 machines were made: InsufficientInstanceCapacity (Stockout)"}}
	}
	if level := w.arg("scatters", ""); level != "" { // its last launch of 8, whose backoff is over
		status = nodegroups.Learn(status, v1alpha1.LaunchAttempt{Class: v1alpha1.Scattered, Level: level, Requested: 8, Token: "earlier",
			Time: metav1.NewTime(noon.Add(-2 * time.Minute))})
	}
	if v := w.arg("chance", ""); v != "" { // the cloud's own, in parts per thousand
		status.Advice = &v1alpha1.Advice{Machines: 1, Chance: int32(w.number("chance", 0)), At: metav1.NewTime(noon)}
	}
	if v := w.arg("shows", ""); v != "" { // MIG devices in place of GPUs
		node := nodegroups.SeenNode{Allocatable: nodegroups.ResourcesFrom(nodegroups.Allocatable(ng.Spec.Template))}
		node.Allocatable["nvidia.com/gpu"], node.Allocatable["nvidia.com/mig-1g.10gb"] = 0, int64(w.number("shows", 0))
		status.Shape = nodegroups.LearnShape(nil, ng.Spec.Template, []nodegroups.SeenNode{node}, noon)
	}
	if w.has("unlisted") {
		ng.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionListed, Status: metav1.ConditionFalse}}
	}
	w.groups = append(w.groups, nodegroups.GroupFrom(ng, status, w.number("machines", 0)))
	slices.SortFunc(w.groups, func(a, b nodegroups.Group) int { return cmp.Compare(a.Name, b.Name) })
}

// addBudget lets gangs spend 1000 USD in the day, of which so much is spent, and so much of that in vain.
func (w *world) addBudget() {
	micro := func(arg string) int64 { return int64(w.number(arg, 0)) * 1e6 }
	w.budgets = append(w.budgets, spend.Budget{
		Policy: w.name(), Name: "team", Covers: func(state.Tenant) bool { return true }, MicroUSD: 1000e6, Period: v1alpha1.BudgetDay,
		Ends: noon.Add(12 * time.Hour), Spent: spend.Meter{At: noon, MicroUSD: micro("spent")},
		Vain: spend.Vain{Meter: spend.Meter{At: noon, MicroUSD: micro("vain")}, Percent: 5, Minimum: micro("minimum")},
	})
}

func (w *world) addNode() {
	n := state.Node{
		Name: w.name(), Group: w.arg("group", ""), Labels: w.labels(), Taints: w.taints(),
		Ready: !w.has("unready"), Pods: w.number("busy", 0), Launch: w.arg("launch", ""), InFlight: w.has("in-flight"),
		Cordon: map[string]state.Cordon{"": state.Open, "joining": state.Joining, "held": state.Held, "scaling-down": state.ScalingDown,
			"foreign": state.Foreign}[w.arg("cordon", "")],
	}
	n.Labels[corev1.LabelTopologyZone] = w.arg("zone", "a")
	n.Labels[v1alpha1.NodeGroupLabel] = n.Group
	n.Labels[corev1.LabelHostname] = n.Name
	list := w.amounts()
	if _, ok := list[corev1.ResourcePods]; !ok {
		list[corev1.ResourcePods] = nodegroups.PodsQuantity(nodegroups.DefaultPods)
	}
	n.Allocatable = nodegroups.ResourcesFrom(list)
	n.Free = n.Allocatable.Clone()
	if v := w.arg("used-gpu", ""); v != "" {
		n.Free["nvidia.com/gpu"] -= int64(w.number("used-gpu", 0))
	}
	if key := w.arg("repels", ""); key != "" {
		pod := &corev1.Pod{Spec: w.template([]datadriven.CmdArg{{Key: "anti", Vals: []string{key}}}).Spec}
		n.Running = []*fit.Running{fit.ReadRunning(pod)}
	}
	if left := w.duration("ends"); left > 0 {
		n.Machine = &cloudprovider.Machine{EndsAt: noon.Add(left)}
	}
	if by := w.arg("booked-by", ""); by != "" {
		n.Bookings = []state.Booking{{Key: by, UID: types.UID(by),
			Remaining: nodegroups.Resources{"nvidia.com/gpu": int64(w.number("booked-gpu", 0))}}}
		n.Labelled = n.Bookings
	}
	w.nodes = append(w.nodes, n)
}

func (w *world) addDaemonSet() {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{UID: types.UID(w.name()), Namespace: "kube-system", Name: w.name()}}
	d.Spec.Template = *w.template(w.d.CmdArgs)
	w.daemonSets = append(w.daemonSets, state.NewDaemonSet(d))
}

func (w *world) template(args []datadriven.CmdArg) *corev1.PodTemplateSpec {
	inner := &world{t: w.t, d: &datadriven.TestData{CmdArgs: args}}
	t := &corev1.PodTemplateSpec{}
	t.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: inner.amounts()}}}
	delete(t.Spec.Containers[0].Resources.Requests, corev1.ResourcePods)
	if key := inner.arg("tolerates", ""); key != "" {
		t.Spec.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
	}
	if l := inner.labels(); len(l) > 0 {
		t.Spec.NodeSelector = l
	}
	if runs := inner.duration("runs"); runs > 0 {
		t.Spec.ActiveDeadlineSeconds = new(int64(runs.Seconds()))
	}
	if inner.has("host-port") {
		t.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}}
	}
	inner.betweenPods(t)
	inner.domains(t)
	return t
}

// betweenPods reads anti=, near= and spread=, each with a topology key: the pods of
// this podSet keep apart, stay together or spread over its domains.
func (w *world) betweenPods(t *corev1.PodTemplateSpec) {
	t.Labels = map[string]string{"app": "gang"}
	same := &metav1.LabelSelector{MatchLabels: t.Labels}
	t.Spec.Affinity = &corev1.Affinity{}
	if key := w.arg("anti", ""); key != "" {
		t.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: same, TopologyKey: key}},
		}
	}
	if key := w.arg("near", ""); key != "" {
		t.Spec.Affinity.PodAffinity = &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: same, TopologyKey: key}},
		}
	}
	if key := w.arg("spread", ""); key != "" {
		t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: same,
		}}
	}
}

// domains reads within= a level, slice= a level and the pods of a slice, layers= such pairs, and group= a name: the annotations
// of Kueue.
func (w *world) domains(t *corev1.PodTemplateSpec) {
	t.Annotations = map[string]string{}
	if level := w.arg("within", ""); level != "" {
		t.Annotations["kueue.x-k8s.io/podset-required-topology"] = level
	}
	if level, size, ok := strings.Cut(w.arg("slice", ""), ":"); ok {
		t.Annotations["kueue.x-k8s.io/podset-slice-required-topology"], t.Annotations["kueue.x-k8s.io/podset-slice-size"] = level, size
	}
	if layers := w.arg("layers", ""); layers != "" {
		t.Annotations["kueue.x-k8s.io/podset-slice-required-topology-constraints"] = layers
	}
	if group := w.arg("group", ""); group != "" {
		t.Annotations["kueue.x-k8s.io/podset-group-name"] = group
	}
}

// plan reads one podSet a line: a name, count= and the amounts of one pod.
func (w *world) plan() string {
	gang := state.Gang{Name: "ns/gang", UID: types.UID(w.arg("owner", "gang")), Key: w.arg("owner", "gang"), Launch: w.arg("launch", "")}
	for line := range strings.Lines(w.d.Input) {
		cmdName, args, err := datadriven.ParseLine(line)
		if err != nil {
			w.d.Fatalf(w.t, "%v", err)
		}
		inner := &world{t: w.t, d: &datadriven.TestData{CmdArgs: args}}
		gang.PodSets = append(gang.PodSets, state.PodSet{Name: cmdName, Count: inner.number("count", 1), Template: w.template(args)})
	}
	policy := state.DefaultPolicy(state.AtomicScaleUp)
	if w.has("check-capacity") {
		policy.Class = state.CheckCapacity
	}
	policy.Split = v1alpha1.Split(w.arg("split", string(policy.Split)))
	policy.MaxMicroUSDPerHour = int64(w.number("max-usd", -1)) * 1e6
	if m := w.arg("capacity-types", ""); m != "" {
		policy.CapacityTypes = nil
		for _, c := range strings.Split(m, ",") {
			policy.CapacityTypes = append(policy.CapacityTypes, v1alpha1.CapacityType(c))
		}
	}
	policy.Topology = w.arg("topology", "")
	snapshot := NewSnapshot(noon, nodeset.Of(w.nodes...), w.groups, w.daemonSets)
	snapshot.Budgets = w.budgets
	return render(Plan(snapshot, gang, policy))
}

func render(v Verdict) string {
	var b strings.Builder
	fmt.Fprint(&b, v.Outcome)
	if !v.Until.IsZero() {
		fmt.Fprintf(&b, " until %s", v.Until.Format(time.TimeOnly))
	}
	fmt.Fprintln(&b)
	for _, p := range v.Placement {
		whole := ""
		if p.Whole {
			whole = " whole"
		}
		fmt.Fprintf(&b, "  on %s: %v%s\n", p.Node, p.Pods, whole)
	}
	for _, l := range v.Launches {
		fmt.Fprintf(&b, "  launch %d in %s\n", l.Count, l.Group)
	}
	if len(v.Launches) > 0 {
		fmt.Fprintf(&b, "  for %s USD per hour\n", text.USD(v.MicroUSDPerHour))
	}
	for _, r := range v.Reasons {
		fmt.Fprintf(&b, "  %s: %s\n", r.Code, r)
	}
	return b.String()
}

package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// judge is a policy by kube-apiserver's own CEL, without a cluster.
type judge struct {
	*testing.T
	admissionv1.ValidatingAdmissionPolicySpec
	env *celgo.Env
	// user makes the requests.
	user string
}

func newJudge(t *testing.T, name string) *judge {
	t.Helper()
	objects, err := Manifests(Halves...)
	if err != nil {
		t.Fatal(err)
	}
	env, err := expressions().Env(environment.StoredExpressions)
	if err == nil {
		env, err = env.Extend(celgo.Variable("object", celgo.DynType), celgo.Variable("oldObject", celgo.DynType),
			celgo.Variable("request", celgo.DynType), celgo.Variable("variables", celgo.DynType))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if strings.HasSuffix(o.GetKind(), "AdmissionPolicy") && o.GetName() == name {
			var policy admissionv1.ValidatingAdmissionPolicy
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &policy); err != nil {
				t.Fatal(err)
			}
			return &judge{t, policy.Spec, env, "someone"}
		}
	}
	t.Fatalf("there is no policy %s", name)
	return nil
}

// holds reports whether an expression is true of a change, of objects in YAML.
func (j *judge) holds(expression, old, object string) bool {
	j.Helper()
	read := func(text string) (out any) {
		if err := yaml.Unmarshal([]byte(text), &out); err != nil {
			j.Fatal(err)
		}
		return out
	}
	request := map[string]any{"operation": "UPDATE", "userInfo": map[string]any{"username": j.user}}
	if old == "null" {
		request["operation"] = "CREATE"
	}
	variables := map[string]any{}
	of := map[string]any{"object": read(object), "oldObject": read(old), "request": request, "variables": variables}
	if strings.Contains(expression, "variables.") { // match conditions have none
		for _, v := range j.Variables {
			variables[v.Name] = j.value(v.Expression, of)
		}
	}
	return j.value(expression, of).Value() == true
}

func (j *judge) value(expression string, of map[string]any) ref.Val {
	j.Helper()
	ast, issues := j.env.Compile(expression)
	if issues.Err() != nil {
		j.Fatal(issues.Err())
	}
	program, err := j.env.Program(ast)
	if err != nil {
		j.Fatal(err)
	}
	out, _, err := program.Eval(of)
	if err != nil {
		j.Fatal(err)
	}
	return out
}

// looksAt reports whether a policy looks at a change.
func (j *judge) looksAt(old, object string) bool {
	j.Helper()
	return !slices.ContainsFunc(j.MatchConditions, func(c admissionv1.MatchCondition) bool { return !j.holds(c.Expression, old, object) })
}

// refuses reports whether a policy refuses a change.
func (j *judge) refuses(old, object string) bool {
	j.Helper()
	if !j.looksAt(old, object) {
		return false
	}
	for _, v := range j.Validations {
		if !j.holds(v.Expression, old, object) {
			return true
		}
	}
	return false
}

// TestPodsThatWaitGetNoTolerationOfACordon, by which they would get onto machines that are held for others.
func TestPodsThatWaitGetNoTolerationOfACordon(t *testing.T) {
	j := newJudge(t, "muster-late-strangers")
	const cordon = "tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists}]"
	for name, tt := range map[string]struct {
		old, now string
		refused  bool
	}{
		"of a cordon":                        {"{spec: {}}", "{spec: {" + cordon + "}}", true},
		"of a cordon, beside another one":    {"{spec: {tolerations: [{key: gpu}]}}", "{spec: {tolerations: [{key: gpu}, {operator: Exists}]}}", true},
		"of what stands in for a cordon":     {"{spec: {}}", "{spec: {tolerations: [{key: muster.dev/booked, effect: NoSchedule}]}}", true},
		"of all taints that evict":           {"{spec: {}}", "{spec: {tolerations: [{operator: Exists, effect: NoExecute}]}}", false},
		"of another taint":                   {"{spec: {}}", "{spec: {tolerations: [{key: gpu}]}}", false},
		"behind a gate of others":            {"{spec: {}}", "{spec: {schedulingGates: [{name: example.com/gate}], " + cordon + "}}", true},
		"behind a gate of the queues":        {"{spec: {schedulingGates: [{name: kueue.x-k8s.io/admission}]}}", "{spec: {schedulingGates: [{name: kueue.x-k8s.io/admission}], " + cordon + "}}", false},
		"as it loses such a gate":            {"{spec: {schedulingGates: [{name: kueue.x-k8s.io/admission}]}}", "{spec: {" + cordon + "}}", false},
		"with a booking":                     {"{spec: {}}", "{spec: {nodeSelector: {booked.muster.dev/gang: team}, " + cordon + "}}", false},
		"on its node":                        {"{spec: {}}", "{spec: {nodeName: n, " + cordon + "}}", false},
		"of what it has tolerated all along": {"{spec: {" + cordon + "}}", "{spec: {tolerations: [{operator: Exists}]}}", false},
		"where it is kept off": {"{spec: {}}", "{spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: " +
			"[{matchExpressions: [{key: muster.node-restriction.kubernetes.io/held, operator: DoesNotExist}]}]}}}, " + cordon + "}}", false},
		"where it is kept off by one of two terms": {"{spec: {}}", "{spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: " +
			"{nodeSelectorTerms: [{matchExpressions: [{key: muster.node-restriction.kubernetes.io/held, operator: DoesNotExist}]}, " +
			"{matchExpressions: [{key: zone, operator: Exists}]}]}}}, " + cordon + "}}", true},
	} {
		if got := j.refuses(tt.old, tt.now); got != tt.refused {
			t.Errorf("%s: refused is %v", name, got)
		}
	}
}

// TestAnOwnerMayNotTurnIntoWhatQueuesAsAWhole, by its kind, while its UID stays: it is looked at as one that is new.
func TestAnOwnerMayNotTurnIntoWhatQueuesAsAWhole(t *testing.T) {
	j := newJudge(t, "muster-jobs-owners")
	owned := func(version, kind, uid string) string {
		return "{metadata: {ownerReferences: [{apiVersion: " + version + ", kind: " + kind + ", name: owner, uid: " + uid +
			", controller: true}]}}"
	}
	jobset := owned("jobset.x-k8s.io/v1alpha2", "JobSet", "a")
	for name, tt := range map[string]struct {
		old, now string
		judged   bool
	}{
		"a new Job":                             {"null", jobset, true},
		"one that had no owner":                 {"{metadata: {}}", jobset, true},
		"one of another JobSet":                 {owned("jobset.x-k8s.io/v1alpha2", "JobSet", "b"), jobset, true},
		"one of a ConfigMap of the same UID":    {owned("v1", "ConfigMap", "a"), jobset, true},
		"one of a JobSet of others":             {owned("example.com/v1", "JobSet", "a"), jobset, true},
		"one of the JobSet":                     {jobset, jobset, false},
		"one of the JobSet, by another version": {owned("jobset.x-k8s.io/v1", "JobSet", "a"), jobset, false},
		"one of a Deployment":                   {"null", owned("apps/v1", "Deployment", "a"), false},
	} {
		if got := j.holds(j.MatchConditions[0].Expression, tt.old, tt.now); got != tt.judged {
			t.Errorf("%s: judged is %v", name, got)
		}
	}
}

// TestPodsOfAQueueAreGatedButThoseThatAStartHasMarked: what makes them may be in no queue, which no policy can read.
func TestPodsOfAQueueAreGatedButThoseThatAStartHasMarked(t *testing.T) {
	gate, guard := newJudge(t, "muster-pods-gate"), newJudge(t, "muster-pods-gates")
	pod := func(labels, owner string) string {
		group, kind, _ := strings.Cut(owner, "/")
		out := "{metadata: {labels: {kueue.x-k8s.io/queue-name: main" + labels + "}"
		if owner != "" {
			out += ", ownerReferences: [{apiVersion: " + group + "/v1, kind: " + kind + ", name: o, uid: u, controller: true}]"
		}
		return out + "}, spec: {}}"
	}
	const podSet, uid = ", kueue.x-k8s.io/podset: main", ", kueue.x-k8s.io/job-uid: u"
	for name, tt := range map[string]struct {
		old, now string
		// gated: it is created with the gate, and guarded: only Muster may make this change.
		gated, guarded bool
	}{
		"a pod":                                               {"null", pod("", ""), true, true},
		"one of a ReplicaSet":                                 {"null", pod("", "apps/ReplicaSet"), true, true},
		"one of a Job that nothing has marked":                {"null", pod("", "batch/Job"), true, false},
		"one of a Job that was started":                       {"null", pod(podSet, "batch/Job"), false, false},
		"one of a PyTorchJob":                                 {"null", pod("", "kubeflow.org/PyTorchJob"), true, false},
		"one of a PyTorchJob that was started":                {"null", pod(podSet+uid, "kubeflow.org/PyTorchJob"), false, false},
		"one of a driver that was started":                    {"null", pod(podSet+uid, "core/Pod"), false, false},
		"one that takes Kueue's mark itself":                  {"null", pod(podSet, ""), true, true},
		"a change of a pod":                                   {pod("", ""), pod("", ""), true, true},
		"a change of one of a Job that nothing has marked":    {pod("", "batch/Job"), pod("", "batch/Job"), true, true},
		"a mark of its own on one that waits":                 {pod("", "batch/Job"), pod(podSet, "batch/Job"), false, true},
		"a mark of a start on one that waits":                 {pod("", ""), pod(uid, ""), false, true},
		"a change of one of a Job that was started":           {pod(podSet, "batch/Job"), pod(podSet, "batch/Job"), false, false},
		"one of a started Job loses its mark":                 {pod(podSet, "batch/Job"), pod("", "batch/Job"), true, true},
		"a change of one of a group, which Muster has let go": {pod(podSet, ""), pod(podSet, ""), true, true},
	} {
		if got := gate.looksAt("null", tt.now); got != tt.gated {
			t.Errorf("%s: gated is %v", name, got)
		}
		if got := guard.looksAt(tt.old, tt.now); got != tt.guarded {
			t.Errorf("%s: guarded is %v", name, got)
		}
	}
}

// TestWhatMusterMayChangeOfNodes: a cordon and its taint, and the taint of bookings.
func TestWhatMusterMayChangeOfNodes(t *testing.T) {
	j := newJudge(t, "muster-rights-nodes")
	j.user = "system:serviceaccount:muster-system:muster"
	node := func(unschedulable bool, taints ...string) string {
		out := fmt.Sprintf("{metadata: {name: n}, spec: {unschedulable: %t, taints: [{key: theirs, effect: NoExecute}", unschedulable)
		for _, key := range taints {
			out += ", {key: " + key + ", effect: NoSchedule}"
		}
		return out + "]}}"
	}
	const cordon, booked = "node.kubernetes.io/unschedulable", "muster.dev/booked"
	for name, tt := range map[string]struct {
		old, now string
		refused  bool
	}{
		"a cordon":                     {node(false), node(true, cordon), false},
		"its end":                      {node(true, cordon), node(false), false},
		"the taint of bookings for it": {node(true, cordon), node(false, booked), false},
		"another taint":                {node(false), node(true, cordon, "x"), true},
		"a taint of others taken off":  {node(true, cordon), "{metadata: {name: n}, spec: {unschedulable: true}}", true},
	} {
		if got := j.refuses(tt.old, tt.now); got != tt.refused {
			t.Errorf("%s: refused is %v", name, got)
		}
	}
}

// TestWhatMusterMayChangeOfPods: as it takes their gate off, what they were admitted as, and nothing without.
func TestWhatMusterMayChangeOfPods(t *testing.T) {
	j := newJudge(t, "muster-rights-pods")
	j.user = "system:serviceaccount:muster-system:muster"
	pod := func(metadata, gate, more string) string {
		out := "{metadata: {name: p, " + metadata + "}, spec: {containers: [], " + more
		if gate != "" {
			out += "schedulingGates: [{name: " + gate + "}, {name: example.com/other}]"
		} else {
			out += "schedulingGates: [{name: example.com/other}]"
		}
		return out + "}}"
	}
	const (
		elastic, admission = "kueue.x-k8s.io/elastic-job", "kueue.x-k8s.io/admission"
		queued             = "labels: {kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/managed: 'true'}"
		booked             = "nodeSelector: {booked.muster.dev/gang: team}, tolerations: [{key: gpu}], "
	)
	for name, tt := range map[string]struct {
		old, now string
		refused  bool
	}{
		"the gate of an elastic job":                      {pod("", elastic, ""), pod("", "", ""), false},
		"the gate of an elastic job, for its booking":     {pod("", elastic, ""), pod("annotations: {a: b}", "", booked), false},
		"the booking alone, behind that gate":             {pod("", elastic, ""), pod("", elastic, booked), true},
		"the gate of a pod in a queue, for its booking":   {pod(queued, admission, ""), pod(queued, "", booked), false},
		"that gate of a pod in no queue":                  {pod("", admission, ""), pod("", "", ""), true},
		"the booking of a pod that has no gate of queues": {pod("", "", ""), pod("", "", booked), true},
	} {
		if got := j.refuses(tt.old, tt.now); got != tt.refused {
			t.Errorf("%s: refused is %v", name, got)
		}
	}
}

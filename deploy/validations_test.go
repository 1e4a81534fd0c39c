package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/queueing/jobs/topology"
)

// judge is a policy by kube-apiserver's own CEL, without a cluster.
type judge struct {
	*testing.T
	admissionv1.ValidatingAdmissionPolicySpec
	name string
	env  *celgo.Env
	// programs are the compiled expressions.
	programs map[string]celgo.Program
	// user makes the requests, and may do all that is named so: verb, resource and subresource.
	user string
	may  []string
	// options are those of a deletion, in YAML.
	options string
}

// Authorize implements authorizer.Authorizer.
func (j *judge) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(j.may, strings.Join([]string{a.GetVerb(), a.GetResource(), a.GetSubresource()}, " ")) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// manifests of both halves, which the judges share and only read.
var manifests = sync.OnceValues(func() ([]*unstructured.Unstructured, error) { return Manifests(Halves...) })

// variables is an environment with those of a policy's expressions.
var variables = sync.OnceValues(func() (*celgo.Env, error) {
	env, err := expressions().Env(environment.StoredExpressions)
	if err != nil {
		return nil, err
	}
	return env.Extend(celgo.Variable("object", celgo.DynType), celgo.Variable("oldObject", celgo.DynType),
		celgo.Variable("request", celgo.DynType), celgo.Variable("variables", celgo.DynType),
		celgo.Variable("authorizer", library.AuthorizerType))
})

func newJudge(t *testing.T, name string) *judge {
	t.Helper()
	objects, err := manifests()
	if err != nil {
		t.Fatal(err)
	}
	env, err := variables()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if strings.HasSuffix(o.GetKind(), "AdmissionPolicy") && o.GetName() == name {
			var policy admissionv1.ValidatingAdmissionPolicy
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &policy); err != nil {
				t.Fatal(err)
			}
			return &judge{T: t, name: name, ValidatingAdmissionPolicySpec: policy.Spec, env: env, user: "someone",
				programs: map[string]celgo.Program{}}
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
	request := map[string]any{"operation": "UPDATE", "userInfo": map[string]any{"username": j.user}, "namespace": "default"}
	if x, ok := read(object).(map[string]any); ok && x["kind"] != nil {
		group, _, _ := strings.Cut(x["apiVersion"].(string), "/")
		request["kind"] = map[string]any{"group": group, "kind": x["kind"]}
	}
	switch {
	case old == "null":
		request["operation"] = "CREATE"
	case object == "null":
		request["operation"], request["options"] = "DELETE", read(j.options)
		if x, ok := read(old).(map[string]any); ok {
			group, _, _ := strings.Cut(x["apiVersion"].(string), "/")
			request["kind"] = map[string]any{"group": group, "kind": x["kind"]}
		}
	}
	variables := map[string]any{}
	of := map[string]any{"object": read(object), "oldObject": read(old), "request": request, "variables": variables,
		"authorizer": library.NewAuthorizerVal(&user.DefaultInfo{Name: j.user}, j)}
	if strings.Contains(expression, "variables.") { // match conditions have none
		for _, v := range j.Variables {
			variables[v.Name] = j.value(v.Expression, of)
		}
	}
	return j.value(expression, of).Value() == true
}

func (j *judge) value(expression string, of map[string]any) ref.Val {
	j.Helper()
	program := j.programs[expression]
	if program == nil {
		ast, issues := j.env.Compile(expression)
		if issues.Err() != nil {
			j.Fatal(issues.Err())
		}
		var err error
		if program, err = j.env.Program(ast); err != nil {
			j.Fatal(err)
		}
		j.programs[expression] = program
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

// TestDaemonSetsThatTakeDevicesAreStrangers on machines that are held for another, whether they request devices or claim them.
func TestDaemonSetsThatTakeDevicesAreStrangers(t *testing.T) {
	j := newJudge(t, "muster-strangers")
	j.user = "system:serviceaccount:kube-system:daemon-set-controller"
	pod := func(spec string) string {
		return "{metadata: {ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, controller: true}]}, " +
			"spec: {tolerations: [{operator: Exists}], " + spec + "}}"
	}
	for name, tt := range map[string]struct {
		spec     string
		stranger bool
	}{
		"none":                      {"containers: [{resources: {requests: {cpu: 1}}}]", false},
		"a device of a plugin":      {"containers: [{resources: {requests: {nvidia.com/gpu: 1}}}]", true},
		"a claim":                   {"containers: [{resources: {claims: [{name: gpu}]}}], resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]", true},
		"one of its init container": {"containers: [{}], initContainers: [{resources: {requests: {nvidia.com/gpu: 1}}}]", true},
	} {
		if got := j.looksAt("null", pod(tt.spec)); got != tt.stranger {
			t.Errorf("%s: it is kept off: %v", name, got)
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

// TestMarksOfAStartAreNotOfUsers: a pod that has them runs by quota, and counts by them.
func TestMarksOfAStartAreNotOfUsers(t *testing.T) {
	const gate, queue = "schedulingGates: [{name: kueue.x-k8s.io/admission}]", "kueue.x-k8s.io/queue-name: main"
	pod := func(labels, owner, gates string) string {
		out := "{metadata: {name: p, labels: {" + labels + "}"
		if owner != "" {
			out += ", ownerReferences: [{apiVersion: " + owner + ", name: o, uid: u, controller: true}]"
		}
		return out + "}, spec: {" + gates + "}}"
	}
	marks := map[string]bool{"job-uid": true, "podset": true, "managed": true, "cluster-queue-name": true, "local-queue-name": true}
	for mark := range marks {
		marked := queue + ", kueue.x-k8s.io/" + mark + ": 'true'"
		other := queue + ", kueue.x-k8s.io/" + mark + ": 'other'"
		const job, driver = "batch/v1, kind: Job", "v1, kind: Pod"
		for name, tt := range map[string]struct {
			old, now string
			may      []string
			refused  bool
		}{
			"a user creates it":                  {"null", pod(marked, "", ""), nil, true},
			"a user creates it without a queue":  {"null", pod(marked[len(queue)+2:], "", ""), nil, true},
			"a user says that a Job controls it": {"null", pod(marked, job, ""), nil, true},
			"a user creates it gated":            {"null", pod(marked, "", gate), nil, mark != "managed"},
			"the controller of Jobs creates it":  {"null", pod(marked, job, ""), []string{"update jobs status"}, false},
			"a driver creates it":                {"null", pod(marked, driver, ""), nil, mark == "managed"},
			"a user adds it":                     {pod(queue, "", ""), pod(marked, "", ""), nil, true},
			"a user adds it to one that waits":   {pod(queue, "", gate), pod(marked, "", gate), nil, true},
			"a user changes it":                  {pod(marked, "", ""), pod(other, "", ""), nil, true},
			"a user drops it":                    {pod(marked, "", ""), pod(queue, "", ""), nil, true},
			"a user drops it of a driver's":      {pod(marked, driver, ""), pod(queue, driver, ""), nil, true},
			"a user drops it with its owner":     {pod(marked, job, ""), pod(queue, "", ""), nil, true},
			"a user drops it for another owner":  {pod(marked, "", ""), pod(queue, "apps/v1, kind: ReplicaSet", ""), nil, true},
			"an administrator drops it":          {pod(marked, "", ""), pod(queue, "", ""), []string{"break-glass jobs "}, false},
			"a user changes another label":       {pod(marked, "", ""), pod(marked+", a: b", "", ""), nil, false},
		} {
			j := newJudge(t, "muster-pods-marks")
			j.may = tt.may
			if got := j.refuses(tt.old, tt.now); got != tt.refused {
				t.Errorf("%s: %s: refused is %v", mark, name, got)
			}
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
		"an end of the cordon":         {node(true, cordon), node(false), false},
		"the taint of bookings for it": {node(true, cordon), node(false, booked), false},
		"another taint":                {node(false), node(true, cordon, "x"), true},
		"the taint of bookings, so that it evicts": {node(false), "{metadata: {name: n}, spec: {unschedulable: false, taints: [{key: theirs, effect: NoExecute}, " +
			"{key: muster.dev/booked, effect: NoExecute}]}}", true},
		"the taint of a cordon, so that it evicts": {node(false), "{metadata: {name: n}, spec: {unschedulable: true, taints: [{key: theirs, effect: NoExecute}, " +
			"{key: node.kubernetes.io/unschedulable, effect: NoExecute}]}}", true},
		"a taint of others of its key": {"{metadata: {name: n}, spec: {taints: [{key: muster.dev/booked, effect: PreferNoSchedule}]}}",
			"{metadata: {name: n}, spec: {}}", true},
		"a taint of others taken off": {node(true, cordon), "{metadata: {name: n}, spec: {unschedulable: true}}", true},
		"a booking, with what it brings": {"{metadata: {labels: {theirs: a}}, spec: {}}", `{metadata: {labels: {theirs: a, booked.muster.dev/r: ns,
			muster.node-restriction.kubernetes.io/held: "true"}, annotations: {booked.muster.dev/r: x,
			cluster-autoscaler.kubernetes.io/scale-down-disabled: "true", muster.dev/cordoned: booked}}, spec: {unschedulable: true}}`, false},
		"its end":                     {"{metadata: {labels: {booked.muster.dev/r: ns, theirs: a}}, spec: {}}", "{metadata: {labels: {theirs: a}}, spec: {}}", false},
		"another label":               {"{metadata: {}, spec: {}}", "{metadata: {labels: {theirs: a}}, spec: {}}", true},
		"another value of one":        {"{metadata: {labels: {theirs: a}}, spec: {}}", "{metadata: {labels: {theirs: b}}, spec: {}}", true},
		"a label of others taken off": {"{metadata: {labels: {theirs: a}}, spec: {}}", "{metadata: {}, spec: {}}", true},
		"another annotation":          {"{metadata: {}, spec: {}}", "{metadata: {annotations: {theirs: a}}, spec: {}}", true},
		"another machine":             {"{metadata: {}, spec: {providerID: a}}", "{metadata: {}, spec: {providerID: b}}", true},
		"another network":             {"{metadata: {}, spec: {podCIDRs: [a]}}", "{metadata: {}, spec: {podCIDRs: [b]}}", true},
		"a finalizer":                 {"{metadata: {}, spec: {}}", "{metadata: {finalizers: [a]}, spec: {}}", true},
		"an owner taken off":          {"{metadata: {ownerReferences: [{name: a}]}, spec: {}}", "{metadata: {}, spec: {}}", true},
	} {
		if got := j.refuses(tt.old, tt.now); got != tt.refused {
			t.Errorf("%s: refused is %v", name, got)
		}
	}
}

// TestWhatMusterMayChangeOfQueues: their finalizer, what it publishes on LocalQueues, and the end of temporary quotas.
func TestWhatMusterMayChangeOfQueues(t *testing.T) {
	j := newJudge(t, "muster-rights-queues")
	j.user = "system:serviceaccount:muster-system:muster"
	queue := func(metadata, spec string) string {
		return "{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: q, " + metadata + "}, spec: {" + spec + "}}"
	}
	local := func(metadata string) string {
		return strings.ReplaceAll(queue(metadata, ""), "ClusterQueue", "LocalQueue")
	}
	const in, both = "finalizers: [kueue.x-k8s.io/resource-in-use]", "finalizers: [mine, kueue.x-k8s.io/resource-in-use]"
	// The queue had 64 GPUs and 8 CPUs before they were set to 128 and 9 until a time.
	const gpus, cpu = "h100 nvidia.com/gpu 64 128 2026-11-30T18:00:00Z", "h100 cpu 8 9 2026-11-30T18:00:00Z"
	const key = "annotations: {muster.dev/temporary-quota: '"
	const temporary, temporaryCPU, two = key + gpus + "'}", key + cpu + "'}", key + gpus + ", " + cpu + "'}"
	quota := func(gpus, cpu string) string {
		return "resourceGroups: [{coveredResources: [nvidia.com/gpu, cpu], flavors: [{name: h100, resources: [" +
			"{name: nvidia.com/gpu, nominalQuota: " + gpus + "}, {name: cpu, nominalQuota: " + cpu + "}]}]}]"
	}
	for name, tt := range map[string]struct {
		old, now string
		refused  bool
	}{
		"the finalizer goes":               {queue(in, ""), queue("", ""), false},
		"beside another":                   {queue(both, ""), queue("finalizers: [mine]", ""), false},
		"another goes":                     {queue(both, ""), queue(in, ""), true},
		"one comes":                        {queue("", ""), queue("finalizers: [mine]", ""), true},
		"another quota":                    {queue(in, "cohortName: a"), queue("", "cohortName: b"), true},
		"an annotation that decides":       {queue(in, ""), queue(in+", annotations: {muster.dev/backfill: 'true'}", ""), true},
		"a label":                          {queue(in, ""), queue(in+", labels: {a: b}", ""), true},
		"its standing":                     {queue(in, ""), queue(in+", annotations: {muster.dev/standing: '{}'}", ""), true},
		"that of a LocalQueue":             {local(""), local("annotations: {muster.dev/standing: '{}'}"), false},
		"another annotation of one":        {local(""), local("annotations: {muster.dev/standing: '{}', a: b}"), true},
		"an owner, with which it would go": {queue(in, ""), queue(in+", ownerReferences: [{uid: a}]", ""), true},
		"a temporary quota ends":           {queue(temporary, quota("128", "9")), queue("", quota("64", "9")), false},
		"and the annotations with it":      {queue(temporary, quota("128", "9")), queue("annotations: {}", quota("64", "9")), false},
		"and another stays":                {queue(two, quota("128", "9")), queue(temporaryCPU, quota("64", "9")), false},
		"both end":                         {queue(two, quota("128", "9")), queue("", quota("64", "8")), false},
		"an edited one is dropped":         {queue(temporary, quota("96", "9")), queue("", quota("96", "9")), false},
		"one was edited, and is restored":  {queue(temporary, quota("96", "9")), queue("", quota("64", "9")), true},
		"another value than the former":    {queue(temporary, quota("128", "9")), queue("", quota("65", "9")), true},
		"that of another resource":         {queue(temporary, quota("128", "9")), queue("", quota("64", "64")), true},
		"the one that was set is set":      {queue(temporary, quota("64", "9")), queue("", quota("128", "9")), true},
		"no entry":                         {queue("", quota("128", "9")), queue("", quota("64", "9")), true},
		"an entry comes":                   {queue("", quota("128", "9")), queue(temporary, quota("128", "9")), true},
		"an entry is another":              {queue(temporary, quota("128", "9")), queue(temporaryCPU, quota("128", "9")), true},
		"a limit with it":                  {queue(temporary, quota("128", "9")), queue("", quota("64, borrowingLimit: 1", "9")), true},
		"a flavor with it":                 {queue(temporary, quota("128", "9")), queue("", strings.Replace(quota("64", "9"), "name: h100", "name: h200", 1)), true},
		"a resource that goes with it":     {queue(temporary, quota("128", "9")), queue("", quota("64", "9}, {name: memory, nominalQuota: 1")), true},
		"the cohort with it":               {queue(temporary, quota("128", "9")), queue("", "cohortName: b, "+quota("64", "9")), true},
		"the stop policy with it":          {queue(temporary, "stopPolicy: Hold, "+quota("128", "9")), queue("", quota("64", "9")), true},
		"an annotation with it":            {queue(temporary, quota("128", "9")), queue("annotations: {muster.dev/backfill: 'true'}", quota("64", "9")), true},
		"a label with it":                  {queue(temporary, quota("128", "9")), queue("labels: {a: b}", quota("64", "9")), true},
		"all groups with it":               {queue(temporary, quota("128", "9")), queue("", ""), true},
	} {
		if got := j.refuses(tt.old, tt.now); got != tt.refused {
			t.Errorf("%s: refused is %v", name, got)
		}
	}
}

// TestWhatCannotBeQueuedIsRefused at its creation, or when it comes to a queue. What was there before may change.
func TestWhatCannotBeQueuedIsRefused(t *testing.T) {
	j := newJudge(t, "muster-jobs-refused")
	rayJob := func(queue, spec string) string {
		return "{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: '" + queue + "'}}, spec: {" +
			spec + "}}"
	}
	const good, bad = "shutdownAfterJobFinishes: true, rayClusterSpec: {}", "rayClusterSpec: {}"
	for name, tt := range map[string]struct {
		old, now string
		refused  bool
	}{
		"it can be queued":           {"null", rayJob("q", good), false},
		"it cannot":                  {"null", rayJob("q", bad), true},
		"it is in no queue":          {"null", rayJob("", bad), false},
		"it comes to a queue":        {rayJob("", bad), rayJob("q", bad), true},
		"it was there before":        {rayJob("q", bad), rayJob("q", bad+", ttlSecondsAfterFinished: 5"), false},
		"it becomes bad":             {rayJob("q", good), rayJob("q", bad), true},
		"it has no pods":             {"null", rayJob("q", "shutdownAfterJobFinishes: true"), true},
		"it sends its job elsewhere": {"null", rayJob("q", good+", clusterSelector: {ray.io/cluster: c}"), true},
		"it is part of another": {"null", strings.Replace(rayJob("q", bad), "{name: j",
			"{name: j, ownerReferences: [{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, uid: x, controller: true}]", 1), false},
		"another kind": {"null", "{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: q}}, " +
			"spec: {sparkConf: {spark.dynamicAllocation.enabled: 'True'}}}", true},
		"another kind that can": {"null", "{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: q}}, " +
			"spec: {sparkConf: {a: b}}}", false},
	} {
		if got := j.refuses(tt.old, tt.now); got != tt.refused {
			t.Errorf("%s: refused is %v", name, got)
		}
	}
}

// TestContradictoryTopologyAnnotationsAreRefused at a job's creation by the rules by which its Workload would be refused.
func TestContradictoryTopologyAnnotationsAreRefused(t *testing.T) {
	j := newJudge(t, "muster-jobs-refused")
	const prefix = "kueue.x-k8s.io/"
	values := map[string][]string{
		"podset-required-topology":                   {"rack"},
		"podset-preferred-topology":                  {"rack"},
		"podset-unconstrained-topology":              {"true", "F", "perhaps"},
		"podset-slice-required-topology":             {"rack"},
		"podset-slice-size":                          {"2", "+04", "0", "-2", "two"},
		"podset-slice-required-topology-constraints": {`[{"topology": "rack", "size": 2}]`},
		"podset-group-name":                          {"group", "7", "-7"},
		"pod-index-offset":                           {"1"},
	}
	keys, random := slices.Sorted(maps.Keys(values)), rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 1000 {
		annotations := map[string]string{}
		for range random.IntN(4) {
			key := keys[random.IntN(len(keys))]
			annotations[prefix+key] = values[key][random.IntN(len(values[key]))]
		}
		template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
		podSets := []kueue.PodSet{{Name: "main", Count: 4, Template: template}}
		refusals := slices.DeleteFunc(topology.Complete(podSets), func(r string) bool { return strings.Contains(r, "exactly 2 pod sets") })
		want := len(refusals) > 0
		text, err := json.Marshal(annotations)
		if err != nil {
			t.Fatal(err)
		}
		job := "{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: q}}, spec: {template: " +
			"{metadata: {annotations: " + string(text) + "}, spec: {}}}}"
		if got := j.refuses("null", job); got != want {
			t.Errorf("%s: refused is %v, want %v", text, got, want)
		}
		if want {
			refused++
		}
	}
	if refused < 300 || refused > 700 {
		t.Errorf("%d of 1000 were refused, so one side was hardly tried", refused)
	}
	const bad = "{metadata: {annotations: {kueue.x-k8s.io/podset-slice-size: '2'}}, spec: {}}"
	jobSet := func(template, more string) string {
		return "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: q}}, spec: {" +
			more + "replicatedJobs: [{name: a, template: {spec: {template: {spec: {}}}}}, " +
			"{name: b, template: {spec: {template: " + template + "}}}]}}"
	}
	for name, tt := range map[string]struct {
		old, now string
		refused  bool
	}{
		"a second template":       {"null", jobSet(bad, ""), true},
		"it was there before":     {jobSet(bad, ""), jobSet(bad, "suspend: true, "), false},
		"it becomes bad":          {jobSet("{spec: {}}", ""), jobSet(bad, ""), true},
		"templates that are fine": {"null", jobSet("{spec: {}}", ""), false},
	} {
		if got := j.refuses(tt.old, tt.now); got != tt.refused {
			t.Errorf("%s: refused is %v", name, got)
		}
	}
}

// TestWhatMusterMayChangeOfJobs: whether they run, where, and what it writes on them. What their pods run stays their user's.
func TestWhatMusterMayChangeOfJobs(t *testing.T) {
	j := newJudge(t, "muster-rights-jobs")
	j.user = "system:serviceaccount:muster-system:muster"
	job := func(metadata, image, spec string) string {
		return "{apiVersion: batch/v1, kind: Job, metadata: {name: j, " + metadata + "}, spec: {" + spec +
			"suspend: true, template: {spec: {containers: [{image: " + image + "}]}}}}"
	}
	now := job("labels: {a: b}", "mine", "")
	for name, tt := range map[string]struct {
		now     string
		refused bool
	}{
		"it starts": {strings.Replace(job("labels: {a: b}, annotations: {muster.dev/started: x, kueue.x-k8s.io/workload: w}", "mine", "parallelism: 2, "), "spec: {containers",
			"spec: {nodeSelector: {pool: spot}, containers", 1), false},
		"another image":           {job("labels: {a: b}", "other", ""), true},
		"another account":         {strings.Replace(now, "spec: {containers", "spec: {serviceAccountName: admin, containers", 1), true},
		"a volume":                {strings.Replace(now, "spec: {containers", "spec: {volumes: [{hostPath: {path: /}}], containers", 1), true},
		"the rights of the host":  {strings.Replace(now, "spec: {containers", "spec: {hostPID: true, containers", 1), true},
		"a label of others":       {job("labels: {a: c}", "mine", ""), true},
		"an annotation of others": {job("labels: {a: b}, annotations: {x: y}", "mine", ""), true},
		"a finalizer":             {job("labels: {a: b}, finalizers: [x]", "mine", ""), true},
		"an owner":                {job("labels: {a: b}, ownerReferences: [{uid: x}]", "mine", ""), true},
	} {
		if got := j.refuses(now, tt.now); got != tt.refused {
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
	runs := func(labels string) string {
		return "{metadata: {name: p, labels: {" + labels + "}}, spec: {containers: []}}"
	}
	const (
		elastic, admission = "kueue.x-k8s.io/elastic-job", "kueue.x-k8s.io/admission"
		queued             = "labels: {kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/managed: 'true'}"
		marked             = "labels: {kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/managed: 'true', kueue.x-k8s.io/job-uid: u}"
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
		"the labels of a start on a gated pod":            {pod(queued, elastic, ""), pod(marked, elastic, ""), true},
		"the labels of a start on a pod that runs":        {runs("a: b"), runs("a: b, kueue.x-k8s.io/job-uid: u, kueue.x-k8s.io/podset: main"), false},
		"another label on a pod that runs":                {runs("a: b"), runs("a: b, c: d"), true},
		"another value of a label of a start":             {runs("kueue.x-k8s.io/job-uid: u"), runs("kueue.x-k8s.io/job-uid: v"), true},
		"a label less":                                    {runs("a: b"), runs("kueue.x-k8s.io/job-uid: u"), true},
		"the labels of a start with an annotation": {runs("a: b"),
			strings.Replace(runs("a: b, kueue.x-k8s.io/job-uid: u"), "name: p", "name: p, annotations: {a: b}", 1), true},
	} {
		if got := j.refuses(tt.old, tt.now); got != tt.refused {
			t.Errorf("%s: refused is %v", name, got)
		}
	}
}

// TestPodsGoToTheirBookingAsTheirGateGoes, and not before: those in a queue or of an elastic job get the annotation only then.
func TestPodsGoToTheirBookingAsTheirGateGoes(t *testing.T) {
	j := newJudge(t, "muster-consuming-pods")
	pod := func(annotations, gates string) string {
		return "{metadata: {annotations: {" + annotations + "}}, spec: {schedulingGates: [" + gates + "]}}"
	}
	const (
		elastic  = "{name: kueue.x-k8s.io/elastic-job}, "
		queued   = "{name: kueue.x-k8s.io/admission}, "
		other    = "{name: kueue.x-k8s.io/topology}"
		consumes = "autoscaling.x-k8s.io/consume-provisioning-request: gang"
	)
	for name, tt := range map[string]struct {
		old, now string
		booked   bool
	}{
		"a pod that is created":             {"null", pod(consumes, ""), true},
		"one of an elastic job":             {pod("", elastic), pod(consumes, ""), true},
		"one in a queue":                    {pod("", queued), pod(consumes, ""), true},
		"one that has its place to wait":    {pod("", queued+other), pod(consumes, other), true},
		"one that is sent to its place":     {pod(consumes, other), pod(consumes, ""), false},
		"one that keeps its gate":           {pod("", queued), pod(consumes, queued), false},
		"one that never had any":            {"{metadata: {}, spec: {}}", "{metadata: {annotations: {" + consumes + "}}, spec: {}}", false},
		"one that is to consume no request": {pod("", queued), pod("", ""), false},
	} {
		if got := j.looksAt(tt.old, tt.now); got != tt.booked {
			t.Errorf("%s: it is sent to its booking: %v", name, got)
		}
	}
}

// TestWhatAStartedJobIsMadeOfStaysAsItWasAdmitted, but for its controllers: its pods have no other gate. Ray's autoscaler
// may change how many workers a cluster has, if they are made with theirs. Of what is held, before the start of what it is part of,
// it is so in namespaces with queues, whose objects may start any time.
func TestWhatAStartedJobIsMadeOfStaysAsItWasAdmitted(t *testing.T) {
	const podSet = "kueue.x-k8s.io/podset: gpu"
	cluster := func(owner, label, gate string, groups ...string) string {
		out := "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: c, ownerReferences: [{apiVersion: " + owner +
			", name: j, uid: u, controller: true}]}, spec: {headGroupSpec: {template: {metadata: {labels: {" + label +
			"}}, spec: {}}}, workerGroupSpecs: ["
		for _, g := range groups {
			out += "{" + g + ", template: {metadata: {labels: {" + label + "}}, spec: {schedulingGates: [" + gate + "]}}}, "
		}
		return out + "]}}"
	}
	const rayJob, elastic = "ray.io/v1, kind: RayJob", "{name: kueue.x-k8s.io/elastic-job}"
	two, four := "groupName: gpu, replicas: 2", "groupName: gpu, replicas: 4"
	job := func(owner, label, spec string) string {
		return "{apiVersion: batch/v1, kind: Job, metadata: {name: c, ownerReferences: [{apiVersion: " + owner +
			", name: j, uid: u, controller: true}]}, spec: {" + spec + ", template: {metadata: {labels: {" + label + "}}}}}"
	}
	const jobSet = "jobset.x-k8s.io/v1alpha2, kind: JobSet"
	jobs := func(label, replicas string) string {
		return "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: c, ownerReferences: [{apiVersion: " +
			"trainer.kubeflow.org/v1alpha1, kind: TrainJob, name: c, uid: u, controller: true}]}, spec: {replicatedJobs: [{name: node, replicas: " +
			replicas +
			", template: {spec: {template: {metadata: {labels: {" + label + "}}}}}}]}}"
	}
	held := func(jobSet string) string { return strings.Replace(jobSet, "spec: {", "spec: {suspend: true, ", 1) }
	appWrapper := "workload.codeflare.dev/v1beta2, kind: AppWrapper"
	torch := func(workers string) string {
		return "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: c, ownerReferences: [{apiVersion: " + appWrapper +
			", name: j, uid: u, controller: true}]}, spec: {pytorchReplicaSpecs: {Worker: {replicas: " + workers +
			", template: {metadata: {labels: {" + podSet + "}}}}}}}"
	}
	isAlone := func(job string) string {
		return strings.Replace(job, "metadata: {name: c", "metadata: {name: c, annotations: {muster.dev/alone: u}", 1)
	}
	inQueue := func(job string) string {
		return strings.Replace(job, "metadata: {name: c", "metadata: {name: c, labels: {kueue.x-k8s.io/queue-name: q}", 1)
	}
	for name, tt := range map[string]struct {
		old, now string
		may      []string
		refused  bool
	}{
		"more workers of a RayJob": {cluster(rayJob, podSet, "", two), cluster(rayJob, podSet, "", four), nil, true},
		"more workers, by KubeRay": {cluster(rayJob, podSet, "", two), cluster(rayJob, podSet, "", four), []string{"update rayjobs status"}, false},
		"more workers, by an administrator": {cluster(rayJob, podSet, "", two), cluster(rayJob, podSet, "", four), []string{"break-glass jobs "},
			false},
		"more workers behind their gate, by Ray's autoscaler": {cluster(rayJob, podSet, elastic, two), cluster(rayJob, podSet, elastic, four), nil,
			false},
		"fewer workers of one that is not elastic": {cluster(rayJob, podSet, "", four), cluster(rayJob, podSet, "", two), nil, true},
		"their gate goes":                          {cluster(rayJob, podSet, elastic, two), cluster(rayJob, podSet, "", two), nil, true},
		"another gated group":                      {cluster(rayJob, podSet, elastic, two), cluster(rayJob, podSet, elastic, two, "groupName: more, replicas: 1"), nil, true},
		"other pods behind their gate":             {cluster(rayJob, podSet, elastic, two), cluster(rayJob, podSet+", a: b", elastic, two), nil, true},
		"another annotation": {cluster(rayJob, podSet, "", two),
			strings.Replace(cluster(rayJob, podSet, "", two), "name: c", "name: c, annotations: {a: b}", 1), nil, false},
		"more workers of a RayService":              {cluster("ray.io/v1, kind: RayService", podSet, "", two), cluster("ray.io/v1, kind: RayService", podSet, "", four), nil, true},
		"more workers of a RayJob in no queue":      {cluster(rayJob, "", "", two), cluster(rayJob, "", "", four), nil, false},
		"more workers of what queues by itself":     {cluster("v1, kind: ConfigMap", podSet, "", two), cluster("v1, kind: ConfigMap", podSet, "", four), nil, false},
		"more pods of a Job of a JobSet":            {job(jobSet, podSet, "parallelism: 2"), job(jobSet, podSet, "parallelism: 3"), nil, true},
		"more pods of a Job, by JobSet":             {job(jobSet, podSet, "parallelism: 2"), job(jobSet, podSet, "parallelism: 3"), []string{"update jobsets status"}, false},
		"more pods of a Job that leaves its JobSet": {job(jobSet, podSet, "parallelism: 2"), job("v1, kind: ConfigMap", podSet, "parallelism: 3"), nil, true},
		"a Job leaves its JobSet":                   {job(jobSet, podSet, "suspend: false"), job("v1, kind: ConfigMap", podSet, "suspend: false"), nil, true},
		"a Job leaves its JobSet, by JobSet":        {job(jobSet, podSet, "suspend: false"), job("v1, kind: ConfigMap", podSet, "suspend: false"), []string{"update jobsets status"}, false},
		"more pods of a Job that says it is alone":  {job(jobSet, podSet, "parallelism: 2"), isAlone(job(jobSet, podSet, "parallelism: 3")), nil, true},
		"a Job says that it is alone":               {job(jobSet, podSet, "suspend: false"), isAlone(job(jobSet, podSet, "suspend: false")), nil, true},
		"more pods of a Job that was born saying so": {isAlone(job(jobSet, podSet, "parallelism: 2")), isAlone(job(jobSet, podSet, "parallelism: 3")), nil,
			true},
		"more pods of one that is alone in a queue": {isAlone(inQueue(job(jobSet, podSet, "parallelism: 2"))), isAlone(inQueue(job(jobSet, podSet, "parallelism: 3"))),
			nil, false},
		"a Job of a JobSet is suspended":          {job(jobSet, podSet, "suspend: false"), job(jobSet, podSet, "suspend: true"), nil, false},
		"more pods of a Job of one in no queue":   {job(jobSet, "", "parallelism: 2"), job(jobSet, "", "parallelism: 3"), nil, false},
		"more Jobs of the JobSet of a TrainJob":   {jobs(podSet, "1"), jobs(podSet, "2"), nil, true},
		"more workers of a PyTorchJob in another": {torch("1"), torch("2"), nil, true},
		"the workers of a PyTorchJob in another":  {torch("2"), torch("2"), nil, false},
	} {
		j := newJudge(t, "muster-jobs-parts")
		j.may = tt.may
		if got := j.refuses(tt.old, tt.now); got != tt.refused {
			t.Errorf("%s: refused is %v", name, got)
		}
	}
	for name, tt := range map[string]struct {
		old, now string
		may      []string
		refused  bool
	}{
		"more pods of a held Job":                  {job(jobSet, "", "suspend: true, parallelism: 2"), job(jobSet, "", "suspend: true, parallelism: 3"), nil, true},
		"other pods of a held Job":                 {job(jobSet, "", "suspend: true"), job(jobSet, "a: b", "suspend: true"), nil, true},
		"a held Job is started":                    {job(jobSet, "", "suspend: true"), job(jobSet, "", "suspend: false"), nil, true},
		"a held Job that leaves its JobSet starts": {job(jobSet, "", "suspend: true"), job("v1, kind: ConfigMap", "", "suspend: false"), nil, true},
		"a held Job leaves its JobSet":             {job(jobSet, "", "suspend: true"), job("v1, kind: ConfigMap", "", "suspend: true"), nil, true},
		"a held Job says that it is alone":         {job(jobSet, "", "suspend: true"), isAlone(job(jobSet, "", "suspend: true")), nil, true},
		"it is by the controller of JobSets":       {job(jobSet, "", "suspend: true"), job(jobSet, podSet, "suspend: false"), []string{"update jobsets status"}, false},
		"it is by an administrator":                {job(jobSet, "", "suspend: true"), job(jobSet, "", "suspend: false"), []string{"break-glass jobs "}, false},
		"a held launcher is started":               {job("kubeflow.org/v2beta1, kind: MPIJob", "", "suspend: true"), job("kubeflow.org/v2beta1, kind: MPIJob", "", "completions: 1"), nil, true},
		"another annotation of a held Job":         {job(jobSet, "", "suspend: true"), strings.Replace(job(jobSet, "", "suspend: true"), "name: c", "name: c, annotations: {a: b}", 1), nil, false},
		"more pods of a Job that runs":             {job(jobSet, "", "suspend: false, parallelism: 2"), job(jobSet, "", "suspend: false, parallelism: 3"), nil, false},
		"more pods of a held Job of a CronJob":     {job("batch/v1, kind: CronJob", "", "suspend: true, parallelism: 2"), job("batch/v1, kind: CronJob", "", "suspend: true, parallelism: 3"), nil, false},
		"more Jobs of the held JobSet of another":  {held(jobs("", "1")), held(jobs("", "2")), nil, true},
		"the held JobSet of a TrainJob is started": {held(jobs("", "1")), jobs("", "1"), nil, true},
	} {
		j := newJudge(t, "muster-jobs-parts-held")
		j.may = tt.may
		if got := j.refuses(tt.old, tt.now); got != tt.refused {
			t.Errorf("%s: refused is %v", name, got)
		}
	}
	j := newJudge(t, "muster-jobs-parts")
	j.user = "system:serviceaccount:muster-system:muster"
	if j.refuses(cluster(rayJob, podSet, "", two), cluster(rayJob, podSet, "", four)) {
		t.Error("Muster is refused")
	}
}

// TestAStartedJobGoesWithItsPods, which would run on by no quota.
func TestAStartedJobGoesWithItsPods(t *testing.T) {
	const started = "{apiVersion: batch/v1, kind: Job, metadata: {name: c}, " +
		"spec: {template: {metadata: {labels: {kueue.x-k8s.io/podset: main}}}}}"
	with := func(metadata, more string) string {
		return strings.Replace(strings.Replace(started, "name: c", "name: c, "+metadata, 1), "spec: {", more+"spec: {", 1)
	}
	for name, tt := range map[string]struct {
		job, options string
		may          []string
		refused      bool
	}{
		"without them":                   {started, "{propagationPolicy: Orphan}", nil, true},
		"without them, as of old":        {started, "{orphanDependents: true}", nil, true},
		"without them, by its finalizer": {with("finalizers: [orphan]", ""), "{}", nil, true},
		"with them, in spite of it":      {with("finalizers: [orphan]", ""), "{propagationPolicy: Background}", nil, false},
		"with them":                      {started, "{propagationPolicy: Foreground}", nil, false},
		"as by default":                  {started, "{}", nil, false},
		"by an administrator":            {started, "{propagationPolicy: Orphan}", []string{"break-glass jobs "}, false},
		"once it has ended": {with("", "status: {conditions: [{type: Complete, status: 'True'}]}, "), "{propagationPolicy: Orphan}", nil,
			false},
		"that no queue has started": {strings.Replace(started, "kueue.x-k8s.io/podset: main", "a: b", 1), "{propagationPolicy: Orphan}", nil, false},
	} {
		j := newJudge(t, "muster-jobs-orphans")
		j.may, j.options = tt.may, tt.options
		if got := j.refuses(tt.job, "null"); got != tt.refused {
			t.Errorf("%s: refused is %v", name, got)
		}
	}
}

// TestALeaderWorkerSetGoesWithItsPods, as a started job does.
func TestALeaderWorkerSetGoesWithItsPods(t *testing.T) {
	const set = "{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: c}, spec: {}}"
	j := newJudge(t, "muster-serving-orphans")
	for options, refused := range map[string]bool{"{propagationPolicy: Orphan}": true, "{}": false, "{propagationPolicy: Foreground}": false} {
		if j.options = options; j.refuses(set, "null") != refused {
			t.Errorf("with %s: refused is %v", options, !refused)
		}
	}
}

// TestPodsStayWithTheirJob as long as they run by its quota.
func TestPodsStayWithTheirJob(t *testing.T) {
	pod := func(owner, label, value string) string {
		return "{metadata: {name: p, labels: {kueue.x-k8s.io/podset: main, batch.kubernetes.io/controller-uid: u, example.com/mine: a, " +
			label + ": " + value + "}, ownerReferences: [{apiVersion: " + owner + ", name: c, uid: u, controller: true}]}, spec: {}}"
	}
	const job = "batch/v1, kind: Job"
	now := pod(job, "more", "x")
	for name, tt := range map[string]struct {
		old, now string
		may      []string
		refused  bool
	}{
		"without the label of its Job":    {now, strings.Replace(now, "batch.kubernetes.io/controller-uid: u, ", "", 1), nil, true},
		"with that of another":            {now, strings.Replace(now, "controller-uid: u", "controller-uid: v", 1), nil, true},
		"without that of its podSet":      {now, strings.Replace(now, "kueue.x-k8s.io/podset: main, ", "", 1), nil, true},
		"without any":                     {now, "{metadata: {name: p}, spec: {}}", nil, true},
		"without its owner":               {now, strings.Replace(now, "ownerReferences", "others", 1), nil, true},
		"with another owner":              {now, pod("v1, kind: ConfigMap", "more", "x"), nil, true},
		"by the controller of Jobs":       {now, strings.Replace(now, "ownerReferences", "others", 1), []string{"update jobs status"}, false},
		"by an administrator":             {now, strings.Replace(now, "ownerReferences", "others", 1), []string{"break-glass jobs "}, false},
		"with another label of its user":  {now, pod(job, "more", "y"), nil, false},
		"with another of a domain":        {now, strings.Replace(now, "mine: a", "mine: b", 1), nil, false},
		"without a finalizer":             {strings.Replace(now, "name: p", "name: p, finalizers: [batch.kubernetes.io/job-tracking]", 1), now, nil, false},
		"of a Deployment":                 {pod("apps/v1, kind: ReplicaSet", "app", "x"), pod("apps/v1, kind: ReplicaSet", "app", "y"), nil, false},
		"that nothing controls":           {"{metadata: {name: p, labels: {kueue.x-k8s.io/podset: main, a: b}}, spec: {}}", "{metadata: {name: p, labels: {kueue.x-k8s.io/podset: main}}, spec: {}}", nil, false},
		"that gets the label of a podSet": {"{metadata: {name: p}, spec: {}}", "{metadata: {name: p, labels: {kueue.x-k8s.io/podset: main}}, spec: {}}", nil, false},
	} {
		j := newJudge(t, "muster-jobs-gates")
		j.may = tt.may
		if got := j.refuses(tt.old, tt.now); got != tt.refused {
			t.Errorf("%s: refused is %v", name, got)
		}
	}
}

// TestPodsThatHaveStartedAskForNoMore than their quota is for, as they are resized where they run.
func TestPodsThatHaveStartedAskForNoMore(t *testing.T) {
	pod := func(whole, container, sidecar string) string {
		return "{metadata: {name: p}, spec: {" + whole + "containers: [{name: a, resources: {" + container + "}}], " +
			"initContainers: [{name: b, resources: {" + sidecar + "}}]}}"
	}
	now := pod("", "requests: {cpu: '1', memory: 1Gi}", "requests: {cpu: 100m}")
	for name, tt := range map[string]struct {
		now     string
		may     []string
		refused bool
	}{
		"more cpu":               {pod("", "requests: {cpu: 1001m, memory: 1Gi}", "requests: {cpu: 100m}"), nil, true},
		"more of a sidecar":      {pod("", "requests: {cpu: '1', memory: 1Gi}", "requests: {cpu: '1'}"), nil, true},
		"more of the whole":      {pod("resources: {requests: {cpu: '8'}}, ", "requests: {cpu: '1', memory: 1Gi}", "requests: {cpu: 100m}"), nil, true},
		"one more resource":      {pod("", "requests: {cpu: '1', memory: 1Gi}", "requests: {cpu: 100m, memory: 1Gi}"), nil, true},
		"more, by an admin":      {pod("", "requests: {cpu: '8', memory: 1Gi}", "requests: {cpu: 100m}"), []string{"break-glass jobs "}, false},
		"the same, written else": {pod("", "requests: {cpu: 1000m, memory: 1024Mi}", "requests: {cpu: 0.1}"), nil, false},
		"less":                   {pod("", "requests: {cpu: 500m, memory: 1Gi}", ""), nil, false},
		"higher limits":          {pod("", "requests: {cpu: '1', memory: 1Gi}, limits: {cpu: '8'}", "requests: {cpu: 100m}"), nil, false},
	} {
		j := newJudge(t, "muster-pods-resize")
		j.may = tt.may
		if got := j.refuses(now, tt.now); got != tt.refused {
			t.Errorf("%s: refused is %v", name, got)
		}
	}
}

// TestPodsThatCountAreBoundToTheirSize: the policy binds pods that a start has labelled, those of adopted jobs, and those that queue by
// themselves.
func TestPodsThatCountAreBoundToTheirSize(t *testing.T) {
	for label, want := range map[string]bool{
		"kueue.x-k8s.io/podset": true, "kueue.x-k8s.io/job-uid": true, "kueue.x-k8s.io/managed": true, "app": false,
	} {
		if got := newJudge(t, "muster-pods-resize").binds(map[string]string{label: "x"}); got != want {
			t.Errorf("a pod with the label %s is bound: %v", label, got)
		}
	}
}

// binds reports whether the constraints of a policy and one of its bindings select an object by its labels.
func (j *judge) binds(of map[string]string) bool {
	j.Helper()
	selects := func(match *admissionv1.MatchResources) bool {
		if match == nil || match.ObjectSelector == nil {
			return true
		}
		selector, err := metav1.LabelSelectorAsSelector(match.ObjectSelector)
		if err != nil {
			j.Fatal(err)
		}
		return selector.Matches(labels.Set(of))
	}
	objects, err := Manifests(Halves...)
	if err != nil {
		j.Fatal(err)
	}
	return selects(j.MatchConstraints) && slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
		var binding admissionv1.ValidatingAdmissionPolicyBinding
		if o.GetKind() != "ValidatingAdmissionPolicyBinding" {
			return false
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding); err != nil {
			j.Fatal(err)
		}
		return binding.Spec.PolicyName == j.name && selects(binding.Spec.MatchResources)
	})
}

// TestAServiceThatChangesQueuesAgain: an update that changes the pods of a running RayService or RayCluster also suspends it, so
// that Ray's operator creates no new pods. A change of the fields that a start adds does not.
func TestAServiceThatChangesQueuesAgain(t *testing.T) {
	suspends, start := newJudge(t, "muster-jobs-suspend"), newJudge(t, "muster-jobs-start")
	const (
		cluster = `suspend: false, headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: h, image: i}]}}}, workerGroupSpecs: [
			{groupName: w, replicas: 2, template: {metadata: {labels: {kueue.x-k8s.io/podset: w}}, spec: {nodeSelector: {pool: a},
			tolerations: [{key: a}], containers: [{name: w, image: i}]}}}]`
		rayCluster = `{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: r, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {}},
			spec: {` + cluster + `}}`
		rayService = `{apiVersion: ray.io/v1, kind: RayService, metadata: {name: r, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {}},
			spec: {serveConfigV2: a, rayClusterConfig: {rayVersion: "2", ` + cluster + `}}}`
		rayJob = `{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: r, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {}},
			spec: {suspend: false, rayClusterSpec: {` + cluster + `}}}`
		elastic  = "annotations: {kueue.x-k8s.io/elastic-job: \"true\"}"
		gated    = "spec: {schedulingGates: [{name: kueue.x-k8s.io/elastic-job}], nodeSelector"
		excepted = "annotations: {muster.dev/break-glass: x}"

		elsewhere = "suspend: false, managedBy: kueue.x-k8s.io/multikueue"
	)
	become := func(object string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(object) }
	for name, c := range map[string]struct {
		old, object string
		want        string
	}{
		"the image of a worker": {rayCluster, become(rayCluster, "name: w, image: i", "name: w, image: j"), "suspended"},
		"the image of the head": {rayCluster, become(rayCluster, "name: h, image: i", "name: h, image: j"), "suspended"},
		"replicas":              {rayCluster, become(rayCluster, "replicas: 2", "replicas: 3"), "suspended"},
		"a group more": {rayCluster, become(rayCluster, "workerGroupSpecs: [", "workerGroupSpecs: [{groupName: x, replicas: 1},"),
			"suspended"},
		"without what a start adds":        {rayCluster, become(rayCluster, "nodeSelector: {pool: a},", ""), "refused"},
		"another image, and without that":  {rayCluster, become(rayCluster, "nodeSelector: {pool: a},", "", "image: i", "image: j"), "suspended"},
		"its owner's annotations":          {rayCluster, become(rayCluster, "annotations: {}", "annotations: {a: b}"), "taken"},
		"no change":                        {rayCluster, rayCluster, "taken"},
		"the image of a service":           {rayService, become(rayService, "name: w, image: i", "name: w, image: j"), "suspended"},
		"the version of a service":         {rayService, become(rayService, `rayVersion: "2"`, `rayVersion: "3"`), "suspended"},
		"what a service serves":            {rayService, become(rayService, "serveConfigV2: a", "serveConfigV2: b"), "taken"},
		"a service without what was added": {rayService, become(rayService, "tolerations: [{key: a}],", ""), "refused"},
		"a RayJob":                         {rayJob, become(rayJob, "name: w, image: i", "name: w, image: j"), "refused"},
		"replicas of an elastic cluster": {become(rayCluster, "annotations: {}", elastic, "spec: {nodeSelector", gated),
			become(rayCluster, "annotations: {}", elastic, "replicas: 2", "replicas: 3", "spec: {nodeSelector", gated), "taken"},
		"the image of an elastic cluster": {become(rayCluster, "annotations: {}", elastic),
			become(rayCluster, "annotations: {}", elastic, "name: w, image: i", "name: w, image: j"), "suspended"},
		"one that an administrator lets run": {become(rayCluster, "annotations: {}", excepted),
			become(rayCluster, "annotations: {}", excepted, "name: w, image: i", "name: w, image: j"), "refused"},
		"one that runs elsewhere": {become(rayCluster, "suspend: false", elsewhere),
			become(rayCluster, "suspend: false", elsewhere, "name: w, image: i", "name: w, image: j"), "refused"},
		"one in no queue": {become(rayCluster, "queue-name: main", "queue-name: \"\""),
			become(rayCluster, "queue-name: main", "queue-name: \"\"", "name: w, image: i", "name: w, image: j"), "taken"},
	} {
		t.Run(name, func(t *testing.T) {
			suspends.T, start.T = t, t
			got := "taken"
			object := c.object
			if suspends.looksAt(c.old, c.object) {
				got = "suspended"
				object = become(c.object, "suspend: false", "suspend: true")
			}
			if start.refuses(c.old, object) {
				got = "refused"
			}
			if got != c.want {
				t.Errorf("it is %s, want %s", got, c.want)
			}
		})
	}
}

// TestUsersAreThoseThatCreate: a job has the name of the user that creates it or none, and keeps it. Parts of a job have what their
// controller copies.
func TestUsersAreThoseThatCreate(t *testing.T) {
	object := func(kind, by, more string) string {
		if by != "" {
			more += ", annotations: {muster.dev/submitted-by: '" + by + "'}"
		}
		return "{apiVersion: " + kind + ", metadata: {name: j" + more + "}, spec: {}}"
	}
	const job, pod, alice, muster = "batch/v1, kind: Job", "v1, kind: Pod", "alice", "system:serviceaccount:muster-system:muster"
	owned := func(kind string) string {
		return ", ownerReferences: [{" + "apiVersion: " + kind + ", uid: u, controller: true}]"
	}
	for name, tt := range map[string]struct {
		user, old, now string
		refused        bool
	}{
		"a job without":               {alice, "null", object(job, "", ""), false},
		"a job with the own name":     {alice, "null", object(job, alice, ""), false},
		"a job with another name":     {alice, "null", object(job, "bob", ""), true},
		"a job with an empty name":    {alice, "null", "{apiVersion: batch/v1, kind: Job, metadata: {annotations: {muster.dev/submitted-by: ''}}}", true},
		"a CronJob's, with a name":    {"cronjob-controller", "null", object(job, alice, owned("batch/v1, kind: CronJob")), true},
		"a part, with that of all":    {"operator", "null", object("ray.io/v1, kind: RayCluster", alice, owned("ray.io/v1, kind: RayJob")), false},
		"a pod with another name":     {alice, "null", object(pod, "bob", ""), true},
		"a pod of a template":         {"job-controller", "null", object(pod, "bob", owned("batch/v1, kind: Job")), false},
		"a StatefulSet, another name": {alice, "null", object("apps/v1, kind: StatefulSet", "bob", ""), true},
		"a change of it":              {alice, object(job, "bob", ""), object(job, alice, ""), true},
		"a name that comes later":     {alice, object(job, "", ""), object(job, alice, ""), true},
		"a change of all else":        {alice, object(job, "bob", ""), object(job, "bob", ", labels: {a: b}"), false},
		"one that is taken off":       {alice, object(job, "bob", ""), object(job, "", ""), false},
		"a change by Muster":          {muster, object(job, "bob", ""), object(job, alice, ""), false},
	} {
		j := newJudge(t, "muster-jobs-users")
		j.user = tt.user
		if got := j.refuses(tt.old, tt.now); got != tt.refused {
			t.Errorf("%s: refused is %v", name, got)
		}
		j.may = []string{"break-glass jobs "}
		if j.refuses(tt.old, tt.now) {
			t.Errorf("%s is refused to those that may break the glass", name)
		}
	}
}

// TestUsersAreRecordedOnce: the policy that writes their names looks at what is submitted, and at updates that would change it.
func TestUsersAreRecordedOnce(t *testing.T) {
	const (
		job   = "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {}}"
		named = "{apiVersion: batch/v1, kind: Job, metadata: {name: j, annotations: {muster.dev/submitted-by: alice}}, spec: {}}"
		pod   = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {}}"
	)
	queued := strings.NewReplacer("name: j", "name: j, labels: {kueue.x-k8s.io/queue-name: q}", "name: p",
		"name: p, labels: {kueue.x-k8s.io/queue-name: q}")
	owned := strings.NewReplacer("name: p", "name: p, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, controller: true}]")
	child := strings.NewReplacer("name: j", "name: j, ownerReferences: [{apiVersion: jobset.x-k8s.io/v1alpha2, "+
		"kind: JobSet, uid: u, controller: true}]")
	j := newJudge(t, "muster-jobs-record-users")
	j.user = "alice"
	for name, tt := range map[string]struct {
		old, now string
		looks    bool
	}{
		"a new job":                      {"null", job, true},
		"a new job with its name":        {"null", named, false},
		"a new job with another name":    {"null", strings.ReplaceAll(named, "alice", "bob"), true},
		"a part of a job":                {"null", child.Replace(job), false},
		"a pod without a queue":          {"null", pod, false},
		"a pod in a queue":               {"null", queued.Replace(pod), true},
		"a pod of a Deployment":          {"null", owned.Replace(queued.Replace(pod)), false},
		"an update of one without":       {job, queued.Replace(job), false},
		"an update of one that has it":   {named, queued.Replace(named), false},
		"an update that takes it off":    {named, job, true},
		"an update to another":           {named, strings.ReplaceAll(named, "alice", "bob"), true},
		"a StatefulSet without a queue":  {"null", strings.Replace(job, "batch/v1, kind: Job", "apps/v1, kind: StatefulSet", 1), false},
		"a StatefulSet that has a queue": {"null", queued.Replace(strings.Replace(job, "batch/v1, kind: Job", "apps/v1, kind: StatefulSet", 1)), true},
	} {
		if got := j.looksAt(tt.old, tt.now); got != tt.looks {
			t.Errorf("%s: it looks at it is %v", name, got)
		}
	}
}

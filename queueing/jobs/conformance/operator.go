package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/queueing/jobs"
)

// phase is what an operator says of a job.
type phase string

const (
	suspended phase = "Suspended"
	runs      phase = "Running"
	succeeded phase = "Succeeded"
	failed    phase = "Failed"
)

// role is pods that are made of one template.
type role struct {
	name     string
	count    int
	template map[string]any
}

// operator simulates the controller of a kind. Like real controllers, it sets the suspended condition before the pods are gone, and the
// end while some pods still run.
type operator struct {
	kind string
	// what distinguishes it from other operators of the same kind.
	what string
	// object is a job as its user writes it, suspended.
	object string
	// suspend is the field that suspends it: by the value pending, and by none it runs. Where
	// pending is empty, it is true or false.
	suspend []string
	pending string
	// roles are the pods of a job, as the operator reads it.
	roles func(w *world, job map[string]any) []role
	// prepare does what the operator does before it makes pods; nil is nothing. It reports
	// whether that is done.
	prepare func(w *world, job *unstructured.Unstructured) bool
	// says is the status for a phase.
	says func(w *world, p phase) map[string]any
	// labels are the labels that the operator sets on the pods of a job.
	labels map[string]string
	// left takes off a held job what Muster leaves on it.
	left func(job map[string]any)
	// many is how many pods there are, and scale has an elastic job have another number in the pod set that scales.
	many  int
	scale func(job map[string]any, n int64)
	// endless jobs run until they are deleted.
	endless bool
	// alike: another kind is the same except for names.
	alike bool
	// unqueued jobs are created without a queue.
	unqueued bool
	// writes are how many writes Muster needs for a job that runs and ends, and for one that is evicted once and runs again.
	writes [2]int
}

// usual are the writes for most kinds: create the Workload, start the job, finish the Workload. An eviction adds four: stop the job,
// restore it, release its quota, start it again.
var usual = [2]int{3, 7}

func (op *operator) key() id { return idOf(op.submitted()) }

// parsed are the objects of texts that were read before.
var parsed sync.Map

// read reads an object in YAML.
func read(text string) *unstructured.Unstructured {
	if have, ok := parsed.Load(text); ok {
		return have.(*unstructured.Unstructured).DeepCopy()
	}
	data, err := yaml.YAMLToJSON([]byte(text))
	out := &unstructured.Unstructured{}
	if err == nil {
		err = json.Unmarshal(data, &out.Object)
	}
	if err != nil {
		panic(err) // it is a constant
	}
	parsed.Store(text, out.DeepCopy())
	return out
}

// submitted is the job as its user has created it.
func (op *operator) submitted() *unstructured.Unstructured {
	out := read(op.object)
	out.SetNamespace("default")
	out.SetName("job")
	out.SetUID("job-uid")
	if !op.unqueued {
		out.SetLabels(map[string]string{jobs.QueueLabel: "main"})
	}
	return out
}

func (op *operator) submit(w *world) { w.create(user, op.submitted()) }

func (op *operator) job(w *world) *unstructured.Unstructured { return w.objects[op.key()] }

// pods implements actor.
func (op *operator) pods(w *world) int {
	if op.scale == nil {
		return op.many
	}
	many := 0
	for _, r := range op.roles(w, op.job(w).Object) {
		many += r.count
	}
	return many
}

// ended implements actor.
func (*operator) ended(w *world) bool { return w.said == succeeded || w.said == failed }

// isHeld reports whether a job is suspended.
func (op *operator) isHeld(job *unstructured.Unstructured) bool {
	if op.pending != "" {
		return get[string](job.Object, op.suspend...) == op.pending
	}
	return get[bool](job.Object, op.suspend...)
}

// hold suspends a job, or lets it run.
func (op *operator) hold(job map[string]any, held bool) {
	switch {
	case op.pending == "":
		set(job, held, op.suspend...)
	case held:
		set(job, op.pending, op.suspend...)
	default:
		unstructured.RemoveNestedField(job, op.suspend...)
	}
}

// queued implements actor.
func (op *operator) queued(w *world) bool { return op.job(w).GetLabels()[jobs.QueueLabel] != "" }

// runs implements actor.
func (op *operator) runs(w *world) bool { return !op.isHeld(op.job(w)) && !op.ended(w) }

// stops implements actor.
func (op *operator) stops(c change) bool {
	return c.before != nil && c.after != nil && c.after.GetKind() == op.kind && !op.isHeld(c.before) && op.isHeld(c.after)
}

// held implements actor.
func (op *operator) held(w *world) string {
	job, want := op.job(w), op.submitted()
	have := runtime.DeepCopyJSON(job.Object)
	if op.left != nil {
		op.left(have)
	}
	if w.scaled != 0 {
		op.scale(want.Object, w.scaled)
	}
	return cmp.Diff(want.Object["spec"], have["spec"]) +
		cmp.Diff([]any{want.GetAnnotations(), want.GetLabels()}, []any{job.GetAnnotations(), job.GetLabels()}, cmpopts.EquateEmpty())
}

// say writes the status of a job.
func (op *operator) say(w *world, p phase) {
	w.said = p
	w.edit(op.kind, op.job(w), func(o map[string]any) {
		if len(get[map[string]any](o, "status")) == 0 {
			o["status"] = map[string]any{}
		}
		maps.Copy(o["status"].(map[string]any), op.says(w, p))
	})
}

// step implements actor.
func (op *operator) step(w *world) {
	job := op.job(w)
	if job == nil || job.GetDeletionTimestamp() != nil {
		return // like the controllers of Jobs, JobSets and Kubeflow, it does not reconcile an object that is being deleted
	}
	if op.prepare != nil && !op.prepare(w, job) {
		return
	}
	job = op.job(w)
	switch {
	case op.ended(w):
		op.end(w)
		op.say(w, w.said)
	case op.isHeld(job):
		op.say(w, suspended)
		op.end(w)
	default:
		op.run(w, job)
	}
}

// end ends one pod after the other.
func (op *operator) end(w *world) {
	for _, pod := range w.alive() {
		if pod.GetDeletionTimestamp() == nil {
			w.remove(op.kind, pod)
			return
		}
	}
}

// run makes what is missing of the pods, and has the job end once all run and its story says so.
func (op *operator) run(w *world, job *unstructured.Unstructured) {
	made, all := 0, w.of(podKind)
	for _, r := range op.roles(w, job.Object) {
		for i := range r.count {
			name := podName(job, r.name, i)
			if slices.ContainsFunc(all, func(pod *unstructured.Unstructured) bool {
				return pod.GetName() == name && (pod.GetDeletionTimestamp() != nil || phaseOf(pod) != "Failed")
			}) {
				continue
			}
			if made++; made <= 2 {
				pod := podOf(job, name, r.template)
				for key, value := range op.labels {
					set(pod.Object, value, "metadata", "labels", key)
				}
				w.create(op.kind, pod)
			}
		}
	}
	if made > 0 || op.scale != nil && op.shrink(w, job) {
		return
	}
	alive := w.alive()
	ready := slices.DeleteFunc(slices.Clone(alive), func(pod *unstructured.Unstructured) bool { return phaseOf(pod) != "Running" })
	op.say(w, runs)
	enough := op.many
	if op.scale != nil {
		enough = 1 // others may wait for quota
	}
	if w.outcome == "" || len(ready) < enough || op.endless {
		return
	}
	// The first pod ends, and the job with it; others run on.
	w.edit(node, ready[0], func(o map[string]any) {
		set(o, map[outcome]any{succeeds: "Succeeded", fails: "Failed"}[w.outcome], "status", "phase")
	})
	op.say(w, map[outcome]phase{succeeds: succeeded, fails: failed}[w.outcome])
}

func podName(job *unstructured.Unstructured, role string, i int) string {
	return fmt.Sprintf("%s-%s-%d", job.GetName(), role, i)
}

// podOf is a pod of a template.
func podOf(owner *unstructured.Unstructured, name string, template map[string]any) *unstructured.Unstructured {
	pod := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(map[string]any{"spec": template["spec"]})}
	pod.SetGroupVersionKind(podKind)
	pod.SetNamespace(owner.GetNamespace())
	pod.SetName(name)
	pod.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
	for _, field := range []string{"labels", "annotations"} {
		if values := get[map[string]any](template, "metadata", field); values != nil {
			set(pod.Object, runtime.DeepCopyJSON(values), "metadata", field)
		}
	}
	set(pod.Object, "Pending", "status", "phase")
	return pod
}

const container = `{spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}`

// conditions say a phase by conditions.
func conditions(_ *world, p phase) map[string]any {
	all := []any{}
	for _, c := range []phase{suspended, runs, succeeded, failed} {
		all = append(all, map[string]any{"type": string(c), "status": map[bool]string{true: "True", false: "False"}[c == p],
			"message": "it is " + string(p)})
	}
	return map[string]any{"conditions": all}
}

// renamed are conditions by which a phase has another name.
func renamed(from phase, to string) func(*world, phase) map[string]any {
	return func(w *world, p phase) map[string]any {
		out := conditions(w, p)
		for _, c := range out["conditions"].([]any) {
			if c := c.(map[string]any); c["type"] == string(from) {
				c["type"] = to
			}
		}
		return out
	}
}

// field says a phase by the value of a field.
func field(name string, values map[phase]string) func(*world, phase) map[string]any {
	return func(_ *world, p phase) map[string]any { return map[string]any{name: values[p]} }
}

// templatesAt are roles whose templates and counts stand in objects at a path.
func templatesAt(path ...string) func(*world, map[string]any) []role {
	return func(_ *world, job map[string]any) (out []role) {
		all := get[map[string]any](job, path...)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			spec := all[name].(map[string]any)
			count := 1
			if n, ok := spec["replicas"].(int64); ok {
				count = int(n)
			}
			out = append(out, role{strings.ToLower(name), count, spec["template"].(map[string]any)})
		}
		return out
	}
}

// jobController plays the Job controller, whose status is right about the pods.
var jobController = &operator{
	kind: "Job", suspend: []string{"spec", "suspend"}, many: 2, writes: usual,
	object: `{apiVersion: batch/v1, kind: Job, spec: {suspend: true, parallelism: 2, completions: 2, template: ` +
		strings.Replace(container, "spec: {", "metadata: {}, spec: {restartPolicy: Never, ", 1) + `}}`,
	roles: func(_ *world, job map[string]any) []role {
		template := runtime.DeepCopyJSON(get[map[string]any](job, "spec", "template"))
		set(template, "job-uid", "metadata", "labels", batchv1.ControllerUidLabel)
		return []role{{"pod", int(get[int64](job, "spec", "parallelism")), template}}
	},
	says: func(w *world, p phase) map[string]any {
		var active, terminating, ready int64
		for _, pod := range w.alive() {
			switch {
			case pod.GetDeletionTimestamp() != nil:
				terminating++
			default:
				active++
				if p := w.typed(pod).(*corev1.Pod); jobs.IsReady(p) {
					ready++
				}
			}
		}
		types := map[string]string{"Suspended": "False"}
		switch {
		case p == suspended:
			types["Suspended"] = "True"
		case p == succeeded && active+terminating == 0:
			types["Complete"] = "True"
		case p == succeeded:
			types["SuccessCriteriaMet"] = "True"
		case p == failed && active+terminating == 0:
			types["Failed"] = "True"
		case p == failed:
			types["FailureTarget"] = "True"
		}
		conditions := []any{}
		for _, name := range slices.Sorted(maps.Keys(types)) {
			conditions = append(conditions, map[string]any{"type": name, "status": types[name], "message": "it is " + string(p)})
		}
		out := map[string]any{"active": active, "terminating": terminating, "ready": ready, "conditions": conditions}
		if p == runs {
			out["startTime"] = w.now.Truncate(time.Hour).UTC().Format(time.RFC3339)
		}
		return out
	},
}

// partialJob is one that starts with one of its pods.
var partialJob = func() *operator {
	out := *jobController
	out.what, out.many = " that starts with fewer pods", 1
	out.object = strings.Replace(out.object, "kind: Job,", `kind: Job, metadata: {annotations: {kueue.x-k8s.io/job-min-parallelism: "1"}},`, 1)
	return &out
}()

// kubeflow plays the training-operator, and the mpi-operator. It writes that no pod is active
// when it sends the deletes, and lets workers run on after the end.
func kubeflow(kind, version, specs, replicas string, many int) *operator {
	return &operator{
		alike: kind != "PyTorchJob", writes: usual, labels: map[string]string{"training.kubeflow.org/job-name": "job"},
		kind: kind, suspend: []string{"spec", "runPolicy", "suspend"}, says: conditions, many: many, roles: templatesAt("spec", specs),
		object: `{apiVersion: kubeflow.org/` + version + `, kind: ` + kind + `, spec: {runPolicy: {suspend: true}, ` + specs + `: {` +
			strings.ReplaceAll(replicas, "TEMPLATE", container) + `}}}`,
	}
}

// ofJobSet are the labels of the pods of a JobSet, that of a TrainJob among them.
var ofJobSet = map[string]string{"jobset.sigs.k8s.io/jobset-name": "job"}

// ofRay are the labels of the pods of a cluster that KubeRay makes for a job.
func ofRay(kind string) map[string]string {
	return map[string]string{"ray.io/originated-from-cr-name": "job", "ray.io/originated-from-crd": kind}
}

// rayRoles are those of a cluster at a path.
func rayRoles(submitter bool, path ...string) func(*world, map[string]any) []role {
	return func(_ *world, job map[string]any) (out []role) {
		spec := get[map[string]any](job, path...)
		out = append(out, role{"head", 1, get[map[string]any](spec, "headGroupSpec", "template")})
		for _, g := range get[[]any](spec, "workerGroupSpecs") {
			group := g.(map[string]any)
			out = append(out, role{group["groupName"].(string), int(group["replicas"].(int64)), group["template"].(map[string]any)})
		}
		if submitter {
			out = append(out, role{"submitter", 1, get[map[string]any](job, "spec", "submitterPodTemplate")})
		}
		return out
	}
}

const rayCluster = `headGroupSpec: {template: ` + container +
	`}, workerGroupSpecs: [{groupName: small, replicas: 2, template: ` + container + `}]`

// rayClusters plays KubeRay for a RayCluster.
var rayClusters = &operator{
	writes: [2]int{2, 6}, alike: true,
	kind: "RayCluster", suspend: []string{"spec", "suspend"}, many: 3, endless: true, labels: map[string]string{"ray.io/cluster": "job"},
	roles: rayRoles(false, "spec"), object: `{apiVersion: ray.io/v1, kind: RayCluster, spec: {suspend: true, ` + rayCluster + `}}`,
	says: field("state", map[phase]string{suspended: "suspended", runs: "ready"}),
}

// jobSets plays the JobSet controller for a JobSet: child Jobs exist while it is suspended,
// and a resume adds to their templates and takes nothing off.
func jobSets(w *world, by string, jobSet *unstructured.Unstructured) {
	held := get[bool](jobSet.Object, "spec", "suspend")
	for _, r := range get[[]any](jobSet.Object, "spec", "replicatedJobs") {
		spec := r.(map[string]any)
		name, template := spec["name"].(string), get[map[string]any](spec, "template", "spec", "template")
		child := read(`{apiVersion: batch/v1, kind: Job, metadata: {namespace: default}, spec: {suspend: true}}`)
		child.SetName(jobSet.GetName() + "-" + name)
		child.SetLabels(map[string]string{"jobset.sigs.k8s.io/jobset-name": jobSet.GetName(), "jobset.sigs.k8s.io/replicatedjob-name": name})
		child.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(jobSet, jobSet.GroupVersionKind())})
		if w.objects[idOf(child)] == nil {
			set(child.Object, runtime.DeepCopyJSON(template), "spec", "template")
			set(child.Object, int64(1), "spec", "parallelism")
			if replicas, ok := spec["replicas"]; ok {
				set(child.Object, replicas, "spec", "parallelism")
			}
			w.create(by, child)
			continue
		}
		w.edit(by, child, func(o map[string]any) {
			if !held && get[bool](o, "spec", "suspend") {
				merge(get[map[string]any](o, "spec", "template"), runtime.DeepCopyJSON(template))
			}
			set(o, held, "spec", "suspend")
		})
	}
}

var jobKind = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}

// jobSetRoles are the pods of the child Jobs of a JobSet.
func jobSetRoles(w *world, _ map[string]any) (out []role) {
	for _, child := range w.of(jobKind) {
		if count := get[int64](child.Object, "spec", "parallelism"); !get[bool](child.Object, "spec", "suspend") {
			out = append(out, role{child.GetLabels()["jobset.sigs.k8s.io/replicatedjob-name"], int(count),
				get[map[string]any](child.Object, "spec", "template")})
		}
	}
	return out
}

const replicatedJobs = `replicatedJobs: [{name: launcher, template: {spec: {template: ` + container + `}}},
	{name: workers, replicas: 2, template: {spec: {template: ` + container + `}}}]`

// trainer plays Trainer: it makes a JobSet of the runtime and the patches of a TrainJob.
func trainer(w *world, job *unstructured.Unstructured) bool {
	want := read(`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {namespace: default, name: job}, spec: {suspend: true, ` +
		replicatedJobs + `}}`)
	want.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(job, job.GroupVersionKind())})
	set(want.Object, get[bool](job.Object, "spec", "suspend"), "spec", "suspend")
	for _, p := range get[[]any](job.Object, "spec", "runtimePatches") {
		for _, r := range get[[]any](p.(map[string]any), "trainingRuntimeSpec", "template", "spec", "replicatedJobs") {
			for _, to := range get[[]any](want.Object, "spec", "replicatedJobs") {
				if to, from := to.(map[string]any), r.(map[string]any); to["name"] == from["name"] {
					merge(get[map[string]any](to, "template", "spec", "template"),
						runtime.DeepCopyJSON(get[map[string]any](from, "template", "spec", "template")))
				}
			}
		}
	}
	have := w.objects[idOf(want)]
	if have == nil {
		w.create("trainer", want)
		return false
	}
	w.edit("trainer", have, func(o map[string]any) { o["spec"] = want.Object["spec"] })
	jobSets(w, "jobset", w.objects[idOf(want)])
	return true
}

// trainRun plays the operator of a kind that a configuration names.
var trainRun = &operator{
	writes: usual, kind: "TrainRun", suspend: []string{"spec", "state"}, pending: "Pending", many: 3,
	labels: map[string]string{"acme.io/run": "job"},
	object: `{apiVersion: acme.io/v1, kind: TrainRun, spec: {state: Pending, roles: {chief: {replicas: 1, template: ` + container + `},
		worker: {replicas: 1, hosts: 2, template: ` + container + `}}}}`,
	says: field("phase", map[phase]string{runs: "Running", succeeded: "Done", failed: "Broken"}),
	roles: func(w *world, job map[string]any) []role {
		out := templatesAt("spec", "roles")(w, job)
		for i := range out {
			if hosts := get[int64](job, "spec", "roles", out[i].name, "hosts"); hosts > 0 {
				out[i].count *= int(hosts)
			}
		}
		return out
	},
}

// Own is the stanza of a custom kind, which Run and BadInput need beside the built-in ones.
const Own = `
group: acme.io
version: v1
kind: TrainRun
suspend: {path: /spec/state, held: Pending, running: null}
podSets:
- each: /spec/roles
  name: key
  count: "self.replicas * (has(self.hosts) ? self.hosts : 1)"
  template: /template
succeeded: self.?status.?phase.orValue('') == 'Done'
failed: self.?status.?phase.orValue('') == 'Broken'
podLabels: {acme.io/run: self.metadata.name}
`

// operators play the controllers of all kinds that are built in, and of one that is not.
func operators() []*operator {
	const masterAndWorkers = `Master: {template: TEMPLATE}, Worker: {replicas: 2, template: TEMPLATE}`
	trainJob := &operator{
		writes: [2]int{4, 10}, // its pods are reported later, and it has two child Jobs
		kind:   "TrainJob", suspend: []string{"spec", "suspend"}, says: renamed(succeeded, "Complete"), many: 3, labels: ofJobSet,
		prepare: trainer, roles: jobSetRoles,
		object: `{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, spec: {suspend: true, runtimeRef: {name: r}, trainer: {numNodes: 2},
			runtimePatches: [{manager: kueue.x-k8s.io/manager}]}}`,
		left: func(job map[string]any) {
			for _, p := range get[[]any](job, "spec", "runtimePatches") {
				delete(p.(map[string]any), "trainingRuntimeSpec") // a label stays there, see trainjob.go
			}
		},
	}
	rayJob := &operator{
		writes: usual,
		kind:   "RayJob", suspend: []string{"spec", "suspend"}, many: 4, labels: ofRay("RayJob"), roles: rayRoles(true, "spec", "rayClusterSpec"),
		object: `{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: job}, spec: {suspend: true, shutdownAfterJobFinishes: true, ` +
			`rayClusterSpec: {` + rayCluster + `}}}`, says: func(_ *world, p phase) map[string]any {
			return map[string]any{
				"jobDeploymentStatus": map[phase]any{suspended: "Suspended", runs: "Running", succeeded: "Complete", failed: "Failed"}[p],
				"jobStatus":           map[phase]any{suspended: "STOPPED", runs: "RUNNING", succeeded: "SUCCEEDED", failed: "FAILED"}[p],
			}
		},
	}
	appWrapper := &operator{
		writes: [2]int{4, 8}, // its pods are reported later
		kind:   "AppWrapper", suspend: []string{"spec", "suspend"}, many: 2,
		labels: map[string]string{"workload.codeflare.dev/appwrapper": "job"},
		object: `{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: job}, spec: {suspend: true, components: [
			{template: {apiVersion: batch/v1, kind: Job, spec: {template: ` + container + `}}}]}}`,
		says: field("phase", map[phase]string{suspended: "Suspended", runs: "Running", succeeded: "Succeeded", failed: "Failed"}),
		prepare: func(w *world, job *unstructured.Unstructured) bool {
			w.edit("AppWrapper", job, func(o map[string]any) {
				var all []any
				for range get[[]any](o, "spec", "components") {
					all = append(all, map[string]any{"podSets": []any{map[string]any{"path": "template.spec.template", "replicas": int64(2)}}})
				}
				set(o, all, "status", "componentStatus")
			})
			return true
		},
		roles: func(_ *world, job map[string]any) []role {
			component := get[[]any](job, "spec", "components")[0].(map[string]any)
			template := runtime.DeepCopyJSON(get[map[string]any](component, "template", "spec", "template"))
			for _, i := range get[[]any](component, "podSetInfos") {
				info := i.(map[string]any)
				merge(template, map[string]any{
					"metadata": map[string]any{"labels": orEmpty(info["labels"]), "annotations": orEmpty(info["annotations"])},
					"spec":     map[string]any{"nodeSelector": orEmpty(info["nodeSelector"])},
				})
			}
			return []role{{"wrapped", 2, template}}
		},
	}
	spark := &operator{
		writes: usual,
		kind:   "SparkApplication", suspend: []string{"spec", "suspend"}, many: 3,
		labels: map[string]string{"sparkoperator.k8s.io/app-name": "job"},
		object: `{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, spec: {suspend: true, type: Scala, mode: cluster,
			driver: {cores: 1}, executor: {instances: 2, cores: 2}}}`,
		says: func(_ *world, p phase) map[string]any {
			return map[string]any{"applicationState": map[string]any{
				"state": map[phase]string{suspended: "SUSPENDED", runs: "RUNNING", succeeded: "COMPLETED", failed: "FAILED"}[p]}}
		},
		roles: func(_ *world, job map[string]any) (out []role) {
			for _, name := range []string{"driver", "executor"} {
				spec := get[map[string]any](job, "spec", name)
				count := 1
				if instances, ok := spec["instances"].(int64); ok {
					count = int(instances)
				}
				out = append(out, role{name, count, map[string]any{
					"metadata": map[string]any{"labels": orEmpty(spec["labels"]), "annotations": orEmpty(spec["annotations"])},
					"spec":     map[string]any{"nodeSelector": orEmpty(spec["nodeSelector"]), "tolerations": spec["tolerations"]},
				}})
			}
			return out
		},
	}
	return []*operator{
		jobController, partialJob, elasticJob, trainRun,
		{
			writes: [2]int{3, 9}, // it has two child Jobs
			kind:   "JobSet", suspend: []string{"spec", "suspend"}, says: renamed(succeeded, "Completed"), many: 3,
			labels: ofJobSet, roles: jobSetRoles,
			object: `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {suspend: true, ` + replicatedJobs + `}}`,
			prepare: func(w *world, job *unstructured.Unstructured) bool {
				jobSets(w, "jobset", job)
				return true
			},
		},
		trainJob,
		kubeflow("PyTorchJob", "v1", "pytorchReplicaSpecs", masterAndWorkers, 3),
		kubeflow("TFJob", "v1", "tfReplicaSpecs", `Chief: {template: TEMPLATE}, PS: {template: TEMPLATE}, Worker: {replicas: 2, template: TEMPLATE}`, 4),
		kubeflow("XGBoostJob", "v1", "xgbReplicaSpecs", masterAndWorkers, 3),
		kubeflow("PaddleJob", "v1", "paddleReplicaSpecs", masterAndWorkers, 3),
		kubeflow("JAXJob", "v1", "jaxReplicaSpecs", `Worker: {replicas: 2, template: TEMPLATE}`, 2),
		kubeflow("MPIJob", "v2beta1", "mpiReplicaSpecs", `Launcher: {template: TEMPLATE}, Worker: {replicas: 2, template: TEMPLATE}`, 3),
		rayJob,
		rayClusters, elasticCluster,
		{
			writes: [2]int{2, 6},
			kind:   "RayService", suspend: []string{"spec", "rayClusterConfig", "suspend"}, many: 3, endless: true, labels: ofRay("RayService"),
			roles:  rayRoles(false, "spec", "rayClusterConfig"),
			object: `{apiVersion: ray.io/v1, kind: RayService, spec: {rayClusterConfig: {suspend: true, ` + rayCluster + `}}}`,
			says:   func(*world, phase) map[string]any { return nil },
		},
		appWrapper, spark,
	}
}

func orEmpty(value any) map[string]any {
	out, _ := value.(map[string]any)
	if out == nil {
		out = map[string]any{}
	}
	return runtime.DeepCopyJSON(out)
}

// Writes returns how many writes Muster needs for a job of each kind: for one that runs and ends, and for one that is evicted once and
// runs again.
func Writes() map[string][2]int {
	out := map[string][2]int{}
	for _, op := range operators() {
		if op.what == "" {
			out[op.kind] = op.writes
		}
	}
	return out
}

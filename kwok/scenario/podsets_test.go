package scenario

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/deploy/document"
	"github.com/muster-dev/muster/kwok/operators"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

// mixed is sound with JobSets of a launcher and two workers in its place of Jobs.
var mixed = strings.NewReplacer("groups:\n", "operators: [jobset]\n"+queues+"groups:\n", "- name: job\n", "- name: job\n  queue: batch\n",
	"  - pods: 2\n    requests: {cpu: 1}\n    runFor: {atLeast: 1m}\n", `  - runFor: {atLeast: 1m}
    priority: ""
    annotations: {provreq.kueue.x-k8s.io/startWithin: 10m}
    object:
      apiVersion: jobset.x-k8s.io/v1alpha2
      kind: JobSet
      metadata: {labels: {team: research, run: the $(name)}}
      spec:
        replicatedJobs:
        - name: launcher
          template:
            spec:
              template:
                metadata: {annotations: {kwok.muster.dev/run-for: $(runFor)}}
                spec: {containers: [{name: main, resources: {requests: {cpu: 1}}}]}
        - name: workers
          template:
            spec:
              parallelism: 2
              completions: 2
              template:
                metadata: {annotations: {kwok.muster.dev/run-for: $(runFor)}}
                spec: {containers: [{name: main, resources: {limits: {cpu: 2, memory: 1Gi}}}]}
`).Replace(sound)

func TestTheShapeOfAnObject(t *testing.T) {
	s, err := Read([]byte(mixed))
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]string{}
	for _, p := range s.Arrivals[0].Shapes[0].podSets() {
		for name, amount := range p.requests {
			asked[strings.Join([]string{p.name, string(name)}, " ")] = amount.String()
		}
	}
	want := map[string]string{"launcher cpu": "1", "workers cpu": "2", "workers memory": "1Gi"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("requests of each pod (-want +got):\n%s", diff)
	}
	if got := s.Arrivals[0].Shapes[0].AllPods(); got != 3 {
		t.Errorf("it has %d pods, want 3", got)
	}
	// Three JobSets of 5 CPUs for a minute each, 10 s after each other, on 12 CPUs.
	if got, want := s.Bound().Area.Duration, 75*time.Second; got != want {
		t.Errorf("the bound is %s, want %s", got, want)
	}
	if got := s.Bound().FirstWave; got != 6 {
		t.Errorf("%d pods start before one ends, want those of two JobSets", got)
	}
}

func TestAnObjectAtASpeed(t *testing.T) {
	s, err := Read([]byte(mixed))
	if err != nil {
		t.Fatal(err)
	}
	submission := s.Submissions()[1]
	o := submission.Objects(10)[0]
	if o.GetName() != "job-1" || o.GetNamespace() != "default" || o.GetKind() != "JobSet" {
		t.Errorf("it is the %s %s/%s, want the JobSet default/job-1", o.GetKind(), o.GetNamespace(), o.GetName())
	}
	labels := map[string]string{"team": "research", "run": "the job-1", "kueue.x-k8s.io/queue-name": "batch"}
	if diff := cmp.Diff(labels, o.GetLabels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if got := o.GetAnnotations()["provreq.kueue.x-k8s.io/startWithin"]; got != "1m0s" {
		t.Errorf("it is to start within %s, want a tenth of 10m", got)
	}
	if !says(o.Object, "6s") || says(o.Object, RunForWord) {
		t.Errorf("its pods do not run for a tenth of a minute: %v", o.Object)
	}
	if !says(submission.Shape.Object.Object, RunForWord) {
		t.Error("the template was changed, so the next runs as long as this one")
	}
	if o := (Submission{Shape: &Shape{Pods: 1}}).Objects(1); o != nil {
		t.Errorf("a Job is %v", o)
	}
}

func TestWhatIsRefusedOfObjects(t *testing.T) {
	const shape, path = "arrivals[0].shapes[0]", "arrivals[0].shapes[0].object"
	arriving := func() (out []string) {
		for _, k := range kinds.BuiltIn() {
			out = append(out, k.Kind+" ("+k.GroupVersionKind().GroupVersion().String()+")")
		}
		return append(out, "Pod (v1)", "Deployment (apps/v1)", "StatefulSet (apps/v1)", "LeaderWorkerSet (leaderworkerset.x-k8s.io/v1)")
	}
	for name, tc := range map[string]struct{ old, new, path, want string }{
		"a kind that there is not": {"kind: JobSet", "kind: JobList", path, "JobList of jobset.x-k8s.io/v1alpha2 is no kind of jobs that can " +
			"arrive; there " + choices(arriving()) + ": choose one, or move it to the objects of the scenario"},
		"a Job": {"apiVersion: jobset.x-k8s.io/v1alpha2\n      kind: JobSet", "apiVersion: batch/v1\n      kind: Job", path,
			"a Job is what a shape without an object is; write its pods, requests and the like into the shape"},
		"another version": {"jobset.x-k8s.io/v1alpha2", "jobset.x-k8s.io/v1", path, "JobSet of jobset.x-k8s.io/v1 is no kind of jobs"},
		"no kind":         {"      kind: JobSet\n", "", path, "a mapping is not a Kubernetes object; give it apiVersion and kind"},
		"pods that end of what serves": {"apiVersion: jobset.x-k8s.io/v1alpha2\n      kind: JobSet", "apiVersion: ray.io/v1\n      kind: RayCluster", path,
			"it says $(runFor), so its pods would end and be made again: a RayCluster serves until it is deleted, which it is after runFor; remove"},
		"no operator": {"operators: [jobset]\n", "", path, "nothing runs a JobSet without the operator jobset; add it to operators"},
		"an operator that there is not": {"[jobset]", "[jobset, rai]", "operators[1]",
			`there is no operator "rai"; there ` + choices(operators.Names()) + ": choose one"},
		"an operator twice": {"[jobset]", "[jobset, jobset]", "operators[1]", "jobset is named twice; remove one"},
		"a name of its own": {"labels: {team: research, run: the $(name)}", "name: mine", path + ".metadata.name",
			`it is "mine", but the arrival says how its objects are named and where they are; remove it`},
		"a namespace of its own": {"labels: {team: research, run: the $(name)}", "namespace: team", path + ".metadata.namespace",
			`it is "team", but the arrival says`},
		"no run time": {"$(runFor)", "1m", path,
			"nothing in it says $(runFor), so it would not run for runFor; write kwok.muster.dev/run-for: $(runFor)"},
		"no queue": {"  queue: batch\n", "", "arrivals[0].queue",
			"it is missing, and only objects of a queue have a Workload, which tells when they end; name a LocalQueue"},
		"pods beside those of the object": {`priority: ""`, "pods: 2", shape + ".pods",
			"the pods and their requests are those of the object; remove pods and requests"},
		"a field for Jobs": {`priority: ""`, "together: true", shape + ".together",
			"it is for Jobs, and there is an object; write it into that, or remove it"},
		"no pods": {"parallelism: 2\n              completions: 2", "parallelism: 20000", path,
			"it has 20001 pods; give it from 1 to 10000"},
		"what no queue takes": {"        replicatedJobs:", "        managedBy: example.com/other\n        replicatedJobs:", path,
			"no queue takes it: spec.managedBy"},
		"pods larger than a machine": {"limits: {cpu: 2,", "limits: {cpu: 5,", path,
			"pod set workers, requests[cpu]: it is 5, but the largest machine has 4; ask for less, or give larger machines"},
		"more pods than there is room for": {"parallelism: 2\n              completions: 2", "parallelism: 7\n              completions: 7", path,
			"pod set workers, pods: it is 7, but all machines have room for 6 at once; give fewer pods or more machines"},
		"machines that there are not": {"spec: {containers: [{name: main, resources: {requests",
			"spec: {nodeSelector: {disk: fast}, containers: [{name: main, resources: {requests", path,
			`pod set launcher, nodeSelector[disk]: no node or group has the value "fast"; there is none`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.ReplaceAll(mixed, tc.old, tc.new)
			if text == mixed {
				t.Fatalf("%q is not in the file", tc.old)
			}
			_, err := Read([]byte(text))
			var faults document.Faults
			if !errors.As(err, &faults) {
				t.Fatalf("error %v, want faults", err)
			}
			if !slices.ContainsFunc(faults, func(f document.Fault) bool { return f.Path == tc.path && strings.HasPrefix(f.Text, tc.want) }) {
				t.Errorf("refused for\n%v\nwant %s: %s", err, tc.path, tc.want)
			}
		})
	}
}

// The pods of a TrainJob are those of a JobSet that its operator makes, so the file says how many there are.
func TestAnObjectWhosePodsAreElsewhere(t *testing.T) {
	train := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"metadata": map[string]any{"annotations": map[string]any{"run": RunForWord}}}}
	s := Shape{Object: train, RunFor: RunTime{AtLeast: of(time.Minute)}}
	refused := func() string {
		j := judge{Document: document.Read([]byte("{}"), &Scenario{})}
		if j.jobOfAKind(&Arrival{Name: "job"}, &s, []string{"trainer"}, nil); j.Err() == nil {
			return ""
		}
		return j.Err().Error()
	}
	if got := refused(); !strings.Contains(got, "pods: it is 0; give a number from 1 to 10000") {
		t.Errorf("without pods it is refused for %q", got)
	}
	s.Pods, s.Requests = 4, cpu(2)
	if got := refused(); got != "" || s.AllPods() != 4 {
		t.Errorf("it has %d pods, want 4; it is refused for %q", s.AllPods(), got)
	}
}

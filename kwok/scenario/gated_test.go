package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/deploy/document"
	"github.com/muster-dev/muster/queueing/workload"
)

// gated is sound with objects of a kind whose pods are gated in its place of Jobs.
func gated(shape string) string {
	return strings.NewReplacer("groups:\n", "operators: [lws]\n"+queues+"groups:\n", "- name: job\n", "- name: job\n  queue: batch\n",
		"  - pods: 2\n    requests: {cpu: 1}\n    runFor: {atLeast: 1m}\n", "  - runFor: {atLeast: 1m}\n"+shape).Replace(sound)
}

const (
	aPod = `    object:
      apiVersion: v1
      kind: Pod
      metadata: {annotations: {kwok.muster.dev/run-for: $(runFor)}}
      spec: {restartPolicy: Never, containers: [{name: main, resources: {requests: {cpu: 1}}}]}
`
	aDeployment = `    object:
      apiVersion: apps/v1
      kind: Deployment
      spec:
        replicas: 3
        selector: {matchLabels: {app: $(name)}}
        template:
          metadata: {labels: {app: $(name)}}
          spec: {containers: [{name: main, resources: {requests: {cpu: 1}}}]}
`
	aLeaderWorkerSet = `    object:
      apiVersion: leaderworkerset.x-k8s.io/v1
      kind: LeaderWorkerSet
      spec:
        replicas: 2
        leaderWorkerTemplate:
          size: 3
          leaderTemplate: {spec: {containers: [{name: main, resources: {requests: {cpu: 2}}}]}}
          workerTemplate: {spec: {containers: [{name: main, resources: {requests: {cpu: 1}}}]}}
`
)

var aStatefulSet = strings.Replace(aDeployment, "Deployment", "StatefulSet", 1)

func TestThePodsOfGatedKinds(t *testing.T) {
	for name, tc := range map[string]struct {
		shape string
		pods  string
		// how many Workloads one has, and whether it serves until it is deleted.
		workloads int
		serves    bool
		objects   string
	}{
		"a plain pod":            {aPod, "main: 1", 1, false, "Pod job-1"},
		"a group of pods":        {"    pods: 3\n" + aPod, "main: 3", 1, false, "Pod job-1-0, Pod job-1-1, Pod job-1-2"},
		"a Deployment":           {aDeployment, "main: 3", 3, true, "Deployment job-1"},
		"a StatefulSet":          {aStatefulSet, "main: 3", 1, true, "StatefulSet job-1"},
		"a LeaderWorkerSet":      {aLeaderWorkerSet, "leader: 2, worker: 4", 2, true, "LeaderWorkerSet job-1"},
		"one without a leader":   {without(aLeaderWorkerSet, "leaderTemplate"), "worker: 6", 2, true, "LeaderWorkerSet job-1"},
		"one of a pod a group":   {without(aLeaderWorkerSet, "size"), "leader: 2", 2, true, "LeaderWorkerSet job-1"},
		"one replica by default": {without(aStatefulSet, "replicas"), "main: 1", 1, true, "StatefulSet job-1"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Read([]byte(gated(tc.shape)))
			if err != nil {
				t.Fatal(err)
			}
			shape := &s.Arrivals[0].Shapes[0]
			var pods, objects []string
			for _, p := range shape.podSets() {
				pods = append(pods, fmt.Sprintf("%s: %d", p.name, p.pods))
			}
			submission := s.Submissions()[1]
			for _, o := range submission.Objects(1) {
				objects = append(objects, o.GetKind()+" "+o.GetName())
				if o.GetLabels()["kueue.x-k8s.io/queue-name"] != "batch" || !says(o.Object, "job-1") {
					t.Errorf("it is in no queue: %v", o.Object)
				}
			}
			got := []any{strings.Join(pods, ", "), shape.Workloads(), shape.Serves(), strings.Join(objects, ", ")}
			if diff := cmp.Diff([]any{tc.pods, tc.workloads, tc.serves, tc.objects}, got); diff != "" {
				t.Errorf("pods, Workloads, serves, objects (-want +got):\n%s", diff)
			}
		})
	}
}

// without is the text without the lines that say a field.
func without(text, name string) (out string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), name+":") {
			out += line
		}
	}
	return out
}

// Each pod says which job of the scenario it is of, and those of a group which group.
func TestGatedPodsSayWhatTheyAreOf(t *testing.T) {
	label := func(o *unstructured.Unstructured, path ...string) string {
		value, _, _ := unstructured.NestedString(o.Object, append(path, "metadata", "labels", JobLabel)...)
		return value
	}
	objects := func(shape string) []*unstructured.Unstructured {
		s, err := Read([]byte(gated(shape)))
		if err != nil {
			t.Fatal(err)
		}
		return s.Submissions()[0].Objects(1)
	}
	group := objects("    pods: 2\n" + aPod)[1]
	set := objects(aLeaderWorkerSet)[0]
	got := []string{label(group), group.GetLabels()[workload.GroupName], group.GetAnnotations()[workload.GroupCountAnnotation],
		label(objects(aDeployment)[0], "spec", "template"), label(set, "spec", "leaderWorkerTemplate", "leaderTemplate"),
		label(set, "spec", "leaderWorkerTemplate", "workerTemplate")}
	if diff := cmp.Diff([]string{"job-0", "job-0", "2", "job-0", "job-0", "job-0"}, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestWhatIsRefusedOfGatedKinds(t *testing.T) {
	const shape, path = "arrivals[0].shapes[0]", "arrivals[0].shapes[0].object"
	for name, tc := range map[string]struct{ shape, old, new, path, want string }{
		"a pod that never ends": {aPod, "$(runFor)", "1m", path, "nothing in it says $(runFor)"},
		"a pod that is started again": {aPod, "restartPolicy: Never, ", "", path + ".spec.restartPolicy",
			"it is Always, which is the default, so such a pod never succeeds; write Never"},
		"too many pods":      {"    pods: 20000\n" + aPod, "", "", shape + ".pods", "it is 20000; give a number from 1 to 10000"},
		"requests beside it": {"    requests: {cpu: 1}\n" + aPod, "", "", shape + ".pods", "the pods and their requests are those of the object"},
		"pods of what says its own": {"    pods: 2\n" + aStatefulSet, "", "", shape + ".pods",
			"the pods and their requests are those of the object; remove pods and requests"},
		"pods that end of what serves": {aDeployment, "{labels: {app: $(name)}}", "{labels: {app: $(name), run: $(runFor)}}", path,
			"it says $(runFor), so its pods would end and be made again: a Deployment serves until it is deleted, which it is after runFor"},
		"a selector of all that arrive": {aStatefulSet, "$(name)", "web", path + ".spec.selector",
			"it selects the pods of all 3 that arrive; write a label with $(name) into it, and into those of its pod template"},
		"no replicas": {aStatefulSet, "replicas: 3", "replicas: 0", path, "it has 0 pods; give it from 1 to 10000"},
		"templates that are no": {aStatefulSet, "containers: [{name: main, resources: {requests: {cpu: 1}}}]", "containers: none", path,
			"its pods cannot be read: "},
		"larger than a machine": {aLeaderWorkerSet, "cpu: 2", "cpu: 5", path,
			"pod set leader, requests[cpu]: it is 5, but the largest machine has 4; ask for less, or give larger machines"},
		"a name of its own": {aPod, "{annotations:", "{name: mine, annotations:", path + ".metadata.name", `it is "mine", but the arrival says`},
		"no operator":       {aLeaderWorkerSet, "operators: [lws]\n", "", path, "nothing runs a LeaderWorkerSet without the operator lws"},
		"no queue":          {aPod, "  queue: batch\n", "", "arrivals[0].queue", "it is missing, and only objects of a queue have a Workload"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read([]byte(strings.ReplaceAll(gated(tc.shape), tc.old, tc.new)))
			if tc.old == "" {
				_, err = Read([]byte(gated(tc.shape)))
			}
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

package podsets

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	resourcehelper "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
	"github.com/muster-dev/muster/queueing/jobs/podgroup"
	"github.com/muster-dev/muster/queueing/workload"
)

var update = flag.Bool("update", false, "write the tables of docs/migration.md and docs/benchmarks.md again")

// answer is the result for an object, or for a List.
type answer struct {
	// PodSets are those of all its Workloads, which are named where pods are not of a job.
	PodSets   []kueue.PodSet
	Workloads []string
	// JobSet is what Trainer makes of a TrainJob.
	JobSet map[string]any
	Error  string
}

// kindOf is the kind of an object; of a List, that of the job in it.
func kindOf(object map[string]any) string {
	items, _ := object["items"].([]any)
	if len(items) == 0 {
		return object["kind"].(string)
	}
	if kind := items[len(items)-1].(map[string]any)["kind"].(string); kind != "Pod" {
		return kind
	}
	return "pod group"
}

// isGated reports whether pods of a kind are held one by one.
func isGated(kind string) bool {
	return slices.Contains([]string{"Pod", "pod group", "StatefulSet", "LeaderWorkerSet"}, kind)
}

// twin runs the program of Kueue's packages, and reads its lines.
func twin[T any](t *testing.T, in []byte, arguments ...string) (out []T) {
	t.Helper()
	program := os.Getenv("MUSTER_PODSETS_TWIN_BIN")
	if program == "" {
		t.Skip("MUSTER_PODSETS_TWIN_BIN does not name the twin: run `make test-more`, which builds it")
	}
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.Stdin, command.Stderr = bytes.NewReader(in), os.Stderr
	text, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var x T
		if err := json.Unmarshal(line, &x); err != nil {
			t.Fatal(err)
		}
		out = append(out, x)
	}
	return out
}

// answersOf returns Kueue's answers for objects.
func answersOf(t *testing.T, objects []map[string]any) []answer {
	t.Helper()
	var in bytes.Buffer
	for _, o := range objects {
		line, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	out := twin[answer](t, in.Bytes())
	if len(out) != len(objects) {
		t.Fatalf("%d answers for %d objects", len(out), len(objects))
	}
	return out
}

// ours returns Muster's answer for an object. jobSet is the JobSet that Trainer created for it, if any.
func ours(t *testing.T, kube client.Reader, object, jobSet map[string]any) (out answer) {
	t.Helper()
	items, isList := object["items"].([]any)
	if !isList {
		items = []any{object}
	}
	var objects []client.Object
	for _, item := range items {
		objects = append(objects, typed(t, runtime.DeepCopyJSON(item.(map[string]any))))
	}
	if isGated(kindOf(object)) {
		all, err := podgroup.Workloads(t.Context(), kube, objects...)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range all {
			out.PodSets, out.Workloads = append(out.PodSets, w.Spec.PodSets...), append(out.Workloads, w.Name)
			out.Error += w.Annotations[workload.RefusedAnnotation]
		}
		return out
	}
	job := objects[len(objects)-1]
	all := kinds.All()
	kind := all[slices.IndexFunc(all, func(k jobs.Kind) bool { return k.GroupVersionKind() == job.GetObjectKind().GroupVersionKind() })]
	if resolver, ok := kind.(jobs.Resolver); ok && jobSet != nil {
		resolver.Resolve(job, &unstructured.Unstructured{Object: jobSet})
	}
	w, err := jobs.NewWorkload(t.Context(), kube, kind, job, nil)
	if err != nil {
		t.Fatal(err)
	}
	return answer{PodSets: w.Spec.PodSets, Error: w.Annotations[workload.RefusedAnnotation]}
}

// typed has the Go type of an object where Muster reads it by that.
func typed(t *testing.T, object map[string]any) client.Object {
	t.Helper()
	o := &unstructured.Unstructured{Object: object}
	var out client.Object
	switch o.GetKind() {
	case "Job":
		out = &batchv1.Job{}
	case "Pod":
		out = &corev1.Pod{}
	case "StatefulSet":
		out = &appsv1.StatefulSet{}
	default:
		return o
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func newReader(t *testing.T) client.Reader {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, kueue.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(s).Build()
}

var same = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 }),
}

// compare returns how Muster's pod sets differ from Kueue's, and what it counts beside them on
// purpose: it takes that out of its own before.
func compare(kind string, ours, theirs answer) (beside []string, diff string) {
	for i := range min(len(ours.PodSets), len(theirs.PodSets)) {
		own, other := &ours.PodSets[i].Template.Spec, &theirs.PodSets[i].Template.Spec
		if isGated(kind) {
			// Kueue leaves it out of most of them, and Muster has what a policy adds.
			ours.PodSets[i].Template.ObjectMeta, theirs.PodSets[i].Template.ObjectMeta = metav1.ObjectMeta{}, metav1.ObjectMeta{}
		}
		if kind == "AppWrapper" {
			undefault(own)
			undefault(other)
		}
		for _, list := range []struct{ own, other *[]corev1.Container }{{&own.InitContainers, &other.InitContainers},
			{&own.Containers, &other.Containers}} {
			*list.own = slices.DeleteFunc(*list.own, func(c corev1.Container) bool {
				// The image of a container that is only counted is its name.
				unknown := c.Image == c.Name && !slices.ContainsFunc(*list.other, func(other corev1.Container) bool { return other.Name == c.Name })
				if unknown {
					beside = append(beside, fmt.Sprintf("container `%s`%s", c.Name, said(c.Resources.Requests)))
				}
				return unknown
			})
			for j := range min(len(*list.own), len(*list.other)) {
				own, other := &(*list.own)[j], &(*list.other)[j]
				if own.Image == own.Name {
					own.Image, own.Resources.Limits = other.Image, other.Resources.Limits
				}
				if kind == "SparkApplication" {
					beside = append(beside, sparkOverhead(own, other)...)
				}
			}
		}
	}
	return beside, cmp.Diff(theirs.Workloads, ours.Workloads) + cmp.Diff(theirs.PodSets, ours.PodSets, same)
}

// undefault takes out of the pods of an AppWrapper what the API server would add to them: Kueue
// decodes what is wrapped with its defaults.
func undefault(spec *corev1.PodSpec) {
	for i := range spec.Containers {
		c := &spec.Containers[i]
		c.TerminationMessagePath, c.TerminationMessagePolicy, c.ImagePullPolicy = "", "", ""
	}
	spec.TerminationGracePeriodSeconds, spec.DNSPolicy, spec.SecurityContext, spec.SchedulerName, spec.PreemptionPolicy = nil, "", nil, "", nil
}

// sparkOverhead subtracts from a container the memory that Spark requests in addition to that of its JVM: a tenth of that, and at least
// 384 MiB.
func sparkOverhead(own, other *corev1.Container) []string {
	const least = 384 << 20
	memory := other.Resources.Requests[corev1.ResourceMemory]
	more := max(least, memory.Value()/10)
	own.Image = other.Image
	if own.Resources.Requests.Memory().Value() != memory.Value()+more {
		return nil
	}
	own.Resources.Requests[corev1.ResourceMemory] = memory
	return []string{"Spark's memory overhead"}
}

func said(resources corev1.ResourceList) string {
	var out []string
	if n := resources.Cpu(); !n.IsZero() {
		out = append(out, n.String()+" CPU")
	}
	if n := resources.Memory(); !n.IsZero() {
		out = append(out, n.String())
	}
	if len(out) == 0 {
		return ""
	}
	return ", " + strings.Join(out, " and ")
}

// TestSamplesHaveKueuesPodSets: objects as Kueue's own tests make them have the same pod sets, in
// the same order, with the same counts, requests and topology requests. What Muster counts beside
// stands in the docs.
func TestSamplesHaveKueuesPodSets(t *testing.T) {
	samples, kube := twin[map[string]any](t, nil, "samples"), newReader(t)
	table := "| kind | pod sets of Kueue's sample, the same in Muster | Muster counts beside |\n| --- | --- | --- |\n"
	for i, theirs := range answersOf(t, samples) {
		kind := kindOf(samples[i])
		if theirs.Error != "" {
			t.Errorf("%s: Kueue does not take its own sample: %s", kind, theirs.Error)
		}
		beside, diff := compare(kind, ours(t, kube, samples[i], theirs.JobSet), theirs)
		if diff != "" {
			t.Errorf("%s, sample %d (-Kueue +Muster):\n%s", kind, i, diff)
		}
		var podSets []string
		for _, p := range theirs.PodSets {
			podSets = append(podSets, fmt.Sprintf("%s × %d", p.Name, p.Count))
		}
		table += fmt.Sprintf("| %s | %s | %s |\n", kind, strings.Join(podSets, ", "),
			strings.Join(slices.Compact(slices.Sorted(slices.Values(beside))), "; "))
	}
	isInDocs(t, "../../../docs/migration.md", "table of test/kueue/podsets", table)
}

// TestTheHeadHasRoomForCleaningUp: for a Ray cluster that keeps its state in Redis, Kueue raises the requests of the head to those of the
// Job that cleans up after it. Muster counts that Job.
func TestTheHeadHasRoomForCleaningUp(t *testing.T) {
	samples, kube := twin[map[string]any](t, nil, "samples"), newReader(t)
	specs := map[string][]string{"RayCluster": {"spec"}, "RayJob": {"spec", "rayClusterSpec"}, "RayService": {"spec", "rayClusterConfig"}}
	for _, cpu := range []string{"100m", "1"} {
		for _, o := range samples {
			path := specs[kindOf(o)]
			if path == nil {
				continue
			}
			head := slices.Concat(path, []string{"headGroupSpec", "template", "spec", "containers"})
			containers, _, _ := unstructured.NestedSlice(o, head...)
			containers[0].(map[string]any)["resources"] = map[string]any{"requests": map[string]any{"cpu": cpu}}
			options := slices.Concat(path, []string{"gcsFaultToleranceOptions", "redisAddress"})
			if err := errors.Join(unstructured.SetNestedSlice(o, containers, head...),
				unstructured.SetNestedField(o, "redis:6379", options...)); err != nil {
				t.Fatal(err)
			}
			asks := func(a answer) corev1.ResourceList {
				return resourcehelper.PodRequests(&corev1.Pod{Spec: a.PodSets[0].Template.Spec}, resourcehelper.PodResourcesOptions{})
			}
			theirs, mine := asks(answersOf(t, []map[string]any{o})[0]), asks(ours(t, kube, o, nil))
			// Kueue adds the sidecar that submits a job to what it has raised, though it ends before.
			if mode := o["spec"].(map[string]any)["submissionMode"]; mode == "SidecarMode" {
				continue
			}
			if diff := cmp.Diff(theirs, mine, same); diff != "" {
				t.Errorf("a head of %s CPUs of a %s (-Kueue +Muster):\n%s", cpu, o["kind"], diff)
			}
		}
	}
}

// isInDocs keeps a table in the docs true.
func isInDocs(t *testing.T, file, name, table string) {
	t.Helper()
	begin, end := "<!-- the "+name+" -->\n", "<!-- its end -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	was, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the table", file)
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(was, table); diff != "" {
		t.Errorf("%s is behind; run this test with -update (-docs +now):\n%s", file, diff)
	}
}

// TestRandomObjectsHaveKueuesPodSets: 3,000 variations of the samples, 300 with -short.
func TestRandomObjectsHaveKueuesPodSets(t *testing.T) {
	cases := 3_000
	if testing.Short() {
		cases = 300
	}
	samples, kube, r := twin[map[string]any](t, nil, "samples"), newReader(t), rand.New(rand.NewPCG(1, 2))
	objects := make([]map[string]any, cases)
	for i := range objects {
		objects[i] = runtime.DeepCopyJSON(samples[i%len(samples)])
		vary(r, kindOf(objects[i]), objects[i])
	}
	differ := map[string]int{}
	for i, theirs := range answersOf(t, objects) {
		kind := kindOf(objects[i])
		if theirs.Error != "" {
			t.Fatalf("case %d: Kueue does not take the %s: %s", i, kind, theirs.Error)
		}
		mine := ours(t, kube, objects[i], theirs.JobSet)
		if len(mine.PodSets) == 0 && total(theirs) == 0 {
			continue
		}
		if _, diff := compare(kind, mine, theirs); diff != "" {
			if differ[kind]++; differ[kind] == 1 {
				t.Errorf("case %d, a %s (-Kueue +Muster), refused: %q\n%s", i, kind, mine.Error, diff)
			}
		}
	}
	if len(differ) > 0 {
		t.Errorf("of %d cases these differ: %v", cases, differ)
	}
}

func total(a answer) (pods int32) {
	for _, p := range a.PodSets {
		pods += p.Count
	}
	return pods
}

// counted are fields that hold a number of pods, or of what has pods.
var counted = []string{"replicas", "parallelism", "completions", "numOfHosts", "instances"}

// vary changes at random how many pods an object has, their requests, and their topology.
func vary(r *rand.Rand, kind string, value any) {
	switch x := value.(type) {
	case []any:
		for _, inner := range x {
			vary(r, kind, inner)
		}
	case map[string]any:
		if _, ok := x["maxReplicas"]; ok {
			x["minReplicas"], x["maxReplicas"] = int64(0), int64(100)
		}
		for _, key := range sorted(x) {
			if n, ok := x[key].(int64); ok && slices.Contains(counted, key) && kind != "AppWrapper" {
				x[key] = 3 + r.Int64N(2*n+4) // more than the minimum of the sample
			}
			vary(r, kind, x[key])
		}
		if containers, ok := x["containers"].([]any); ok {
			varyPod(r, x, containers)
		}
		if spec, ok := x["spec"].(map[string]any); ok && spec["containers"] != nil && r.IntN(3) == 0 {
			near(r, x)
		}
	}
}

func sorted(m map[string]any) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// varyPod changes the requests of a pod.
func varyPod(r *rand.Rand, spec map[string]any, containers []any) {
	first := containers[0].(map[string]any)
	first["resources"] = map[string]any{"requests": map[string]any{"cpu": fmt.Sprintf("%dm", 100*(1+r.IntN(30))),
		"memory": fmt.Sprintf("%dMi", 64*(1+r.IntN(30)))}}
	if r.IntN(3) == 0 {
		spec["containers"] = append(containers, map[string]any{"name": "sidecar", "image": "sidecar:1",
			"resources": map[string]any{"limits": map[string]any{"example.com/gpu": fmt.Sprint(1 + r.IntN(8))}}})
	}
	if r.IntN(3) == 0 {
		spec["overhead"] = map[string]any{"cpu": "250m"}
	}
	if r.IntN(3) == 0 {
		spec["nodeSelector"] = map[string]any{"zone": fmt.Sprint(r.IntN(3))}
	}
}

// near adds a topology request.
func near(r *rand.Rand, template map[string]any) {
	asks := []map[string]any{
		{kueue.PodSetRequiredTopologyAnnotation: "rack"}, {kueue.PodSetPreferredTopologyAnnotation: "block"}, {kueue.PodSetUnconstrainedTopologyAnnotation: "true"},
		{kueue.PodSetRequiredTopologyAnnotation: "block", kueue.PodSetSliceRequiredTopologyAnnotation: "rack", kueue.PodSetSliceSizeAnnotation: "1"},
		{kueue.PodSetPreferredTopologyAnnotation: "block", kueue.PodSetSliceRequiredTopologyAnnotation: "rack", kueue.PodSetSliceSizeAnnotation: "1"},
	}
	metadata, _ := template["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		template["metadata"] = metadata
	}
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	maps.Copy(annotations, asks[r.IntN(len(asks))])
}

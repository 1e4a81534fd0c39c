package podsets

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	"github.com/muster-dev/muster/queueing/workload"
)

var update = flag.Bool("update", false, "write the table of docs/migration.md again")

// answer is what is said of an object.
type answer struct {
	PodSets []kueue.PodSet
	Error   string
}

// twin runs the program of Kueue's packages, and reads its lines.
func twin[T any](t *testing.T, in []byte, arguments ...string) (out []T) {
	t.Helper()
	program := os.Getenv("MUSTER_PODSETS_TWIN_BIN")
	if program == "" {
		t.Skip("MUSTER_PODSETS_TWIN_BIN does not name the twin: run `make test`, which builds it")
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

// asked has Kueue answer for objects.
func asked(t *testing.T, objects []map[string]any) []answer {
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

// ours is what Muster says of an object.
func ours(t *testing.T, kube client.Reader, object map[string]any) answer {
	t.Helper()
	o := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(object)}
	var job client.Object = o
	if o.GetKind() == "Job" {
		job = &batchv1.Job{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, job); err != nil {
			t.Fatal(err)
		}
	}
	all := kinds.All()
	i := slices.IndexFunc(all, func(k jobs.Kind) bool { return k.GroupVersionKind() == o.GroupVersionKind() })
	w, err := jobs.NewWorkload(t.Context(), kube, all[i], job)
	if err != nil {
		t.Fatal(err)
	}
	return answer{w.Spec.PodSets, w.Annotations[workload.RefusedAnnotation]}
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
					beside = append(beside, fmt.Sprintf("container `%s`, %s", c.Name, said(c.Resources.Requests)))
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
	return beside, cmp.Diff(theirs.PodSets, ours.PodSets, same)
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

// sparkOverhead takes out of a container the memory that Spark asks for beside that of its JVM: a
// tenth of that, and 384 MiB at least.
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
	return fmt.Sprintf("%s CPU and %s", resources.Cpu(), resources.Memory())
}

// TestSamplesHaveKueuesPodSets: objects as Kueue's own tests make them have the same pod sets, in
// the same order, with the same counts, requests and topology requests. What Muster counts beside
// stands in the docs.
func TestSamplesHaveKueuesPodSets(t *testing.T) {
	samples, kube := twin[map[string]any](t, nil, "samples"), newReader(t)
	table := "| kind | pod sets of Kueue's sample, the same in Muster | Muster counts beside |\n| --- | --- | --- |\n"
	for i, theirs := range asked(t, samples) {
		kind := samples[i]["kind"].(string)
		if theirs.Error != "" {
			t.Errorf("%s: Kueue does not take its own sample: %s", kind, theirs.Error)
		}
		beside, diff := compare(kind, ours(t, kube, samples[i]), theirs)
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
	isInDocs(t, table)
}

// TestTheHeadHasRoomForCleaningUp: of a Ray cluster that keeps its state in Redis, Kueue raises what the
// head asks for to what the Job needs that cleans up after it. Muster counts that Job.
func TestTheHeadHasRoomForCleaningUp(t *testing.T) {
	samples, kube := twin[map[string]any](t, nil, "samples"), newReader(t)
	specs := map[string][]string{"RayCluster": {"spec"}, "RayJob": {"spec", "rayClusterSpec"}, "RayService": {"spec", "rayClusterConfig"}}
	for _, cpu := range []string{"100m", "1"} {
		for _, o := range samples {
			path := specs[o["kind"].(string)]
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
			theirs, mine := asks(asked(t, []map[string]any{o})[0]), asks(ours(t, kube, o))
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

// isInDocs keeps the table in the docs true.
func isInDocs(t *testing.T, table string) {
	t.Helper()
	const file, begin, end = "../../../docs/migration.md", "<!-- the table of test/kueue/podsets -->\n", "<!-- its end -->\n"
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
		vary(r, objects[i]["kind"].(string), objects[i]["spec"])
	}
	differ := map[string]int{}
	for i, theirs := range asked(t, objects) {
		kind := objects[i]["kind"].(string)
		if theirs.Error != "" {
			t.Fatalf("case %d: Kueue does not take the %s: %s", i, kind, theirs.Error)
		}
		mine := ours(t, kube, objects[i])
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

// vary changes at random how many pods an object has, what they ask for, and how near to each other
// they are to run.
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

// varyPod changes what a pod asks for.
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

// near asks for a topology.
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
	metadata["annotations"] = asks[r.IntN(len(asks))]
}

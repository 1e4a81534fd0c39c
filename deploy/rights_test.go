package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/queueing/jobs/kinds"
	"github.com/muster-dev/muster/queueing/jobs/templates"
)

// sampleOf returns the sample of a kind.
func sampleOf(t *testing.T, k *kinds.Kind) *unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob("samples/kinds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if o.GroupVersionKind() == k.GroupVersionKind() {
				text, err := json.Marshal(o.Object)
				if err == nil {
					err = json.Unmarshal(text, &o.Object) // numbers become integers
				}
				if err != nil {
					t.Fatal(err)
				}
				return o
			}
		}
	}
	t.Fatalf("there is no sample of %s", k.Kind)
	return nil
}

// place is what a start gives the pods of each pod set.
func place(podSets int) []templates.Placement {
	x := map[string]string{"x": "x"}
	all := []corev1.Toleration{{Key: "t", Operator: corev1.TolerationOpExists}}
	updates := []kueue.PodSetUpdate{{Annotations: x, NodeSelector: x, Tolerations: all}}
	return slices.Repeat([]templates.Placement{{Updates: updates, Labels: x, Topology: true}}, podSets)
}

// leaves calls f for each value of an object that has no values of its own, with its path, and a function that changes it.
func leaves(value any, path string, change func(any), f func(path string, change func(any))) {
	switch x := value.(type) {
	case map[string]any:
		for k := range x {
			leaves(x[k], path+"/"+k, func(v any) { x[k] = v }, f)
		}
	case []any:
		for i := range x {
			leaves(x[i], fmt.Sprint(path, "/", i), func(v any) { x[i] = v }, f)
		}
	default:
		f(path, change)
	}
}

// TestMusterWritesOnlyWhatAStartNeeds: of each kind it may start and stop the sample, and change no other value of it, nor add one.
func TestMusterWritesOnlyWhatAStartNeeds(t *testing.T) {
	j := newJudge(t, "muster-rights-jobs")
	j.user = "system:serviceaccount:muster-system:muster"
	text := func(o *unstructured.Unstructured) string {
		out, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, k := range kinds.BuiltIn() {
		t.Run(k.Kind, func(t *testing.T) {
			held := sampleOf(t, k)
			if k.Kind == "TrainJob" { // its pods are those of its JobSet
				theirs := map[string]any{"manager": "theirs", "trainingRuntimeSpec": map[string]any{"x": "y"}}
				held.Object["spec"].(map[string]any)["runtimePatches"] = []any{theirs}
				jobSet := slices.IndexFunc(kinds.BuiltIn(), func(k *kinds.Kind) bool { return k.Kind == "JobSet" })
				k.Resolve(held, sampleOf(t, kinds.BuiltIn()[jobSet]))
			}
			if k.Kind == "AppWrapper" { // its controller reports them
				component := held.Object["spec"].(map[string]any)["components"].([]any)[0].(map[string]any)
				component["podSets"] = []any{map[string]any{"path": "template.spec.template", "replicas": int64(2)}}
			}
			k.Suspend(held)
			podSets, refusals := k.PodSets(held)
			if len(refusals) > 0 {
				t.Fatal(refusals)
			}
			started := held.DeepCopy()
			if _, err := k.Start(started, place(len(podSets))); err != nil {
				t.Fatal(err)
			}
			if j.refuses(text(held), text(started)) || j.refuses(text(started), text(held)) {
				t.Errorf("a start or a stop is refused, of\n%s\nas\n%s", text(held), text(started))
			}
			checked := 0
			for _, was := range []*unstructured.Unstructured{held, started} {
				leaves(was.DeepCopy().Object["spec"], "", nil, func(path string, _ func(any)) {
					changed := was.DeepCopy()
					leaves(changed.Object["spec"], "", nil, func(p string, change func(any)) {
						if p == path {
							change("forged")
						}
					})
					if may := mayWrite(k, path); j.refuses(text(was), text(changed)) == may {
						t.Errorf("a change of spec%s: may is %v", path, may)
					}
					checked++
				})
				more := was.DeepCopy()
				more.Object["spec"].(map[string]any)["forged"] = "x"
				if !j.refuses(text(was), text(more)) {
					t.Error("a field is added")
				}
			}
			if checked < 10 {
				t.Errorf("only %d values were changed", checked)
			}
		})
	}
}

// mayWrite reports whether Muster may change that value of the spec of a sample.
func mayWrite(k *kinds.Kind, path string) bool {
	switch {
	case "/spec"+path == k.Stanza.Suspend.Path:
		return true
	case k.Kind == "AppWrapper" && !strings.Contains(path, "/podSetInfos/"): // a start leaves the templates of components as they are
		return false
	case k.Kind == "TrainJob" && strings.HasPrefix(path, "/runtimePatches/1/") && strings.HasSuffix(path, "/name"): // the queues' entry
		return true
	}
	for _, part := range []string{"/labels", "/annotations", "/nodeSelector", "/tolerations", "/schedulingGates"} {
		if strings.Contains(path, part+"/") {
			return true
		}
	}
	return false
}

package stages

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the golden files; read the diff before you keep it")

// Every file testdata/CASE.yaml is an object, in which now+5m is a time; and
// CASE.golden.yaml is what KWOK's own code makes of it next: which stage matches,
// after what delay, with which calls.
func TestWhatHappensNext(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := load(t)
	cases := 0
	for _, input := range inputs {
		if strings.HasSuffix(input, ".golden.yaml") {
			continue
		}
		cases++
		t.Run(strings.TrimSuffix(filepath.Base(input), ".yaml"), func(t *testing.T) {
			golden := strings.TrimSuffix(input, ".yaml") + ".golden.yaml"
			got := next(t, all, withTimes(t, read(t, input)))
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want := read(t, golden); string(got) != string(want) {
				t.Errorf("%s differs; run go test -update ./kwok/stages and read the diff\ngot:\n%s\nwant:\n%s", golden, got, want)
			}
		})
	}
	if cases == 0 {
		t.Fatal("no test data")
	}
}

func TestEveryStageHasAName(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range load(t) {
		if s.Name == "" || seen[s.Name] {
			t.Errorf("stage %q: a name must be there and be unique", s.Name)
		}
		seen[s.Name] = true
	}
	if len(seen) != 17 {
		t.Errorf("%d stages were loaded, want 17: a lost separator hides the stage behind it", len(seen))
	}
}

// outcome is what one stage would do to the object.
type outcome struct {
	Stage string `json:"stage"`
	// Delay, or the shortest and the longest where it is drawn.
	Delay []string `json:"delay,omitempty"`
	Calls []call   `json:"calls"`
}

type call struct {
	Verb        string `json:"verb"`
	Subresource string `json:"subresource,omitempty"`
	Body        any    `json:"body,omitempty"`
}

func next(t *testing.T, all []*internalversion.Stage, input []byte) []byte {
	t.Helper()
	object := object(t, input)
	ctx := context.Background()
	stages, err := lifecycle.NewLifecycle(stagesFor(all, object))
	if err != nil {
		t.Fatal(err)
	}
	event := eventOf(t, object, input)
	matched, err := stages.ListAllPossible(ctx, event)
	if err != nil {
		t.Fatal(err)
	}
	if len(matched) > 1 {
		t.Fatalf("%d stages match and KWOK would draw one of them: selectors must exclude each other", len(matched))
	}
	outcomes := []outcome{}
	for _, stage := range matched {
		delays, _, err := stage.DelayRangePossible(ctx, event, time.Now())
		if err != nil {
			t.Fatalf("delay of %s: %v", stage.Name(), err)
		}
		o := outcome{Stage: stage.Name()}
		for _, delay := range delays {
			o.Delay = append(o.Delay, delay.Round(time.Minute).String())
		}
		add := func(verb, subresource string, data []byte) error {
			var body any
			if err := json.Unmarshal(data, &body); err != nil {
				return err
			}
			o.Calls = append(o.Calls, call{verb, subresource, steady(body)})
			return nil
		}
		_, err = stage.DoSteps(0, object.GetFinalizers(), event.Data, renderer(),
			func(*internalversion.StageEvent) error { return fmt.Errorf("no stage sends events: they are writes") },
			func() error { o.Calls = append(o.Calls, call{Verb: "delete"}); return nil },
			func(p *lifecycle.Patch) error { return add("patch", p.Subresource, p.Data) },
			func(a *lifecycle.Apply) error { return add("apply", a.Subresource, a.Data) })
		if err != nil {
			t.Fatalf("steps of %s: %v", stage.Name(), err)
		}
		outcomes = append(outcomes, o)
	}
	out, err := yaml.Marshal(outcomes)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var aroundNow = regexp.MustCompile(`\bnow([+-][0-9]+m)\b`)

// withTimes is the inverse of steady.
func withTimes(t *testing.T, input []byte) []byte {
	t.Helper()
	return aroundNow.ReplaceAllFunc(input, func(word []byte) []byte {
		away, err := time.ParseDuration(string(word[len("now"):]))
		if err != nil {
			t.Fatal(err)
		}
		return []byte(time.Now().Add(away).Format(time.RFC3339Nano))
	})
}

// steady replaces times near now by how far away they are, to the minute.
func steady(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = steady(v[k])
		}
	case []any:
		for i := range v {
			v[i] = steady(v[i])
		}
	case string:
		at, err := time.Parse(time.RFC3339Nano, v)
		if err == nil && time.Until(at).Abs() < 24*time.Hour {
			return fmt.Sprintf("now%+.0fm", time.Until(at).Round(time.Minute).Minutes())
		}
	}
	return v
}

func load(t *testing.T) []*internalversion.Stage {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stages.yaml")
	if err := os.WriteFile(file, YAML(), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, err := config.Load(context.Background(), file)
	if err != nil {
		t.Fatalf("KWOK cannot load the stages: %v", err)
	}
	return config.FilterWithType[*internalversion.Stage](objects)
}

func stagesFor(all []*internalversion.Stage, object *unstructured.Unstructured) (out []*internalversion.Stage) {
	for _, s := range all {
		if s.Spec.ResourceRef.APIGroup == object.GetAPIVersion() && s.Spec.ResourceRef.Kind == object.GetKind() {
			out = append(out, s)
		}
	}
	return out
}

func renderer() gotpl.Renderer {
	return gotpl.NewRenderer(gotpl.FuncMap{
		"NodeIP":      func() string { return "10.0.0.1" },
		"NodePort":    func() int { return 10247 },
		"NodeIPsWith": func(string) []string { return []string{"10.0.0.1"} },
		"PodIPsWith":  func(string, bool, string, string, string) []string { return []string{"10.1.0.1"} },
	})
}

func object(t *testing.T, data []byte) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// eventOf gives KWOK the object as it would see it: nodes and pods by their Go
// types, everything else unstructured.
func eventOf(t *testing.T, u *unstructured.Unstructured, data []byte) *lifecycle.Event {
	t.Helper()
	event := &lifecycle.Event{Labels: u.GetLabels(), Annotations: u.GetAnnotations(), Data: u}
	switch u.GetKind() {
	case "Node":
		event.Data = &corev1.Node{}
	case "Pod":
		event.Data = &corev1.Pod{}
	default:
		return event
	}
	if err := yaml.UnmarshalStrict(data, event.Data); err != nil {
		t.Fatal(err)
	}
	return event
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

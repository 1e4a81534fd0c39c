package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	internalversion "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// TestRulesOfWorkloadsAreKueues: what is refused of a Workload is what the CRD in Kueue's module refuses, by rules that are written
// otherwise; for all pairs of what the rules look at.
func TestRulesOfWorkloadsAreKueues(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs := rulesOf(t, filepath.Join(strings.TrimSpace(string(dir)), "config/components/crd/bases/kueue.x-k8s.io_workloads.yaml"))
	ours := rulesOf(t, crds+"/kueue.x-k8s.io_workloads.yaml")
	if len(theirs) != len(ours) {
		t.Fatalf("Kueue has %d rules, and Muster %d", len(theirs), len(ours))
	}
	all := workloadsThatRulesTellApart(t)
	refused := make([]int, len(ours))
	for _, old := range all {
		for _, now := range all {
			of := map[string]any{"self": now, "oldSelf": old}
			for i := range ours {
				want, got := refuses(theirs[i].program, of), refuses(ours[i].program, of)
				if want {
					refused[i]++
				}
				if got != want {
					t.Fatalf("%s\nof %s\nto %s\nrefused: %v, by Kueue: %v", ours[i].message, asJSON(t, old), asJSON(t, now), got, want)
				}
			}
		}
	}
	for i, n := range refused {
		if n == 0 || n == len(all)*len(all) {
			t.Errorf("%q refuses %d of %d changes, so that they tell nothing", ours[i].message, n, len(all)*len(all))
		}
	}
}

// TestCRDsAreValid by kube-apiserver's own judgement, which bounds what their rules may cost.
func TestCRDsAreValid(t *testing.T) {
	files, err := filepath.Glob(crds + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			crd := readCRD(t, f)
			apiextensions.SetDefaults_CustomResourceDefinition(crd)
			apiextensions.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
			crd.Status.StoredVersions = []string{}
			for _, v := range crd.Spec.Versions {
				if v.Storage {
					crd.Status.StoredVersions = append(crd.Status.StoredVersions, v.Name)
				}
			}
			var internal internalversion.CustomResourceDefinition
			if err := apiextensions.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, &internal, nil); err != nil {
				t.Fatal(err)
			}
			if errs := validation.ValidateCustomResourceDefinition(t.Context(), &internal); len(errs) > 0 {
				t.Error(errs.ToAggregate())
			}
		})
	}
}

func readCRD(t *testing.T, file string) *apiextensions.CustomResourceDefinition {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensions.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

// compiledRule is one of a CRD.
type compiledRule struct {
	message string
	program celgo.Program
}

// rulesOf compiles the rules of a field, or of the object, in v1beta2.
func rulesOf(t *testing.T, file string, path ...string) (out []compiledRule) {
	t.Helper()
	env, err := expressions().Env(environment.StoredExpressions)
	if err == nil {
		env, err = env.Extend(celgo.Variable("self", celgo.DynType), celgo.Variable("oldSelf", celgo.DynType))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range readCRD(t, file).Spec.Versions {
		if v.Name != "v1beta2" {
			continue
		}
		field := *v.Schema.OpenAPIV3Schema
		for _, name := range path {
			field = field.Properties[name]
		}
		for _, r := range field.XValidations {
			ast, issues := env.Compile(r.Rule)
			if issues.Err() != nil {
				t.Fatal(issues.Err())
			}
			program, err := env.Program(ast)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, compiledRule{r.Message, program})
		}
	}
	return out
}

// refuses: kube-apiserver takes an error for a refusal, too.
func refuses(p celgo.Program, of map[string]any) bool {
	out, _, err := p.Eval(of)
	return err != nil || out.Value() != true
}

// TestWhatMayChangeOfATopology: levels above the nodes, and the nodes and tolerations of its flavors, as in Kueue 0.20.
func TestWhatMayChangeOfATopology(t *testing.T) {
	levels := func(labels ...string) string { return "[{nodeLabel: " + strings.Join(labels, "}, {nodeLabel: ") + "}]" }
	const host = "kubernetes.io/hostname"
	for name, tt := range map[string]struct {
		kind     string
		path     []string
		old, now string
		refused  string
	}{
		"no change":                      {"topologies", []string{"spec", "levels"}, levels("rack"), levels("rack"), ""},
		"a level less":                   {"topologies", []string{"spec", "levels"}, levels("block", "rack", host), levels("rack", host), ""},
		"another level":                  {"topologies", []string{"spec", "levels"}, levels("rack", host), levels("block", host), ""},
		"nodes that are not a level now": {"topologies", []string{"spec", "levels"}, levels("rack", host), levels("rack"), "levels are mutable only when"},
		"nodes that were not a level":    {"topologies", []string{"spec", "levels"}, levels("rack"), levels("rack", host), "levels are mutable only when"},
		"another level without nodes":    {"topologies", []string{"spec", "levels"}, levels("rack"), levels("block"), "levels are mutable only when"},
		"the nodes of a flavor": {"resourceflavors", []string{"spec"}, "{topologyName: t, nodeLabels: {pool: a}}",
			"{topologyName: t, nodeLabels: {pool: b}}", ""},
		"the last label of a flavor": {"resourceflavors", []string{"spec"}, "{topologyName: t, nodeLabels: {pool: a}}",
			"{topologyName: t, nodeLabels: {}}", "a topology needs nodeLabels"},
		"the tolerations of a flavor": {"resourceflavors", []string{"spec"}, "{topologyName: t, nodeLabels: {pool: a}}",
			"{topologyName: t, nodeLabels: {pool: a}, tolerations: [{operator: Exists}]}", ""},
		"its topology": {"resourceflavors", []string{"spec"}, "{topologyName: t, nodeLabels: {pool: a}}",
			"{topologyName: other, nodeLabels: {pool: a}}", "topologyName is immutable"},
	} {
		refused := ""
		for _, r := range rulesOf(t, filepath.Join(crds, "kueue.x-k8s.io_"+tt.kind+".yaml"), tt.path...) {
			if refuses(r.program, map[string]any{"self": fromYAML(t, tt.now), "oldSelf": fromYAML(t, tt.old)}) {
				refused += r.message
			}
		}
		if (refused == "") != (tt.refused == "") || !strings.HasPrefix(refused, tt.refused) {
			t.Errorf("%s: refused by %q, want %q", name, refused, tt.refused)
		}
	}
}

// workloadsThatRulesTellApart has the schema's required fields.
func workloadsThatRulesTellApart(t *testing.T) (out []any) {
	t.Helper()
	const podSets = "podSets: [{name: main}]"
	specs := []string{
		"", "spec: {" + podSets + "}, ",
		"spec: {" + podSets + ", queueName: a, maximumExecutionTimeSeconds: 0}, ",
		"spec: {" + podSets + ", queueName: b, maximumExecutionTimeSeconds: 5}, ",
	}
	for _, class := range []string{
		"group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: a", "group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: b",
		"group: scheduling.k8s.io, kind: PriorityClass, name: a", "group: scheduling.k8s.io, kind: PriorityClass, name: b",
	} {
		specs = append(specs, "spec: {"+podSets+", priorityClassRef: {"+class+"}}, ")
	}
	for _, spec := range specs {
		out = append(out, fromYAML(t, "{"+spec+"metadata: {}}"))
		for _, admission := range []string{"", "admission: {podSetAssignments: [{name: main}]}, ",
			"admission: {podSetAssignments: [{name: main}, {name: other}]}, "} {
			out = append(out, fromYAML(t, "{"+spec+"status: {"+admission+"}}"))
			for _, conditions := range []string{"", "{type: QuotaReserved, status: 'True'}", "{type: QuotaReserved, status: 'False'}",
				"{type: Finished, status: 'True'}, {type: QuotaReserved, status: 'True'}, {type: Admitted, status: 'True'}"} {
				out = append(out, fromYAML(t, "{"+spec+"status: {"+admission+"conditions: ["+conditions+"]}}"))
			}
		}
	}
	return out
}

func fromYAML(t *testing.T, text string) (out any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

func asJSON(t *testing.T, o any) string {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

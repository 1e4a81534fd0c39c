package podsets

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-dev/muster/queueing/jobs/conformance"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

// integrations are the folders of Kueue's integrations; the others are named as their kind. Those of Kubeflow share one beside.
var integrations = map[string]string{
	"PyTorchJob": "kubeflow/jobs/pytorchjob", "TFJob": "kubeflow/jobs/tfjob", "XGBoostJob": "kubeflow/jobs/xgboostjob",
	"PaddleJob": "kubeflow/jobs/paddlejob", "JAXJob": "kubeflow/jobs/jaxjob",
}

// functions are the files of kinds whose objects have no pod templates.
var functions = map[string][]string{
	"TrainJob": {"trainjob.go"}, "AppWrapper": {"appwrapper.go", "wrapped.go"}, "SparkApplication": {"spark.go"},
}

// TestTheLinesOfEachKindAreInTheDocs: those of its stanza and functions beside those of Kueue's integration, and the writes that the
// conformance suite counts.
func TestTheLinesOfEachKindAreInTheDocs(t *testing.T) {
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(strings.TrimSpace(string(module)), "pkg/controller/jobs")
	const own = "../../../queueing/jobs/kinds"
	stanzas, writes := stanzaLines(t, filepath.Join(own, "builtin")), conformance.Writes()
	table := "| kind | stanza | functions | Kueue's integration | writes of a job, of one that is evicted once |\n" +
		"| --- | --- | --- | --- | --- |\n"
	for _, k := range kinds.BuiltIn() {
		inGo := 0
		for _, file := range functions[k.Kind] {
			inGo += lines(t, filepath.Join(own, file))
		}
		folder := integrations[k.Kind]
		if folder == "" {
			folder = strings.ToLower(k.Kind)
		}
		need, ok := writes[k.Kind]
		if !ok || stanzas[k.Kind] == 0 {
			t.Errorf("%s has %d lines of a stanza, and the writes %v", k.Kind, stanzas[k.Kind], need)
		}
		table += fmt.Sprintf("| %s | %d | %d | %s | %d, %d |\n", k.Kind, stanzas[k.Kind], inGo, linesOf(t, filepath.Join(theirs, folder)),
			need[0], need[1])
	}
	isInDocs(t, "../../../docs/benchmarks.md", "lines of kinds", table)
}

// stanzaLines are those of each kind.
func stanzaLines(t *testing.T, folder string) map[string]int {
	t.Helper()
	out := map[string]int{}
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		count, kind := 0, ""
		for _, line := range written(t, file, "#") {
			if strings.HasPrefix(line, "- ") {
				count, kind = 0, ""
			}
			if name, ok := strings.CutPrefix(line, "  kind: "); ok {
				kind = name
			}
			if count++; kind != "" {
				out[kind] = count
			}
		}
	}
	return out
}

// linesOf counts the lines of the Go files of a folder, without tests. It is empty for a kind that Kueue does not integrate.
func linesOf(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		return "none"
	}
	n := 0
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			n += lines(t, file)
		}
	}
	return strconv.Itoa(n)
}

func lines(t *testing.T, file string) int {
	t.Helper()
	return len(written(t, file, "//"))
}

// written are the lines of a file that are not empty and no comments.
func written(t *testing.T, file, comment string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if bare := strings.TrimSpace(line); bare != "" && !strings.HasPrefix(bare, comment) {
			out = append(out, strings.TrimRight(line, "\n"))
		}
	}
	return out
}

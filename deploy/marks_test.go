package deploy

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryMarkIsInTheThreatModel: what decides in the code has a row there, with its writers; a policy that a row names is
// there, and looks at the mark.
func TestEveryMarkIsInTheThreatModel(t *testing.T) {
	text, err := os.ReadFile("../docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	policies := map[string]string{}
	objects, err := Manifests(Halves...)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if strings.HasSuffix(o.GetKind(), "AdmissionPolicy") {
			spec, err := json.Marshal(o.Object["spec"])
			if err != nil {
				t.Fatal(err)
			}
			policies[o.GetName()] = string(spec)
		}
	}
	listed := map[string]bool{}
	quoted := regexp.MustCompile("`([^`]+)`")
	_, marks, found := strings.Cut(string(text), "## Marks\n")
	if !found {
		t.Fatal("there are no marks")
	}
	for line := range strings.Lines(marks) {
		cells := strings.Split(line, "|")
		const on, mark, decides, who, policy, all = 1, 2, 3, 4, 5, 7
		if len(cells) != all || !strings.Contains(cells[mark], "`") {
			continue
		}
		for _, cell := range []int{on, decides, who} {
			if strings.TrimSpace(cells[cell]) == "" {
				t.Errorf("the row of %s lacks something", cells[mark])
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[mark], -1) {
			listed[m[1]] = true
			for _, p := range quoted.FindAllStringSubmatch(cells[policy], -1) {
				if spec, ok := policies[p[1]]; !ok {
					t.Errorf("there is no policy %s, which is to guard %s", p[1], m[1])
				} else if !looksAt(spec, m[1]) {
					t.Errorf("the policy %s does not look at %s", p[1], m[1])
				}
			}
		}
	}
	for mark, file := range marksInCode(t) {
		if !listed[mark] {
			t.Errorf("%s, of %s, has no row in docs/threat-model.md", mark, file)
		}
	}
}

// looksAt reports whether a policy names a mark, a prefix of it, or all but certain ones, as those of Muster's own rights do.
func looksAt(policy, mark string) bool {
	prefix, _, _ := strings.Cut(mark, "/")
	return strings.Contains(policy, mark) || strings.Contains(policy, "startsWith('"+prefix+"/')") ||
		strings.Contains(policy, "metadata.?annotations != oldObject.metadata.?annotations")
}

// marksInCode are the keys that the code names as constants of their own, by the files where it does.
func marksInCode(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	key := regexp.MustCompile(`"((?:[a-z-]+\.)*` +
		`(?:kueue\.x-k8s\.io|muster\.dev|muster\.node-restriction\.kubernetes\.io|cluster-autoscaler\.kubernetes\.io)/[A-Za-z0-9./_-]*)"`)
	for _, dir := range []string{"queueing", "provisioning", "nodegroups", "cloudprovider"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, d fs.DirEntry, err error) error {
			isCode := strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "conformance")
			if err != nil || d.IsDir() || !isCode {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range key.FindAllStringSubmatch(string(text), -1) {
				if m[1] != "muster.dev/" { // what all of Muster's begin with
					out[m[1]] = path
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

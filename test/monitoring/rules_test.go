package monitoring

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const rulesFile = "../../deploy/charts/muster/files/rules.yaml"

// rule is a recording rule or an alert.
type rule struct {
	Record string `json:"record"`
	Alert  string `json:"alert"`
	Expr   string `json:"expr"`

	Annotations map[string]string `json:"annotations"`
}

func rules(t *testing.T) (out []rule) {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

var (
	// selector matches a metric of ours in an expression, with its matchers.
	selector = regexp.MustCompile(`\b((?:muster|kueue)[_:][a-z0-9_:]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)
	// grouped are the labels that series are put together by.
	grouped = regexp.MustCompile(`\b(?:by|on|group_left)\s*\(([^)]*)\)`)
	part    = regexp.MustCompile(`_(?:bucket|sum|count)$`)
)

// exists checks that each metric in an expression is one of Muster's or the result of a rule, and that it has the labels that the
// expression uses.
func exists(t *testing.T, where, expr string) {
	t.Helper()
	all := registered(t)
	labels := []string{"le"}
	found := selector.FindAllStringSubmatch(expr, -1)
	if len(found) == 0 {
		t.Errorf("%s names no metric of Muster: %s", where, expr)
	}
	for _, f := range found {
		name := f[1]
		m, known := all[name]
		if !known {
			m, known = all[part.ReplaceAllString(name, "")]
		}
		if strings.HasPrefix(name, "muster:") {
			if !slices.ContainsFunc(rules(t), func(r rule) bool { return r.Record == name }) {
				t.Errorf("%s: no rule records %s", where, name)
			}
			labels = slices.Concat(labels, []string{"reason"}, all["muster_group_info"].labels, all["muster_attempts_total"].labels)
			continue
		}
		if !known {
			t.Errorf("%s: there is no metric %s", where, name)
		}
		labels = append(labels, m.labels...)
		for _, l := range matcher.FindAllStringSubmatch(f[2], -1) {
			if !slices.Contains(m.labels, l[1]) {
				t.Errorf("%s: %s has no label %s, but %v", where, name, l[1], m.labels)
			}
		}
	}
	for _, by := range grouped.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(by[1], ",") {
			if l = strings.TrimSpace(l); l != "" && !slices.Contains(labels, l) {
				t.Errorf("%s: no metric in it has the label %s: %s", where, l, expr)
			}
		}
	}
}

func TestRulesQueryMetricsThatExist(t *testing.T) {
	all := rules(t)
	if len(all) == 0 {
		t.Fatal("there are no rules")
	}
	for _, r := range all {
		exists(t, r.Record+r.Alert, r.Expr)
	}
}

// TestTheRulesTestsPass has promtool, which comes with Prometheus, run the tests of
// the rules.
func TestTheRulesTestsPass(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not on the PATH, so the tests of the rules do not run; on Debian it is in the package prometheus")
	}
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", "../../deploy/monitoring/rules_test.yaml"}} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// TestEachAlertHasARunbook that exists.
func TestEachAlertHasARunbook(t *testing.T) {
	text, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		want := "https://github.com/muster-dev/muster/blob/main/docs/alerts.md#" + strings.ToLower(r.Alert)
		if r.Annotations["runbook_url"] != want {
			t.Errorf("%s has the runbook %q, want %s", r.Alert, r.Annotations["runbook_url"], want)
		}
		if !strings.Contains(string(text), "\n## "+r.Alert+"\n") {
			t.Errorf("docs/alerts.md has no section %s", r.Alert)
		}
	}
}

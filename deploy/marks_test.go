package deploy

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestEveryMarkIsInTheThreatModel: what decides in the code has a row there, with its writers; a policy that a row names is
// there, and looks at the mark.
func TestEveryMarkIsInTheThreatModel(t *testing.T) {
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
	for _, row := range marksInThreatModel(t) {
		for _, m := range row.marks {
			listed[m] = true
			for _, p := range row.policies {
				if spec, ok := policies[p]; !ok {
					t.Errorf("there is no policy %s, which is to guard %s", p, m)
				} else if !looksAt(spec, m) {
					t.Errorf("the policy %s does not look at %s", p, m)
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

// markRow is a row of the table of marks in the threat model.
type markRow struct {
	on, who         string
	marks, policies []string
}

// marksInThreatModel reads the table.
func marksInThreatModel(t *testing.T) (out []markRow) {
	t.Helper()
	text, err := os.ReadFile("../docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	in := func(cell string) (out []string) {
		for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
			out = append(out, m[1])
		}
		return out
	}
	_, table, _ := strings.Cut(string(text), "## Marks\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		const on, mark, decides, who, policy, all = 1, 2, 3, 4, 5, 7
		if len(cells) != all || len(in(cells[mark])) == 0 {
			continue
		}
		for _, cell := range []int{on, decides, who} {
			if strings.TrimSpace(cells[cell]) == "" {
				t.Errorf("the row of %s lacks something", cells[mark])
			}
		}
		out = append(out, markRow{strings.TrimSpace(cells[on]), strings.TrimSpace(cells[who]), in(cells[mark]), in(cells[policy])})
	}
	if len(out) == 0 {
		t.Fatal("there are no marks")
	}
	return out
}

// marked are objects that bear marks, as they are before and after their start, by the policy that guards these. Some guard another kind,
// too, that has marks of its own.
var marked = map[string]struct{ held, started, other string }{
	"muster-jobs-start": {
		held: "{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: q}}, " +
			"spec: {suspend: true, template: {}}}",
		started: "{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: q}, " +
			"annotations: {muster.dev/started: '{}'}}, spec: {suspend: false, template: {}}}",
	},
	"muster-jobs-parts": {
		started: "{apiVersion: batch/v1, kind: Job, metadata: {name: j, ownerReferences: [{apiVersion: jobset.x-k8s.io/v1alpha2, " +
			"kind: JobSet, name: s, uid: s, controller: true}]}, " +
			"spec: {suspend: false, template: {metadata: {labels: {kueue.x-k8s.io/podset: p}}}}}",
	},
	"muster-pods-gates": {
		held: "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {kueue.x-k8s.io/queue-name: q, kueue.x-k8s.io/managed: 'true'}}, " +
			"spec: {containers: [], schedulingGates: [{name: kueue.x-k8s.io/admission}]}}",
		started: "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {kueue.x-k8s.io/queue-name: q, " +
			"kueue.x-k8s.io/managed: 'true'}}, spec: {containers: []}}",
	},
	"muster-pods-marks": {
		started: "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {kueue.x-k8s.io/queue-name: q}}, spec: {containers: []}}",
	},
	"muster-jobs-gates": {
		started: "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {kueue.x-k8s.io/podset: p}, " +
			"annotations: {kueue.x-k8s.io/workload: w}}, spec: {containers: [], schedulingGates: [{name: kueue.x-k8s.io/topology}]}}",
	},
	"muster-workloads": {
		started: "{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {name: w, annotations: {kueue.x-k8s.io/admission-gated-by: a, " +
			"muster.dev/fence: 1h}}, spec: {podSets: []}}",
	},
	"muster-jobs-users": {
		started: "{apiVersion: batch/v1, kind: Job, metadata: {name: j, annotations: {muster.dev/submitted-by: tenant}}, " +
			"spec: {template: {}}}",
	},
	"muster-rights-queues": {
		started: "{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: q}, spec: {}}",
		other:   "{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: q, namespace: n}, spec: {}}",
	},
	"muster-rights-nodes": {started: "{apiVersion: v1, kind: Node, metadata: {name: n}, spec: {}}"},
}

// forms are all ways of writing a mark on an object, in YAML.
func forms(t *testing.T, object, mark string) (out []string) {
	t.Helper()
	write := func(change func(o map[string]any, of func(string) map[string]any)) {
		o := map[string]any{}
		if err := yaml.Unmarshal([]byte(object), &o); err != nil {
			t.Fatal(err)
		}
		metadata := o["metadata"].(map[string]any)
		change(o, func(field string) map[string]any {
			if metadata[field] == nil {
				metadata[field] = map[string]any{}
			}
			return metadata[field].(map[string]any)
		})
		maps.DeleteFunc(metadata, func(_ string, value any) bool { m, ok := value.(map[string]any); return ok && len(m) == 0 })
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if was, err := yaml.JSONToYAML([]byte(object)); err != nil || string(was) != string(text) {
			out = append(out, string(text))
		}
	}
	for _, field := range []string{"labels", "annotations"} {
		write(func(_ map[string]any, of func(string) map[string]any) { of(field)[mark] = "true" })
		write(func(_ map[string]any, of func(string) map[string]any) { of(field)[mark] = "forged" })
		write(func(_ map[string]any, of func(string) map[string]any) { delete(of(field), mark) })
	}
	write(func(o map[string]any, _ func(string) map[string]any) {
		spec := o["spec"].(map[string]any)
		if gates, ok := spec["schedulingGates"].([]any); ok {
			spec["schedulingGates"] = slices.DeleteFunc(gates, func(g any) bool { return g.(map[string]any)["name"] == mark })
		}
	})
	return out
}

// writable reports whether a policy lets an account write a mark in some form, and whether it refuses it in some form that it lets
// another account write.
func writable(t *testing.T, j *judge, object, mark, by, other string) (allowed, refused bool) {
	t.Helper()
	for _, form := range forms(t, object, mark) {
		j.user = by
		refuses := j.refuses(object, form)
		j.user = other
		allowed = allowed || !refuses
		refused = refused || refuses && !j.refuses(object, form)
	}
	return allowed, refused
}

// TestMarksAreWrittenByWhomTheThreatModelNames: each row with a policy names the accounts that may write its marks; the policy refuses all
// others.
func TestMarksAreWrittenByWhomTheThreatModelNames(t *testing.T) {
	const muster, tenant = "system:serviceaccount:muster-system:muster", "tenant"
	judges := map[string]*judge{}
	for policy := range marked {
		judges[policy] = newJudge(t, policy)
	}
	checked := map[string]bool{}
	for _, row := range marksInThreatModel(t) {
		for _, policy := range row.policies {
			j, objects := judges[policy], marked[policy]
			if j == nil {
				continue // it mutates, and so leaves nothing to be refused
			}
			if strings.Contains(objects.other, "kind: "+strings.TrimSuffix(row.on, "s")+",") {
				objects.started = objects.other
			}
			for _, mark := range row.marks {
				var ok bool
				switch {
				case strings.HasPrefix(row.who, "its user, until it starts"):
					_, ok = writable(t, j, objects.started, mark, tenant, muster)
					free, _ := writable(t, j, objects.held, mark, tenant, muster)
					ok = ok && free
				case strings.HasPrefix(row.who, "administrators; not Muster"):
					allowed, refused := writable(t, j, objects.started, mark, muster, tenant)
					ok = refused && !allowed
				case strings.HasPrefix(row.who, "Muster, and administrators"):
					_, foreign := writable(t, j, objects.started, "example.com/x", muster, tenant)
					ok, _ = writable(t, j, objects.started, mark, muster, tenant)
					ok = ok && foreign
				default:
					_, ok = writable(t, j, objects.started, mark, tenant, muster)
					if !ok && objects.held != "" {
						_, ok = writable(t, j, objects.held, mark, tenant, muster)
					}
				}
				if !ok {
					t.Errorf("%s on %s: by the threat model who may write it is %q, and %s does not hold that", mark, row.on, row.who, policy)
				}
				checked[policy] = true
			}
		}
	}
	for policy := range marked {
		if !checked[policy] {
			t.Errorf("no mark is guarded by %s", policy)
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

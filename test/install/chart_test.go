package install

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/deploy"
)

// The charts.
const (
	chart = "../../deploy/charts/muster"
	crds  = "../../deploy/charts/muster-crds"
)

// program returns the program that a variable names; without one the test is skipped.
func program(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("%s does not name a program: run `make install-test`, which builds it", variable)
	}
	return path
}

// helm runs Helm and returns what it prints.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(program(t, "MUSTER_HELM_BIN"), args...)
	var out, told bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &told
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	if err := cmd.Run(); err != nil {
		return told.String(), err
	}
	return out.String(), nil
}

// template renders a chart for a version of Kubernetes. The objects are in the order of Helm.
func template(t *testing.T, path, kubernetes string, args ...string) []*unstructured.Unstructured {
	t.Helper()
	out, err := helm(t, append([]string{"template", "muster", path, "--kube-version", kubernetes}, args...)...)
	if err != nil {
		t.Fatalf("helm template %v: %v\n%s", args, err, out)
	}
	objects, err := deploy.Decode([]byte(out))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func key(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// decoded is the object as a decoder of text has it, which has one type for all numbers.
func decoded(t *testing.T, o *unstructured.Unstructured) (out map[string]any) {
	t.Helper()
	text, err := json.Marshal(o.Object)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// own are the kinds of the objects that the chart has beside the manifests.
var own = []string{"Deployment", "PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor", "PrometheusRule", "Ingress"}

// TestTheChartsAreTheManifests that `muster manifests` prints, whatever the names, the halves and
// the version of Kubernetes.
func TestTheChartsAreTheManifests(t *testing.T) {
	all := []string{"--set", "dashboard.enabled=true,kwok.enabled=true"}
	for _, tc := range []struct {
		name, kubernetes string
		args, crds       []string
		names            deploy.Names
		halves           []deploy.Half
		mutations        deploy.Mutations
		dryRun           bool
	}{
		{"as it is", "1.36", all, []string{"--set", "kwok=true"}, deploy.DefaultNames, deploy.Halves, deploy.ByPolicies, false},
		{"other names", "1.36", slices.Concat(all, []string{"--set", "serviceAccount.name=holder,dashboard.serviceAccount.name=page"}),
			[]string{"--set", "kwok=true"}, deploy.Names{Namespace: "batch", ServiceAccount: "holder", Dashboard: "page"}, deploy.Halves,
			deploy.ByPolicies, false},
		{"an older Kubernetes", "1.34", all, []string{"--set", "kwok=true"}, deploy.DefaultNames, deploy.Halves, deploy.ByWebhook, false},
		{"an older one of another name", "1.33", all, []string{"--set", "kwok=true"},
			deploy.Names{Namespace: "batch", ServiceAccount: "muster", Dashboard: "muster-dashboard"}, deploy.Halves, deploy.ByWebhook, false},
		{"without a webhook", "1.34", slices.Concat(all, []string{"--set", "mutations=controllers"}), []string{"--set", "kwok=true"},
			deploy.DefaultNames, deploy.Halves, deploy.ByControllers, false},
		{"for Kueue's queues", "1.36", slices.Concat(all, []string{"--set", "settings.queueing.enabled=false"}),
			[]string{"--set", "kwok=true,queueing=false"}, deploy.DefaultNames, []deploy.Half{deploy.Provisioning}, deploy.ByPolicies, false},
		{"for Kueue's queues, older", "1.35", slices.Concat(all, []string{"--set", "settings.queueing.enabled=false"}),
			[]string{"--set", "kwok=true,queueing=false"}, deploy.DefaultNames, []deploy.Half{deploy.Provisioning}, deploy.ByWebhook, false},
		{"only queues", "1.36", slices.Concat(all, []string{"--set", "settings.provisioning.enabled=false"}),
			[]string{"--set", "provisioning=false"}, deploy.DefaultNames, []deploy.Half{deploy.Queueing}, deploy.ByPolicies, false},
		{"only queues, older", "1.35", slices.Concat(all, []string{"--set", "settings.provisioning.enabled=false"}),
			[]string{"--set", "provisioning=false"}, deploy.DefaultNames, []deploy.Half{deploy.Queueing}, deploy.ByWebhook, false},
		{"a dry run", "1.36", slices.Concat(all, []string{"--set", "settings.queueing.enabled=false,dryRun=true"}),
			[]string{"--set", "kwok=true,queueing=false"}, deploy.DefaultNames, []deploy.Half{deploy.Provisioning}, deploy.ByPolicies, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects, err := deploy.Manifests(tc.halves...)
			if err == nil && tc.dryRun {
				objects, err = deploy.DryRun(objects)
			}
			if err != nil {
				t.Fatal(err)
			}
			if objects, err = tc.mutations.By(objects); err != nil {
				t.Fatal(err)
			}
			want := map[string]any{}
			for _, o := range tc.names.In(objects) {
				if o.GetKind() == "Namespace" {
					continue // --create-namespace creates it
				}
				if o.GetKind() == "CustomResourceDefinition" {
					annotations := o.GetAnnotations()
					annotations["helm.sh/resource-policy"] = "keep"
					o.SetAnnotations(annotations)
				}
				want[key(o)] = decoded(t, o)
			}
			got := map[string]any{}
			in := []string{"--namespace", tc.names.Namespace}
			for _, o := range slices.Concat(template(t, crds, tc.kubernetes, slices.Concat(in, tc.crds)...),
				template(t, chart, tc.kubernetes, slices.Concat(in, tc.args)...)) {
				// What the chart adds bears its labels; the dashboard's has no counterpart.
				if slices.Contains(own, o.GetKind()) || o.GetLabels()["app.kubernetes.io/instance"] != "" {
					continue
				}
				if want[key(o)] == nil {
					t.Errorf("%s is not among the manifests", key(o))
				}
				got[key(o)] = o.Object
			}
			for name := range want {
				if diff := cmp.Diff(want[name], got[name]); diff != "" {
					t.Errorf("%s (-manifests +chart)\n%s", name, diff)
				}
			}
		})
	}
}

// TestWithoutRequestThereIsNoSimulation and no page.
func TestWithoutRequestThereIsNoSimulation(t *testing.T) {
	for _, o := range slices.Concat(template(t, crds, "1.36"), template(t, chart, "1.36")) {
		if deploy.ForSimulation(o) || strings.Contains(o.GetName(), "dashboard") {
			t.Errorf("%s is there", key(o))
		}
	}
}

func TestTheChartsAreSound(t *testing.T) {
	for _, args := range [][]string{{chart}, {crds}, {chart, "--set",
		"dashboard.enabled=true,dashboard.ingress.enabled=true,dashboard.ingress.host=queues.example.com," +
			"networkPolicy.enabled=true,externalgrpc.enabled=true,externalgrpc.certificateSecret=tls," +
			"metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true,metrics.grafanaDashboards.enabled=true"}} {
		if out, err := helm(t, append([]string{"lint", "--strict", "--kube-version", "1.36"}, args...)...); err != nil {
			t.Errorf("helm lint %v: %v\n%s", args, err, out)
		}
	}
}

// TestTheExternalProviderIsStartedAsItsCommandLineSays: it accepts the arguments of its Deployment.
func TestTheExternalProviderIsStartedAsItsCommandLineSays(t *testing.T) {
	objects := template(t, chart, "1.36", "--namespace", "batch", "--set", "externalgrpc.enabled=true,externalgrpc.certificateSecret=tls")
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" && o.GetName() == "muster-externalgrpc"
	})
	if i < 0 {
		t.Fatal("there is no Deployment")
	}
	containers, _, err := unstructured.NestedSlice(objects[i].Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	if err != nil {
		t.Fatal(err)
	}
	// The file of the settings is not here: that is the first thing that a correct command line finds.
	out, err := exec.Command(program(t, "MUSTER_BIN"), args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--config") || strings.Contains(string(out), "unknown") {
		t.Errorf("muster %v: %v\n%s", args, err, out)
	}
}

// TestValuesThatCannotBeMeantAreRefused by the schema, or with the fix.
func TestValuesThatCannotBeMeantAreRefused(t *testing.T) {
	for _, tc := range []struct{ set, want string }{
		{"replica=3", "replica"},
		{"replicas=many", "replicas"},
		{"mutations=never", "mutations"},
		{"image.tga=v1", "tga"},
		{"settings.queueing.fairSharring.enable=true", "fairSharring"},
		{"settings.provisioning.clouds.aws.regoin=us-east-1", "regoin"},
		{"settings.queueing.enabled=maybe", "enabled"},
		{"dryRun=true", "set settings.queueing.enabled to false"},
		{"dryRun=maybe,settings.queueing.enabled=false", "dryRun"},
		{"settings.leaderElect=false", "set replicas to 1"},
		{"settings.queueing.enabled=false,settings.provisioning.enabled=false", "turn at least one on"},
		{"dashboard.enabled=true,dashboard.ingress.enabled=true", "dashboard.ingress.host is needed"},
		{"externalgrpc.enabled=true", "externalgrpc.certificateSecret is needed"},
		{"externalgrpc.enabled=true,externalgrpc.certificateSecret=tls,settings.provisioning.enabled=false", "set settings.provisioning.enabled to true"},
		{"externalgrpc.certificate=tls", "certificate"},
	} {
		if out, err := helm(t, "template", "muster", chart, "--kube-version", "1.36", "--set", tc.set); err == nil ||
			!strings.Contains(out, tc.want) {
			t.Errorf("%s: %v, want an error that says %q:\n%s", tc.set, err, tc.want, out)
		}
	}
}

// TestTheKustomizeBaseIsTheChart as it is by default. -update writes it again.
func TestTheKustomizeBaseIsTheChart(t *testing.T) {
	out, err := helm(t, "template", "muster", chart, "--kube-version", "1.36", "--namespace", deploy.Namespace,
		"--show-only", "templates/settings.yaml", "--show-only", "templates/deployment.yaml", "--show-only", "templates/metrics.yaml")
	if err != nil {
		t.Fatal(out)
	}
	var kept []string
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "helm") && !strings.Contains(line, "Helm") && !strings.HasPrefix(line, "# Source") {
			kept = append(kept, line)
		}
	}
	text := "# Generated from the chart by `make install-test ARGS=-update`; do not edit.\n" + strings.Join(kept, "")
	path := filepath.Join("../../deploy/kustomize/muster.yaml")
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	there, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, string(there)); diff != "" {
		t.Errorf("run `make install-test ARGS=-update` (-chart +base)\n%s", diff)
	}
}

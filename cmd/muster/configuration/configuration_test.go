package configuration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/queueing/config"
)

const namespace = "muster-system"

func load(t *testing.T, text string) (*Configuration, []string, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	return Load("f.yaml", namespace)
}

const head = "apiVersion: config.muster.dev/v1alpha1\nkind: Configuration\n"

func TestErrorsHaveLineFieldValueAndFix(t *testing.T) {
	for _, tc := range []struct {
		name string
		text string
		want []string
	}{
		{"nothing at all", "", []string{"f.yaml:1: the document is empty", "f.yaml:1: a configuration starts with apiVersion: config.muster.dev/v1alpha1"}},
		{"no YAML", "a: [", []string{"f.yaml:1: did not find expected node content"}},
		{"a list", "- a\n", []string{"f.yaml:1: a list is not a mapping", "f.yaml:1: a configuration starts with apiVersion"}},
		{"two documents", head + "---\nkind: Another\n", []string{"f.yaml:3: more than one document"}},
		{"another kind", "apiVersion: v1\nkind: ConfigMap\n", []string{`f.yaml:1: apiVersion "v1" with kind "ConfigMap" is not supported; use config.muster.dev/v1alpha1`}},
		{"an older Kueue", "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n", []string{`"config.kueue.x-k8s.io/v1beta1"`, "Kueue of config.kueue.x-k8s.io/v1beta2"}},
		{"a field that there is not", head + "metricsAddress: x\n", []string{"f.yaml:3: metricsAddress: unknown field; known fields are apiVersion, healthProbeBindAddress", "metricsBindAddress"}},
		{"such a field further in", head + "queueing:\n  waitForPodsReady:\n    timeOut: 5m\n", []string{"f.yaml:5: queueing.waitForPodsReady.timeOut: unknown field; known fields are blockAdmission"}},
		{"a field twice", head + "leaderElect: true\nleaderElect: false\n", []string{"f.yaml:4: leaderElect: duplicate field"}},
		{"text for a boolean", head + "leaderElect: \"true\"\n", []string{`f.yaml:3: leaderElect: "true" is not a boolean; write true or false`}},
		{"the boolean of another age", head + "leaderElect: yes\n", []string{`f.yaml:3: leaderElect: "yes" is not a boolean; write true or false`}},
		{"a number for text", head + "healthProbeBindAddress: 0\n", []string{`f.yaml:3: healthProbeBindAddress: "0" is not a string; quote it`}},
		{"too large a number", head + "verbosity: 3000000000\n", []string{`f.yaml:3: verbosity: "3000000000" is not a whole number of 32 bits`}},
		{"a value for a list", head + "provisioning:\n  classes: check-capacity.muster.dev\n", []string{`f.yaml:4: provisioning.classes: "check-capacity.muster.dev" is not a list; write it as one`}},
		{"a list for a section", head + "queueing: [fairSharing]\n", []string{"f.yaml:3: queueing: a list is not a mapping"}},
		{"an unknown class", head + "provisioning:\n  classes:\n  - check-capacity.muster.dev\n  - queued.gke.io\n", []string{`f.yaml:6: provisioning.classes[1]: Unsupported value: "queued.gke.io": supported values:`, `"atomic-scale-up.muster.dev"`}},
		{"a cloud without its region", head + "provisioning:\n  clouds:\n    aws:\n      cluster: prod\n    gcp: {}\n", []string{`f.yaml:6: provisioning.clouds.aws.region: Required value: for example us-east-1`, `f.yaml:7: provisioning.clouds.gcp.project: Required value`, `f.yaml:7: provisioning.clouds.gcp.cluster: Required value`}},
		{"a duration without a unit", head + "queueing:\n  waitForPodsReady: {timeout: 5}\n", []string{`f.yaml:4: queueing.waitForPodsReady.timeout: "5" is not a duration; write one such as 90s, 5m or 1h30m`}},
		{"a time before", head + "queueing:\n  waitForPodsReady:\n    timeout: -5m\n", []string{`f.yaml:5: queueing.waitForPodsReady.timeout: Invalid value: "-5m0s": give a duration of 0s or more`}},
		{"no way to queue again", head + "queueing:\n  waitForPodsReady:\n    requeuingStrategy: {timestamp: Now, backoffLimitCount: -1}\n", []string{
			`f.yaml:5: queueing.waitForPodsReady.requeuingStrategy.timestamp: Unsupported value: "Now": supported values: "Eviction", "Creation"`,
			`backoffLimitCount: Invalid value: -1: give 0 or more`}},
		{"strategies in the wrong order", head + "queueing:\n  fairSharing:\n    preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]\n", []string{
			"f.yaml:5: queueing.fairSharing.preemptionStrategies: Invalid value:", "give [LessThanOrEqualToFinalShare], [LessThanInitialShare] or both in this order"}},
		{"a weight below nothing", head + "queueing:\n  admissionFairSharing:\n    usageHalfLifeTime: 1h\n    resourceWeights:\n      cpu: -1\n", []string{
			"f.yaml:7: queueing.admissionFairSharing.resourceWeights[cpu]: Invalid value: -1: give 0 or more"}},
		{"a resource transformed twice", head + "queueing:\n  resources:\n    transformations:\n    - input: a/b\n    - input: a/b\n      strategy: Drop\n", []string{
			`f.yaml:7: queueing.resources.transformations[1].input: Invalid value: "a/b"`, `f.yaml:8: queueing.resources.transformations[1].strategy: Unsupported value: "Drop"`}},
		{"outputs that cannot be", head + "queueing:\n  resources:\n    transformations:\n    - input: a/b\n      outputs: {cpu: much}\n", []string{
			`f.yaml:7: queueing.resources.transformations[0].outputs[cpu]: "much" is not a quantity; write one such as 500m`}},
		{"outputs of nothing", head + "queueing:\n  resources:\n    transformations:\n    - outputs: {c_: 1, $: 2}\n", []string{
			`outputs[$]: Invalid value: "$"`, `outputs[c_]: Invalid value: "c_"`, "f.yaml:6: queueing.resources.transformations[0].input: Required value: name the resource to transform"}},
		{"two ways to leave out", head + "queueing:\n  resources: {quotaCheckStrategy: IgnoreUndeclared, excludeResourcePrefixes: [a.b/]}\n", []string{
			`f.yaml:4: queueing.resources.quotaCheckStrategy: Invalid value: "IgnoreUndeclared"`, "keep one of the two"}},
		{"a strategy that there is not", head + "queueing:\n  resources: {quotaCheckStrategy: Sometimes}\n", []string{`Unsupported value: "Sometimes": supported values: "BlockUndeclared", "IgnoreUndeclared"`}},
		{"outputs that are pods", head + "queueing:\n  resources:\n    transformations:\n    - input: a/b\n      outputs: {pods: 1}\n", []string{
			`f.yaml:7: queueing.resources.transformations[0].outputs[pods]: Invalid value: "pods": pods are counted by themselves`}},
		{"a source of nothing", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu], sources: [{}]}]\n", []string{
			"queueing.resources.deviceClassMappings[0].sources[0]: Required value: give either counter or capacity"}},
		{"a source of both", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu], sources: [{counter: {name: c, driver: d, deviceSelector: {cel: {expression: \"true\"}}}, capacity: {name: c, driver: d, deviceSelector: {cel: {expression: \"true\"}}}}]}]\n", []string{
			"queueing.resources.deviceClassMappings[0].sources[0]: Invalid value: \"counter and capacity\": give one of the two"}},
		{"counters beside capacities", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu], sources: [{counter: {name: c, driver: d, deviceSelector: {cel: {expression: \"true\"}}}}, {capacity: {name: c, driver: d, deviceSelector: {cel: {expression: \"true\"}}}}]}]\n", []string{
			"queueing.resources.deviceClassMappings[0].sources: Invalid value: \"counter and capacity\": a mapping counts either counters or capacities"}},
		{"a counter that no driver publishes", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu], sources: [{counter: {name: Memory, driver: d, deviceSelector: {cel: {expression: \"true\"}}}}]}]\n", []string{
			"queueing.resources.deviceClassMappings[0].sources[0].counter.name: Invalid value: \"Memory\": name a counter as the driver publishes it"}},
		{"a source without a driver", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu], sources: [{counter: {name: c, deviceSelector: {cel: {expression: \"true\"}}}}]}]\n", []string{
			"queueing.resources.deviceClassMappings[0].sources[0].counter.driver: Required value: name the driver as its ResourceSlices do in spec.driver"}},
		{"a source of a driver that cannot be", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu], sources: [{counter: {name: c, driver: D, deviceSelector: {cel: {expression: \"true\"}}}}]}]\n", []string{
			"queueing.resources.deviceClassMappings[0].sources[0].counter.driver: Invalid value: \"D\": name the driver"}},
		{"a source of a driver with a long name", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu], sources: [{counter: {name: c, driver: " + strings.Repeat("d", 64) + ", deviceSelector: {cel: {expression: \"true\"}}}}]}]\n", []string{
			"queueing.resources.deviceClassMappings[0].sources[0].counter.driver: Invalid value:", "it may have at most 63 characters"}},
		{"a source that selects nothing", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu], sources: [{capacity: {name: c, driver: d}}]}]\n", []string{
			"queueing.resources.deviceClassMappings[0].sources[0].capacity.deviceSelector.cel.expression: Required value: select the devices that count; true selects all"}},
		{"a source that selects one device", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu], sources: [{capacity: {name: c, driver: d, deviceSelector: {cel: {expression: \"device.attributes['d'].uuid == 'u'\"}}}}]}]\n", []string{
			"queueing.resources.deviceClassMappings[0].sources[0].capacity.deviceSelector.cel.expression: Invalid value:", "select by attributes that machines have in common"}},
		{"a source with a selector that is none", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu], sources: [{counter: {name: c, driver: d, deviceSelector: {cel: {expression: \"devices\"}}}}]}]\n", []string{
			"queueing.resources.deviceClassMappings[0].sources[0].counter.deviceSelector.cel.expression: Invalid value: \"devices\": it is no CEL expression of a device", "undeclared reference"}},
		{"a capacity of two domains", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu], sources: [{capacity: {name: a/b/c, driver: d, deviceSelector: {cel: {expression: \"true\"}}}}]}]\n", []string{
			"queueing.resources.deviceClassMappings[0].sources[0].capacity.name: Invalid value: \"a/b/c\": name a capacity as the driver publishes it"}},
		{"a capacity of an empty domain", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu], sources: [{capacity: {name: /c, driver: d, deviceSelector: {cel: {expression: \"true\"}}}}]}]\n", []string{
			"queueing.resources.deviceClassMappings[0].sources[0].capacity.name: Invalid value: \"/c\""}},
		{"a capacity with a long name", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu], sources: [{capacity: {name: " + strings.Repeat("c", 33) + ", driver: d, deviceSelector: {cel: {expression: \"true\"}}}}]}]\n", []string{
			"the name may have at most 32 characters"}},
		{"a capacity of a long domain", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu], sources: [{capacity: {name: " + strings.Repeat("c", 64) + "/c, driver: d, deviceSelector: {cel: {expression: \"true\"}}}}]}]\n", []string{
			"the domain may have at most 63 characters"}},
		{"one counter of a class twice", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu], sources: [{counter: {name: c, driver: d, deviceSelector: {cel: {expression: \"true\"}}}}]}, {name: big, deviceClassNames: [gpu], sources: [{counter: {name: e, driver: d, deviceSelector: {cel: {expression: \"true\"}}}}, {counter: {name: c, driver: d, deviceSelector: {cel: {expression: \"true\"}}}}]}]\n", []string{
			"queueing.resources.deviceClassMappings[1].deviceClassNames[0]: Invalid value: \"gpu\": its counter c counts as gpu already"}},
		{"counters of a class that counts by number", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu]}, {name: big, deviceClassNames: [gpu], sources: [{counter: {name: c, driver: d, deviceSelector: {cel: {expression: \"true\"}}}}]}]\n", []string{
			"queueing.resources.deviceClassMappings[1].deviceClassNames[0]: Invalid value: \"gpu\": it counts as gpu already", "or give both mappings sources with different counters"}},
		{"devices of two names", head + "queueing:\n  resources:\n    deviceClassMappings: [{name: gpu, deviceClassNames: [gpu]}, {name: big, deviceClassNames: [gpu]}]\n", []string{
			"queueing.resources.deviceClassMappings[1].deviceClassNames[0]", "it counts as gpu already"}},
		{"kept for less than no time", head + "queueing:\n  objectRetentionPolicies: {workloads: {afterFinished: -1s}}\n", []string{`f.yaml:4: queueing.objectRetentionPolicies.workloads.afterFinished: Invalid value: "-1s"`}},
		{"a selector of the cluster's own jobs", head + "queueing:\n  managedJobsNamespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}\n", []string{
			"f.yaml:4: queueing.managedJobsNamespaceSelector: Invalid value:", "it matches namespace kube-system", "operator NotIn"}},
		{"a selector of all namespaces", head + "queueing:\n  managedJobsNamespaceSelector: {}\n", []string{"it matches namespace kube-system", "it matches namespace muster-system"}},
		{"no selector", head + "queueing:\n  managedJobsNamespaceSelector: {matchExpressions: [{key: a, operator: Near}]}\n", []string{`Invalid value: "Near"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _, err := load(t, tc.text)
			if err == nil {
				t.Fatalf("it was read as %+v", c)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
		})
	}
}

// TestAllErrorsAreReportedAtOnce in the order of the file.
func TestAllErrorsAreReportedAtOnce(t *testing.T) {
	_, _, err := load(t, head+"verbosity: much\nleaderElect: 1\nprovisioning: {queue: a}\n")
	var places []string
	for line := range strings.Lines(err.Error()) {
		place, _, _ := strings.Cut(line, ": ")
		places = append(places, place)
	}
	if diff := cmp.Diff([]string{"f.yaml:3", "f.yaml:4", "f.yaml:5"}, places); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAnAliasStandsForWhatItNames(t *testing.T) {
	c, _, err := load(t, head+"metricsBindAddress: &here \":9000\"\nhealthProbeBindAddress: *here\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.HealthProbeBindAddress; got == nil || *got != ":9000" {
		t.Errorf("the alias was read as %v", got)
	}
}

func TestDefaultsAreKueues(t *testing.T) {
	c, warnings, err := load(t, head+`
queueing:
  waitForPodsReady: {}
  fairSharing: {}
  admissionFairSharing: {usageHalfLifeTime: 168h}
  resources: {transformations: [{input: nvidia.com/mig-1g.5gb, outputs: {example.com/gpu-memory: 5Gi}}]}
`)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	got := c.Queueing.Config
	if w := got.WaitForPodsReady; w.Timeout.Duration != 30*time.Minute || *w.BlockAdmission || w.RecoveryTimeout.Duration != 30*time.Minute ||
		*w.RequeuingStrategy.Timestamp != kueueconfig.EvictionTimestamp || w.RequeuingStrategy.BackoffLimitCount != nil ||
		*w.RequeuingStrategy.BackoffBaseSeconds != 60 || *w.RequeuingStrategy.BackoffMaxSeconds != 3600 {
		t.Errorf("waitForPodsReady is %+v", w)
	}
	want := []kueueconfig.PreemptionStrategy{kueueconfig.LessThanOrEqualToFinalShare, kueueconfig.LessThanInitialShare}
	if diff := cmp.Diff(want, got.FairSharing.PreemptionStrategies); diff != "" {
		t.Errorf("fairSharing (-want +got)\n%s", diff)
	}
	if a := got.AdmissionFairSharing; a.UsageSamplingInterval.Duration != 5*time.Minute {
		t.Errorf("admissionFairSharing is %+v", a)
	}
	if r := got.Resources; *r.QuotaCheckStrategy != kueueconfig.QuotaCheckBlockUndeclared ||
		*r.Transformations[0].Strategy != kueueconfig.Retain {
		t.Errorf("resources are %+v", r)
	}
}

func TestWaitForPodsReadyIsOffByDefault(t *testing.T) {
	c, _, err := load(t, head)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{ManagedJobsNamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", namespace},
	}}}, LocalQueueMetrics: &kueueconfig.LocalQueueMetrics{Enable: true}}
	if diff := cmp.Diff(want, c.Queueing.Config); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestMetricsOfLocalQueuesAreSwitchedAsInKueue(t *testing.T) {
	selected := &kueueconfig.LocalQueueMetrics{Enable: true,
		LocalQueueSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"shown": "yes"}}}
	for _, tc := range []struct {
		name, text string
		want       *kueueconfig.LocalQueueMetrics
	}{
		{"nothing is said", kueueHead, &kueueconfig.LocalQueueMetrics{Enable: true}},
		{"off", kueueHead + "metrics: {localQueueMetrics: {enable: false}}\n", &kueueconfig.LocalQueueMetrics{}},
		{"off by the gate", kueueHead + "featureGates: {LocalQueueMetrics: false}\n", &kueueconfig.LocalQueueMetrics{}},
		{"on by the gate", kueueHead + "featureGates: {LocalQueueMetrics: true}\n", &kueueconfig.LocalQueueMetrics{Enable: true}},
		{"some", kueueHead + "metrics: {localQueueMetrics: {enable: true, localQueueSelector: {matchLabels: {shown: \"yes\"}}}}\n", selected},
		{"some, in Muster's own file", head + "queueing: {localQueueMetrics: {enable: true, localQueueSelector: {matchLabels: {shown: \"yes\"}}}}\n", selected},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _, err := load(t, tc.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, c.Queueing.LocalQueueMetrics); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	_, _, err := load(t, head+"queueing:\n  localQueueMetrics: {enable: true, localQueueSelector: {matchLabels: {\"a b\": x}}}\n")
	if err == nil || !strings.Contains(err.Error(), "queueing.localQueueMetrics.localQueueSelector") {
		t.Errorf("a selector that cannot be: %v", err)
	}
}

func TestBalancedPlacementIsBehindKueuesGate(t *testing.T) {
	for text, want := range map[string]bool{
		kueueHead: false,
		kueueHead + "featureGates: {TASBalancedPlacement: true}\n":        true,
		kueueHead + "featureGates: {TASBalancedPlacement: false}\n":       false,
		head + "queueing: {featureGates: {TASBalancedPlacement: true}}\n": true,
	} {
		if c, _, err := load(t, text); err != nil || c.Queueing.FeatureGates["TASBalancedPlacement"] != want {
			t.Errorf("%q: %v, %v, want it on: %t", text, c.Queueing.FeatureGates, err, want)
		}
	}
	_, _, err := load(t, head+"queueing: {featureGates: {TASBalanced: true}}\n")
	if err == nil || !strings.Contains(err.Error(), `queueing.featureGates[TASBalanced]`) ||
		!strings.Contains(err.Error(), "TASBalancedPlacement") {
		t.Errorf("a gate that there is not: %v", err)
	}
}

const kueueHead = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"

func TestKueuesConfigurationIsUnderstood(t *testing.T) {
	c, warnings, err := load(t, kueueHead+`
health: {healthProbeBindAddress: ":8082"}
metrics: {bindAddress: ":8443"}
webhook: {port: 9443}
leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io}
internalCertManagement: {enable: false}
controller: {groupKindConcurrency: {Workload.kueue.x-k8s.io: 5}}
clientConnection: {qps: 50, burst: 100}
manageJobsWithoutQueueName: true
waitForPodsReady: {timeout: 10m}
integrations: {frameworks: [batch/job, ray.io/rayjob, kubeflow.org/mpijob], labelKeysToCopy: [team, example.com/cost]}
fairSharing: {preemptionStrategies: [LessThanInitialShare]}
`)
	if err != nil {
		t.Fatal(err)
	}
	q := c.Queueing
	if !slices.Equal(q.LabelKeysToCopy, []string{"team", "example.com/cost"}) || !q.ManageJobsWithoutQueueName ||
		q.WaitForPodsReady.Timeout.Duration != 10*time.Minute || len(q.FairSharing.PreemptionStrategies) != 1 ||
		c.LeaderElect == nil || !*c.LeaderElect || c.HealthProbeBindAddress == nil || *c.HealthProbeBindAddress != ":8082" ||
		c.MetricsBindAddress == nil || *c.MetricsBindAddress != ":8443" {
		t.Errorf("it was read as %+v", c)
	}
	var told []string
	for _, w := range warnings {
		told = append(told, strings.SplitN(w, ": ", 3)[1])
	}
	want := []string{"webhook", "leaderElection.resourceName", "internalCertManagement", "controller", "clientConnection"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("warnings (-want +got)\n%s", diff)
	}
}

// TestSourcesOfQuotaAreRead: two counters of one class count as two resources.
func TestSourcesOfQuotaAreRead(t *testing.T) {
	c, _, err := load(t, kueueHead+`
resources:
  deviceClassMappings:
  - name: gpu-memory
    deviceClassNames: [mig.example.com]
    sources: [{counter: {name: memory, driver: gpu.example.com, deviceSelector: {cel: {expression: "device.driver == 'gpu.example.com'"}}}}]
  - name: gpu-slices
    deviceClassNames: [mig.example.com]
    sources: [{counter: {name: slices, driver: gpu.example.com, deviceSelector: {cel: {expression: "true"}}}}]
  - name: shared-memory
    deviceClassNames: [shared.example.com]
    sources: [{capacity: {name: gpu.example.com/memory, driver: gpu.example.com, deviceSelector: {cel: {expression: "device.allowMultipleAllocations"}}}}]
`)
	if err != nil {
		t.Fatal(err)
	}
	if of := c.Queueing.Resources.DeviceClassMappings; len(of) != 3 || of[2].Sources[0].Capacity.Name != "gpu.example.com/memory" {
		t.Errorf("it was read as %+v", of)
	}
}

func TestKueueSettingsThatChangeAdmissionAreRefused(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"other jobs", "integrations:\n  frameworks:\n  - batch/job\n  - example.com/run\n", `f.yaml:6: integrations.frameworks[1]: Muster does not queue "example.com/run"`},
		{"no jobs", "integrations: {frameworks: [pod]}\n", "integrations.frameworks: Muster always queues batch/job; add it"},
		{"jobs of others", "integrations: {externalFrameworks: [Foo.v1.example.com]}\n", "f.yaml:3: integrations.externalFrameworks: Muster does not queue jobs of external frameworks; remove it"},
		{"a gate", "featureGates: {TopologyAwareScheduling: false}\n", "f.yaml:3: featureGates[TopologyAwareScheduling]: Muster has no such feature gate; remove it"},
		{"a setting that neither has", "queueing: {}\n", "f.yaml:3: queueing: unknown field"},
		{"a value that neither takes", "waitForPodsReady: {timeout: -1s}\n", `f.yaml:3: waitForPodsReady.timeout: Invalid value: "-1s"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _, err := load(t, kueueHead+tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("read as %+v: %v; want an error that says %q", c, err, tc.want)
			}
		})
	}
}

// TestKueuesDefaultOfWaitForPodsReadyIsReported: it is on in Kueue and off here.
func TestKueuesDefaultOfWaitForPodsReadyIsReported(t *testing.T) {
	_, warnings, err := load(t, kueueHead)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "set timeout: 30m to keep that") {
		t.Errorf("without a word: %v, %q", err, warnings)
	}
	c, warnings, err := load(t, kueueHead+"waitForPodsReady: {timeout: 5m}\nfeatureGates: {DisableWaitForPodsReady: true}\n")
	if err != nil || len(warnings) > 0 || c.Queueing.WaitForPodsReady != nil {
		t.Errorf("with its gate: %v, %q", err, warnings)
	}
}

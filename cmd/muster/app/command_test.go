package app

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestFlagsThatCannotBeMeantAreRefusedWithAFix(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"nothing to run", []string{"--provisioning=false", "--queueing=false"}, "turn at least one on"},
		{"an unknown class", []string{"--provisioning-classes", "queued-provisioning.gke.io"}, `muster does not serve "queued-provisioning.gke.io"`},
		{"a file that is not there", []string{"--config", "nowhere.yaml"}, "nowhere.yaml: no such file"},
		{"a lease of half a second", []string{"--leader-elect-lease-duration=500ms"}, "500ms is not a positive number of whole seconds"},
		{"a dry run of the queues", []string{"--dry-run"}, "set --queueing=false"},
		{"a flag of the past", []string{"--controllers", "provisioning"}, "unknown flag"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := NewCommand(nil)
			c.SetArgs(append(tc.args, "--kubeconfig", filepath.Join(t.TempDir(), "none")))
			flag, _, _ := strings.Cut(tc.args[0], "=")
			if err := c.Execute(); err == nil || !strings.Contains(err.Error(), flag) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("muster %s: %v; want an error that names the flag and says %q", strings.Join(tc.args, " "), err, tc.want)
			}
		})
	}
}

// options are what the arguments come to, beside a file of the given text.
func options(t *testing.T, text string, args ...string) (Options, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "muster.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &Options{}
	c := newCommand(o)
	if err := c.ParseFlags(append(args, "--config", file)); err != nil {
		t.Fatal(err)
	}
	_, err := o.complete(c.Flags())
	return *o, err
}

const everyField = `
apiVersion: config.muster.dev/v1alpha1
kind: Configuration
kubeconfig: /etc/kubeconfig
metricsBindAddress: ":9090"
metricsSecure: false
metricsCertDir: /etc/certs
healthProbeBindAddress: "0"
leaderElect: false
leaderElectLeaseDuration: 4s
verbosity: 3
provisioning:
  enabled: false
  classes: [check-capacity.muster.dev]
  processorInstance: blue
queueing:
  enabled: true
  manageJobsWithoutQueueName: true
`

func TestTheFileSaysWhatFlagsLeaveOpen(t *testing.T) {
	o, err := options(t, everyField)
	if err != nil {
		t.Fatal(err)
	}
	if o.Kubeconfig != "/etc/kubeconfig" || o.MetricsAddress != ":9090" || o.MetricsSecure || o.MetricsCertDir != "/etc/certs" ||
		o.HealthAddress != "0" || o.LeaderElect || o.LeaseDuration != 4*time.Second ||
		o.Provisioning || !o.Queueing || strings.Join(o.Classes, ",") != "check-capacity.muster.dev" || o.Instance != "blue" ||
		!o.Queues.ManageJobsWithoutQueueName {
		t.Errorf("the file was read as %+v", o)
	}
}

func TestFlagsWinOverTheFile(t *testing.T) {
	o, err := options(t, everyField, "--metrics-bind-address=:7070", "--leader-elect", "--provisioning", "--queueing=false",
		"--provisioning-classes=atomic-scale-up.muster.dev", "--processor-instance=green")
	if err != nil {
		t.Fatal(err)
	}
	if o.MetricsAddress != ":7070" || !o.LeaderElect || !o.Provisioning || o.Queueing ||
		strings.Join(o.Classes, ",") != "atomic-scale-up.muster.dev" || o.Instance != "green" || o.Kubeconfig != "/etc/kubeconfig" {
		t.Errorf("flags and file came to %+v", o)
	}
}

// TestMetricsAreOpenOnLoopbackOnly unless a flag says otherwise.
func TestMetricsAreOpenOnLoopbackOnly(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want bool
	}{
		{nil, true},
		{[]string{"--metrics-bind-address=0.0.0.0:8080"}, true},
		{[]string{"--metrics-bind-address=127.0.0.1:8080"}, false},
		{[]string{"--metrics-bind-address=[::1]:8080"}, false},
		{[]string{"--metrics-secure=false"}, false},
		{[]string{"--metrics-bind-address=127.0.0.1:8080", "--metrics-secure"}, true},
	} {
		o := &Options{}
		c := newCommand(o)
		if err := c.ParseFlags(tc.args); err != nil {
			t.Fatal(err)
		}
		if _, err := o.complete(c.Flags()); err != nil {
			t.Fatal(err)
		}
		if served := metricsOptions(*o); o.MetricsSecure != tc.want || served.SecureServing != tc.want ||
			(served.FilterProvider != nil) != tc.want {
			t.Errorf("muster %v: secure is %v, and is served as %+v; want %v", tc.args, o.MetricsSecure, served, tc.want)
		}
	}
}

func TestBothHalvesMayNotBeOffTogether(t *testing.T) {
	if _, err := options(t, everyField, "--queueing=false"); err == nil || !strings.Contains(err.Error(), "turn at least one on") {
		t.Errorf("the file turns one half off, the flag the other: %v", err)
	}
}

func TestWithoutAFileTheQueuesHaveTheirDefaults(t *testing.T) {
	o := &Options{}
	if _, err := o.complete(newCommand(o).Flags()); err != nil {
		t.Fatal(err)
	}
	if s := o.Queues.ManagedJobsNamespaceSelector; s == nil || o.Queues.WaitForPodsReady != nil {
		t.Errorf("the settings of the queues are %+v", o.Queues)
	}
}

func TestManifestsAreThoseOfTheHalvesThatRun(t *testing.T) {
	for _, tc := range []struct {
		args          []string
		there, absent []string
	}{
		{nil, []string{"clusterqueues.kueue.x-k8s.io", "nodegroups.muster.dev", "muster-quotas"}, nil},
		{[]string{"--queueing=false"}, []string{"nodegroups.muster.dev", "muster-leader-election"}, []string{"clusterqueues.kueue.x-k8s.io", "muster-quotas"}},
		{[]string{"--kube-version", "v1.36.2"}, []string{"muster-jobs-suspend", "muster-quotas"}, []string{"muster-webhook"}},
		{[]string{"--kube-version", "1.33"}, []string{"muster-jobs-start", "muster-quotas"}, []string{"muster-jobs-suspend", "muster-webhook"}},
		{[]string{"--kube-version", "1.33", "--webhook"}, []string{"muster-jobs-start", "muster-webhook"}, []string{"muster-jobs-suspend"}},
		{[]string{"--webhook"}, []string{"muster-jobs-start", "muster-webhook"}, []string{"muster-jobs-suspend"}},
		{[]string{"--provisioning=false"}, []string{"clusterqueues.kueue.x-k8s.io", "muster-quotas", "muster-leader-election"}, []string{"nodegroups.muster.dev", "provisioningrequests.autoscaling.x-k8s.io"}},
	} {
		var out bytes.Buffer
		c := NewCommand(nil)
		c.SetOut(&out)
		c.SetArgs(append([]string{"manifests"}, tc.args...))
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
		for _, name := range tc.there {
			if !strings.Contains(out.String(), "\n  name: "+name+"\n") {
				t.Errorf("muster manifests %v lacks %s", tc.args, name)
			}
		}
		for _, name := range tc.absent {
			if strings.Contains(out.String(), "\n  name: "+name+"\n") {
				t.Errorf("muster manifests %v has %s", tc.args, name)
			}
		}
	}
}

// TestManifestsAreForTheKindsOfUsers, too.
func TestManifestsAreForTheKindsOfUsers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "muster.yaml")
	if err := os.WriteFile(file, []byte(`apiVersion: config.muster.dev/v1alpha1
kind: Configuration
queueing:
  jobKinds:
  - group: acme.io
    version: v1
    kind: TrainRun
    suspend: {path: /spec/state, held: Pending, running: null}
    podSets: [{each: /spec/roles, name: key, count: self.replicas, template: /template}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"manifests"}, {"manifests", "--config", file}} {
		var out bytes.Buffer
		c := NewCommand(nil)
		c.SetOut(&out)
		c.SetArgs(args)
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
		// The rules of five policies, the finalizers and the objects.
		if got, want := strings.Count(out.String(), "trainruns"), (len(args)-1)*3; got < want || want == 0 && got != 0 {
			t.Errorf("%v names the kind %d times", args, got)
		}
	}
}

func TestManifestsAreForSupportedVersions(t *testing.T) {
	c := NewCommand(nil)
	c.SetArgs([]string{"manifests", "--kube-version", "1.32.4"})
	if err := c.Execute(); err == nil || !strings.Contains(err.Error(), `--kube-version: "1.32.4" is older than 1.33`) {
		t.Errorf("error %v", err)
	}
}

// TestTheSampleFileSaysWhatHoldsAnyway and, once its comments are lines, all that
// could be said.
func TestTheSampleFileSaysWhatHoldsAnyway(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/config/muster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o, err := options(t, string(text))
	if err != nil {
		t.Fatal(err)
	}
	bare := &Options{}
	if _, err := bare.complete(newCommand(bare).Flags()); err != nil {
		t.Fatal(err)
	}
	bare.ConfigFile = o.ConfigFile
	if diff := cmp.Diff(*bare, o, cmpopts.IgnoreUnexported(Options{})); diff != "" {
		t.Errorf("the file changes something (-without +with)\n%s", diff)
	}
	whole := strings.NewReplacer("  # clouds:", "  clouds:", "  # waitForPodsReady", "  waitForPodsReady", "  # featureGates",
		"  featureGates", "  # fairSharing", "  fairSharing",
		"  # admissionFairSharing", "  admissionFairSharing", "  # resources", "  resources", "  # objectRetentionPolicies",
		"  objectRetentionPolicies", "\n  #   ", "\n    ").Replace(string(text))
	o, err = options(t, whole)
	if err != nil {
		t.Fatal(err)
	}
	if q := o.Queues; q.WaitForPodsReady == nil || q.FairSharing == nil || q.AdmissionFairSharing == nil || q.Resources == nil ||
		q.ObjectRetentionPolicies == nil {
		t.Errorf("with all of it the queues are set to %+v", q)
	}
	if o.Clouds.AWS == nil || o.Clouds.GCP == nil {
		t.Errorf("with all of it the clouds are %+v", o.Clouds)
	}
}

// TestMetricsOfOtherCommandsAreOpenOnLoopbackOnly, too.
func TestMetricsOfOtherCommandsAreOpenOnLoopbackOnly(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	const text = "{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], contexts: [{name: c, " +
		"context: {cluster: c}}], current-context: c}"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for address, secure := range map[string]bool{":8080": true, "10.0.0.1:8080": true, "127.0.0.1:8080": false, "[::1]:8080": false} {
		b, err := newBeside(Options{Kubeconfig: kubeconfig, MetricsAddress: address}, "", "")
		if err != nil {
			t.Fatal(err)
		}
		if m := b.options.Metrics; m.BindAddress != address || m.SecureServing != secure || (m.FilterProvider != nil) != secure {
			t.Errorf("at %s metrics are served as %+v, want secure: %v", address, m, secure)
		}
	}
}

package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/yaml"
)

// settings are those of Kueue's Configuration, with a value each. Unsupported settings are refused by name: Muster has them in its own
// files and flags, or does not need them.
var settings = map[string]struct {
	value string
	taken bool
}{
	"namespace":                    {"kueue-system", false},
	"webhook":                      {"{port: 9443}", false},
	"leaderElection":               {"{leaderElect: true}", false},
	"metrics":                      {"{bindAddress: ':8443'}", false},
	"health":                       {"{healthProbeBindAddress: ':8081'}", false},
	"tls":                          {"{minVersion: VersionTLS12}", false},
	"pprofBindAddress":             {":8083", false},
	"controller":                   {"{groupKindConcurrency: {Job.batch: 5}}", false},
	"manageJobsWithoutQueueName":   {"true", true},
	"managedJobsNamespaceSelector": {"{matchLabels: {team: blue}}", true},
	"internalCertManagement":       {"{enable: true}", false},
	"waitForPodsReady": {"{timeout: 5m, blockAdmission: true, recoveryTimeout: 3m, requeuingStrategy: {timestamp: Creation, backoffLimitCount: 1, " +
		"backoffBaseSeconds: 2, backoffMaxSeconds: 3}}", true},
	"clientConnection":     {"{qps: 50}", false},
	"integrations":         {"{frameworks: [batch/job]}", false},
	"multiKueue":           {"{workerLostTimeout: 15m}", false},
	"fairSharing":          {"{preemptionStrategies: [LessThanInitialShare]}", true},
	"admissionFairSharing": {"{usageHalfLifeTime: 1h, usageSamplingInterval: 5m, resourceWeights: {cpu: 2}}", true},
	"resources": {"{excludeResourcePrefixes: [example.com], quotaCheckStrategy: BlockUndeclared, transformations: [{input: cpu, " +
		"outputs: {a: 1}}], deviceClassMappings: [{name: example.com/gpus, deviceClassNames: [gpu], sources: [{counter: {name: c, driver: d, " +
		"deviceSelector: {cel: {expression: x}}}}]}]}", true},
	"featureGates":            {"{TASBalancedPlacement: true}", true},
	"objectRetentionPolicies": {"{workloads: {afterFinished: 1h, afterDeactivatedByKueue: 1h}}", true},
	"visibilityServer":        {"{bindPort: 8082}", false},
}

// TestEverySettingOfKueueIsTakenOrRefused by its name.
func TestEverySettingOfKueueIsTakenOrRefused(t *testing.T) {
	for _, name := range namesOf(reflect.TypeFor[kueueconfig.Configuration]()) {
		s, known := settings[name]
		if !known {
			t.Errorf("%s is in no row", name)
			continue
		}
		var c Config
		err := yaml.UnmarshalStrict([]byte(name+": "+s.value), &c)
		switch {
		case s.taken && err != nil:
			t.Errorf("%s is not taken: %v", name, err)
		case !s.taken && (err == nil || !strings.Contains(err.Error(), `"`+name+`"`)):
			t.Errorf("%s is not refused by its name: %v", name, err)
		case s.taken:
			c.SetDefaults("muster-system")
			if errs := c.Validate("muster-system", field.NewPath("queueing")); len(errs) > 0 {
				t.Errorf("%s is not valid: %v", name, errs)
			}
		}
	}
}

// TestEveryFieldOfATakenSettingDecides somewhere in the code, beside its default and its validation, or is refused.
func TestEveryFieldOfATakenSettingDecides(t *testing.T) {
	var code strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		isCode := strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "../config/")
		if err != nil || d.IsDir() || !isCode {
			return err
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	refused := []string{"Sources"} // see validateDeviceClasses
	var look func(of reflect.Type)
	look = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || !strings.HasPrefix(of.PkgPath(), "sigs.k8s.io/kueue/") {
			return
		}
		for i := range of.NumField() {
			f := of.Field(i)
			if slices.Contains(refused, f.Name) {
				continue
			}
			if !strings.Contains(code.String(), "."+f.Name) {
				t.Errorf("%s.%s decides nothing", of.Name(), f.Name)
			}
			look(f.Type)
		}
	}
	for _, taken := range []any{kueueconfig.WaitForPodsReady{}, kueueconfig.AdmissionFairSharing{}, kueueconfig.FairSharing{},
		kueueconfig.ObjectRetentionPolicies{}, kueueconfig.Resources{}, kueueconfig.LocalQueueMetrics{}} {
		look(reflect.TypeOf(taken))
	}
}

// namesOf are the names of the fields of a type in YAML, those of embedded ones among them.
func namesOf(of reflect.Type) (out []string) {
	for i := range of.NumField() {
		f := of.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta]():
		case rest == "inline":
			out = append(out, namesOf(f.Type)...)
		default:
			out = append(out, name)
		}
	}
	return out
}

package specs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// module is Kueue's, of the version that go.mod names.
func module(t *testing.T) string {
	t.Helper()
	return moduleOf(t, ".", "sigs.k8s.io/kueue")
}

// moduleOf is the folder of a module that the module in dir requires. It is downloaded if it is not here.
func moduleOf(t *testing.T, dir, name string) string {
	t.Helper()
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", name)
	download.Dir, download.Stderr = dir, os.Stderr
	out, err := download.Output()
	var found struct{ Dir, Error string }
	if decoded := json.Unmarshal(out, &found); decoded != nil || found.Dir == "" {
		t.Fatalf("the source of %s cannot be downloaded: %v %s", name, err, found.Error)
	}
	return found.Dir
}

// recorded are functions of Kueue's that are compiled so that they record what they are called with, by the file that they are in.
var recorded = map[string]map[string]string{
	"pkg/controller/core/core.go":               {"SetupControllers": "cfg"},
	"pkg/controller/jobframework/reconciler.go": {"ProcessOptions": "opts"},
	"pkg/cache/queue/manager.go": {
		"WithResourceTransformations": "transforms", "WithExcludedResourcePrefixes": "excludedPrefixes", "WithAdmissionFairSharing": "cfg",
	},
	"pkg/scheduler/scheduler.go": {"New": "queues", "WithFairSharing": "fs", "WithQuotaCheckStrategy": "qcs"},
}

// copied are the parts of Kueue's module that its suites are compiled of.
var copied = []string{"go.mod", "go.sum", "apis", "client-go", "cmd", "internal", "pkg", "test"}

// copyModule copies Kueue's module to dir, with our package in place of the one that starts control planes. The copy is removed after the
// test. The next test with the same path compiles only what has changed.
func copyModule(t *testing.T, kueue, dir string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, part := range copied {
		from, to := filepath.Join(kueue, part), filepath.Join(dir, part)
		if info, err := os.Stat(from); err != nil {
			t.Fatal(err)
		} else if info.IsDir() {
			err = os.CopyFS(to, os.DirFS(from))
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(t, to, string(text))
	}
	framework := filepath.Join(dir, "test/integration/framework")
	if err := errors.Join(os.RemoveAll(framework), os.CopyFS(framework, os.DirFS("testdata/framework"))); err != nil {
		t.Fatal(err)
	}
	for file, functions := range recorded {
		record(t, filepath.Join(dir, file), functions)
	}
	// Most specs of topologies share one manager, and those after one that fails would not be run.
	change(t, filepath.Join(dir, "test/integration/singlecluster/tas/tas_test.go"), func(text string) string {
		const container = `ginkgo.Describe("Topology Aware Scheduling", ginkgo.Ordered, `
		return strings.Replace(text, container, container+"ginkgo.ContinueOnFailure, ", 1)
	})
}

// record changes a file so that functions of it record a parameter in a variable Recorded of their package.
func record(t *testing.T, file string, functions map[string]string) {
	t.Helper()
	for name, parameter := range functions {
		signature := regexp.MustCompile(`(?m)^func ` + name + `\([^{]*\{\n`)
		change(t, file, func(text string) string {
			return signature.ReplaceAllStringFunc(text, func(found string) string {
				return fmt.Sprintf("%s\tRecorded[%q] = %s\n", found, name, parameter)
			})
		})
	}
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`(?m)^package (\w+)`).FindSubmatch(source)[1]
	write(t, filepath.Join(filepath.Dir(file), "recorded.go"), fmt.Sprintf("package %s\n\nvar Recorded = map[string]any{}\n", name))
}

// change changes a file of the copy, and fails where there is nothing of what it is to change.
func change(t *testing.T, file string, by func(text string) string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := by(string(text))
	if changed == string(text) {
		t.Fatalf("%s of Kueue has changed: see what is compiled differently in it", file)
	}
	// What is copied from the module cache may only be read.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	write(t, file, changed)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// crds are the folders or files of the CRDs of other projects, by the name of the folder that the suites read them from.
var crds = map[string][2]string{
	"cluster-autoscaler":       {"k8s.io/autoscaler/cluster-autoscaler/apis", "config/crd"},
	"jobset-operator":          {"sigs.k8s.io/jobset", "config/components/crd/bases"},
	"leaderworkerset-operator": {"sigs.k8s.io/lws", "config/crd/bases"},
	"training-operator-crds":   {"github.com/kubeflow/training-operator", "manifests/base/crds"},
	"kf-trainer-crds":          {"github.com/kubeflow/trainer/v2", "manifests/base/crds"},
	"mpi-operator":             {"github.com/kubeflow/mpi-operator", "manifests/base/kubeflow.org_mpijobs.yaml"},
	"appwrapper-crds":          {"github.com/project-codeflare/appwrapper", "config/crd/bases"},
	"ray-operator-crds":        {"github.com/ray-project/kuberay/ray-operator", "config/crd/bases"},
	"spark-operator-crds":      {"github.com/kubeflow/spark-operator/v2", "config/crd/bases"},
	"clusterprofile":           {"sigs.k8s.io/cluster-inventory-api", "config/crd/bases"},
}

// project makes the folder that the suites take for that of Kueue's sources: all they need of it are the CRDs of other projects.
func project(t *testing.T, kueue, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "dep-crds"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, at := range crds {
		source, target := filepath.Join(moduleOf(t, kueue, at[0]), at[1]), filepath.Join(dir, "dep-crds", name)
		info, err := os.Stat(source)
		if err != nil {
			t.Fatal(err)
		}
		files := []string{source}
		if info.IsDir() {
			files, err = filepath.Glob(filepath.Join(source, "*.yaml"))
		}
		if err := errors.Join(err, os.Mkdir(target, 0o700)); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			// The training operator brings an older MPIJob along, which the suites do without, too.
			if name == "training-operator-crds" && filepath.Base(file) == "kubeflow.org_mpijobs.yaml" {
				continue
			}
			if err := os.Symlink(file, filepath.Join(target, filepath.Base(file))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// compile compiles a suite out of the copy of Kueue's module; its path is below Kueue's suites of a single cluster.
func compile(ctx context.Context, module, suite, program string) error {
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags", "-s -w", "-o", program,
		"./test/integration/singlecluster/"+suite)
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the suite %s: %w\n%s", suite, err, out)
	}
	return nil
}

package kinds

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// samplesVariable names the folder site/static/examples of a checkout of Kueue, whose module
// has no such files.
const samplesVariable = "MUSTER_KUEUE_SAMPLES"

// TestSamplesOfKueue: they have the pod sets that Kueue gives them, and containers that it leaves
// out.
func TestSamplesOfKueue(t *testing.T) {
	folder := os.Getenv(samplesVariable)
	if folder == "" {
		t.Skip(samplesVariable + " names no folder of samples")
	}
	want := map[string]string{
		"appwrapper/deployment-sample.yaml":      "sample-appwrapper-deployment-0×3",
		"appwrapper/leaderworkerset-sample.yaml": "sample-appwrapper-lws-0×2, sample-appwrapper-lws-1×4",
		// Kueue infers them itself, before the controller reports them.
		"appwrapper/pytorch-sample.yaml": "refused: the pods of spec.components[0] are not known yet: the AppWrapper's controller reports them in " +
			"status.componentStatus; see that it runs, or give the component podSets",
		"jobs/ray-cluster-sample.yaml": "head×1, small-group×1 after wait-gcs-ready",
		// It is elastic.
		"jobs/ray-job-autoscaling-sample.yaml": "head×1 with autoscaler, small-group×1 after wait-gcs-ready, submitter×1",
		"jobs/ray-job-sample.yaml":             "head×1, small-group×1 after wait-gcs-ready, submitter×1",
		"jobs/ray-service-sample.yaml":         "head×1, small-group×1 after wait-gcs-ready",
		"jobs/sample-jaxjob.yaml":              "worker×2",
		"jobs/sample-jobset-tas-combined.yaml": "workers×8",
		"jobs/sample-jobset-tas-required.yaml": "workers×4",
		"jobs/sample-jobset-tas-sliced.yaml":   "workers×8",
		"jobs/sample-jobset.yaml":              "workers×1, driver×1",
		"jobs/sample-mpijob.yaml":              "launcher×1, worker×2",
		"jobs/sample-paddlejob.yaml":           "worker×2",
		"jobs/sample-pytorchjob.yaml":          "master×1, worker×1 after init-pytorch",
		"jobs/sample-sparkapplication.yaml":    "driver×1, executor×2",
		"jobs/sample-tfjob.yaml":               "ps×1, worker×2",
		"jobs/sample-xgboostjob.yaml":          "master×1, worker×2",
	}
	got := map[string]string{}
	err := filepath.WalkDir(folder, func(file string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(folder, file)
		for _, document := range strings.Split(string(text), "\n---") {
			if !strings.Contains(document, "apiVersion:") {
				continue // it is no manifest
			}
			o := object(t, document)
			for _, k := range BuiltIn() {
				if k.GroupVersionKind() == o.GroupVersionKind() {
					got[name] = strings.TrimSuffix(said(k, o), ", running")
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
	"github.com/muster-dev/muster/queueing/workload"
)

// hashOfUID ends the names of the Workloads of pods, but not of pod groups.
var hashOfUID = regexp.MustCompile(`-[0-9a-f]{5}$`)

// TestKindPagesSayWhatMusterReads: a block of text after a sample has the Workloads of its objects, with the name and the number of pods of
// each podSet, or why Muster refuses it. A sample without an apiVersion changes the one before it.
func TestKindPagesSayWhatMusterReads(t *testing.T) {
	var paths []string
	for _, pattern := range []string{"../../docs/kinds/*.md", "../../docs/from-*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	shown := map[string]bool{"TrainJob": false, "StatefulSet": false, "Pod": false, "Deployment": false, "LeaderWorkerSet": false}
	for _, k := range kinds.All() {
		shown[k.GroupVersionKind().Kind] = false
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			whole, blocks := "", samplesOf(t, path)
			for i, b := range blocks {
				if b.isText {
					continue
				}
				this := b.text
				if !strings.HasPrefix(this, "apiVersion: ") {
					this = merged(t, whole, this)
				} else {
					whole = this
				}
				got := readAs(t, this, shown)
				if i+1 < len(blocks) && blocks[i+1].isText {
					if promised := blocks[i+1].text; squeezed(promised) != squeezed(got) {
						t.Errorf("the page promises\n%s\nbut Muster reads\n%s", promised, got)
					}
				} else if got != "" {
					t.Errorf("the page does not say what becomes of\n%s\nwhich is\n%s", this, got)
				}
			}
		})
	}
	for kind, is := range shown {
		if !is {
			t.Errorf("no page of docs/kinds has a sample of %s", kind)
		}
	}
}

// merged is the sample with a change.
func merged(t *testing.T, whole, change string) string {
	t.Helper()
	original, err := yaml.YAMLToJSON([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	patch, err := yaml.YAMLToJSON([]byte(change))
	if err != nil {
		t.Fatal(err)
	}
	out, err := jsonpatch.MergePatch(original, patch)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// readAs are the Workloads of the objects of a sample, a line each, and marks their kinds as shown. A Deployment has none: its pods queue.
func readAs(t *testing.T, text string, shown map[string]bool) string {
	t.Helper()
	var queued []manifest
	for _, m := range manifestsOf(t, text) {
		shown[kindOf(m.object)] = true
		if m.object.GetLabels()[jobs.QueueLabel] == "" {
			continue // what is around the job, such as the runtime of a TrainJob
		}
		if _, is := m.object.(*appsv1.Deployment); is {
			continue
		}
		m.kind = kindOfJob(m.object, kinds.All())
		queued = append(queued, m)
	}
	cluster := &fakeCluster{mayNot: true}
	kube := cluster.client(t)
	found, err := submissionsOf(t.Context(), kube, pictureOf(nil), queued, "default")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, n := range found {
		name := n.Name
		if n.Kind == "Workload" {
			name = hashOfUID.ReplaceAllString(name, "-…")
		}
		fmt.Fprintf(&out, "%s %s: ", n.Kind, name)
		if why := n.Workload.Annotations[workload.RefusedAnnotation]; why != "" {
			fmt.Fprintf(&out, "refused: %s\n", why)
			continue
		}
		var podSets []string
		for i := range n.Workload.Spec.PodSets {
			ps := &n.Workload.Spec.PodSets[i]
			podSets = append(podSets, fmt.Sprintf("%s×%d", ps.Name, ps.Count))
		}
		fmt.Fprintln(&out, strings.Join(podSets, ", "))
	}
	return out.String()
}

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/test/testbed"
)

// pluginVariable names the kubectl plugin.
const pluginVariable = "MUSTER_PLUGIN_BIN"

// TestStoryAWaitingJobIsOnThePageAndExplained: the page lists a job that waits, and the plugin says why it does.
func TestStoryAWaitingJobIsOnThePageAndExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.queue(s.Group("", func(g *v1alpha1.NodeGroup) { g.Spec.Kwok.Holds = new(int32(1)) }))
	s.job("hopeful", 2, nil)
	const why = "1 of 2 machines were made"

	seen := ""
	s.Eventually("the page lists the job and its reason", func() bool {
		seen = fetched(t.Context(), s.DashboardURL()+"/api/queue/rows?queue="+s.Name)
		return strings.Contains(seen, "hopeful") && strings.Contains(seen, "waits for machines")
	}, func() string { return "it answers: " + seen })
	if page := fetched(t.Context(), s.DashboardURL()+"/"); !strings.Contains(page, "<title>Muster") {
		t.Errorf("the page itself is %.200q", page)
	}
	plugin := os.Getenv(pluginVariable)
	if plugin == "" {
		t.Fatalf("%s does not name the plugin: run `make test`, which builds it", pluginVariable)
	}
	s.Eventually("the plugin explains the job", func() bool {
		out, err := exec.CommandContext(t.Context(), plugin, "--kubeconfig", s.Kubeconfig(), "--namespace", s.Name, "explain",
			"job/hopeful").CombinedOutput()
		seen = fmt.Sprintf("%s (%v)", out, err)
		return err == nil && strings.Contains(strings.Join(strings.Fields(seen), " "), why)
	}, func() string { return "it prints: " + seen })
}

// fetched is the body of an answer, or the error.
func fetched(ctx context.Context, url string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err.Error()
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// TestStoryAFailureIsKept: what explains the failure of a test is in its folder: logs, objects, and what the promises were judged by.
func TestStoryAFailureIsKept(t *testing.T) {
	s := newSite(t)
	g := s.Group("", nil)
	r := s.request("kept", 1, nil)
	s.condition(r, provreq.Provisioned, metav1.ConditionTrue)
	dir := t.TempDir()
	t.Setenv(testbed.FailedVariable, dir)
	s.Keep(t, "failed/test", s.Name)
	for file, want := range map[string]string{
		"logs/muster.log": s.Name + "/kept",
		"objects/provisioningrequests.autoscaling.x-k8s.io.yaml": "name: kept",
		"objects/nodegroups.muster.dev.yaml":                     "name: " + g.Name,
		"promises.txt":                                           s.Name + "/kept written",
	} {
		found, err := filepath.Glob(filepath.Join(dir, "*", "failed-test", file))
		if err != nil || len(found) != 1 {
			t.Errorf("%s is kept %d times: %v", file, len(found), err)
			continue
		}
		text, err := os.ReadFile(found[0])
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q: %v", file, want, err)
		}
		if strings.Contains(string(text), "healthz check failed") {
			t.Errorf("%s has lines of probes, which hide the others", file)
		}
	}
}

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/test/testbed"
)

// TestADryRunReportsAndDoesNothing: no cloud gets a call that changes anything, and muster writes only what it reports to the cluster.
func TestADryRunReportsAndDoesNothing(t *testing.T) {
	t.Parallel()
	config := withClouds()
	config.Audit, config.InForce = true, nil
	config.MusterFlags = []string{"--dry-run", "--queueing=false"}
	all := config.Manifests
	config.Manifests = func() ([]*unstructured.Unstructured, error) {
		objects, err := all()
		if err != nil {
			return nil, err
		}
		return deploy.DryRun(objects)
	}
	c := started(t, "dryrun", config)
	s := &site{testbed.NewSite(t, c)}
	s.offering("aws", "methods", onAWS("c", "methods", "p5.48xlarge"))
	s.offering("gcp", "truth", onGCP("c", "truth", "a2-highgpu-8g"))
	s.Group("-kwok", func(*v1alpha1.NodeGroup) {})
	for name, pods := range map[string]func(*corev1.PodSpec){"on-aws": onto("methods"), "on-gcp": onto("truth"),
		"on-kwok": func(*corev1.PodSpec) {}} {
		r := s.request(name, 2, nil, pods)
		would := s.condition(r, transaction.DryRun, metav1.ConditionTrue)
		if would.Reason != transaction.ReasonWouldLaunch || !strings.Contains(would.Message, "launches 2 machines") ||
			!strings.Contains(would.Message, "USD per hour") {
			t.Errorf("request %s says %q (%s), want the launch and its price", name, would.Message, would.Reason)
		}
		if len(r.Status.Conditions) != 1 || len(r.Status.ProvisioningClassDetails) > 0 {
			t.Errorf("the status of request %s says more than what would be done: %+v", name, r.Status)
		}
	}
	for cloud, calls := range s.cloudCalls() {
		for call := range calls {
			if !slices.ContainsFunc([]string{"Describe", "Get", "get", "list", "aggregatedList", "List", "testIamPermissions"},
				func(read string) bool { return strings.Contains(call, read) }) {
				t.Errorf("cloud %s got the call %s", cloud, call)
			}
		}
	}
	for _, written := range writesOfMuster(t, c.AuditLog()) {
		if !slices.Contains(deploy.DryRunWrites, written) && !strings.HasSuffix(written, "reviews") {
			t.Errorf("muster has written %s", written)
		}
	}
}

// cloudCalls are the calls that the clouds have got, by cloud and action.
func (s *site) cloudCalls() (out map[string]map[string]int64) {
	s.Helper()
	answer, err := http.Get(s.CloudsURL() + "/calls")
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
		s.Fatal(err)
	}
	return out
}

// writesOfMuster are the resources that its account has tried to write, with their subresources.
func writesOfMuster(t *testing.T, auditLog string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(auditLog)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e struct {
			User      struct{ Username string }
			ObjectRef struct{ Resource, Subresource string }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.User.Username != fmt.Sprintf("system:serviceaccount:%s:%s", deploy.Namespace,
			deploy.ServiceAccount) {
			continue
		}
		written := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			written += "/" + e.ObjectRef.Subresource
		}
		out = append(out, written)
	}
	if len(out) == 0 {
		t.Error("the log shows no write of muster")
	}
	slices.Sort(out)
	return slices.Compact(out)
}

package clouds_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/cmd/muster/clouds"
	"github.com/muster-dev/muster/kwok/cloudsim/server"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// TestCloudCheckOfSimulatedClouds: the command as users run it, with the clouds' own clients against the clouds of a sandbox.
func TestCloudCheckOfSimulatedClouds(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	file, err := os.ReadFile("../../../kwok/sandbox/clouds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := apiServer(t)
	for _, tc := range []struct {
		name   string
		cloud  v1alpha1.Provider
		args   []string
		change func(*server.Config)
		says   []string
		fails  bool
	}{
		{name: "AWS", cloud: v1alpha1.ProviderAWS, args: []string{"--region", "us-east-1"}, says: []string{
			"Permissions: all are there",
			"training-p5-48xlarge-us-east-1a-spot-", "16    16.95",
			"All P5 Spot Instance Requests (L-C4BD4855)              vCPUs   768     -      6144",
			"All P5 Spot Instance Requests (L-C4BD4855): request a limit of 6144 vCPUs, " +
				"or lower spec.maxNodes; the limit of 768 allows 4 of 16 machines of "}},
		{name: "Google Cloud", cloud: v1alpha1.ProviderGCP, args: []string{"--project", "sandbox"}, says: []string{
			"Permissions: all are there", "47.87",
			"PREEMPTIBLE_NVIDIA_H100_GPUS in us-central1   GPUs   128     0      256",
			"PREEMPTIBLE_NVIDIA_H100_GPUS in us-central1: request a limit of 256 GPUs, " +
				"or lower spec.maxNodes; the limit of 128 allows 16 of 16 machines of "}},
		{name: "AWS without any quota for Spot", cloud: v1alpha1.ProviderAWS, args: []string{"--region", "us-east-1"}, fails: true,
			change: func(c *server.Config) { c.AWS.Quotas[2].Value = 0 },
			says:   []string{"the limit of 0 allows 0 of 16 machines of training-p5-48xlarge-"}},
		{name: "a new project of Google Cloud", cloud: v1alpha1.ProviderGCP, args: []string{"--project", "sandbox"}, fails: true,
			change: func(c *server.Config) { c.GCP.Quotas[1].Limit = 0 }, says: []string{"GPUS_ALL_REGIONS: request a limit of 256 GPUs"}},
		{name: "AWS without permission to read quotas", cloud: v1alpha1.ProviderAWS, args: []string{"--region", "us-east-1"}, fails: true,
			change: func(c *server.Config) { c.AWS.Denied = []string{"servicequotas:ListServiceQuotas"} },
			says:   []string{"Permissions missing, see deploy/clouds:\n  servicequotas:ListServiceQuotas", "FAILED: list the quotas of EC2"}},
		{name: "Google Cloud without permission to read quotas", cloud: v1alpha1.ProviderGCP, args: []string{"--project", "sandbox"}, fails: true,
			change: func(c *server.Config) { c.GCP.Denied = []string{"compute.regions.get"} },
			says:   []string{"Permissions missing, see deploy/clouds:\n  compute.regions.get", "FAILED: reading the quotas of project sandbox"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config, err := server.Read(file)
			if err != nil {
				t.Fatal(err)
			}
			if tc.change != nil {
				tc.change(&config)
			}
			served, err := server.New(config, clock.RealClock{})
			if err != nil {
				t.Fatal(err)
			}
			cloud := httptest.NewServer(served.Handlers[tc.cloud])
			t.Cleanup(cloud.Close)
			cmd := app.NewCommand(clouds.Connect)
			var out, progress bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(&progress)
			cmd.SetArgs(append([]string{"cloud-check", string(tc.cloud), "--cluster", "sandbox", "--kubeconfig", kubeconfig,
				"--endpoint", cloud.URL}, tc.args...))
			if err := cmd.Execute(); (err != nil) != tc.fails {
				t.Errorf("the error is %v; it is to fail: %t", err, tc.fails)
			}
			for _, part := range tc.says {
				if !strings.Contains(out.String(), part) {
					t.Errorf("the report does not say %q:\n%s", part, out.String())
				}
			}
		})
	}
}

// apiServer is one that has the namespace kube-system, and returns the path of its kubeconfig.
func apiServer(t *testing.T) string {
	namespace := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "0a0a0a0a-0000-4000-8000-000000000001"}}
	answers := map[string]any{
		"/api":  metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis": metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}},
		"/api/v1": metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{{Name: "namespaces", Kind: "Namespace", Verbs: metav1.Verbs{"get"}}}},
		"/api/v1/namespaces/kube-system": namespace,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(s.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q}}]\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a}]\ncurrent-context: a\n", s.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

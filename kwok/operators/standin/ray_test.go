package standin

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"
)

// asker sends requests as the operator does: for the Service of a head, through a proxy.
type asker struct {
	*testing.T
	client *http.Client
}

func (a asker) ask(method, path, body string) string {
	a.Helper()
	status, text := a.try(method, path, body)
	if status != http.StatusOK {
		a.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return text
}

func (a asker) try(method, path, body string) (int, string) {
	a.Helper()
	request, err := http.NewRequestWithContext(a.Context(), method, "http://tune-head-svc.team.svc.cluster.local:8265"+path,
		strings.NewReader(body))
	if err != nil {
		a.Fatal(err)
	}
	response, err := a.client.Do(request)
	if err != nil {
		a.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		a.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func TestTheDashboardOfARayCluster(t *testing.T) {
	job := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "ray.io/v1", "kind": "RayJob",
		"metadata": map[string]any{"name": "tune", "namespace": "team", "annotations": map[string]any{runFor: "30s"}},
		"status":   map[string]any{"jobId": "tune-abcde"},
	}}
	kinds := map[schema.GroupVersionResource]string{rayJobs: "RayJobList"}
	clock := testingclock.NewFakePassiveClock(time.Now())
	ofHead := map[string]string{"ray.io/node-type": "head"}
	head := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "head", Namespace: "team", UID: "1", Labels: ofHead}}
	kube := kubefake.NewClientset(head, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "tune-head-svc", Namespace: "team"}, Spec: corev1.ServiceSpec{Selector: ofHead},
	})
	server := httptest.NewServer(newDashboard(kube, fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, job), clock))
	defer server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	a := asker{t, &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(address)}}}

	if status, text := a.try(http.MethodGet, "/api/jobs/tune-abcde", ""); status != http.StatusBadGateway ||
		!strings.Contains(text, "no head runs") {
		t.Errorf("the dashboard of a head that does not run: %d %s", status, text)
	}
	head.Status.Phase = corev1.PodRunning
	if _, err := kube.CoreV1().Pods("team").UpdateStatus(t.Context(), head, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		later      time.Duration
		path, want string
	}{
		{0, "/api/jobs/tune-abcde", "RUNNING"},
		{29 * time.Second, "/api/jobs/tune-abcde", "RUNNING"},
		{time.Second, "/api/jobs/tune-abcde", "SUCCEEDED"},
		{0, "/api/jobs/other", "RUNNING"}, // of a RayJob that does not say how long it runs
		{defaultRun, "/api/jobs/other", "SUCCEEDED"},
		{0, "/api/serve/applications/", `{"applications":{}}`},
		{0, "/-/healthz", ""},
	} {
		clock.SetTime(clock.Now().Add(step.later))
		if got := a.ask(http.MethodGet, step.path, ""); !strings.Contains(got, step.want) {
			t.Errorf("%s says %s, want %s", step.path, got, step.want)
		}
	}
	if got := a.ask(http.MethodPost, "/api/jobs/", `{"submission_id": "mine"}`); !strings.Contains(got, `"job_id":"mine"`) {
		t.Errorf("a submitted job: %s", got)
	}
	a.ask(http.MethodPut, "/api/serve/applications/", `{"applications": [{"name": "chat"}]}`)
	if got := a.ask(http.MethodGet, "/api/serve/applications/?api_type=declarative", ""); !strings.Contains(got,
		`"name":"chat","status":"RUNNING"`) {
		t.Errorf("what is served: %s", got)
	}
}

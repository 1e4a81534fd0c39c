package standin

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

func TestSparkSubmit(t *testing.T) {
	template := filepath.Join(t.TempDir(), "driver.yaml")
	err := os.WriteFile(template, []byte(`
metadata: {ownerReferences: [{kind: SparkApplication, name: features}]}
spec:
  schedulingGates: [{name: held}]
  containers: [{name: spark-kubernetes-driver}, {name: sidecar}]
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	conf := properties([]string{
		"--master", "k8s://https://127.0.0.1:6443", "--class", "dev.muster.Features",
		"--conf", "spark.kubernetes.namespace=team", "--conf", "spark.kubernetes.driver.pod.name=features-driver",
		"--conf", "spark.kubernetes.driver.podTemplateFile=" + template,
		"--conf", "spark.kubernetes.driver.podTemplateContainerName=spark-kubernetes-driver",
		"--conf", "spark.kubernetes.driver.label.sparkoperator.k8s.io/submission-id=1",
		"--conf", "spark.kubernetes.executor.label.sparkoperator.k8s.io/submission-id=1",
		"--conf", "spark.kubernetes.node.selector.pool=a", "--conf", "spark.executor.cores=32", "--conf", "spark.executor.memory=128g",
		"--conf", "spark.executor.instances=3", "local:///features.jar",
	})
	pod, err := submitted(conf)
	if err != nil {
		t.Fatal(err)
	}
	if pod.Name != "features-driver" || pod.Namespace != "team" || len(pod.OwnerReferences) != 1 || len(pod.Spec.SchedulingGates) != 1 ||
		pod.Spec.NodeSelector["pool"] != "a" || len(pod.Spec.Containers) != 2 || pod.Annotations[runFor] != "1s" {
		t.Errorf("the driver is not what its template and its properties say: %+v", pod)
	}

	client := fake.NewClientset()
	d := &drivers{client: client, played: map[types.UID]corev1.PodPhase{}}
	pod.UID = "0123456789"
	workers := func() (names []string, requests corev1.ResourceList) {
		list, err := client.CoreV1().Pods("team").List(t.Context(),
			metav1.ListOptions{LabelSelector: "spark-role=executor,spark-app-selector=spark-1"})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Items {
			names, requests = append(names, p.Name), p.Spec.Containers[0].Resources.Requests
		}
		return names, requests
	}
	for _, step := range []struct {
		phase corev1.PodPhase
		want  []string
	}{
		{corev1.PodPending, nil},
		{corev1.PodRunning, []string{"features-driver-01234567-exec-1", "features-driver-01234567-exec-2", "features-driver-01234567-exec-3"}},
	} {
		pod.Status.Phase = step.phase
		if err := d.play(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		names, requests := workers()
		if diff := cmp.Diff(step.want, names); diff != "" {
			t.Errorf("executors of a driver that is %s (-want +got):\n%s", step.phase, diff)
		}
		// 128 GiB and a tenth, in whole MiB.
		if len(names) > 0 && (requests.Cpu().String() != "32" || requests.Memory().Value() != (128<<10+13107)<<20) {
			t.Errorf("an executor requests %v", requests)
		}
	}
}

func TestExecutorCount(t *testing.T) {
	const dynamic = "spark.dynamicAllocation."
	for name, c := range map[string]struct {
		conf map[string]string
		want int
	}{
		"by default":                           {want: 2},
		"as many as it says":                   {conf: map[string]string{"spark.executor.instances": "0"}, want: 0},
		"dynamic, at least":                    {conf: map[string]string{dynamic + "enabled": "true", dynamic + "minExecutors": "4"}, want: 4},
		"dynamic, at first":                    {conf: map[string]string{dynamic + "enabled": "true", dynamic + "initialExecutors": "5", "spark.executor.instances": "3"}, want: 5},
		"not dynamic, so the least is nothing": {conf: map[string]string{dynamic + "minExecutors": "4", "spark.executor.instances": "1"}, want: 1},
	} {
		if got := executorCount(c.conf); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestRequestsOf(t *testing.T) {
	for name, c := range map[string]struct {
		conf   map[string]string
		cpu    string
		memory int64 // MiB
		bad    bool
	}{
		"by default":               {cpu: "1", memory: 1024 + 384},
		"part of a core":           {conf: map[string]string{"spark.kubernetes.driver.request.cores": "500m", "spark.driver.cores": "4"}, cpu: "500m", memory: 1024 + 384},
		"an overhead that is told": {conf: map[string]string{"spark.driver.memory": "2048", "spark.driver.memoryOverhead": "1g"}, cpu: "1", memory: 2048 + 1024},
		"a factor":                 {conf: map[string]string{"spark.driver.memory": "10G", "spark.kubernetes.memoryOverheadFactor": "0.4"}, cpu: "1", memory: 10240 + 4096},
		"no amount":                {conf: map[string]string{"spark.driver.memory": "much"}, bad: true},
	} {
		got, err := requestsOf(driver, c.conf)
		if c.bad != (err != nil) || !c.bad && (got.Cpu().String() != c.cpu || got.Memory().Value() != c.memory<<20) {
			t.Errorf("%s: %v (%v), want %s cores and %d MiB", name, got, err, c.cpu, c.memory)
		}
	}
}

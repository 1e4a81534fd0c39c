package app

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/state"
	workloads "github.com/muster-dev/muster/queueing/workload"
)

func TestWhatIsKeptOfObjects(t *testing.T) {
	admitted := func(conditions ...string) *kueue.Workload {
		w := workload(conditions...)
		w.Status.Admission = &kueue.Admission{ClusterQueue: "gpus", PodSetAssignments: []kueue.PodSetAssignment{{Name: kueue.DefaultPodSetName}}}
		return w
	}
	over := admitted(kueue.WorkloadAdmitted, kueue.WorkloadFinished)
	over.Spec.PodSets, over.Status.Admission.PodSetAssignments = nil, nil
	job, reduced := pod(t), pod(t)
	job.Labels = map[string]string{workloads.ManagedLabel: "true"}
	state.Reduce(reduced)
	for name, tt := range map[string]struct{ object, want any }{
		"a Workload that waits, whole":              {workload(), workload()},
		"a Workload that runs, whole":               {admitted(kueue.WorkloadAdmitted), admitted(kueue.WorkloadAdmitted)},
		"a Workload that is over, without its pods": {admitted(kueue.WorkloadAdmitted, kueue.WorkloadFinished), over},
		"one that never ran":                        {workload(kueue.WorkloadFinished), func() any { w := workload(kueue.WorkloadFinished); w.Spec.PodSets = nil; return w }()},
		"nothing of who wrote what": {
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		},
		"a Node without the images on its machine": {
			&corev1.Node{Status: corev1.NodeStatus{Phase: corev1.NodeRunning, Images: []corev1.ContainerImage{{SizeBytes: 1}}}},
			&corev1.Node{Status: corev1.NodeStatus{Phase: corev1.NodeRunning}},
		},
		"a pod that is a job, whole":             {job, job.DeepCopy()},
		"another pod as far as others ask of it": {pod(t), reduced},
		"that something is gone":                 {cache.DeletedFinalStateUnknown{Key: "a"}, cache.DeletedFinalStateUnknown{Key: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := trim(tt.object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("kept is (-want +got)\n%s", diff)
			}
		})
	}
}

// pod of a Deployment as a kubelet reports it.
func pod(t testing.TB) *corev1.Pod {
	t.Helper()
	text, err := os.ReadFile("../../../provisioning/state/testdata/pod.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(text, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// node as kubelets report theirs: with 50 images, which is their default.
func node() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}, Annotations: map[string]string{}}}
	for i := range 25 {
		n.Labels[fmt.Sprintf("feature.node.kubernetes.io/cpu-cpuid.%d", i)] = "true"
	}
	n.Status.Capacity = corev1.ResourceList{
		"cpu": resource.MustParse("192"), "memory": resource.MustParse("2Ti"), "nvidia.com/gpu": resource.MustParse("8"),
		"pods": resource.MustParse("110"),
	}
	n.Status.Allocatable = n.Status.Capacity
	for _, c := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeDiskPressure, corev1.NodeMemoryPressure,
		corev1.NodePIDPressure} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: c, Reason: "KubeletReports",
			Message: "kubelet reports how it stands"})
	}
	for i := range 50 {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			SizeBytes: 1 << 30, Names: []string{
				fmt.Sprintf("registry.example.com/team/image-%d@sha256:%064d", i, i), fmt.Sprintf("registry.example.com/team/image-%d:v1.2.3", i),
			},
		})
	}
	return n
}

// BenchmarkKept is the memory of what is kept of one cluster: nodes with four pods each.
func BenchmarkKept(b *testing.B) {
	const nodes, podsEach = 5000, 4
	ofNode, ofPod := encoded(b, node()), encoded(b, pod(b))
	for _, how := range []struct {
		name string
		keep cache.TransformFunc
	}{{"whole", cache.TransformFunc(func(o any) (any, error) { return o, nil })}, {"trimmed", trim}} {
		b.Run(how.name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				var kept []any
				keep := func(text []byte, o metav1.Object, name string) {
					if err := json.Unmarshal(text, o); err != nil {
						b.Fatal(err)
					}
					o.SetName(name)
					o.SetUID(types.UID(name))
					out, err := how.keep(o)
					if err != nil {
						b.Fatal(err)
					}
					kept = append(kept, out)
				}
				for i := range nodes {
					keep(ofNode, &corev1.Node{}, fmt.Sprint("node-", i))
					for j := range podsEach {
						keep(ofPod, &corev1.Pod{}, fmt.Sprintf("pod-%d-%d", i, j))
					}
				}
				b.ReportMetric(float64(heap()-before)/1e6, "MB")
				runtime.KeepAlive(kept)
			}
		})
	}
}

func encoded(b *testing.B, o any) []byte {
	b.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		b.Fatal(err)
	}
	return text
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

package operators

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/test/testbed"
)

// samples is the folder of the objects that the tests take.
const samples = "../../deploy/samples/kinds/"

// story is what becomes of a sample.
type story struct {
	operator string
	file     string
	kind     string

	// suspend is the path of the field that holds it, and held reports whether its operator says that it is held.
	suspend string
	held    func(*unstructured.Unstructured) bool

	// pods is how many pods run when it is resumed, and gpus how many of them have devices. ended reports whether its status shows that
	// it has finished or, for a kind that never ends, that it serves.
	pods  int
	gpus  int
	ended func(*unstructured.Unstructured) bool
}

var stories = map[string]story{
	"JobSet": {
		operator: "jobset", file: "jobset.yaml", kind: "JobSet",
		suspend: "spec.suspend", held: condition("Suspended"), pods: 3, gpus: 2, ended: condition("Completed"),
	},
	"TrainJob": {
		operator: "trainer", file: "trainjob.yaml", kind: "TrainJob",
		suspend: "spec.suspend", held: condition("Suspended"), pods: 2, gpus: 2, ended: condition("Complete"),
	},
	"MPIJob": {
		operator: "mpi", file: "mpijob.yaml", kind: "MPIJob",
		suspend: "spec.runPolicy.suspend", held: condition("Suspended"), pods: 3, gpus: 2, ended: condition("Succeeded"),
	},
	"AppWrapper": {
		operator: "appwrapper", file: "appwrapper.yaml", kind: "AppWrapper",
		suspend: "spec.suspend", held: field("Suspended", "status.phase"), pods: 2, gpus: 2, ended: field("Succeeded", "status.phase"),
	},
	"SparkApplication": {
		operator: "spark", file: "sparkapplication.yaml", kind: "SparkApplication", suspend: "spec.suspend",
		held: field("SUSPENDED", "status.applicationState.state"), pods: 3, gpus: 2, ended: field("COMPLETED", "status.applicationState.state"),
	},
	"PyTorchJob": kubeflow("PyTorchJob", 4, 4),
	"TFJob":      kubeflow("TFJob", 5, 2),
	"XGBoostJob": kubeflow("XGBoostJob", 3, 0),
	"PaddleJob":  kubeflow("PaddleJob", 2, 2),
	"JAXJob":     kubeflow("JAXJob", 2, 2),
	"RayCluster": {
		operator: "ray", file: "raycluster.yaml", kind: "RayCluster",
		suspend: "spec.suspend", held: field("suspended", "status.state"), pods: 3, gpus: 2, ended: field("ready", "status.state"),
	},
	"RayJob": {
		operator: "ray", file: "rayjob.yaml", kind: "RayJob",
		suspend: "spec.suspend", held: field("Suspended", "status.jobDeploymentStatus"), pods: 4, gpus: 2,
		ended: field("SUCCEEDED", "status.jobStatus"),
	},
	"RayService": {
		operator: "ray", file: "rayservice.yaml", kind: "RayService",
		suspend: "spec.rayClusterConfig.suspend", held: has("status.pendingServiceStatus.rayClusterName"), pods: 2, gpus: 1,
		ended: condition("Ready"),
	},
}

func kubeflow(kind string, pods, gpus int) story {
	return story{
		operator: "kubeflow", file: strings.ToLower(kind) + ".yaml", kind: kind,
		suspend: "spec.runPolicy.suspend", held: condition("Suspended"), pods: pods, gpus: gpus, ended: condition("Succeeded"),
	}
}

func TestAnObjectIsHeldAndRunsAndEnds(t *testing.T) {
	for name, s := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testbed.NeedOperators(t, s.operator)
			tell(t, s)
		})
	}
}

func tell(t *testing.T, s story) {
	site := testbed.NewSite(t, shared)
	var object *unstructured.Unstructured
	for _, o := range read(t, s.file) {
		o.SetNamespace(site.Name)
		shorten(o.Object)
		if o.GetKind() == s.kind {
			object = o
			set(t, o, true, s.suspend)
		}
		site.Create(o)
	}
	if object == nil {
		t.Fatalf("%s has no %s", s.file, s.kind)
	}
	state := func() string { return fmt.Sprint(object.Object["status"]) }
	site.Eventually("its operator says that it is held", func() bool { return site.Get(object) && s.held(object) }, state)
	if pods := podsOf(site); len(pods) > 0 {
		t.Fatalf("it is held and has the pods %v", names(pods))
	}

	before := object.DeepCopy()
	set(t, object, false, s.suspend)
	if err := site.Kube.Patch(t.Context(), object, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	ran, devices := map[string]bool{}, map[string]bool{}
	site.Eventually(fmt.Sprintf("%d pods run", s.pods), func() bool {
		for _, p := range podsOf(site) {
			if p.Status.Phase == corev1.PodPending {
				continue
			}
			ran[p.Name] = true
			if hasDevices(p) {
				devices[p.Name] = true
			}
		}
		return len(ran) >= s.pods
	}, func() string { return fmt.Sprint("ran: ", slices.Sorted(maps.Keys(ran))) })
	if len(devices) != s.gpus {
		t.Errorf("the pods %v have GPUs, want %d", slices.Sorted(maps.Keys(devices)), s.gpus)
	}
	site.Eventually("it says that it has ended", func() bool { return site.Get(object) && s.ended(object) }, state)
	for _, p := range podsOf(site) {
		ran[p.Name] = true
	}
	if len(ran) != s.pods {
		t.Errorf("%d pods ran, want %d: %v", len(ran), s.pods, slices.Sorted(maps.Keys(ran)))
	}
}

// A LeaderWorkerSet cannot be suspended. Its pods are held one by one.
func TestALeaderWorkerSetIsHeldByTheGatesOfItsPods(t *testing.T) {
	t.Parallel()
	testbed.NeedOperators(t, "lws")
	site := testbed.NewSite(t, shared)
	object := read(t, "leaderworkerset.yaml")[0]
	object.SetNamespace(site.Name)
	for _, template := range []string{"leaderTemplate", "workerTemplate"} {
		set(t, object, []any{map[string]any{"name": "test/held"}}, "spec.leaderWorkerTemplate."+template+".spec.schedulingGates")
	}
	site.Create(object)
	state := func() string { return fmt.Sprint(names(podsOf(site)), object.Object["status"]) }
	site.Eventually("two groups of two pods", func() bool { return len(podsOf(site)) == 4 }, state)
	groups := map[string]int{}
	for _, p := range podsOf(site) {
		groups[p.Labels["leaderworkerset.sigs.k8s.io/group-index"]]++
		if p.Spec.NodeName != "" {
			t.Errorf("the pod %s is held and runs on %s", p.Name, p.Spec.NodeName)
		}
		free := p.DeepCopy()
		free.Spec.SchedulingGates = nil
		if err := site.Kube.Patch(t.Context(), free, client.MergeFrom(&p)); err != nil {
			t.Fatal(err)
		}
	}
	if want := map[string]int{"0": 2, "1": 2}; !maps.Equal(groups, want) {
		t.Errorf("the webhook has put the pods into the groups %v, want %v", groups, want)
	}
	site.Eventually("all groups serve", func() bool { return site.Get(object) && condition("Available")(object) }, state)
}

// Samples that need no operator are what the API server takes, too.
func TestTheOtherSamplesAreTaken(t *testing.T) {
	t.Parallel()
	site := testbed.NewSite(t, shared)
	for _, file := range []string{"podgroup.yaml", "statefulset.yaml", "deployment.yaml"} {
		for _, o := range read(t, file) {
			o.SetNamespace(site.Name)
			site.Create(o)
		}
	}
	pods := 3 + 2 + 2
	site.Eventually("all pods run", func() bool {
		running := slices.DeleteFunc(podsOf(site), func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
		return len(running) == pods
	}, func() string { return fmt.Sprint(names(podsOf(site))) })
}

// read returns the objects of a sample without those of Muster and Kueue.
func read(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(samples + file)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := deploy.Decode(text)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		group := o.GroupVersionKind().Group
		return group == "muster.dev" || group == "kueue.x-k8s.io"
	})
}

// shorten has all pods run for a second only.
func shorten(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			if key == "kwok.muster.dev/run-for" {
				value[key] = "1s"
			}
			shorten(v)
		}
	case []any:
		for _, v := range value {
			shorten(v)
		}
	}
}

func set(t *testing.T, o *unstructured.Unstructured, value any, path string) {
	t.Helper()
	if err := unstructured.SetNestedField(o.Object, value, strings.Split(path, ".")...); err != nil {
		t.Fatal(err)
	}
}

func podsOf(site *testbed.Site) []corev1.Pod {
	var pods corev1.PodList
	site.List(&pods, client.InNamespace(site.Name))
	return pods.Items
}

func hasDevices(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		return !c.Resources.Limits.Name(testbed.GPU, resource.DecimalSI).IsZero()
	})
}

func names(pods []corev1.Pod) (out []string) {
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

// condition reports whether the status has the condition.
func condition(kind string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(c any) bool {
			fields, ok := c.(map[string]any)
			return ok && fields["type"] == kind && fields["status"] == "True"
		})
	}
}

// has reports whether the field of the path is set.
func has(path string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool { return !field("", path)(o) }
}

// field reports whether the field of the path has the value.
func field(value, path string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		got, _, _ := unstructured.NestedString(o.Object, strings.Split(path, ".")...)
		return got == value
	}
}

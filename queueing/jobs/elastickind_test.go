package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/queueing/controller/writes"
	. "github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
	"github.com/muster-dev/muster/queueing/workload"
)

const rayCluster = `
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: ray, namespace: default, uid: ray-uid, generation: 1, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {kueue.x-k8s.io/elastic-job: "true"}}
spec:
  suspend: true
  enableInTreeAutoscaling: true
  headGroupSpec: {template: {spec: {containers: [{name: head, image: ray, resources: {requests: {cpu: "1"}}}]}}}
  workerGroupSpecs:
  - {groupName: gpu, replicas: 2, minReplicas: 0, maxReplicas: 10, template: {spec: {containers: [{name: worker, image: ray, resources: {requests: {cpu: "4"}}}]}}}
`

// rayJob is one whose RayCluster KubeRay makes.
const rayJob = `
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: ray, namespace: default, uid: ray-uid, generation: 1, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {kueue.x-k8s.io/elastic-job: "true"}}
spec:
  suspend: true
  shutdownAfterJobFinishes: true
  submissionMode: HTTPMode
`

// rayService is one of the same cluster.
const rayService = `
apiVersion: ray.io/v1
kind: RayService
metadata: {name: ray, namespace: default, uid: ray-uid, generation: 1, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {kueue.x-k8s.io/elastic-job: "true"}}
spec: {}
`

// whole is the object that holds a RayCluster's spec, and says by which name KubeRay has made that.
type whole struct {
	text          string
	spec, held    []string
	made, pending []string
}

var wholes = map[string]whole{
	"RayCluster": {text: rayCluster, spec: []string{"spec"}, held: []string{"spec", "suspend"}},
	"RayJob": {text: rayJob, spec: []string{"spec", "rayClusterSpec"}, held: []string{"spec", "suspend"},
		made: []string{"status", "rayClusterName"}},
	"RayService": {text: rayService, spec: []string{"spec", "rayClusterConfig"}, held: []string{"spec", "rayClusterConfig", "suspend"},
		made: []string{"status", "activeServiceStatus", "rayClusterName"}, pending: []string{"status", "pendingServiceStatus", "rayClusterName"}},
}

// object is what the user submits.
func (w whole) object(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	out, cluster := &unstructured.Unstructured{}, map[string]any{}
	if err := errors.Join(yaml.Unmarshal([]byte(w.text), &out.Object),
		yaml.Unmarshal([]byte(rayCluster), &cluster)); err != nil {
		t.Fatal(err)
	}
	if w.made != nil {
		spec := cluster["spec"].(map[string]any)
		delete(spec, "suspend")
		if err := errors.Join(unstructured.SetNestedMap(out.Object, spec, w.spec...),
			unstructured.SetNestedField(out.Object, true, w.held...)); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// ray is an elastic job of Ray with its pods, which the test makes as KubeRay does.
type ray struct {
	*testing.T
	whole
	kind string
	c    client.Client
	r    *Reconciler
	// now goes on with each round.
	now time.Time
	// oldestGo first when it shrinks: KubeRay deletes any, where no autoscaler names them.
	oldestGo bool
	// created is how many pods there have been of each group.
	created map[string]int
}

// schemed has the scheme as it was: the fake client adds the kinds of unstructured objects to its own.
type schemed struct {
	client.Client
	scheme *runtime.Scheme
}

func (s schemed) Scheme() *runtime.Scheme { return s.scheme }

func newRay(t *testing.T, kind string) *ray {
	s, clean := runtime.NewScheme(), runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, kueue.AddToScheme} {
		if err := errors.Join(add(s), add(clean)); err != nil {
			t.Fatal(err)
		}
	}
	job := wholes[kind].object(t)
	made := 0
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(job, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "spot"}}).
		WithStatusSubresource(&kueue.Workload{}).WithIndex(&kueue.Workload{}, ControllerIndex,
		ControllerOf).WithIndex(&corev1.Pod{}, PodIndex, JobUIDOf).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object,
			opts ...client.CreateOption) error {
			made++ // as the API server does
			o.SetUID(types.UID(fmt.Sprint("made-", made)))
			o.SetCreationTimestamp(metav1.NewTime(now.Add(time.Duration(made) * time.Second)))
			return c.Create(ctx, o, opts...)
		}}).Build()
	all := kinds.All()
	i := slices.IndexFunc(all, func(k Kind) bool { return k.GroupVersionKind() == job.GroupVersionKind() })
	g := &ray{T: t, whole: wholes[kind], kind: kind, c: c, now: now, created: map[string]int{}}
	g.r = NewReconciler(all[i], schemed{c, clean}, c, events.NewFakeRecorder(100), func() time.Time { return g.now })
	return g
}

// read reads an object of Ray; nil if there is none.
func (g *ray) read(kind, name string) *unstructured.Unstructured {
	g.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("ray.io/v1")
	o.SetKind(kind)
	if err := g.c.Get(g.Context(), client.ObjectKey{Namespace: "default", Name: name}, o); err != nil {
		if client.IgnoreNotFound(err) != nil {
			g.Fatal(err)
		}
		return nil
	}
	return o
}

// job is the object that queues.
func (g *ray) job() *unstructured.Unstructured { return g.read(g.kind, "ray") }

// cluster is the RayCluster; nil if KubeRay has made none.
func (g *ray) cluster() *unstructured.Unstructured {
	if g.made == nil {
		return g.job()
	}
	return g.read("RayCluster", "ray-made")
}

// makeCluster makes the RayCluster of a job that runs, and takes it from one that is held, which then says that it has stopped.
func (g *ray) makeCluster() {
	g.Helper()
	job, cluster := g.job(), g.cluster()
	held, _, _ := unstructured.NestedBool(job.Object, g.held...)
	_, stopped, _ := unstructured.NestedString(job.Object, "status", "state")
	said := g.made
	switch {
	case held == stopped && (g.made == nil || (cluster == nil) == held):
		return
	case held:
		if g.made != nil && cluster != nil {
			if err := g.c.Delete(g.Context(), cluster); err != nil {
				g.Fatal(err)
			}
		}
		job.Object["status"] = map[string]any{"state": "suspended", "jobDeploymentStatus": "Suspended"}
	case g.made == nil:
		unstructured.RemoveNestedField(job.Object, "status")
	default:
		unstructured.RemoveNestedField(job.Object, "status")
		cluster = &unstructured.Unstructured{}
		cluster.SetAPIVersion("ray.io/v1")
		cluster.SetKind("RayCluster")
		cluster.SetNamespace("default")
		cluster.SetName("ray-made")
		cluster.SetGeneration(1)
		cluster.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(job, job.GroupVersionKind())})
		spec, _, _ := unstructured.NestedMap(job.Object, g.spec...)
		cluster.Object["spec"] = spec
		if err := g.c.Create(g.Context(), cluster); err != nil {
			g.Fatal(err)
		}
		if g.pending != nil {
			said = g.pending
		}
		if err := unstructured.SetNestedField(job.Object, cluster.GetName(), said...); err != nil {
			g.Fatal(err)
		}
	}
	if err := g.c.Update(g.Context(), job); err != nil {
		g.Fatal(err)
	}
}

// settle reconciles until nothing changes. Before each step, KubeRay creates the requested pods.
func (g *ray) settle() {
	g.Helper()
	for range 10 {
		g.operate()
		g.now = g.now.Add(6 * time.Second)
		if _, err := g.r.Reconcile(g.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default",
			Name: "ray"}}); err != nil {
			g.Fatal(err)
		}
	}
}

// workers is the group of the workers.
func workers(cluster *unstructured.Unstructured) map[string]any {
	groups, _, _ := unstructured.NestedSlice(cluster.Object, "spec", "workerGroupSpecs")
	return groups[0].(map[string]any)
}

// operate is KubeRay's part.
func (g *ray) operate() {
	g.makeCluster()
	cluster := g.cluster()
	held, _, _ := unstructured.NestedBool(g.job().Object, g.held...)
	if cluster == nil {
		held, cluster = true, wholes["RayCluster"].object(g.T)
	}
	head, _, _ := unstructured.NestedMap(cluster.Object, "spec", "headGroupSpec")
	for name, group := range map[string]map[string]any{"head": head, "gpu": workers(cluster)} {
		count, ok := group["replicas"].(int64)
		if !ok {
			count = 1
		}
		if held {
			count = 0
		}
		g.makePods(name, int(count), group["template"].(map[string]any))
	}
}

// makePods creates so many pods of a group, or deletes surplus ones: the last ones, or any.
func (g *ray) makePods(name string, count int, of map[string]any) {
	g.Helper()
	var all corev1.PodList
	if err := g.c.List(g.Context(), &all); err != nil {
		g.Fatal(err)
	}
	have := slices.DeleteFunc(all.Items, func(p corev1.Pod) bool { return !strings.HasPrefix(p.Name, name) })
	if g.oldestGo {
		slices.Reverse(have)
	}
	for len(have) > count {
		if err := g.c.Delete(g.Context(), &have[len(have)-1]); err != nil {
			g.Fatal(err)
		}
		have = have[:len(have)-1]
	}
	for n := len(have); n < count; n++ {
		template := &corev1.PodTemplateSpec{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(of, template); err != nil {
			g.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Namespace, pod.Name = "default", fmt.Sprintf("%s-%d", name, g.created[name])
		g.created[name]++
		if err := g.c.Create(g.Context(), pod); err != nil {
			g.Fatal(err)
		}
	}
}

// scale sets the replicas as Ray's autoscaler does.
func (g *ray) scale(replicas int64) {
	g.Helper()
	cluster := g.cluster()
	group := workers(cluster)
	group["replicas"] = replicas
	if err := unstructured.SetNestedSlice(cluster.Object, []any{group}, "spec", "workerGroupSpecs"); err != nil {
		g.Fatal(err)
	}
	cluster.SetGeneration(cluster.GetGeneration() + 1)
	if err := g.c.Update(g.Context(), cluster); err != nil {
		g.Fatal(err)
	}
	g.settle()
}

func (g *ray) slices() []*kueue.Workload {
	g.Helper()
	all, err := SlicesOf(g.Context(), g.c, g.job())
	if err != nil {
		g.Fatal(err)
	}
	return all
}

// admit gives the newest slice its quota, and finishes the one before it.
func (g *ray) admit() {
	g.Helper()
	all := g.slices()
	w := all[len(all)-1]
	status := w.Status.DeepCopy()
	status.Admission = &kueue.Admission{ClusterQueue: "team"}
	for _, p := range w.Spec.PodSets {
		status.Admission.PodSetAssignments = append(status.Admission.PodSetAssignments, kueue.PodSetAssignment{
			Name: p.Name, Count: new(p.Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "spot"}})
	}
	for _, c := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		apimeta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: "Admitted"})
	}
	if _, err := writes.ApplyStatus(g.Context(), g.c, w, status); err != nil {
		g.Fatal(err)
	}
	if len(all) > 1 {
		if _, err := writes.ApplyStatus(g.Context(), g.c, all[len(all)-2],
			workload.Finished(all[len(all)-2], kueue.WorkloadSliceReplaced, "", g.now)); err != nil {
			g.Fatal(err)
		}
	}
	g.settle()
}

// want is what the slices that are not over have, by podSet, and which pods may be scheduled.
func (g *ray) want(what, slicesWant, open string) {
	g.Helper()
	var have, free []string
	for _, w := range g.slices() {
		switch {
		case workload.IsFinished(w):
		case workload.HasQuota(w):
			have = append(have, fmt.Sprint(Granted(w)))
		default:
			have = append(have, fmt.Sprint("waits for ", w.Spec.PodSets[0].Count, "+", w.Spec.PodSets[1].Count,
				w.Annotations[workload.RefusedAnnotation]))
		}
	}
	var pods corev1.PodList
	if err := g.c.List(g.Context(), &pods); err != nil {
		g.Fatal(err)
	}
	for i := range pods.Items {
		if !slices.ContainsFunc(pods.Items[i].Spec.SchedulingGates, IsElasticGate) {
			free = append(free, pods.Items[i].Name)
		}
	}
	if got := strings.Join(have, ", "); got != slicesWant || strings.Join(free, " ") != open {
		g.Errorf("%s: the slices are %q and the pods that may run %q, want %q and %q", what, got, free, slicesWant, open)
	}
}

// TestJobsOfRayGrowAndShrink with the quota that they have: as Kueue's elastic jobs do, by slices, also by Ray's own autoscaler,
// which scales the RayCluster that KubeRay makes of a RayJob or a RayService.
func TestJobsOfRayGrowAndShrink(t *testing.T) {
	for kind := range wholes {
		t.Run(kind, func(t *testing.T) {
			g := newRay(t, kind)
			g.settle()
			g.want("it waits", "waits for 1+2", "")
			g.admit()
			g.want("it runs", "[1 2]", "gpu-0 gpu-1 head-0")
			g.scale(4)
			g.want("two more are asked for", "[1 2], waits for 1+4", "gpu-0 gpu-1 head-0")
			g.scale(5)
			g.want("three more are", "[1 2], waits for 1+5", "gpu-0 gpu-1 head-0")
			g.admit()
			g.want("they have quota", "[1 5]", "gpu-0 gpu-1 gpu-2 gpu-3 gpu-4 head-0")
			g.scale(1)
			g.want("their quota goes back", "[1 1]", "gpu-0 head-0")
			g.scale(3)
			g.want("it grows again", "[1 1], waits for 1+3", "gpu-0 head-0")
			g.scale(1)
			g.want("it changes its mind", "[1 1]", "gpu-0 head-0")
			g.evict()
			g.want("it is evicted, and waits for what its user wrote", g.afterEviction(), "")
		})
	}
}

// afterEviction is what a job waits for: what KubeRay has made of it is gone, with what its autoscaler wanted.
func (g *ray) afterEviction() string {
	if g.made == nil {
		return "waits for 1+1"
	}
	return "waits for 1+2"
}

// evict takes the quota away.
func (g *ray) evict() {
	g.Helper()
	for _, w := range g.slices() {
		if workload.HasQuota(w) && !workload.IsFinished(w) {
			if _, err := writes.ApplyStatus(g.Context(), g.c, w,
				workload.Evicted(w, kueue.WorkloadEvictedByPreemption, "preempted", g.now)); err != nil {
				g.Fatal(err)
			}
		}
	}
	g.settle()
}

// TestAJobOfRayShrinksAfterARefusedGrowth, whichever pods KubeRay deletes: the remaining pods run, and the rest of the quota is released.
func TestAJobOfRayShrinksAfterARefusedGrowth(t *testing.T) {
	for kind := range wholes {
		t.Run(kind, func(t *testing.T) {
			g := newRay(t, kind)
			g.settle()
			g.admit()
			g.oldestGo = true
			g.scale(4)
			g.want("two more are asked for", "[1 2], waits for 1+4", "gpu-0 gpu-1 head-0")
			g.scale(2)
			g.want("those that waited take the place of those that are gone", "[1 2]", "gpu-2 gpu-3 head-0")
			g.scale(4)
			g.scale(1)
			g.want("one that waited is left", "[1 1]", "gpu-5 head-0")
		})
	}
}

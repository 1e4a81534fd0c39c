package kinds

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/testbed"
)

const samples = "../../deploy/samples/kinds/"

// runFor is how long the pods of a sample run: long enough to be evicted meanwhile, and less
// than the half minute that KubeRay gives a job to end after its submitter.
const runFor = "15s"

// patience is the timeout for steps of several controllers, each with its own interval.
const patience = 3 * time.Minute

type story struct {
	operator, file, kind string
	// podSets are name×count, as Kueue has them.
	podSets string
	// serves: it never ends, and is deleted.
	serves bool
	// keeps is what a start leaves behind in the spec, as its operator demands.
	keeps string
	// change changes the spec of the sample.
	change func(spec map[string]any)
	// elastic: it may have other numbers of pods while it runs.
	elastic bool
	// runFor is how long its pods run; empty is runFor of all.
	runFor string
}

var stories = []story{
	{operator: "jobset", file: "jobset.yaml", kind: "JobSet", podSets: "launcher×1 workers×2"},
	{operator: "trainer", file: "trainjob.yaml", kind: "TrainJob", podSets: "node×2", keeps: "runtimePatches"},
	{operator: "mpi", file: "mpijob.yaml", kind: "MPIJob", podSets: "launcher×1 worker×2"},
	{operator: "kubeflow", file: "pytorchjob.yaml", kind: "PyTorchJob", podSets: "master×1 worker×3"},
	{operator: "kubeflow", file: "tfjob.yaml", kind: "TFJob", podSets: "chief×1 ps×2 worker×2"},
	{operator: "kubeflow", file: "xgboostjob.yaml", kind: "XGBoostJob", podSets: "master×1 worker×2"},
	{operator: "kubeflow", file: "paddlejob.yaml", kind: "PaddleJob", podSets: "worker×2"},
	{operator: "kubeflow", file: "jaxjob.yaml", kind: "JAXJob", podSets: "worker×2"},
	{operator: "ray", file: "raycluster.yaml", kind: "RayCluster", podSets: "head×1 gpu×2", serves: true},
	{operator: "ray", file: "rayjob.yaml", kind: "RayJob", podSets: "head×1 gpu×2 submitter×1"},
	{operator: "ray", file: "rayservice.yaml", kind: "RayService", podSets: "head×1 gpu×1", serves: true},
	{operator: "appwrapper", file: "appwrapper.yaml", kind: "AppWrapper", podSets: "wrapped-0×2"},
	{operator: "spark", file: "sparkapplication.yaml", kind: "SparkApplication", podSets: "driver×1 executor×2"},
}

func TestEveryKindIsQueued(t *testing.T) {
	for _, s := range stories {
		t.Run(s.kind, func(t *testing.T) {
			t.Parallel()
			testbed.NeedOperators(t, s.operator)
			s.run(&site{testbed.NewSite(t, shared)})
		})
	}
}

type site struct{ *testbed.Site }

// rack is the node label of the rack of the machines with GPUs.
const rack = "example.com/rack"

// queue makes the site one of two groups of machines, and a queue over both.
func (s *site) queue() {
	s.Helper()
	cpu := s.NewGroup("-cpu", func(g *v1alpha1.NodeGroup) {
		g.Spec.Template.Taints = nil
		g.Spec.Template.Capacity = corev1.ResourceList{"cpu": resource.MustParse("96"), "memory": resource.MustParse("1Ti")}
		g.Spec.Template.Labels["machine"] = s.Name + "-cpu"
	})
	gpu := s.NewGroup("-gpu", func(g *v1alpha1.NodeGroup) {
		g.Spec.Template.Labels["machine"], g.Spec.Template.Labels[rack] = s.Name+"-gpu", "a"
	})
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		Spec: kueue.AdmissionCheckSpec{ControllerName: "muster.dev/capacity"}}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{
		AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(s.Name)}}}
	rg := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"cpu", "memory", testbed.GPU}}
	for suffix, gpus := range map[string]string{"-cpu": "0", "-gpu": "64"} {
		flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name + suffix}}
		flavor.Spec.NodeLabels = map[string]string{"machine": s.Name + suffix}
		if suffix == "-gpu" {
			flavor.Spec.Tolerations = []corev1.Toleration{{Key: testbed.GPUTaint.Key, Operator: corev1.TolerationOpExists,
				Effect: testbed.GPUTaint.Effect}}
		}
		s.Create(flavor)
		rg.Flavors = append(rg.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(flavor.Name), Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("768")}, {Name: "memory", NominalQuota: resource.MustParse("8Ti")},
			{Name: testbed.GPU, NominalQuota: resource.MustParse(gpus)},
		}})
	}
	slices.SortFunc(rg.Flavors, func(a, b kueue.FlavorQuotas) int { return strings.Compare(string(a.Name), string(b.Name)) })
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{rg}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "two-groups"}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(s.Name)
	s.Create(cpu, gpu, check, cq, lq)
}

// run runs a sample from its creation to its end.
func (x story) run(s *site) {
	s.queue()
	job := x.create(s)
	until := func(wish string, holds func() bool) { s.Helper(); x.until(s, job, wish, holds) }

	until("it is queued with its pod sets", func() bool {
		w := x.workload(s, job)
		return w != nil && podSets(w) == x.podSets
	})
	spec := x.spec(s, job)
	w := x.workload(s, job)
	sum := int32(0)
	for _, p := range w.Spec.PodSets {
		sum += p.Count
	}
	runs := func() bool { return len(s.pods(corev1.PodRunning)) == int(sum) }
	until("all pods run", runs)
	first := s.nodes()

	s.activate(w, false)
	until("no pod is left, and the quota is released", func() bool {
		w := x.workload(s, job)
		return len(s.pods(corev1.PodPending, corev1.PodRunning)) == 0 && w != nil && w.Status.Admission == nil
	})
	if diff := gocmp.Diff(spec, x.spec(s, job)); diff != "" {
		s.Errorf("evicted, its spec is not as its user wrote it (-want +got):\n%s", diff)
	}
	until("its machines are terminated", func() bool { return len(s.Left(s.Name+"-cpu"))+len(s.Left(s.Name+"-gpu")) == 0 })

	s.activate(w, true)
	until("all pods run again", runs)
	for _, node := range s.nodes() {
		if slices.Contains(first, node) {
			s.Errorf("node %s of the first attempt is back", node)
		}
	}
	if x.serves {
		s.Delete(job, client.PropagationPolicy(metav1.DeletePropagationForeground))
	} else {
		until("its Workload is finished", func() bool {
			w := x.workload(s, job)
			return w != nil && slices.ContainsFunc(w.Status.Conditions, func(c metav1.Condition) bool {
				return c.Type == kueue.WorkloadFinished && c.Reason == kueue.WorkloadFinishedReasonSucceeded
			})
		})
	}
	until("nothing is left", func() bool {
		return len(s.pods(corev1.PodPending, corev1.PodRunning)) == 0 && len(s.Left(s.Name+"-cpu"))+len(s.Left(s.Name+"-gpu")) == 0
	})
}

// until waits for a step of several controllers.
func (x story) until(s *site, job *unstructured.Unstructured, wish string, holds func() bool) {
	s.Helper()
	s.Within(patience, wish, holds, func() string { return x.state(s, job) })
}

// state describes a job, its pods and its Workload.
func (x story) state(s *site, job *unstructured.Unstructured) string {
	w := x.workload(s, job)
	if w == nil {
		return fmt.Sprint("no Workload; status ", job.Object["status"])
	}
	return fmt.Sprintf("pods %v; status %v; Workload %+v, annotations %v", s.pods(), job.Object["status"], w.Status.Conditions, w.Annotations)
}

// create creates the objects of the sample, and returns the queued one.
func (x story) create(s *site) (job *unstructured.Unstructured) {
	s.Helper()
	text, err := os.ReadFile(samples + x.file)
	if err != nil {
		s.Fatal(err)
	}
	objects, err := deploy.Decode([]byte(strings.ReplaceAll(string(text), "run-for: 30s", "run-for: "+cmp.Or(x.runFor, runFor))))
	if err != nil {
		s.Fatal(err)
	}
	for _, o := range objects {
		switch o.GroupVersionKind().Group {
		case "muster.dev", "kueue.x-k8s.io":
			continue
		}
		o.SetNamespace(s.Name)
		if o.GetKind() == x.kind {
			job = o
			o.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "two-groups"})
			if x.elastic {
				o.SetAnnotations(map[string]string{workload.ElasticAnnotation: "true", "kwok.muster.dev/run-for": "1h"})
			}
			if x.change != nil {
				x.change(o.Object["spec"].(map[string]any))
			}
		}
		// Policies get the schema of a CRD a moment after it is served.
		var err error
		s.Eventually("it is created", func() bool {
			err = s.Kube.Create(s.Context(), o)
			return !apierrors.IsServiceUnavailable(err)
		}, func() string { return err.Error() })
		if err != nil {
			s.Fatal(err)
		}
	}
	if job == nil {
		s.Fatalf("%s has no %s", x.file, x.kind)
	}
	return job
}

// spec returns the spec of the job without the fields that may stay changed.
func (x story) spec(s *site, job *unstructured.Unstructured) map[string]any {
	s.Helper()
	if !s.Get(job) {
		s.Fatal("the job is gone")
	}
	spec, _, err := unstructured.NestedMap(job.Object, "spec")
	if err != nil {
		s.Fatal(err)
	}
	delete(spec, x.keeps)
	return asRead(spec).(map[string]any)
}

// asRead is a part of an object without what an operator adds to it that writes back what it has read into Go's types: objects
// without fields, and amounts as texts.
func asRead(part any) any {
	switch part := part.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, v := range part {
			if v = asRead(v); k == "requests" || k == "limits" {
				amounts, _ := v.(map[string]any)
				for name, amount := range amounts {
					amounts[name] = fmt.Sprint(amount)
				}
			}
			if m, ok := v.(map[string]any); !ok || len(m) > 0 {
				out[k] = v
			}
		}
		return out
	case []any:
		out := make([]any, len(part))
		for i, v := range part {
			out[i] = asRead(v)
		}
		return out
	default:
		return part
	}
}

// workload is that of the job; nil if there is none.
func (x story) workload(s *site, job *unstructured.Unstructured) *kueue.Workload {
	s.Get(job)
	var list kueue.WorkloadList
	s.List(&list, client.InNamespace(s.Name))
	for i := range list.Items {
		if w := &list.Items[i]; metav1.IsControlledBy(w, job) {
			return w
		}
	}
	return nil
}

func podSets(w *kueue.Workload) string {
	var out []string
	for _, p := range w.Spec.PodSets {
		out = append(out, fmt.Sprintf("%s×%d", p.Name, p.Count))
	}
	return strings.Join(out, " ")
}

// activate lets a Workload be admitted, or evicts it.
func (s *site) activate(w *kueue.Workload, active bool) {
	s.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"active":%v}}`, active))
	if err := s.Kube.Patch(s.Context(), w.DeepCopy(), patch); err != nil {
		s.Fatal(err)
	}
}

// pods names those of the site in one of the phases, or all.
func (s *site) pods(phases ...corev1.PodPhase) (out []string) {
	var list corev1.PodList
	s.List(&list, client.InNamespace(s.Name))
	for _, p := range list.Items {
		if len(phases) == 0 || slices.Contains(phases, p.Status.Phase) {
			out = append(out, fmt.Sprintf("%s(%s)", p.Name, p.Status.Phase))
		}
	}
	return out
}

// nodes returns the names of the nodes with pods of the site.
func (s *site) nodes() (out []string) {
	var list corev1.PodList
	s.List(&list, client.InNamespace(s.Name))
	for _, p := range list.Items {
		if p.Status.Phase == corev1.PodRunning {
			out = append(out, p.Spec.NodeName)
		}
	}
	return out
}

// TestTheDemoOfAJobSet runs its story with the operator that the other tests have built.
func TestTheDemoOfAJobSet(t *testing.T) {
	testbed.NeedOperators(t, "jobset")
	name := fmt.Sprintf("demo-jobset-%d", os.Getpid())
	if out, err := exec.CommandContext(t.Context(), os.Getenv(testbed.SandboxVariable), "demo", "--name", name,
		"--jobset").CombinedOutput(); err != nil {
		t.Errorf("the demo failed: %v\n%s", err, out)
	}
}

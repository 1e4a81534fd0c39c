package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/test/testbed"
)

// page is the document with the example, and root is where its paths begin.
const (
	root = "../../"
	page = root + "docs/add-a-job-kind.md"
)

var yamlBlock = regexp.MustCompile("(?ms)^```yaml$(.*?)^```$")

// example is a manifest of the page.
func example(t *testing.T, kind string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], "\nkind: "+kind+"\n") {
			return block[1]
		}
	}
	t.Fatalf("%s has no %s", page, kind)
	return ""
}

// TestAKindOfOnesOwn follows docs/add-a-job-kind.md with the files of that page: a kind that only the settings define, and whose CRD is
// installed later, is suspended, started whole on two groups of machines, stopped, started again and finished. Its quota is held as long
// as its pods exist, whatever its operator reports.
func TestAKindOfOnesOwn(t *testing.T) {
	t.Parallel()
	settings := example(t, "Configuration")
	file := filepath.Join(t.TempDir(), "muster.yaml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, err := app.Manifests(file)
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.Config{Progress: os.Stderr}
	sandbox.FillBy(&c, []byte(settings), objects)
	s := &trainRuns{site: &site{&testbed.Site{T: t, Cluster: alone(t, "own-kind", c), Name: metav1.NamespaceDefault}}}
	s.applySamples()
	s.run = s.decode(example(t, "TrainRun"))[0]
	s.createByUser()
	written := s.run.DeepCopy()

	s.until("it is queued with its pod sets", func() bool {
		w := s.workload()
		return w != nil && podSetsOf(w) == "chief×1 worker×2" && strings.HasPrefix(w.Name, "trainrun-llm-")
	})
	s.until("all pods run, on machines of two groups", s.allRun)

	w := s.workload()
	s.edit(w, func() { w.Spec.Active = new(false) })
	s.until("it is held, and its operator says that it has stopped", func() bool { return s.isHeld() && s.said == "Stopped" })
	s.until("its eviction is seen", func() bool {
		return apimeta.IsStatusConditionTrue(s.workload().Status.Conditions, kueue.WorkloadEvicted)
	})
	if w := s.workload(); w.Status.Admission == nil {
		t.Error("its quota is given back while its pods run")
	}
	s.deletes = true
	s.until("its quota is given back when they are gone", func() bool { return len(s.pods()) == 0 && s.workload().Status.Admission == nil })
	s.Get(s.run)
	if diff := cmp.Diff(written.Object["spec"], s.run.Object["spec"]); diff != "" {
		t.Errorf("held again, it is not as its user wrote it (-want +got):\n%s", diff)
	}

	s.deletes = false
	w = s.workload()
	s.edit(w, func() { w.Spec.Active = new(true) })
	s.until("all pods run again", s.allRun)
	s.done = true
	s.until("it is said that pods are left of it", func() bool {
		return slices.ContainsFunc(s.events(s.run), func(note string) bool {
			return strings.HasPrefix(note, "The TrainRun has ended, and pods of it still run")
		})
	})
	if w := s.workload(); w.Status.Admission == nil || apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) {
		t.Errorf("it is over while pods of it run: %v", w.Status.Conditions)
	}
	s.deletes = true
	s.until("it is over when they are gone", func() bool {
		return apimeta.IsStatusConditionTrue(s.workload().Status.Conditions, kueue.WorkloadFinished)
	})
	s.Empty("cpu", "h100")
	s.Delete(s.run)
	s.until("nothing is left of it", func() bool { return len(s.workloads()) == 0 })

	s.losesItsKind()
	s.startsWholeOrNotAtAll()
}

// losesItsKind: the CRD goes while a run has its pods, as an operator that is uninstalled takes it
// along. Nothing of the run is left, and one is served as before when the CRD comes again.
func (s *trainRuns) losesItsKind() {
	s.again()
	s.until("all pods run before the CRD goes", s.allRun)
	crd := s.decode(example(s.T, "CustomResourceDefinition"))[0]
	s.Delete(crd)
	s.Eventually("the CRD and all of the run are gone", func() bool {
		return !s.Get(crd.DeepCopy()) && len(s.pods()) == 0 && len(s.workloads()) == 0
	}, func() string { return fmt.Sprint(s.pods(), s.workloads()) })
	s.Empty("cpu", "h100")
	s.Create(s.decode(example(s.T, "CustomResourceDefinition"))[0])
	s.Eventually("a run can be created again", func() bool {
		return s.Kube.Create(s.Context(), s.decode(example(s.T, "TrainRun"))[0], client.DryRunAll) == nil
	}, func() string { return "it cannot" })
	s.again()
	s.until("all pods run after the CRD has come again", s.allRun)
	s.deletes, s.done = true, true
	s.until("it is over", func() bool {
		return apimeta.IsStatusConditionTrue(s.workload().Status.Conditions, kueue.WorkloadFinished)
	})
	s.Empty("cpu", "h100")
	s.Delete(s.run)
	s.until("nothing is left of the second", func() bool { return len(s.workloads()) == 0 })
}

// again creates another run.
func (s *trainRuns) again() {
	s.run, s.done, s.deletes, s.said = s.decode(example(s.T, "TrainRun"))[0], false, false, ""
	s.Create(s.run)
}

// startsWholeOrNotAtAll: there is a machine for the chief, and one of two for the workers.
func (s *trainRuns) startsWholeOrNotAtAll() {
	gpus := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}
	s.edit(gpus, func() { gpus.Spec.Kwok.Holds = new(int32(1)) })
	s.again()
	s.until("the attempt to have its machines fails", func() bool {
		return s.Get(gpus) && slices.ContainsFunc(gpus.Status.Attempts,
			func(a v1alpha1.LaunchAttempt) bool { return a.Class == v1alpha1.Stockout })
	})
	s.Empty("cpu", "h100")
	if !s.isHeld() || len(s.pods()) > 0 {
		s.Errorf("it has pods %v, and its spec is %v", s.pods(), s.run.Object["spec"])
	}
	s.leavesItsQueue()
	s.Delete(s.run)
}

// leavesItsQueue: a Job that the run controls queues by itself from then on.
func (s *trainRuns) leavesItsQueue() {
	part := s.newPlainJob("part", 1, "1h", func(j *batchv1.Job) {
		j.Labels, j.Spec.Suspend = s.run.GetLabels(), new(true)
		j.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.run, s.run.GroupVersionKind())}
		j.Spec.Template.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("1000")
	})
	s.Create(part)
	s.Eventually("it is suspended, as its status says, and waits for none", func() bool {
		return s.Get(part) && *part.Spec.Suspend && len(part.Status.Conditions) > 0 && s.Workload(part) == nil
	},
		func() string { return fmt.Sprint(s.workloads()) })
	s.edit(s.run, func() { s.run.SetLabels(nil) })
	s.until("the part queues by itself", func() bool { return s.Workload(part) != nil })
}

// trainRuns is the site of one TrainRun, and plays its operator.
type trainRuns struct {
	*site
	run *unstructured.Unstructured
	// said is the phase that the operator has written last.
	said string
	// done: the run is to end. deletes: the operator deletes the pods of a run that is held or has
	// ended; else it only says that it has stopped.
	done, deletes bool
}

// decode returns the objects of a manifest.
func (s *trainRuns) decode(text string) []*unstructured.Unstructured {
	s.Helper()
	out, err := deploy.Decode([]byte(text))
	if err != nil {
		s.Fatal(err)
	}
	return out
}

// applySamples applies the CRD of the page and the queue of its example. Its machines boot, and are scaled down, at once.
func (s *trainRuns) applySamples() {
	s.Helper()
	text := example(s.T, "CustomResourceDefinition")
	for _, file := range []string{"gpu-queue.yaml", "kinds/queues.yaml"} {
		more, err := os.ReadFile(root + "deploy/samples/" + file)
		if err != nil {
			s.Fatal(err)
		}
		text += "\n---\n" + string(more)
	}
	for _, o := range s.decode(text) {
		switch o.GetKind() {
		case "Job":
			continue
		case "NodeGroup":
			spec := o.Object["spec"].(map[string]any)
			spec["idleTimeout"], spec["kwok"] = "1s", map[string]any{"bootDelay": "500ms"}
		}
		s.Create(o)
	}
}

// createByUser creates the run as a user with all rights to TrainRuns, and fails if that user can
// start it.
func (s *trainRuns) createByUser() {
	s.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "scientist"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{s.run.GroupVersionKind().Group}, Resources: []string{rbacv1.ResourceAll}, Verbs: []string{rbacv1.VerbAll}},
		{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"list"}},
	}}
	s.Create(role)
	user := s.as("scientist", rbacv1.RoleRef{Kind: "ClusterRole", Name: role.Name})
	var err error
	s.Eventually("the CRD is served, and the run is created", func() bool {
		err = user.Create(s.Context(), s.run)
		return err == nil
	}, func() string { return err.Error() })
	if !s.isHeld() {
		s.Fatalf("it was created as %v", s.run.Object["spec"])
	}
	// Whether that is refused or undone is the policies' business.
	started := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"state": null}}`))
	err = user.Patch(s.Context(), s.run.DeepCopy(), started)
	if !s.isHeld() {
		s.Errorf("its user has started it (%v): %v", err, s.run.Object["spec"])
	}
}

// until has the operator act until something holds.
func (s *trainRuns) until(wish string, holds func() bool) {
	s.Helper()
	s.Eventually(wish, func() bool {
		s.operate()
		return holds()
	}, func() string { return fmt.Sprint(s.pods(), s.workloads(), s.run.Object["spec"]) })
}

func (s *trainRuns) isHeld() bool {
	if !s.Get(s.run) {
		return false
	}
	state, _, _ := unstructured.NestedString(s.run.Object, "spec", "state")
	return state == "Pending"
}

// operate is one step of the operator.
func (s *trainRuns) operate() {
	s.Helper()
	if !s.Get(s.run) {
		return
	}
	phase := "Running"
	switch {
	case s.done:
		phase = "Done"
	case s.isHeld():
		phase = "Stopped"
	default:
		s.makePods()
	}
	if s.deletes && phase != "Running" {
		err := s.Kube.DeleteAllOf(s.Context(), &corev1.Pod{}, client.InNamespace(s.Name), client.GracePeriodSeconds(0))
		if err != nil {
			s.Fatal(err)
		}
	}
	if s.said == phase {
		return
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status": {"phase": %q}}`, phase))
	if err := s.Kube.Status().Patch(s.Context(), s.run.DeepCopy(), patch); err != nil {
		s.Fatal(err)
	}
	s.said = phase
}

// makePods makes the pods of the run that are missing. They have its labels, the one that names the
// queue among them, as many an operator has it.
func (s *trainRuns) makePods() {
	s.Helper()
	have := s.pods()
	for name, value := range s.run.Object["spec"].(map[string]any)["roles"].(map[string]any) {
		var role struct {
			Replicas int                    `json:"replicas"`
			Hosts    int                    `json:"hosts"`
			Template corev1.PodTemplateSpec `json:"template"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(value.(map[string]any), &role); err != nil {
			s.Fatal(err)
		}
		for i := range role.Replicas * max(1, role.Hosts) {
			p := &corev1.Pod{ObjectMeta: role.Template.ObjectMeta, Spec: *role.Template.Spec.DeepCopy()}
			p.Namespace, p.Name, p.Labels = s.Name, fmt.Sprintf("%s-%s-%d", s.run.GetName(), name, i), maps.Clone(p.Labels)
			maps.Copy(p.Labels, s.run.GetLabels())
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.run, s.run.GroupVersionKind())}
			if have[p.Name] == "" {
				s.Create(p)
			}
		}
	}
}

// allRun reports whether the chief runs on a machine without GPUs, and each worker on one with.
func (s *trainRuns) allRun() bool {
	var list corev1.PodList
	s.List(&list, client.InNamespace(s.Name))
	machines := map[string]string{}
	for i := range list.Items {
		p := &list.Items[i]
		want := map[string]string{"chief": "cpu", "worker": "h100"}[p.Labels["kueue.x-k8s.io/podset"]]
		if p.Status.Phase != corev1.PodRunning || p.Labels["kueue.x-k8s.io/job-uid"] != string(s.run.GetUID()) ||
			p.Spec.NodeSelector[v1alpha1.NodeGroupLabel] != want {
			return false
		}
		machines[p.Spec.NodeName] = want
	}
	return len(machines) == 3
}

// podSetsOf are those of a Workload, as name×count.
func podSetsOf(w *kueue.Workload) string {
	var out []string
	for _, p := range w.Spec.PodSets {
		out = append(out, fmt.Sprintf("%s×%d", p.Name, p.Count))
	}
	return strings.Join(out, " ")
}

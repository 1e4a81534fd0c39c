package kinds

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/test/testbed"
)

// TestGangsOfKubernetes: if the cluster serves PodGroups, each start of a job has one. Problems of PodGroups with queued jobs do not
// occur: a gang replaces a pod that has ended, a gang that starts again waits only for its remaining pods, and a Job whose own PodGroup
// has fixed its parallelism can start with fewer pods.
func TestGangsOfKubernetes(t *testing.T) {
	t.Parallel()
	c := cluster.Config{Progress: os.Stderr, FeatureGates: map[string]bool{
		"GenericWorkload": true, "WorkloadWithJob": true, "TopologyAwareWorkloadScheduling": true,
	}}
	sandbox.Fill(&c)
	testbed.AddOperators(t, &c, "jobset")
	gated, err := testbed.Start(t.Context(), "gangs", c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = gated.Stop(t.Context()) })
	for name, story := range map[string]func(*gangSite){
		"lost pods are replaced":             (*gangSite).losesPods,
		"the rest starts again":              (*gangSite).startsAgain,
		"fewer pods than the Job has":        (*gangSite).startsWithFewer,
		"pods of one JobSet are in one gang": (*gangSite).ofAJobSet,
		"pods that come later are in none":   (*gangSite).inOrder,
		"a gang is in one rack":              (*gangSite).inOneRack,
		"a gang has the priority of its Job": (*gangSite).ofAPriority,
		"pods of two priorities are in none": (*gangSite).ofTwoPriorities,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &gangSite{&site{testbed.NewSite(t, gated)}}
			s.queue()
			story(s)
		})
	}
}

type gangSite struct{ *site }

// job is an Indexed Job whose pods have a machine each and run until the test ends them.
func (s *gangSite) job(pods int32, change ...func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "train"}}
	job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "two-groups"}
	job.Spec.Parallelism, job.Spec.Completions, job.Spec.CompletionMode = &pods, new(pods), new(batchv1.IndexedCompletion)
	job.Spec.Template.Annotations = map[string]string{"kwok.muster.dev/run-for": "1h"}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Resources: testbed.WholeMachine()}}
	for _, f := range change {
		f(job)
	}
	s.Create(job)
	return job
}

// gangs are the PodGroups of the site that Muster has made, with the pods that each waits for.
func (s *gangSite) gangs() (names, counts []string) {
	var list schedulingv1beta1.PodGroupList
	s.List(&list, client.InNamespace(s.Name), client.HasLabels{"kueue.x-k8s.io/job-uid"})
	for _, g := range list.Items {
		names, counts = append(names, g.Name), append(counts, fmt.Sprint(g.Spec.SchedulingPolicy.Gang.MinCount))
	}
	return names, counts
}

// running are the pods that run, by the group that they are in.
func (s *gangSite) running() map[string][]corev1.Pod {
	out := map[string][]corev1.Pod{}
	var list corev1.PodList
	s.List(&list, client.InNamespace(s.Name))
	for _, p := range list.Items {
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
			continue
		}
		group := ""
		if p.Spec.SchedulingGroup != nil {
			group = *p.Spec.SchedulingGroup.PodGroupName
		}
		out[group] = append(out[group], p)
	}
	return out
}

func (s *gangSite) until(wish string, holds func() bool) {
	s.Helper()
	s.Within(patience, wish, holds, func() string {
		names, counts := s.gangs()
		var list corev1.PodList
		s.List(&list, client.InNamespace(s.Name))
		var pods []string
		for _, p := range list.Items {
			pods = append(pods, fmt.Sprintf("%s %s %v %v", p.Name, p.Status.Phase, p.Spec.SchedulingGroup, p.Status.Conditions))
		}
		return fmt.Sprintf("groups %v of %v; pods %s", names, counts, strings.Join(pods, "\n"))
	})
}

// together waits until as many pods run in one gang of that number, and returns its name.
func (s *gangSite) together(pods int) (gang string) {
	s.Helper()
	s.until(fmt.Sprintf("%d pods run in one gang", pods), func() bool {
		names, counts := s.gangs()
		if len(names) != 1 || counts[0] != fmt.Sprint(pods) {
			return false
		}
		gang = names[0]
		return len(s.running()[gang]) == pods
	})
	return gang
}

// end lets a pod succeed.
func (s *gangSite) end(pod *corev1.Pod) {
	s.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Succeeded"}}`))
	if err := s.Kube.Status().Patch(s.Context(), pod.DeepCopy(), patch); err != nil {
		s.Fatal(err)
	}
}

// inOneRack has the rack that a podSet requires in its PodGroup.
func (s *gangSite) inOneRack() {
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: rack}, {NodeLabel: corev1.LabelHostname}}
	s.Create(topology)
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-gpu"}}
	if err := s.Kube.Patch(s.Context(), flavor, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"topologyName":"`+s.Name+`"}}`))); err != nil {
		s.Fatal(err)
	}
	s.job(3, func(j *batchv1.Job) { j.Spec.Template.Annotations["kueue.x-k8s.io/podset-required-topology"] = rack })
	s.together(3)
	var list schedulingv1beta1.PodGroupList
	s.List(&list, client.InNamespace(s.Name), client.HasLabels{"kueue.x-k8s.io/job-uid"})
	if c := list.Items[0].Spec.SchedulingConstraints; c == nil || len(c.Topology) != 1 || c.Topology[0].Key != rack {
		s.Errorf("the PodGroup is constrained to %v, want one domain of %s", c, rack)
	}
}

// priority creates a class of that value, and returns its name.
func (s *gangSite) priority(value int32) string {
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(s.Name, "-", value)}, Value: value}
	s.Create(class)
	return class.Name
}

// ofAPriority has a priority that is not that of pods without a class.
func (s *gangSite) ofAPriority() {
	class := s.priority(7)
	s.job(3, func(j *batchv1.Job) { j.Spec.Template.Spec.PriorityClassName = class })
	s.together(3)
}

// ofTwoPriorities has pods that kube-scheduler would bind in no group together.
func (s *gangSite) ofTwoPriorities() {
	class := s.priority(8)
	x := story{file: "jobset.yaml", kind: "JobSet", change: func(spec map[string]any) {
		first := spec["replicatedJobs"].([]any)[0].(map[string]any)
		if err := unstructured.SetNestedField(first, class, "template", "spec", "template", "spec", "priorityClassName"); err != nil {
			s.Fatal(err)
		}
	}}
	x.create(s.site)
	s.until("all pods run, in no gang", func() bool { names, _ := s.gangs(); return len(names) == 0 && len(s.running()[""]) == 3 })
}

func (s *gangSite) losesPods() {
	job := s.job(4)
	gang := s.together(4)
	pods := s.running()[gang]
	s.end(&pods[0])
	s.until("one has ended", func() bool { return s.Get(job) && job.Status.Succeeded == 1 })
	s.Delete(&pods[1], client.GracePeriodSeconds(0))
	s.until("its replacement runs outside of the gang", func() bool { return len(s.running()[gang]) == 2 && len(s.running()[""]) == 1 })
	s.Delete(job)
	s.until("the gang is gone with the Job", func() bool { names, _ := s.gangs(); return len(names) == 0 })
}

func (s *gangSite) startsAgain() {
	job := s.job(4)
	first := s.together(4)
	pods := s.running()[first]
	s.end(&pods[0])
	s.until("one has ended", func() bool { return s.Get(job) && job.Status.Succeeded == 1 })
	w := s.Workload(job)
	s.activate(w, false)
	s.until("no pod is left", func() bool { return len(s.running()) == 0 && s.Workload(job).Status.Admission == nil })
	s.activate(w, true)
	if second := s.together(3); second == first {
		s.Errorf("the second start has the gang of the first, %s", first)
	}
}

func (s *gangSite) startsWithFewer() {
	job := s.job(12, func(j *batchv1.Job) { j.Annotations = map[string]string{"kueue.x-k8s.io/job-min-parallelism": "2"} })
	s.together(8)
	if !s.Get(job) || *job.Spec.Parallelism != 8 {
		s.Errorf("parallelism %d, want that of the quota", *job.Spec.Parallelism)
	}
}

func (s *gangSite) ofAJobSet() {
	x := story{file: "jobset.yaml", kind: "JobSet"}
	job := x.create(s.site)
	s.together(3)
	s.until("it finishes", func() bool { w := x.workload(s.site, job); return w != nil && isFinished(w.Status.Conditions) })
}

func (s *gangSite) inOrder() {
	x := story{file: "jobset.yaml", kind: "JobSet", change: func(spec map[string]any) {
		spec["startupPolicy"] = map[string]any{"startupPolicyOrder": "InOrder"}
	}}
	job := x.create(s.site)
	s.until("all pods run, in no gang", func() bool { names, _ := s.gangs(); return len(names) == 0 && len(s.running()[""]) == 3 })
	if w := x.workload(s.site, job); w.Annotations["muster.dev/order"] != "workers after launcher being ready" {
		s.Errorf("the order is told as %q", w.Annotations["muster.dev/order"])
	}
}

func isFinished(conditions []metav1.Condition) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Type == "Finished" && c.Status == metav1.ConditionTrue })
}

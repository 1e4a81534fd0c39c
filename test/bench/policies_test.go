package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
)

// BenchmarkPolicies measures the cost of the admission policies in kube-apiserver, by writes of users and their controllers. Each write
// is a dry run: first without a policy, then with each single policy for its kind, then with all of them.
//
// The result is policy-us/write, the time that kube-apiserver itself reports for its two policy plugins, as the minimum of several
// rounds. One write is made at a time, so that it is CPU time as far as the machine is idle. The bound is 500 us for each Workload that
// Muster does not write: its creation and its end together.
func BenchmarkPolicies(b *testing.B) {
	a := newArena(b, contender{"policies", "", floorOf})
	p := newPolicies(a)
	for _, w := range a.judgedWrites() {
		b.Run(w.name, func(b *testing.B) {
			sets := map[string][]string{"0-none": nil, "2-all": p.names}
			for _, name := range p.about[w.resource] {
				sets["1-"+name] = []string{name}
			}
			for _, set := range slices.Sorted(maps.Keys(sets)) {
				b.Run(set, func(b *testing.B) {
					p.only(b, sets[set])
					for b.Loop() {
						p.measure(b, w)
					}
				})
			}
		})
	}
}

// floorOf is an API server with all that Muster installs, and nothing that runs.
func floorOf(*arena, string) (cluster.Config, starter) {
	config := cluster.Config{}
	sandbox.Fill(&config)
	return config, nil
}

// judged is a write that policies judge.
type judged struct {
	name, resource string
	write          func() error
}

// judgedWrites are such as the loads here have, and such as have nothing to do with
// Muster.
func (a *arena) judgedWrites() []judged {
	a.queue(queue("policies", "20"))
	small := mixed(1)[0]
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "train"}, Annotations: map[string]string{"example.com/owner": "team"}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "main", Image: "main", Env: []corev1.EnvVar{{Name: "A", Value: "b"}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1"),
					"memory": resource.MustParse("1Gi")}},
			}},
		},
	}
	job := func(labels map[string]string) *batchv1.Job {
		return &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "policies", Labels: labels},
			Spec:       batchv1.JobSpec{Template: template},
		}
	}
	pod := func(annotations map[string]string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: template.Spec}
		p.Namespace, p.Name = metav1.NamespaceDefault, "policies"
		maps.Copy(p.Annotations, annotations)
		return p
	}
	labelled := newWorkload(small, "policies", 2)
	labelled.Spec.PodSets[0].Template = template
	admitted := newWorkload(small, "policies", 3)
	a.create(admitted)
	admitted.Status.Admission = admissionOf(admitted)
	admitted.Status.Conditions = []metav1.Condition{condition(kueue.WorkloadQuotaReserved, "QuotaReserved"),
		condition(kueue.WorkloadAdmitted, "Admitted")}
	if err := a.kube.Status().Update(a.Context(), admitted); err != nil {
		a.Fatal(err)
	}
	queued := map[string]string{"kueue.x-k8s.io/queue-name": "policies"}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "policies", Labels: map[string]string{"a": "b"}}, Status: corev1.NodeStatus{
		Allocatable: gpuMachine, Capacity: gpuMachine}}
	a.create(node)
	as := rest.CopyConfig(a.rest)
	as.Impersonate.UserName = "system:serviceaccount:muster-system:muster"
	as.Impersonate.Groups = []string{"system:masters"}
	muster, err := client.New(as, client.Options{Scheme: a.kube.Scheme()})
	if err != nil {
		a.Fatal(err)
	}
	booked := node.DeepCopy()
	state.MakeUnschedulable(booked)
	booked.Labels[v1alpha1.HeldLabel] = "true"
	booked.Annotations = map[string]string{v1alpha1.CordonedAnnotation: v1alpha1.CordonBooked, v1alpha1.BookedLabelPrefix + "r": "{}"}
	create := func(o client.Object) func() error {
		return func() error { return a.kube.Create(a.Context(), o.DeepCopyObject().(client.Object), client.DryRunAll) }
	}
	return []judged{
		{"workload-created", "workloads", create(newWorkload(small, "policies", 1))},
		{"workload-created-with-labels", "workloads", create(labelled)},
		{"workload-finished", "workloads/status", func() error {
			w := admitted.DeepCopy()
			w.Status.Conditions = append(w.Status.Conditions, condition(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonSucceeded))
			return a.kube.Status().Update(a.Context(), w, client.DryRunAll)
		}},
		{"node-booked-by-muster", "nodes", func() error {
			return muster.Patch(a.Context(), booked.DeepCopy(), client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}),
				client.DryRunAll)
		}},
		{"job-created-without-queue", "jobs", create(job(nil))},
		{"job-created-in-queue", "jobs", create(job(queued))},
		{"pod-created", "pods", create(pod(nil))},
		{"pod-created-for-request", "pods", create(pod(map[string]string{"autoscaling.x-k8s.io/consume-provisioning-request": "r"}))},
	}
}

// policies are the policies that Muster installs.
type policies struct {
	*arena
	names []string
	// about has the policies by the resource that they judge.
	about map[string][]string
	// bindings put them in force.
	bindings map[string]*unstructured.Unstructured
}

func newPolicies(a *arena) *policies {
	objects, err := deploy.Manifests(deploy.Halves...)
	if err != nil {
		a.Fatal(err)
	}
	p := &policies{arena: a, about: map[string][]string{}, bindings: map[string]*unstructured.Unstructured{}}
	for _, o := range objects {
		switch {
		case strings.HasSuffix(o.GetKind(), "AdmissionPolicyBinding"):
			p.bindings[o.GetName()] = o
			p.names = append(p.names, o.GetName())
		case strings.HasSuffix(o.GetKind(), "AdmissionPolicy"):
			rules, _, err := unstructured.NestedSlice(o.Object, "spec", "matchConstraints", "resourceRules")
			if err != nil {
				a.Fatal(err)
			}
			for _, rule := range rules {
				resources, _, err := unstructured.NestedStringSlice(rule.(map[string]any), "resources")
				if err != nil {
					a.Fatal(err)
				}
				for _, r := range resources {
					p.about[r] = append(p.about[r], o.GetName())
				}
			}
		}
	}
	for resource, names := range p.about {
		p.about[resource] = slices.DeleteFunc(names, func(name string) bool { return p.bindings[name] == nil })
	}
	return p
}

// takenUp is how long kube-apiserver takes at most to see which policies there are.
const takenUp = 2 * time.Second

// only puts these policies in force and no others.
func (p *policies) only(b testing.TB, names []string) {
	for name, binding := range p.bindings {
		err := p.kube.Delete(b.Context(), binding.DeepCopy())
		if slices.Contains(names, name) {
			err = client.IgnoreNotFound(err)
			if err == nil {
				err = p.kube.Create(b.Context(), binding.DeepCopy())
			}
		}
		if client.IgnoreNotFound(err) != nil {
			b.Fatalf("binding %s: %v", name, err)
		}
	}
	time.Sleep(takenUp) //nolint:forbidigo // nothing reports when the API server has observed it
}

// Rounds of writes, one after the other.
const (
	rounds, writesPerRound = 5, 200
)

// measure reports what a write takes.
func (p *policies) measure(b *testing.B, w judged) {
	least := map[string]float64{}
	for range rounds {
		before := p.account()
		for range writesPerRound {
			if err := w.write(); err != nil {
				b.Fatalf("%s: %v", w.name, err)
			}
		}
		for unit, value := range p.account() {
			value = (value - before[unit]) / writesPerRound
			if had, ok := least[unit]; !ok || value < had {
				least[unit] = value
			}
		}
	}
	for unit, value := range least {
		b.ReportMetric(value, unit)
	}
}

// account is what the API server counts of itself, in microseconds.
func (p *policies) account() map[string]float64 {
	body, err := p.set.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	metric := sum(strings.NewReader(string(body)))
	out := map[string]float64{"cpu-us/write": metric("process_cpu_seconds_total") * 1e6}
	for _, plugin := range []string{"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"} {
		out["policy-us/write"] += metric("apiserver_admission_controller_admission_duration_seconds_sum", fmt.Sprintf("name=%q", plugin)) * 1e6
	}
	return out
}

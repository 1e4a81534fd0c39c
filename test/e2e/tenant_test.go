package e2e

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/transaction"
)

// tenant is a user with the ClusterRole edit in one namespace, that of the site, and
// with what Kueue and cluster-autoscaler let users do there: edit Workloads and
// ProvisioningRequests. It may resize pods, too. Its queue has eight CPUs.
type tenant struct {
	*site
	// job is the name of the Job that is acted on.
	job  string
	user client.Client
	// holder may break the glass in the namespace beside. controller is that of all
	// JobSets: it may write their status.
	holder, controller client.Client
	// other is the site of another tenant.
	other *site
}

// act is something that a tenant does, or tries to.
type act struct {
	name string
	// does it, and returns what the API server says to that.
	does func(*tenant) error
	// refused are words that the refusal must have: the field, its value and what to do.
	// Without any the act is allowed.
	refused []string
	// then checks the result; it may be nil.
	then func(*tenant)
}

// TestTenants does what an honest user does and what a hostile one tries, as a user
// whose rights end at one namespace. Each act leaves the namespace empty of Jobs.
func TestTenants(t *testing.T) {
	t.Parallel()
	s := newSiteAtOnce(t)
	s.plain(s.Name)
	other := s.in(t)
	other.Name += "-other"
	other.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other.Name}})
	other.plain(other.Name)
	s.playActs(other, slices.Concat(honestActs, jobActs, hugeActs))
}

// TestTenantsWhereAllJobsQueue has the policies act as they do where
// manageJobsWithoutQueueName is true.
func TestTenantsWhereAllJobsQueue(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	here := &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
		MatchLabels: map[string]string{corev1.LabelMetadataName: s.Name}}}
	unnamed := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	unnamed.Spec.PolicyName, unnamed.Spec.MatchResources = "muster-jobs-unnamed", here
	owners := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	owners.Spec.PolicyName, owners.Spec.MatchResources = "muster-jobs-owners", here
	owners.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Deny}
	s.Create(unnamed, owners)
	t.Cleanup(func() { _ = s.Kube.Delete(s.cleanup(), unnamed); _ = s.Kube.Delete(s.cleanup(), owners) })
	user := s.user()
	s.Eventually("the policies are in force", func() bool {
		plain := s.newPlainJob("probe", 1, "1s", noQueue)
		claim := s.newPlainJob("probe", 1, "1s", claims("jobset.x-k8s.io/v1alpha2", "JobSet"))
		return s.tried(plain) == nil && *plain.Spec.Suspend && user.Create(t.Context(), claim, client.DryRunAll) != nil
	}, func() string { return "they are not" })
	s.playActs(nil, allQueueActs)
}

func (s *site) playActs(other *site, acts []act) {
	s.Helper()
	s.Create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "queues"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"kueue.x-k8s.io"}, Resources: []string{"workloads"}, Verbs: []string{"*"}},
		{APIGroups: []string{"autoscaling.x-k8s.io"}, Resources: []string{"provisioningrequests"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"podtemplates", "pods/resize"}, Verbs: []string{"*"}},
	}}, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "jobset-controller"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"jobset.x-k8s.io"}, Resources: []string{"jobsets/status"}, Verbs: []string{"update"}},
	}})
	edit := rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"}
	queues := rbacv1.RoleRef{Kind: "Role", Name: "queues"}
	user := s.as("tenant", edit, queues)
	holder := s.as("holder", edit, queues, rbacv1.RoleRef{Kind: "ClusterRole", Name: "muster-break-glass"})
	controller := s.as("jobset-controller", edit, rbacv1.RoleRef{Kind: "Role", Name: "jobset-controller"})
	for i, a := range acts {
		s.Run(strings.ReplaceAll(a.name, " ", "-"), func(t *testing.T) {
			// Kubernetes' Job controller may wait for minutes for pods of a deleted Job of the same name.
			in := &tenant{site: s.in(t), job: fmt.Sprintf("act-%d", i), user: user, holder: holder, controller: controller, other: other}
			defer in.clear()
			switch err := a.does(in); {
			case (err != nil) != (len(a.refused) > 0):
				t.Errorf("error %v, want one that says %q", err, a.refused)
			case err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err):
				t.Errorf("not refused, but failed: %v", err)
			default:
				for _, word := range a.refused {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("error %v, want one that says %q", err, word)
					}
				}
			}
			if a.then != nil && !t.Failed() {
				a.then(in)
			}
		})
	}
}

// as is a user with roles in the site.
func (s *site) as(name string, roles ...rbacv1.RoleRef) client.Client {
	s.Helper()
	subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name + "-of-" + s.Name}
	for _, role := range roles {
		role.APIGroup = rbacv1.GroupName
		s.Create(&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name + "-" + role.Name}, RoleRef: role, Subjects: []rbacv1.Subject{subject},
		})
	}
	c, err := s.As(&rest.ImpersonationConfig{UserName: subject.Name})
	if err != nil {
		s.Fatal(err)
	}
	// The authorizer sees the bindings a moment later, in their order.
	s.Eventually("the user may read Jobs", func() bool { return c.List(s.Context(), &batchv1.JobList{}, client.InNamespace(s.Name)) == nil },
		func() string { return "it may not" })
	return c
}

// clear deletes what an act has left, and waits until its quota is back.
func (s *site) clear() {
	s.Helper()
	for _, o := range []client.Object{&batchv1.Job{}, &kueue.Workload{}, &corev1.Pod{}} {
		err := s.Kube.DeleteAllOf(s.cleanup(), o, client.InNamespace(s.Name), client.PropagationPolicy(metav1.DeletePropagationBackground),
			client.GracePeriodSeconds(0))
		if err != nil {
			s.Fatal(err)
		}
	}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	s.Eventually("the quota is back", func() bool { return s.Get(cq) && cq.Status.ReservingWorkloads == 0 && cq.Status.PendingWorkloads == 0 },
		func() string { return fmt.Sprintf("%+v", cq.Status) })
}

func (t *tenant) make(j *batchv1.Job) error { return t.user.Create(t.Context(), j) }

// change edits an object as the tenant.
func (t *tenant) change(o client.Object, change func()) error { return t.changeAs(t.user, o, change) }

func (t *tenant) changeAs(c client.Client, o client.Object, change func()) error {
	t.Helper()
	if !t.Get(o) {
		t.Fatalf("%T %s is gone", o, o.GetName())
	}
	patch := client.MergeFrom(o.DeepCopyObject().(client.Object))
	change()
	return c.Patch(t.Context(), o, patch)
}

func (t *tenant) label(j *batchv1.Job) error {
	return t.change(j, func() { j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": t.Name} })
}

// aside is a Job of the site in no queue, suspended and with an annotation.
func (t *tenant) aside(key, value string) *batchv1.Job {
	t.Helper()
	j := t.newPlainJob(t.job, 2, "1h", noQueue, suspended, annotated(key, value))
	if err := t.make(j); err != nil {
		t.Fatal(err)
	}
	return j
}

// part is a Job that the controller of JobSets has made for one that is suspended.
func (t *tenant) part() *batchv1.Job {
	t.Helper()
	j := t.newPlainJob(t.job, 1, "1h", suspended, claims("jobset.x-k8s.io/v1alpha2", "JobSet"))
	if err := t.controller.Create(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	return j
}

// startedPart is a Job that the controller of JobSets has made for one that Muster has started.
func (t *tenant) startedPart() *batchv1.Job {
	t.Helper()
	j := t.newPlainJob(t.job, 1, "1h", t.here, claims("jobset.x-k8s.io/v1alpha2", "JobSet"), func(j *batchv1.Job) {
		j.Spec.Template.Labels = map[string]string{"kueue.x-k8s.io/podset": "node"}
	})
	if err := t.controller.Create(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	return j
}

// begun is a Job of the site that runs in its turn.
func (t *tenant) begun(count int32, change ...func(*batchv1.Job)) *batchv1.Job {
	t.Helper()
	j := t.newPlainJob(t.job, count, "1h", change...)
	if err := t.make(j); err != nil {
		t.Fatal(err)
	}
	t.runs(j)
	return j
}

// podOf is one of the pods of a Job that runs.
func (t *tenant) podOf(j *batchv1.Job) *corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	t.List(&pods, client.InNamespace(t.Name), client.MatchingLabels{batchv1.ControllerUidLabel: string(j.UID)})
	if len(pods.Items) == 0 {
		t.Fatalf("Job %s has no pods", j.Name)
	}
	return &pods.Items[0]
}

// resize resizes the CPU request of a running pod.
func (t *tenant) resize(p *corev1.Pod, cpu string) error {
	t.Helper()
	status := client.MergeFrom(p.DeepCopy())
	p.Status.ContainerStatuses[0].Resources = &p.Spec.Containers[0].Resources // KWOK does not report it
	if err := t.Kube.Status().Patch(t.Context(), p, status); err != nil {
		t.Fatal(err)
	}
	patch := fmt.Appendf(nil, `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":%[1]q},"limits":{"cpu":%[1]q}}}]}}`, cpu)
	return t.user.SubResource("resize").Patch(t.Context(), p, client.RawPatch(types.StrategicMergePatchType, patch))
}

// theJob is the one that the act has made.
func (t *tenant) theJob() *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: t.Name, Name: t.job}}
}

// staysSuspended checks that the API server has taken the change and kept the Job
// suspended.
func staysSuspended(t *tenant) {
	t.Helper()
	if j := t.theJob(); !t.Get(j) || !*j.Spec.Suspend {
		t.Error("the Job is not suspended")
	}
}

// waitsFor checks that the Job says why it waits, in these words among others.
func waitsFor(words ...string) func(*tenant) {
	return func(t *tenant) {
		t.Helper()
		j := t.theJob()
		t.Get(j)
		c := t.pending(j)
		for _, word := range words {
			if !strings.Contains(c.Reason+": "+c.Message, word) {
				t.Errorf("it waits with %s: %s; want %q", c.Reason, c.Message, word)
			}
		}
	}
}

func suspended(j *batchv1.Job) { j.Spec.Suspend = new(true) }

func annotated(key, value string) func(*batchv1.Job) {
	return func(j *batchv1.Job) { metav1.SetMetaDataAnnotation(&j.ObjectMeta, key, value) }
}

// elastic may change its pods while it runs. Its completions are open.
func elastic(j *batchv1.Job) {
	annotated("kueue.x-k8s.io/elastic-job", "true")(j)
	j.Spec.Completions = nil
}

const breakGlass = "muster.dev/break-glass"

// honestActs are what users do every day.
var honestActs = []act{
	{name: "a job runs in its turn", does: func(t *tenant) error {
		return t.make(t.newPlainJob(t.job, 2, "1s"))
	}, then: func(t *tenant) { t.complete(t.theJob()) }},
	{name: "a suspended job gets the label", does: func(t *tenant) error {
		return t.label(t.aside("example.com/mine", "kept"))
	}, then: func(t *tenant) { t.runs(t.theJob()) }},
	{name: "a suspended job gets the label and suspend false", does: func(t *tenant) error {
		j := t.newPlainJob(t.job, 9, "1h", noQueue, suspended)
		if err := t.make(j); err != nil {
			return err
		}
		return t.change(j, func() {
			j.Spec.Suspend, j.Labels = new(false), map[string]string{"kueue.x-k8s.io/queue-name": t.Name}
		})
	}, then: func(t *tenant) { staysSuspended(t); waitsFor("cpu")(t) }},
	{name: "a waiting job leaves the queues", does: func(t *tenant) error {
		j := t.newPlainJob(t.job, 9, "1h")
		if err := t.make(j); err != nil {
			return err
		}
		t.pending(j)
		return t.change(j, func() { delete(j.Labels, "kueue.x-k8s.io/queue-name") })
	}, then: func(t *tenant) {
		t.Eventually("its Workload goes", func() bool { return t.Workload(t.withUID()) == nil }, func() string { return "it is there" })
	}},
	{name: "a waiting job shrinks until it fits", does: func(t *tenant) error {
		j := t.newPlainJob(t.job, 9, "1h")
		if err := t.make(j); err != nil {
			return err
		}
		t.pending(j)
		return t.change(j, func() { j.Spec.Parallelism = new(int32(4)) })
	}, then: func(t *tenant) { t.runs(t.theJob()) }},
	{name: "a running job shrinks", does: func(t *tenant) error {
		j := t.begun(4)
		return t.change(j, func() { j.Spec.Parallelism = new(int32(2)) })
	}},
	{name: "a running job is deleted", does: func(t *tenant) error {
		return t.user.Delete(t.Context(), t.begun(2), client.PropagationPolicy(metav1.DeletePropagationBackground))
	}},
	{name: "a job that has ended is deleted without its pods", does: func(t *tenant) error {
		j := t.newPlainJob(t.job, 1, "1s")
		if err := t.make(j); err != nil {
			return err
		}
		t.complete(j)
		return t.user.Delete(t.Context(), j, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	}},
	{name: "a pod of a running job gets labels", does: func(t *tenant) error {
		p := t.podOf(t.begun(1))
		if err := t.change(p, func() { p.Labels["mine"], p.Labels["example.com/mine"] = "a", "a" }); err != nil {
			return err
		}
		return t.change(p, func() { delete(p.Labels, "mine"); p.Labels["example.com/mine"] = "b" })
	}},
	{name: "a pod of a running job asks for less where it runs", does: func(t *tenant) error {
		return t.resize(t.podOf(t.begun(1)), "500m")
	}},
	{name: "a pod in no queue asks for more where it runs", does: func(t *tenant) error {
		j := t.newPlainJob(t.job, 1, "1h", noQueue, t.here)
		if err := t.make(j); err != nil {
			return err
		}
		t.runs(j)
		return t.resize(t.podOf(j), "2")
	}},
	{name: "an elastic job grows and shrinks", does: func(t *tenant) error {
		j := t.begun(1, elastic)
		if err := t.change(j, func() { j.Spec.Parallelism = new(int32(3)) }); err != nil {
			return err
		}
		t.runs(j)
		return t.change(j, func() { j.Spec.Parallelism = new(int32(2)) })
	}, then: func(t *tenant) { t.runs(t.theJob()) }},
	{name: "a holder of the right breaks the glass", does: func(t *tenant) error {
		return t.holder.Create(t.Context(), t.newPlainJob(t.job, 9, "1h", t.here, suspended, annotated(breakGlass, "the queue is broken")))
	}, then: func(t *tenant) {
		j := t.theJob()
		if err := t.changeAs(t.holder, j, func() { j.Spec.Suspend = new(false) }); err != nil {
			t.Fatal(err)
		}
		t.runs(j)
	}},
	{name: "a holder of the right takes a gate off", does: func(t *tenant) error {
		return t.ungate(t.holder, func(p *corev1.Pod) { p.Spec.SchedulingGates = nil })
	}},
}

// jobActs are attempts to run more than the queue gives, or before it does.
var jobActs = []act{
	{name: "a job is born with break glass", does: func(t *tenant) error {
		return t.make(t.newPlainJob(t.job, 9, "1h", annotated(breakGlass, "I want to")))
	}, refused: []string{breakGlass, "tenant-of-", "leave it out", "ClusterRole muster-break-glass"}},
	{name: "a waiting job breaks the glass", does: func(t *tenant) error {
		j := t.newPlainJob(t.job, 9, "1h")
		if err := t.make(j); err != nil {
			return err
		}
		return t.change(j, func() { annotated(breakGlass, "I want to")(j) })
	}, refused: []string{breakGlass, "may not set it", "leave it out"}},
	{name: "a job with break glass gets the label", does: func(t *tenant) error {
		return t.label(t.aside(breakGlass, "I want to"))
	}, refused: []string{breakGlass, "may not set it", "leave it out"}},
	{name: "a job without the label breaks the glass on its way back", does: func(t *tenant) error {
		j := t.newPlainJob(t.job, 9, "1h")
		if err := t.make(j); err != nil {
			return err
		}
		if err := t.change(j, func() { j.Labels = nil; annotated(breakGlass, "I want to")(j) }); err == nil {
			return t.label(j)
		}
		if err := t.change(j, func() { j.Labels = nil; delete(j.Annotations, breakGlass) }); err != nil {
			return err
		}
		if err := t.change(j, func() { annotated(breakGlass, "I want to")(j) }); err != nil {
			return err
		}
		return t.label(j)
	}, refused: []string{breakGlass, "may not set it", "leave it out"}},
	{name: "a job with a record of a start gets the label", does: func(t *tenant) error {
		return t.label(t.aside("muster.dev/started", "no JSON"))
	}, refused: []string{"muster.dev/started", "Muster's own record", "out of new Jobs"}},
	{name: "a job with a wrong least parallelism gets the label", does: func(t *tenant) error {
		return t.label(t.aside("kueue.x-k8s.io/job-min-parallelism", "many"))
	}, refused: []string{"kueue.x-k8s.io/job-min-parallelism", `"many"`, "correct or remove it"}},
	{name: "a waiting job is started", does: func(t *tenant) error {
		j := t.newPlainJob(t.job, 9, "1h")
		if err := t.make(j); err != nil {
			return err
		}
		return t.change(j, func() { j.Spec.Suspend = new(false) })
	}, then: staysSuspended},
	{name: "a waiting job loses the label and starts", does: func(t *tenant) error {
		j := t.newPlainJob(t.job, 9, "1h")
		if err := t.make(j); err != nil {
			return err
		}
		return t.change(j, func() { j.Spec.Suspend, j.Labels = new(false), nil })
	}, then: staysSuspended},
	{name: "a running job gets the label", does: func(t *tenant) error {
		j := t.newPlainJob(t.job, 2, "1h", noQueue)
		if err := t.make(j); err != nil {
			return err
		}
		return t.label(j)
	}, refused: []string{"kueue.x-k8s.io/queue-name", "only while it is suspended", "create it again"}},
	{name: "a running job leaves its queue", does: func(t *tenant) error {
		j := t.begun(2)
		return t.change(j, func() { delete(j.Labels, "kueue.x-k8s.io/queue-name") })
	}, refused: []string{"kueue.x-k8s.io/queue-name", "only while it is suspended"}},
	{name: "a running job grows", does: func(t *tenant) error {
		j := t.begun(2, func(j *batchv1.Job) { j.Spec.Completions = new(int32(20)) })
		return t.change(j, func() { j.Spec.Parallelism = new(int32(12)) })
	}, refused: []string{"from 2 to 12", "create another Job"}},
	{name: "a workload says that its job ran before", does: func(t *tenant) error {
		w := workload(func(w *kueue.Workload) {
			w.Namespace, w.Name, w.Spec.QueueName = t.Name, t.job, kueue.LocalQueueName(t.Name)
			w.Annotations = map[string]string{"muster.dev/adopted": "true"}
			w.Spec.PodSets[1].Count = 100
		})
		return t.user.Create(t.Context(), w)
	}, then: func(t *tenant) {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: t.Name, Name: t.job}}
		if c := t.workloadIs(w, kueue.WorkloadQuotaReserved, metav1.ConditionFalse); !strings.Contains(c.Message, "muster.dev/adopted") ||
			!strings.Contains(c.Message, "remove it") {
			t.Errorf("it waits with %s: %s", c.Reason, c.Message)
		}
		if err := t.change(w, func() { w.Annotations = nil }); err != nil {
			t.Fatal(err)
		}
		t.Eventually("without the annotation it is judged by the quota", func() bool {
			c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
			return t.Get(w) && c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "cpu")
		}, func() string { return fmt.Sprint(w.Status.Conditions) })
	}},
	{name: "a workload gets quota by hand", does: func(t *tenant) error {
		w := t.of5(t.job)
		patch := client.MergeFrom(w.DeepCopy())
		meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue,
			Reason: "Mine", Message: "mine"})
		return t.user.Status().Patch(t.Context(), w, patch)
	}, refused: []string{"workloads/status"}},
	{name: "a job keeps fewer pods of its quota than it runs", does: func(t *tenant) error {
		w := t.Workload(t.begun(4))
		return t.change(w, func() {
			w.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"}
			w.Spec.PodSets[0].Count = 1
		})
	}, refused: []string{"spec.podSets may not change while quota is reserved", "set spec.active to false"}},
	{name: "a workload leaves its job", does: func(t *tenant) error {
		w := t.Workload(t.begun(4))
		return t.change(w, func() { w.OwnerReferences = nil })
	}, refused: []string{"metadata.ownerReferences", "workloads.kueue.x-k8s.io/status", "leave that owner as it was"}},
	{name: "a small workload takes the place of that of a running job", does: func(t *tenant) error {
		w := t.Workload(t.begun(4, elastic))
		small := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: t.Name, Name: "small", Labels: w.Labels,
			OwnerReferences: w.OwnerReferences}, Spec: w.Spec}
		small.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true",
			"kueue.x-k8s.io/workload-slice-replacement-for": t.Name + "/" + w.Name}
		small.Spec.PodSets[0].Count = 1
		return t.user.Create(t.Context(), small)
	}, refused: []string{"metadata.ownerReferences", "let the Job make its own Workload"}},
	{name: "a running job names another workload", does: func(t *tenant) error {
		j := t.begun(2)
		return t.change(j, func() { naming("other")(j) })
	}, refused: []string{prebuiltKey, "while it runs", "suspend it first"}},
	{name: "a job names what no workload can be called", does: func(t *tenant) error {
		return t.make(t.newPlainJob(t.job, 1, "1h", annotated(prebuiltKey, "../other/x")))
	}, refused: []string{prebuiltKey, "../other/x", "no Workload can be called"}},
	{name: "an elastic job names a workload", does: func(t *tenant) error {
		return t.make(t.newPlainJob(t.job, 1, "1h", elastic, naming("mine")))
	}, refused: []string{prebuiltKey, "kueue.x-k8s.io/elastic-job", "remove one"}},
	{name: "a job runs by the workload of a running one", does: func(t *tenant) error {
		w := t.Workload(t.begun(2))
		return t.make(t.newPlainJob("second", 2, "1h", naming(w.Name)))
	}, then: func(t *tenant) {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: t.Name, Name: "second"}}
		t.hasEvent(j, "ForeignWorkload", "belongs to Job act")
		if !t.Get(j) || !*j.Spec.Suspend {
			t.Error("it runs")
		}
	}},
	{name: "a job runs by a workload that asks for less", does: func(t *tenant) error {
		j := t.newPlainJob(t.job, 8, "1h", naming("small"))
		w := t.prebuilt("small", j, func(w *kueue.Workload) {
			w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Limits = nil
		})
		if err := t.user.Create(t.Context(), w); err != nil {
			return err
		}
		t.workloadIs(w, kueue.WorkloadAdmitted, metav1.ConditionTrue)
		return t.make(j)
	}, then: func(t *tenant) { t.hasEvent(t.theJob(), "OutOfSync", "containers"); staysSuspended(t) }},
	{name: "a job that runs by a workload names another one", does: func(t *tenant) error {
		like, j := t.newPlainJob(t.job, 2, "1h"), t.newPlainJob(t.job, 2, "1h", naming("mine"))
		if err := t.tried(like); err != nil { // with what the API server adds
			return err
		}
		if err := t.user.Create(t.Context(), t.prebuilt("mine", like)); err != nil {
			return err
		}
		if err := t.make(j); err != nil {
			return err
		}
		t.runs(j)
		return t.change(j, func() { annotated(prebuiltKey, "other")(j) })
	}, refused: []string{prebuiltKey, "while it runs"}},
	{name: "a pod of an elastic job loses its gate", does: func(t *tenant) error {
		return t.ungate(t.user, func(p *corev1.Pod) { p.Spec.SchedulingGates = nil })
	}, refused: []string{"spec.schedulingGates", "kueue.x-k8s.io/elastic-job", "waits for quota", "muster-break-glass"}},
	{name: "a pod of an elastic job loses the label of its gate", does: func(t *tenant) error {
		return t.ungate(t.user, func(p *corev1.Pod) { delete(p.Labels, "kueue.x-k8s.io/elastic-job") })
	}, refused: []string{"label kueue.x-k8s.io/elastic-job", "waits for quota"}},
	{name: "a job names the queue of another namespace", does: func(t *tenant) error {
		return t.make(t.newPlainJob(t.job, 1, "1h", func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/queue-name"] = t.other.Name }))
	}, then: waitsFor("Misconfigured", "LocalQueue", "doesn't exist", "kueue.x-k8s.io/queue-name")},
	{name: "a held part of a jobset gets more pods", does: func(t *tenant) error {
		j := t.part()
		return t.change(j, func() { j.Spec.Parallelism = new(int32(9)) })
	}, refused: []string{"Job act", "held with JobSet owner", "change JobSet owner"}},
	{name: "a held part of a jobset is started", does: func(t *tenant) error {
		j := t.part()
		return t.change(j, func() { j.Spec.Suspend = new(false) })
	}, refused: []string{"Job act", "held with JobSet owner", "change JobSet owner"}, then: staysSuspended},
	{name: "a held part of a jobset is started by its controller", does: func(t *tenant) error {
		j := t.part()
		return t.changeAs(t.controller, j, func() { j.Spec.Suspend = new(false) })
	}},
	{name: "a started part of a jobset says that it queues alone", does: func(t *tenant) error {
		j := t.startedPart()
		return t.change(j, func() {
			annotated("muster.dev/alone", string(j.OwnerReferences[0].UID))(j)
			j.Spec.Parallelism = new(int32(9))
		})
	}, refused: []string{"the annotation muster.dev/alone of Job act", "part of JobSet owner"}},
	{name: "a started part of a jobset leaves it, and gets more pods", does: func(t *tenant) error {
		j := t.startedPart()
		return t.change(j, func() { j.OwnerReferences, j.Spec.Parallelism = nil, new(int32(9)) })
	}, refused: []string{"the owner", "of Job act", "part of JobSet owner"}},
	{name: "a held part of a jobset leaves it, and is started", does: func(t *tenant) error {
		j := t.part()
		return t.change(j, func() { j.OwnerReferences, j.Spec.Suspend = nil, new(false) })
	}, refused: []string{"Job act", "held with JobSet owner", "its owner", "change JobSet owner"}, then: staysSuspended},
	{name: "a running job is deleted without its pods", does: func(t *tenant) error {
		return t.user.Delete(t.Context(), t.begun(2), client.PropagationPolicy(metav1.DeletePropagationOrphan))
	}, refused: []string{"the pods of Job act", "run by its quota", "delete it with its pods"}},
	{name: "a running job is deleted without its pods by a finalizer", does: func(t *tenant) error {
		j := t.begun(2)
		if err := t.change(j, func() { j.Finalizers = append(j.Finalizers, metav1.FinalizerOrphanDependents) }); err != nil {
			return err
		}
		return t.user.Delete(t.Context(), j)
	}, refused: []string{"the pods of Job act", "run by its quota", "delete it with its pods"}},
	{name: "a statefulset is deleted without its pods", does: func(t *tenant) error {
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: t.Name, Name: t.job,
			Labels: map[string]string{"kueue.x-k8s.io/queue-name": t.Name}}}
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": t.job}}
		set.Spec.Replicas = new(int32(5))
		set.Spec.Template = t.newPlainJob("", 1, "").Spec.Template
		set.Spec.Template.Labels, set.Spec.Template.Annotations = set.Spec.Selector.MatchLabels, nil
		set.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways
		if err := t.user.Create(t.Context(), set); err != nil {
			return err
		}
		t.arePods(5, "Running")
		return t.user.Delete(t.Context(), set, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	}, then: func(t *tenant) {
		t.Eventually("each of its pods has quota", func() bool {
			cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: t.Name}}
			return t.Get(cq) && cq.Status.ReservingWorkloads == 5 && cq.Status.FlavorsUsage[0].Resources[0].Total.Value() == 5
		}, func() string { return fmt.Sprint(t.workloads(), t.pods()) })
		t.arePods(5, "Running")
	}},
	{name: "a pod of a running job asks for more where it runs", does: func(t *tenant) error {
		return t.resize(t.podOf(t.begun(2)), "8")
	}, refused: []string{"Pod act", "may not ask for 8 of cpu", "more than it was admitted with", "create its job again"}},
	{name: "a pod leaves the job by whose quota it runs", does: func(t *tenant) error {
		p := t.podOf(t.begun(2))
		return t.change(p, func() { delete(p.Labels, batchv1.ControllerUidLabel) })
	}, refused: []string{"Pod act", "by the quota of Job act", "delete the pod"}},
	{name: "a pod leaves its job and the policy at once", does: func(t *tenant) error {
		p := t.podOf(t.begun(2))
		return t.change(p, func() { p.Labels, p.OwnerReferences = nil, nil })
	}, refused: []string{"Pod act", "by the quota of Job act", "delete the pod"}},
	{name: "a job goes to another namespace", does: func(t *tenant) error {
		return t.make(t.other.newPlainJob(t.job, 1, "1h"))
	}, refused: []string{"cannot create resource"}},
	{name: "a request names the template of another namespace", does: func(t *tenant) error {
		template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: t.other.Name, Name: "theirs"}}
		template.Template.Spec = t.other.podSpec()
		t.Create(template)
		r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: t.Name, Name: t.job}}
		r.Spec.ProvisioningClassName = transaction.ClassCheckCapacity
		r.Spec.PodSets = []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: "theirs"}, Count: 1}}
		return t.user.Create(t.Context(), r)
	}, then: func(t *tenant) {
		r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: t.Name, Name: t.job}}
		t.Eventually("it says that there is no such template here", func() bool {
			return t.Get(r) && slices.ContainsFunc(r.Status.Conditions,
				func(c metav1.Condition) bool { return strings.Contains(c.Message, "theirs") })
		}, func() string { return fmt.Sprint(r.Status.Conditions) })
		if meta.IsStatusConditionTrue(r.Status.Conditions, provreq.Provisioned) {
			t.Error("it was provisioned")
		}
		t.Delete(r)
	}},
}

// ungate edits a pod of an elastic Job that waits for quota.
func (t *tenant) ungate(c client.Client, change func(*corev1.Pod)) error {
	t.Helper()
	j := t.begun(7, elastic)
	if err := t.change(j, func() { j.Spec.Parallelism = new(int32(9)) }); err != nil {
		return err
	}
	var waiting *corev1.Pod
	t.Eventually("a pod waits behind its gate", func() bool {
		var pods corev1.PodList
		if err := t.user.List(t.Context(), &pods, client.InNamespace(t.Name)); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return len(p.Spec.SchedulingGates) > 0 })
		if i < 0 {
			return false
		}
		waiting = &pods.Items[i]
		return true
	}, func() string { return "none does" })
	patch := client.MergeFrom(waiting.DeepCopy())
	change(waiting)
	return c.Patch(t.Context(), waiting, patch)
}

// withUID is the act's Job as it is.
func (t *tenant) withUID() *batchv1.Job {
	t.Helper()
	j := t.theJob()
	t.Get(j)
	return j
}

// flood is how many Jobs a tenant creates at once.
const flood = 60

// hugeActs are harmless to others, as a Job of another tenant shows.
var hugeActs = []act{
	{name: "a job of 1 MB", does: func(t *tenant) error {
		return t.make(t.newPlainJob(t.job, 9, "1h", func(j *batchv1.Job) {
			j.Spec.Template.Spec.Containers[0].Args = []string{strings.Repeat("x", 1350<<10)}
		}))
	}, then: othersRun},
	{name: "a job of as many pods as there can be", does: func(t *tenant) error {
		return t.make(t.newPlainJob(t.job, math.MaxInt32, "1h"))
	}, then: func(t *tenant) { waitsFor("cpu", "2147483647")(t); othersRun(t) }},
	{name: "a flood of jobs", does: func(t *tenant) error {
		for i := range flood {
			if err := t.make(t.newPlainJob(fmt.Sprintf("act-%d", i), 9, "1h")); err != nil {
				return err
			}
		}
		return nil
	}, then: othersRun},
}

func othersRun(t *tenant) {
	t.Helper()
	in := t.other.in(t.T)
	in.complete(in.plainJob("beside", 1, "1s"))
	in.clear()
}

// claims has a Job say that something controls it.
func claims(version, kind string) func(*batchv1.Job) {
	return func(j *batchv1.Job) { noQueue(j); owner(version, kind)(j) }
}

// allQueueActs are attempts not to queue where all Jobs do.
var allQueueActs = []act{
	{name: "a job that names no queue", does: func(t *tenant) error {
		return t.make(t.newPlainJob(t.job, 1, "1h", noQueue))
	}, then: staysSuspended},
	{name: "a job that names no queue is started", does: func(t *tenant) error {
		j := t.newPlainJob(t.job, 1, "1h", noQueue)
		if err := t.make(j); err != nil {
			return err
		}
		return t.change(j, func() { j.Spec.Suspend = new(false) })
	}, then: staysSuspended},
	{name: "a job that says a deployment owns it", does: func(t *tenant) error {
		return t.make(t.newPlainJob(t.job, 1, "1h", claims("apps/v1", "Deployment")))
	}, then: staysSuspended},
	{name: "a job that says a jobset owns it", does: func(t *tenant) error {
		return t.make(t.newPlainJob(t.job, 1, "1h", claims("jobset.x-k8s.io/v1alpha2", "JobSet")))
	}, refused: []string{"metadata.ownerReferences", "JobSet owner", "jobsets.jobset.x-k8s.io/status", "leave the owner out",
		"kueue.x-k8s.io/queue-name"}},
	{name: "a waiting job says that a jobset owns it", does: func(t *tenant) error {
		j := t.newPlainJob(t.job, 9, "1h")
		if err := t.make(j); err != nil {
			return err
		}
		return t.change(j, func() { owner("jobset.x-k8s.io/v1alpha2", "JobSet")(j) })
	}, refused: []string{"metadata.ownerReferences", "JobSet owner", "leave the owner out"}},
	{name: "what owns a waiting job turns into a jobset", does: func(t *tenant) error {
		// One that does not exist would take the job along.
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: t.Name, Name: "default"}}
		if !t.Get(account) {
			t.Fatal("the namespace has no service account")
		}
		j := t.newPlainJob(t.job, 9, "1h", func(j *batchv1.Job) {
			owner("v1", "ServiceAccount")(j)
			j.OwnerReferences[0].Name, j.OwnerReferences[0].UID = account.Name, account.UID
		})
		if err := t.make(j); err != nil {
			return err
		}
		return t.change(j, func() {
			j.OwnerReferences[0].APIVersion, j.OwnerReferences[0].Kind = "jobset.x-k8s.io/v1alpha2", "JobSet"
		})
	}, refused: []string{"metadata.ownerReferences", "JobSet default", "leave the owner out"}},
	{name: "the controller of jobsets makes a job", does: func(t *tenant) error {
		j := t.newPlainJob(t.job, 1, "1h", claims("jobset.x-k8s.io/v1alpha2", "JobSet"))
		return t.controller.Create(t.Context(), j, client.DryRunAll)
	}},
	{name: "a job in a queue runs", does: func(t *tenant) error {
		return t.make(t.newPlainJob(t.job, 2, "1s"))
	}, then: func(t *tenant) { t.complete(t.theJob()) }},
}

package install

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/muster/migration"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/test/kueue/managers"
	"github.com/muster-dev/muster/test/testbed"
)

// kueueRelease is the name and the namespace of Kueue's release and Deployment.
const (
	kueueNamespace  = "kueue-system"
	kueueDeployment = "kueue-controller-manager"
)

// frameworks are the frameworks that Kueue integrates, and Muster after it.
var frameworks = []string{"batch/job", "pod", "statefulset"}

// tool is what has installed Kueue, by the name of its field manager.
type tool string

const (
	byHelm    tool = "helm"
	byKubectl tool = "kubectl" // apply --server-side, as Kueue's documents say
)

// moving is a cluster whose jobs Kueue queues, later Muster, and Kueue again.
type moving struct {
	*bare
	plugin string
	tool   tool
	// published are Kueue's manifests.
	published []*unstructured.Unstructured
	stock     *managers.Manager
	// pods are the running pods, by UID. They must not be stopped.
	pods map[types.UID]string
}

func newMoving(t *testing.T, by tool) *moving {
	m := &moving{plugin: program(t, "MUSTER_PLUGIN_BIN"), bare: newBare(t), tool: by, pods: map[types.UID]string{}}
	dir := t.TempDir()
	k, err := managers.NewKueue(managers.Kueue{Binary: program(t, testbed.KueueVariable),
		Sandbox: program(t, testbed.SandboxVariable), Dir: dir, Frameworks: frameworks, Deployment: true})
	if err != nil {
		t.Fatal(err)
	}
	if m.published, err = k.Manifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, o := range m.published {
		if o.GetKind() == "Deployment" {
			container := o.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0]
			container.(map[string]any)["image"] = "registry.k8s.io/kueue/kueue:v0.19.2" // as in the release
		}
	}
	if by == byHelm { // objects of a release that Helm has a record of
		for _, o := range m.published {
			o.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "kueue", "meta.helm.sh/release-namespace": kueueNamespace})
		}
		record := &unstructured.Unstructured{}
		record.SetAPIVersion("v1")
		record.SetKind("Secret")
		record.SetNamespace(kueueNamespace)
		record.SetName("sh.helm.release.v1.kueue.v1")
		record.SetLabels(map[string]string{"owner": "helm", "name": "kueue", "status": "deployed", "version": "1"})
		record.Object["type"] = "helm.sh/release.v1"
		m.published = append(m.published, record)
	}
	m.publish(m.published)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "system", Labels: map[string]string{"kubernetes.io/os": "linux"}}}
	node.Annotations = map[string]string{"kwok.x-k8s.io/node": "fake"}
	node.Status.Allocatable = corev1.ResourceList{"cpu": amount("64"), "memory": amount("64Gi"), "pods": amount("110")}
	node.Status.Capacity = node.Status.Allocatable
	if m.stock, err = k.Manager(t.Context(), m.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	if err := m.stock.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.stock.Stop()
		if t.Failed() {
			testbed.Tail(m.stock.Log())
		}
	})
	if err := m.Kube.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	return m
}

// publish applies manifests as the tool does that has installed Kueue.
func (m *moving) publish(objects []*unstructured.Unstructured) {
	m.Helper()
	for _, o := range objects {
		if err := m.Kube.Apply(m.Context(), client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner(m.tool)); err != nil {
			m.Errorf("%s: %v", key(o), err)
		}
	}
}

// nextRelease are Kueue's manifests with a change in each object that a migration changes, too.
func (m *moving) nextRelease() (out []*unstructured.Unstructured) {
	for _, o := range m.published {
		o := o.DeepCopy()
		switch kind := o.GetKind(); {
		case kind == "CustomResourceDefinition":
			versions := o.Object["spec"].(map[string]any)["versions"].([]any)
			versions[0].(map[string]any)["deprecationWarning"], versions[0].(map[string]any)["deprecated"] = "use another", true
		case strings.HasSuffix(kind, "WebhookConfiguration"):
			for _, w := range o.Object["webhooks"].([]any) {
				w.(map[string]any)["timeoutSeconds"], w.(map[string]any)["failurePolicy"] = int64(7), "Ignore"
			}
		case kind == "Deployment":
			o.Object["spec"].(map[string]any)["replicas"] = int64(2)
		default:
			continue
		}
		out = append(out, o)
	}
	return out
}

// process runs and stops Kueue as its Deployment says, for as long as the test.
func (m *moving) followDeployment(ctx context.Context, runs bool) {
	d := &appsv1.Deployment{}
	for ctx.Err() == nil {
		_ = testbed.Poll(ctx, func() bool {
			return m.Kube.Get(ctx, client.ObjectKey{Namespace: kueueNamespace, Name: kueueDeployment}, d) == nil && (*d.Spec.Replicas > 0) != runs
		})
		if ctx.Err() != nil {
			return
		}
		if runs = !runs; runs {
			if err := m.stock.Start(ctx); err != nil {
				m.Error(err)
			}
		} else {
			m.stock.Stop()
		}
	}
}

// migrate runs the plugin.
func (m *moving) migrate(args ...string) string {
	m.Helper()
	began := time.Now()
	out, err := exec.Command(m.plugin, append(args, "--kubeconfig", m.kubeconfig)...).CombinedOutput()
	if err != nil {
		m.Fatalf("%v: %v\n%s", args, err, out)
	}
	m.Logf("%v: %s\n%s", args, time.Since(began).Round(10*time.Millisecond), out)
	return string(out)
}

// queue creates what Jobs need: a queue of 4 CPUs, and one of 10 with a check that the test answers.
func (m *moving) queue() {
	m.Helper()
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "any"}}
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "slow"}}
	check.Spec.ControllerName = "example.com/test"
	objects := []client.Object{flavor, check}
	for name, cpus := range map[string]string{"main": "4", "checked": "10"} {
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
		cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
		cq.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
			Name: "any", Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: amount(cpus)}},
		}}}}
		if name == "checked" {
			cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "slow"}}}
		}
		local := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		local.Spec.ClusterQueue = kueue.ClusterQueueReference(name)
		objects = append(objects, cq, local)
	}
	for _, o := range objects {
		m.eventually("creating "+o.GetName(), func() bool { return m.Kube.Create(m.Context(), o) == nil }, func() string { return "" })
	}
	check.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active",
		LastTransitionTime: metav1.Now()}}
	m.eventually("the check is active", func() bool {
		before := check.DeepCopy()
		before.Status = kueue.AdmissionCheckStatus{}
		return m.Kube.Status().Patch(m.Context(), check, client.MergeFrom(before)) == nil
	}, func() string { return "" })
}

// job creates a Job of two pods, each of so many CPUs.
func (m *moving) job(name, queue, cpu string) *batchv1.Job {
	m.Helper()
	j := jobOf(name, cpu)
	j.Labels["kueue.x-k8s.io/queue-name"] = queue
	j.Spec.Suspend = new(true)
	j.Spec.Parallelism, j.Spec.Completions = new(int32(2)), new(int32(2))
	m.eventually("creating Job "+name, func() bool { return m.Kube.Create(m.Context(), j) == nil }, func() string { return "" })
	return j
}

// workload is that of a Job or StatefulSet; nil while there is none. That of a StatefulSet is one of a group of pods, which
// name it as their owner beside themselves.
func (m *moving) workload(j client.Object) *kueue.Workload {
	var list kueue.WorkloadList
	if err := m.Kube.List(m.Context(), &list, client.InNamespace(j.GetNamespace())); err != nil {
		return nil
	}
	for i := range list.Items {
		if slices.ContainsFunc(list.Items[i].OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == j.GetUID() }) {
			return &list.Items[i]
		}
	}
	return nil
}

func (m *moving) standing(j *batchv1.Job) string {
	_ = m.Kube.Get(m.Context(), client.ObjectKeyFromObject(j), j)
	out := fmt.Sprintf("%s suspended %v, %+v", j.Name, *j.Spec.Suspend, j.Status)
	if w := m.workload(j); w != nil {
		out += fmt.Sprintf("\n%+v", w.Status)
	}
	return out
}

// serve creates a StatefulSet of two pods of a CPU each in the queue with the check.
func (m *moving) serve() *appsv1.StatefulSet {
	m.Helper()
	labels := map[string]string{"app": "serve"}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "serve",
		Labels: map[string]string{"kueue.x-k8s.io/queue-name": "checked"}}}
	set.Spec.Replicas, set.Spec.PodManagementPolicy = new(int32(2)), appsv1.ParallelPodManagement
	set.Spec.Selector, set.Spec.Template = &metav1.LabelSelector{MatchLabels: labels}, jobOf("", "1").Spec.Template
	set.Spec.Template.Labels, set.Spec.Template.Spec.RestartPolicy = labels, corev1.RestartPolicyAlways
	m.eventually("creating StatefulSet serve", func() bool { return m.Kube.Create(m.Context(), set) == nil }, func() string { return "" })
	return set
}

// serves waits until the StatefulSet's pods run by a Workload that has quota, and remembers them.
func (m *moving) serves(set *appsv1.StatefulSet) {
	m.Helper()
	var w *kueue.Workload
	m.eventually("StatefulSet serve runs by its Workload", func() bool {
		w = m.workload(set)
		return m.Kube.Get(m.Context(), client.ObjectKeyFromObject(set), set) == nil && set.Status.ReadyReplicas == 2 && w != nil &&
			apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted) &&
			!apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished)
	}, func() string { return fmt.Sprintf("%+v\n%+v", set.Status, w) })
	m.remember(client.MatchingLabels{"app": "serve"})
}

// runs waits until both pods of a Job run, and remembers them.
func (m *moving) runs(j *batchv1.Job) {
	m.Helper()
	m.eventually("Job "+j.Name+" runs", func() bool {
		return m.Kube.Get(m.Context(), client.ObjectKeyFromObject(j), j) == nil && j.Status.Ready != nil && *j.Status.Ready == 2
	}, func() string { return m.standing(j) })
	m.remember(client.MatchingLabels{"job-name": j.Name})
}

// remember pods that are not to be stopped.
func (m *moving) remember(labels client.MatchingLabels) {
	m.Helper()
	var list corev1.PodList
	if err := m.Kube.List(m.Context(), &list, labels); err != nil {
		m.Fatal(err)
	}
	for _, p := range list.Items {
		m.pods[p.UID] = p.Name
	}
}

// holds waits until a Job's Workload has quota, or has none, and the Job is suspended.
func (m *moving) holds(j *batchv1.Job, quota bool) {
	m.Helper()
	m.eventually(fmt.Sprintf("Job %s waits, with quota: %v", j.Name, quota), func() bool {
		w := m.workload(j)
		return w != nil && apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved) != nil &&
			apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved) == quota &&
			m.Kube.Get(m.Context(), client.ObjectKeyFromObject(j), j) == nil && *j.Spec.Suspend
	}, func() string { return m.standing(j) })
}

// pass answers the check of a Job's Workload.
func (m *moving) pass(j client.Object) {
	m.Helper()
	m.eventually("the check of "+j.GetName()+" is answered", func() bool {
		w := m.workload(j)
		if w == nil || len(w.Status.AdmissionChecks) == 0 {
			return false
		}
		before := w.DeepCopy()
		w.Status.AdmissionChecks[0].State = kueue.CheckStateReady
		return m.Kube.Status().Patch(m.Context(), w, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})) == nil
	}, func() string { return fmt.Sprintf("%+v", m.workload(j)) })
}

// noneStopped checks that every pod that ran is the same and runs, on the same attempt.
func (m *moving) noneStopped() {
	m.Helper()
	var list corev1.PodList
	if err := m.Kube.List(m.Context(), &list, client.InNamespace("default")); err != nil {
		m.Fatal(err)
	}
	left := maps.Clone(m.pods)
	for _, p := range list.Items {
		if _, ours := left[p.UID]; ours && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			delete(left, p.UID)
		}
	}
	if len(left) > 0 {
		m.Errorf("%d of %d pods were stopped: %v", len(left), len(m.pods), left)
	}
}

// end deletes a Job, whose pods are to go.
func (m *moving) end(j *batchv1.Job) {
	m.Helper()
	for uid, name := range m.pods {
		if strings.HasPrefix(name, j.Name+"-") {
			delete(m.pods, uid)
		}
	}
	if err := m.Kube.Delete(m.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		m.Fatal(err)
	}
}

// failing are the webhooks of Kueue, by what becomes of requests that they do not answer.
func (m *moving) failing() map[admissionregistration.FailurePolicyType]int {
	m.Helper()
	out := map[admissionregistration.FailurePolicyType]int{}
	var validating admissionregistration.ValidatingWebhookConfigurationList
	var mutating admissionregistration.MutatingWebhookConfigurationList
	for _, list := range []client.ObjectList{&validating, &mutating} {
		if err := m.Kube.List(m.Context(), list); err != nil {
			m.Fatal(err)
		}
	}
	for _, c := range validating.Items {
		for _, w := range c.Webhooks {
			out[*w.FailurePolicy]++
		}
	}
	for _, c := range mutating.Items {
		for _, w := range c.Webhooks {
			out[*w.FailurePolicy]++
		}
	}
	return out
}

// muster starts Muster's queues with the rights that the migration has installed.
func (m *moving) startMuster(dir string) *managers.Manager {
	m.Helper()
	p, err := managers.NewMuster(m.Context(), m.RESTConfig(), program(m.T, "MUSTER_BIN"), dir,
		fmt.Sprintf("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {frameworks: [%s]}\n",
			strings.Join(frameworks, ", ")))
	if err != nil {
		m.Fatal(err)
	}
	if err := p.Start(m.Context()); err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() {
		p.Stop()
		if m.Failed() {
			testbed.Tail(p.Log())
		}
	})
	return p
}

// vanish deletes the CRD of Workloads with all Workloads, and installs it again: the Jobs keep running, and get Workloads again that use
// quota.
func (m *moving) vanish(running ...*batchv1.Job) {
	m.Helper()
	began := time.Now()
	crd := migration.NewCRD()
	crd.SetName("workloads.kueue.x-k8s.io")
	if err := m.Kube.Delete(m.Context(), crd); err != nil {
		m.Fatal(err)
	}
	m.eventually("the CRD of Workloads is gone", func() bool {
		return apierrors.IsNotFound(m.Kube.Get(m.Context(), client.ObjectKeyFromObject(crd), crd))
	},
		func() string { return fmt.Sprint(crd.Object["status"]) })
	for _, j := range running {
		if j.Annotations["muster.dev/started"] == "" { // Kueue started it: it ran before Muster came
			continue
		}
		m.eventually(j.Name+" is told so", func() bool {
			var list eventsv1.EventList
			return m.Kube.List(m.Context(), &list) == nil && slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
				return e.Reason == "WorkloadVanished" && e.Regarding.UID == j.UID
			})
		}, func() string { return m.standing(j) })
	}
	m.noneStopped()
	gone := time.Since(began)
	objects, err := deploy.Manifests(deploy.Queueing)
	if err != nil {
		m.Fatal(err)
	}
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetName() == crd.GetName() })
	if err := m.Kube.Create(m.Context(), objects[i]); err != nil {
		m.Fatal(err)
	}
	for _, j := range running {
		m.eventually(j.Name+" counts again", func() bool {
			w := m.workload(j)
			return w != nil && apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted)
		}, func() string { return m.standing(j) })
	}
	m.noneStopped()
	m.Logf("without Workloads for %s; all count again %s later", gone.Round(10*time.Millisecond),
		(time.Since(began) - gone).Round(10*time.Millisecond))
}

// TestFromKueueAndBack migrates a stock Kueue's running, waiting and half-started Jobs to Muster,
// back to Kueue, and takes Muster out: no pod that runs is stopped, and what waits starts in its turn.
// What has installed Kueue can upgrade it then.
func TestFromKueueAndBack(t *testing.T) {
	for _, by := range []tool{byHelm, byKubectl} {
		t.Run(string(by), func(t *testing.T) { fromKueueAndBack(t, by) })
	}
}

func fromKueueAndBack(t *testing.T, by tool) {
	m := newMoving(t, by)
	ctx, cancel := context.WithCancel(t.Context())
	followed := make(chan struct{})
	go func() { defer close(followed); m.followDeployment(ctx, true) }()
	t.Cleanup(func() { cancel(); <-followed })
	m.queue()
	blocker, waiting := m.job("blocker", "main", "2"), (*batchv1.Job)(nil)
	m.runs(blocker)
	waiting = m.job("waiting", "main", "2")
	steady, half := m.job("steady", "checked", "1"), m.job("half", "checked", "1")
	m.pass(steady)
	m.runs(steady)
	set := m.serve()
	m.pass(set)
	m.serves(set)
	m.holds(waiting, false)
	m.holds(half, true)

	told := m.migrate("migrate", "--check")
	owner := map[tool][]string{
		byHelm:    {", the Helm release kueue\n", "hide from Helm Secret kueue-system/sh.helm.release.v1.kueue.v1"},
		byKubectl: {", of kubectl\n", "would delete all queues: 0 to do"},
	}
	for _, want := range append(owner[by], "v0.19.2", "webhooks", "Workloads: 3 admitted, 2 waiting",
		"scale Deployment kueue-system/kueue-controller-manager to 0", "workloads.kueue.x-k8s.io and serve them as v1beta2 alone") {
		if !strings.Contains(strings.ToLower(told), strings.ToLower(want)) {
			t.Errorf("--check does not say %q", want)
		}
	}
	before := m.failing()
	if before[admissionregistration.Fail] < 40 {
		t.Errorf("Kueue has the webhooks %v", before)
	}
	m.migrate("migrate", "--apply")
	if left := m.failing(); len(left) > 0 {
		t.Errorf("webhooks are left: %v", left)
	}
	m.noneStopped()
	slipped := jobOf("slipped", "1")
	slipped.Labels["kueue.x-k8s.io/queue-name"] = "checked"
	if err := m.Kube.Create(t.Context(), slipped); err != nil || !*slipped.Spec.Suspend {
		t.Errorf("a Job that comes between Kueue and Muster is not held (%v)", err)
	}
	// Helm takes what the migration has installed for its own.
	for release, path := range map[string]string{"muster-crds": crds, "muster": chart} {
		if out, err := helm(t, "install", release, path, "--kubeconfig", m.kubeconfig, "--namespace", deploy.Namespace); err != nil {
			t.Fatalf("helm install %s: %v\n%s", release, err, out)
		}
	}
	m.noneStopped()
	muster := m.startMuster(t.TempDir())
	m.serves(set)
	m.pass(half)
	m.runs(half)
	m.end(blocker)
	m.runs(waiting)
	later := m.job("later", "main", "2")
	m.holds(later, false)
	m.noneStopped()
	if again := m.migrate("migrate", "--apply"); strings.Contains(again, ": 1 done") {
		t.Error("a second time found something to do")
	}

	m.vanish(half, waiting, steady)
	m.serves(set) // by a Workload of its own again, or Kueue would hold what runs as if it were new
	muster.Stop()
	m.migrate("migrate", "--back")
	if got := m.failing(); !maps.Equal(got, before) {
		t.Errorf("webhooks are %v, were %v", got, before)
	}
	m.noneStopped()
	m.serves(set)
	m.end(waiting)
	m.runs(later)
	m.noneStopped()
	m.publish(m.nextRelease())
	m.publish(m.published)

	m.migrate("uninstall", "--apply")
	m.noneStopped()
	if left := m.left(); len(left) > 0 {
		t.Errorf("%d objects of Muster are left: %s", len(left), strings.Join(left, ", "))
	}
	last := m.job("last", "checked", "1")
	m.pass(last)
	m.runs(last)
	m.noneStopped()
	for _, gone := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: deploy.Namespace, Name: "kueue-before-muster"}},
	} {
		if err := m.Kube.Get(t.Context(), client.ObjectKeyFromObject(gone), gone); !apierrors.IsNotFound(err) {
			t.Errorf("%s is left (%v)", gone.GetName(), err)
		}
	}
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	if err := m.Kube.Get(t.Context(), client.ObjectKey{Name: "nodegroups.muster.dev"}, crd); !apierrors.IsNotFound(err) {
		t.Errorf("nodegroups.muster.dev is left (%v)", err)
	}
}

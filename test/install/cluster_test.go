package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/stages"
	"github.com/muster-dev/muster/test/kueue/managers"
	"github.com/muster-dev/muster/test/pressure"
	"github.com/muster-dev/muster/test/testbed"
)

// namespace and account are not the usual ones, so that what has these by itself is seen.
const (
	namespace = "batch-system"
	account   = "holder"
)

// bare is a cluster without anything of Muster's.
type bare struct {
	*testing.T
	*testbed.Cluster
	kubeconfig string
}

func newBare(t *testing.T) *bare {
	t.Helper()
	program(t, testbed.SandboxVariable)
	program(t, "MUSTER_HELM_BIN")
	b := &bare{T: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	c, err := testbed.Start(t.Context(), "install", cluster.Config{
		Stages: stages.YAML(), Manifests: simulation, Kubeconfig: b.kubeconfig, Progress: os.Stderr,
		Only: []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kwok},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	c.KeepIfFailed(t, deploy.Namespace, metav1.NamespaceDefault)
	b.Cluster = c
	return b
}

// simulation is the CRD without which KWOK does not run.
func simulation() ([]*unstructured.Unstructured, error) {
	objects, err := deploy.Manifests(deploy.Provisioning)
	return slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() != "CustomResourceDefinition" || !deploy.ForSimulation(o)
	}), err
}

// helm runs Helm on the cluster.
func (b *bare) helm(args ...string) {
	b.Helper()
	began := time.Now()
	if out, err := helm(b.T, append(args, "--kubeconfig", b.kubeconfig, "--namespace", namespace)...); err != nil {
		b.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	b.Logf("helm %s: %s", strings.Join(args[:2], " "), time.Since(began).Round(10*time.Millisecond))
}

// values are the arguments for the names.
var values = []string{"--set", "serviceAccount.name=" + account + ",kwok.enabled=true"}

func (b *bare) install() { b.installFrom("../../deploy/charts") }

// installFrom installs the charts of a folder.
func (b *bare) installFrom(charts string) {
	b.Helper()
	b.helm("install", "muster-crds", filepath.Join(charts, "muster-crds"), "--create-namespace")
	// A machine for Muster's own pods.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "system", Labels: map[string]string{"kubernetes.io/os": "linux"}}}
	node.Annotations = map[string]string{"kwok.x-k8s.io/node": "fake"}
	node.Status.Allocatable = corev1.ResourceList{"cpu": amount("8"), "memory": amount("32Gi"), "pods": amount("110")}
	node.Status.Capacity = node.Status.Allocatable
	if err := b.Kube.Create(b.Context(), node); err != nil {
		b.Fatal(err)
	}
	b.helm(slices.Concat([]string{"install", "muster", filepath.Join(charts, "muster"), "--wait", "--timeout", "2m"}, values)...)
}

// previous is a folder with the charts as they were before their last change; empty where the history does not have it.
func previous(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("bash", "-euo", "pipefail", "-c",
		`cd ../.. && git archive "$(git log -1 --format=%H -- deploy/charts)^" deploy/charts | tar -x -C "$0"`, dir).CombinedOutput()
	if err != nil {
		t.Logf("the charts before their last change are not known: %v: %s", err, out)
		return ""
	}
	return filepath.Join(dir, "deploy", "charts")
}

// process is Muster, run as the pods of the Deployment would run it: with the token of their
// service account, and the settings of their ConfigMap.
type process struct {
	cmd    *exec.Cmd
	health string
	log    string
}

func (b *bare) muster() *process {
	b.Helper()
	deployment := &appsv1.Deployment{}
	b.get(deployment, "muster")
	settings := &corev1.ConfigMap{}
	b.get(settings, deployment.Spec.Template.Spec.Volumes[0].ConfigMap.Name)
	dir := b.TempDir()
	config, kubeconfig := filepath.Join(dir, "muster.yaml"), filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(config, []byte(settings.Data["muster.yaml"]), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := managers.WriteKubeconfig(kubeconfig, b.as(deployment.Spec.Template.Spec.ServiceAccountName)); err != nil {
		b.Fatal(err)
	}
	p := &process{health: testbed.FreeAddress(b), log: filepath.Join(dir, "log")}
	log, err := os.Create(p.log)
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	p.cmd = exec.Command(program(b.T, "MUSTER_BIN"), "--config="+config, "--kubeconfig="+kubeconfig, "--metrics-bind-address=0",
		"--health-probe-bind-address="+p.health)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		p.stop()
		if b.Failed() {
			testbed.Tail(p.log)
		}
	})
	return p
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = p.cmd.Wait()                          // its end is in its log
}

// ready returns whether the process is ready, and which checks failed.
func (p *process) ready() (bool, string) {
	answer, err := http.Get("http://" + p.health + "/readyz?verbose")
	if err != nil {
		return false, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return false, err.Error()
	}
	return answer.StatusCode == http.StatusOK, string(text)
}

// as are the credentials of a service account.
func (b *bare) as(name string) *rest.Config {
	b.Helper()
	set, err := kubernetes.NewForConfig(b.RESTConfig())
	if err != nil {
		b.Fatal(err)
	}
	hour := int64(3600)
	token, err := set.CoreV1().ServiceAccounts(namespace).CreateToken(b.Context(), name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	out := rest.AnonymousClientConfig(b.RESTConfig())
	out.BearerToken = token.Status.Token
	return out
}

func (b *bare) get(o client.Object, name string) {
	b.Helper()
	if err := b.Kube.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
		b.Fatal(err)
	}
}

// eventually waits for up to a minute.
func (b *bare) eventually(wish string, holds func() bool, state func() string) {
	b.Helper()
	ctx, cancel := pressure.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	if err := testbed.Poll(ctx, holds); err != nil {
		b.Fatalf("%s: not within a minute: %s", wish, state())
	}
}

func (b *bare) isReady(p *process, want bool, check string) {
	b.Helper()
	text := ""
	began := time.Now()
	b.eventually(fmt.Sprintf("muster is ready: %v", want), func() bool {
		var ready bool
		ready, text = p.ready()
		return ready == want && (check == "" || strings.Contains(text, "[-]"+check+" failed"))
	}, func() string { return text })
	b.Logf("ready is %v (%s) after %s", want, check, time.Since(began).Round(10*time.Millisecond))
}

// left are Muster's objects in the cluster, by kind and name.
func (b *bare) left() (out []string) {
	b.Helper()
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "ServiceAccount"}, {Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "Secret"},
		{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicy"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicyBinding"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := b.Kube.List(b.Context(), list); err != nil {
			b.Fatal(err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if strings.HasPrefix(o.GetName(), "muster") || o.GetName() == account {
				out = append(out, key(o))
			}
		}
	}
	return out
}

// TestInstallUpgradeRollBackUninstall with the real Helm, under other names than the usual ones,
// while a Job runs under the rights that the chart gives. What is installed first are the charts before their last change, under
// which a Job is started.
func TestInstallUpgradeRollBackUninstall(t *testing.T) {
	b := newBare(t)
	if old := previous(t); old != "" {
		b.installFrom(old)
	} else {
		b.install()
	}
	p := b.muster()
	job := b.queuedJob()
	b.eventually("the Job runs", func() bool {
		return b.Kube.Get(b.Context(), client.ObjectKeyFromObject(job), job) == nil && job.Status.Active == 1
	}, func() string { return fmt.Sprint(job.Spec.Suspend, job.Status) })
	uid := b.podOf(job)
	b.helm("upgrade", "muster-crds", crds)
	b.helm(slices.Concat([]string{"upgrade", "muster", chart, "--wait", "--timeout", "2m"}, values)...)
	b.isReady(p, true, "")
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)); err == nil {
		_, memory, _ := strings.Cut(string(status), "VmRSS:")
		memory, _, _ = strings.Cut(memory, "\n")
		t.Log("with one Job, muster takes", strings.TrimSpace(memory))
	}

	b.helm(slices.Concat([]string{"upgrade", "muster", chart, "--wait", "--timeout", "2m"}, values, []string{"--set",
		"replicas=3,dashboard.enabled=true,networkPolicy.enabled=true,metrics.grafanaDashboards.enabled=true,settings.verbosity=2"})...)
	deployment := &appsv1.Deployment{}
	if b.get(deployment, "muster"); deployment.Status.ReadyReplicas != 3 {
		t.Errorf("after the upgrade: %+v", deployment.Status)
	}
	b.get(&appsv1.Deployment{}, "muster-dashboard")
	b.isReady(p, true, "")
	b.helm("rollback", "muster", "2", "--wait", "--timeout", "2m")
	if b.get(deployment, "muster"); deployment.Status.Replicas != 2 {
		t.Errorf("after rolling back: %+v", deployment.Status)
	}
	if err := b.Kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "muster-dashboard"},
		&appsv1.Deployment{}); !apierrors.IsNotFound(err) {
		t.Errorf("the dashboard of the upgrade is still there (%v)", err)
	}
	b.isReady(p, true, "")
	if now := b.podOf(job); now != uid {
		t.Errorf("pod %s became %s", uid, now)
	}

	p.stop()
	b.helm("uninstall", "muster", "--wait")
	if left := b.left(); len(left) > 0 {
		t.Errorf("%d objects are left: %s", len(left), strings.Join(left, ", "))
	}
	b.helm("uninstall", "muster-crds", "--wait")
	if err := b.Kube.Get(t.Context(), client.ObjectKey{Name: "all"}, &kueue.ClusterQueue{}); err != nil {
		t.Errorf("the ClusterQueue went with the chart: %v", err)
	}
	if now := b.podOf(job); now != uid {
		t.Errorf("pod %s became %s", uid, now)
	}
}

// TestReadinessTellsTheTruth of each thing that can be taken from a process that runs.
func TestReadinessTellsTheTruth(t *testing.T) {
	b := newBare(t)
	b.install()
	p := b.muster()
	b.isReady(p, true, "")
	admission := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	rbac := schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	for _, tc := range []struct {
		name, check string
		of          schema.GroupVersionKind
		in, object  string
		edit        func(*unstructured.Unstructured) error
	}{
		{"a policy is edited", "installed", admission.WithKind("ValidatingAdmissionPolicy"), "", "muster-quotas", func(o *unstructured.Unstructured) error {
			return unstructured.SetNestedField(o.Object, "Ignore", "spec", "failurePolicy")
		}},
		{"a policy is deleted", "installed", admission.WithKind("ValidatingAdmissionPolicy"), "", "muster-jobs-start", nil},
		{"a right is taken", "rights", rbac.WithKind("ClusterRoleBinding"), "", "muster-metrics", nil},
		{"the lease is out of reach", "leader", rbac.WithKind("RoleBinding"), namespace, "muster-leader-election", nil},
	} {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(tc.of)
		if err := b.Kube.Get(t.Context(), client.ObjectKey{Namespace: tc.in, Name: tc.object}, o); err != nil {
			t.Fatal(err)
		}
		before := o.DeepCopy()
		before.SetResourceVersion("")
		before.SetUID("")
		if tc.edit != nil {
			if err := errors.Join(tc.edit(o), b.Kube.Update(t.Context(), o)); err != nil {
				t.Fatal(err)
			}
		} else if err := b.Kube.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Log(tc.name)
		b.isReady(p, false, tc.check)
		if err := client.IgnoreNotFound(b.Kube.Delete(t.Context(), o)); err != nil {
			t.Fatal(err)
		}
		if err := b.Kube.Create(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		if tc.check == "leader" {
			p = b.muster() // a leader that loses its lease ends
		}
		b.isReady(p, true, "")
	}
}

// jobOf is a Job for the queue of queuedJob.
func jobOf(name, cpu string) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		Labels: map[string]string{"kueue.x-k8s.io/queue-name": "main"}}}
	job.Spec.Template.Annotations = map[string]string{"kwok.muster.dev/run-for": "1h"}
	job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: "main", Image: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": amount(cpu)}},
	}}}
	return job
}

// queuedJob is a Job in a queue, with what it needs.
func (b *bare) queuedJob() *batchv1.Job {
	b.Helper()
	job := jobOf("train", "1")
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "any"}}
	all := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	all.Spec.NamespaceSelector = &metav1.LabelSelector{}
	all.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
		Name: "any", Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: amount("10")}},
	}}}}
	local := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "main"}}
	local.Spec.ClusterQueue = "all"
	for _, o := range []client.Object{flavor, all, local} {
		var err error
		b.eventually("admission policies know the kind of "+o.GetName(), func() bool {
			err = b.Kube.Create(b.Context(), o)
			return !apierrors.IsServiceUnavailable(err)
		}, func() string { return fmt.Sprint(err) })
		if err != nil {
			b.Fatal(err)
		}
	}
	b.isHeld(job)
	if err := b.Kube.Create(b.Context(), job); err != nil {
		b.Fatal(err)
	}
	return job
}

// isHeld waits until a Job that is tried is suspended: kube-apiserver takes policies up a moment after it has them, and a Job that runs
// meanwhile is stopped again.
func (b *bare) isHeld(job *batchv1.Job) {
	b.Helper()
	var err error
	b.eventually("the policy suspends new Jobs", func() bool {
		probe := job.DeepCopy()
		err = b.Kube.Create(b.Context(), probe, client.DryRunAll)
		return err == nil && probe.Spec.Suspend != nil && *probe.Spec.Suspend
	}, func() string { return fmt.Sprint(err) })
}

// podOf is the UID of the one pod of a Job.
func (b *bare) podOf(job *batchv1.Job) string {
	b.Helper()
	list := &corev1.PodList{}
	if err := b.Kube.List(b.Context(), list, client.InNamespace(job.Namespace), client.MatchingLabels{"job-name": job.Name}); err != nil {
		b.Fatal(err)
	}
	if len(list.Items) != 1 {
		b.Fatalf("Job %s has %d pods, want 1", job.Name, len(list.Items))
	}
	return string(list.Items[0].UID)
}

// TestTakingItOut of a cluster with a Job that runs on a booked machine, one that waits, and one
// whose launch is in flight: what runs goes on, and nothing is left.
func TestTakingItOut(t *testing.T) {
	plugin := program(t, "MUSTER_PLUGIN_BIN")
	b := newBare(t)
	b.install()
	p := b.muster()
	b.isReady(p, true, "")
	running := b.queuedJob()
	waiting := jobOf("large", "10")
	cordoned := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "held",
		Annotations: map[string]string{"muster.dev/cordoned": "booked", "kwok.x-k8s.io/node": "fake"},
		Labels:      map[string]string{"booked.muster.dev/gone": "default"}}}
	cordoned.Spec.Unschedulable = true
	persons := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "persons", Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}}}
	persons.Spec.Unschedulable = true
	b.eventually("one Job runs", func() bool {
		return b.Kube.Get(t.Context(), client.ObjectKeyFromObject(running), running) == nil && running.Status.Active == 1
	}, func() string { return fmt.Sprint(running.Status) })
	p.stop() // so that the cordon is not lifted before
	for _, o := range []client.Object{waiting, cordoned, persons} {
		if err := b.Kube.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	uid := b.podOf(running)

	uninstall := func(args ...string) string {
		t.Helper()
		began := time.Now()
		out, err := exec.Command(plugin, append([]string{"uninstall", "--kubeconfig", b.kubeconfig}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("uninstall %v: %v\n%s", args, err, out)
		}
		t.Logf("uninstall %v: %s\n%s", args, time.Since(began).Round(10*time.Millisecond), out)
		return string(out)
	}
	told := uninstall("--check")
	for _, want := range []string{"1 jobs wait in a queue: they stay suspended", "Job default/large", "clean Node held and lift its cordon",
		"delete ClusterQueue all", "delete ValidatingAdmissionPolicy muster-jobs-start", "scale Deployment " + namespace + "/muster to 0"} {
		if !strings.Contains(told, want) {
			t.Errorf("--check does not say %q", want)
		}
	}
	if left := b.left(); len(left) < 50 {
		t.Errorf("--check has changed something: %v", left)
	}
	p = b.muster()
	b.isReady(p, true, "")
	// KWOK's pods of the Deployment do nothing: the process ends with them.
	go func() {
		d := &appsv1.Deployment{}
		_ = testbed.Poll(b.Context(), func() bool {
			return b.Kube.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: "muster"}, d) == nil && *d.Spec.Replicas == 0
		})
		p.stop()
	}()
	uninstall("--apply")

	if left := b.left(); len(left) > 0 {
		t.Errorf("%d objects are left: %s", len(left), strings.Join(left, ", "))
	}
	crds := &unstructured.UnstructuredList{}
	crds.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := b.Kube.List(t.Context(), crds); err != nil || len(crds.Items) > 0 {
		t.Errorf("%d CustomResourceDefinitions are left (%v)", len(crds.Items), err)
	}
	if err := b.Kube.Get(t.Context(), client.ObjectKeyFromObject(cordoned), cordoned); err != nil || cordoned.Spec.Unschedulable ||
		len(cordoned.Labels) > 0 {
		t.Errorf("the cordoned node is %v, %v (%v)", cordoned.Spec, cordoned.Labels, err)
	}
	if err := b.Kube.Get(t.Context(), client.ObjectKeyFromObject(persons), persons); err != nil || !persons.Spec.Unschedulable {
		t.Errorf("the cordon of a person went (%v)", err)
	}
	if now := b.podOf(running); now != uid {
		t.Errorf("pod %s became %s", uid, now)
	}
	if err := b.Kube.Get(t.Context(), client.ObjectKeyFromObject(waiting), waiting); err != nil || !*waiting.Spec.Suspend {
		t.Errorf("the Job that waited: %v, %v", waiting.Spec.Suspend, err)
	}
	for _, j := range []*batchv1.Job{running, waiting} {
		if err := b.Kube.Get(t.Context(), client.ObjectKeyFromObject(j), j); err != nil || j.Annotations["muster.dev/started"] != "" {
			t.Errorf("Job %s has annotations %v (%v)", j.Name, j.Annotations, err)
		}
	}
	if told := uninstall("--apply"); strings.Contains(told, ": 1 done") {
		t.Error("a second time found something to do")
	}
}

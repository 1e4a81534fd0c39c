// Package clusters tests a manager and its workers, each a real cluster, with a gate between
// them that a test can cut.
package clusters

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/demo"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/test/testbed"
)

// start starts a manager and its workers for a test, and removes them at its end.
func start(t *testing.T, purpose string, workers int) *testbed.Clusters {
	t.Helper()
	if os.Getenv(testbed.SandboxVariable) == "" {
		t.Skip("set " + testbed.SandboxVariable + " to a built muster-sandbox to run this test, as `make test` does")
	}
	home := t.TempDir()
	config := cluster.Config{Progress: t.Output(), Registry: cluster.NewRegistry(home)}
	sandbox.Fill(&config)
	c, err := testbed.StartClusters(t.Context(), purpose, workers, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var states []cluster.ComponentState
		for _, one := range c.Set.Contexts() {
			of := c.Set.Cluster(one)
			states = append(states, of.State().Components...)
		}
		if err := c.Set.Stop(context.Background()); err != nil {
			t.Errorf("stopping the clusters: %v", err)
		}
		for _, s := range states {
			// The supervisor is this process, which has waited for their end.
			if s.PID == 0 || syscall.Kill(s.PID, 0) == nil {
				t.Errorf("%s ran as process %d, and does so after the stop: %v", s.Name, s.PID, s.PID != 0)
			}
		}
		if left, err := os.ReadDir(home); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v (%v)", left, err)
		}
	})
	for _, w := range append([]*testbed.Worker{{Cluster: c.Manager, Name: sandbox.Manager}}, c.Workers...) {
		t.Cleanup(func() {
			if t.Failed() {
				w.Keep(t, t.Name()+"/"+w.Name, metav1.NamespaceDefault)
			}
		})
	}
	return c
}

// asManager is a client of a worker with the kubeconfig that the manager has of it.
func asManager(t *testing.T, c *testbed.Clusters, worker string) (client.Client, *rest.Config) {
	t.Helper()
	var mkc kueue.MultiKueueCluster
	if err := c.Manager.Kube.Get(t.Context(), client.ObjectKey{Name: worker}, &mkc); err != nil {
		t.Fatal(err)
	}
	source := mkc.Spec.ClusterSource.KubeConfig
	if source == nil || source.LocationType != kueue.SecretLocationType {
		t.Fatalf("the source of %s is %+v, want a Secret", worker, mkc.Spec.ClusterSource)
	}
	var secret corev1.Secret
	if err := c.Manager.Kube.Get(t.Context(), client.ObjectKey{Namespace: deploy.Namespace, Name: source.Location}, &secret); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[kueue.MultiKueueConfigSecretKey])
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // no limit of this client's
	scheme, err := app.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	out, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return out, config
}

// TestTheDemoShowsItsStory runs the demo of several clusters as a new user does, in its own clusters. With -short, it runs only in those
// of TestStoryAManagerAndItsWorkers.
func TestTheDemoShowsItsStory(t *testing.T) {
	if testing.Short() {
		t.Skip("make e2e-all runs the command")
	}
	binary := os.Getenv(testbed.SandboxVariable)
	if binary == "" {
		t.Skip("set " + testbed.SandboxVariable + " to a built muster-sandbox to run this test, as `make test` does")
	}
	name := fmt.Sprintf("demo-clusters-%d", os.Getpid())
	if out, err := exec.CommandContext(t.Context(), binary, "demo", "--name", name, "--clusters").CombinedOutput(); err != nil {
		t.Errorf("the demo failed: %v\n%s", err, out)
	}
}

func TestStoryAManagerAndItsWorkers(t *testing.T) {
	c := start(t, "clusters", 2)
	ctx := t.Context()

	t.Run("nothing runs at the manager", func(t *testing.T) {
		want := map[string][]string{
			sandbox.Manager: {cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Muster, cluster.Dispatcher},
			"worker-1":      {cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kwok, cluster.Muster},
			"worker-2":      {cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kwok, cluster.Muster},
		}
		got := map[string][]string{}
		for _, name := range c.Set.Contexts() {
			for _, s := range c.Set.Cluster(name).Status(ctx) {
				got[name] = append(got[name], s.Name)
				if err := c.Set.Cluster(name).WaitReady(ctx, s.Name); err != nil {
					t.Errorf("%s of %s is not ready: %v", s.Name, name, err)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("components (-want +got):\n%s", diff)
		}
	})

	t.Run("the manager knows its workers in their order", func(t *testing.T) {
		var check kueue.AdmissionCheck
		var queue kueue.ClusterQueue
		var local kueue.LocalQueue
		var config kueue.MultiKueueConfig
		get(t, c.Manager, "", sandbox.SharedQueue, &queue)
		get(t, c.Manager, metav1.NamespaceDefault, sandbox.SharedQueue, &local)
		if len(queue.Spec.AdmissionChecksStrategy.AdmissionChecks) != 1 || string(local.Spec.ClusterQueue) != queue.Name {
			t.Fatalf("the queue has the checks %+v and the LocalQueue is of %s", queue.Spec.AdmissionChecksStrategy, local.Spec.ClusterQueue)
		}
		get(t, c.Manager, "", string(queue.Spec.AdmissionChecksStrategy.AdmissionChecks[0].Name), &check)
		parameters := check.Spec.Parameters
		if check.Spec.ControllerName != kueue.MultiKueueControllerName || parameters == nil || parameters.Kind != "MultiKueueConfig" {
			t.Fatalf("its check is %+v", check.Spec)
		}
		get(t, c.Manager, "", parameters.Name, &config)
		if want := []string{"worker-1", "worker-2"}; !slices.Equal(config.Spec.Clusters, want) {
			t.Errorf("its workers are %v, want %v", config.Spec.Clusters, want)
		}
		if got := gpus(&queue); got != 128 {
			t.Errorf("it has %d GPUs, want those of both workers, 128", got)
		}
	})

	for _, w := range c.Workers {
		t.Run("the queue of "+w.Name+" is served", func(t *testing.T) {
			var queue kueue.ClusterQueue
			var local kueue.LocalQueue
			var group v1alpha1.NodeGroup
			(&testbed.Site{T: t, Cluster: w.Cluster}).Eventually("its ClusterQueue and LocalQueue are active", func() bool {
				get(t, w.Cluster, "", sandbox.SharedQueue, &queue)
				get(t, w.Cluster, metav1.NamespaceDefault, sandbox.SharedQueue, &local)
				return meta.IsStatusConditionTrue(queue.Status.Conditions, kueue.ClusterQueueActive) &&
					meta.IsStatusConditionTrue(local.Status.Conditions, kueue.LocalQueueActive)
			}, func() string { return fmt.Sprint(queue.Status.Conditions, local.Status.Conditions) })
			get(t, w.Cluster, "", "gpu", &group)
			if machine := group.Spec.Template.Capacity["nvidia.com/gpu"]; machine.Value()*int64(group.Spec.MaxNodes) != gpus(&queue) {
				t.Errorf("its quota is %d GPUs, and its %d machines have %s each", gpus(&queue), group.Spec.MaxNodes, &machine)
			}
		})
		t.Run("the manager's rights in "+w.Name, func(t *testing.T) { testRights(t, c, w) })
	}
	t.Run("the demo tells its story", func(t *testing.T) { testDemo(t, c) })
	t.Run("a gang of the manager's runs in a worker", func(t *testing.T) { testGang(t, c) })
	// Gates come last: while the manager connects again, its jobs go to the cluster that it knows.
	for _, w := range c.Workers {
		t.Run("the gate of "+w.Name, func(t *testing.T) { testGate(t, c, w) })
	}
}

// testDemo leaves the first worker without machines.
func testDemo(t *testing.T, c *testbed.Clusters) {
	scheme, err := app.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	o := demo.ClustersOptions{Manager: c.Manager.RESTConfig(), Scheme: scheme, Out: t.Output()}
	for i, w := range c.Workers {
		o.Workers[i] = demo.Worker{Name: w.Name, Config: w.RESTConfig()}
	}
	if err := demo.RunClusters(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// testRights verifies in the worker what the manager may do there.
func testRights(t *testing.T, c *testbed.Clusters, w *testbed.Worker) {
	_, config := asManager(t, c, w.Name)
	kube := kubernetes.NewForConfigOrDie(config)
	const (
		all  = "get list watch create update patch delete"
		read = "get list watch"
	)
	for resource, verbs := range map[string]string{
		"kueue.x-k8s.io/workloads": all, "batch/jobs": all,
		"kueue.x-k8s.io/workloads/status": "get update patch", "batch/jobs/status": "",
		"kueue.x-k8s.io/clusterqueues": read, "kueue.x-k8s.io/localqueues": read,
		"kueue.x-k8s.io/resourceflavors": read, "autoscaling.x-k8s.io/provisioningrequests": read, "jobset.x-k8s.io/jobsets": all,
		"/pods": "get list watch create delete", "/pods/status": "", "/pods/exec": "", "apps/statefulsets": "get list watch create delete",
		"/nodes": "list watch", "muster.dev/nodegroups": "list watch", "/secrets": "", "/serviceaccounts/token": "",
		"rbac.authorization.k8s.io/clusterroles": "",
	} {
		var may []string
		for verb := range strings.FieldsSeq(all) {
			parts := append(strings.Split(resource, "/"), "")
			review, err := kube.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: parts[0], Resource: parts[1], Subresource: parts[2], Verb: verb, Namespace: metav1.NamespaceDefault,
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if review.Status.Allowed {
				may = append(may, verb)
			}
		}
		if got := strings.Join(may, " "); got != verbs {
			t.Errorf("%s: the manager may %q, want %q", resource, got, verbs)
		}
	}
}

// testGate has a Workload made by the manager: through the open gate, through one that is cut, and through one that
// lets no answer pass.
func testGate(t *testing.T, c *testbed.Clusters, w *testbed.Worker) {
	manager, _ := asManager(t, c, w.Name)
	try := func(name string) (made, told bool) {
		t.Helper()
		told = manager.Create(t.Context(), workload(name)) == nil
		for _, other := range c.Workers {
			err := other.Kube.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, &kueue.Workload{})
			switch {
			case err == nil && other.Name == w.Name:
				made = true
			case err == nil:
				t.Errorf("%s was made in %s", name, other.Name)
			case !apierrors.IsNotFound(err):
				t.Fatal(err)
			}
		}
		return made, told
	}
	over := func() {}
	for _, step := range []struct {
		name       string
		cut        func() (over func())
		made, told bool
	}{
		{name: "open", made: true, told: true},
		{name: "cut", cut: w.Cut},
		{name: "without-answers", cut: w.CutAnswers, made: true},
		{name: "open-again", made: true, told: true},
	} {
		if over(); step.cut != nil {
			over = step.cut()
		}
		name := w.Name + "-" + step.name
		if made, told := try(name); made != step.made || told != step.told {
			t.Errorf("%s: the Workload is made: %v, and the manager knows it: %v; want %v and %v", step.name, made, told, step.made, step.told)
		}
	}
	var list kueue.WorkloadList
	if err := manager.List(t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)); err != nil || len(list.Items) != 3 {
		t.Errorf("the manager sees %d Workloads (%v), want 3", len(list.Items), err)
	}
	for i := range list.Items {
		if err := manager.Delete(t.Context(), &list.Items[i]); err != nil {
			t.Errorf("deleting %s: %v", list.Items[i].Name, err)
		}
	}
}

// testGang gives the manager a Job, which runs on machines of the worker that its Workload names, and on none of another's.
func testGang(t *testing.T, c *testbed.Clusters) {
	manager := c.Manager.Kube
	template := workload("").Spec.PodSets[0].Template
	template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	gang := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: "gang", Namespace: metav1.NamespaceDefault, Labels: map[string]string{jobs.QueueLabel: sandbox.SharedQueue},
		},
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(2)), Completions: new(int32(2)), Template: template, ManagedBy: new(kueue.MultiKueueControllerName),
		},
	}
	if err := manager.Create(t.Context(), gang); err != nil {
		t.Fatal(err)
	}
	// Its pods go with its copy once it has run.
	ran := map[string]map[string]bool{}
	for _, worker := range c.Workers {
		ran[worker.Name] = map[string]bool{}
	}
	(&testbed.Site{T: t, Cluster: c.Manager}).Eventually("the gang has run", func() bool {
		for _, worker := range c.Workers {
			for _, node := range machinesOf(t, worker.Cluster, gang.Name) {
				ran[worker.Name][node] = true
			}
		}
		if err := manager.Get(t.Context(), client.ObjectKeyFromObject(gang), gang); err != nil {
			t.Fatal(err)
		}
		return gang.Status.Succeeded == 2
	}, func() string { return fmt.Sprint(gang.Status) })
	w := &kueue.Workload{}
	if err := manager.Get(t.Context(), client.ObjectKey{Namespace: gang.Namespace,
		Name: jobs.WorkloadName(batchv1.SchemeGroupVersion.WithKind("Job"), gang)}, w); err != nil {
		t.Fatal(err)
	}
	chosen := ptr.Deref(w.Status.ClusterName, "")
	if !slices.ContainsFunc(c.Workers, func(w *testbed.Worker) bool { return w.Name == chosen }) {
		t.Errorf("it ran in %q, which is no worker", chosen)
	}
	for _, worker := range c.Workers {
		want := 0
		if worker.Name == chosen {
			want = 2
		}
		if got := slices.Sorted(maps.Keys(ran[worker.Name])); len(got) != want {
			t.Errorf("in %s its pods ran on the nodes %v, want %d", worker.Name, got, want)
		}
	}
}

// machinesOf are the nodes of the group that pods of the job are on.
func machinesOf(t *testing.T, c *testbed.Cluster, job string) (out []string) {
	t.Helper()
	var pods corev1.PodList
	if err := c.Kube.List(t.Context(), &pods, client.MatchingLabels{batchv1.JobNameLabel: job}); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.Spec.NodeName == "" {
			continue
		}
		var node corev1.Node
		if get(t, c, "", p.Spec.NodeName, &node); node.Labels[v1alpha1.NodeGroupLabel] == "gpu" {
			out = append(out, node.Name)
		}
	}
	return out
}

// workload returns a Workload without a queue.
func workload(name string) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: kueue.DefaultPodSetName, Count: 1,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{Name: "worker", Image: "worker", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
				}}},
			}}}}},
	}
}

func gpus(q *kueue.ClusterQueue) (out int64) {
	for _, g := range q.Spec.ResourceGroups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				if r.Name == "nvidia.com/gpu" {
					out += r.NominalQuota.Value()
				}
			}
		}
	}
	return out
}

func get(t *testing.T, c *testbed.Cluster, namespace, name string, o client.Object) {
	t.Helper()
	if err := c.Kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
		t.Fatal(err)
	}
}

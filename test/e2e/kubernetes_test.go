package e2e

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/test/testbed"
)

// The control planes without mutating admission policies: the oldest that this version of Kubernetes
// can emulate, which is three minors back, and the newest with the policies turned off.
var (
	oldest   = []string{"--emulated-version=1.34"}
	disabled = []string{"--feature-gates=MutatingAdmissionPolicy=false"}
)

// elsewhere are the clusters of tests that run in another setting, too, by the name of the test
// that runs them there.
var elsewhere sync.Map

// clusterOf is the cluster for a test: the shared one, or that of the setting in which it runs.
func clusterOf(t *testing.T) *testbed.Cluster {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if c, ok := elsewhere.Load(name); ok {
		return c.(*testbed.Cluster)
	}
	return shared
}

// lacking is a cluster whose control plane has no mutating policies.
func lacking(flags []string, mutations deploy.Mutations) cluster.Config {
	c := cluster.Config{Progress: os.Stderr, ControlPlaneFlags: flags}
	sandbox.FillFor(&c, mutations)
	return c
}

// mutated are the tests of what the mutating policies do.
var mutated = []struct {
	name string
	run  func(*testing.T)
}{
	{"jobs", TestStoryQueuedJobStartsWhenItsMachinesAreThere},
	{"stay", TestOnlyMusterStartsAQueuedJob},
	{"default", TestJobsWithoutAQueueGoToTheDefaultOne},
	{"finalizers", TestQueuesAndFlavorsAreBornWithTheirFinalizer},
	{"nodes", TestStoryAGangStartsOnTheFifthOffering},
	{"pods", TestPodsThatComeEarlyWaitForTheWholeGang},
	{"strangers", TestPodsThatPassACordonAreKeptOffHeldMachines},
	{"squatter", TestASquatterIsKeptOffAndAGangRuns},
	{"others", TestOthersWaitAndDaemonsDoNot},
}

// TestByWebhook runs the same tests, under the watch of the promises, where the webhook takes the
// place of the policies.
func TestByWebhook(t *testing.T) {
	t.Parallel()
	c := lacking(disabled, deploy.ByWebhook)
	sandbox.AddCloudsOf(&c, clouds)
	elsewhere.Store(t.Name(), alone(t, "webhook", c))
	for _, test := range mutated {
		t.Run(test.name, test.run)
	}
}

// TestOldest: the oldest Kubernetes takes all that is installed and judges by it, and with the
// webhook the promises are kept there.
func TestOldest(t *testing.T) {
	t.Parallel()
	elsewhere.Store(t.Name(), alone(t, "oldest", lacking(oldest, deploy.ByWebhook)))
	for _, test := range mutated[:4] {
		t.Run(test.name, test.run)
	}
	t.Run("objects", TestObjectsThatCannotBeMeantAreRefused)
	t.Run("changes", TestWhatStaysAsItWasCreated)
	t.Run("quota", TestQuotaIsReservedAsItShouldBe)
	t.Run("selectors", TestBookedNodesAreSelectedByTheirGangAlone)
}

// allJobsQueue queues all Jobs except for those of three namespaces.
const allJobsQueue = `apiVersion: config.muster.dev/v1alpha1
kind: Configuration
queueing:
  manageJobsWithoutQueueName: true
  managedJobsNamespaceSelector:
    matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, muster-system, default]}
`

// TestTheWebhookIsNotInTheWay while muster is down: what has nothing to do with it is created at
// once, and what has passes as it is.
func TestTheWebhookIsNotInTheWay(t *testing.T) {
	t.Parallel()
	c := lacking(disabled, deploy.ByWebhook)
	c.Settings = []byte(allJobsQueue)
	c.Only = []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Muster}
	s := &site{testbed.NewSite(t, started(t, "down", c))}
	s.plain(s.Name)
	pod := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name}, Spec: s.podSpec()}
		change(p)
		return p
	}
	for namespace, want := range map[string]bool{s.Name: true, metav1.NamespaceDefault: false} {
		j := s.newPlainJob("tried", 1, "1s", noQueue, func(j *batchv1.Job) { j.Namespace = namespace })
		if err := s.tried(j); err != nil || *j.Spec.Suspend != want {
			t.Errorf("in namespace %s a Job without a queue is suspended: %t, want %t (%v)", namespace, *j.Spec.Suspend, want, err)
		}
	}
	// A Job without a queue passes two webhooks, each with a timeout of 2 s.
	const atMost = 5 * time.Second
	// Frozen, muster takes connections and does not answer, which is the worst.
	for name, stop := range map[string]func(string) error{"dead": s.Pause, "frozen": s.Freeze} {
		if err := s.WaitReady(t.Context(), cluster.Muster); err != nil {
			t.Fatal(err)
		}
		s.Eventually("the webhook acts", func() bool { j := s.newPlainJob("tried", 1, "1s"); return s.tried(j) == nil && *j.Spec.Suspend },
			func() string { return "it does not" })
		if err := stop(cluster.Muster); err != nil {
			t.Fatal(err)
		}
		passed := s.newPlainJob("queued-"+name, 1, "1s")
		for what, o := range map[string]struct {
			object client.Object
			most   time.Duration
		}{
			"a pod": {pod("plain-"+name, func(*corev1.Pod) {}), time.Second},
			"a pod that consumes": {pod("consumes-"+name, func(p *corev1.Pod) {
				p.Annotations = map[string]string{provreq.ProvisioningRequestPodAnnotationKey: "gang"}
			}), atMost},
			"a node":              {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-" + name}}, time.Second},
			"a node of a group":   {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-of-" + name, Labels: map[string]string{v1alpha1.CloudGroupLabel: "x"}}}, atMost},
			"a Job of the system": {s.newPlainJob("system-"+name, 1, "1s", noQueue, func(j *batchv1.Job) { j.Namespace = metav1.NamespaceSystem }), time.Second},
			"a Job":               {s.newPlainJob("free-"+name, 1, "1s", noQueue), atMost},
			"a queued Job":        {passed, atMost},
		} {
			began := time.Now()
			if err := s.Kube.Create(t.Context(), o.object); err != nil {
				t.Errorf("muster is %s: %s: %v", name, what, err)
			} else if took := time.Since(began); took > o.most {
				t.Errorf("muster is %s: %s took %s, more than %s", name, what, took, o.most)
			}
		}
		if *passed.Spec.Suspend {
			t.Errorf("muster is %s: the Job is suspended all the same", name)
		}
		var err error
		if name == "dead" {
			err = s.Resume(cluster.Muster)
		} else {
			err = s.Thaw(cluster.Muster)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Eventually("muster knows of the Job that passed", func() bool { return s.Workload(passed) != nil },
			func() string { return "it has no Workload" })
	}
}

// TestWithoutPoliciesOrWebhook controllers do what can still be done: a queued Job is stopped, and
// runs once it is its turn.
func TestWithoutPoliciesOrWebhook(t *testing.T) {
	t.Parallel()
	c := started(t, "bare", lacking(oldest, deploy.ByControllers))
	s := &site{testbed.NewSite(t, c)}
	s.queue(s.Group("", nil))
	// Its pods are there before muster sees it.
	if err := s.Pause(cluster.Muster); err != nil {
		t.Fatal(err)
	}
	j := s.job("sly", 2, nil)
	s.Eventually("the Job has pods", func() bool { return s.Get(j) && !*j.Spec.Suspend && j.Status.Active == 2 },
		func() string { return fmt.Sprint(j.Status) })
	if err := s.Resume(cluster.Muster); err != nil {
		t.Fatal(err)
	}
	s.Eventually("the Job is stopped", func() bool { return s.Get(j) && *j.Spec.Suspend }, func() string { return fmt.Sprint(s.Workload(j)) })
	s.complete(j)
	log, err := os.ReadFile(c.Logs(cluster.Muster))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(log), "The cluster has no mutating admission policies"); n != 2 {
		t.Errorf("the log of two starts tells %d times what is missing", n)
	}
}

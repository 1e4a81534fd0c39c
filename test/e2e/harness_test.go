package e2e

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/test/invariants"
	"github.com/muster-dev/muster/test/invariants/promises"
	"github.com/muster-dev/muster/test/testbed"
)

// Tests that run in parallel wait for their turn here: go test starts them in any order, and a long test that starts last would delay the
// end. Tests in the shared cluster that take minutes and little CPU time start first. The tests use all processors: more of them at a
// time would not finish sooner.
var (
	// sites is for tests in the cluster that they share.
	sites = make(turns, runtime.NumCPU())
	// clusters is for tests that start one of their own.
	clusters = make(turns, max(1, runtime.NumCPU()/2))
)

// turns has a place for each test that may go on.
type turns chan struct{}

// take waits for a place, which the test has until it is over.
func (q turns) take(t *testing.T) {
	t.Helper()
	began := time.Now()
	q <- struct{}{}
	t.Cleanup(func() { <-q })
	t.Logf("its turn came after %s", time.Since(began).Round(time.Second))
}

// site is a test's own part of a cluster.
type site struct{ *testbed.Site }

// newSite creates a site in the cluster that all tests share. A test there may only read its own objects. A test that kills or pauses a
// component, or changes what others depend on, has its own cluster: see alone.
func newSite(t *testing.T) *site {
	t.Helper()
	sites.take(t)
	return newSiteAtOnce(t)
}

// newSiteAtOnce is for a test that waits for a minute or more.
func newSiteAtOnce(t *testing.T) *site {
	t.Helper()
	return &site{testbed.NewSite(t, clusterOf(t))}
}

// alone is a cluster of the test's own until it is over. Nothing may be
// overdue in it for longer than 5 minutes, however often things go wrong, and there must
// be something to judge by the checks.
func alone(t *testing.T, purpose string, config cluster.Config, needed ...promises.Check) *testbed.Cluster {
	t.Helper()
	c := started(t, purpose, config)
	if err := c.Watch(context.WithoutCancel(t.Context()), func(o *invariants.Options) { o.PutOff = 5 * time.Minute }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Watcher.Stop()
		c.Watcher.Check(t, needed...)
		t.Log("promises watched: ", c.Watcher.Stats())
	})
	return c
}

// started is a cluster, whose promises are not watched, until the test is over.
func started(t *testing.T, purpose string, config cluster.Config) *testbed.Cluster {
	t.Helper()
	clusters.take(t)
	c, err := testbed.Start(t.Context(), "e2e-"+purpose, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	c.KeepIfFailed(t)
	return c
}

// in is the site for a subtest.
func (s *site) in(t *testing.T) *site { return &site{s.In(t)} }

// podSpec requests a whole machine of the site.
func (s *site) podSpec() corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		NodeSelector:  map[string]string{testbed.SiteLabel: s.Name},
		Tolerations:   []corev1.Toleration{{Key: testbed.GPUTaint.Key, Operator: corev1.TolerationOpExists}},
		Containers:    []corev1.Container{{Name: "main", Image: "main", Resources: testbed.WholeMachine()}},
	}
}

// request creates a request for count whole machines, without a queue.
func (s *site) request(name string, count int32, change func(*provreq.ProvisioningRequest),
	pods ...func(*corev1.PodSpec)) *provreq.ProvisioningRequest {
	s.Helper()
	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name}}
	template.Template.Spec = s.podSpec()
	for _, p := range pods {
		p(&template.Template.Spec)
	}
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name}}
	r.Spec = provreq.ProvisioningRequestSpec{
		ProvisioningClassName: transaction.ClassAtomicScaleUp,
		PodSets:               []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: name}, Count: count}},
	}
	if change != nil {
		change(r)
	}
	s.Create(template, r)
	return r
}

// condition waits until the request has the condition in the status, and returns it.
func (s *site) condition(r *provreq.ProvisioningRequest, kind string, status metav1.ConditionStatus) metav1.Condition {
	s.Helper()
	return s.Condition(r, &r.Status.Conditions, kind, status)
}

// queue is a ClusterQueue with a LocalQueue of the site's name. Its flavors are
// one for each of the groups, in their order; with our capacity check.
func (s *site) queue(groups ...*v1alpha1.NodeGroup) {
	s.Helper()
	s.capacityCheck()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "capacity"}}}
	rg := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"cpu", "nvidia.com/gpu"}}
	for _, g := range groups {
		flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
		flavor.Spec.NodeLabels = map[string]string{v1alpha1.NodeGroupLabel: g.Name}
		s.Create(flavor)
		rg.Flavors = append(rg.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(g.Name), Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("768")},
			{Name: "nvidia.com/gpu", NominalQuota: resource.MustParse("64")},
		}})
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{rg}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Name}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(s.Name)
	s.Create(cq, lq)
}

// capacityCheck is our AdmissionCheck, which all sites share.
func (s *site) capacityCheck() {
	s.Helper()
	c := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "capacity"}}
	c.Spec.ControllerName = cache.CapacityController
	if err := s.Kube.Create(s.Context(), c); client.IgnoreAlreadyExists(err) != nil {
		s.Fatal(err)
	}
}

// checkOfKueue replaces Muster's check of the queue by Kueue's own.
func (s *site) checkOfKueue() {
	s.Helper()
	config := &kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	config.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	check.Spec.ControllerName = kueue.ProvisioningRequestControllerName
	check.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group,
		Kind: "ProvisioningRequestConfig", Name: s.Name}
	s.Create(config, check)
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	s.edit(cq, func() {
		cq.Spec.AdmissionChecksStrategy.AdmissionChecks[0].Name = kueue.AdmissionCheckReference(s.Name)
	})
}

// job is a queued Job of count pods, each of a whole machine for a second.
func (s *site) job(name string, count int32, change func(*batchv1.Job)) *batchv1.Job {
	s.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name,
		Labels: map[string]string{"kueue.x-k8s.io/queue-name": s.Name}}}
	j.Spec.Parallelism, j.Spec.Completions = &count, &count
	j.Spec.Template.Spec = s.podSpec()
	if change != nil {
		change(j)
	}
	s.Create(j)
	return j
}

func (s *site) complete(j *batchv1.Job) {
	s.Helper()
	s.Eventually("completion of job "+j.Name, func() bool { return s.IsComplete(j) }, func() string {
		if w := s.Workload(j); w != nil {
			return fmt.Sprintf("workload: %v; checks: %v; pods: %v", w.Status.Conditions, w.Status.AdmissionChecks, s.pods())
		}
		return "it has no workload"
	})
}

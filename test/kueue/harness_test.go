package kueue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/test/testbed"
)

// site is a test's own part of the cluster: beside a namespace, a queue, a flavor, a
// check and groups of the same name.
type site struct{ *testbed.Site }

// newSite creates a site without groups. The queue has quota for many machines, so that Muster alone decides how many there are.
func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteWith(t, func(*site, *kueue.ResourceFlavor, *kueue.ProvisioningRequestConfig) {})
}

func newSiteWith(t *testing.T, change func(*site, *kueue.ResourceFlavor, *kueue.ProvisioningRequestConfig)) *site {
	t.Helper()
	s := &site{testbed.NewSite(t, shared)}
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	flavor.Spec.NodeLabels = map[string]string{testbed.SiteLabel: s.Name}
	flavor.Spec.Tolerations = []corev1.Toleration{{Key: testbed.GPUTaint.Key, Operator: corev1.TolerationOpExists}}
	config := &kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	config.Spec = kueue.ProvisioningRequestConfigSpec{
		ProvisioningClassName: transaction.ClassAtomicScaleUp,
		ManagedResources:      []corev1.ResourceName{testbed.GPU},
		RetryStrategy:         &kueue.ProvisioningRequestRetryStrategy{BackoffBaseSeconds: new(int32(1))},
	}
	change(s, flavor, config)
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	check.Spec.ControllerName = kueue.ProvisioningRequestControllerName
	check.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group,
		Kind: "ProvisioningRequestConfig", Name: s.Name}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{
		AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(s.Name)}}}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu", testbed.GPU},
		Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(s.Name), Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("1k")},
			{Name: testbed.GPU, NominalQuota: resource.MustParse("1k")},
		}}},
	}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Name}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(s.Name)
	s.Create(flavor, config, check, cq, lq)
	return s
}

// group creates a pool of so many machines at most.
func (s *site) group(suffix string, most int32, faults ...v1alpha1.KwokFault) {
	s.Helper()
	s.Create(s.newGroup(suffix, most, faults...))
}

func (s *site) newGroup(suffix string, most int32, faults ...v1alpha1.KwokFault) *v1alpha1.NodeGroup {
	return s.NewGroup(suffix, func(g *v1alpha1.NodeGroup) { g.Spec.MaxNodes, g.Spec.Kwok.Faults = most, faults })
}

// job returns a queued Job of count pods that run at once, each on a whole machine for that long.
func (s *site) job(name string, count int32, long time.Duration, change ...func(*batchv1.Job)) *batchv1.Job {
	s.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name,
		Labels: map[string]string{"kueue.x-k8s.io/queue-name": s.Name}}}
	j.Spec.Suspend = new(true)
	j.Spec.Parallelism, j.Spec.Completions = &count, &count
	j.Spec.Template.Annotations = map[string]string{"kwok.muster.dev/run-for": long.String()}
	j.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "main", Image: "main", Resources: testbed.WholeMachine()}},
	}
	for _, f := range change {
		f(j)
	}
	s.Create(j)
	return j
}

// request is the one that Kueue makes for the job first, and again by the same
// name after every stop but those for a failed request; nil while there is none.
func (s *site) request(j *batchv1.Job) *provreq.ProvisioningRequest {
	s.Helper()
	w := s.Workload(j)
	if w == nil {
		return nil
	}
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: fmt.Sprintf("%s-%s-1", w.Name, s.Name)}}
	if !s.Get(r) {
		return nil
	}
	return r
}

// condition waits until the job's request has the condition in the status, and
// returns both.
func (s *site) condition(j *batchv1.Job, kind string, status metav1.ConditionStatus) (r *provreq.ProvisioningRequest, c metav1.Condition) {
	s.Helper()
	s.Eventually(fmt.Sprintf("%s=%s of the request for job %s", kind, status, j.Name), func() bool {
		r = s.request(j)
		return r != nil && testbed.Found(r.Status.Conditions, kind, status, &c)
	}, func() string { return s.standing(j) })
	return r, c
}

// standing is how things stand with a job.
func (s *site) standing(j *batchv1.Job) string {
	s.Helper()
	var out strings.Builder
	if s.Get(j) {
		fmt.Fprintf(&out, "\njob: suspended %v, %+v", *j.Spec.Suspend, j.Status)
	}
	if w := s.Workload(j); w != nil {
		fmt.Fprintf(&out, "\nworkload: %+v\nchecks: %+v", w.Status.Conditions, w.Status.AdmissionChecks)
	}
	var requests provreq.ProvisioningRequestList
	s.List(&requests, client.InNamespace(s.Name))
	for _, r := range requests.Items {
		fmt.Fprintf(&out, "\nrequest %s: %+v", r.Name, r.Status.Conditions)
	}
	var pods corev1.PodList
	s.List(&pods, client.InNamespace(s.Name))
	for _, p := range pods.Items {
		fmt.Fprintf(&out, "\npod %s on %q: %s %v", p.Name, p.Spec.NodeName, p.Status.Phase, p.Spec.NodeSelector)
	}
	for _, n := range s.nodes() {
		fmt.Fprintf(&out, "\nnode %s: cordoned %v %v", n.Name, n.Spec.Unschedulable, n.Labels)
	}
	return out.String()
}

// complete waits until the job has, and checks that it was never deactivated:
// a Workload that Kueue has deactivated stays so until a user activates it.
func (s *site) complete(j *batchv1.Job) {
	s.Helper()
	s.Eventually("completion of job "+j.Name, func() bool { return s.IsComplete(j) }, func() string { return s.standing(j) })
	s.active(j)
}

func (s *site) active(j *batchv1.Job) {
	s.Helper()
	if w := s.Workload(j); w == nil || w.Spec.Active != nil && !*w.Spec.Active {
		s.Fatalf("the workload of job %s was deactivated: %s", j.Name, s.standing(j))
	}
}

// evictions are the reasons for which Kueue has stopped the job's workload.
func (s *site) evictions(j *batchv1.Job) (reasons []string) {
	s.Helper()
	if w := s.Workload(j); w != nil && w.Status.SchedulingStats != nil {
		for _, e := range w.Status.SchedulingStats.Evictions {
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons
}

func (s *site) nodes() []corev1.Node {
	s.Helper()
	var nodes corev1.NodeList
	s.List(&nodes, client.MatchingLabels{testbed.SiteLabel: s.Name})
	return nodes.Items
}

// machines of the site, those included that have ended and are still on record.
func (s *site) machines() []kwokv1alpha1.Machine {
	s.Helper()
	var machines kwokv1alpha1.MachineList
	s.List(&machines)
	return slices.DeleteFunc(machines.Items, func(m kwokv1alpha1.Machine) bool { return m.Spec.Node.Labels[testbed.SiteLabel] != s.Name })
}

// joined waits until that many machines of the site are nodes.
func (s *site) joined(count int) (nodes []corev1.Node) {
	s.Helper()
	s.Eventually(fmt.Sprintf("%d machines have joined", count), func() bool {
		nodes = s.nodes()
		return len(nodes) == count
	}, func() string { return fmt.Sprint(len(nodes), " nodes") })
	return nodes
}

// empty waits until nothing is left of the machines and requests of the site.
func (s *site) empty() {
	s.Helper()
	var left []string
	s.Eventually("no request, machine or node is left", func() bool {
		left = nil
		var requests provreq.ProvisioningRequestList
		s.List(&requests, client.InNamespace(s.Name))
		for _, r := range requests.Items {
			left = append(left, "request/"+r.Name)
		}
		for _, m := range s.machines() {
			if m.Status.Phase != kwokv1alpha1.MachineTerminated {
				left = append(left, "machine/"+m.Name)
			}
		}
		for _, n := range s.nodes() {
			left = append(left, "node/"+n.Name)
		}
		return len(left) == 0
	}, func() string { return strings.Join(left, ", ") })
}

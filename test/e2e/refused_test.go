package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	workloads "github.com/muster-dev/muster/queueing/workload"
)

// beside is another namespace, whose LocalQueue feeds the ClusterQueue of the site.
func (s *site) beside(suffix string, labels map[string]string) *site {
	s.Helper()
	other := s.in(s.T)
	other.Name += suffix
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: other.Name, Name: other.Name}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(s.Name)
	s.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other.Name, Labels: labels}}, lq)
	return other
}

// refused waits until a Job is evicted since its pods are refused with these words.
func (s *site) refused(j *batchv1.Job, words string) {
	s.Helper()
	var c *metav1.Condition
	s.Eventually("job "+j.Name+" makes room for others", func() bool {
		w := s.Workload(j)
		if w == nil {
			return false
		}
		c = meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted)
		return c != nil && c.Status == metav1.ConditionTrue && !workloads.HasQuota(w) && s.Get(j) && *j.Spec.Suspend
	}, func() string { return fmt.Sprintf("%v, workload: %+v", j.Status, s.Workload(j)) })
	if c.Reason != workloads.ReasonPodsRefused || !strings.Contains(c.Message, words) {
		s.Errorf("job %s is evicted with %s: %s, want the words %q", j.Name, c.Reason, c.Message, words)
	}
}

// TestAJobWhosePodsAreRefusedMakesRoom: what the API server does not let in must not keep
// from others what it cannot use, and comes in its turn once it is let in.
func TestAJobWhosePodsAreRefusedMakesRoom(t *testing.T) {
	t.Parallel()
	s := newSiteAtOnce(t)
	s.plain(s.Name)
	noPods := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "no-pods"}}
	noPods.Spec.Hard = corev1.ResourceList{"pods": resource.MustParse("0")}
	s.Create(noPods)
	s.Eventually("the namespace's quota is in force", func() bool { return s.Get(noPods) && len(noPods.Status.Hard) > 0 },
		func() string { return "it is not" })
	secure := s.beside("-secure", map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted",
		"pod-security.kubernetes.io/warn":    "privileged",
	})
	open := s.beside("-open", nil)

	// Each would have the whole quota.
	over := s.plainJob("over-quota", 8, "1s")
	s.Eventually("the first job is started", func() bool { return s.Get(over) && !*over.Spec.Suspend }, func() string { return "" })
	insecure := secure.plainJob("insecure", 8, "1s", func(j *batchv1.Job) { j.Spec.Template.Spec.HostNetwork = true })
	s.refused(over, "exceeded quota: no-pods")
	next := open.plainJob("next", 8, "1s")
	secure.refused(insecure, `violates PodSecurity "restricted`)
	open.complete(next)
	// An Event may have been repeated by now, or have expired.
	count := func(j *batchv1.Job) (n int32) {
		if w := s.Workload(j); w != nil {
			n = workloads.Evictions(w, workloads.ReasonPodsRefused, "")
		}
		return n
	}
	of, why := fmt.Sprintf("cluster_queue=%q", s.Name), fmt.Sprintf("reason=%q", workloads.ReasonPodsRefused)
	var told float64
	var counts []int32
	s.Eventually("the metrics tell of each eviction", func() bool {
		counts = []int32{count(over), count(insecure)}
		told = s.metric("kueue_evicted_workloads_total", of, why)
		return slices.Min(counts) > 0 && told == float64(counts[0]+counts[1])
	}, func() string { return fmt.Sprintf("They tell %v, the Workloads count %v", told, counts) })

	s.edit(noPods, func() { noPods.Spec.Hard["pods"] = resource.MustParse("8") })
	s.Within(2*time.Minute, "a start at the next attempt", func() bool { return s.Get(over) && !*over.Spec.Suspend },
		func() string { return fmt.Sprint(s.Workload(over)) })
	s.complete(over)
	secure.Delete(insecure)
}

// TestMachinesForPodsThatAreRefusedGoBack with the quota, whatever refuses them.
func TestMachinesForPodsThatAreRefusedGoBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	s.queue(g)
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Name}},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}},
	}
	policy.Spec.Validations = []admissionv1.Validation{{Expression: "false", Message: "no pods today"}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = s.Name, []admissionv1.ValidationAction{admissionv1.Deny}
	s.Create(policy, binding)
	t.Cleanup(func() { _ = s.Kube.Delete(s.cleanup(), binding); _ = s.Kube.Delete(s.cleanup(), policy) })
	s.Eventually("the policy is in force", func() bool {
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "probe"}, Spec: s.podSpec()}
		return s.Kube.Create(t.Context(), probe, client.DryRunAll) != nil
	}, func() string { return "it is not" })

	j := s.job("barred", 2, nil)
	s.refused(j, "no pods today")
	s.Empty(g.Name)
}

package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// cpuQueue is a ClusterQueue of the site with quota of ten CPUs in one flavor and
// no check, and its LocalQueue.
func (s *site) cpuQueue() *kueue.ClusterQueue {
	s.Helper()
	cq := clusterQueue(func(cq *kueue.ClusterQueue) {
		cq.Name, cq.Spec.CohortName, cq.Spec.NamespaceSelector = s.Name, "", &metav1.LabelSelector{}
		cq.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{
			{Name: kueue.ResourceFlavorReference(s.Name), Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: *amount("10")}}},
		}}}
	})
	s.Create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}, cq, s.localQueue())
	return cq
}

func (s *site) localQueue() *kueue.LocalQueue {
	return localQueue(func(lq *kueue.LocalQueue) {
		lq.Namespace, lq.Name, lq.Spec.ClusterQueue = s.Name, s.Name, kueue.ClusterQueueReference(s.Name)
	})
}

// of5 is a Workload of the site's queue without an owner: five CPUs in all.
func (s *site) of5(name string) *kueue.Workload {
	s.Helper()
	w := workload(func(w *kueue.Workload) {
		w.Namespace, w.Name, w.Spec.QueueName = s.Name, name, kueue.LocalQueueName(s.Name)
	})
	s.Create(w)
	return w
}

// workloadIs waits for a condition of a Workload, and returns it.
func (s *site) workloadIs(w *kueue.Workload, kind string, status metav1.ConditionStatus) metav1.Condition {
	s.Helper()
	return s.Condition(w, &w.Status.Conditions, kind, status)
}

func TestALocalQueueWaitsForItsClusterQueue(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	lq := s.localQueue()
	s.Create(lq)
	w := s.of5("early")
	var c *metav1.Condition
	s.Eventually("the LocalQueue says what it lacks", func() bool {
		c = nil
		if s.Get(lq) {
			c = meta.FindStatusCondition(lq.Status.Conditions, kueue.LocalQueueActive)
		}
		return c != nil && c.Status == metav1.ConditionFalse
	}, func() string { return fmt.Sprint(lq.Status) })
	if c.Reason != "ClusterQueueDoesNotExist" || !strings.Contains(c.Message, s.Name) {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	if c := s.workloadIs(w, kueue.WorkloadQuotaReserved, metav1.ConditionFalse); !strings.Contains(c.Message, s.Name) {
		t.Errorf("the Workload says %s: %s", c.Reason, c.Message)
	}
	s.Delete(lq)
	s.cpuQueue()
	s.workloadIs(w, kueue.WorkloadAdmitted, metav1.ConditionTrue)
}

func TestAFlavorInUseStaysUntilItIsNot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cq := s.cpuQueue()
	first := s.of5("first")
	s.workloadIs(first, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	rf := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	s.Delete(rf)
	s.Delete(cq)
	s.Eventually("the queue says that it is going", func() bool {
		c := meta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueActive)
		return s.Get(cq) && c != nil && c.Reason == kueue.ClusterQueueActiveReasonTerminating
	}, func() string { return fmt.Sprint(cq.Status.Conditions) })
	second := s.of5("second")
	s.workloadIs(second, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	if !s.Get(rf) || !s.Get(cq) {
		t.Error("the flavor or the queue has gone while a Workload had quota in it")
	}
	s.workloadIs(first, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	s.Delete(first)
	s.Eventually("queue and flavor go once nothing uses them", func() bool { return !s.Get(cq) && !s.Get(rf) },
		func() string { return fmt.Sprint(cq.Finalizers, rf.Finalizers) })
}

// TestQuotaLoweredUnderUsageTakesNothingAway from admitted Workloads, and admits no
// others.
func TestQuotaLoweredUnderUsageTakesNothingAway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cq := s.cpuQueue()
	first := s.of5("first")
	s.workloadIs(first, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	patch := client.MergeFrom(cq.DeepCopy())
	quota(cq).NominalQuota = *amount("1")
	if err := s.Kube.Patch(t.Context(), cq, patch); err != nil {
		t.Fatal(err)
	}
	second := s.of5("second")
	if c := s.workloadIs(second, kueue.WorkloadQuotaReserved, metav1.ConditionFalse); !strings.Contains(c.Message, "cpu") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	if s.Get(first); !meta.IsStatusConditionTrue(first.Status.Conditions, kueue.WorkloadAdmitted) {
		t.Errorf("the first has lost what it had: %v", first.Status.Conditions)
	}
	patch = client.MergeFrom(cq.DeepCopy())
	quota(cq).NominalQuota = *amount("10")
	if err := s.Kube.Patch(t.Context(), cq, patch); err != nil {
		t.Fatal(err)
	}
	s.workloadIs(second, kueue.WorkloadAdmitted, metav1.ConditionTrue)
}

// TestAWorkloadWhoseQuotaIsTakenByHandQueuesAgain.
func TestAWorkloadWhoseQuotaIsTakenByHandQueuesAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.cpuQueue()
	w := s.of5("edited")
	s.workloadIs(w, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	patch := client.MergeFrom(w.DeepCopy())
	evicted(w)
	if err := s.Kube.Status().Patch(t.Context(), w, patch); err != nil {
		t.Fatal(err)
	}
	s.workloadIs(w, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	if s.Get(w); w.Status.Admission == nil {
		t.Error("it is admitted without an admission")
	}
}

// TestCohortsInACircleAdmitNothing until the circle is cut.
func TestCohortsInACircleAdmitNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	upper := cohort(func(c *kueue.Cohort) {
		*c = kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-upper"}}
		c.Spec.ParentName = kueue.CohortReference(s.Name + "-lower")
	})
	lower := cohort(func(c *kueue.Cohort) {
		*c = kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-lower"}}
		c.Spec.ParentName = kueue.CohortReference(upper.Name)
	})
	s.Create(upper, lower)
	cq := s.cpuQueue()
	patch := client.MergeFrom(cq.DeepCopy())
	cq.Spec.CohortName = kueue.CohortReference(lower.Name)
	if err := s.Kube.Patch(t.Context(), cq, patch); err != nil {
		t.Fatal(err)
	}
	var c *metav1.Condition
	s.Eventually("the queue says that its cohort is in a circle", func() bool {
		c = nil
		if s.Get(cq) {
			c = meta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueActive)
		}
		return c != nil && c.Reason == "CohortCycle"
	}, func() string { return fmt.Sprint(cq.Status.Conditions) })
	if !strings.Contains(c.Message, lower.Name) || !strings.Contains(c.Message, "parentName") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	w := s.of5("waiting")
	s.workloadIs(w, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	patch = client.MergeFrom(upper.DeepCopy())
	upper.Spec.ParentName = ""
	if err := s.Kube.Patch(t.Context(), upper, patch); err != nil {
		t.Fatal(err)
	}
	s.workloadIs(w, kueue.WorkloadAdmitted, metav1.ConditionTrue)
}

// garbage is how many objects of each kind are thrown at the queues.
var garbage = flag.Int("garbage", 60, "how many objects of each kind that make no sense are thrown at the queues")

// TestGarbageHarmsNoOtherWorkload: objects that make no sense, as far as the schemas
// and policies let them in. A queue beside them goes on, muster does not die, and
// all of it can be deleted.
func TestGarbageHarmsNoOtherWorkload(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	g := s.Group("", nil)
	s.queue(g)
	r := &rubbish{Rand: rand.New(rand.NewPCG(seed, seed)), site: s.Name}
	var made []*unstructured.Unstructured
	accepted := map[string]int{}
	for i := range *garbage {
		for _, o := range r.objects(i) {
			switch err := s.Kube.Create(t.Context(), o); {
			case err == nil:
				made = append(made, o)
				accepted[o.GetKind()]++
				r.scribble(s, o)
			case !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err):
				t.Fatalf("creating %v: %v", o.Object, err)
			}
		}
	}
	t.Logf("of %d of each kind there are: %v", *garbage, accepted)
	s.complete(s.job("sense", 2, nil))
	for _, o := range made {
		s.Delete(o)
	}
	s.Eventually("all garbage is gone", func() bool {
		for len(made) > 0 && apierrors.IsNotFound(s.Kube.Get(t.Context(), client.ObjectKeyFromObject(made[0]), made[0])) {
			made = made[1:]
		}
		return len(made) == 0
	}, func() string {
		return fmt.Sprintf("%d are left, such as %s %s: %v", len(made), made[0].GetKind(), made[0].GetName(), made[0].Object)
	})
	s.Empty(g.Name)
}

// rubbish makes objects of all kinds of queueing, whose fields are drawn from what
// is at the edge of sense.
type rubbish struct {
	*rand.Rand
	site string
}

func pick[T any](r *rubbish, from ...T) T { return from[r.IntN(len(from))] }

// sometimes is a value in half of the cases, and no field in the others.
func sometimes(r *rubbish, in map[string]any, field string, value any) {
	if r.IntN(2) == 0 {
		in[field] = value
	}
}

func (r *rubbish) amount() any {
	if r.IntN(20) == 0 {
		return pick[any](r, "-1", "1e1.5", "much", true)
	}
	return pick[any](r, "0", "-0", "1n", "0.5", ".5", "5.", "1e18", "9223372036854775807", "9223372036854775808", "16E", "1e99", int64(7))
}

// name is of an object that may be there, or not.
func (r *rubbish) name() string {
	return fmt.Sprintf("%s-%d", r.site, pick(r, 0, 1, 2, r.IntN(2**garbage)))
}

func (r *rubbish) labels() map[string]any {
	if r.IntN(20) == 0 {
		return pick(r, map[string]any{"a b": "c"}, map[string]any{"": ""})
	}
	return pick(r, map[string]any{}, map[string]any{"a": "b"}, map[string]any{"kubernetes.io/hostname": ""},
		map[string]any{"muster.dev/node-group": r.site})
}

func (r *rubbish) resource() string {
	if r.IntN(20) == 0 {
		return pick(r, "a b", "")
	}
	return pick(r, "cpu", "memory", "pods", "nvidia.com/gpu", "ephemeral-storage", "hugepages-2Mi", "x")
}

func (r *rubbish) resourceGroups() []any {
	var groups []any
	for range r.IntN(3) {
		var covered []any
		for range 1 + r.IntN(2) {
			covered = append(covered, r.resource())
		}
		var flavors []any
		for range 1 + r.IntN(3) {
			var quotas []any
			for _, name := range covered {
				q := map[string]any{"name": name, "nominalQuota": r.amount()}
				if r.IntN(4) == 0 {
					q["borrowingLimit"] = r.amount()
				}
				if r.IntN(4) == 0 {
					q["lendingLimit"] = r.amount()
				}
				quotas = append(quotas, q)
			}
			flavors = append(flavors, map[string]any{"name": r.name(), "resources": quotas})
		}
		groups = append(groups, map[string]any{"coveredResources": covered, "flavors": flavors})
	}
	return groups
}

func (r *rubbish) podSets() []any {
	var out []any
	for i := range pick(r, 0, 1, 1, 1, 2, 18) {
		spec := pick(r, map[string]any{"containers": []any{}}, map[string]any{"containers": []any{
			map[string]any{"name": "a", "resources": map[string]any{"requests": map[string]any{r.resource(): r.amount()}, "limits": map[string]any{r.resource(): r.amount()}}},
		}, "nodeSelector": r.labels(), "nodeName": pick(r, "", "nowhere"), "tolerations": []any{map[string]any{}}})
		ps := map[string]any{"name": fmt.Sprintf("p-%d", i), "template": map[string]any{"spec": spec,
			"metadata": map[string]any{"labels": r.labels()}}}
		sometimes(r, ps, "count", pick(r, int64(0), 1, 2147483647))
		if r.IntN(4) == 0 {
			ps["minCount"] = pick(r, int64(0), 1, 2147483647)
		}
		out = append(out, ps)
	}
	return out
}

// objects are one of each kind.
func (r *rubbish) objects(i int) (out []*unstructured.Unstructured) {
	add := func(kind string, fields map[string]any) {
		o := &unstructured.Unstructured{Object: fields}
		o.SetAPIVersion(kueue.SchemeGroupVersion.String())
		o.SetKind(kind)
		o.SetName(fmt.Sprintf("%s-%d", r.site, i))
		if kind == "LocalQueue" || kind == "Workload" {
			o.SetNamespace(r.site)
		}
		out = append(out, o)
	}
	spec := func(fill func(map[string]any)) map[string]any {
		s := map[string]any{}
		fill(s)
		if len(s) == 0 {
			return s
		}
		return map[string]any{"spec": s}
	}
	fairSharing := map[string]any{"weight": r.amount()}
	add("ResourceFlavor", spec(func(s map[string]any) {
		sometimes(r, s, "nodeLabels", r.labels())
		sometimes(r, s, "tolerations", []any{map[string]any{"operator": pick(r, "Exists", "Equal", "")}})
		sometimes(r, s, "topologyName", r.name())
	}))
	add("Cohort", spec(func(s map[string]any) {
		sometimes(r, s, "parentName", r.name())
		sometimes(r, s, "resourceGroups", r.resourceGroups())
		sometimes(r, s, "fairSharing", fairSharing)
	}))
	add("AdmissionCheck", spec(func(s map[string]any) {
		s["controllerName"] = pick(r, "muster.dev/capacity", "kueue.x-k8s.io/provisioning-request",
			"kueue.x-k8s.io/multikueue", "example.com/nobody")
		sometimes(r, s, "parameters", map[string]any{"apiGroup": pick(r, "muster.dev", "kueue.x-k8s.io"),
			"kind": pick(r, "CapacityPolicy", "ProvisioningRequestConfig", "Pod"), "name": r.name()})
	}))
	add("WorkloadPriorityClass", map[string]any{"value": pick(r, int64(-2147483648), 2147483647, 0)})
	add("ProvisioningRequestConfig", spec(func(s map[string]any) {
		s["provisioningClassName"] = pick(r, "check-capacity.autoscaling.x-k8s.io", "nobody.example.com")
		sometimes(r, s, "retryStrategy", map[string]any{"backoffLimitCount": pick(r, int64(-1), 0, 2147483647),
			"backoffBaseSeconds": pick(r, int64(0), 2147483647)})
		sometimes(r, s, "managedResources", []any{r.resource()})
	}))
	add("ClusterQueue", spec(func(s map[string]any) {
		sometimes(r, s, "cohortName", r.name())
		sometimes(r, s, "namespaceSelector", pick(r, map[string]any{},
			map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": pick(r, "In", "Exists", "Near")}}}))
		s["resourceGroups"] = r.resourceGroups()
		sometimes(r, s, "preemption", map[string]any{"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": pick(r, "Any", "Never"),
			"borrowWithinCohort": map[string]any{"policy": "LowerPriority", "maxPriorityThreshold": int64(2147483647)}})
		sometimes(r, s, "fairSharing", fairSharing)
		sometimes(r, s, "stopPolicy", pick(r, "Hold", "HoldAndDrain", "None"))
		sometimes(r, s, "admissionChecksStrategy", map[string]any{"admissionChecks": []any{map[string]any{"name": r.name(),
			"onFlavors": pick(r, []any{}, []any{r.name()})}}})
	}))
	add("LocalQueue", spec(func(s map[string]any) {
		sometimes(r, s, "clusterQueue", r.name())
		sometimes(r, s, "fairSharing", fairSharing)
	}))
	add("Workload", spec(func(s map[string]any) {
		sometimes(r, s, "queueName", r.name())
		s["podSets"] = r.podSets()
		sometimes(r, s, "priority", pick(r, int64(-2147483648), 2147483647))
		sometimes(r, s, "active", r.IntN(2) == 0)
		sometimes(r, s, "maximumExecutionTimeSeconds", pick(r, int64(1), 2147483647))
	}))
	return out
}

// scribble writes nonsense over the status of some Workloads, all but quota of
// queues that there are.
func (r *rubbish) scribble(s *site, o *unstructured.Unstructured) {
	if o.GetKind() != "Workload" || r.IntN(2) == 0 {
		return
	}
	patch := client.MergeFrom(o.DeepCopy())
	condition := func(kind string) map[string]any {
		message := ""
		if kind == "Evicted" {
			message = "written by hand" // the watch holds Muster to a word with each eviction
		}
		return map[string]any{"type": kind, "status": pick(r, "True", "False", "Unknown"), "reason": "Scribbled", "message": message,
			"lastTransitionTime": pick(r, "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z")}
	}
	o.Object["status"] = map[string]any{
		"conditions":   []any{condition("Admitted"), condition("Evicted"), condition("Finished"), condition("PodsReady"), condition("Requeued"), condition("x")},
		"requeueState": map[string]any{"count": int64(2147483647), "requeueAt": pick(r, "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z")},
		"admissionChecks": []any{map[string]any{"name": r.name(), "state": pick(r, "Ready", "Retry", "Rejected", "Pending"), "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z",
			"requeueAfterSeconds": int64(2147483647), "retryCount": int64(2147483647)}},
		"accumulatedPastExecutionTimeSeconds": int64(2147483647),
	}
	err := s.Kube.Status().Patch(s.Context(), o, patch)
	if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		s.Errorf("scribbling on %s: %v", o.GetName(), err)
	}
}

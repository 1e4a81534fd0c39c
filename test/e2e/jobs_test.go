package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/test/testbed"
)

// plain gives the site quota alone: a node without a group with 64 cores, and a queue for 8 of them, without a capacity check. localQueue
// is the name of the LocalQueue.
func (s *site) plain(localQueue string) {
	s.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: s.Name, Labels: map[string]string{testbed.SiteLabel: s.Name}, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
	}}
	node.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("1Ti"),
		"pods": resource.MustParse("100")}
	node.Status.Allocatable = node.Status.Capacity
	s.Create(node)
	s.Cleanup(func() { _ = s.Kube.Delete(s.cleanup(), node) })
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	flavor.Spec.NodeLabels = map[string]string{testbed.SiteLabel: s.Name}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu"},
		Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(s.Name), Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("8")},
		}}},
	}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: localQueue}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(s.Name)
	s.Create(flavor, cq, lq)
}

// cleanup is the context of what is done after the test.
func (s *site) cleanup() context.Context { return context.WithoutCancel(s.Context()) }

// newPlainJob has count pods of one core that run for as long as is said.
func (s *site) newPlainJob(name string, count int32, runFor string, change ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name,
		Labels: map[string]string{"kueue.x-k8s.io/queue-name": s.Name}}}
	j.Spec.Parallelism, j.Spec.Completions = &count, &count
	j.Spec.Template.Annotations = map[string]string{kwokv1alpha1.RunForAnnotation: runFor}
	j.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "main", Image: "main", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}}},
	}
	for _, f := range change {
		f(j)
	}
	return j
}

func (s *site) plainJob(name string, count int32, runFor string, change ...func(*batchv1.Job)) *batchv1.Job {
	s.Helper()
	j := s.newPlainJob(name, count, runFor, change...)
	s.Create(j)
	return j
}

// tried creates the job for nothing, to see what becomes of it.
func (s *site) tried(j *batchv1.Job) error {
	return s.Kube.Create(s.Context(), j, client.DryRunAll)
}

func (s *site) edit(o client.Object, change func()) {
	s.Helper()
	if !s.Get(o) {
		s.Fatalf("%T %s is gone", o, o.GetName())
	}
	patch := client.MergeFrom(o.DeepCopyObject().(client.Object))
	change()
	if err := s.Kube.Patch(s.Context(), o, patch); err != nil {
		s.Fatalf("editing %T %s: %v", o, o.GetName(), err)
	}
}

func (s *site) runs(j *batchv1.Job) {
	s.Helper()
	s.Eventually("all pods of job "+j.Name+" run", func() bool {
		return s.Get(j) && j.Status.Ready != nil && *j.Status.Ready == *j.Spec.Parallelism
	}, func() string { return fmt.Sprintf("suspended: %v, %+v; pods: %v", *j.Spec.Suspend, j.Status, s.pods()) })
}

// stopPolicy of the site's ClusterQueue.
func (s *site) stopPolicy(p kueue.StopPolicy) {
	s.Helper()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	s.edit(cq, func() { cq.Spec.StopPolicy = &p })
}

func owner(version, kind string) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "owner", UID: "1234", Controller: new(true)}}
	}
}

func noQueue(j *batchv1.Job) { j.Labels = nil }

// here keeps the pods of a Job without node selectors on the site's own nodes, since nodes of other tests are deleted when these end.
func (s *site) here(j *batchv1.Job) {
	j.Spec.Template.Spec.NodeSelector = map[string]string{testbed.SiteLabel: s.Name}
}

func TestJobsWithoutAQueueGoToTheDefaultOne(t *testing.T) {
	s := newSite(t)
	if j := s.newPlainJob("before", 1, "1s", noQueue); s.tried(j) != nil || j.Labels["kueue.x-k8s.io/queue-name"] != "" || *j.Spec.Suspend {
		t.Errorf("without a LocalQueue called default a Job is in queue %q, suspended: %v",
			j.Labels["kueue.x-k8s.io/queue-name"], *j.Spec.Suspend)
	}
	// A queue of this name in a namespace that managedJobsNamespaceSelector leaves out
	// takes no Jobs.
	elsewhere := s.localQueue()
	elsewhere.Namespace, elsewhere.Name = metav1.NamespaceSystem, "default"
	s.Create(elsewhere)
	t.Cleanup(func() { _ = s.Kube.Delete(s.cleanup(), elsewhere) })
	s.plain("default")
	s.Eventually("the policy knows the queue", func() bool {
		j := s.newPlainJob("probe", 1, "1s", noQueue)
		return s.tried(j) == nil && j.Labels["kueue.x-k8s.io/queue-name"] == "default"
	}, func() string { return "it does not" })
	for name, c := range map[string]struct {
		change func(*batchv1.Job)
		want   string
	}{
		"it names an empty one":   {func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/queue-name"] = "" }, "default"},
		"it has other labels":     {func(j *batchv1.Job) { j.Labels = map[string]string{"app": "x"} }, "default"},
		"it names one":            {func(*batchv1.Job) {}, s.Name},
		"it is a CronJob's":       {func(j *batchv1.Job) { noQueue(j); owner("batch/v1", "CronJob")(j) }, "default"},
		"a JobSet queues with it": {func(j *batchv1.Job) { noQueue(j); owner("jobset.x-k8s.io/v1alpha2", "JobSet")(j) }, ""},
	} {
		j := s.newPlainJob("tried", 1, "1s", c.change)
		if err := s.tried(j); err != nil || j.Labels["kueue.x-k8s.io/queue-name"] != c.want || *j.Spec.Suspend != (c.want != "") {
			t.Errorf("%s: queue %q, suspended: %v, error %v; want queue %q", name, j.Labels["kueue.x-k8s.io/queue-name"],
				*j.Spec.Suspend, err, c.want)
		}
	}
	if j := s.newPlainJob("tried", 1, "1s", noQueue, func(j *batchv1.Job) { j.Namespace = metav1.NamespaceSystem }); s.tried(j) != nil ||
		j.Labels["kueue.x-k8s.io/queue-name"] != "" || *j.Spec.Suspend {
		t.Errorf("a Job of the cluster's own namespace is in queue %q, suspended: %v", j.Labels["kueue.x-k8s.io/queue-name"], *j.Spec.Suspend)
	}
	s.complete(s.plainJob("simple", 2, "1s", noQueue))
}

// TestAllJobsQueueWhereABindingSaysSo tries the policy with a binding as Muster
// makes it where manageJobsWithoutQueueName is true.
func TestAllJobsQueueWhereABindingSaysSo(t *testing.T) {
	s := newSite(t)
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	binding.Spec.PolicyName = "muster-jobs-unnamed"
	binding.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
		MatchLabels: map[string]string{corev1.LabelMetadataName: s.Name}}}
	s.Create(binding)
	t.Cleanup(func() { _ = s.Kube.Delete(s.cleanup(), binding) })
	s.Eventually("a Job without a queue is suspended", func() bool {
		j := s.newPlainJob("tried", 1, "1s", noQueue)
		return s.tried(j) == nil && *j.Spec.Suspend
	}, func() string { return "it is not" })
	if j := s.newPlainJob("tried", 1, "1s", noQueue, owner("jobset.x-k8s.io/v1alpha2", "JobSet")); s.tried(j) != nil || *j.Spec.Suspend {
		t.Error("a part of a JobSet, which queues as a whole, is suspended")
	}
	if j := s.newPlainJob("tried", 1, "1s", noQueue, func(j *batchv1.Job) { j.Namespace = "default" }); s.tried(j) != nil || *j.Spec.Suspend {
		t.Error("a Job of another namespace is suspended")
	}
}

// TestUsersAreRecordedWhereABindingSaysSo tries the policy with a binding as Muster makes it where recordUsers is true: a Job has the name
// of its user, and so does its Workload; in other namespaces it has none, and no user may write that of another.
func TestUsersAreRecordedWhereABindingSaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	const key = "muster.dev/submitted-by"
	edit := rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"}
	alice, name := s.as("alice", edit), "alice-of-"+s.Name
	forged := s.newPlainJob("forged", 1, "1s", suspended, annotated(key, "bob"))
	if err := alice.Create(t.Context(), forged, client.DryRunAll); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), `is "bob", and user `+name) {
		t.Errorf("the name of another user: %v", err)
	}
	off := s.newPlainJob("off", 1, "1s", suspended)
	if err := alice.Create(t.Context(), off, client.DryRunAll); err != nil || off.Annotations[key] != "" {
		t.Errorf("where users are not recorded, it has the user %q (%v)", off.Annotations[key], err)
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	binding.Spec.PolicyName = "muster-jobs-record-users"
	binding.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
		MatchLabels: map[string]string{corev1.LabelMetadataName: s.Name}}}
	s.Create(binding)
	t.Cleanup(func() { _ = s.Kube.Delete(s.cleanup(), binding) })
	s.Eventually("a Job has the name of its user", func() bool {
		j := s.newPlainJob("tried", 1, "1s", suspended)
		return alice.Create(t.Context(), j, client.DryRunAll) == nil && j.Annotations[key] == name
	}, func() string { return "it has none" })
	if err := alice.Create(t.Context(), forged); err != nil || forged.Annotations[key] != name {
		t.Errorf("a Job that names another user has the user %q (%v)", forged.Annotations[key], err)
	}
	without := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"annotations": null}}`))
	if err := alice.Patch(t.Context(), forged, without); err != nil || forged.Annotations[key] != name {
		t.Errorf("an update without it leaves the user %q (%v)", forged.Annotations[key], err)
	}
	s.Eventually("its Workload has the user", func() bool {
		var all kueue.WorkloadList
		return s.Kube.List(t.Context(), &all, client.InNamespace(s.Name)) == nil && len(all.Items) == 1 && all.Items[0].Annotations[key] == name
	}, func() string { return "it has not" })
	pod := func(labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "pod", Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}}}
	}
	for queue, want := range map[string]string{"": "", s.Name: name} {
		p := pod(map[string]string{"kueue.x-k8s.io/queue-name": queue})
		if err := alice.Create(t.Context(), p, client.DryRunAll); err != nil || p.Annotations[key] != want {
			t.Errorf("a pod in queue %q has the user %q, want %q (%v)", queue, p.Annotations[key], want, err)
		}
	}
}

func TestJobsThatCannotBeFollowedAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	annotate := func(key, value string) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Annotations = map[string]string{key: value} }
	}
	for name, c := range map[string]struct {
		change func(*batchv1.Job)
		want   string
	}{
		"no fewer pods than all":   {annotate("kueue.x-k8s.io/job-min-parallelism", "4"), "from 1 to 3"},
		"no pods at least":         {annotate("kueue.x-k8s.io/job-min-parallelism", "0"), `is "0"`},
		"no number of pods":        {annotate("kueue.x-k8s.io/job-min-parallelism", "half"), `is "half"`},
		"some pods":                {annotate("kueue.x-k8s.io/job-min-parallelism", "3"), ""},
		"no time":                  {func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "0" }, "number of seconds"},
		"more time than there is":  {func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "9999999999" }, "number of seconds"},
		"a time":                   {func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "3600" }, ""},
		"of no queue, so no harm":  {func(j *batchv1.Job) { noQueue(j); annotate("kueue.x-k8s.io/job-min-parallelism", "x")(j) }, ""},
		"Muster's record of start": {annotate("muster.dev/started", "{}"), "Muster's own record"},
	} {
		err := s.tried(s.newPlainJob("tried", 4, "1s", c.change))
		if (err == nil) != (c.want == "") || err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	s.Create(&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Value: 1})
	classy := s.plainJob("classy", 4, "1h", func(j *batchv1.Job) {
		j.Labels["kueue.x-k8s.io/priority-class"] = s.Name
	})
	s.runs(classy)
	s.edit(classy, func() { classy.Annotations["kueue.x-k8s.io/job-min-parallelism"] = "2" })
	for name, c := range map[string]struct {
		change func(*batchv1.Job)
		want   string
	}{
		"it loses its class":       {func(j *batchv1.Job) { delete(j.Labels, "kueue.x-k8s.io/priority-class") }, "priority-class"},
		"it gets another class":    {func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/priority-class"] = "other" }, ""},
		"it gets a time limit":     {func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "60" }, "max-exec-time-seconds"},
		"it shrinks, if partial":   {func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(3)) }, "job-min-parallelism"},
		"it goes to another queue": {func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/queue-name"] = "other" }, "queue-name"},
	} {
		edited := classy.DeepCopy()
		c.change(edited)
		err := s.Kube.Patch(t.Context(), edited, client.MergeFrom(classy), client.DryRunAll)
		if (err == nil) != (c.want == "") || err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("while it runs %s: error %v, want %q", name, err, c.want)
		}
	}
	s.Delete(classy)
}

// TestAnEvictedJobIsAsItWas and goes on in its turn. Its deadline counts from each
// start: what it waits is not charged.
func TestAnEvictedJobIsAsItWas(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	// Its pods need 4 of the 7 seconds, so a second start has to count from zero.
	j := s.plainJob("paused", 3, "4s", func(j *batchv1.Job) {
		j.Spec.ActiveDeadlineSeconds = new(int64(7))
		j.Spec.Template.Labels = map[string]string{"app": "x"}
		s.here(j)
		j.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "mine", Operator: corev1.TolerationOpExists}}
	})
	before := j.Spec.DeepCopy()
	s.runs(j)
	if got := j.Spec.Template.Labels; got["kueue.x-k8s.io/podset"] != "main" || got["kueue.x-k8s.io/local-queue-name"] != s.Name ||
		got["kueue.x-k8s.io/cluster-queue-name"] != s.Name {
		t.Errorf("its pods do not tell their queues: %v", got)
	}
	started := j.Status.StartTime.Time
	s.stopPolicy(kueue.HoldAndDrain)
	s.Eventually("the Job is as it was, with its quota given back", func() bool {
		w := s.Workload(j)
		return s.Get(j) && *j.Spec.Suspend && cmp.Equal(*before, j.Spec) && w != nil && w.Status.Admission == nil
	}, func() string { return cmp.Diff(*before, j.Spec) })
	var pods corev1.PodList
	if err := s.Kube.List(t.Context(), &pods, client.InNamespace(s.Name)); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.Status.Phase == corev1.PodRunning {
			t.Errorf("pod %s runs without quota", p.Name)
		}
	}
	s.Eventually("its deadline from the first start has passed", func() bool { return time.Since(started) > 7*time.Second },
		func() string { return "" })
	s.stopPolicy(kueue.None)
	s.complete(j)
	if !j.Status.StartTime.After(started) {
		t.Errorf("its start time is %v, the first start was at %v", j.Status.StartTime, started)
	}
}

// TestTheEndOfAJobIsTheEndOfItsWorkload, whatever way it ends.
func TestTheEndOfAJobIsTheEndOfItsWorkload(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	for name, c := range map[string]struct {
		change func(*batchv1.Job)
		want   string
	}{
		"all-succeed": {func(*batchv1.Job) {}, kueue.WorkloadFinishedReasonSucceeded},
		"enough-succeed": {func(j *batchv1.Job) {
			j.Spec.CompletionMode, j.Spec.Parallelism = new(batchv1.IndexedCompletion), new(int32(2))
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededCount: new(int32(2))}}}
		}, kueue.WorkloadFinishedReasonSucceeded},
		"one-fails": {func(j *batchv1.Job) {
			j.Spec.BackoffLimit = new(int32(0))
			j.Spec.Template.Annotations["kwok.muster.dev/exit-code"] = "1"
		}, kueue.WorkloadFinishedReasonFailed},
		"too-late": {func(j *batchv1.Job) {
			j.Spec.ActiveDeadlineSeconds = new(int64(1))
			j.Spec.Template.Annotations[kwokv1alpha1.RunForAnnotation] = "1h"
		}, kueue.WorkloadFinishedReasonFailed},
		"replaced-when-failed": {func(j *batchv1.Job) {
			j.Spec.PodReplacementPolicy = new(batchv1.Failed)
		}, kueue.WorkloadFinishedReasonSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			in := s.in(t)
			j := in.plainJob(name, 4, "1s", c.change)
			in.Eventually("the end", func() bool {
				w := in.Workload(j)
				if w == nil {
					return false
				}
				end := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
				return end != nil && end.Status == metav1.ConditionTrue && end.Reason == c.want
			}, func() string { return fmt.Sprint(in.Workload(j).Status.Conditions) })
		})
	}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	s.Eventually("the quota is back", func() bool { return s.Get(cq) && cq.Status.ReservingWorkloads == 0 },
		func() string { return fmt.Sprintf("%d reserve", cq.Status.ReservingWorkloads) })
}

func TestPriorityOfARunningJobFollowsItsClass(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	low := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-low"}, Value: 10}
	s.Create(low, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-high"}, Value: 90})
	j := s.plainJob("climber", 1, "1h", func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/priority-class"] = low.Name })
	s.runs(j)
	is := func(want int32) {
		t.Helper()
		s.Eventually(fmt.Sprintf("priority %d", want), func() bool { w := s.Workload(j); return w != nil && *w.Spec.Priority == want },
			func() string { return fmt.Sprint(*s.Workload(j).Spec.Priority) })
	}
	is(10)
	s.edit(low, func() { low.Value = 20 })
	is(20)
	s.edit(j, func() { j.Labels["kueue.x-k8s.io/priority-class"] = s.Name + "-high" })
	is(90)
	if s.Get(j); *j.Spec.Suspend {
		t.Error("the Job was stopped")
	}
	s.Delete(j)
}

// TestQuotaOfPodsThatAreOverIsReported while a Workload waits for it, once the last
// round of pods has gone on for a while.
func TestQuotaOfPodsThatAreOverIsReported(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	j := s.plainJob("ragged", 8, "15s", func(j *batchv1.Job) { j.Spec.Completions = new(int32(11)) })
	s.runs(j)
	waits := s.plainJob("waits", 4, "1h")
	var w *kueue.Workload
	s.Eventually("five of eight pods are reclaimable", func() bool {
		w = s.Workload(j)
		return w != nil && slices.Equal(w.Status.ReclaimablePods, []kueue.ReclaimablePod{{Name: "main", Count: 5}})
	}, func() string { return fmt.Sprint(w.Status.ReclaimablePods) })
	managers := func(field string) (out []string) {
		for _, f := range w.ManagedFields {
			if f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(), `"f:`+field+`"`) {
				out = append(out, f.Manager)
			}
		}
		return out
	}
	if got := managers("reclaimablePods"); !slices.Equal(got, []string{"kueue-reclaimable-pods"}) {
		t.Errorf("reclaimable pods are owned by %v", got)
	}
	s.runs(waits)
	if s.Get(j); j.Status.CompletionTime != nil {
		t.Error("the Job that waited did not start while the other one ran")
	}
	s.complete(j)
	s.Delete(waits)
}

// TestAJobStartsWithTheQuotaThatThereIs, if it may, and requests all pods when it queues again.
func TestAJobStartsWithTheQuotaThatThereIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	first := s.plainJob("first", 3, "1h")
	s.runs(first)
	j := s.plainJob("wide", 20, "1h", func(j *batchv1.Job) {
		j.Annotations = map[string]string{"kueue.x-k8s.io/job-min-parallelism": "4"}
		s.here(j)
	})
	before := j.Spec.DeepCopy()
	s.Eventually("the five pods that have quota run", func() bool {
		return s.Get(j) && j.Status.Ready != nil && *j.Status.Ready == 5 && *j.Spec.Parallelism == 5
	}, func() string {
		return fmt.Sprintf("parallelism %d, %+v; %v", *j.Spec.Parallelism, j.Status, s.Workload(j))
	})
	if w := s.Workload(j); w.Spec.PodSets[0].Count != 20 || *w.Status.Admission.PodSetAssignments[0].Count != 5 {
		t.Errorf("its Workload is of %d pods, of which %d have quota", w.Spec.PodSets[0].Count, *w.Status.Admission.PodSetAssignments[0].Count)
	}
	s.stopPolicy(kueue.HoldAndDrain)
	s.Eventually("the Job is as it was", func() bool { return s.Get(j) && cmp.Equal(*before, j.Spec) },
		func() string { return cmp.Diff(*before, j.Spec) })
	s.Delete(first)
	s.Eventually("the quota of the first Job is back", func() bool { return s.Workload(first) == nil },
		func() string { return fmt.Sprint(s.Workload(first)) })
	s.stopPolicy(kueue.None)
	s.Eventually("with the quota of the first Job eight run", func() bool { return s.Get(j) && j.Status.Ready != nil && *j.Status.Ready == 8 },
		func() string { return fmt.Sprintf("%+v; %v", j.Status, s.Workload(j)) })
	s.Delete(j)
}

// TestAJobThatAFinalizerKeeps, deleted while it runs, keeps its quota until it is to stop. The Job controller leaves its pods alone, so
// Muster deletes them.
func TestAJobThatAFinalizerKeeps(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	const mine = "example.com/mine"
	j := s.plainJob("kept", 3, "1h", func(j *batchv1.Job) { j.Finalizers = []string{mine} })
	s.runs(j)
	w := s.Workload(j)
	if err := s.Kube.Delete(t.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	next := s.plainJob("next", 8, "1h")
	if w := s.Workload(j); w == nil || meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) || !s.Get(j) ||
		*j.Status.Ready != 3 {
		t.Errorf("deleted, it has the status %+v and the Workload %v", j.Status, w)
	}
	s.edit(w, func() { w.Spec.Active = new(false) })
	s.runs(next) // with its quota
	s.Eventually("its pods and its Workload are over", func() bool {
		w := s.Workload(j)
		return s.Get(j) && j.Status.Active == 0 && (w == nil || meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished))
	}, func() string { return fmt.Sprintf("%+v; %v; %v", j.Status, s.Workload(j), s.pods()) })
	s.edit(j, func() { j.Finalizers = slices.DeleteFunc(j.Finalizers, func(f string) bool { return f == mine }) })
	s.Delete(next)
}

// TestARunningJobStopsWhenItsTimeIsOver, counted from its start.
func TestARunningJobStopsWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	j := s.plainJob("endless", 2, "1h", func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "10" })
	before := j.Spec.DeepCopy()
	s.runs(j)
	s.Eventually("the Job is stopped and as it was", func() bool {
		w := s.Workload(j)
		return s.Get(j) && cmp.Equal(*before, j.Spec) && w != nil && w.Spec.Active != nil && !*w.Spec.Active && w.Status.Admission == nil
	}, func() string { return fmt.Sprint(cmp.Diff(*before, j.Spec), s.Workload(j)) })
	s.Delete(j)
}

// TestAJobThatRanBeforeMusterCame keeps running, and its usage counts.
func TestAJobThatRanBeforeMusterCame(t *testing.T) {
	s := newSite(t)
	s.plain(s.Name)
	restore := s.without("muster-jobs-suspend", "muster-jobs-start")
	j := s.plainJob("veteran", 3, "1h", s.here)
	s.runs(j)
	restore()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	s.Eventually("its usage counts", func() bool {
		return s.Get(cq) && cq.Status.AdmittedWorkloads == 1 && len(cq.Status.FlavorsUsage) > 0 &&
			cq.Status.FlavorsUsage[0].Resources[0].Total.Value() == 3
	}, func() string { return fmt.Sprintf("%+v; %v", cq.Status, s.Workload(j)) })
	if w := s.Workload(j); !meta.IsStatusConditionTrue(w.Status.Conditions, "muster.dev/Adopted") {
		t.Errorf("its Workload has the conditions %v", w.Status.Conditions)
	}
	if s.Get(j); *j.Spec.Suspend || *j.Status.Ready != 3 {
		t.Errorf("it was stopped: suspended %v, %d pods ready", *j.Spec.Suspend, *j.Status.Ready)
	}
	s.Delete(j)
}

// TestAJobThatSlipsThroughIsStopped: what the policies leave to run, as without
// mutating policies they do, does not pass by the queue.
func TestAJobThatSlipsThroughIsStopped(t *testing.T) {
	s := newSite(t)
	s.plain(s.Name)
	restore := s.without("muster-jobs-suspend")
	j := s.plainJob("sly", 9, "1h")
	s.Eventually("the Job is stopped, and waits", func() bool {
		w := s.Workload(j)
		return s.Get(j) && *j.Spec.Suspend && w != nil && w.Status.Admission == nil &&
			meta.FindStatusCondition(w.Status.Conditions, "muster.dev/Adopted") == nil
	}, func() string { return fmt.Sprintf("suspended: %v; %v", *j.Spec.Suspend, s.Workload(j)) })
	restore()
	s.Delete(j)
}

// without takes policies for queued Jobs out of force until restore is called, as if
// Muster, or a part of it, were not installed.
func (s *site) without(policies ...string) (restore func()) {
	s.Helper()
	manifests, err := deploy.Manifests(deploy.Queueing)
	if err != nil {
		s.Fatal(err)
	}
	manifests = slices.DeleteFunc(manifests, func(o *unstructured.Unstructured) bool {
		return !slices.Contains(policies, o.GetName())
	})
	suspends := func() bool {
		j := s.newPlainJob("probe", 1, "1s")
		return s.tried(j) == nil && *j.Spec.Suspend
	}
	again := sync.OnceFunc(func() {
		for _, o := range manifests {
			if err := s.Kube.Create(s.cleanup(), o.DeepCopy()); err != nil {
				s.Errorf("restoring %s %s: %v", o.GetKind(), o.GetName(), err)
			}
		}
	})
	s.Cleanup(again)
	for _, o := range manifests {
		s.Delete(o.DeepCopy())
	}
	s.Eventually("the policies are out of force", func() bool { return !suspends() }, func() string { return "they are not" })
	return func() {
		s.Helper()
		again()
		s.Eventually("the policies are in force", suspends, func() string { return "they are not" })
	}
}

// TestAnElasticJobChangesWhileItRuns: it grows by the pods that have quota, and the
// ones that it had are left alone; it shrinks with its quota.
func TestAnElasticJobChangesWhileItRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	j := s.plainJob("accordion", 1, "1h", func(j *batchv1.Job) {
		j.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"}
		j.Spec.Completions = nil
		s.here(j)
	})
	before := j.Spec.DeepCopy()
	s.runs(j)
	names := func() (out []string) {
		var pods corev1.PodList
		if err := s.Kube.List(t.Context(), &pods, client.InNamespace(s.Name)); err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Items {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				out = append(out, p.Name)
			}
		}
		return out
	}
	first := names()
	s.edit(j, func() { j.Spec.Parallelism = new(int32(3)) })
	s.runs(j)
	if got := names(); len(got) != 3 || !slices.Contains(got, first[0]) {
		t.Errorf("after it grew %v run, of which %v should be one", got, first)
	}
	// states are those of its Workloads, the oldest first.
	states := func() string {
		var list kueue.WorkloadList
		if err := s.Kube.List(t.Context(), &list, client.InNamespace(s.Name)); err != nil {
			return err.Error()
		}
		slices.SortFunc(list.Items, func(a, b kueue.Workload) int { return int(a.Spec.PodSets[0].Count - b.Spec.PodSets[0].Count) })
		var out []string
		for _, w := range list.Items {
			state := "waits"
			if end := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished); end != nil {
				state = end.Reason
			} else if w.Status.Admission != nil {
				state = fmt.Sprint("runs, reclaimable ", w.Status.ReclaimablePods)
			}
			out = append(out, fmt.Sprintf("%d %s", w.Spec.PodSets[0].Count, state))
		}
		return strings.Join(out, "; ")
	}
	are := func(want string) {
		t.Helper()
		s.Eventually("its Workloads are "+want, func() bool { return states() == want }, states)
	}
	are("1 WorkloadSliceReplaced; 3 runs, reclaimable []")
	s.edit(j, func() { j.Spec.Parallelism = new(int32(20)) })
	are("1 WorkloadSliceReplaced; 3 runs, reclaimable []; 20 waits")
	s.edit(j, func() { j.Spec.Parallelism = new(int32(2)) })
	are("1 WorkloadSliceReplaced; 3 runs, reclaimable [{main 1}]")
	if got := names(); len(got) != 2 {
		t.Errorf("after it shrank %v run", got)
	}
	s.stopPolicy(kueue.HoldAndDrain)
	before.Parallelism = new(int32(2))
	s.Eventually("the Job is as it was", func() bool { return s.Get(j) && cmp.Equal(*before, j.Spec) },
		func() string { return cmp.Diff(*before, j.Spec) })
	are("1 WorkloadSliceReplaced; 2 waits")
	s.stopPolicy(kueue.None)
	s.runs(j)
	s.Delete(j)
}

// TestAnElasticJobGrowsWithItsMachines: a machine is launched for each added pod, while running pods stay where they are, and is scaled
// down when the Job shrinks. Without quota for more, it keeps its size. This holds with Muster's own check and with Kueue's.
func TestAnElasticJobGrowsWithItsMachines(t *testing.T) {
	for name, check := range map[string]func(*site){"capacity": func(*site) {}, "provisioning-request": (*site).checkOfKueue} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			growWithMachines(t, check)
		})
	}
}

func growWithMachines(t *testing.T, check func(*site)) {
	s := newSite(t)
	g := s.NewGroup("", nil)
	s.Create(g)
	s.queue(g)
	check(s)
	j := s.job("accordion", 2, func(j *batchv1.Job) {
		elastic(j)
		j.Spec.Template.Annotations = map[string]string{kwokv1alpha1.RunForAnnotation: "1h"}
	})
	s.runs(j)
	// places are the nodes of the pods that run, by their names.
	places := func() map[string]string {
		var pods corev1.PodList
		s.List(&pods, client.InNamespace(s.Name))
		out := map[string]string{}
		for _, p := range pods.Items {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				out[p.Name] = p.Spec.NodeName
			}
		}
		return out
	}
	first := places()
	// The room of a pod that was stopped is kept for a minute, since another may come in its place.
	has := func(machines int) {
		t.Helper()
		s.Within(3*time.Minute, fmt.Sprintf("%d machines", machines), func() bool { return len(s.Left(g.Name)) == 2*machines }, // and their nodes
			func() string { return fmt.Sprint(s.Left(g.Name), s.workloads(), s.pods()) })
	}
	has(2)
	s.edit(j, func() { j.Spec.Parallelism = new(int32(4)) })
	s.runs(j)
	has(4)
	s.edit(j, func() { j.Spec.Parallelism = new(int32(20)) })
	s.Eventually("it is told that there is no quota", func() bool {
		var list kueue.WorkloadList
		s.List(&list, client.InNamespace(s.Name))
		return slices.ContainsFunc(list.Items, func(w kueue.Workload) bool {
			c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
			return c != nil && c.Reason == kueue.WorkloadQuotaReservedReasonExceedsMaxQuota
		})
	}, func() string { return fmt.Sprint(s.workloads()) })
	has(4)
	now := places()
	for pod, node := range first {
		if now[pod] != node {
			t.Errorf("pod %s, which ran on %s, runs on %q", pod, node, now[pod])
		}
	}
	s.edit(j, func() { j.Spec.Parallelism = new(int32(1)) })
	s.runs(j)
	has(1)
	s.Delete(j)
	has(0)
}

// TestARunningJobMayNotBecomeElastic, since its pods have no gate.
func TestARunningJobMayNotBecomeElastic(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	j := s.plainJob("stiff", 1, "1h", func(j *batchv1.Job) { j.Spec.Completions = nil })
	s.runs(j)
	for name, change := range map[string]func(*batchv1.Job){
		"may not change": func(j *batchv1.Job) { j.Annotations["kueue.x-k8s.io/elastic-job"] = "true" },
		"may not grow":   func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(2)) },
	} {
		edited := j.DeepCopy()
		change(edited)
		if err := s.Kube.Patch(t.Context(), edited, client.MergeFrom(j), client.DryRunAll); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one that says %q", err, name)
		}
	}
	s.Delete(j)
}

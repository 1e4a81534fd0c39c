package loop

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/scheduler"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestWhatIsKeptLongEnough: it goes when its time is over, by one deletion, even
// where it does not go at once.
func TestWhatIsKeptLongEnough(t *testing.T) {
	told := func(w *kueue.Workload, condition, reason string) *kueue.Workload {
		w.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: reason,
			LastTransitionTime: metav1.NewTime(start)}}
		return w
	}
	finished := told(ofJob(workloadOf("train", "1")), kueue.WorkloadFinished, "Succeeded")
	deactivated := told(ofJob(workloadOf("train", "1")), kueue.WorkloadEvicted, "DeactivatedDueToMaximumExecutionTimeExceeded")
	deactivated.Spec.Active = new(false)
	byHand := deactivated.DeepCopy()
	byHand.Status.Conditions[0].Reason = kueue.WorkloadDeactivated
	fromKueue := finished.DeepCopy()
	controllerutil.AddFinalizer(fromKueue, kueue.ResourceInUseFinalizerName)
	held := finished.DeepCopy()
	controllerutil.AddFinalizer(held, "example.com/archive")
	alone := deactivated.DeepCopy()
	alone.OwnerReferences = nil

	for name, tt := range map[string]struct {
		workload *kueue.Workload
		// namesake is the UID of the job that has the name by now.
		namesake types.UID
		// workloads and jobs are how many are left. deletions is how many were requested.
		workloads, jobs, deletions int
	}{
		"a finished workload goes, its job stays":                     {finished, "job", 0, 1, 1},
		"one with the finalizer of Kueue goes, too":                   {fromKueue, "job", 0, 1, 1},
		"one with a foreign finalizer is deleted once":                {held, "job", 1, 1, 1},
		"one that Muster deactivated goes with its job, by the job":   {deactivated, "job", 1, 0, 1},
		"a job that has the name of the one that is gone stays":       {deactivated, "another", 1, 1, 1},
		"one that Muster deactivated and that has no job goes itself": {alone, "job", 0, 1, 1},
		"one that a person deactivated stays":                         {byHand, "job", 1, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			deletions, failed := 0, false
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "default", UID: tt.namesake}}
			faults := func(c client.WithWatch) client.WithWatch {
				return interceptor.NewClient(c, interceptor.Funcs{
					Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
						if !failed {
							failed = true
							return apierrors.NewTooManyRequests("busy", 1)
						}
						deletions++
						// The fake client does not check preconditions.
						want := (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions.UID
						if _, isJob := o.(*metav1.PartialObjectMetadata); isJob && *want != tt.namesake {
							return apierrors.NewConflict(schema.GroupResource{Resource: "jobs"}, o.GetName(), nil)
						}
						return c.Delete(ctx, o, opts...)
					},
				})
			}
			w := newWorld(t, nil, append(queueOf("1"), tt.workload.DeepCopy(), job)...)
			minute := &metav1.Duration{Duration: time.Minute}
			w.set(config.Config{ObjectRetentionPolicies: &kueueconfig.ObjectRetentionPolicies{
				Workloads: &kueueconfig.WorkloadRetentionPolicy{AfterFinished: minute, AfterDeactivatedByKueue: minute},
			}}, faults)
			w.run(50 * time.Second)
			if deletions > 0 || failed {
				t.Error("it is deleted before its time")
			}
			w.run(5 * time.Minute)
			var workloads kueue.WorkloadList
			var jobs batchv1.JobList
			for _, list := range []client.ObjectList{&workloads, &jobs} {
				if err := w.api.List(t.Context(), list); err != nil {
					t.Fatal(err)
				}
			}
			if len(workloads.Items) != tt.workloads || len(jobs.Items) != tt.jobs || deletions != tt.deletions {
				t.Errorf("%d workloads and %d jobs are left after %d deletions; want %d, %d and %d",
					len(workloads.Items), len(jobs.Items), deletions, tt.workloads, tt.jobs, tt.deletions)
			}
			if tt.deletions > 0 && !slices.Contains(w.events, "Deleted train") {
				t.Errorf("no event says so: %v", w.events)
			}
		})
	}
}

// small and large are slices of one job: the small one runs, and the large one is to replace it. The queue has room for one of them only.
func small() *kueue.Workload {
	w := ofJob(workloadOf("small", "1"))
	w.Annotations = map[string]string{workload.ElasticAnnotation: "true"}
	return w
}

func large() *kueue.Workload {
	w := ofJob(workloadOf("large", "1"))
	w.Annotations = map[string]string{workload.ElasticAnnotation: "true", workload.ReplacementAnnotation: "default/small"}
	w.Spec.PodSets[0].Count = 2
	return w
}

func expectReplaced(t *testing.T, w *world) {
	t.Helper()
	c := apimeta.FindStatusCondition(w.workload("small").Status.Conditions, kueue.WorkloadFinished)
	if c == nil || c.Reason != kueue.WorkloadSliceReplaced {
		t.Errorf("the small one is not replaced: %+v", c)
	}
	if !workload.IsAdmitted(w.workload("large")) {
		t.Errorf("the large one is not admitted: %+v", w.workload("large").Status.Conditions)
	}
}

// expectShown says that the metrics of this process show it.
func expectShown(t *testing.T, w *world, line string) {
	t.Helper()
	if lines := linesOf(t, w.loop.metrics); !slices.Contains(lines, line) {
		t.Errorf("metrics do not show %s: %q", line, lines)
	}
}

// expectWithin says that no more CPUs have quota than there are. The quota of a slice is
// part of that of the one that takes its place.
func expectWithin(t *testing.T, w *world, cpus int64) {
	t.Helper()
	var list kueue.WorkloadList
	if err := w.api.List(context.Background(), &list); err != nil {
		t.Fatal(err)
	}
	var sum resource.Quantity
	replaced := map[string]bool{}
	for i := range list.Items {
		if x := &list.Items[i]; workload.HasQuota(x) {
			replaced[x.Annotations[workload.ReplacementAnnotation]] = true
		}
	}
	for i := range list.Items {
		if x := &list.Items[i]; workload.HasQuota(x) && !replaced[x.Namespace+"/"+x.Name] {
			sum.Add(x.Status.Admission.PodSetAssignments[0].ResourceUsage[corev1.ResourceCPU])
		}
	}
	if sum.Value() > cpus {
		t.Errorf("%s CPUs have quota of %d", &sum, cpus)
	}
}

// TestASliceTakesThePlaceOfAnother whatever becomes of the first tries to write it
// down: first the other comes, then the one goes.
func TestASliceTakesThePlaceOfAnother(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "workloads"}, "x", nil)
	for name, tt := range map[string]struct {
		of       string
		err      error
		effected bool
		// blind: the informers bring nothing of it.
		blind bool
	}{
		"nothing goes wrong":                                       {},
		"the end of the old one is refused":                        {of: "small", err: conflict},
		"the server is busy":                                       {of: "small", err: apierrors.NewTooManyRequests("busy", 1)},
		"the answer about the old one is lost":                     {of: "small", err: context.DeadlineExceeded, effected: true},
		"no answer about the old one, and nothing was done":        {of: "small", err: context.DeadlineExceeded},
		"the answer about the old one is lost, and the cache lags": {of: "small", err: context.DeadlineExceeded, effected: true, blind: true},
		"the new one is refused":                                   {of: "large", err: conflict},
		"the answer about the new one is lost":                     {of: "large", err: context.DeadlineExceeded, effected: true},
		"no answer about the new one, and nothing was done":        {of: "large", err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			armed := false
			faults := func(c client.WithWatch) client.WithWatch {
				return interceptor.NewClient(c, interceptor.Funcs{
					SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
						opts ...client.SubResourcePatchOption) error {
						if !armed || o.GetName() != tt.of {
							return c.SubResource(sub).Patch(ctx, o, p, opts...)
						}
						armed = false
						if tt.effected {
							_ = c.SubResource(sub).Patch(ctx, o, p, opts...)
						}
						return tt.err
					},
				})
			}
			w := newWorld(t, nil, append(queueOf("2"), small())...)
			w.set(config.Config{ObjectRetentionPolicies: &kueueconfig.ObjectRetentionPolicies{
				Workloads: &kueueconfig.WorkloadRetentionPolicy{AfterFinished: &metav1.Duration{Duration: time.Minute}},
			}}, faults)
			w.run(time.Second)
			armed = tt.of != ""
			w.create(large())
			w.blind = tt.blind
			for end := w.now.Add(10 * time.Second); w.now.Before(end); {
				w.step(end)
				expectWithin(t, w, 2)
			}
			if armed {
				t.Fatal("nothing went wrong")
			}
			expectReplaced(t, w)
			expectShown(t, w, `kueue_replaced_workload_slices_total{cluster_queue="team",replica_role="standalone"} 1`)
			expectShown(t, w, `kueue_finished_workloads_total{cluster_queue="team",priority_class="",replica_role="standalone"} 1`)
			w.blind = false
			// The loop is done with both, and so the old one is cleaned up.
			w.run(2 * time.Minute)
			if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(small()), small()); !apierrors.IsNotFound(err) {
				t.Errorf("the old one is still there: %v", err)
			}
		})
	}
}

// TestADeletionThatIsReadFirst: the loop reads what became of a write and finds that
// the Workload is to go. What the informer brings later is the same version, and
// must not be waited for.
func TestADeletionThatIsReadFirst(t *testing.T) {
	lost := false
	train := workloadOf("train", "1")
	controllerutil.AddFinalizer(train, kueue.ResourceInUseFinalizerName)
	w := newWorld(t, func(c client.WithWatch) client.WithWatch {
		return interceptor.NewClient(c, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				if lost {
					return c.SubResource(sub).Patch(ctx, o, p, opts...)
				}
				lost = true
				_ = c.Delete(ctx, workloadOf("train", "1"))
				return context.DeadlineExceeded
			},
		})
	}, append(queueOf("1"), train)...)
	w.blind = true
	w.run(5 * time.Second)
	w.blind = false
	w.run(5 * time.Second)
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(train), train); !lost || !apierrors.IsNotFound(err) {
		t.Errorf("an answer was lost: %v; the workload is still there: %v", lost, err)
	}
}

// TestDeathWhileASliceTakesThePlace: the next process ends what was begun.
func TestDeathWhileASliceTakesThePlace(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprintf("write=%d/after=%v", n, after), func(t *testing.T) {
				w := newWorld(t, nil, append(queueOf("2"), small())...)
				w.run(3 * time.Second)
				k := &killer{left: n, after: after}
				w.restart(k.wrap)
				w.create(large())
				w.die(k, 10*time.Second, func() { expectWithin(t, w, 2) })
				expectReplaced(t, w)
			})
		}
	}
}

// TestDeathWhileAWorkloadIsDeactivated: it takes three writes, and after a death
// between any two the next process goes on with the same cause.
func TestDeathWhileAWorkloadIsDeactivated(t *testing.T) {
	died := 0
	for _, after := range []bool{false, true} {
		for n := 1; n <= 5; n++ {
			t.Run(fmt.Sprintf("write=%d/after=%v", n, after), func(t *testing.T) {
				train := workloadOf("train", "1")
				train.Spec.MaximumExecutionTimeSeconds = new(int32(10))
				w := newWorld(t, nil, append(queueOf("1"), train)...)
				w.run(5 * time.Second)
				k := &killer{left: n, after: after}
				w.restart(k.wrap)
				w.die(k, 20*time.Second, func() {})
				if k.left <= 0 {
					died++
				}
				train = w.workload("train")
				evicted := apimeta.FindStatusCondition(train.Status.Conditions, kueue.WorkloadEvicted)
				if workload.IsActive(train) || workload.HasQuota(train) || evicted == nil ||
					evicted.Reason != "DeactivatedDueTo"+kueue.WorkloadMaximumExecutionTimeExceeded {
					t.Errorf("active: %v, has quota: %v, %+v", workload.IsActive(train), workload.HasQuota(train), evicted)
				}
			})
		}
	}
	if died < 6 {
		t.Errorf("only %d deaths: the test does not reach the writes that it is about", died)
	}
}

// TestEventsForUsers verifies the Events and counters of Workloads that are stopped.
func TestEventsForUsers(t *testing.T) {
	limited := workloadOf("limited", "1")
	limited.Spec.MaximumExecutionTimeSeconds = new(int32(10))
	important := workloadOf("important", "1")
	important.Spec.Priority = new(int32(10))
	for name, tt := range map[string]struct {
		first, then *kueue.Workload
		// want are the Events in their order, lines what is shown.
		want, lines []string
	}{
		"a preemption": {
			workloadOf("low", "1"), important,
			[]string{"QuotaReserved low", "Admitted low", "Preempted low", "EvictedDueToPreempted low", "PreemptedWorkload important",
				"QuotaReserved important", "Admitted important"},
			[]string{
				`kueue_preempted_workloads_total{preempting_cluster_queue="team",reason="InClusterQueue",replica_role="standalone"} 1`,
				`kueue_evicted_workloads_total{cluster_queue="team",priority_class="",reason="Preempted",replica_role="standalone",underlying_cause=""} 1`,
				`kueue_pending_workloads{cluster_queue="team",replica_role="standalone",status="inadmissible"} 1`,
				`kueue_pending_workloads{cluster_queue="team",replica_role="standalone",status="active"} 0`,
			},
		},
		"a deactivation": {
			limited, nil,
			[]string{"QuotaReserved limited", "Admitted limited", "MaximumExecutionTimeExceeded limited",
				"EvictedDueToDeactivatedDueToMaximumExecutionTimeExceeded limited"},
			[]string{
				`kueue_evicted_workloads_total{cluster_queue="team",priority_class="",reason="Deactivated",replica_role="standalone",underlying_cause="MaximumExecutionTimeExceeded"} 1`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := queueOf("1")
			objects[0].(*kueue.ClusterQueue).Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
			w := newWorld(t, nil, append(objects, tt.first)...)
			w.run(5 * time.Second)
			if tt.then != nil {
				w.create(tt.then)
			}
			w.run(20 * time.Second)
			if !slices.Equal(w.events, tt.want) {
				t.Errorf("told are %q, want %q", w.events, tt.want)
			}
			shown := linesOf(t, w.loop.metrics)
			for _, line := range tt.lines {
				if !slices.Contains(shown, line) {
					t.Errorf("there is no line %s", line)
				}
			}
		})
	}
}

// TestWritesThatEndTogether: what became of each is heard, so that all are acted on
// again.
func TestWritesThatEndTogether(t *testing.T) {
	names := []string{"a", "b", "c"}
	objects := queueOf("3")
	for _, n := range names {
		objects = append(objects, workloadOf(n, "1"))
	}
	w := newWorld(t, nil, objects...)
	w.run(5 * time.Second)
	cq := &kueue.ClusterQueue{}
	if err := w.api.Get(t.Context(), client.ObjectKey{Name: "team"}, cq); err != nil {
		t.Fatal(err)
	}
	cq.Spec.StopPolicy, cq.Generation = new(kueue.HoldAndDrain), 2
	if err := w.api.Update(t.Context(), cq); err != nil {
		t.Fatal(err)
	}
	w.run(5 * time.Second)
	for _, n := range names {
		if x := w.workload(n); !workload.IsEvicted(x) || workload.HasQuota(x) {
			t.Errorf("%s is evicted: %v, has quota: %v", n, workload.IsEvicted(x), workload.HasQuota(x))
		}
	}
}

// TestQuotasOfNamespaces: every change of them reaches the State.
func TestQuotasOfNamespaces(t *testing.T) {
	full := func() *corev1.ResourceQuota {
		return &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "pods", Namespace: "default", UID: "quota"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
		}
	}
	for name, tt := range map[string]struct {
		on     bool
		happen func(*world, *corev1.ResourceQuota) error
		// waits and admitted are before and after it happens.
		waits, admitted bool
	}{
		"it is full":    {true, func(*world, *corev1.ResourceQuota) error { return nil }, true, false},
		"it is deleted": {true, func(w *world, q *corev1.ResourceQuota) error { return w.api.Delete(context.Background(), q) }, true, true},
		"it is raised": {true, func(w *world, q *corev1.ResourceQuota) error {
			q.Spec.Hard[corev1.ResourcePods] = resource.MustParse("1")
			return w.api.Update(context.Background(), q)
		}, true, true},
		"the setting is off": {false, func(*world, *corev1.ResourceQuota) error { return nil }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, queueOf("1")...)
			w.set(config.Config{NamespaceQuota: tt.on}, nil)
			w.create(full())
			w.run(time.Second)
			w.create(workloadOf("train", "1"))
			w.run(5 * time.Second)
			if waits := reasonOf(w.workload("train")) == scheduler.ReasonWaitingForNamespaceQuota; waits != tt.waits {
				t.Errorf("it waits for the namespace: %v, want %v", waits, tt.waits)
			}
			have := &corev1.ResourceQuota{}
			w.get("pods", have)
			if err := tt.happen(w, have); err != nil {
				t.Fatal(err)
			}
			w.run(5 * time.Second)
			if got := workload.IsAdmitted(w.workload("train")); got != tt.admitted {
				t.Errorf("it is admitted: %v, want %v", got, tt.admitted)
			}
		})
	}
}

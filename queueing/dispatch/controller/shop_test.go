package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/dispatch/controller/snapshots"
	"github.com/muster-dev/muster/queueing/jobs/batch"
	jobkinds "github.com/muster-dev/muster/queueing/jobs/kinds"
	"github.com/muster-dev/muster/queueing/jobs/podgroup"
	"github.com/muster-dev/muster/queueing/workload"
)

// shop is a manager with its workers. Their API servers are fakes that count the dispatcher's calls.
type shop struct {
	*testing.T
	copies  *copies
	clock   *clocktesting.FakeClock
	manager client.Client
	workers []client.Client
	mu      sync.Mutex
	// calls counts the dispatcher's calls by server and verb. created is called before each creation.
	calls   map[string]int
	created func(server string)
	born    int
}

// asIs is a cache that never lags.
type asIs struct {
	cache.Cache
	client client.Client
}

func (c asIs) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.client.Get(ctx, key, o, opts...)
}

func (c asIs) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return c.client.List(ctx, l, opts...)
}

// server returns an API server, and the dispatcher's client of it.
func (s *shop) server(name string, scheme *runtime.Scheme, objects ...client.Object) (all, counted client.WithWatch) {
	kinds := apimeta.NewDefaultRESTMapper(nil)
	for _, gvk := range []schema.GroupVersionKind{
		batchv1.SchemeGroupVersion.WithKind("Job"), corev1.SchemeGroupVersion.WithKind("Pod"), leaderWorkerSets,
		rayServices,
	} {
		kinds.Add(gvk, apimeta.RESTScopeNamespace)
	}
	all = fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(kinds).WithObjects(objects...).
		WithStatusSubresource(&kueue.Workload{}, &kueue.MultiKueueCluster{}, &batchv1.Job{}, &corev1.Pod{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				s.born++
				o.SetUID(types.UID(fmt.Sprint("born-", s.born)))
				return c.Create(ctx, o, opts...)
			},
		}).Build()
	count := func(verb string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls[name+" "+verb]++
	}
	return all, interceptor.NewClient(all, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			count("read")
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			count("read")
			return c.List(ctx, l, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if count("write"); s.created != nil {
				s.created(name)
			}
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			count("write")
			return c.Delete(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			count("write")
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			count("write")
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
}

const check = "elsewhere"

func workerName(i int) string { return fmt.Sprint("worker-", i) }

func newShop(t *testing.T, workersNumber int) *shop {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := &shop{T: t, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)), calls: map[string]int{}}
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: check}}
	ac.Spec.ControllerName = kueue.MultiKueueControllerName
	ac.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group,
		Kind: "MultiKueueConfig", Name: "all"}
	for i := range workersNumber {
		config.Spec.Clusters = append(config.Spec.Clusters, workerName(i))
	}
	all, counted := s.server("manager", scheme, config, ac)
	kinds := []Kind{batch.Kind{}}
	for _, k := range podgroup.Delegated() {
		kinds = append(kinds, k)
	}
	for _, k := range jobkinds.BuiltIn() {
		if k.Forwards() {
			kinds = append(kinds, k)
		}
	}
	w := &workers{manager: all, live: all, scheme: scheme, clock: s.clock, self: me, byName: map[string]*worker{}}
	s.manager = all
	// The dispatcher reads Workloads and checks from its cache.
	cached := interceptor.NewClient(counted, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, job := o.(*unstructured.Unstructured); !job {
				return all.Get(ctx, key, o, opts...)
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	d := &dispatcher{client: cached, live: all, workers: w, events: events.NewFakeRecorder(1000), clock: s.clock}
	s.copies = newCopies(d, scheme, kinds)
	for i := range workersNumber {
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "main"}}
		there, counted := s.server(workerName(i), scheme, lq)
		s.workers = append(s.workers, there)
		w.byName[workerName(i)] = &worker{
			name: workerName(i), connected: true, foreign: map[types.NamespacedName]time.Time{}, refused: map[types.NamespacedName]refusal{},
			connection: &connection{
				client: counted, cache: asIs{client: there}, jobs: kinds, snapshot: snapshots.New(snapshots.Config{Clock: s.clock}),
				shown: shown{jobs: map[shownKey]shownJob{}}, made: newExpected(s.clock), left: newExpected(s.clock),
			},
		}
	}
	return s
}

// queued creates the objects and their Workload, which has quota in the manager and waits for a cluster.
func (s *shop) queued(name string, objects ...client.Object) {
	s.Helper()
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, CreationTimestamp: metav1.NewTime(s.clock.Now())}}
	w.Spec.QueueName = "main"
	w.Spec.PodSets = []kueue.PodSet{{Name: kueue.DefaultPodSetName, Count: int32(len(objects))}}
	for _, o := range objects {
		if err := s.manager.Create(s.Context(), o); err != nil {
			s.Fatal(err)
		}
		gvk, err := s.manager.GroupVersionKindFor(o)
		if err != nil {
			s.Fatal(err)
		}
		owner := *metav1.NewControllerRef(o, gvk)
		owner.Controller = new(len(objects) == 1)
		w.OwnerReferences = append(w.OwnerReferences, owner)
	}
	if err := s.manager.Create(s.Context(), w); err != nil {
		s.Fatal(err)
	}
	s.status(s.manager, name, func(w *kueue.Workload) {
		w.Status.Admission = &kueue.Admission{ClusterQueue: "cq"}
		w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: check, State: kueue.CheckStatePending}}
		is(w, kueue.WorkloadQuotaReserved)
	})
}

func is(w *kueue.Workload, condition string) {
	apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue,
		Reason: "Test", Message: "test"})
}

// status updates the status of a Workload.
func (s *shop) status(in client.Client, name string, change func(*kueue.Workload)) {
	s.Helper()
	w := &kueue.Workload{}
	if err := in.Get(s.Context(), client.ObjectKey{Namespace: "team-a", Name: name}, w); err != nil {
		s.Fatal(err)
	}
	change(w)
	if err := in.Status().Update(s.Context(), w); err != nil {
		s.Fatal(err)
	}
}

func (s *shop) reconcile(name string) ctrl.Result {
	s.Helper()
	result, err := s.copies.Reconcile(s.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "team-a", Name: name}})
	if err != nil {
		s.Fatal(err)
	}
	return result
}

// dispatch reconciles a Workload until it needs no immediate requeue.
func (s *shop) dispatch(name string) {
	s.Helper()
	for range 10 {
		result := s.reconcile(name)
		if result.RequeueAfter == 0 || result.RequeueAfter > 2*time.Second {
			return
		}
		s.clock.Step(result.RequeueAfter)
	}
}

// copyIn returns the copy in a worker, or nil.
func (s *shop) copyIn(i int, name string) *kueue.Workload {
	s.Helper()
	w := &kueue.Workload{}
	if err := s.workers[i].Get(s.Context(), client.ObjectKey{Namespace: "team-a", Name: name}, w); client.IgnoreNotFound(err) != nil {
		s.Fatal(err)
	} else if err != nil {
		return nil
	}
	return w
}

// workerWithCopy returns the worker that has the only copy.
func (s *shop) workerWithCopy(name string) int {
	s.Helper()
	at := -1
	for i := range s.workers {
		if s.copyIn(i, name) == nil {
			continue
		}
		if at >= 0 {
			s.Fatalf("workers %d and %d have copies", at, i)
		}
		at = i
	}
	if at < 0 {
		s.Fatal("no worker has a copy")
	}
	return at
}

// admitted lets the worker admit the copy, and the manager's queues react.
func (s *shop) admitted(name string) int {
	s.Helper()
	s.dispatch(name)
	at := s.workerWithCopy(name)
	if c := s.copyIn(at, name); c.Annotations[workload.GatedByAnnotation] != "" {
		s.Fatalf("the copy has the gate %q", c.Annotations[workload.GatedByAnnotation])
	}
	s.status(s.workers[at], name, func(w *kueue.Workload) {
		w.Status.Admission = &kueue.Admission{ClusterQueue: "cq"}
		is(w, kueue.WorkloadQuotaReserved)
		is(w, kueue.WorkloadAdmitted)
	})
	s.dispatch(name)
	s.status(s.manager, name, func(w *kueue.Workload) {
		if cluster := ptr.Deref(w.Status.ClusterName, ""); cluster != workerName(at) ||
			w.Status.AdmissionChecks[0].State != kueue.CheckStateReady {
			s.Fatalf("it has the cluster %q and the checks %v", cluster, w.Status.AdmissionChecks)
		}
		is(w, kueue.WorkloadAdmitted)
	})
	s.dispatch(name)
	return at
}

// writes returns the number of writes in all workers, and in the manager.
func (s *shop) writes() (remote, local int) {
	for _, call := range slices.Sorted(maps.Keys(s.calls)) {
		switch {
		case call == "manager write":
			local += s.calls[call]
		case call[len(call)-len("write"):] == "write":
			remote += s.calls[call]
		}
	}
	return remote, local
}

// TestAJobCostsTheSameHoweverManyClustersThereAre, in writes to workers and to the manager. Its status is copied back.
func TestAJobCostsTheSameHoweverManyClustersThereAre(t *testing.T) {
	for _, n := range []int{1, 3, 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newShop(t, n)
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "train"}}
			job.Spec.ManagedBy, job.Spec.Suspend = new(string(kueue.MultiKueueControllerName)), new(true)
			s.queued("job-train", job)
			at := s.admitted("job-train")
			if remote, local := s.writes(); remote != 3 || local != 3 {
				t.Errorf("it was given to a cluster by %d writes there and %d here, want 3 and 3: %v", remote, local, s.calls)
			}
			job.Spec.Suspend = new(false)
			if err := s.manager.Update(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			theirs := &batchv1.Job{}
			for _, change := range []func(*batchv1.JobStatus){
				func(j *batchv1.JobStatus) { j.Active = 1 }, func(j *batchv1.JobStatus) { j.Ready = new(int32(1)) },
				func(j *batchv1.JobStatus) { j.Active, j.Succeeded = 0, 1 },
			} { // within a second
				if err := s.workers[at].Get(t.Context(), client.ObjectKeyFromObject(job), theirs); err != nil {
					t.Fatal(err)
				}
				change(&theirs.Status)
				if err := s.workers[at].Status().Update(t.Context(), theirs); err != nil {
					t.Fatal(err)
				}
				s.reconcile("job-train")
			}
			s.status(s.workers[at], "job-train", func(w *kueue.Workload) { is(w, kueue.WorkloadFinished) })
			s.dispatch("job-train")
			s.dispatch("job-train")
			if err := s.manager.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil || job.Status.Succeeded != 1 {
				t.Errorf("it shows %+v: %v", job.Status, err)
			}
			if c := s.copyIn(at, "job-train"); c != nil {
				t.Errorf("its copy is left: %+v", c.ObjectMeta)
			}
			remote, local := s.writes()
			if remote != 5 || local != 7 {
				t.Errorf("it took %d writes there and %d here, want 5 and 7: %v", remote, local, s.calls)
			}
			for i := range s.workers {
				if i != at && s.calls[workerName(i)+" write"]+s.calls[workerName(i)+" read"] > 0 {
					t.Errorf("worker %d was called: %v", i, s.calls)
				}
			}
		})
	}
}

// TestPodsOfAGroupRunElsewhere: each pod is created in the worker and shown in the manager. Pods that have finished are not created
// again, and all are deleted together.
func TestPodsOfAGroupRunElsewhere(t *testing.T) {
	s := newShop(t, 2)
	var pods []client.Object
	for _, name := range []string{"a", "b"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name,
			Labels: map[string]string{"kueue.x-k8s.io/queue-name": "main"}}}
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podgroup.Gate}}
		p.Spec.Containers = []corev1.Container{{Name: "main", Image: "main"}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "SchedulingGated"}}
		pods = append(pods, p)
	}
	s.queued("ring", pods...)
	at := s.admitted("ring")
	there := func() (out map[string]*corev1.Pod) {
		out = map[string]*corev1.Pod{}
		var list corev1.PodList
		if err := s.workers[at].List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			out[list.Items[i].Name] = &list.Items[i]
		}
		return out
	}
	for name, p := range there() {
		if p.Annotations[workload.PrebuiltLabel] != "ring" || p.Labels[kueue.MultiKueueOriginLabel] != "multikueue" ||
			len(p.Spec.SchedulingGates) != 1 ||
			p.Annotations[dispatch.ManagerAnnotation] != "m1" {
			t.Errorf("pod %s is made as %+v %+v", name, p.ObjectMeta, p.Spec.SchedulingGates)
		}
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
		if name == "a" {
			p.Status.Phase = corev1.PodSucceeded
		}
		if err := s.workers[at].Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if len(there()) != 2 {
		t.Fatalf("pods %v are there", slices.Sorted(maps.Keys(there())))
	}
	s.clock.Step(showEvery)
	s.dispatch("ring")
	here := func(name string) string {
		p := &corev1.Pod{}
		if err := s.manager.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: name}, p); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s %s gates=%d", p.Status.Phase, p.Status.Conditions[0].Status, len(p.Spec.SchedulingGates))
	}
	if a, b := here("a"), here("b"); a != "Succeeded True gates=1" || b != "Running True gates=1" {
		t.Errorf("pods show %q and %q", a, b)
	}
	for _, p := range there() {
		if err := s.workers[at].Delete(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	s.clock.Step(showEvery)
	s.dispatch("ring")
	if got := there(); len(got) != 1 || got["b"] == nil {
		t.Errorf("after they were deleted by hand, there are %v", slices.Sorted(maps.Keys(got)))
	}
	s.status(s.manager, "ring", func(w *kueue.Workload) {
		is(w, kueue.WorkloadEvicted)
		w.Status.ClusterName = nil
	})
	s.dispatch("ring")
	s.dispatch("ring")
	w := &kueue.Workload{}
	if err := s.manager.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "ring"}, w); err != nil {
		t.Fatal(err)
	}
	record, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation])
	if len(there()) > 0 || s.copyIn(at, "ring") != nil || err != nil || len(record.In) > 0 {
		t.Errorf("after its eviction there are %v, its record is %+v: %v", slices.Sorted(maps.Keys(there())), record, err)
	}
	if b := here("b"); b != "Pending False gates=1" {
		t.Errorf("the pod that waits again shows %q", b)
	}
}

// TestAJobThatStartsAgainShowsNothingOfBefore: the API server rejects another startTime for a Job that is not suspended.
func TestAJobThatStartsAgainShowsNothingOfBefore(t *testing.T) {
	s := newShop(t, 1)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "train"}}
	job.Spec.ManagedBy, job.Spec.Suspend = new(string(kueue.MultiKueueControllerName)), new(true)
	job.Status.StartTime = new(metav1.NewTime(s.clock.Now()))
	s.queued("job-train", job)
	s.admitted("job-train")
	if err := s.manager.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil || job.Status.StartTime != nil {
		t.Errorf("it is admitted and shows %+v: %v", job.Status, err)
	}
}

// TestAJobIsShownAsItHasEnded, even if the cache of its cluster has only the end of its Workload: the job may be deleted afterwards.
func TestAJobIsShownAsItHasEnded(t *testing.T) {
	s := newShop(t, 1)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "train"}}
	job.Spec.ManagedBy, job.Spec.Suspend = new(string(kueue.MultiKueueControllerName)), new(true)
	s.queued("job-train", job)
	s.admitted("job-train")
	job.Spec.Suspend = new(false)
	if err := s.manager.Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	s.status(s.workers[0], "job-train", func(w *kueue.Workload) { is(w, kueue.WorkloadFinished) })
	running := &batchv1.Job{}
	if err := s.workers[0].Get(t.Context(), client.ObjectKeyFromObject(job), running); err != nil {
		t.Fatal(err)
	}
	late, _ := s.server("late", s.copies.scheme, s.copyIn(0, "job-train"), running.DeepCopy())
	s.copies.workers.byName[workerName(0)].connection.cache = asIs{client: late}
	running.Status.Succeeded = 1
	if err := s.workers[0].Status().Update(t.Context(), running); err != nil {
		t.Fatal(err)
	}
	s.dispatch("job-train")
	if err := s.manager.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil || job.Status.Succeeded != 1 {
		t.Errorf("it shows %+v: %v", job.Status, err)
	}
}

// labelled is a cache that selects by the label of the manager, as that of a worker does.
type labelled struct{ asIs }

func (c labelled) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := c.asIs.Get(ctx, key, o, opts...); err != nil {
		return err
	}
	if _, queue := o.(*kueue.LocalQueue); !queue && o.GetLabels()[kueue.MultiKueueOriginLabel] != me.origin {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return nil
}

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// longest is how long a load may take, on a machine that is busy otherwise.
const longest = 30 * time.Minute

// class is a kind of Workloads with the number of them in each queue.
type class struct {
	name     string
	count    int
	cpu      string
	priority int32
	// runs is how long a Workload is admitted until it is finished. every is the interval of creations in one queue.
	runs, every time.Duration
}

// load simulates the users and the job controllers of Workloads without owners: it creates them, finishes each that was admitted for its
// time, and releases the quota of evicted ones, whose run is lost.
type load struct {
	testing.TB
	kube client.Client

	mu       sync.Mutex
	lives    map[types.NamespacedName]*life
	finished int
	done     chan struct{}
	want     int
}

// life is what became of one Workload.
type life struct {
	class     *class
	seen      string // resourceVersion
	created   time.Time
	admitted  time.Time
	end       *time.Timer // runs while the Workload is admitted
	evicted   bool
	evictions int
	finished  bool
}

// newLoad expects so many Workloads to be created and finished.
func newLoad(a *arena, want int) *load {
	l := &load{TB: a, kube: a.kube, lives: map[types.NamespacedName]*life{}, done: make(chan struct{}), want: want}
	a.follow(a.Context(), func(w *kueue.Workload) { l.observe(a.Context(), w) })
	return l
}

// follow observes all Workloads until the context is over. It is an informer, as
// controllers have it: on a busy machine the API server ends watches that do not keep
// up, and a watch that started over with a full list would keep up even less.
func (a *arena) follow(ctx context.Context, observe func(*kueue.Workload)) {
	a.Helper()
	informers, err := cache.New(a.rest, cache.Options{Scheme: a.kube.Scheme()})
	if err != nil {
		a.Fatal(err)
	}
	informer, err := informers.GetInformer(ctx, &kueue.Workload{}, cache.BlockUntilSynced(false))
	if err != nil {
		a.Fatal(err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(w any) { observe(w.(*kueue.Workload)) },
		UpdateFunc: func(_, w any) { observe(w.(*kueue.Workload)) },
	}); err != nil {
		a.Fatal(err)
	}
	go func() { _ = informers.Start(ctx) }() // it ends with the context
}

// submit creates the class's Workloads in a queue, one after the other with its
// pause between them.
func (l *load) submit(ctx context.Context, c *class, namespace string) {
	pause := time.NewTicker(max(c.every, 1))
	defer pause.Stop()
	for i := range c.count {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		if err := l.create(ctx, c, namespace, i); err != nil && ctx.Err() == nil {
			l.Errorf("creating %s %d in %s: %v", c.name, i, namespace, err)
			return
		}
	}
}

func (l *load) create(ctx context.Context, c *class, namespace string, i int) error {
	w := newWorkload(c, namespace, i)
	l.mu.Lock()
	l.lives[client.ObjectKeyFromObject(w)] = &life{class: c, created: time.Now()}
	l.mu.Unlock()
	return l.kube.Create(ctx, w)
}

// newWorkload is for the LocalQueue that has its namespace's name.
func newWorkload(c *class, namespace string, i int) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%05d", c.name, i)}}
	w.Spec.QueueName = kueue.LocalQueueName(namespace)
	w.Spec.Priority = &c.priority
	w.Spec.PodSets = []kueue.PodSet{{Name: kueue.DefaultPodSetName, Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "main", Image: "main", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(c.cpu)},
		}}},
	}}}}
	return w
}

// observe does what a version of a Workload calls for.
func (l *load) observe(ctx context.Context, w *kueue.Workload) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.lives[client.ObjectKeyFromObject(w)]
	if a == nil || a.finished {
		return
	}
	is := func(condition string) bool { return meta.IsStatusConditionTrue(w.Status.Conditions, condition) }
	evicted := is(kueue.WorkloadEvicted)
	if evicted && !a.evicted {
		a.evictions++
	}
	a.seen, a.evicted = w.ResourceVersion, evicted
	switch {
	case is(kueue.WorkloadFinished):
		a.finished = true
		if l.finished++; l.finished == l.want {
			close(l.done)
		}
	case evicted || !is(kueue.WorkloadAdmitted):
		if a.end != nil {
			a.end.Stop()
			a.end = nil
		}
		if evicted && w.Status.Admission != nil {
			go l.release(ctx, w)
		}
	case a.end == nil:
		a.admitted = time.Now()
		a.end = time.AfterFunc(a.class.runs, func() { l.finish(ctx, w) })
	}
}

// finish finishes the Workload unless it was evicted meanwhile.
func (l *load) finish(ctx context.Context, w *kueue.Workload) {
	l.mu.Lock()
	a := l.lives[client.ObjectKeyFromObject(w)]
	seen := a.seen
	over := a.end == nil || a.finished
	l.mu.Unlock()
	if over {
		return
	}
	l.settle(ctx, w, finish(ctx, l.kube, w, seen), func(w *kueue.Workload) { l.finish(ctx, w) })
}

// release gives the quota of an evicted Workload back, as Kueue's API expects of the
// controller that runs the pods, once they have stopped.
func (l *load) release(ctx context.Context, w *kueue.Workload) {
	released := w.DeepCopy()
	released.Status.Admission = nil
	for condition, reason := range map[string]string{
		kueue.WorkloadQuotaReserved: kueue.WorkloadQuotaReservedReasonPendingEvaluation,
		kueue.WorkloadAdmitted:      kueue.WorkloadAdmittedReasonNoReservation,
	} {
		meta.SetStatusCondition(&released.Status.Conditions, metav1.Condition{
			Type: condition, Status: metav1.ConditionFalse, Reason: reason, Message: "Its pods have stopped", ObservedGeneration: w.Generation,
		})
	}
	patch := client.MergeFromWithOptions(w, client.MergeFromWithOptimisticLock{})
	l.settle(ctx, w, l.kube.Status().Patch(ctx, released, patch), nil)
}

// settle reads the newest version of a Workload after a conflict, and writes again if that is still necessary.
func (l *load) settle(ctx context.Context, w *kueue.Workload, err error, again func(*kueue.Workload)) {
	switch {
	case ctx.Err() != nil || err == nil:
		return
	case !apierrors.IsConflict(err):
		l.Errorf("writing the status of %s/%s: %v", w.Namespace, w.Name, err)
		return
	}
	newest := &kueue.Workload{}
	if err := l.kube.Get(ctx, client.ObjectKeyFromObject(w), newest); err != nil {
		l.Errorf("reading %s/%s: %v", w.Namespace, w.Name, err)
		return
	}
	l.observe(ctx, newest)
	if again != nil {
		again(newest)
	}
}

// finish writes that the Workload is finished, on the version that was seen, by
// server-side apply as Kueue's and Muster's job controllers do.
func finish(ctx context.Context, kube client.Client, w *kueue.Workload, seen string) error {
	text, err := json.Marshal(map[string]any{
		"apiVersion": kueue.SchemeGroupVersion.String(),
		"kind":       "Workload",
		"metadata":   map[string]string{"resourceVersion": seen},
		"status": kueue.WorkloadStatus{
			Conditions: []metav1.Condition{condition(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonSucceeded)},
		},
	})
	if err != nil {
		return err
	}
	out := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	return kube.Status().Patch(ctx, out, client.RawPatch(types.ApplyPatchType, text), client.FieldOwner("bench"))
}

// condition that is true from now on.
func condition(kind, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: "By the benchmark",
		LastTransitionTime: metav1.Now()}
}

// running is how many Workloads are admitted, by namespace.
func (l *load) running() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{}
	for key, a := range l.lives {
		if a.end != nil && !a.finished {
			out[key.Namespace]++
		}
	}
	return out
}

// outcome is what became of all Workloads.
type outcome struct {
	evictions int
	// wait is the mean time from the creation to the admission that was not lost, by
	// the name of the class.
	wait map[string]time.Duration
}

func (l *load) outcome() outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := outcome{wait: map[string]time.Duration{}}
	count := map[string]int{}
	for _, a := range l.lives {
		out.evictions += a.evictions
		out.wait[a.class.name] += a.admitted.Sub(a.created)
		count[a.class.name]++
	}
	for name, n := range count {
		out.wait[name] /= time.Duration(n)
	}
	return out
}

// await waits until all Workloads are finished.
func (l *load) await() {
	l.Helper()
	select {
	case <-l.done:
	case <-l.Context().Done():
		l.Fatal(context.Cause(l.Context()))
	case <-time.After(longest):
		l.mu.Lock()
		defer l.mu.Unlock()
		l.Fatalf("not within %s: %d of %d Workloads are finished", longest, l.finished, l.want)
	}
}

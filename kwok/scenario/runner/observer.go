package runner

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/kwok/scenario"
	"github.com/muster-dev/muster/kwok/scenario/report"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/queueing/workload"
)

// observer builds a record from the events of watches.
type observer struct {
	speed    int
	resource corev1.ResourceName
	jobs     []scenario.Submission
	// ends receives the pods whose end has to be written. It has room for all pods, so that no watch waits for a write.
	ends chan podEnd
	// serving are Jobs of kinds that serve, once all of their pods run. It has room for all, too.
	serving chan int
	// allEnded is closed once all Jobs have.
	allEnded chan struct{}
	// changed has a token whenever something may have come true that is awaited.
	changed chan struct{}

	mu     sync.Mutex
	begun  time.Time
	record report.Record
	ended  int
	// byName are the Jobs, byOwner those of other kinds once they have a Workload, byUID the
	// pods, machines by their names: indices into the record's.
	byName   map[types.NamespacedName]int
	byOwner  map[types.UID]int
	byUID    map[types.UID]int
	machines map[string]int
	// gangs are the pods of each Job that run and have not ended.
	gangs []map[types.UID]*member
	// stays is how far each Job is that serves until it is deleted.
	stays []stay
	// admitted are the Workloads of each Job that have been.
	admitted []map[types.UID]bool
	// done is how many pods of each Job have succeeded.
	done []int
	// ready is when a node was first Ready with its devices; taken whether it takes pods.
	ready map[string]time.Duration
	taken map[string]bool
	// prices of the groups, and how many of their machines Muster always keeps.
	prices map[string]int64
	keeps  map[string]int
}

// stay of what serves until it is deleted.
type stay int

const (
	// coming: not all of its pods have run at a time.
	coming stay = iota
	// there: all have.
	there
	// leaving: it has served for its time, and is deleted.
	leaving
)

// member is a pod that runs.
type member struct {
	namespace, name string
	sent            bool
}

// podEnd is a pod and its end.
type podEnd struct {
	namespace, name string
	until           time.Time
}

func (t podEnd) pod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: t.name}}
}

func (t podEnd) patch() (types.PatchType, []byte) {
	return types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`,
		kwokv1alpha1.RunsUntilAnnotation, t.until.UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
}

func newObserver(s *scenario.Scenario, jobs []scenario.Submission, speed int) *observer {
	o := &observer{
		speed: speed, resource: s.Resource(), jobs: jobs,
		allEnded: make(chan struct{}), changed: make(chan struct{}, 1), serving: make(chan int, len(jobs)),
		stays: make([]stay, len(jobs)), admitted: make([]map[types.UID]bool, len(jobs)),
		byName: map[types.NamespacedName]int{}, byOwner: map[types.UID]int{}, byUID: map[types.UID]int{}, machines: map[string]int{},
		ready: map[string]time.Duration{}, taken: map[string]bool{}, prices: map[string]int64{}, keeps: map[string]int{},
	}
	pods := 0
	for i, j := range jobs {
		pods += j.Shape.AllPods() * (1 + int(j.Shape.Retries))
		o.byName[types.NamespacedName{Namespace: j.Namespace, Name: j.Name}] = i
		o.record.Jobs = append(o.record.Jobs, report.Job{
			Name: j.Namespace + "/" + j.Name, Pods: j.Shape.AllPods(),
			Submitted: report.Never, Reserved: report.Never, Admitted: report.Never, Ended: report.Never,
		})
		o.gangs, o.done = append(o.gangs, map[types.UID]*member{}), append(o.done, 0)
	}
	const spare = 10_000 // replacements of pods that are lost with their machines
	o.ends = make(chan podEnd, pods+spare)
	for _, n := range s.Nodes {
		amount := n.Capacity[o.resource]
		for _, name := range n.Names() {
			o.record.Nodes = append(o.record.Nodes, report.Node{Name: name, Amount: amount.MilliValue()})
		}
	}
	for _, g := range s.Groups {
		o.keeps[g.Name] = int(g.Spec.MinNodes)
		if p := g.Spec.PricePerHour; p != nil {
			o.prices[g.Name] = p.MilliValue()
		}
	}
	return o
}

// watch begins to observe; it returns once all that exists has been seen.
func (o *observer) watch(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, queues bool) error {
	informers, err := cache.New(config, cache.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	kinds := []client.Object{&corev1.Pod{}, &batchv1.Job{}, &corev1.Node{}, &kwokv1alpha1.Machine{}}
	if queues {
		kinds = append(kinds, &kueue.Workload{})
	}
	for _, kind := range kinds {
		informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(x any) { o.observe(x, false, time.Now()) },
			UpdateFunc: func(_, x any) { o.observe(x, false, time.Now()) },
			DeleteFunc: func(x any) {
				if last, ok := x.(toolscache.DeletedFinalStateUnknown); ok {
					x = last.Obj
				}
				o.observe(x, true, time.Now())
			},
		}); err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	go func() { _ = informers.Start(ctx) }() // it ends with the context
	if !informers.WaitForCacheSync(ctx) {
		return fmt.Errorf("watching the cluster: %w", context.Cause(ctx))
	}
	return nil
}

// observe notes a version of an object, or its end.
func (o *observer) observe(x any, deleted bool, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := now.Sub(o.begun)
	switch x := x.(type) {
	case *corev1.Pod:
		o.observePod(x, deleted, at, now)
	case *batchv1.Job:
		o.observeJob(x, at)
	case *corev1.Node:
		o.observeNode(x, deleted, at)
	case *kwokv1alpha1.Machine:
		o.observeMachine(x, deleted, at)
	case *kueue.Workload:
		o.observeWorkload(x, at)
	}
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// jobOf finds the Job of a pod. Pods of other kinds have the UID of their object, which its Workload names before they are created.
func (o *observer) jobOf(p *corev1.Pod) (job int, ok bool) {
	if job, ok = o.byOwner[types.UID(p.Labels[workload.JobUIDLabel])]; ok {
		return job, true
	}
	if name := p.Labels[scenario.JobLabel]; name != "" {
		job, ok = o.byName[types.NamespacedName{Namespace: p.Namespace, Name: name}]
		return job, ok
	}
	job, ok = o.byName[types.NamespacedName{Namespace: p.Namespace, Name: p.Labels[batchv1.JobNameLabel]}]
	return job, ok
}

func (o *observer) observePod(p *corev1.Pod, deleted bool, at time.Duration, now time.Time) {
	job, ok := o.jobOf(p)
	if !ok {
		return
	}
	i, known := o.byUID[p.UID]
	if !known {
		i = len(o.record.Pods)
		o.byUID[p.UID] = i
		asks := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})[o.resource]
		o.record.Pods = append(o.record.Pods, report.Pod{
			Job: job, Amount: asks.MilliValue(), Created: at, Bound: report.Never, Running: report.Never, Ended: report.Never,
		})
	}
	pod := &o.record.Pods[i]
	if pod.Ended != report.Never {
		return
	}
	if p.Spec.NodeName != "" && pod.Bound == report.Never {
		pod.Node, pod.Bound = p.Spec.NodeName, at
	}
	switch {
	case deleted || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		pod.Ended = at
		delete(o.gangs[job], p.UID)
		if p.Status.Phase == corev1.PodSucceeded {
			pod.Succeeded = true
			o.done[job]++
		}
		o.leave(job, at)
	case p.Status.Phase == corev1.PodRunning && pod.Running == report.Never:
		pod.Running = at
		o.gangs[job][p.UID] = &member{namespace: p.Namespace, name: p.Name}
		o.sendEnds(job, now)
		if shape := o.jobs[job].Shape; o.stays[job] == coming && shape.Serves() && o.runs(job, shape.AllPods()) {
			o.stays[job] = there
			o.serving <- job
		}
	}
}

// served notes that a Job is about to be deleted, since it has served for its time.
func (o *observer) served(job int, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stays[job] = leaving
	o.leave(job, now.Sub(o.begun))
}

// leave ends a Job that is deleted once none of its pods is left.
func (o *observer) leave(job int, at time.Duration) {
	isLeft := func(p report.Pod) bool { return p.Job == job && p.Ended == report.Never }
	if o.stays[job] == leaving && !slices.ContainsFunc(o.record.Pods, isLeft) {
		o.end(job, report.Succeeded, at)
	}
}

// runs reports whether all pods of a Job run, except for those that have succeeded.
func (o *observer) runs(job, pods int) bool {
	return len(o.gangs[job]) > 0 && len(o.gangs[job])+o.done[job] >= pods
}

// sendEnds schedules the ends of a Job's pods once all of them run.
func (o *observer) sendEnds(job int, now time.Time) {
	j := o.jobs[job]
	if !j.Shape.Together || !o.runs(job, j.Shape.AllPods()) {
		return
	}
	for _, m := range o.gangs[job] {
		if !m.sent {
			m.sent = true
			o.ends <- podEnd{m.namespace, m.name, now.Add(j.Runs(o.speed))}
		}
	}
}

func (o *observer) observeJob(j *batchv1.Job, at time.Duration) {
	i, ok := o.byName[client.ObjectKeyFromObject(j)]
	if !ok || o.jobs[i].Shape.Object != nil { // a RayJob has a Job of its own name
		return
	}
	for _, c := range j.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		outcome := map[batchv1.JobConditionType]report.Outcome{batchv1.JobComplete: report.Succeeded, batchv1.JobFailed: report.Failed}[c.Type]
		if outcome == report.Unfinished {
			continue
		}
		o.end(i, outcome, at)
		return
	}
}

// end records the first end of a Job.
func (o *observer) end(job int, outcome report.Outcome, at time.Duration) {
	if o.record.Jobs[job].Outcome != report.Unfinished {
		return
	}
	o.record.Jobs[job].Ended, o.record.Jobs[job].Outcome = at, outcome
	if o.ended++; o.ended == len(o.jobs) {
		close(o.allEnded)
	}
}

func (o *observer) observeNode(n *corev1.Node, deleted bool, at time.Duration) {
	if deleted {
		return
	}
	amount := n.Status.Allocatable[o.resource]
	isReady := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if _, known := o.ready[n.Name]; !known && isReady && !amount.IsZero() {
		o.ready[n.Name] = at
	}
	o.taken[n.Name] = isReady && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
}

func (o *observer) observeMachine(m *kwokv1alpha1.Machine, deleted bool, at time.Duration) {
	i, known := o.machines[m.Name]
	if !known {
		i = len(o.record.Machines)
		o.machines[m.Name] = i
		amount := m.Spec.Node.Allocatable[o.resource]
		amount.Add(m.Spec.Node.Devices[o.resource])
		o.record.Machines = append(o.record.Machines, report.Machine{
			Name: m.Name, Group: m.Spec.Group, Amount: amount.MilliValue(), MilliUSDPerHour: o.prices[m.Spec.Group],
			Launched: at, Ready: report.Never, Gone: report.Never,
		})
	}
	machine := &o.record.Machines[i]
	if machine.Gone == report.Never && (deleted || m.Status.Phase == kwokv1alpha1.MachineTerminated) {
		machine.Gone = at
	}
}

func (o *observer) observeWorkload(w *kueue.Workload, at time.Duration) {
	i, ok := o.jobOfWorkload(w)
	if !ok {
		return
	}
	shape := o.jobs[i].Shape
	if c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished); shape.Object != nil && !shape.Serves() && c != nil &&
		c.Status == metav1.ConditionTrue {
		outcome := report.Failed
		if c.Reason == kueue.WorkloadFinishedReasonSucceeded {
			outcome = report.Succeeded
		}
		o.end(i, outcome, at)
	}
	if c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil && c.Status == metav1.ConditionFalse &&
		w.Spec.Active != nil && !*w.Spec.Active {
		// Only a person reactivates it.
		o.end(i, report.Failed, at)
	}
	j := &o.record.Jobs[i]
	if j.Admitted != report.Never {
		return
	}
	if j.Reserved == report.Never && meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved) {
		j.Reserved = at
	}
	if meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted) {
		if o.admitted[i] == nil {
			o.admitted[i] = map[types.UID]bool{}
		}
		if o.admitted[i][w.UID] = true; len(o.admitted[i]) >= shape.Workloads() {
			j.Admitted = at
		}
	}
}

// jobOfWorkload finds the Job of a Workload: by what owns it, by the name of its group, or by its pod.
func (o *observer) jobOfWorkload(w *kueue.Workload) (job int, ok bool) {
	for _, owner := range w.OwnerReferences {
		if i, ok := o.byName[types.NamespacedName{Namespace: w.Namespace, Name: owner.Name}]; ok {
			if o.jobs[i].Shape.Object != nil && ptr.Deref(owner.Controller, false) {
				o.byOwner[owner.UID] = i
			}
			return i, true
		}
		if i, ok := o.byUID[owner.UID]; ok {
			return o.record.Pods[i].Job, true
		}
	}
	return 0, false
}

// begin has all times count from now.
func (o *observer) begin(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun = now
}

func (o *observer) submitted(job int, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record.Jobs[job].Submitted = now.Sub(o.begun)
}

// left returns how many machines exist beyond the minimum of their groups.
func (o *observer) left() (sum int) {
	stand := map[string]int{}
	for _, m := range o.record.Machines {
		if m.Gone == report.Never {
			stand[m.Group]++
		}
	}
	for group, n := range stand {
		sum += max(n-o.keeps[group], 0)
	}
	return sum
}

// nodesReady says that all fixed nodes take pods.
func (o *observer) nodesReady() bool {
	return !slices.ContainsFunc(o.record.Nodes, func(n report.Node) bool { return !o.taken[n.Name] })
}

// await returns once the condition, which is called under the lock, holds.
func (o *observer) await(ctx context.Context, wish string, holds func() bool) error {
	for {
		o.mu.Lock()
		met := holds()
		o.mu.Unlock()
		if met {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", wish, context.Cause(ctx))
		case <-o.changed:
		}
	}
}

// progress is how far the run is.
type progress struct {
	all, submitted, running, succeeded, failed, machines int
	// left are the machines that go once they stand idle.
	left int
}

func (o *observer) progress() progress {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := progress{all: len(o.jobs), left: o.left()}
	for i, j := range o.record.Jobs {
		switch {
		case j.Outcome == report.Succeeded:
			p.succeeded++
		case j.Outcome == report.Failed:
			p.failed++
		case o.runs(i, j.Pods):
			p.running++
		}
		if j.Submitted != report.Never {
			p.submitted++
		}
	}
	for _, m := range o.record.Machines {
		if m.Gone == report.Never {
			p.machines++
		}
	}
	return p
}

// finish closes the record.
func (o *observer) finish(now time.Time) report.Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record.End = now.Sub(o.begun)
	for i := range o.record.Machines {
		m := &o.record.Machines[i]
		if at, ok := o.ready[m.Name]; ok {
			m.Ready = at
		}
	}
	o.record.Left = o.left()
	o.credit()
	return o.record
}

// credit counts the last pods of objects that have succeeded as succeeded: operators delete pods that would otherwise keep running, such
// as those of a Ray cluster. Pods that were replaced have been lost.
func (o *observer) credit() {
	last := make([]time.Duration, len(o.jobs))
	for _, p := range o.record.Pods {
		last[p.Job] = max(last[p.Job], p.Created)
	}
	for i := range o.record.Pods {
		p := &o.record.Pods[i]
		isLast := o.jobs[p.Job].Shape.Object != nil && o.record.Jobs[p.Job].Outcome == report.Succeeded && p.Ended > last[p.Job]
		p.Succeeded = p.Succeeded || isLast
	}
}

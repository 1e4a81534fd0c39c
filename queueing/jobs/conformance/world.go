package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// Controller is what is tested, in one life of Muster.
type Controller struct {
	// Reconcile takes what a key names one step on.
	Reconcile func(ctx context.Context, key any) (reconcile.Result, error)
	// Asks returns the keys that a change enqueues. before is nil for a new object, and after for a deleted one.
	Asks func(before, after client.Object) []any
}

// Subject is how a Controller is made.
type Subject struct {
	// New makes one that reports whether the pods of a job are ready if that is wanted.
	New func(cached client.Client, live client.Reader, recorder events.EventRecorder, now func() time.Time, podsReady bool) Controller
	// Indexes are the indexes of its cache.
	Indexes map[string]client.IndexerFunc
}

// The writers beside operators.
const (
	muster    = "muster"
	user      = "user"
	queues    = "queues"
	node      = "node"
	collector = "collector"
)

// errDied is the answer to the calls of a process that is dead.
var errDied = errors.New("the process has died")

// life is one of Muster.
type life struct {
	Controller
	cache objects
	// news are the changes that the cache does not have yet.
	news []change
	// due are the keys to reconcile, and when.
	due  map[any]time.Time
	dead bool
}

// world is a cluster with one job.
type world struct {
	*cluster
	subject Subject
	actor   actor
	life    *life

	// pool is where the queues admit; empty is nowhere.
	pool string
	// full: they have no quota for more pods of a job that runs, and scaled is how many its user has given it last.
	full   bool
	scaled int64
	// read are the slices as of a revision of the cluster.
	read   []*kueue.Workload
	readAt int
	// lag is how late changes arrive in the cache, and later is the same for the next process of Muster.
	lag, later lag
	// kind is that of the job.
	kind schema.GroupVersionKind
	// podsReady: Muster reports whether the pods of the job are ready.
	podsReady bool
	// history are all changes.
	history []change
	// said is what the operator has said last.
	said phase
	// base is how many objects there are without a job.
	base int
	// began is when the step of the story did.
	began time.Time
	// outcome is what the job is to come to once its pods run; down: its operator does not run.
	outcome outcome
	down    bool

	// dieAt is the number of the write at which Muster dies. answered: that write takes effect. writes is how many writes it has tried,
	// and changes how many of them took effect.
	dieAt    int
	answered bool
	writes   int
	changes  int
	events   []string
	// wrong is what breaks a promise.
	wrong []string
}

// lag is how late changes of jobs, of Workloads and of other objects arrive in Muster's cache. Each kind of objects has a watch of its
// own.
type lag struct{ jobs, workloads, others time.Duration }

// evenly is the lag of a cache whose Workloads come last.
func evenly(late time.Duration) lag { return lag{jobs: late, workloads: 2 * late, others: late} }

// outcome is what a job comes to.
type outcome string

const (
	succeeds outcome = "succeeds"
	fails    outcome = "fails"
)

// actor is what makes pods: the operator of a kind, or a user.
type actor interface {
	// submit creates the job, as the policies for it leave it.
	submit(w *world)
	// step does what is due of it.
	step(w *world)
	// job is the object that the user submits; nil once it is gone.
	job(w *world) *unstructured.Unstructured
	// ended reports whether it says that the job has ended.
	ended(w *world) bool
	// pods returns how many pods it has when all of them run.
	pods(w *world) int
	// queued reports whether the job names a queue.
	queued(w *world) bool
	// runs reports whether the job may have pods, and has not ended.
	runs(w *world) bool
	// stops reports whether a change keeps the job from running.
	stops(change) bool
	// held is what differs of a held job from what its user wrote; empty if nothing does.
	held(w *world) string
}

func newWorld(s Subject, a actor) *world {
	w := &world{subject: s, actor: a, pool: "a"}
	w.cluster = &cluster{objects: objects{}, converted: map[*unstructured.Unstructured]client.Object{},
		now: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC), indexes: s.Indexes, written: w.judge}
	for _, pool := range []string{"a", "b"} {
		flavor := &kueue.ResourceFlavor{}
		flavor.Name, flavor.Spec.NodeLabels = pool, map[string]string{"pool": pool}
		flavor.Spec.Tolerations = []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpEqual, Value: pool}}
		content, err := unstructuredOf(flavor)
		if err != nil {
			panic(err) // the scheme has its type
		}
		w.create(user, content)
	}
	w.create(user, read(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: muster-jobs-start}}`))
	w.base = len(w.objects)
	w.begin()
	a.submit(w)
	w.kind = a.job(w).GroupVersionKind()
	return w
}

func (w *world) fail(format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	if !slices.Contains(w.wrong, why) {
		w.wrong = append(w.wrong, why)
	}
}

// begin begins a life of Muster, from the objects alone. Its first list may be from before its
// death: the API server answers from a cache of its own.
func (w *world) begin() {
	l := &life{cache: objects{}, due: map[any]time.Time{}}
	l.hear(w, w.history)
	cached := &view{cluster: w.cluster, by: muster, reads: l.cache, write: func(do func() error) error {
		if l.dead {
			return errDied
		}
		if w.writes++; w.writes != w.dieAt {
			return do()
		}
		l.dead = true
		if w.answered {
			_ = do() // nothing hears of it
		}
		return errDied
	}}
	live := &view{cluster: w.cluster, reads: w.objects}
	l.Controller = w.subject.New(cached, live, w, func() time.Time { return w.now }, w.podsReady)
	w.life = l
	for _, o := range slices.Collect(maps.Values(l.cache)) {
		w.ask(nil, o)
	}
}

// Eventf implements events.EventRecorder.
func (w *world) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	if reason == "WorkloadVanished" && w.workload() != nil {
		w.fail("it is told that the Workload is gone, and it is there")
	}
	w.events = append(w.events, reason+": "+fmt.Sprintf(note, args...))
}

func (w *world) ask(before, after *unstructured.Unstructured) {
	for _, key := range w.life.Asks(w.typed(before), w.typed(after)) {
		w.life.due[key] = w.now
	}
}

// tick is a second in which all do what is due.
func (w *world) tick() {
	w.now = w.now.Add(time.Second)
	for _, c := range w.life.hear(w, w.life.news) {
		w.ask(c.before, c.after)
	}
	w.reconcile()
	if w.life.dead {
		w.lag = w.later
		w.begin()
	}
	w.admit()
	if !w.down {
		w.actor.step(w)
	}
	w.runPods()
	w.collect()
}

// hear applies the changes that are old enough to the cache, and returns them.
func (l *life) hear(w *world, all []change) (heard []change) {
	l.news = nil
	for _, c := range all {
		late := w.lag.others
		switch c.object().GroupVersionKind() {
		case w.kind:
			late = w.lag.jobs
		case workloadKind:
			late = w.lag.workloads
		}
		if c.at.Add(late).After(w.now) {
			l.news = append(l.news, c)
			continue
		}
		l.cache.apply(c)
		heard = append(heard, c)
	}
	return heard
}

var workloadKind = kueue.SchemeGroupVersion.WithKind("Workload")

// retry is when a key is reconciled again after an error.
const retry = 2 * time.Second

func (w *world) reconcile() {
	keys := slices.SortedFunc(maps.Keys(w.life.due), func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, key := range keys {
		if w.life.due[key].After(w.now) || w.life.dead {
			continue
		}
		delete(w.life.due, key)
		switch result, err := w.life.Reconcile(context.Background(), key); {
		case err != nil:
			w.life.due[key] = w.now.Add(retry)
		case result.RequeueAfter > 0:
			w.life.due[key] = w.now.Add(result.RequeueAfter)
		}
	}
}

// workload is that of the job; nil if there is none. Of slices it is the newest that has quota, or else the oldest.
func (w *world) workload() (out *kueue.Workload) {
	for _, own := range w.slices() {
		if out == nil || workload.HasQuota(own) {
			out = own
		}
	}
	return out
}

// write writes the status of a Workload as the queues do.
func (w *world) write(own *kueue.Workload, status *kueue.WorkloadStatus) {
	v := &view{cluster: w.cluster, by: queues, reads: w.objects, write: func(do func() error) error { return do() }}
	if _, err := writes.ApplyStatus(context.Background(), v, own.DeepCopy(), status); err != nil {
		panic(err) // nothing else writes meanwhile
	}
}

// admit is the queues: they admit what waits, on the nodes of the pool, and finish what has
// lost its owner.
func (w *world) admit() {
	own := w.workload()
	if own != nil && !workload.IsEvicted(own) && slices.ContainsFunc(own.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == kueue.WorkloadPodsReady && c.Reason == workload.ReasonPodsRefused
	}) {
		w.evict("")
	}
	w.finishReplaced()
	all := w.slices()
	if i := slices.IndexFunc(all, w.mayBeAdmitted); i >= 0 && w.pool != "" {
		w.reserve(all[i])
	}
}

// reserve is the queues: they admit a Workload on the nodes of the pool.
func (w *world) reserve(own *kueue.Workload) {
	e := workload.Edit(own, w.now)
	admission := &kueue.Admission{ClusterQueue: "team"}
	check := kueue.AdmissionCheckState{Name: "capacity", State: kueue.CheckStateReady}
	for i := range own.Spec.PodSets {
		p := &own.Spec.PodSets[i]
		count := ptr.Deref(p.MinCount, p.Count)
		admission.PodSetAssignments = append(admission.PodSetAssignments, kueue.PodSetAssignment{
			Name: p.Name, Count: &count,
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": kueue.ResourceFlavorReference(w.pool)},
		})
		check.PodSetUpdates = append(check.PodSetUpdates, kueue.PodSetUpdate{
			Name: p.Name, NodeSelector: map[string]string{booked + w.pool: "default"}, Annotations: map[string]string{"booking": w.pool},
			Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}},
		})
	}
	e.Reserve(admission, []kueue.AdmissionCheckState{check})
	e.Admit()
	w.write(own, e.Status)
}

// booked is the prefix of the label on booked nodes. Each admission has another label.
const booked = "booked.muster.dev/"

// evict is the queues: they evict the job, and admit it elsewhere.
func (w *world) evict(elsewhere string) {
	w.pool = elsewhere
	if own := w.workload(); own != nil && workload.HasQuota(own) {
		w.write(own, workload.Evicted(own, kueue.WorkloadEvictedByPreemption, "preempted", w.now))
	}
}

// ending is how long a pod takes to end.
const ending = 3 * time.Second

// runPods is the node and the scheduler: they run what is sent to nodes that are there, and
// are slow to end pods.
func (w *world) runPods() {
	for _, pod := range w.of(podKind) {
		since := pod.GetDeletionTimestamp()
		switch gates := get[[]any](pod.Object, "spec", "schedulingGates"); {
		case since != nil && !since.Add(ending).After(w.now):
			w.remove(node, pod)
		case since == nil && get[string](pod.Object, "spec", "nodeName") == "" && len(gates) == 0:
			w.edit(node, pod, func(o map[string]any) {
				set(o, "node", "spec", "nodeName")
				set(o, "Running", "status", "phase")
				set(o, []any{map[string]any{"type": "Ready", "status": "True"}}, "status", "conditions")
			})
		}
	}
}

// alive are the pods that are not over.
func (w *world) alive() (out []*unstructured.Unstructured) {
	return slices.DeleteFunc(w.of(podKind), func(pod *unstructured.Unstructured) bool {
		return phaseOf(pod) == "Succeeded" || phaseOf(pod) == "Failed"
	})
}

func phaseOf(pod *unstructured.Unstructured) string {
	return get[string](pod.Object, "status", "phase")
}

// running are the pods that may take a node.
func (w *world) running() []*unstructured.Unstructured {
	return slices.DeleteFunc(w.alive(), func(pod *unstructured.Unstructured) bool {
		return len(get[[]any](pod.Object, "spec", "schedulingGates")) > 0
	})
}

// judge verifies the promises for a change, and passes the change to the cache later.
func (w *world) judge(by string, c change) {
	w.history = append(w.history, c)
	if w.life != nil && !w.life.dead {
		w.life.news = append(w.life.news, c)
	}
	if by == muster {
		w.changes++
	}
	if own := w.workload(); by == muster && own != nil && workload.IsAdmitted(own) && !workload.IsEvicted(own) && w.actor.stops(c) {
		w.fail("Muster stops a job that may run")
	}
	switch c.object().GetKind() {
	case "Pod":
		w.judgePod(c)
	case "Workload":
		before, _ := w.typed(c.before).(*kueue.Workload)
		after, _ := w.typed(c.after).(*kueue.Workload)
		w.judgeWorkload(by, before, after)
	}
}

// judgeWorkload judges a change of a Workload; before is nil for a new one, and after for one that
// is gone.
func (w *world) judgeWorkload(by string, before, after *kueue.Workload) {
	holds := func(own *kueue.Workload) bool {
		return own != nil && workload.HasQuota(own) && !workload.IsFinished(own)
	}
	if left := len(w.running()); holds(before) && int32(left) > w.room() && by != collector && by != user {
		w.fail("%s leaves quota for %d of %d pods that are left", by, w.room(), left)
	}
	if by != muster || after == nil {
		return
	}
	if holds(before) && !holds(after) && w.actor.runs(w) && w.room() == 0 {
		w.fail("Muster gives the quota back of a job that may have pods")
	}
	if (before == nil || !workload.IsEvicted(before)) && workload.IsEvicted(after) && w.actor.runs(w) {
		w.fail("Muster evicts a job that runs")
	}
	if after.Annotations[workload.AdoptedAnnotation] != "" {
		return // it is for pods that run as they are
	}
	for i := range after.Spec.PodSets {
		for key := range after.Spec.PodSets[i].Template.Spec.NodeSelector {
			if strings.HasPrefix(key, booked) {
				w.fail("pods %s queue for the nodes of an earlier start", after.Spec.PodSets[i].Name)
			}
		}
	}
}

// judgePod judges a pod that may take a node from now on.
func (w *world) judgePod(c change) {
	gated := func(pod *unstructured.Unstructured) bool {
		return pod == nil || len(get[[]any](pod.Object, "spec", "schedulingGates")) > 0
	}
	if c.after == nil || gated(c.after) || !gated(c.before) || !w.actor.queued(w) {
		return
	}
	own := w.workload()
	if own == nil || own.Status.Admission == nil {
		w.fail("pod %s is created without quota", c.after.GetName())
		return
	}
	pool := string(own.Status.Admission.PodSetAssignments[0].Flavors["cpu"])
	if have := len(w.running()); int32(have) > w.room() {
		w.fail("%d pods run, with quota for %d", have, w.room())
	}
	selected := get[map[string]any](c.after.Object, "spec", "nodeSelector")
	for key := range selected {
		if other, ok := strings.CutPrefix(key, booked); ok && other != pool {
			w.fail("pod %s of the admission on pool %s is sent to the nodes booked on pool %s", c.after.GetName(), pool, other)
		}
	}
	for i := range own.Spec.PodSets {
		asked := get[map[string]any](c.after.Object, "spec")["containers"]
		if p := &own.Spec.PodSets[i]; asked != nil && string(p.Name) == c.after.GetLabels()[jobs.PodSetLabel] {
			want, got := p.Template.Spec.Containers[0].Resources.Requests.Cpu(),
				w.typed(c.after).(*corev1.Pod).Spec.Containers[0].Resources.Requests.Cpu()
			if got.Cmp(*want) != 0 {
				w.fail("pod %s asks for %s CPUs and has quota for %s", c.after.GetName(), got, want)
			}
		}
	}
	if selected["pool"] != pool || selected[booked+pool] != "default" {
		w.fail("pod %s of the admission on pool %s is sent to nodes with the labels %v", c.after.GetName(), pool, selected)
	}
}

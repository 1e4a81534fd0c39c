package jobs_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/controller/writes"
	. "github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// quotaCPUs is the quota of the rescaled Job's queue, one for each pod.
const quotaCPUs = 6

// rescaled is an elastic Job that a user rescales all the time, with the queue and the
// controllers around it. Each acts by itself and sees an API of its own age.
type rescaled struct {
	*rig
	rand *rand.Rand
	// cachedJob and cachedWorkloads are what the Job's reconciler sees.
	cachedJob       *batchv1.Job
	cachedWorkloads []kueue.Workload
	state           *queueing.State
	// shown are the Workloads that the queue has been shown.
	shown map[types.UID]*kueue.Workload
	// writes are the queue's, not made yet.
	writes []lifecycle.Verdict
	trace  []string
	// replaced counts the slices that others have taken the place of.
	replaced int
}

func newRescaled(t *testing.T, seed uint64) *rescaled {
	x := &rescaled{rig: newRig(t, suspendedJob(elastic)), rand: rand.New(rand.NewPCG(seed, 15))}
	*x.r.Client() = interceptor.NewClient((*x.r.Client()).(client.WithWatch),
		interceptor.Funcs{Get: x.cachedGet, List: x.cachedList, Patch: x.patch})
	x.see()
	x.restart()
	return x
}

// see brings the reconciler's caches up to date.
func (x *rescaled) see() {
	x.cachedJob = x.job()
	x.cachedWorkloads = x.live()
}

func (x *rescaled) live() []kueue.Workload {
	x.t.Helper()
	var list kueue.WorkloadList
	if err := x.c.List(context.Background(), &list); err != nil {
		x.t.Fatal(err)
	}
	return list.Items
}

func (x *rescaled) cachedGet(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
	opts ...client.GetOption) error {
	job, ok := o.(*batchv1.Job)
	if !ok {
		return c.Get(ctx, key, o, opts...)
	}
	x.cachedJob.DeepCopyInto(job)
	return nil
}

// patch counts generations, as the API server does.
func (x *rescaled) patch(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	o.SetGeneration(o.GetGeneration() + 1)
	return c.Patch(ctx, o, p, opts...)
}

func (x *rescaled) cachedList(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	workloads, ok := list.(*kueue.WorkloadList)
	if !ok {
		return c.List(ctx, list, opts...)
	}
	for i := range x.cachedWorkloads {
		if w := &x.cachedWorkloads[i]; w.Labels[JobUIDLabel] != "" {
			workloads.Items = append(workloads.Items, *w.DeepCopy())
		}
	}
	return nil
}

// restart puts a new process in the place of the one before.
func (x *rescaled) restart() {
	x.r.ForgetAll()
	x.writes = nil
	x.state, x.shown = queueing.New(config.Config{}, nil), map[types.UID]*kueue.Workload{}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "cq"}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu"},
		Flavors: []kueue.FlavorQuotas{{Name: "spot",
			Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse(fmt.Sprint(quotaCPUs))}}}},
	}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Name: "main", Namespace: "default", UID: "lq"}}
	lq.Spec.ClusterQueue = "team"
	for _, o := range []metav1.Object{
		cq, lq, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "spot",
			UID: "rf"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "ns"}},
	} {
		x.state.Set(o)
	}
	x.show()
}

// show has the queue see what has changed.
func (x *rescaled) show() {
	now := map[types.UID]*kueue.Workload{}
	for _, w := range x.live() {
		now[w.UID] = &w
	}
	for uid, w := range x.shown {
		if now[uid] == nil {
			x.state.Delete(w)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(now)) {
		x.state.Set(now[uid])
	}
	x.shown = now
}

// carryOut makes the first write that the queue has decided on.
func (x *rescaled) carryOut() {
	if len(x.writes) == 0 {
		return
	}
	v := x.writes[0]
	x.writes = x.writes[1:]
	var written *kueue.Workload
	if v.Status != nil {
		var err error
		if written, err = writes.ApplyStatus(context.Background(), x.c, v.Workload.Object, v.Status); err != nil && !apierrors.IsConflict(err) &&
			!apierrors.IsNotFound(err) {
			x.t.Fatal(err)
		}
	}
	if written != nil && workload.IsReplaced(written) {
		x.replaced++
	}
	x.state.Settle(v.Workload.Object.UID, written)
}

// other is a Workload of other jobs in the queue.
func (x *rescaled) other(cpus int32) {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("other-", x.made), Namespace: "default",
		UID: types.UID(fmt.Sprint("other-", x.made)), CreationTimestamp: metav1.NewTime(x.now)}}
	x.made++
	w.Spec.QueueName = "main"
	w.Spec.PodSets = suspendedPodSets(cpus)
	if err := x.c.Create(context.Background(), w); err != nil {
		x.t.Fatal(err)
	}
}

func suspendedPodSets(count int32) []kueue.PodSet {
	return []kueue.PodSet{{Name: "main", Count: count, Template: suspendedJob().Spec.Template}}
}

// others are the Workloads of other jobs.
func (x *rescaled) others() (out []kueue.Workload) {
	return slices.DeleteFunc(x.live(), func(w kueue.Workload) bool { return w.Labels[JobUIDLabel] != "" })
}

// runPods is the Job controller: it makes pods as the Job says, and takes the last ones
// where there are too many. Pods without the gate become ready.
func (x *rescaled) runPods() {
	job := x.job()
	pods := x.podList()
	want := int(*job.Spec.Parallelism)
	if isSuspended(job) {
		want = 0
	}
	for _, p := range pods[min(want, len(pods)):] {
		if err := x.c.Delete(context.Background(), &p); err != nil {
			x.t.Fatal(err)
		}
	}
	for i := len(pods); i < want; i++ {
		pod := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
		pod.Name, pod.Namespace = fmt.Sprintf("train-%05d", x.made), job.Namespace
		x.made++
		pod.Labels[batchv1.ControllerUidLabel] = string(job.UID)
		if err := x.c.Create(context.Background(), pod); err != nil {
			x.t.Fatal(err)
		}
	}
}

// tellPods is the Job controller's status, which comes later than its pods.
func (x *rescaled) tellPods() {
	job, pods := x.job(), x.podList()
	was := job.Status.DeepCopy()
	job.Status.Active, job.Status.Ready = int32(len(pods)), new(int32(len(open(pods))))
	job.Status.Conditions = nil
	if isSuspended(job) {
		job.Status.Conditions = condition(batchv1.JobSuspended)
	}
	if was.Active == job.Status.Active && ptr.Deref(was.Ready, -1) == *job.Status.Ready && len(was.Conditions) == len(job.Status.Conditions) {
		return
	}
	if err := x.c.Status().Update(context.Background(), job); err != nil {
		x.t.Fatal(err)
	}
}

func (x *rescaled) podList() []corev1.Pod {
	x.t.Helper()
	var list corev1.PodList
	if err := x.c.List(context.Background(), &list); err != nil {
		x.t.Fatal(err)
	}
	return list.Items
}

// open are the pods that may be scheduled.
func open(pods []corev1.Pod) (out []corev1.Pod) {
	for _, p := range pods {
		if !slices.ContainsFunc(p.Spec.SchedulingGates, IsElasticGate) {
			out = append(out, p)
		}
	}
	return out
}

func (x *rescaled) reconcile() {
	_, err := x.r.Reconcile(context.Background(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "train"}})
	if err != nil && !apierrors.IsConflict(err) {
		x.t.Fatal(err)
	}
}

// act takes a random step of one actor. If that writes, it returns the result of check.
func (x *rescaled) act() (why string) {
	steps := []struct {
		name string
		odds int
		do   func()
	}{
		{"user", 4, func() {
			n := x.rand.Int32N(quotaCPUs + 1)
			x.trace = append(x.trace, fmt.Sprint("to ", n))
			x.updateJob(func(j *batchv1.Job) {
				j.Spec.Parallelism = &n
				j.Generation++
			})
		}},
		{"pods", 6, x.runPods},
		{"job status", 6, x.tellPods},
		{"job cache", 8, func() { x.cachedJob = x.job() }},
		{"workload cache", 8, func() { x.cachedWorkloads = x.live() }},
		{"reconcile", 16, x.reconcile},
		{"queue sees", 8, x.show},
		{"cycle", 8, func() { x.writes = append(x.writes, x.state.Cycle(x.now)...) }},
		{"write", 12, x.carryOut},
		{"other", 1, func() {
			if others := x.others(); len(others) > 0 {
				if err := x.c.Delete(context.Background(), &others[0]); err != nil {
					x.t.Fatal(err)
				}
				return
			}
			x.other(1 + x.rand.Int32N(2))
		}},
		{"time", 3, func() { x.now = x.now.Add(time.Duration(x.rand.IntN(8)) * time.Second) }},
		{"restart", 1, x.restart},
	}
	sum := 0
	for _, s := range steps {
		sum += s.odds
	}
	n := x.rand.IntN(sum)
	for _, s := range steps {
		if n -= s.odds; n < 0 {
			x.trace = append(x.trace, s.name)
			if s.do(); s.name == "reconcile" || s.name == "write" {
				return x.check()
			}
			return ""
		}
	}
	return ""
}

// check says what is wrong: pods run that have no quota, or more has it than there is.
func (x *rescaled) check() string {
	var sum, own int32
	for _, w := range counted(x.live()) {
		sum += granted(w)
		if w.Labels[JobUIDLabel] != "" && workload.IsAdmitted(w) {
			own = max(own, granted(w))
		}
	}
	switch running := int32(len(open(x.podList()))); {
	case running > own:
		return fmt.Sprintf("%d pods may run, with quota for %d", running, own)
	case sum > quotaCPUs:
		return fmt.Sprintf("quota for %d pods is given of %d", sum, quotaCPUs)
	}
	return ""
}

// counted are the Workloads with quota, without those whose place another one has
// taken.
func counted(all []kueue.Workload) (out []*kueue.Workload) {
	replaced := map[string]bool{}
	for i := range all {
		if workload.HasQuota(&all[i]) {
			out = append(out, &all[i])
			replaced[all[i].Annotations[workload.ReplacementAnnotation]] = true
		}
	}
	return slices.DeleteFunc(out, func(w *kueue.Workload) bool { return replaced[SliceKey(w)] })
}

// rest lets all actors act, without a lag, until nothing changes.
func (x *rescaled) rest() {
	for range 20 {
		x.now = x.now.Add(Lag)
		x.runPods()
		x.tellPods()
		x.see()
		x.reconcile()
		x.show()
		x.writes = append(x.writes, x.state.Cycle(x.now)...)
		for len(x.writes) > 0 {
			x.carryOut()
		}
	}
}

// TestAJobThatIsRescaledAllTheTime never runs more pods than have quota, whatever the
// order in which its user, the queue, the controllers and their caches come to act, and
// runs all of its pods once it is left alone.
func TestAJobThatIsRescaledAllTheTime(t *testing.T) {
	const seeds = 25
	replaced := 0
	for seed := range uint64(seeds) {
		x := newRescaled(t, seed)
		fail := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("seed %d: %s\nslices: %s\nsteps: %s", seed, fmt.Sprintf(format, args...), x.slices(), strings.Join(x.trace, ", "))
		}
		x.rest()
		for range 150 {
			if why := x.act(); why != "" {
				fail("%s", why)
			}
		}
		for _, w := range x.others() {
			if err := x.c.Delete(t.Context(), &w); err != nil {
				t.Fatal(err)
			}
		}
		x.updateJob(func(j *batchv1.Job) {
			j.Spec.Parallelism = new(min(*j.Spec.Parallelism, quotaCPUs))
			j.Generation++
		})
		x.rest()
		if why := x.check(); why != "" {
			fail("at rest %s", why)
		}
		var own int32
		for _, w := range counted(x.live()) {
			own += granted(w)
		}
		want := *x.job().Spec.Parallelism
		if running := int32(len(open(x.podList()))); running != want || own != want || want > 0 && isSuspended(x.job()) {
			fail("at rest %d pods may run of %d, and quota is for %d", running, want, own)
		}
		replaced += x.replaced
	}
	if replaced < seeds {
		t.Errorf("only %d slices were replaced in %d Jobs: too few to prove anything", replaced, seeds)
	}
}

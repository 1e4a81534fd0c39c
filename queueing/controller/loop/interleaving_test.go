package loop

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
)

var interleavings = flag.Int("interleavings", 2000, "how many seeds TestInterleavings plays; with -short, a quarter of them")

// server is an API server that keeps objects by their UID, without the costs of a real
// one: an interleaving takes a few milliseconds.
type server struct {
	version int
	objects map[types.UID]client.Object
	// log has the versions of each object that informers have not delivered, the oldest
	// first.
	log map[types.UID][]change
	// fault is called for each write. It returns whether the write takes effect, and the error to return.
	fault func() (effect bool, err error)
}

var errTimeout = apierrors.NewTimeoutError("injected", 0)

// put stores a version and leaves the news of it.
func (s *server) put(o client.Object) {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[o.GetUID()] = o
	s.log[o.GetUID()] = append(s.log[o.GetUID()], change{object: o})
}

func (s *server) delete(o client.Object) {
	delete(s.objects, o.GetUID())
	s.log[o.GetUID()] = append(s.log[o.GetUID()], change{object: o, gone: true})
}

func (s *server) find(o client.Object) client.Object {
	for _, have := range s.objects {
		if reflect.TypeOf(have) == reflect.TypeOf(o) && have.GetName() == o.GetName() && have.GetNamespace() == o.GetNamespace() {
			return have
		}
	}
	return nil
}

// write carries out a write of one object, guarded by the version that it is meant for.
func (s *server) write(o client.Object, version string, mutate func(copied client.Object) error) (client.Object, error) {
	effect, fault := s.fault()
	if !effect {
		return nil, fault
	}
	resource := schema.GroupResource{Resource: "objects"}
	have := s.find(o)
	switch {
	case have == nil:
		return nil, apierrors.NewNotFound(resource, o.GetName())
	case version != "" && version != have.GetResourceVersion():
		return nil, apierrors.NewConflict(resource, o.GetName(), nil)
	}
	copied := have.DeepCopyObject().(client.Object)
	if err := mutate(copied); err != nil {
		return nil, err
	}
	s.put(copied)
	return copied, fault
}

// client gives the loop the calls that it makes.
func (s *server) client() client.WithWatch {
	return interceptor.NewClient(nil, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			o.SetName(key.Name)
			o.SetNamespace(key.Namespace)
			have := s.find(o)
			if have == nil {
				return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
			}
			reflect.ValueOf(o).Elem().Set(reflect.ValueOf(have.DeepCopyObject()).Elem())
			return nil
		},
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
			effect, fault := s.fault()
			if have := s.find(o); effect && have != nil {
				s.delete(have)
			}
			return fault
		},
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, p client.Patch, _ ...client.PatchOption) error {
			written, err := s.write(o, "", func(copied client.Object) error {
				if _, ok := copied.(*kueue.LocalQueue); ok {
					data, err := p.Data(o) // its standing, which decides nothing
					return errors.Join(err, json.Unmarshal(data, copied))
				}
				copied.(*kueue.Workload).Spec = *o.(*kueue.Workload).Spec.DeepCopy()
				copied.SetGeneration(copied.GetGeneration() + 1)
				copied.SetFinalizers(o.GetFinalizers())
				return nil
			})
			if written != nil && !written.GetDeletionTimestamp().IsZero() && len(written.GetFinalizers()) == 0 {
				s.delete(written)
			}
			if err == nil {
				reflect.ValueOf(o).Elem().Set(reflect.ValueOf(written.DeepCopyObject()).Elem())
			}
			return err
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, _ string, o client.Object, p client.Patch,
			_ ...client.SubResourcePatchOption) error {
			data, err := p.Data(o)
			if err != nil {
				return err
			}
			var applied struct {
				Metadata struct{ ResourceVersion string }
				Status   kueue.WorkloadStatus
			}
			if err := json.Unmarshal(data, &applied); err != nil {
				return err
			}
			written, err := s.write(o, applied.Metadata.ResourceVersion, func(copied client.Object) error {
				w := copied.(*kueue.Workload)
				ended := w.Status.ReclaimablePods // they have an owner of their own
				w.Status = applied.Status
				w.Status.ReclaimablePods = ended
				return nil
			})
			if err == nil {
				*o.(*kueue.Workload) = *written.DeepCopyObject().(*kueue.Workload)
			}
			return err
		},
		SubResourceUpdate: func(_ context.Context, _ client.Client, _ string, o client.Object, _ ...client.SubResourceUpdateOption) error {
			written, err := s.write(o, o.GetResourceVersion(), func(copied client.Object) error {
				from, to := reflect.ValueOf(o).Elem(), reflect.ValueOf(copied).Elem()
				to.FieldByName("Status").Set(from.FieldByName("Status"))
				return nil
			})
			if err == nil {
				o.SetResourceVersion(written.GetResourceVersion())
			}
			return err
		},
	})
}

// interleaving is a loop, its API server, and all that stands between them, which one
// seed puts in some order: writes under way, answers to them, and news of objects.
type interleaving struct {
	*server
	random  *rand.Rand
	config  config.Config
	loop    *Loop
	now     time.Time
	next    time.Time
	created int
	// ended is how many pods of a Workload had ended at most while it has its quota.
	ended map[types.UID]int32
	// again are Workloads whose pods run again, by how many had ended. missed are those whose loop has ended since, or has judged
	// nothing by then: the next one sees quota that is exceeded, but not by which Workload.
	again, missed map[types.UID]int32
	// stepped: the loop has judged something since its start.
	stepped bool
	writes  []writes.Write
	answers []writes.Done
	trace   []string
	// occurred counts the situations that must have occurred for the test to prove anything.
	occurred map[string]int
}

func newInterleaving(seed uint64, occurred map[string]int) *interleaving {
	s := &server{objects: map[types.UID]client.Object{}, log: map[types.UID][]change{}}
	i := &interleaving{server: s, random: rand.New(rand.NewPCG(seed, 15)), now: start, occurred: occurred}
	i.ended, i.again, i.missed = map[types.UID]int32{}, map[types.UID]int32{}, map[types.UID]int32{}
	i.fault = func() (bool, error) { return true, nil }
	i.config = i.settings()
	for _, o := range i.queues() {
		o.SetUID(types.UID(fmt.Sprintf("%T-%s", o, o.GetName())))
		o.SetGeneration(1)
		i.put(o)
	}
	i.restart()
	return i
}

func (i *interleaving) pick(of ...string) string { return of[i.random.IntN(len(of))] }

func (i *interleaving) settings() (c config.Config) {
	if i.random.IntN(4) == 0 {
		c.FairSharing = &kueueconfig.FairSharing{}
	}
	if i.random.IntN(4) == 0 {
		c.WaitForPodsReady = &kueueconfig.WaitForPodsReady{Timeout: metav1.Duration{Duration: time.Hour}, BlockAdmission: new(true)}
	}
	return c
}

// queues returns one to three ClusterQueues, alone or in cohorts that lend, borrow and preempt.
func (i *interleaving) queues() (out []client.Object) {
	quantity := func(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
	quotas := func(borrows bool) []kueue.ResourceGroup {
		group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"cpu"}}
		for _, name := range []string{"spot", "ondemand"}[:1+i.random.IntN(2)] {
			q := kueue.ResourceQuota{Name: "cpu", NominalQuota: quantity(i.random.IntN(7))}
			if borrows && i.random.IntN(3) == 0 {
				q.BorrowingLimit = new(quantity(i.random.IntN(4)))
			}
			if borrows && i.random.IntN(3) == 0 {
				q.LendingLimit = new(quantity(i.random.IntN(4)))
			}
			group.Flavors = append(group.Flavors, kueue.FlavorQuotas{
				Name: kueue.ResourceFlavorReference(name), Resources: []kueue.ResourceQuota{q},
			})
		}
		return []kueue.ResourceGroup{group}
	}
	for _, name := range []string{"spot", "ondemand"} {
		out = append(out, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	out = append(out, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	cohort := i.pick("", "root", "leaf")
	if cohort == "leaf" {
		out = append(out, &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "leaf"}, Spec: kueue.CohortSpec{ParentName: "root"}})
	}
	for n := range 1 + i.random.IntN(3) {
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("queue-%d", n)}}
		cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
		cq.Spec.QueueingStrategy = kueue.QueueingStrategy(i.pick(string(kueue.BestEffortFIFO), string(kueue.BestEffortFIFO),
			string(kueue.StrictFIFO)))
		cq.Spec.CohortName = kueue.CohortReference(cohort)
		if cohort == "leaf" && n == 0 {
			cq.Spec.CohortName = "root"
		}
		cq.Spec.ResourceGroups = quotas(cohort != "")
		cq.Spec.Preemption = &kueue.ClusterQueuePreemption{
			WithinClusterQueue:  kueue.PreemptionPolicy(i.pick("Never", "Never", "LowerPriority", "LowerOrNewerEqualPriority")),
			ReclaimWithinCohort: kueue.PreemptionPolicy(i.pick("Never", "LowerPriority", "Any")),
		}
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("lq-%d", n), Namespace: "default"}}
		lq.Spec.ClusterQueue = kueue.ClusterQueueReference(cq.Name)
		out = append(out, cq, lq)
	}
	return out
}

// restart puts another process in the place of the one before, whose writes are over.
func (i *interleaving) restart() {
	i.loop = New(i.client(), i.client(), Config{Settings: i.config})
	i.loop.writer.Recorder = silent{}
	i.loop.now = func() time.Time { return i.now }
	i.loop.start = func(_ writes.Urgency, _ string, w writes.Write) { i.writes = append(i.writes, w) }
	i.loop.beside = func(func() writes.Done) {}
	i.writes, i.answers = nil, nil
	maps.Copy(i.missed, i.again)
	clear(i.again)
	i.stepped = false
	clear(i.log)
	for _, o := range i.objects {
		i.loop.inbox.OnAdd(o, true)
	}
	i.next = time.Time{}
}

// silent takes Events.
type silent struct{}

func (silent) Eventf(apiruntime.Object, apiruntime.Object, string, string, string, string, ...any) {}

// workloads are those on the server, in the order of their names.
func (i *interleaving) workloads() (out []*kueue.Workload) {
	for _, o := range i.objects {
		if w, ok := o.(*kueue.Workload); ok {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b *kueue.Workload) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (i *interleaving) note(format string, args ...any) {
	i.trace = append(i.trace, fmt.Sprintf(format, args...))
}

// act is a step of a user, or of the job controller.
func (i *interleaving) act() {
	all := i.workloads()
	if len(all) == 0 || i.random.IntN(5) < 2 {
		w := workloadOf(fmt.Sprintf("w-%d", i.created), fmt.Sprint(1+i.random.IntN(4)))
		i.created++
		w.Spec.QueueName = kueue.LocalQueueName(fmt.Sprintf("lq-%d", i.random.IntN(3)))
		w.Spec.Priority = new(i.random.Int32N(3))
		w.CreationTimestamp = metav1.NewTime(i.now.Truncate(time.Second))
		w.Generation = 1
		if i.random.IntN(2) == 0 {
			w.Spec.PodSets[0].Count = 2 + i.random.Int32N(3)
			w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1")
		}
		if i.random.IntN(3) == 0 {
			w.Finalizers = []string{i.pick("example.com/keep", kueue.ResourceInUseFinalizerName)}
		}
		if i.random.IntN(3) == 0 {
			w.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: w.Name, UID: w.UID, Controller: new(true)}}
		}
		i.note("create %s priority %d, %d × %s CPUs in %s", w.Name, *w.Spec.Priority, w.Spec.PodSets[0].Count,
			w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests.Cpu(), w.Spec.QueueName)
		i.put(w)
		return
	}
	w := all[i.random.IntN(len(all))].DeepCopy()
	several := func(w *kueue.Workload) bool {
		return workload.IsAdmitted(w) && !workload.IsEvicted(w) && !workload.IsFinished(w) && w.Spec.PodSets[0].Count > 1
	}
	running := slices.DeleteFunc(slices.Clone(all), func(w *kueue.Workload) bool { return !several(w) })
	if len(running) > 0 && i.random.IntN(2) == 0 {
		i.pods(running[i.random.IntN(len(running))].DeepCopy())
		return
	}
	switch {
	case workload.IsFinished(w):
		i.remove(w)
	case workload.IsEvicted(w) && workload.HasQuota(w) && workload.IsAdmitted(w) && len(w.OwnerReferences) > 0:
		i.note("stopped %s", w.Name)
		i.stopped(w)
	case workload.IsAdmitted(w) && !apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadPodsReady) && i.random.IntN(2) == 0:
		i.note("pods ready %s", w.Name)
		apimeta.SetStatusCondition(&w.Status.Conditions,
			metav1.Condition{Type: kueue.WorkloadPodsReady, Status: metav1.ConditionTrue, Reason: kueue.WorkloadStarted})
		i.put(w)
	case workload.IsAdmitted(w) && i.random.IntN(3) > 0:
		i.note("finish %s", w.Name)
		w.Status = *workload.Finished(w, "Succeeded", "", i.now)
		i.put(w)
	default:
		switch i.random.IntN(4) {
		case 0:
			i.remove(w)
		case 1:
			i.note("active=%v %s", !workload.IsActive(w), w.Name)
			w.Spec.Active = new(!workload.IsActive(w))
			w.Generation++
			i.put(w)
		case 2:
			w.Spec.Priority = new(i.random.Int32N(3))
			i.note("priority %d %s", *w.Spec.Priority, w.Name)
			w.Generation++
			i.put(w)
		case 3:
			i.note("label %s", w.Name)
			w.Labels = map[string]string{"label": fmt.Sprint(i.random.IntN(100))}
			i.put(w)
		}
	}
}

// remove deletes a Workload, which its finalizer keeps until it is deleted again.
func (i *interleaving) remove(w *kueue.Workload) {
	i.note("delete %s", w.Name)
	if len(w.Finalizers) == 0 || !w.DeletionTimestamp.IsZero() {
		i.delete(w)
		return
	}
	w.DeletionTimestamp = new(metav1.NewTime(i.now.Truncate(time.Second)))
	i.occurred["deletions in progress"]++
	i.put(w)
}

// pods of a Workload end, or run again after a restart of their job.
func (i *interleaving) pods(w *kueue.Workload) {
	var before int32
	if len(w.Status.ReclaimablePods) > 0 {
		before = w.Status.ReclaimablePods[0].Count
	}
	over := i.random.Int32N(w.Spec.PodSets[0].Count)
	if before > 0 && i.random.IntN(2) == 0 {
		over = i.random.Int32N(before)
	}
	i.note("%d pods of %s are over, after %d", over, w.Name, before)
	if over < before {
		i.occurred["pods that run again"]++
		lost := i.again
		if !i.stepped {
			lost = i.missed
		}
		lost[w.UID] = max(lost[w.UID], before)
	} else if over > before {
		i.occurred["pods that end"]++
	}
	w.Status.ReclaimablePods = nil
	if over > 0 {
		w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: w.Spec.PodSets[0].Name, Count: over}}
	}
	i.ended[w.UID] = max(i.ended[w.UID], before, over)
	i.put(w)
}

// stopped releases what an evicted Workload holds. The next attempt has all pods.
func (i *interleaving) stopped(w *kueue.Workload) {
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted); c != nil && c.Reason == lifecycle.ReasonQuotaReused {
		i.occurred["stopped for quota that was in use again"]++
	}
	w.Status = *workload.Released(w, i.now)
	w.Status.ReclaimablePods = nil
	delete(i.ended, w.UID)
	delete(i.again, w.UID)
	delete(i.missed, w.UID)
	i.put(w)
}

// take takes a random one out of a list.
func take[T any](r *rand.Rand, list *[]T) (out T) {
	n := r.IntN(len(*list))
	out = (*list)[n]
	*list = slices.Delete(*list, n, n+1)
	return out
}

// deliver brings the news of one object: the next version, or one of the later ones, as
// an informer that was cut off does; sometimes once more.
func (i *interleaving) deliver() {
	uids := slices.Sorted(maps.Keys(i.log))
	if len(uids) == 0 {
		return
	}
	uid := uids[i.random.IntN(len(uids))]
	news := i.log[uid]
	n := 0
	if i.random.IntN(4) == 0 {
		n = i.random.IntN(len(news))
	}
	c := news[n]
	if i.log[uid] = news[n+1:]; n+1 == len(news) {
		delete(i.log, uid)
	}
	i.note("news of %s, version %s, gone %v", c.object.GetName(), c.object.GetResourceVersion(), c.gone)
	for range 1 + i.random.IntN(5)/4 {
		if c.gone && i.random.IntN(2) == 0 {
			i.loop.inbox.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: c.object})
		} else if c.gone {
			i.loop.inbox.OnDelete(c.object)
		} else {
			i.loop.inbox.OnUpdate(c.object, c.object)
		}
	}
}

func (i *interleaving) write() {
	if len(i.writes) > 0 {
		i.note("a write")
		i.answers = append(i.answers, take(i.random, &i.writes)(context.Background()))
	}
}

func (i *interleaving) answer() {
	if len(i.answers) > 0 {
		i.note("an answer")
		i.loop.inbox.done(take(i.random, &i.answers))
	}
}

func (i *interleaving) step() {
	i.note("step")
	i.next = i.loop.step(i.now)
	i.stepped = true
}

// trees are the ClusterQueues on the server with what is used in them, counted apart from
// the State.
func (i *interleaving) trees() map[string]*quota.Node {
	amount := func(q *resource.Quantity) *int64 {
		if q == nil {
			return nil
		}
		return new(q.MilliValue())
	}
	cohorts := map[kueue.CohortReference]*quota.Node{"root": quota.NewNode("root", 1000, nil), "leaf": quota.NewNode("leaf", 1000, nil)}
	nodes := map[string]*quota.Node{}
	for _, o := range i.objects {
		cq, ok := o.(*kueue.ClusterQueue)
		if !ok {
			continue
		}
		own := map[quota.FlavorResource]quota.Quota{}
		for _, f := range cq.Spec.ResourceGroups[0].Flavors {
			r := f.Resources[0]
			own[quota.FlavorResource{Flavor: f.Name, Resource: r.Name}] = quota.Quota{
				Nominal: r.NominalQuota.MilliValue(), Borrowing: amount(r.BorrowingLimit), Lending: amount(r.LendingLimit),
			}
		}
		nodes[cq.Name] = quota.NewNode(cq.Name, 1000, own)
		if cohort := cohorts[cq.Spec.CohortName]; cohort != nil {
			nodes[cq.Name].Join(cohort)
		}
	}
	cohorts["leaf"].Join(cohorts["root"])
	for _, w := range i.workloads() {
		if !workload.HasQuota(w) {
			continue
		}
		for _, ps := range w.Status.Admission.PodSetAssignments {
			// Pods that run again may exceed the quota, if it was assigned to others meanwhile, until one Workload is evicted.
			running, all := int64(*ps.Count-min(*ps.Count, i.ended[w.UID])), int64(*ps.Count)
			for name, v := range ps.ResourceUsage {
				used := quota.Amounts{{Flavor: ps.Flavors[name], Resource: name}: v.MilliValue() * running / all}
				nodes[string(w.Status.Admission.ClusterQueue)].Add(used)
			}
		}
	}
	return nodes
}

// check verifies that no quota is exceeded, as a watcher of the server sees it, and that blockAdmission blocks.
func (i *interleaving) check() error {
	var starting []string
	for _, w := range i.workloads() {
		if workload.HasQuota(w) && !apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadPodsReady) {
			starting = append(starting, w.Name)
		}
	}
	if i.config.WaitForPodsReady != nil && len(starting) > 1 {
		return fmt.Errorf("%v have quota at once while their pods are not ready, and blockAdmission is on", starting)
	}
	for name, n := range i.trees() {
		for _, fr := range n.Keys() {
			if v := n.Available(fr); v < 0 {
				return fmt.Errorf("queue %s uses %d thousandths of %v more than it may", name, -v, fr)
			}
		}
	}
	return nil
}

// settle completes all pending events and writes. Time passes only for retries of failed writes, so that no timer hides a missed wake-up.
func (i *interleaving) settle() {
	i.fault = func() (bool, error) { return true, nil }
	for range 10_000 {
		switch {
		case len(i.log) > 0:
			i.deliver()
		case len(i.writes) > 0:
			i.write()
		case len(i.answers) > 0:
			i.answer()
		case len(i.loop.inbox.changes)+len(i.loop.inbox.ended) > 0:
			i.step()
		case len(i.loop.retries.rest) > 0:
			i.now = i.loop.retries.next()
			i.step()
		default:
			i.step()
			if len(i.writes)+len(i.answers)+len(i.log) == 0 {
				return
			}
		}
	}
	panic("it never settles")
}

// String describes the objects on the server.
func (i *interleaving) String() string {
	var out strings.Builder
	for _, uid := range slices.Sorted(maps.Keys(i.objects)) {
		switch o := i.objects[uid].(type) {
		case *kueue.ClusterQueue:
			fmt.Fprintf(&out, "%s in %q, %s:", o.Name, o.Spec.CohortName, o.Spec.QueueingStrategy)
			for _, f := range o.Spec.ResourceGroups[0].Flavors {
				r := f.Resources[0]
				fmt.Fprintf(&out, " %s=%s/%s/%s", f.Name, r.NominalQuota.String(), r.BorrowingLimit, r.LendingLimit)
			}
			fmt.Fprintf(&out, ", within %s, reclaim %s\n", o.Spec.Preemption.WithinClusterQueue, o.Spec.Preemption.ReclaimWithinCohort)
		case *kueue.Workload:
			fmt.Fprintf(&out, "%s in %s, priority %d, %s CPUs", o.Name, o.Spec.QueueName, *o.Spec.Priority,
				o.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests.Cpu())
			for _, c := range o.Status.Conditions {
				fmt.Fprintf(&out, " %s=%s", c.Type, c.Status)
			}
			fmt.Fprintln(&out)
		}
	}
	return out.String()
}

// stopEvicted stops the pods of all evicted Workloads, and reports whether there were any. Until then, their quota is reserved for the
// Workloads that preempted them.
func (i *interleaving) stopEvicted() (some bool) {
	for _, w := range i.workloads() {
		if workload.IsEvicted(w) && workload.HasQuota(w) {
			i.stopped(w.DeepCopy())
			some = true
		}
	}
	return some
}

// mostRounds is how often Workloads stop for others at most until all rest.
const mostRounds = 100

// rest completes all that is pending, including the pods of evicted Workloads.
func (i *interleaving) rest() {
	i.settle()
	for n := 0; i.stopEvicted(); n++ {
		if n == mostRounds {
			panic("Workloads preempt each other in a circle")
		}
		i.settle()
	}
}

// allRun forgets which pods had ended before those of a restart ran: by then what exceeds the quota has stopped.
func (i *interleaving) allRun() {
	i.ended = maps.Clone(i.missed)
	for _, w := range i.workloads() {
		if len(w.Status.ReclaimablePods) > 0 {
			i.ended[w.UID] = max(i.ended[w.UID], w.Status.ReclaimablePods[0].Count)
		}
	}
}

// sleepers are what a process that starts now would do and this one does not, although
// it has seen everything.
func (i *interleaving) sleepers() []string {
	other := queueing.New(i.config, nil)
	for _, o := range i.objects {
		other.Set(o)
	}
	var out []string
	for _, v := range other.Cycle(i.now) {
		// With fair sharing, two Workloads may preempt each other in turn. It stops with one of them, and a new process may begin again.
		inTurn := i.config.FairSharing != nil && v.Action == lifecycle.Evict &&
			workload.Evictions(v.Workload.Object, kueue.WorkloadEvictedByPreemption, "") > 0
		if v.Action != lifecycle.Wait && !inTurn {
			out = append(out, fmt.Sprintf("%v %s: %s", v.Action, v.Workload.Object.Name, v.Message))
		}
	}
	for _, w := range i.workloads() {
		if reason, message, _ := i.loop.state.WaitingReason(w.UID); message != "" {
			out = append(out, fmt.Sprintf("(told %s: %s: %s)", w.Name, reason, message))
		}
	}
	if len(out) > 0 && strings.HasPrefix(out[0], "(") {
		return nil
	}
	return out
}

// play plays one seed, and returns what went wrong.
func play(seed uint64, occurred map[string]int) (i *interleaving, err error) {
	i = newInterleaving(seed, occurred)
	faults := i.random.IntN(3) == 0
	for range 40 + i.random.IntN(80) {
		i.fault = func() (bool, error) {
			switch n := i.random.IntN(20); {
			case !faults || n > 2:
				return true, nil
			case n == 0:
				return true, errTimeout
			case n == 1:
				return false, errTimeout
			}
			return false, context.DeadlineExceeded
		}
		switch n := i.random.IntN(20); {
		case n < 4:
			i.act()
		case n < 9:
			i.deliver()
		case n < 12:
			i.write()
		case n < 15:
			i.answer()
		case n < 19:
			i.now = i.now.Add(time.Duration(i.random.IntN(3)) * tick)
			i.step()
		case i.random.IntN(10) == 0:
			i.note("restart")
			i.restart()
			occurred["restarts"]++
		}
		if err := i.check(); err != nil {
			return i, err
		}
	}
	i.rest()
	i.allRun()
	if i.config.FairSharing != nil {
		// Quota that one gets makes it one to preempt for others with a smaller share. They
		// are judged again within ten seconds, not at once.
		i.now = i.now.Add(10 * time.Second)
		i.step()
		i.rest()
	}
	if err := i.check(); err != nil {
		return i, err
	}
	for _, w := range i.workloads() {
		if workload.HasQuota(w) {
			occurred["with quota"]++
		} else if !workload.IsFinished(w) {
			occurred["waiting"]++
		}
	}
	if s := i.sleepers(); len(s) > 0 {
		return i, fmt.Errorf("a process that starts now would act:\n  %s", strings.Join(s, "\n  "))
	}
	return i, i.probe()
}

// probe deletes all Workloads, and then requests the whole quota of each flavor in turn: quota that leaked would be missing.
func (i *interleaving) probe() error {
	empty := func() {
		for _, w := range i.workloads() {
			i.delete(w)
		}
		clear(i.ended)
		i.settle()
	}
	empty()
	trees := i.trees()
	for _, name := range slices.Sorted(maps.Keys(trees)) {
		var most int64
		for _, fr := range trees[name].Keys() {
			most = max(most, trees[name].Potential(fr))
		}
		if most == 0 {
			continue
		}
		w := workloadOf("probe-"+name, fmt.Sprintf("%dm", most))
		w.Spec.QueueName = kueue.LocalQueueName("lq-" + strings.TrimPrefix(name, "queue-"))
		i.put(w)
		i.settle()
		if got := i.objects[w.UID].(*kueue.Workload); !workload.HasQuota(got) {
			reason, message, _ := i.loop.state.WaitingReason(w.UID)
			return fmt.Errorf("%d thousandths of a CPU cannot be had in the empty %s: %s: %s", most, name, reason, message)
		}
		empty()
	}
	return nil
}

// found are seeds, beyond those that always run, that have failed once.
var found = []uint64{35733, 44008, 44961, 89425}

// TestInterleavings runs jobs in small trees of queues under every order of events: events are late, repeated, or skip versions;
// responses to writes come before or after their events; writes fail, with and without effect; deletions wait for finalizers; pods end,
// and run again; the process is replaced. Quota is never exceeded, and no Workload is admitted while blockAdmission is set. At the end, a
// process that starts now has nothing to do: every Workload that could start has started, and all quota that is used belongs to a
// Workload.
func TestInterleavings(t *testing.T) {
	number := *interleavings
	if testing.Short() {
		number /= 4
	}
	var mu sync.Mutex
	all := map[string]int{}
	failed := 0
	var group sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for n := range workers {
		group.Go(func() {
			occurred := map[string]int{}
			var seeds []uint64
			if n == 0 {
				seeds = slices.Clone(found)
			}
			for seed := n; seed < number; seed += workers {
				seeds = append(seeds, uint64(seed))
			}
			for _, seed := range seeds {
				i, err := play(seed, occurred)
				if err == nil {
					continue
				}
				mu.Lock()
				if failed++; failed <= 3 {
					t.Errorf("seed %d: %v\n%s\nAt the end:\n%s", seed, err, strings.Join(i.trace, "\n"), i)
				}
				mu.Unlock()
			}
			mu.Lock()
			for k, v := range occurred {
				all[k] += v
			}
			mu.Unlock()
		})
	}
	group.Wait()
	if failed > 0 {
		t.Errorf("%d of %d seeds failed", failed, number)
	}
	t.Logf("at the end of %d seeds: %v", number, all)
	for _, k := range []string{"with quota", "waiting", "restarts", "deletions in progress", "pods that end", "pods that run again"} {
		if all[k] < number/10 {
			t.Errorf("%s: %d in %d seeds; too few to prove anything", k, all[k], number)
		}
	}
}

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/controller/journal"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// again is the requeue delay where no event is expected.
	again = 300 * time.Millisecond
	// leavingAgain is the requeue delay for a deletion in a worker, in case its event is missed.
	leavingAgain = 2 * time.Second
	// showEvery is the shortest interval between two updates of a remote job's status. A job that starts or ends changes its status
	// several times a second.
	showEvery = time.Second
	// lag is the longest time that a cache is expected to lag behind a write. After that, the written version is not assumed any more.
	lag = 5 * time.Second
)

// copies is a dispatcher that creates the copies itself.
type copies struct {
	*dispatcher
	scheme *runtime.Scheme
	kinds  map[schema.GroupKind]Kind
	// written are versions of Workloads that this process has written and that the cache may not have yet.
	written expected
	// named are the clusters that this process has nominated and not granted since.
	named named
	// sharing is locked while a Workload of a shared object is offered to a cluster or cleared from it.
	sharing sync.Mutex

	known sync.Mutex
}

// addCopies sets up the controller of the copies.
func addCopies(mgr ctrl.Manager, d *dispatcher, kinds []Kind) (*copies, error) {
	d.workers.writer = mgr.GetClient()
	return newCopies(d, mgr.GetScheme(), kinds), addChecks(mgr)
}

func newCopies(d *dispatcher, scheme *runtime.Scheme, kinds []Kind) *copies {
	c := &copies{dispatcher: d, scheme: scheme, kinds: map[schema.GroupKind]Kind{}, written: newExpected(d.clock), named: newNamed()}
	d.workers.kinds, d.workers.self.groups = kinds, map[schema.GroupKind]bool{}
	for _, k := range kinds {
		kind := k.GroupVersionKind().GroupKind()
		held, ok := k.(Held)
		c.kinds[kind], d.workers.self.groups[kind] = k, ok && held.IsGroup()
	}
	return c
}

// identify reads the identity that the manager has in its workers.
func (c *copies) identify(ctx context.Context) error {
	c.known.Lock()
	defer c.known.Unlock()
	if c.workers.self.id != "" {
		return nil
	}
	uid, err := uidOf(ctx, c.live)
	if err != nil {
		return fmt.Errorf("reading what tells this cluster from other managers: %w", err)
	}
	c.workers.self.id = string(uid)
	return nil
}

// Reconcile implements reconcile.Reconciler.
func (c *copies) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if err := c.identify(ctx); err != nil {
		return reconcile.Result{}, err
	}
	s := &situation{Workload: &kueue.Workload{}}
	if err := c.client.Get(ctx, request.NamespacedName, s.Workload); apierrors.IsNotFound(err) {
		s.gone, s.Namespace, s.Name = true, request.Namespace, request.Name
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if c.written.awaits(s.Workload) {
		return reconcile.Result{}, nil // the version that was written comes as an event
	}
	version := s.ResourceVersion
	defer func() {
		if s.ResourceVersion != version {
			c.written.add(s.Workload)
		}
	}()
	for range mostSteps {
		goesOn, result, err := c.goOn(ctx, s)
		if !goesOn || err != nil {
			return result, err
		}
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// mostSteps is how many steps of a Workload one reconcile may take: from the nomination to the grant, or from the commitment to the job.
const mostSteps = 4

// goOn takes one step for a Workload. goesOn reports whether s holds the result of the step, so that the next step needs no event.
func (c *copies) goOn(ctx context.Context, s *situation) (goesOn bool, _ reconcile.Result, _ error) {
	if err := c.read(ctx, s); err != nil || s.job == nil {
		return false, reconcile.Result{}, err
	}
	if err := c.prioritize(ctx, s); err != nil {
		return false, reconcile.Result{}, err
	}
	if s.gone {
		// A missing Workload has its copies deleted, so the cache is confirmed by a live read.
		switch err := c.live.Get(ctx, client.ObjectKeyFromObject(s.Workload), &kueue.Workload{}); {
		case err == nil:
			return false, reconcile.Result{RequeueAfter: again}, nil
		case !apierrors.IsNotFound(err):
			return false, reconcile.Result{}, err
		}
	}
	step := c.decide(ctx, s.Workload, s.clusters, func() dispatch.Step { return dispatch.Manage(s.job, s.clusters, c.clock.Now()) })
	leave, may := c.workers.enter(calls(&step))
	if !may {
		return false, reconcile.Result{RequeueAfter: slowAgain}, nil
	}
	done, err := c.carryOut(ctx, s, &step)
	leave()
	switch {
	case err == nil && !done && step.Do == dispatch.Clear:
		return false, reconcile.Result{RequeueAfter: leavingAgain}, nil
	case apierrors.IsConflict(err), err == nil && !done:
		return false, reconcile.Result{RequeueAfter: again}, nil // a live read showed another state
	case err != nil:
		return false, reconcile.Result{}, err
	case !step.At.IsZero():
		return false, reconcile.Result{RequeueAfter: max(time.Millisecond, step.At.Sub(c.clock.Now()))}, nil
	}
	return step.Do == dispatch.Nominate || step.Do == dispatch.Offer || step.Do == dispatch.Commit, reconcile.Result{}, nil
}

// calls returns the clusters that a step calls.
func calls(step *dispatch.Step) []string {
	switch step.Do {
	case dispatch.Offer, dispatch.Grant, dispatch.Follow, dispatch.Finish:
		return []string{step.Cluster}
	default:
		return step.Gone
	}
}

// situation is the state of a Workload that a step is decided on.
type situation struct {
	*kueue.Workload
	// gone: the Workload does not exist. Copies of it may.
	gone     bool
	check    *kueue.AdmissionCheckState
	job      *dispatch.Job
	clusters []dispatch.Cluster
}

// read fills in the state of a Workload. s.job stays nil if the Workload needs no other cluster.
func (c *copies) read(ctx context.Context, s *situation) (err error) {
	config := &kueue.MultiKueueConfig{}
	if !s.gone {
		var found *kueue.MultiKueueConfig
		if s.check, found, err = c.checkOf(ctx, s.Workload); err != nil {
			return err
		}
		if found != nil {
			config = found
		}
	}
	record, err := dispatch.DecodeRecord(s.Annotations[dispatch.Annotation])
	if err != nil {
		c.event(s.Workload, corev1.EventTypeWarning, "BadRecord", err.Error())
		return nil // until it is edited
	}
	j := &dispatch.Job{
		Open: s.check != nil && isOpen(s.Workload, s.check), Over: s.gone || isOver(s.Workload, s.check),
		Runs: ptr.Deref(s.Status.ClusterName, ""), Nominated: s.Status.NominatedClusterNames, Record: record,
	}
	if j.Hedge, err = dispatch.ParseHedge(s.Annotations[dispatch.HedgeAnnotation]); err != nil {
		c.event(s.Workload, corev1.EventTypeWarning, "BadHedge", err.Error()+"; one is asked at a time")
	}
	s.clusters = c.view(ctx, s.Workload, config, &record)
	with, err := c.partnersOf(ctx, c.client, s.Workload)
	if err != nil {
		return err
	}
	for i := range s.clusters {
		x := &s.clusters[i]
		x.Ungranted = !x.Connected && c.named.has(s.UID, x.Name)
		x.Lacks = cmp.Or(x.Lacks, with.lacks(x.Name))
		if x.Idle != "" && x.Copy != nil && x.Name == j.Runs {
			if x.Copy.Held, err = c.isHeldIn(ctx, s, x.Name); err != nil {
				return err
			}
		}
	}
	if j.Over {
		c.named.forget(s.UID)
	}
	has := s.check != nil || j.Runs != "" || len(record.In) > 0
	for _, name := range c.workers.names() {
		if slices.ContainsFunc(s.clusters, func(x dispatch.Cluster) bool { return x.Name == name }) {
			continue
		}
		x := c.workers.view(ctx, name, s.Workload)
		if x.Copy != nil && !x.Copy.Foreign || name == j.Runs {
			has = true
			x.Lacks = "its place in the MultiKueueConfig"
			s.clusters = append(s.clusters, x)
		}
	}
	if has {
		s.job = j
	}
	return nil
}

// isHeldIn reports whether the job of a Workload has not started in a cluster. A pod group has started once one of its pods has.
func (c *copies) isHeldIn(ctx context.Context, s *situation, cluster string) (bool, error) {
	worker := c.workers.connection(cluster)
	if worker == nil {
		return false, nil
	}
	for _, owner := range jobsOf(s.Workload) {
		kind := c.kinds[kindOf(&owner)]
		if kind == nil || worker.forbidden[kindOf(&owner)] != nil {
			return false, nil
		}
		there := unstructuredOf(kind)
		switch err := worker.cache.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: owner.Name}, there); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return false, err
		}
		job, err := typed(c.scheme, there)
		if err != nil {
			return false, err
		}
		gates, _, err := unstructured.NestedSlice(there.Object, "spec", "schedulingGates")
		if err != nil || !kind.IsSuspended(job) && len(gates) == 0 {
			return false, err
		}
	}
	return true, nil
}

// isOver reports whether the job of a Workload must not run in any cluster.
func isOver(w *kueue.Workload, check *kueue.AdmissionCheckState) bool {
	switch {
	case !w.DeletionTimestamp.IsZero() || workload.IsFinished(w) || !workload.HasQuota(w) || workload.IsEvicted(w) || !workload.IsActive(w):
		return true
	case check == nil: // the check may have been renamed while the job runs
		return w.Status.ClusterName == nil
	default:
		return check.State == kueue.CheckStateRetry || check.State == kueue.CheckStateRejected
	}
}

// prioritize updates the priority of the copies of a Workload.
func (c *copies) prioritize(ctx context.Context, s *situation) error {
	if s.job.Over {
		return nil
	}
	want := workload.Priority(s.Workload)
	for i := range s.clusters {
		x := &s.clusters[i]
		if w := x.Copy; w == nil || w.Priority == want || w.Foreign || w.Stale || w.Leaving || w.Finished {
			continue
		}
		worker := c.workers.connection(x.Name)
		if worker == nil {
			continue
		}
		// Each priority is sent once, since a worker that overrides it would do so again.
		if sent, _ := worker.priorities.Swap(x.Copy.UID, want); sent == want {
			continue
		}
		theirs := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: x.Copy.UID}}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := worker.client.Patch(call, theirs, client.RawPatch(types.MergePatchType, workload.PriorityPatch(theirs, want)))
		cancel()
		if err != nil {
			worker.priorities.Delete(x.Copy.UID)
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // else the copy is gone
			return err
		}
	}
	return nil
}

// carryOut executes the step.
func (c *copies) carryOut(ctx context.Context, s *situation, step *dispatch.Step) (done bool, err error) {
	if c.sharedOwner(s.Workload) != nil {
		c.sharing.Lock()
		defer c.sharing.Unlock()
	}
	switch step.Do {
	case dispatch.Nominate:
		if may, err := c.mayShare(ctx, s.Workload, step.Cluster); !may || err != nil {
			return false, err
		}
		if rejected, err := c.reject(ctx, s); rejected || err != nil {
			return true, err
		}
		done, err = c.dispatcher.carryOut(ctx, s.Workload, s.job.Record, *step)
		if done && err == nil {
			c.named.add(s.UID, step.Cluster)
		}
		return done, err
	case dispatch.Rest:
		if s.gone {
			return true, nil
		}
		return c.dispatcher.carryOut(ctx, s.Workload, s.job.Record, *step)
	case dispatch.Withdraw:
		return c.dispatcher.carryOut(ctx, s.Workload, s.job.Record, *step)
	case dispatch.Offer:
		return c.offer(ctx, s, step)
	case dispatch.Grant:
		return c.grant(ctx, s, step.Cluster)
	case dispatch.Commit:
		// A Job that is not suspended cannot lose its startTime.
		if blank, err := c.blank(ctx, s); err != nil || !blank {
			return false, err
		}
		return true, c.answer(ctx, s, kueue.CheckStateReady, step.Message, step.Cluster)
	case dispatch.Follow:
		return c.follow(ctx, s, step)
	case dispatch.Finish:
		return c.finish(ctx, s, step)
	case dispatch.Retry:
		for _, name := range step.Gone {
			if what, err := c.workers.read(ctx, name, s.Workload); err != nil || what == isCopy {
				return false, err
			}
		}
		return true, c.retry(ctx, s, step.Record, step.Message)
	default:
		return c.clear(ctx, s, step)
	}
}

// reject rejects a job that cannot run in any worker.
func (c *copies) reject(ctx context.Context, s *situation) (bool, error) {
	refuse := func(format string, args ...any) (bool, error) {
		return true, c.answer(ctx, s, kueue.CheckStateRejected, fmt.Sprintf(format, args...), "")
	}
	owners := jobsOf(s.Workload)
	if len(owners) == 0 {
		return refuse("No multikueue adapter found")
	}
	gvk := schema.FromAPIVersionAndKind(owners[0].APIVersion, owners[0].Kind)
	kind := c.kinds[gvk.GroupKind()]
	if kind == nil {
		return refuse("No multikueue adapter found for owner kind %q: it runs in this cluster alone; give it a queue without the "+
			"AdmissionCheck %s", gvk.String(), s.check.Name)
	}
	if _, held := kind.(Held); held {
		return false, nil
	}
	_, job, err := c.local(ctx, s, kind, owners[0].Name)
	if err != nil {
		return false, err
	}
	if by := kind.ManagedBy(job); by != kueue.MultiKueueControllerName {
		return refuse("The owner is not managed by Kueue: Expecting spec.managedBy to be %q not %q", kueue.MultiKueueControllerName, by)
	}
	return false, nil
}

// answer sets the state and the message of the check, and the cluster of the Workload.
func (c *copies) answer(ctx context.Context, s *situation, state kueue.CheckState, message, cluster string) error {
	if s.check == nil {
		return nil // the check has been removed
	}
	// A write of the record has replaced the status that s.check points to.
	i := slices.IndexFunc(s.Status.AdmissionChecks, func(x kueue.AdmissionCheckState) bool { return x.Name == s.check.Name })
	if i < 0 {
		return nil
	}
	patch := client.MergeFromWithOptions(s.DeepCopy(), client.MergeFromWithOptimisticLock{})
	check := &s.Status.AdmissionChecks[i]
	check.State, check.Message, check.LastTransitionTime = state, message, metav1.NewTime(c.clock.Now())
	s.Status.NominatedClusterNames = nil
	if cluster != "" {
		s.Status.ClusterName = &cluster
	}
	if err := c.client.Status().Patch(ctx, s.Workload, patch); err != nil {
		return err
	}
	kind := corev1.EventTypeNormal
	if state != kueue.CheckStateReady {
		kind = corev1.EventTypeWarning
	}
	c.event(s.Workload, kind, "MultiKueue", message)
	name := client.ObjectKeyFromObject(s.Workload).String()
	journal.Write(ctx, "The cluster of a job has answered", name, journal.Workload, name, "cluster", cluster, journal.Reason, string(state),
		journal.Cause, message)
	return nil
}

// update writes the record if it has changed.
func (c *copies) update(ctx context.Context, s *situation, record dispatch.Record) error {
	if record.Encode() == s.job.Record.Encode() {
		return nil
	}
	return c.record(ctx, s.Workload, record)
}

// retry records why a worker refused the job, and requeues the job.
func (c *copies) retry(ctx context.Context, s *situation, record dispatch.Record, message string) error {
	if s.check == nil {
		return nil // the check has been removed
	}
	if err := c.update(ctx, s, record); err != nil {
		return err
	}
	return c.answer(ctx, s, kueue.CheckStateRetry, message, "")
}

// connection returns the connection to a worker, or nil if it cannot be used.
func (s *workers) connection(name string) *connection {
	k := s.find(name)
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.connected {
		return nil // its kubeconfig may lead to another cluster by now
	}
	return k.connection
}

// names returns the names of all workers.
func (s *workers) names() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.byName {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// refuse records that the worker's API server rejected an object of the Workload.
func (s *workers) refuse(name string, key types.NamespacedName, why error) {
	if k := s.find(name); k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		now := s.clock.Now()
		maps.DeleteFunc(k.refused, func(_ types.NamespacedName, r refusal) bool { return now.Sub(r.at) > refusedAgain })
		k.refused[key] = refusal{why.Error(), now}
	}
}

// isRefusal reports whether an API server rejected an object for a reason that a retry does not change.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) ||
		apimeta.IsNoMatchError(err)
}

var errNotConnected = errors.New("the cluster is not connected")

// offer creates the copy in the cluster, with a gate.
func (c *copies) offer(ctx context.Context, s *situation, step *dispatch.Step) (bool, error) {
	if err := c.update(ctx, s, step.Record); err != nil {
		return false, err
	}
	worker := c.workers.connection(step.Cluster)
	if worker == nil {
		return false, errNotConnected
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if why, err := c.taken(ctx, s, worker); err != nil {
		return false, err
	} else if why != nil {
		c.workers.refuse(step.Cluster, client.ObjectKeyFromObject(s.Workload), why)
		return false, nil
	}
	theirs := c.workers.self.copyFor(s.Workload, step.Record.FenceIn(step.Cluster))
	switch err := worker.client.Create(ctx, theirs); {
	case err == nil:
		worker.made.add(theirs)
		return true, nil
	case apierrors.IsAlreadyExists(err):
		// Either the cache does not have the new copy yet, or the Workload is not the manager's.
		_, err := c.workers.read(ctx, step.Cluster, s.Workload)
		return false, err
	case isRefusal(err):
		c.workers.refuse(step.Cluster, client.ObjectKeyFromObject(s.Workload), err)
		return false, nil
	default:
		return false, err
	}
}

// grant removes the gate of the copy that was observed. A copy of the same name that was created since keeps its gate.
func (c *copies) grant(ctx context.Context, s *situation, cluster string) (bool, error) {
	worker := c.workers.connection(cluster)
	if worker == nil {
		return false, errNotConnected
	}
	c.named.remove(s.UID, cluster) // the patch may arrive even if its response is lost
	i := slices.IndexFunc(s.clusters, func(x dispatch.Cluster) bool { return x.Name == cluster })
	patch := fmt.Appendf(nil, `[{"op":"test","path":"/metadata/uid","value":%q},{"op":"remove","path":"/metadata/annotations/%s"}]`,
		s.clusters[i].Copy.UID, strings.ReplaceAll(workload.GatedByAnnotation, "/", "~1"))
	theirs := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := worker.client.Patch(ctx, theirs, client.RawPatch(types.JSONPatchType, patch))
	if apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return false, nil // the copy was replaced, or has no gate any more
	}
	return true, err
}

// local reads a job in the manager, unstructured and as the type of its kind.
func (c *copies) local(ctx context.Context, s *situation, kind Kind, name string) (*unstructured.Unstructured, client.Object, error) {
	o := unstructuredOf(kind)
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, o); err != nil {
		return nil, nil, err
	}
	job, err := typed(c.scheme, o)
	return o, job, err
}

// follow creates the job in the cluster, and copies its status to the manager. A job that has finished there is shown as finished.
func (c *copies) follow(ctx context.Context, s *situation, step *dispatch.Step) (done bool, err error) {
	worker := c.workers.connection(step.Cluster)
	if worker == nil {
		return false, errNotConnected
	}
	for _, owner := range jobsOf(s.Workload) {
		kind := c.kinds[kindOf(&owner)]
		switch why := worker.forbidden[kindOf(&owner)]; {
		case why != nil:
			return false, why
		case kind == nil:
			return false, errNotConnected // the Workload was edited, or the kind is not delegated any more
		}
		f := following{worker: worker, kind: kind, key: client.ObjectKey{Namespace: s.Namespace, Name: owner.Name}, uid: owner.UID}
		if done, err := c.followOne(ctx, s, step, &f); !done || err != nil {
			return done, err
		}
	}
	return true, nil
}

// following is one of the jobs of a Workload, in the cluster that runs it.
type following struct {
	worker *connection
	kind   Kind
	key    types.NamespacedName
	uid    types.UID
}

func (c *copies) followOne(ctx context.Context, s *situation, step *dispatch.Step, f *following) (done bool, err error) {
	theirs, now, ended := unstructuredOf(f.kind), c.clock.Now(), step.Do == dispatch.Finish
	from := client.Reader(f.worker.cache)
	if ended { // the cache may lag, and the job will be gone later
		from = f.worker.client
	}
	missing := from.Get(ctx, f.key, theirs)
	switch {
	case client.IgnoreNotFound(missing) != nil:
		return false, missing
	case missing == nil && isShared(f.kind):
		return c.scale(ctx, f, theirs)
	case missing != nil && ended, missing == nil && f.worker.shown.has(f, theirs):
		return true, nil
	case !ended:
		if next := f.worker.shown.next(f); now.Before(next) {
			step.At = next
			return true, nil
		}
	}
	ours, job, err := c.local(ctx, s, f.kind, f.key.Name)
	f.worker.shown.noteRead(f, now)
	held, isHeld := f.kind.(Held)
	switch {
	case apierrors.IsNotFound(err) && isHeld:
		return true, nil // another pod of the group
	case err != nil:
		return false, client.IgnoreNotFound(err)
	case missing != nil && isHeld && held.IsOver(ours):
		return true, nil
	case missing != nil:
		return c.run(ctx, s, step.Cluster, f, ours)
	// The pod template may change until the job has started.
	case f.kind.IsSuspended(job) && !ended:
		step.At = now.Add(showEvery)
		return true, nil
	}
	if err := c.mirror(ctx, f.kind, ours, theirs); err != nil {
		return false, err
	}
	if !ended {
		if err := c.forward(ctx, f, ours, theirs); err != nil {
			return false, err
		}
	}
	f.worker.shown.add(f, theirs)
	return true, nil
}

// mirror writes the status of theirs to ours. theirs is nil if the job is in no cluster.
func (c *copies) mirror(ctx context.Context, kind Kind, ours, theirs *unstructured.Unstructured) error {
	status := any(map[string]any{})
	if theirs != nil {
		status = theirs.Object["status"]
	}
	switch kind := kind.(type) {
	case Held:
		status = kind.Shown(ours, theirs)
	case Lasting:
		next, _ := status.(map[string]any)
		status = kind.StatusAfter(ours, next)
	}
	if status == nil || equality.Semantic.DeepEqual(ours.Object["status"], status) {
		return nil
	}
	patch := client.MergeFrom(ours.DeepCopy())
	ours.Object["status"] = status
	return client.IgnoreNotFound(c.client.Status().Patch(ctx, ours, patch))
}

// run creates the job in the cluster.
func (c *copies) run(ctx context.Context, s *situation, cluster string, f *following, ours *unstructured.Unstructured) (bool, error) {
	job, err := c.workers.self.jobFor(c.scheme, f.kind, ours, s.Workload)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err = f.worker.client.Create(ctx, job)
	switch {
	case apierrors.IsAlreadyExists(err):
		there := unstructuredOf(f.kind)
		if err := f.worker.client.Get(ctx, client.ObjectKeyFromObject(job), there); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		if ours, err := c.workers.reclaim(ctx, f.worker, there, s.Workload); ours || err != nil {
			return false, err // the cache will show it, or it is being deleted
		}
		err = nameTaken(f.kind)
	case !isRefusal(err):
		return err == nil, err
	}
	c.workers.refuse(cluster, client.ObjectKeyFromObject(s.Workload), err)
	record := s.job.Record.Refused(dispatch.Refusal{Cluster: cluster, Reason: dispatch.Rejected, Message: err.Error(), At: c.clock.Now()})
	return true, c.retry(ctx, s, record, fmt.Sprintf("cluster %s does not take the job: %v", cluster, err))
}

// nameTaken is the refusal of a worker where an object that is no copy has the job's name.
func nameTaken(kind Kind) error {
	return fmt.Errorf("a %s of that name is there that is no copy; delete or rename it", kind.GroupVersionKind().Kind)
}

// taken returns a refusal if an object in the worker that is no copy has the name of a job of the Workload. The job could not be created
// there, so machines would be launched in vain.
func (c *copies) taken(ctx context.Context, s *situation, worker *connection) (why, err error) {
	for _, owner := range jobsOf(s.Workload) {
		kind := c.kinds[kindOf(&owner)]
		if kind == nil || worker.forbidden[kindOf(&owner)] != nil {
			continue
		}
		there := &metav1.PartialObjectMetadata{}
		there.SetGroupVersionKind(kind.GroupVersionKind())
		switch err := worker.client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: owner.Name}, there); {
		case apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err):
			continue
		case err != nil:
			return nil, err
		}
		ours, err := c.workers.reclaim(ctx, worker, there, s.Workload)
		switch {
		case err != nil:
			return nil, err
		case !ours:
			return nameTaken(kind), nil
		}
	}
	return nil, nil
}

// finish records how the job ended.
func (c *copies) finish(ctx context.Context, s *situation, step *dispatch.Step) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if done, err := c.follow(ctx, s, step); !done || err != nil {
		return done, err
	}
	worker, theirs := c.workers.connection(step.Cluster), &kueue.Workload{}
	if worker == nil {
		return false, errNotConnected
	}
	if err := worker.cache.Get(ctx, client.ObjectKeyFromObject(s.Workload), theirs); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	end := apimeta.FindStatusCondition(theirs.Status.Conditions, kueue.WorkloadFinished)
	if end == nil || workload.IsFinished(s.Workload) {
		return true, nil
	}
	patch := client.MergeFromWithOptions(s.DeepCopy(), client.MergeFromWithOptimisticLock{})
	s.Status = *workload.Finished(s.Workload, end.Reason, end.Message, c.clock.Now())
	return true, c.client.Status().Patch(ctx, s.Workload, patch)
}

// clear deletes the copy and its job in clusters, and removes the clusters from the record once both are gone. The job is deleted first,
// since its pods use the copy's quota and machines.
func (c *copies) clear(ctx context.Context, s *situation, step *dispatch.Step) (bool, error) {
	record, left := step.Record, false
	var wrong []error
	for _, name := range step.Gone {
		gone, err := c.clearOne(ctx, s, name)
		wrong = append(wrong, err)
		if !gone {
			left = true
			record.In = append(record.In, name)
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return false, err
	}
	slices.Sort(record.In)
	record.In = slices.Compact(record.In)
	if s.gone || len(record.In) == len(s.job.Record.In) {
		return !left, nil
	}
	if s.job.Over && !workload.IsFinished(s.Workload) && len(record.In) == 0 {
		if blank, err := c.blank(ctx, s); err != nil || !blank && len(step.Gone) == 0 {
			return false, err
		}
	}
	return !left, c.record(ctx, s.Workload, record)
}

// blank removes the remote status from a job that has left its cluster, once the job is suspended in the manager. It reports whether that
// is done.
func (c *copies) blank(ctx context.Context, s *situation) (done bool, err error) {
	for _, owner := range jobsOf(s.Workload) {
		kind := c.kinds[kindOf(&owner)]
		if kind == nil {
			continue
		}
		ours, job, err := c.local(ctx, s, kind, owner.Name)
		_, held := kind.(Held)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return false, err
		case !held && !kind.IsSuspended(job):
			return false, nil
		}
		if err := c.mirror(ctx, kind, ours, nil); err != nil {
			return false, err
		}
	}
	return true, nil
}

// clearOne deletes the copy and its job in one cluster. It reports whether both are gone.
func (c *copies) clearOne(ctx context.Context, s *situation, cluster string) (bool, error) {
	worker := c.workers.connection(cluster)
	if worker == nil {
		return c.workers.isDead(ctx, cluster), nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, owner := range jobsOf(s.Workload) {
		if why := worker.forbidden[kindOf(&owner)]; why != nil {
			return false, why // the job may run
		}
	}
	shared := false
	// The cache is read first, which saves most calls during a slow deletion. Only a live read proves that nothing is left.
	for _, from := range []client.Reader{worker.cache, worker.client} {
		jobs, stays, err := c.jobsIn(ctx, cluster, worker, from, s)
		if err != nil {
			return false, err
		}
		shared = stays
		if len(jobs) > 0 && apierrors.IsNotFound(worker.cache.Get(ctx, client.ObjectKeyFromObject(s.Workload), &kueue.Workload{})) {
			// A user there may have edited the marks of the copy. They are restored while the job still proves that the copy is the
			// manager's.
			if _, err := c.workers.read(ctx, cluster, s.Workload); err != nil {
				return false, err
			}
		}
		for _, job := range jobs {
			if err := remove(ctx, worker.client, job); err != nil {
				return false, err
			}
		}
		if len(jobs) > 0 {
			return false, nil
		}
	}
	for _, owner := range jobsOf(s.Workload) {
		worker.shown.forget(kindOf(&owner), client.ObjectKey{Namespace: s.Namespace, Name: owner.Name})
	}
	for _, from := range []client.Reader{worker.cache, worker.client} {
		theirs := &kueue.Workload{}
		switch err := from.Get(ctx, client.ObjectKeyFromObject(s.Workload), theirs); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return false, err
		case !c.workers.self.owns(theirs):
			return true, nil
		case worker.left.awaits(theirs):
			return false, nil
		}
		if shared {
			if stopped, err := stop(ctx, worker.client, theirs); !stopped || err != nil {
				return false, err
			}
		}
		// With the job gone, the worker's queue has nothing left to wait for.
		if patch := client.MergeFrom(theirs.DeepCopy()); controllerutil.RemoveFinalizer(theirs, kueue.ResourceInUseFinalizerName) {
			if err := worker.client.Patch(ctx, theirs, patch); err != nil {
				return false, client.IgnoreNotFound(err)
			}
			worker.left.add(theirs)
		}
		worker.priorities.Delete(theirs.UID)
		return false, remove(ctx, worker.client, theirs)
	}
	return true, nil
}

// jobsIn returns the jobs that only the copy of the Workload admits in a cluster. It reports whether a shared object stays for other
// Workloads.
func (c *copies) jobsIn(
	ctx context.Context, cluster string, worker *connection, from client.Reader, s *situation,
) (out []*unstructured.Unstructured, stays bool, err error) {
	owners := jobsOf(s.Workload)
	for _, kind := range worker.jobs {
		gvk, found := kind.GroupVersionKind(), &unstructured.UnstructuredList{}
		if len(owners) == 0 { // the copy is gone, so its job may be of any kind
			found.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
			if err := from.List(ctx, found, client.InNamespace(s.Namespace)); err != nil {
				return nil, false, err
			}
		}
		for _, owner := range owners {
			job := unstructuredOf(kind)
			if kindOf(&owner) != gvk.GroupKind() {
				continue
			}
			switch err := from.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: owner.Name}, job); {
			case err == nil:
				found.Items = append(found.Items, *job)
			case !apierrors.IsNotFound(err):
				return nil, false, err
			}
		}
		for i := range found.Items {
			job := &found.Items[i]
			if !isShared(kind) && prebuiltOf(job) != s.Name {
				continue
			}
			_, ours, err := c.workers.originOf(ctx, worker, job, s.Workload)
			if err != nil {
				return nil, false, err
			}
			if !ours {
				continue
			}
			needed, err := c.isNeeded(ctx, s, cluster, kind, job)
			if err != nil {
				return nil, false, err
			}
			if stays = stays || needed; !needed {
				out = append(out, job)
			}
		}
	}
	return out, stays, nil
}

// remove deletes the object and first what it owns. An object that was created with the same name since is not deleted.
func remove(ctx context.Context, c client.Client, o client.Object) error {
	if !o.GetDeletionTimestamp().IsZero() {
		return nil
	}
	err := c.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/dispatch/controller/snapshots"
	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// pollEvery is how often each worker is polled, and its kubeconfig read.
	pollEvery = 3 * time.Second
	// callTimeout bounds each call to a worker, which may be connected and not respond.
	callTimeout = 5 * time.Second
	// deadAfter is how long a worker may be silent before it counts as dead, once its MultiKueueCluster was deleted.
	deadAfter = time.Minute
	// foreignAgain is how soon a Workload that is no copy and has the job's name is read again.
	foreignAgain = time.Minute
	// refusedAgain is how soon a job is offered again to a worker whose API server rejected it.
	refusedAgain = time.Minute
	// lacksAgain is how soon a worker is checked again for what it lacked, where no event reports it, and for the kinds that it serves.
	lacksAgain = time.Minute
	// slowCall is the response time from which a worker counts as slow. Only a few of the concurrent reconciles then wait for it. The
	// others are requeued soon after.
	slowCall  = 500 * time.Millisecond
	mostCalls = concurrent / 8
	slowAgain = 2 * time.Second
	// ownerIndex finds ProvisioningRequests by the Workload that owns them.
	ownerIndex = "owner"
)

// workers are the clusters of the manager's MultiKueueClusters. Each has a goroutine, so that a slow one delays no other.
type workers struct {
	manager   client.Reader
	live      client.Reader
	scheme    *runtime.Scheme
	self      self
	namespace string
	clock     clock.WithTicker
	// foresight builds the snapshots of workers from their stored objects.
	foresight snapshots.Foresight
	kept      toolscache.TransformFunc
	limit     *snapshots.Limit
	// kinds are the kinds of jobs that Muster creates in workers. It is nil where Kueue does.
	kinds []Kind
	// writer writes MultiKueueClusters. It is nil where Kueue does.
	writer client.Client
	// leases are the names of leader election Leases of Muster or Kueue in a worker.
	leases []types.NamespacedName
	// changed receives Workloads whose copies have changed. connections receives clusters that connected or disconnected.
	changed, connections chan event.GenericEvent

	mu     sync.Mutex
	byName map[string]*worker
}

// worker is one of the clusters.
type worker struct {
	name string
	stop context.CancelFunc
	// asksFence: the MultiKueueCluster sets a fence. noFence is why the fence does not hold. Both are of the last successful poll, and
	// only the worker's own goroutine reads them.
	asksFence bool
	noFence   error

	mu sync.Mutex
	// deleted: its MultiKueueCluster was deleted. The finalizer keeps that object until no copy is left in the worker.
	deleted bool
	// connection is made from the kubeconfig; nil without one.
	connection *connection
	// connected: the last poll succeeded, and the caches are filled.
	connected bool
	// idle is why nothing queues in the worker although it responds; empty if it queues.
	idle  string
	fence fence
	// slow: the last poll took long. calling counts the Workloads whose steps call the worker now.
	slow    bool
	calling int
	// foreign are Workloads that are no copies, and when they were read. Caches do not hold them.
	foreign map[types.NamespacedName]time.Time
	// refused are the Workloads whose copies or jobs the worker's API server rejected.
	refused map[types.NamespacedName]refusal
}

// refusal is the error, and when it was returned.
type refusal struct {
	why string
	at  time.Time
}

type connection struct {
	kubeconfig []byte
	client     client.Client
	cache      cache.Cache
	stop       context.CancelFunc
	// requests: it serves ProvisioningRequests.
	requests bool
	// jobs are the kinds that the worker serves and that may be read. Those that may not were forbidden when the connection was made,
	// since their caches would never be filled. A new connection is made when more kinds can be read.
	jobs      []Kind
	forbidden map[schema.GroupKind]error
	judged    time.Time
	// claims is the kind of ResourceClaimTemplates in the worker. It is empty if they are not served or may not be read.
	claims schema.GroupVersionKind
	// mayAll: its account may do everything in the worker.
	mayAll bool
	// snapshot forecasts jobs in the worker.
	snapshot *snapshots.Snapshot
	shown    shown
	watched  watched
	leaders  leaders
	// priorities has the priority that was last sent to each copy, by its UID.
	priorities sync.Map
	// made are copies that the caches may not have yet. left are Workloads that the worker has no copy of any more.
	made, left expected
}

// Start implements manager.Runnable.
func (s *workers) Start(ctx context.Context) error {
	ticker := s.clock.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		list := &kueue.MultiKueueClusterList{}
		if err := s.manager.List(ctx, list); err != nil {
			ctrl.Log.WithName("workers").Error(err, "Cannot list MultiKueueClusters")
		} else {
			s.keep(ctx, list.Items)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// keep starts a goroutine for each new cluster, and stops those of removed clusters.
func (s *workers) keep(ctx context.Context, clusters []kueue.MultiKueueCluster) {
	var left []string
	defer func() {
		for _, name := range left { // their jobs leave them, or go on elsewhere
			send(ctx, s.connections, &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	exist := map[string]bool{}
	for i := range clusters {
		name := clusters[i].Name
		exist[name] = true
		if s.byName[name] == nil {
			ctx, stop := context.WithCancel(ctx)
			w := &worker{
				name: name, stop: stop, fence: fence{renewal: dispatch.NewRenewal(s.clock.Now())},
				foreign: map[types.NamespacedName]time.Time{}, refused: map[types.NamespacedName]refusal{},
			}
			s.byName[name] = w
			go s.poll(ctx, w)
		}
		if s.writer != nil && s.byName[name].setDeleted(!clusters[i].DeletionTimestamp.IsZero()) {
			left = append(left, name)
		}
	}
	for name, w := range s.byName {
		if !exist[name] {
			left = append(left, name)
			w.stop()
			delete(s.byName, name)
			connectedClusters.DeleteLabelValues(name)
			snapshots.Foreseen.DeleteLabelValues(name)
		}
	}
}

func (w *worker) isDeleted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deleted
}

// setDeleted records whether the MultiKueueCluster of a worker is deleted. One of the same name may have been created again. It reports
// whether that has changed.
func (w *worker) setDeleted(deleted bool) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed = w.deleted != deleted
	w.deleted = deleted
	return changed
}

// isCleared reports whether the worker has no copy left, or counts as dead because it has not responded since lost.
func (s *workers) isCleared(ctx context.Context, w *worker, lost time.Time) bool {
	if !lost.IsZero() {
		return s.clock.Since(lost) >= deadAfter
	}
	here, there := &kueue.WorkloadList{}, &kueue.WorkloadList{}
	if s.manager.List(ctx, here, client.UnsafeDisableDeepCopy) != nil ||
		w.connection.cache.List(ctx, there, client.UnsafeDisableDeepCopy) != nil {
		return false
	}
	return !slices.ContainsFunc(here.Items, func(o kueue.Workload) bool {
		record, err := dispatch.DecodeRecord(o.Annotations[dispatch.Annotation])
		return err == nil && slices.Contains(record.In, w.name)
	}) && !slices.ContainsFunc(there.Items, func(o kueue.Workload) bool { return s.self.owns(&o) })
}

// release removes the finalizer of a deleted MultiKueueCluster.
func (s *workers) release(ctx context.Context, w *worker) error {
	c := &kueue.MultiKueueCluster{}
	if err := s.manager.Get(ctx, client.ObjectKey{Name: w.name}, c); err != nil {
		return client.IgnoreNotFound(err)
	}
	patch := client.MergeFromWithOptions(c.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if !controllerutil.RemoveFinalizer(c, workload.CopiesFinalizer) {
		return nil
	}
	return client.IgnoreNotFound(s.writer.Patch(ctx, c, patch))
}

func (s *workers) find(name string) *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[name]
}

// isDead reports whether a cluster was declared dead by deleting its MultiKueueCluster. A cluster without a goroutine may still have one,
// since this process may just have started.
func (s *workers) isDead(ctx context.Context, name string) bool {
	return s.find(name) == nil && apierrors.IsNotFound(s.manager.Get(ctx, client.ObjectKey{Name: name}, &kueue.MultiKueueCluster{}))
}

// poll keeps the connection to one worker and polls it.
func (s *workers) poll(ctx context.Context, w *worker) {
	log := ctrl.Log.WithName("workers").WithValues("cluster", w.name)
	ticker := s.clock.NewTicker(pollEvery)
	defer ticker.Stop()
	lost := time.Time{} // since when it does not respond
	for {
		before, idle := w.connection, ""
		err := s.connectAndCall(ctx, w)
		if err == nil {
			idle = s.idle(ctx, w.connection)
		}
		w.mu.Lock()
		// Another connection has caches of its own. They have no event for copies that were deleted before they were filled.
		changed := w.connected != (err == nil) || w.connection != before || w.idle != idle
		w.connected, w.idle = err == nil, idle
		w.mu.Unlock()
		up := 0.0
		if err == nil {
			up, lost = 1, time.Time{}
		} else if lost.IsZero() {
			lost = s.clock.Now()
		}
		if w.isDeleted() && s.isCleared(ctx, w, lost) {
			if err := s.release(ctx, w); err != nil {
				log.Error(err, "Cannot let a MultiKueueCluster go that was deleted")
			}
		}
		connectedClusters.WithLabelValues(w.name).Set(up)
		if s.writer != nil && ctx.Err() == nil {
			s.report(ctx, w, err)
		}
		switch {
		case changed && err != nil:
			log.Info("The cluster cannot be reached", "error", err.Error())
		case changed && idle != "":
			log.Info("Nothing queues in the cluster", "reason", idle)
		}
		if changed {
			s.enqueueOwners(ctx, w)
		}
		select {
		case <-ctx.Done():
			w.connect(nil)
			return
		case <-ticker.C():
		}
	}
}

// enqueueOwners enqueues the Workloads that wait for a cluster, and those that had copies in the worker when it was last connected. Some
// of them may be deleted in the manager.
func (s *workers) enqueueOwners(ctx context.Context, w *worker) {
	send(ctx, s.connections, &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: w.name}})
	if s.kinds == nil || w.connection == nil {
		return
	}
	copies := &kueue.WorkloadList{}
	if err := w.connection.cache.List(ctx, copies, client.UnsafeDisableDeepCopy); err != nil {
		return // once it is filled, its events enqueue each Workload
	}
	for i := range copies.Items {
		send(ctx, s.changed, &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: copies.Items[i].Namespace, Name: copies.Items[i].Name}})
	}
}

func send(ctx context.Context, to chan event.GenericEvent, about client.Object) {
	select {
	case to <- event.GenericEvent{Object: about}:
	case <-ctx.Done():
	}
}

// connectAndCall connects to the worker by its current kubeconfig, and makes a call to it.
func (s *workers) connectAndCall(ctx context.Context, w *worker) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if w.connection == nil || !w.isDeleted() { // the Secret of a deleted worker may be gone, too
		if err := s.reach(ctx, w); err != nil {
			return err
		}
	}
	w.connection.snapshot.Drop()
	began := s.clock.Now()
	err := w.connection.client.List(ctx, &kueue.WorkloadList{}, client.Limit(1))
	w.mu.Lock()
	w.slow = s.clock.Since(began) >= slowCall
	w.mu.Unlock()
	if err != nil {
		return err
	}
	if s.writer != nil {
		w.asksFence, w.noFence = s.renew(ctx, w)
	}
	if !w.connection.cache.WaitForCacheSync(ctx) {
		return errors.New("its caches are not filled yet")
	}
	if err := s.stalled(ctx, w.connection); err != nil {
		w.connection.kubeconfig = nil // the next poll makes another connection
		return err
	}
	return nil
}

// reach connects to the worker unless it is connected, and confirms that it is the same cluster as before.
func (s *workers) reach(ctx context.Context, w *worker) error {
	kubeconfig, err := s.kubeconfig(ctx, w.name)
	if err != nil {
		return err
	}
	if w.connection == nil || !bytes.Equal(w.connection.kubeconfig, kubeconfig) || s.hasMoreKinds(ctx, w.connection) {
		c, err := s.connect(ctx, w.name, kubeconfig)
		if err != nil {
			return err
		}
		w.connect(c)
		return nil
	}
	return s.confirmCluster(ctx, w.name, w.connection.client)
}

// served returns the kinds that a worker serves and that may be read. forbidden are those that may not.
func served(ctx context.Context, kube client.Client, kinds []Kind) (jobs []Kind, forbidden map[schema.GroupKind]error, err error) {
	said := make([]error, len(kinds))
	var reads sync.WaitGroup
	for i, kind := range kinds {
		gvk, list := kind.GroupVersionKind(), &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		reads.Go(func() { said[i] = kube.List(ctx, list, client.Limit(1)) })
	}
	reads.Wait()
	forbidden = map[schema.GroupKind]error{}
	for i, kind := range kinds {
		switch err := said[i]; {
		case apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		case apierrors.IsForbidden(err):
			forbidden[kind.GroupVersionKind().GroupKind()] = err
		case err != nil:
			return nil, nil, err
		default:
			jobs = append(jobs, kind)
		}
	}
	return jobs, forbidden, nil
}

// hasMoreKinds reports whether kinds that were missing or forbidden can be read in a worker now.
func (s *workers) hasMoreKinds(ctx context.Context, c *connection) bool {
	if len(c.jobs) == len(s.kinds) || s.clock.Since(c.judged) < lacksAgain {
		return false
	}
	c.judged = s.clock.Now()
	jobs, _, err := served(ctx, c.client, s.kinds)
	return err == nil && len(jobs) > len(c.jobs)
}

// connect replaces the connection.
func (w *worker) connect(c *connection) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.connection != nil {
		w.connection.stop()
	}
	w.connection = c
}

// kubeconfig returns the current kubeconfig of a MultiKueueCluster. Kueue has validated it.
func (s *workers) kubeconfig(ctx context.Context, name string) ([]byte, error) {
	c := &kueue.MultiKueueCluster{}
	if err := s.manager.Get(ctx, client.ObjectKey{Name: name}, c); err != nil {
		return nil, err
	}
	source := c.Spec.ClusterSource.KubeConfig
	switch {
	case c.Spec.ClusterSource.ClusterProfileRef != nil:
		return nil, &unusable{reasonProfile, fmt.Errorf("spec.clusterSource.clusterProfileRef is %q, and ClusterProfiles are not read, as by "+
			"default in Kueue: give spec.clusterSource.kubeConfig", c.Spec.ClusterSource.ClusterProfileRef.Name)}
	case source == nil:
		return nil, badKubeconfig("its spec.clusterSource has no kubeConfig")
	case s.writer == nil && !apimeta.IsStatusConditionTrue(c.Status.Conditions, kueue.MultiKueueClusterActive):
		return nil, errors.New("the condition Active of its MultiKueueCluster is not True: Kueue says there why it has not connected")
	case source.LocationType == kueue.PathLocationType:
		return os.ReadFile(source.Location)
	}
	secret := &corev1.Secret{}
	if err := s.live.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: source.Location}, secret); err != nil {
		return nil, fmt.Errorf("reading its kubeconfig: %w", err)
	}
	text := secret.Data[kueue.MultiKueueConfigSecretKey]
	if len(text) == 0 {
		return nil, badKubeconfig("secret %s/%s has no key %s", s.namespace, source.Location, kueue.MultiKueueConfigSecretKey)
	}
	return text, nil
}

// connect creates a client and caches of a worker.
func (s *workers) connect(ctx context.Context, name string, kubeconfig []byte) (*connection, error) {
	if s.writer != nil {
		if err := validate(kubeconfig); err != nil {
			return nil, err
		}
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, badKubeconfig("its kubeconfig: %v", err)
	}
	config.QPS = -1 // the worker's API server throttles
	kube, err := client.New(config, client.Options{Scheme: s.scheme})
	if err != nil {
		return nil, err
	}
	if err := s.confirmCluster(ctx, name, kube); err != nil {
		return nil, err
	}
	copies, err := labels.NewRequirement(kueue.MultiKueueOriginLabel, selection.Equals, []string{s.self.origin})
	if err != nil {
		return nil, fmt.Errorf("--origin: %w", err)
	}
	c := &connection{
		kubeconfig: kubeconfig, client: kube, shown: shown{jobs: map[shownKey]shownJob{}}, made: newExpected(s.clock),
		left: newExpected(s.clock),
	}
	ours := cache.ByObject{Label: labels.NewSelector().Add(*copies)}
	options := cache.Options{
		Scheme: s.scheme, Mapper: kube.RESTMapper(), DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{&kueue.Workload{}: ours},
	}
	if c.jobs, c.forbidden, err = served(ctx, kube, s.kinds); err != nil {
		return nil, err
	}
	c.judged = s.clock.Now()
	for _, kind := range c.jobs {
		options.ByObject[unstructuredOf(kind)] = ours
	}
	if c.cache, err = cache.New(config, options); err != nil {
		return nil, err
	}
	if c.mayAll, err = mayAll(ctx, kube); err != nil {
		return nil, err
	}
	if c.mayAll {
		ctrl.Log.WithName("workers").Info("The account of a kubeconfig may do everything in its cluster, Secrets included: give it the rights "+
			"that muster dispatcher manifests --worker prints, and no others", "cluster", name)
	}
	lasting, stop := context.WithCancel(context.Background())
	if err = s.watch(lasting, c); err == nil {
		of := snapshots.Config{Cluster: name, Foresight: s.foresight, Clock: s.clock, Limit: s.limit}
		c.snapshot, err = snapshots.Begin(lasting, of, kube, config, s.kept)
	}
	if err != nil {
		stop()
		return nil, err
	}
	c.stop = stop
	go func() {
		if err := c.cache.Start(lasting); err != nil {
			ctrl.Log.WithName("workers").Error(err, "The caches of a cluster ended")
		}
	}()
	return c, nil
}

// mayAll reports whether an account may do everything in a worker, as with the ClusterRole cluster-admin.
func mayAll(ctx context.Context, kube client.Client) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"},
	}}
	err := kube.Create(ctx, review)
	if apierrors.IsForbidden(err) { // then it may not do everything
		return false, nil
	}
	return review.Status.Allowed, err
}

// watch starts the caches of a worker for all that decisions read, with event handlers.
func (s *workers) watch(ctx context.Context, c *connection) (err error) {
	kinds := []client.Object{&kueue.Workload{}, &kueue.LocalQueue{}}
	for _, kind := range c.jobs {
		kinds = append(kinds, unstructuredOf(kind))
	}
	switch _, err := c.client.RESTMapper().RESTMapping(provreq.SchemeGroupVersion.WithKind("ProvisioningRequest").GroupKind()); {
	case err == nil:
		c.requests = true
		kinds = append(kinds, &provreq.ProvisioningRequest{})
		if err := c.cache.IndexField(ctx, &provreq.ProvisioningRequest{}, ownerIndex, ownerOf); err != nil {
			return err
		}
	case !apimeta.IsNoMatchError(err):
		return err
	}
	if c.claims, err = claimTemplates(ctx, c.client); err != nil {
		return err
	}
	if !c.claims.Empty() {
		templates := &metav1.PartialObjectMetadata{}
		templates.SetGroupVersionKind(c.claims)
		kinds = append(kinds, templates)
	}
	for _, kind := range kinds {
		informer, err := c.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		notify := func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			switch o := o.(type) {
			case *kueue.Workload:
				c.made.forget(client.ObjectKeyFromObject(o))
				send(ctx, s.changed, o)
			case *provreq.ProvisioningRequest:
				for _, name := range ownerOf(o) {
					send(ctx, s.changed, &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: name}})
				}
			case *unstructured.Unstructured:
				if name := prebuiltOf(o); name != "" {
					send(ctx, s.changed, &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: name}})
				} else if all, err := parts(ctx, s.manager, o.GetNamespace(),
					types.UID(o.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation])); err == nil {
					for i := range all {
						send(ctx, s.changed, &all[i])
					}
				}
			}
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(o any, initial bool) {
				if !initial {
					s.enqueueOpen(ctx, o)
				}
				notify(o)
			},
			UpdateFunc: func(before, o any) {
				if was, ok := before.(*kueue.LocalQueue); ok && isInactive(was) && !isInactive(o.(*kueue.LocalQueue)) {
					s.enqueueOpen(ctx, o)
				}
				notify(o)
			},
			DeleteFunc: func(o any) {
				if key, err := toolscache.DeletionHandlingObjectToName(o); err == nil {
					c.left.forget(types.NamespacedName{Namespace: key.Namespace, Name: key.Name})
				}
				notify(o)
			},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// enqueueOpen enqueues the jobs that may wait for a queue or a ResourceClaimTemplate in a worker.
func (s *workers) enqueueOpen(ctx context.Context, what any) {
	switch o := what.(type) {
	case *kueue.LocalQueue:
		send(ctx, s.connections, o)
	case *metav1.PartialObjectMetadata:
		send(ctx, s.connections, o)
	}
}

func isInactive(lq *kueue.LocalQueue) bool {
	return isFalse(apimeta.FindStatusCondition(lq.Status.Conditions, kueue.LocalQueueActive))
}

// claimTemplates returns the kind of ResourceClaimTemplates in a worker. It is empty if they are not served or may not be read.
func claimTemplates(ctx context.Context, kube client.Client) (kind schema.GroupVersionKind, err error) {
	mapping, err := kube.RESTMapper().RESTMapping(schema.GroupKind{Group: resourcev1.GroupName, Kind: "ResourceClaimTemplate"})
	if apimeta.IsNoMatchError(err) {
		return kind, nil
	} else if err != nil {
		return kind, err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind("ResourceClaimTemplateList"))
	switch err := kube.List(ctx, list, client.Limit(1)); {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		return kind, nil
	case err != nil:
		return kind, err
	}
	return mapping.GroupVersionKind, nil
}

func ownerOf(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == "Workload" {
		return []string{owner.Name}
	}
	return nil
}

// enter reports whether a step may call the clusters now. leave must be called after it. Otherwise the jobs of a slow worker could occupy
// all reconciles.
func (s *workers) enter(names []string) (leave func(), may bool) {
	var entered []*worker
	leave = func() {
		for _, w := range entered {
			w.mu.Lock()
			w.calling--
			w.mu.Unlock()
		}
	}
	for _, name := range names {
		w := s.find(name)
		if w == nil {
			continue
		}
		w.mu.Lock()
		may = !w.slow || w.calling < mostCalls
		if may {
			w.calling++
			entered = append(entered, w)
		}
		w.mu.Unlock()
		if !may {
			leave()
			return nil, false
		}
	}
	return leave, true
}

// view returns the cluster as its caches show it.
func (s *workers) view(ctx context.Context, name string, w *kueue.Workload) dispatch.Cluster {
	out := dispatch.Cluster{Name: name}
	k := s.find(name)
	if k == nil {
		return out
	}
	k.mu.Lock()
	c, connected, fence := k.connection, k.connected, k.fence.after
	out.Deleted, out.Idle = k.deleted, k.idle
	key, now := client.ObjectKeyFromObject(w), s.clock.Now()
	foreign := k.foreign[key].Add(foreignAgain)
	refused := k.refused[key]
	k.mu.Unlock()
	if out.Connected = connected; !connected {
		return out
	}
	out.Fence = fence
	theirs, made := &kueue.Workload{}, c.made.get(key)
	switch err := c.cache.Get(ctx, key, theirs); {
	case err == nil:
		out.Copy = s.self.copyOf(theirs, w, c.requestsOf(ctx, theirs))
	case !apierrors.IsNotFound(err):
		out.Connected = false
	case made != nil:
		out.Copy = s.self.copyOf(made, w, nil)
	case now.Before(foreign):
		out.Copy, out.Again = &dispatch.Copy{Foreign: true}, foreign
	case now.Before(refused.at.Add(refusedAgain)):
		out.Lacks, out.Again = "what it takes to accept the job: "+refused.why, refused.at.Add(refusedAgain)
	default:
		var known bool
		if out.Lacks, known = s.lacks(ctx, c, w); !known {
			out.Again = now.Add(lacksAgain)
		}
	}
	if out.Deleted {
		out.Lacks = "its MultiKueueCluster, which was deleted"
	}
	return out
}

func (c *connection) requestsOf(ctx context.Context, w *kueue.Workload) (out []*provreq.ProvisioningRequest) {
	list := &provreq.ProvisioningRequestList{}
	if !c.requests || c.cache.List(ctx, list, client.InNamespace(w.Namespace), client.MatchingFields{ownerIndex: w.Name}) != nil {
		return nil
	}
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner.UID == w.UID {
			out = append(out, &list.Items[i])
		}
	}
	return out
}

// lacks returns an object that a Workload needs and the worker does not have. watched is set if an event or another connection will report
// its arrival.
func (s *workers) lacks(ctx context.Context, c *connection, w *kueue.Workload) (what string, watched bool) {
	queue, lq := client.ObjectKey{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}, &kueue.LocalQueue{}
	if err := c.cache.Get(ctx, queue, lq); apierrors.IsNotFound(err) {
		return fmt.Sprintf("LocalQueue %s", queue), true
	} else if active := apimeta.FindStatusCondition(lq.Status.Conditions, kueue.LocalQueueActive); err == nil && isFalse(active) {
		return fmt.Sprintf("an active LocalQueue %s: %s", queue, c.snapshot.WhyInactive(ctx, lq, active.Message)), true
	}
	for _, name := range templatesOf(w) {
		template := &metav1.PartialObjectMetadata{}
		template.SetGroupVersionKind(c.claims)
		key := client.ObjectKey{Namespace: w.Namespace, Name: name}
		if !c.claims.Empty() && apierrors.IsNotFound(c.cache.Get(ctx, key, template)) {
			return fmt.Sprintf("%s %s", c.claims.Kind, key), true
		}
	}
	for _, owner := range jobsOf(w) {
		gvk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
		if why := c.forbidden[gvk.GroupKind()]; why != nil {
			return fmt.Sprintf("rights (apply there what muster dispatcher manifests --worker prints): %v", why), true
		}
		missing := includes(s.kinds, gvk.GroupKind()) && !includes(c.jobs, gvk.GroupKind())
		if s.kinds == nil { // Kueue makes the jobs, of kinds that it supports
			_, err := c.client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
			missing = apimeta.IsNoMatchError(err)
		}
		if missing {
			return fmt.Sprintf("the kind %s of %s", gvk.Kind, gvk.GroupVersion()), s.kinds != nil
		}
	}
	return "", true
}

func isFalse(c *metav1.Condition) bool { return c != nil && c.Status == metav1.ConditionFalse }

// templatesOf returns the names of the ResourceClaimTemplates of the pods of a Workload.
func templatesOf(w *kueue.Workload) (out []string) {
	for i := range w.Spec.PodSets {
		for _, claim := range w.Spec.PodSets[i].Template.Spec.ResourceClaims {
			if claim.ResourceClaimTemplateName != nil {
				out = append(out, *claim.ResourceClaimTemplateName)
			}
		}
	}
	return out
}

// found is the result of a live read.
type found int

const (
	isGone found = iota
	isCopy
	isForeign
)

// read reads the Workload of that name in the cluster, live.
func (s *workers) read(ctx context.Context, name string, w *kueue.Workload) (found, error) {
	k := s.find(name)
	switch {
	case k == nil && s.isDead(ctx, name):
		return isGone, nil
	case k == nil:
		return isGone, fmt.Errorf("cluster %s is not looked after yet", name)
	}
	c := s.connection(name)
	if c == nil {
		return isGone, fmt.Errorf("cluster %s: %w", name, errNotConnected)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	theirs := &metav1.PartialObjectMetadata{}
	theirs.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	key := client.ObjectKeyFromObject(w)
	if err := c.client.Get(ctx, key, theirs); err != nil {
		return isGone, client.IgnoreNotFound(err)
	}
	if ours, err := s.reclaim(ctx, c, theirs, w); ours || err != nil {
		return isCopy, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := s.clock.Now()
	maps.DeleteFunc(k.foreign, func(_ types.NamespacedName, at time.Time) bool { return now.Sub(at) > foreignAgain })
	k.foreign[key] = now
	return isForeign, nil
}

// reclaim reports whether an object in a worker, read live, is the manager's. It restores marks that a user there has edited.
func (s *workers) reclaim(ctx context.Context, c *connection, o client.Object, w *kueue.Workload) (bool, error) {
	origin, ours, err := s.originOf(ctx, c, o, w)
	if !ours || err != nil || s.self.isMarked(o) || !o.GetDeletionTimestamp().IsZero() {
		return ours, err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "labels": map[string]string{kueue.MultiKueueOriginLabel: s.self.origin},
		"annotations": map[string]string{dispatch.ManagerAnnotation: s.self.id, dispatch.OriginAnnotation: origin},
	}})
	if err != nil {
		return false, fmt.Errorf("encoding the marks of a copy: %w", err)
	}
	return true, client.IgnoreNotFound(c.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)))
}

// originOf reports whether an object in a worker is a copy, and returns the UID of the manager's Workload that it was created for. The
// worker makes the job the controller of the copy, so one of the two proves the origin of the other.
func (s *workers) originOf(ctx context.Context, c *connection, o client.Object, w *kueue.Workload) (origin string, ours bool, err error) {
	if s.self.owns(o) {
		return o.GetAnnotations()[dispatch.OriginAnnotation], true, nil
	}
	if s.self.id == "" { // Kueue repairs its own copies
		return "", false, nil
	}
	other, ofQueues := &metav1.PartialObjectMetadata{}, kueue.SchemeGroupVersion.WithKind("Workload")
	switch owner := metav1.GetControllerOf(o); {
	case o.GetObjectKind().GroupVersionKind().GroupKind() != ofQueues.GroupKind():
		other.SetGroupVersionKind(ofQueues)
		other.Name = w.Name
	case owner != nil && c.forbidden[kindOf(owner)] == nil && includes(c.jobs, kindOf(owner)):
		other.SetGroupVersionKind(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
		other.Name = owner.Name
	default:
		return "", false, nil
	}
	err = c.client.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: other.Name}, other)
	if err != nil || !s.self.owns(other) || !metav1.IsControlledBy(other, o) && !metav1.IsControlledBy(o, other) {
		return "", false, client.IgnoreNotFound(err)
	}
	return other.Annotations[dispatch.OriginAnnotation], true, nil
}

// includes reports whether a kind is among the kinds.
func includes(kinds []Kind, kind schema.GroupKind) bool {
	return slices.ContainsFunc(kinds, func(k Kind) bool { return k.GroupVersionKind().GroupKind() == kind })
}

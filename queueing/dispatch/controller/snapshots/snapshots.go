package snapshots

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// freshFor is the least time for which a snapshot is used. A snapshot that takes long to build is used for longer, so that building
	// costs a bounded share of the time.
	freshFor  = 100 * time.Millisecond
	mostShare = 20
	// freshForMost bounds that: a build may also take long because the whole machine stood still.
	freshForMost = 20 * time.Second
	// MostKept is how many snapshots a Limit holds at once. A snapshot of 5,000 nodes takes 57 MB, as much as the stored objects of the
	// worker. With more workers, each has a snapshot only while it is used.
	MostKept = 8
	// givenFor is how long a nominated job may take to appear in its cluster.
	givenFor = time.Minute
)

// Foreseen is the metric that reports for which workers there are forecasts.
var Foreseen = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "muster_dispatch_foreseen",
	Help: "Whether muster dispatcher can tell what would become of a job in a worker: 1 if it may read what decides there, else 0.",
}, []string{"cluster"})

// Foresight forecasts jobs in a cluster from the objects that may be read there.
type Foresight struct {
	// Lists are empty lists of all kinds that are read.
	Lists []client.ObjectList
	// Trim removes fields that nothing reads before objects are stored.
	Trim toolscache.TransformFunc
	// See builds the forecast of the cluster. It fails if too little may be read.
	See func(ctx context.Context, c clock.PassiveClock, kube client.Reader) (Foresee, error)
}

// Foresee returns the prospect of a job. given are the jobs that were nominated to the cluster and do not appear there yet.
type Foresee func(given []*kueue.Workload, job *kueue.Workload) *dispatch.Prospect

// Limit bounds how many snapshots there are at once.
type Limit struct {
	// making is locked while a snapshot is built, which takes several times its memory.
	making sync.Mutex

	mu   sync.Mutex
	free int
}

// NewLimit returns a limit of most snapshots.
func NewLimit(most int) *Limit { return &Limit{free: most} }

// take counts one more snapshot and reports whether the limit allows it. give releases one.
func (l *Limit) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free == 0 {
		return false
	}
	l.free--
	return true
}

func (l *Limit) give() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
}

// Config of a Snapshot.
type Config struct {
	// Cluster is the name of the worker.
	Cluster   string
	Foresight Foresight
	Clock     clock.PassiveClock
	Limit     *Limit
	// Cache has the lists of Foresight that may be read.
	Cache cache.Cache
}

// Snapshot is the forecast of one worker, with the objects that it is built from.
type Snapshot struct {
	Config

	log logr.Logger
	// opened is closed once the readable kinds are determined and listed. refused is the error of a list that is not permitted.
	opened  chan struct{}
	refused map[reflect.Type]error

	mu sync.Mutex
	// foresee was built at that time and took so long. err is why it could not be built, and was logged.
	foresee Foresee
	made    time.Time
	took    time.Duration
	err     error
	// kept: it counts against the limit.
	kept bool
	// prospects are cached by the likeness of the job, since jobs of a queue are often alike. Otherwise a snapshot that does not fit the
	// limit would be built for each of them.
	prospects   map[likeness]*dispatch.Prospect
	prospectsAt time.Time
	// given are jobs for which the worker was nominated, the oldest first.
	given []given
}

type given struct {
	job *kueue.Workload
	at  time.Time
}

// New returns the snapshot of a worker that is not read yet.
func New(c Config) *Snapshot {
	return &Snapshot{
		Config: c, log: ctrl.Log.WithName("snapshots").WithValues("cluster", c.Cluster), opened: make(chan struct{}),
		refused: map[reflect.Type]error{},
	}
}

// Begin returns the snapshot of a worker that is read until ctx ends. kept is the transform that Kept returns.
func Begin(ctx context.Context, c Config, kube client.Client, config *rest.Config, kept toolscache.TransformFunc) (p *Snapshot, err error) {
	c.Cache, err = cache.New(config, cache.Options{
		Scheme: kube.Scheme(), Mapper: kube.RESTMapper(), DefaultTransform: kept, DefaultUnsafeDisableDeepCopy: new(true),
	})
	if err != nil {
		return nil, err
	}
	p = New(c)
	context.AfterFunc(ctx, p.forget)
	go func() { _ = c.Cache.Start(ctx) }() // it ends with ctx, and logs its own errors
	go p.Open(ctx, kube)
	return p, nil
}

// Open determines which kinds may be read, and lists them. A cache would wait for ever for a kind that is forbidden.
func (p *Snapshot) Open(ctx context.Context, kube client.Client) {
	for _, list := range p.Foresight.Lists {
		list = list.DeepCopyObject().(client.ObjectList)
		err := kube.List(ctx, list, client.Limit(1))
		if apierrors.IsForbidden(err) || apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			p.refused[reflect.TypeOf(list)] = err
			continue
		}
		if err := p.List(ctx, list); err != nil {
			return // the connection has ended
		}
	}
	close(p.opened)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh(ctx)
	p.tidy()
}

// refresh builds the snapshot if there is none, or it is old.
func (p *Snapshot) refresh(ctx context.Context) {
	now := p.Clock.Now()
	if p.isFresh(now) {
		return
	}
	before := p.err
	p.Limit.making.Lock()
	now = p.Clock.Now()
	p.foresee, p.err = p.Foresight.See(ctx, p.Clock, p)
	p.made, p.took = now, p.Clock.Since(now)
	p.Limit.making.Unlock()
	p.kept = p.kept || p.err == nil && p.Limit.take()
	known := 1.0
	if p.err != nil {
		known = 0
		if before == nil || before.Error() != p.err.Error() {
			p.log.Info("The cluster cannot be forecast; only its place in the MultiKueueConfig decides which jobs it gets", "reason", p.err.Error())
		}
	}
	Foreseen.WithLabelValues(p.Cluster).Set(known)
}

func (p *Snapshot) isFresh(now time.Time) bool {
	return !p.made.IsZero() && p.isFreshSince(p.made, now)
}

func (p *Snapshot) isFreshSince(at, now time.Time) bool {
	return now.Sub(at) <= min(max(freshFor, mostShare*p.took), freshForMost)
}

// tidy drops a snapshot that exceeds the limit.
func (p *Snapshot) tidy() {
	if !p.kept {
		p.foresee, p.made = nil, time.Time{}
	}
}

// Drop drops a snapshot that is not fresh any more. The next job would build another one, and it takes as much memory as the objects.
func (p *Snapshot) Drop() {
	p.mu.Lock()
	now := p.Clock.Now()
	fresh := p.isFresh(now) || !p.prospectsAt.IsZero() && p.isFreshSince(p.prospectsAt, now)
	p.mu.Unlock()
	if !fresh {
		p.forget()
	}
}

// forget drops the snapshot, which frees its place in the limit.
func (p *Snapshot) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept {
		p.Limit.give()
	}
	p.kept, p.foresee, p.made, p.prospects, p.prospectsAt = false, nil, time.Time{}, nil, time.Time{}
}

// Get implements client.Reader.
func (p *Snapshot) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return p.Cache.Get(ctx, key, o, opts...)
}

// WhyInactive returns why a LocalQueue is inactive. It prefers the message of the ClusterQueue, which names what is missing, if that may
// be read.
func (p *Snapshot) WhyInactive(ctx context.Context, lq *kueue.LocalQueue, message string) string {
	select {
	case <-p.opened:
	default:
		return message
	}
	cq := &kueue.ClusterQueue{}
	if p.refused[reflect.TypeFor[*kueue.ClusterQueueList]()] == nil &&
		p.Cache.Get(ctx, client.ObjectKey{Name: string(lq.Spec.ClusterQueue)}, cq) == nil {
		if active := apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueActive); active != nil &&
			active.Status == metav1.ConditionFalse {
			return active.Message
		}
	}
	return message
}

// List implements client.Reader.
func (p *Snapshot) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := p.refused[reflect.TypeOf(list)]; err != nil {
		return err
	}
	if pods, ok := list.(*corev1.PodList); ok {
		return p.listPods(ctx, pods)
	}
	return p.Cache.List(ctx, list, opts...)
}

// listPods lists all pods. The cache cannot, since it holds KeptPods.
func (p *Snapshot) listPods(ctx context.Context, list *corev1.PodList) error {
	informer, err := p.Cache.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return err
	}
	kept := informer.(toolscache.SharedInformer).GetStore().List()
	list.Items = make([]corev1.Pod, len(kept))
	for i, o := range kept {
		list.Items[i] = *o.(*KeptPod).Whole()
	}
	return nil
}

// likeness is a hash of all that the prospect of a job depends on and that the worker does not have yet.
type likeness [sha256.Size]byte

// likenessOf leaves out the fields that only identify a job. ok is false if the job cannot be encoded.
func likenessOf(job *kueue.Workload) (out likeness, ok bool) {
	like := kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Labels: job.Labels,
		Annotations: maps.Clone(job.Annotations)}}
	delete(like.Annotations, dispatch.OriginAnnotation)
	delete(like.Annotations, workload.QueuedSinceAnnotation)
	job.Spec.DeepCopyInto(&like.Spec)
	for i := range like.Spec.PodSets {
		maps.DeleteFunc(like.Spec.PodSets[i].Template.Labels, func(key, _ string) bool { return slices.Contains(ofOneJob, key) })
	}
	text, err := json.Marshal(&like)
	return sha256.Sum256(text), err == nil
}

// ofOneJob are pod labels that differ from job to job.
var ofOneJob = []string{batchv1.JobNameLabel, batchv1.ControllerUidLabel, "job-name", "controller-uid"}

// Prospect returns the prospect of a job, or nil if there is no forecast. there: the worker may have the job already.
func (p *Snapshot) Prospect(ctx context.Context, job *kueue.Workload, there bool) *dispatch.Prospect {
	select {
	case <-p.opened:
	default:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	like, alike := likenessOf(job)
	alike = alike && !there && !slices.ContainsFunc(p.given, func(g given) bool { return g.job.UID == job.UID })
	if now := p.Clock.Now(); p.prospectsAt.IsZero() || !p.isFreshSince(p.prospectsAt, now) {
		p.prospects, p.prospectsAt = map[likeness]*dispatch.Prospect{}, now
	} else if out := p.prospects[like]; alike && out != nil {
		return out
	}
	out := p.foretell(ctx, job)
	if alike {
		p.prospects[like] = out
	}
	return out
}

// foretell computes the prospect of a job.
func (p *Snapshot) foretell(ctx context.Context, job *kueue.Workload) *dispatch.Prospect {
	defer p.tidy()
	if p.refresh(ctx); p.err != nil {
		return nil
	}
	p.given = slices.DeleteFunc(p.given, func(g given) bool { return p.Clock.Since(g.at) > givenFor })
	others := make([]*kueue.Workload, 0, len(p.given))
	for _, g := range p.given {
		if g.job.UID != job.UID {
			others = append(others, g.job)
		}
	}
	return p.foresee(others, job)
}

// Give counts a job in the worker from now on. Take stops counting it.
func (p *Snapshot) Give(job *kueue.Workload) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given, p.prospectsAt = append(p.given, given{job, p.Clock.Now()}), time.Time{}
}

func (p *Snapshot) Take(job types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.given)
	if p.given = slices.DeleteFunc(p.given, func(g given) bool { return g.job.UID == job }); len(p.given) < before {
		p.prospectsAt = time.Time{}
	}
}

package controller

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

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// freshFor is for how long a picture is taken for true at least; and it is not made more often than a share of the time that it takes.
	freshFor  = 100 * time.Millisecond
	mostShare = 20
	// mostPictures is how many are kept at once. One of 5,000 nodes takes 57 MB, as much again as what is kept of the worker itself; of more
	// workers each has one for as long as it is looked at.
	mostPictures = 8
	// givenFor is how long a job may take to show in the cluster that was nominated for it.
	givenFor = time.Minute
)

// Foresight tells what would become of jobs in a cluster by what may be read of it.
type Foresight struct {
	// Lists are empty lists of all kinds that are read.
	Lists []client.ObjectList
	// Trim removes what is never read of objects before they are kept.
	Trim toolscache.TransformFunc
	// See makes a picture of the cluster; an error where too little may be read.
	See func(ctx context.Context, c clock.PassiveClock, kube client.Reader) (Foresee, error)
}

// Foresee tells what would become of a job, after those that the cluster has been given and does not show yet.
type Foresee func(given []*kueue.Workload, job *kueue.Workload) *dispatch.Prospect

// gallery is the room for pictures.
type gallery struct {
	// making is held while one is made, which takes several times the memory.
	making sync.Mutex

	mu   sync.Mutex
	room int
}

// take reports whether there is room for one more, and takes it; give gives it back.
func (g *gallery) take() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.room == 0 {
		return false
	}
	g.room--
	return true
}

func (g *gallery) give() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.room++
}

// picture of a worker.
type picture struct {
	cluster   string
	foresight Foresight
	clock     clock.PassiveClock
	log       logr.Logger
	cache     cache.Cache
	gallery   *gallery
	// opened is closed once it is known what may be read, and that is there; refused is what was said of lists that may not.
	opened  chan struct{}
	refused map[reflect.Type]error

	mu sync.Mutex
	// foresee was made at that time, and took so long; err is why there is none, as was logged.
	foresee Foresee
	made    time.Time
	took    time.Duration
	err     error
	// kept: it has its room in the gallery.
	kept bool
	// told are the prospects of jobs since then, by what they have in common with others: those of a queue are often alike, and a picture
	// that there is no room for would be made for each of them.
	told   map[likeness]*dispatch.Prospect
	toldAt time.Time
	// given are jobs for which the worker was nominated, the oldest first.
	given []given
}

type given struct {
	job *kueue.Workload
	at  time.Time
}

// newPicture begins to read a worker.
func newPicture(ctx context.Context, cluster string, of *workers, kube client.Client, config *rest.Config) (*picture, error) {
	everything, err := cache.New(config, cache.Options{
		Scheme: kube.Scheme(), Mapper: kube.RESTMapper(), DefaultTransform: of.kept, DefaultUnsafeDisableDeepCopy: new(true),
	})
	if err != nil {
		return nil, err
	}
	p := &picture{
		cluster: cluster, foresight: of.foresight, clock: of.clock, log: ctrl.Log.WithName("pictures").WithValues("cluster", cluster),
		cache: everything, gallery: of.gallery, opened: make(chan struct{}), refused: map[reflect.Type]error{},
	}
	context.AfterFunc(ctx, p.forget)
	go func() { _ = everything.Start(ctx) }() // it ends with ctx, and says what goes wrong before
	go p.open(ctx, kube)
	return p, nil
}

// open finds out which kinds may be read, for a cache waits for ever for those that may not, and reads them.
func (p *picture) open(ctx context.Context, kube client.Client) {
	for _, list := range p.foresight.Lists {
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
	p.look(ctx)
	p.tidy()
}

// look makes the picture if there is none, or it is old.
func (p *picture) look(ctx context.Context) {
	now := p.clock.Now()
	if p.isFresh(now) {
		return
	}
	before := p.err
	p.gallery.making.Lock()
	now = p.clock.Now()
	p.foresee, p.err = p.foresight.See(ctx, p.clock, p)
	p.made, p.took = now, p.clock.Since(now)
	p.gallery.making.Unlock()
	p.kept = p.kept || p.err == nil && p.gallery.take()
	known := 1.0
	if p.err != nil {
		known = 0
		if before == nil || before.Error() != p.err.Error() {
			p.log.Info("Jobs come to the cluster by its place in the MultiKueueConfig only", "reason", p.err.Error())
		}
	}
	foreseenClusters.WithLabelValues(p.cluster).Set(known)
}

func (p *picture) isFresh(now time.Time) bool { return !p.made.IsZero() && p.isFreshSince(p.made, now) }

func (p *picture) isFreshSince(at, now time.Time) bool {
	return now.Sub(at) <= max(freshFor, mostShare*p.took)
}

// tidy forgets a picture that there is no room for.
func (p *picture) tidy() {
	if !p.kept {
		p.foresee, p.made = nil, time.Time{}
	}
}

// drop forgets a picture that is not fresh any more: the next job has another made, and it takes as much memory as what it is made of.
func (p *picture) drop() {
	p.mu.Lock()
	now := p.clock.Now()
	fresh := p.isFresh(now) || !p.toldAt.IsZero() && p.isFreshSince(p.toldAt, now)
	p.mu.Unlock()
	if !fresh {
		p.forget()
	}
}

// forget gives its room to others.
func (p *picture) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept {
		p.gallery.give()
	}
	p.kept, p.foresee, p.made, p.told, p.toldAt = false, nil, time.Time{}, nil, time.Time{}
}

// Get implements client.Reader.
func (p *picture) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return p.cache.Get(ctx, key, o, opts...)
}

// whyInactive says why a LocalQueue is, in the words of its ClusterQueue where that may be read: those name what is missing.
func (p *picture) whyInactive(ctx context.Context, lq *kueue.LocalQueue, message string) string {
	select {
	case <-p.opened:
	default:
		return message
	}
	cq := &kueue.ClusterQueue{}
	if p.refused[reflect.TypeFor[*kueue.ClusterQueueList]()] == nil &&
		p.cache.Get(ctx, client.ObjectKey{Name: string(lq.Spec.ClusterQueue)}, cq) == nil {
		if active := apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueActive); isFalse(active) {
			return active.Message
		}
	}
	return message
}

// List implements client.Reader.
func (p *picture) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := p.refused[reflect.TypeOf(list)]; err != nil {
		return err
	}
	if pods, ok := list.(*corev1.PodList); ok {
		return p.listPods(ctx, pods)
	}
	return p.cache.List(ctx, list, opts...)
}

// listPods lists all pods. They are not kept as such, so that the cache could not.
func (p *picture) listPods(ctx context.Context, list *corev1.PodList) error {
	informer, err := p.cache.GetInformer(ctx, &corev1.Pod{})
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

// likeness is what the prospect of a job depends on that is not in the worker yet.
type likeness [sha256.Size]byte

// likenessOf leaves out what tells a job from all others; ok is false if that cannot be told.
func likenessOf(job *kueue.Workload) (out likeness, ok bool) {
	like := kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Labels: job.Labels, Annotations: maps.Clone(job.Annotations)}}
	delete(like.Annotations, dispatch.OriginAnnotation)
	delete(like.Annotations, workload.QueuedSinceAnnotation)
	job.Spec.DeepCopyInto(&like.Spec)
	for i := range like.Spec.PodSets {
		maps.DeleteFunc(like.Spec.PodSets[i].Template.Labels, func(key, _ string) bool { return slices.Contains(ofOneJob, key) })
	}
	text, err := json.Marshal(&like)
	return sha256.Sum256(text), err == nil
}

// ofOneJob are labels of the pods of one job.
var ofOneJob = []string{batchv1.JobNameLabel, batchv1.ControllerUidLabel, "job-name", "controller-uid"}

// prospect of a job, which the worker may have already; nil if nothing can be said.
func (p *picture) prospect(ctx context.Context, job *kueue.Workload, there bool) *dispatch.Prospect {
	select {
	case <-p.opened:
	default:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	like, alike := likenessOf(job)
	alike = alike && !there && !slices.ContainsFunc(p.given, func(g given) bool { return g.job.UID == job.UID })
	if now := p.clock.Now(); p.toldAt.IsZero() || !p.isFreshSince(p.toldAt, now) {
		p.told, p.toldAt = map[likeness]*dispatch.Prospect{}, now
	} else if out := p.told[like]; alike && out != nil {
		return out
	}
	out := p.foretell(ctx, job)
	if alike {
		p.told[like] = out
	}
	return out
}

// foretell makes the prospect of a job.
func (p *picture) foretell(ctx context.Context, job *kueue.Workload) *dispatch.Prospect {
	defer p.tidy()
	if p.look(ctx); p.err != nil {
		return nil
	}
	p.given = slices.DeleteFunc(p.given, func(g given) bool { return p.clock.Since(g.at) > givenFor })
	others := make([]*kueue.Workload, 0, len(p.given))
	for _, g := range p.given {
		if g.job.UID != job.UID {
			others = append(others, g.job)
		}
	}
	return p.foresee(others, job)
}

// give has a job counted in the worker from now on; take does not any more.
func (p *picture) give(job *kueue.Workload) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given, p.toldAt = append(p.given, given{job, p.clock.Now()}), time.Time{}
}

func (p *picture) take(job types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.given)
	if p.given = slices.DeleteFunc(p.given, func(g given) bool { return g.job.UID == job }); len(p.given) < before {
		p.toldAt = time.Time{}
	}
}

// ungated is the copy of a Workload as it is once it may take quota.
func (s self) ungated(w *kueue.Workload) *kueue.Workload {
	out := s.copyFor(w, "", "")
	out.UID = w.UID
	delete(out.Annotations, workload.GatedByAnnotation)
	return out
}

// decide returns the next step, by the prospects of the Workload where they matter. One decision at a time: what one job is given is
// counted in for the next.
func (d *dispatcher) decide(ctx context.Context, w *kueue.Workload, clusters []dispatch.Cluster, next func() dispatch.Step) dispatch.Step {
	step := next()
	if step.Weigh {
		d.weighing.Lock()
		defer d.weighing.Unlock()
		d.weigh(ctx, w, clusters)
		step = next()
	}
	if step.Do == dispatch.Nominate || step.Do == dispatch.Withdraw {
		d.workers.expect(w, step.Nominated)
	}
	return step
}

// weigh adds what is known of the prospects of a Workload in the clusters.
func (d *dispatcher) weigh(ctx context.Context, w *kueue.Workload, clusters []dispatch.Cluster) {
	job := d.workers.self.ungated(w)
	for i := range clusters {
		c := &clusters[i]
		if !c.Connected || c.Lacks != "" || c.Copy != nil && c.Copy.Foreign {
			continue
		}
		if connection := d.workers.connection(c.Name); connection != nil {
			c.Prospect = connection.picture.prospect(ctx, job, c.Copy != nil)
		}
	}
}

// expect has a job counted in the clusters that are to be nominated for it, and in no others. Where that fails it is decided on again soon.
func (s *workers) expect(w *kueue.Workload, clusters []string) {
	for _, name := range s.names() {
		if c := s.connection(name); c != nil {
			c.picture.take(w.UID)
			if slices.Contains(clusters, name) {
				c.picture.give(s.self.ungated(w))
			}
		}
	}
}

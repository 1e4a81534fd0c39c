// Package history writes the record of what ran, waited and cost to ConfigMaps, one for each week.
package history

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/cost"
	"github.com/muster-dev/muster/queueing/history"
	"github.com/muster-dev/muster/queueing/workload"
)

// Spender returns costs. Each is returned once.
type Spender interface {
	TakeLines(now time.Time) map[cost.Line]cost.Entry
}

// Recorder keeps the history of the process that leads. A process that is killed loses what has happened since the last write: a minute of
// costs at most, and no job whose Workload is still there.
type Recorder struct {
	Client client.Client
	// Live reads past any cache.
	Live      client.Reader
	Namespace string
	Informers cache.Informers
	// Spender is nil where another process launches machines.
	Spender Spender
	Clock   clock.WithTicker

	mu sync.Mutex
	// ended jobs that are in no record yet.
	ended []history.Job
	// payers are the names of the jobs of requests. gone are the payers that were deleted since the last write.
	payers map[types.UID]string
	gone   map[types.UID]bool
	// users created the jobs of Workloads, where users are recorded. left are the Workloads that were deleted since the last write.
	users map[types.NamespacedName]string
	left  map[types.NamespacedName]bool

	weeks map[string]*history.Record
	dirty map[string]bool
}

// writeEvery is how often the history is written, at most and if something has happened.
const writeEvery = time.Minute

// lastWrite bounds the write at the end of the process.
const lastWrite = 5 * time.Second

// Start records until ctx is done.
func (r *Recorder) Start(ctx context.Context) error {
	r.payers, r.gone, r.dirty = map[types.UID]string{}, map[types.UID]bool{}, map[string]bool{}
	r.users, r.left = map[types.NamespacedName]string{}, map[types.NamespacedName]bool{}
	ticker := r.Clock.NewTicker(writeEvery)
	defer ticker.Stop()
	for r.weeks == nil {
		if err := r.load(ctx); err == nil {
			break
		} else if ctx.Err() == nil {
			log.FromContext(ctx).Info("Reading the history will be retried", "reason", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
	if err := r.watch(ctx); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
			defer cancel()
			if err := r.write(last); err != nil {
				log.FromContext(ctx).Info("The last minute of the history was not written", "reason", err.Error())
			}
			return nil
		case <-ticker.C():
			if err := r.write(ctx); err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Info("Writing the history will be retried", "reason", err.Error())
			}
		}
	}
}

// load reads the records of all slots. A slot whose record cannot be read begins again.
func (r *Recorder) load(ctx context.Context) error {
	weeks, err := Read(ctx, r.Live, r.Namespace)
	if err != nil {
		return err
	}
	r.weeks = map[string]*history.Record{}
	for _, record := range weeks {
		r.weeks[record.Week] = record
	}
	return nil
}

// Read reads all records, the oldest week first. A ConfigMap that does not exist, or has no record that can be read, is passed over.
func Read(ctx context.Context, kube client.Reader, namespace string) (out []*history.Record, err error) {
	for slot := range history.Slots {
		there := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: namespace, Name: history.Name(slot)}
		if err := kube.Get(ctx, key, there); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("reading ConfigMap %s: %w", key, err)
		}
		if record, err := history.Decode(there.BinaryData[history.Key]); err == nil {
			out = append(out, record)
		}
	}
	slices.SortFunc(out, func(a, b *history.Record) int { return strings.Compare(a.Week, b.Week) })
	return out, nil
}

// watch watches Workloads, and the requests that costs are of, as long as ctx is not done. Without a Spender there are no costs, and the
// cluster may not even have the kind of requests.
func (r *Recorder) watch(ctx context.Context) error {
	workloads := r.handle(ctx, &kueue.Workload{}, toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.changed(nil, o) },
		UpdateFunc: func(before, now any) { r.changed(before, now) },
		DeleteFunc: func(o any) { r.deleted(o) },
	})
	if workloads != nil || r.Spender == nil {
		return workloads
	}
	return r.handle(ctx, &provreq.ProvisioningRequest{}, toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.requested(o) },
		UpdateFunc: func(_, now any) { r.requested(now) },
		DeleteFunc: func(o any) { r.deleted(o) },
	})
}

func (r *Recorder) handle(ctx context.Context, of client.Object, handler toolscache.ResourceEventHandler) error {
	informer, err := r.Informers.GetInformer(ctx, of)
	if err == nil {
		_, err = informer.AddEventHandler(handler)
	}
	if err != nil {
		return fmt.Errorf("watching %T: %w", of, err)
	}
	return nil
}

// changed notes the user of a job, and a job that has ended. One that had ended before is recorded already, unless no process was there
// to do it.
func (r *Recorder) changed(before, now any) {
	w, ok := now.(*kueue.Workload)
	old, updated := before.(*kueue.Workload)
	if ok {
		r.created(w)
	}
	if !ok || !workload.IsFinished(w) || workload.IsReplaced(w) || updated && workload.IsFinished(old) && old.UID == w.UID {
		return
	}
	if !updated || old.UID != w.UID {
		old = w
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, history.End(w, old, time.Time{}))
}

// created notes the user that created the job of a Workload.
func (r *Recorder) created(w *kueue.Workload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := workload.KeyOf(w)
	delete(r.left, key)
	if user := w.Annotations[workload.SubmittedByAnnotation]; user != "" {
		r.users[key] = user
	} else {
		delete(r.users, key)
	}
}

func (r *Recorder) deleted(o any) {
	if missed, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = missed.Obj
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch o := o.(type) {
	case *provreq.ProvisioningRequest:
		r.gone[o.UID] = true
	case *kueue.Workload:
		r.left[workload.KeyOf(o)] = true
		if !workload.IsFinished(o) {
			r.ended = append(r.ended, history.End(o, o, r.Clock.Now()))
		}
	}
}

func (r *Recorder) requested(o any) {
	request, ok := o.(*provreq.ProvisioningRequest)
	if !ok {
		return
	}
	payer := "provisioningrequest/" + request.Name
	if owner := metav1.GetControllerOf(request); owner != nil && owner.Kind == "Workload" {
		payer = owner.Name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.payers[request.UID] = payer
}

// write adds to the records what has happened, and writes those that have changed.
func (r *Recorder) write(ctx context.Context) error {
	now := r.Clock.Now()
	groups := &v1alpha1.NodeGroupList{}
	var lines map[cost.Line]cost.Entry
	if r.Spender != nil {
		if err := r.Client.List(ctx, groups); err != nil {
			return fmt.Errorf("listing NodeGroups: %w", err)
		}
		lines = r.Spender.TakeLines(now)
	}
	var catalog history.Catalog
	for i := range groups.Items {
		catalog = append(catalog, &groups.Items[i])
	}
	r.enter(now, lines, catalog)
	for _, week := range slices.Sorted(maps.Keys(r.dirty)) {
		if err := r.put(ctx, r.weeks[week]); err != nil {
			return err
		}
		delete(r.dirty, week)
	}
	return nil
}

// enter takes over what was noted.
func (r *Recorder) enter(now time.Time, lines map[cost.Line]cost.Entry, catalog history.Catalog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := history.WeekOf(now.AddDate(0, 0, -7*(history.Slots-1))).String()
	for _, j := range r.ended {
		if record := r.record(history.WeekOf(j.Ended)); record.Week >= oldest && !record.Has(&j) {
			record.Jobs = append(record.Jobs, j)
			r.dirty[record.Week] = true
		}
	}
	r.ended = nil
	for line, e := range lines {
		if e == (cost.Entry{}) {
			continue
		}
		record := r.record(history.WeekOf(line.Day))
		charged := catalog.CostOf(line, e, r.payers[line.Request])
		charged.User = r.users[types.NamespacedName{Namespace: charged.Namespace, Name: charged.Workload}]
		record.Charge(charged)
		record.Groups[line.Group] = catalog.Offering(line.Group)
		r.dirty[record.Week] = true
	}
	for uid := range r.gone {
		delete(r.payers, uid)
	}
	clear(r.gone)
	for key := range r.left {
		delete(r.users, key)
	}
	clear(r.left)
	maps.DeleteFunc(r.weeks, func(week string, _ *history.Record) bool { return week < oldest })
	maps.DeleteFunc(r.dirty, func(week string, _ bool) bool { return week < oldest })
}

func (r *Recorder) record(w history.Week) *history.Record {
	if r.weeks[w.String()] == nil {
		r.weeks[w.String()] = history.NewRecord(w)
	}
	return r.weeks[w.String()]
}

// put writes a record to the ConfigMap of its slot, in place of the one of five weeks before.
func (r *Recorder) put(ctx context.Context, record *history.Record) error {
	text, err := record.Encode()
	if err != nil {
		return err
	}
	week, err := time.Parse(time.DateOnly, record.Week)
	if err != nil {
		return fmt.Errorf("a record of the history has the week %q: %w", record.Week, err)
	}
	patch, err := json.Marshal(map[string]any{"binaryData": map[string][]byte{history.Key: text}})
	if err != nil {
		return err
	}
	on := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: history.Name(history.WeekOf(week).Slot())}}
	if err := r.Client.Patch(ctx, on, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", on.Namespace, on.Name, err)
	}
	return nil
}

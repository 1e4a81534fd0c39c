package jobs

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/controller/metrics"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/jobs/owned"
)

const (
	// lag is how long a created Workload may be missing in the cache before the job counts
	// as one that has none, and how often pods are read that have to go, or to come;
	// caches are rarely a second behind.
	lag = 5 * time.Second
	// settling is for how long the pods of a job that are done are not yet reported as
	// reclaimable.
	settling = 10 * time.Second
)

// prebuiltIndex finds jobs by the prebuilt Workload that they name.
const prebuiltIndex = "prebuilt"

// reconciler keeps the jobs of a kind and their Workloads in step.
type reconciler struct {
	kind   Kind
	client client.Client
	// live reads past the cache, where a mistake would stop a running job.
	live     client.Reader
	recorder events.EventRecorder
	metrics  *metrics.Metrics
	now      func() time.Time
	// podsReady: the configuration waits for the condition PodsReady.
	podsReady bool
	// managed are the namespaces whose jobs are queued at all; nil is all.
	managed labels.Selector
	// unqueued are the namespaces whose jobs are queued even if they name no queue; nil is
	// none.
	unqueued labels.Selector
	// owners are the kinds whose objects queue with all that they control.
	owners map[schema.GroupKind]Kind
	// labelsToCopy are the keys of the labels that a job's Workload has, too.
	labelsToCopy []string
	// kin are the kinds that the cluster serves.
	owned *owned.Kinds
	// gangs: the cluster serves PodGroups.
	gangs *atomic.Bool
	// someNamePrebuilt: the index of jobs by their prebuilt Workload has had some.
	someNamePrebuilt atomic.Bool

	memories
}

// pause is the error of an action that has to wait for what may come without an event.
type pause struct {
	time.Duration
	why string
}

func (p *pause) Error() string { return p.why }

var (
	// errPodsLeft: pods of a stopped job are not over yet. Pods are not watched, and the job's status need not change when the last one
	// is gone.
	errPodsLeft = &pause{lag, "pods are left"}
	// errPodsMissing: pods of a started job have not come. That they are refused changes
	// nothing of the job.
	errPodsMissing = &pause{lag, "pods are missing"}
	// errChildrenLeft: objects of an earlier start are being deleted. They are not watched.
	errChildrenLeft = &pause{time.Second, "objects of an earlier start are left"}
	// errNotServed: the CRD of Workloads is gone. That it is back comes as no event of a job.
	errNotServed = &pause{settling, "Workloads are not served"}
	// errTooEarly: there is something to do that may yet turn out to be needless.
	errTooEarly = &pause{settling, "it is too early"}
)

// patch changes a job as it was read, and fails if it has changed since: so a start and
// an edit of the template cannot cross.
func (r *reconciler) patch(ctx context.Context, job client.Object, change func(client.Object) error) error {
	changed := job.DeepCopyObject().(client.Object)
	if err := change(changed); err != nil {
		return err
	}
	if err := r.client.Patch(ctx, changed, client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching %s: %w", r.name(job), err)
	}
	return nil
}

// confirmNewest fails unless the cache has the newest version of a job.
func (r *reconciler) confirmNewest(ctx context.Context, job client.Object) error {
	live, err := r.newJob()
	if err != nil {
		return err
	}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(job), live); err != nil {
		return fmt.Errorf("reading %s: %w", r.name(job), err)
	}
	if live.GetUID() != job.GetUID() || live.GetResourceVersion() != job.GetResourceVersion() {
		return writes.ErrBehind
	}
	return nil
}

// newJob is an empty job to read one into.
func (r *reconciler) newJob() (client.Object, error) { return r.newObject(r.kind) }

// newObject is an empty object of a kind, of the scheme's type where it has one.
func (r *reconciler) newObject(kind Kind) (client.Object, error) {
	gvk := kind.GroupVersionKind()
	if !r.client.Scheme().Recognizes(gvk) {
		job := &unstructured.Unstructured{}
		job.SetGroupVersionKind(gvk)
		return job, nil
	}
	object, err := r.client.Scheme().New(gvk)
	if err != nil {
		return nil, fmt.Errorf("creating an empty %s: %w", gvk.Kind, err)
	}
	return object.(client.Object), nil
}

// newList is an empty list to read jobs into.
func (r *reconciler) newList() (client.ObjectList, error) {
	gvk := r.kind.GroupVersionKind()
	gvk.Kind += "List"
	if !r.client.Scheme().Recognizes(gvk) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	}
	object, err := r.client.Scheme().New(gvk)
	if err != nil {
		return nil, fmt.Errorf("creating an empty %s: %w", gvk.Kind, err)
	}
	return object.(client.ObjectList), nil
}

// name is that of a job in errors.
func (r *reconciler) name(job client.Object) string {
	return fmt.Sprintf("%s %s/%s", r.kind.GroupVersionKind().Kind, job.GetNamespace(), job.GetName())
}

func (r *reconciler) event(job client.Object, kind, reason, format string, args ...any) {
	r.recorder.Eventf(job, nil, kind, reason, reason, "%s", text.Clip(fmt.Sprintf(format, args...), text.NoteLimit))
}

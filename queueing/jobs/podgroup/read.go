package podgroup

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs"
)

// read reads a gang; nil if nothing is queued by that name.
func (r *reconciler) read(ctx context.Context, k key) (g *gang, err error) {
	pods, err := r.podsOf(ctx, k)
	if err != nil {
		return nil, err
	}
	switch k.family {
	case group:
		return groupOfPods(k, pods), nil
	case ofStatefulSet:
		g, err = r.readStatefulSet(ctx, k)
	case ofLeaderWorkerSet:
		g, err = r.readLeaderWorkerSet(ctx, k)
	default:
		if len(pods) == 0 {
			return r.readUnqueued(ctx, k)
		}
		return singleOf(k, pods[0]), nil
	}
	if g == nil || err != nil {
		return nil, err
	}
	g.add(pods)
	return g, nil
}

// readUnqueued reads the gang of a pod that has been taken out of its queue while it waited, or has gone to another gang, so that its
// Workload goes; nil for others.
func (r *reconciler) readUnqueued(ctx context.Context, k key) (*gang, error) {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: k.namespace, Name: k.name}, pod); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if _, queued := keyOf(pod); !isGated(pod) && !queued {
		return nil, nil
	}
	return &gang{key: k, job: pod, kind: podKind}, nil
}

// podsOf reads the pods of a gang.
func (r *reconciler) podsOf(ctx context.Context, k key) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := r.client.List(ctx, &list, client.InNamespace(k.namespace), client.MatchingFields{gangIndex: k.String()}); err != nil {
		return nil, fmt.Errorf("listing the pods of %s/%s: %w", k.namespace, k.name, err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}

// isQueued reports whether an object and the template of its pods name a queue. One that was
// there before Muster has pods that nothing gates.
func isQueued(o client.Object, template *corev1.PodTemplateSpec, parent string) bool {
	return o.GetLabels()[jobs.QueueLabel] != "" && template.Annotations[parentAnnotation] == parent
}

// serving is the gang of what creates its pods, and for ever.
func serving(k key, job client.Object) *gang {
	return &gang{key: k, job: job, podSet: main, awaited: true, serves: true, leaves: job.GetDeletionTimestamp() != nil}
}

// addPodSet adds pods of a template. The label numbers them; empty is none.
func (g *gang) addPodSet(name kueue.PodSetReference, count int32, template *corev1.PodTemplateSpec, indexLabel string) {
	if count <= 0 {
		return
	}
	g.total += int(count)
	podSet := kueue.PodSet{Name: name, Count: count, Template: *template.DeepCopy()}
	if indexLabel != "" {
		podSet.TopologyRequest = numbered(indexLabel)
	}
	g.podSets = append(g.podSets, podSet)
}

func numbered(indexLabel string) *kueue.PodSetTopologyRequest {
	return &kueue.PodSetTopologyRequest{PodIndexLabel: &indexLabel}
}

// readStatefulSet reads the gang of a StatefulSet; nil if that is not queued.
func (r *reconciler) readStatefulSet(ctx context.Context, k key) (*gang, error) {
	set := &appsv1.StatefulSet{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: k.namespace, Name: k.name}, set); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return setOf(k, set), nil
}

// setOf is the gang of a StatefulSet; nil if that is not queued.
func setOf(k key, set *appsv1.StatefulSet) *gang {
	if !isQueued(set, &set.Spec.Template, statefulSetParent) {
		return nil
	}
	g := serving(k, set)
	g.kind = statefulSetKind
	g.addPodSet(kueue.DefaultPodSetName, ptr.Deref(set.Spec.Replicas, 1), &set.Spec.Template, appsv1.PodIndexLabel)
	return g
}

// leaderWorkerSet is what is read of one.
type leaderWorkerSet struct {
	Spec struct {
		Replicas        *int32 `json:"replicas"`
		RolloutStrategy struct {
			RollingUpdateConfiguration struct {
				MaxSurge *intstr.IntOrString `json:"maxSurge"`
			} `json:"rollingUpdateConfiguration"`
		} `json:"rolloutStrategy"`
		LeaderWorkerTemplate struct {
			Size           *int32                  `json:"size"`
			LeaderTemplate *corev1.PodTemplateSpec `json:"leaderTemplate"`
			WorkerTemplate corev1.PodTemplateSpec  `json:"workerTemplate"`
		} `json:"leaderWorkerTemplate"`
	} `json:"spec"`
}

// Names of the pod sets of a LeaderWorkerSet whose leader has a template of its own.
const (
	leader = "leader"
	worker = "worker"
)

func newLeaderWorkerSet() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(leaderWorkerSetKind)
	return o
}

// parse reads what counts of a LeaderWorkerSet.
func parse(o *unstructured.Unstructured) (out leaderWorkerSet, err error) {
	text, err := json.Marshal(o.Object)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return out, fmt.Errorf("reading LeaderWorkerSet %s/%s: %w", o.GetNamespace(), o.GetName(), err)
	}
	return out, nil
}

// surge is how many groups beyond its replicas a LeaderWorkerSet has at most during a rolling update, as its controller rounds that.
func (s *leaderWorkerSet) surge(replicas int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(s.Spec.RolloutStrategy.RollingUpdateConfiguration.MaxSurge,
		intstr.FromInt32(0)), replicas, true)
	if err != nil {
		return 0 // its own webhook refuses it
	}
	return max(0, n)
}

// readLeaderWorkerSet reads the gang of one group; nil if its LeaderWorkerSet is not queued.
func (r *reconciler) readLeaderWorkerSet(ctx context.Context, k key) (*gang, error) {
	object := newLeaderWorkerSet()
	// Any user's pod may name one, and a cache would wait for a kind that it may not watch.
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: k.namespace, Name: k.name}, object); err != nil {
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading LeaderWorkerSet %s/%s: %w", k.namespace, k.name, err)
	}
	return leaderWorkerGroupOf(k, object)
}

// leaderWorkerGroupOf is the gang of one group; nil if its LeaderWorkerSet is not queued.
func leaderWorkerGroupOf(k key, object *unstructured.Unstructured) (*gang, error) {
	set, err := parse(object)
	if err != nil {
		return nil, err
	}
	t := &set.Spec.LeaderWorkerTemplate
	if !isQueued(object, &t.WorkerTemplate, leaderWorkerSetParent) {
		return nil, nil
	}
	g := serving(k, object)
	g.kind = leaderWorkerSetKind
	replicas := int(ptr.Deref(set.Spec.Replicas, 1))
	if g.surges = k.index >= replicas; k.index >= replicas+set.surge(replicas) {
		return g, nil
	}
	size := ptr.Deref(t.Size, 1)
	if t.LeaderTemplate == nil {
		g.addPodSet(kueue.DefaultPodSetName, size, &t.WorkerTemplate, workerIndexLabel)
		return g, nil
	}
	g.podSet = func(pod *corev1.Pod) kueue.PodSetReference {
		if pod.Labels[workerIndexLabel] == "0" {
			return leader
		}
		return worker
	}
	g.addPodSet(leader, 1, t.LeaderTemplate, "")
	g.addPodSet(worker, size-1, &t.WorkerTemplate, workerIndexLabel)
	return g, nil
}

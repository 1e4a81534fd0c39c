package podgroup

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// Queues reports whether objects of a kind have their pods queued by gates.
func Queues(kind schema.GroupVersionKind) bool {
	return kind == podKind || kind == statefulSetKind || kind == leaderWorkerSetKind
}

// Workloads returns the Workloads of objects of these kinds that name a queue, in their order. A group of pods has one. The objects may
// be as the policies leave them, or as users write them.
func Workloads(ctx context.Context, kube client.Reader, objects ...client.Object) (out []*kueue.Workload, err error) {
	gangs, err := gangsOf(objects)
	if err != nil {
		return nil, err
	}
	for _, g := range gangs {
		w, err := wanted(ctx, kube, g, nil)
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

// gangsOf are those of objects.
func gangsOf(objects []client.Object) (out []*gang, err error) {
	pods := map[key][]*corev1.Pod{}
	at := map[key]int{}
	for _, o := range objects {
		switch o := o.DeepCopyObject().(type) {
		case *corev1.Pod:
			metav1.SetMetaDataLabel(&o.ObjectMeta, workload.ManagedLabel, "true")
			k, _ := keyOf(o)
			if pods[k] = append(pods[k], o); len(pods[k]) == 1 {
				at[k] = len(out)
				out = append(out, nil)
			}
		case *appsv1.StatefulSet:
			metav1.SetMetaDataAnnotation(&o.Spec.Template.ObjectMeta, parentAnnotation, statefulSetParent)
			out = append(out, setOf(key{family: ofStatefulSet, namespace: o.Namespace, name: o.Name}, o))
		case *unstructured.Unstructured:
			if err := mark(o); err != nil {
				return nil, err
			}
			for _, k := range gangsOfLeaderWorkerSet(context.Background(), o) {
				g, err := leaderWorkerGroupOf(k, o)
				if err != nil {
					return nil, err
				}
				out = append(out, g)
			}
		}
	}
	for k, i := range at {
		if out[i] = groupOfPods(k, pods[k]); k.family == single {
			out[i] = singleOf(k, pods[k][0])
		}
	}
	return out, nil
}

// mark does as the policy for LeaderWorkerSets.
func mark(o *unstructured.Unstructured) error {
	return unstructured.SetNestedField(o.Object, leaderWorkerSetParent, "spec", "leaderWorkerTemplate", "workerTemplate", "metadata",
		"annotations", parentAnnotation)
}

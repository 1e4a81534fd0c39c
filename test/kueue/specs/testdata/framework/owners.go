package framework

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/workloadslicing"
)

// owners gives each Workload that a spec creates a job, of a kind without a controller: the specs act as its controller. They evict
// Workloads and end the eviction by hand, whereas Muster releases a Workload without a job at its eviction.
type owners struct {
	// none is set if the suite is about jobs, where a Workload without one waits for its job.
	none bool
	// jobs contains the jobs of the Workloads that a slice may replace, by namespace and name.
	jobs map[types.NamespacedName]metav1.OwnerReference
}

func (o owners) client(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: get, List: list,
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			w, ok := object.(*kueue.Workload)
			if !ok || o.none || len(w.OwnerReferences) > 0 {
				return c.Create(ctx, object, opts...)
			}
			job := o.jobOf(w)
			w.OwnerReferences = []metav1.OwnerReference{job}
			if err := c.Create(ctx, w, opts...); err != nil {
				return err
			}
			o.jobs[client.ObjectKeyFromObject(w)] = job
			return nil
		},
	})
}

// jobOf returns the job of the Workload that w replaces, or a new one.
func (o owners) jobOf(w *kueue.Workload) metav1.OwnerReference {
	if replaced := workloadslicing.ReplacementForKey(w); replaced != nil {
		namespace, name, _ := strings.Cut(string(*replaced), "/")
		if job, ok := o.jobs[types.NamespacedName{Namespace: namespace, Name: name}]; ok {
			return job
		}
	}
	name := w.Name
	if name == "" {
		name = w.GenerateName + "job"
	}
	return metav1.OwnerReference{
		APIVersion: "specs.muster.dev/v1", Kind: "Job", Name: name, UID: uuid.NewUUID(), Controller: new(true),
	}
}

package jobs

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// resolve gives a job what its source says of its pods. It reports whether that follows from
// the job as it is now.
func (r *reconciler) resolve(ctx context.Context, job client.Object) (current bool, err error) {
	kind, ok := r.kind.(Resolver)
	if !ok || kind.Source().Empty() {
		return true, nil
	}
	source := &unstructured.Unstructured{}
	source.SetGroupVersionKind(kind.Source())
	name := client.ObjectKey{Namespace: job.GetNamespace(), Name: kind.SourceName(job)}
	if name.Name == "" {
		return kind.Resolve(job, nil), nil
	}
	if err := r.client.Get(ctx, name, source); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the %s of %s: %w", kind.Source().Kind, r.name(job), err)
	}
	if !metav1.IsControlledBy(source, job) {
		return kind.Resolve(job, nil), nil
	}
	return kind.Resolve(job, source), nil
}

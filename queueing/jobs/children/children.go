// Package children deletes what the controller of a job made for an earlier start.
package children

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/queueing/workload"
)

// Kind is the kind of objects of a job, and the labels that they have.
type Kind struct {
	Kind   schema.GroupVersionKind
	Labels client.MatchingLabels
}

// template is where objects like a Job have the labels of their pods.
var template = []string{"spec", "template", "metadata", "labels", workload.JobUIDLabel}

// Clear deletes what a job's controller made for an earlier start, and reports whether there was
// anything: the pods of such objects would go where they were admitted then. Whatever bears the
// label of a start while the job has none is from an earlier one.
func Clear(ctx context.Context, kube client.Client, live client.Reader, job client.Object, kinds []Kind) (left bool, err error) {
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.Kind.GroupVersion().WithKind(kind.Kind.Kind + "List"))
		if err := live.List(ctx, list, client.InNamespace(job.GetNamespace()), kind.Labels); err != nil {
			return left, fmt.Errorf("listing the %ss of %s/%s: %w", kind.Kind.Kind, job.GetNamespace(), job.GetName(), err)
		}
		for i := range list.Items {
			child := &list.Items[i]
			if _, started, _ := unstructured.NestedString(child.Object, template...); !started {
				continue
			}
			left = true
			if child.GetDeletionTimestamp() != nil {
				continue
			}
			uid := child.GetUID()
			err := kube.Delete(ctx, child, client.Preconditions{UID: &uid}, client.PropagationPolicy("Background"))
			if err != nil && !apierrors.IsNotFound(err) {
				return left, fmt.Errorf("deleting %s %s/%s of an earlier start: %w", kind.Kind.Kind, child.GetNamespace(), child.GetName(), err)
			}
		}
	}
	return left, nil
}

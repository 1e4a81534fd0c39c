package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// probeName is that of objects that are never stored.
const probeName = "muster-policy-probe"

// policiesInForce returns when the admission policies act. kube-apiserver takes
// them up a moment after they exist: a queued Job made in that moment would start
// by itself, and an object of a kind that a mutating policy is about is refused,
// whatever its failurePolicy, until kube-apiserver has read that kind's schema.
func policiesInForce(ctx context.Context, config *rest.Config) error {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	kinds, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	flavors := kinds.Resource(kueue.SchemeGroupVersion.WithResource("resourceflavors"))
	flavor := &unstructured.Unstructured{}
	flavor.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("ResourceFlavor"))
	flavor.SetName(probeName)
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	probe := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: probeName, Labels: map[string]string{"kueue.x-k8s.io/queue-name": "probe"},
	}}
	probe.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "probe", Image: "probe"}},
	}
	for {
		made, err := kube.BatchV1().Jobs(metav1.NamespaceDefault).Create(ctx, probe, dryRun)
		if err == nil && made.Spec.Suspend != nil && *made.Spec.Suspend {
			if _, err = flavors.Create(ctx, flavor, dryRun); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the admission policies to act: %w", errors.Join(context.Cause(ctx), err))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

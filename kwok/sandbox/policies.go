package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// policiesInForce returns when the admission policies act. kube-apiserver takes
// them up a moment after they exist, and a queued Job made in that moment would
// start by itself.
func policiesInForce(ctx context.Context, config *rest.Config) error {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	probe := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: "muster-policy-probe", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "probe"},
	}}
	probe.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "probe", Image: "probe"}},
	}
	for {
		made, err := kube.BatchV1().Jobs(metav1.NamespaceDefault).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && made.Spec.Suspend != nil && *made.Spec.Suspend {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the admission policies to act: %w", errors.Join(context.Cause(ctx), err))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

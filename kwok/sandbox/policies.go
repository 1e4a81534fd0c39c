package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// policiesInForce returns when the admission policies act. kube-apiserver takes
// them up a moment after they exist, those of each sort by itself; a queued Job
// made in that moment would start by itself. And for up to 5 s after a kind of
// Kueue's is installed it cannot tell whether to change objects of it, and
// refuses them for so long.
func policiesInForce(ctx context.Context, config *rest.Config) error {
	if err := quotasInForce(ctx, config); err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	queues, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, probe := range []func(context.Context) (bool, error){
		func(ctx context.Context) (bool, error) { return jobsAreSuspended(ctx, kube) },
		func(ctx context.Context) (bool, error) { return flavorsAreFinalized(ctx, queues) },
	} {
		if err := await(ctx, probe); err != nil {
			return err
		}
	}
	return nil
}

// quotasInForce returns when the validating policies act.
func quotasInForce(ctx context.Context, config *rest.Config) error {
	queues, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	return await(ctx, func(ctx context.Context) (bool, error) { return quotasAreJudged(ctx, queues) })
}

func await(ctx context.Context, probe func(context.Context) (bool, error)) error {
	for {
		acts, err := probe(ctx)
		if acts {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the admission policies to act: %w", errors.Join(context.Cause(ctx), err))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// probeName is of objects that are not kept.
const probeName = "muster-policy-probe"

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

func jobsAreSuspended(ctx context.Context, kube kubernetes.Interface) (bool, error) {
	probe := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: probeName, Labels: map[string]string{"kueue.x-k8s.io/queue-name": "probe"}}}
	probe.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "probe", Image: "probe"}},
	}
	made, err := kube.BatchV1().Jobs(metav1.NamespaceDefault).Create(ctx, probe, dryRun)
	return err == nil && made.Spec.Suspend != nil && *made.Spec.Suspend, err
}

func flavorsAreFinalized(ctx context.Context, queues dynamic.Interface) (bool, error) {
	made, err := queues.Resource(kueue.SchemeGroupVersion.WithResource("resourceflavors")).Create(ctx,
		queueObject("ResourceFlavor", probeName, nil), dryRun)
	return err == nil && slices.Contains(made.GetFinalizers(), kueue.ResourceInUseFinalizerName), err
}

func quotasAreJudged(ctx context.Context, queues dynamic.Interface) (bool, error) {
	bad := map[string]any{"fairSharing": map[string]any{"weight": "-1"}}
	_, err := queues.Resource(kueue.SchemeGroupVersion.WithResource("cohorts")).Create(ctx, queueObject("Cohort", probeName, bad), dryRun)
	return apierrors.IsForbidden(err), err
}

func queueObject(kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind(kind))
	o.SetName(name)
	return o
}

package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestAnActionThatIsRefusedHalfway names the objects that it has changed.
func TestAnActionThatIsRefusedHalfway(t *testing.T) {
	for refused, want := range map[string]string{
		"a": "nothing is changed: refused",
		"c": "only a, b of 3 objects were changed: refused",
	} {
		kube := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, options ...client.PatchOption) error {
				var all client.PatchOptions
				if all.ApplyOptions(options); len(all.DryRun) == 0 && o.GetName() == refused {
					return errors.New("refused")
				}
				return nil
			},
		}).Build()
		a := action{}
		for _, name := range []string{"a", "b", "c"} {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
			a.changes = append(a.changes, change{pod, merge(map[string]any{"spec": nil})})
		}
		if err := carryOut(t.Context(), io.Discard, kube, a, true); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestAnActionWithoutTheRight names the binding that gives it, of a namespace or of the cluster.
func TestAnActionWithoutTheRight(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "a", errors.New(`User "you" cannot patch`))
	kube := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return forbidden
		},
	}).Build()
	for namespace, want := range map[string]string{
		"team-a": "in the namespace: kubectl create rolebinding batch-admin-YOU --clusterrole=muster-batch-admin --user=YOU -n team-a",
		"":       "that right: kubectl create clusterrolebinding batch-admin-YOU --clusterrole=muster-batch-admin --user=YOU",
	} {
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
		a := action{changes: []change{{o, merge(map[string]any{"spec": nil})}}}
		if err := carryOut(t.Context(), io.Discard, kube, a, true); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

package main

import (
	"context"
	"errors"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
			a.changes = append(a.changes, change{pod, map[string]any{"spec": nil}})
		}
		if err := carryOut(t.Context(), io.Discard, kube, a, true); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

package view

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestConfigMapsAreReadAgainWhenTheyHaveChanged and not else, also through another client of the same cluster.
func TestConfigMapsAreReadAgainWhenTheyHaveChanged(t *testing.T) {
	whole := 0
	kube := fake.NewClientBuilder().WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"},
		BinaryData: map[string][]byte{"week": []byte("1")}}).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			if _, ok := into.(*corev1.ConfigMap); ok {
				whole++
			}
			return c.Get(ctx, key, into, options...)
		},
	}).Build()
	kept := &KeptConfigMaps{}
	key := client.ObjectKey{Namespace: "ns", Name: "a"}
	read := func(want string, reads int) *corev1.ConfigMap {
		t.Helper()
		whole = 0
		out := &corev1.ConfigMap{}
		if err := kept.Of(kube).Get(t.Context(), key, out); err != nil || string(out.BinaryData["week"]) != want || whole != reads {
			t.Fatalf("it has %q after %d reads (%v), want %q after %d", out.BinaryData["week"], whole, err, want, reads)
		}
		return out
	}
	read("1", 1)
	read("1", 0).BinaryData["week"][0] = 'x'
	changed := read("1", 0)
	changed.BinaryData["week"] = []byte("2")
	if err := kube.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	read("2", 1)
	read("2", 0)
	if err := kube.Delete(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if err := kept.Of(kube).Get(t.Context(), key, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is gone: %v", err)
	}
}

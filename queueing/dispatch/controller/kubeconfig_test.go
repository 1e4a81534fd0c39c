package controller

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestAKubeconfigIsReadFromWhereItIs: from a Secret or a file. A changed kubeconfig takes effect without a restart.
func TestAKubeconfigIsReadFromWhereItIs(t *testing.T) {
	s := newShop(t, 0)
	s.copies.workers.namespace, s.copies.workers.writer = "kueue-system", s.manager
	file := filepath.Join(t.TempDir(), "kubeconfig")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "west"}}
	for _, o := range []*kueue.MultiKueueCluster{
		{ObjectMeta: metav1.ObjectMeta{Name: "by-file"}, Spec: kueue.MultiKueueClusterSpec{ClusterSource: kueue.ClusterSource{
			KubeConfig: &kueue.KubeConfig{LocationType: kueue.PathLocationType, Location: file}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "by-secret"}, Spec: kueue.MultiKueueClusterSpec{ClusterSource: kueue.ClusterSource{
			KubeConfig: &kueue.KubeConfig{LocationType: kueue.SecretLocationType, Location: "west"}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "by-nothing"}},
	} {
		if err := s.manager.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	want := func(name, text, wrong string) {
		t.Helper()
		got, err := s.copies.workers.kubeconfig(t.Context(), name)
		if wrong == "" && (err != nil || string(got) != text) || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("that of %s is %q, %v; want %q, %q", name, got, err, text, wrong)
		}
	}
	want("by-file", "", "no such file")
	want("by-secret", "", `"west" not found`)
	want("by-nothing", "", "spec.clusterSource has no kubeConfig")
	if err := s.manager.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	want("by-secret", "", "has no key kubeconfig")
	for _, text := range []string{"first", "second"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		secret.Data = map[string][]byte{kueue.MultiKueueConfigSecretKey: []byte(text)}
		if err := s.manager.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		want("by-file", text, "")
		want("by-secret", text, "")
	}
}

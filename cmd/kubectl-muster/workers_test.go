package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
)

// TestWorkersThatCannotBeReadAreNamed, with what to do about each; the answer goes on without them.
func TestWorkersThatCannotBeReadAreNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: manager, clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}],
  contexts: [{name: manager, context: {cluster: c}}, {name: west, context: {cluster: c}}, {name: mine, context: {cluster: c}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &options{config: genericclioptions.NewConfigFlags(true), clock: clock.RealClock{}, contexts: map[string]string{"south": "mine"}}
	o.config.KubeConfig = &file
	scheme, err := view.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(worker("east", metav1.ConditionTrue, ""),
		worker("south", metav1.ConditionTrue, ""), worker("west", metav1.ConditionTrue, "")).Build()
	workers, err := o.workers(t.Context(), kube)
	if err != nil || len(workers) != 3 {
		t.Fatalf("%+v, %v", workers, err)
	}
	for i, want := range []string{
		"east: your kubeconfig has no context east: add one, or name another with --cluster-context east=CONTEXT",
		"south: with the context mine of your kubeconfig: ", "west: with the context west of your kubeconfig: ",
	} {
		if w := workers[i]; w.Picture != nil || !strings.HasPrefix(w.Name+": "+w.Unread, want) ||
			i > 0 && !strings.Contains(w.Unread, "connection refused") {
			t.Errorf("%s: %s; want %s", w.Name, w.Unread, want)
		}
	}
	o.contexts["nowhere"] = "mine"
	want := `--cluster-context=nowhere=mine: there is no MultiKueueCluster "nowhere"; those that exist: east, south, west`
	if _, err := o.workers(t.Context(), kube); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	forbidden := interceptor.NewClient(kube, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList,
		...client.ListOption) error {
		return apierrors.NewForbidden(kueue.Resource("multikueueclusters"), "", nil)
	}})
	if workers, err := o.workers(t.Context(), forbidden); err != nil || len(workers) != 1 ||
		!strings.Contains(workers[0].Unread, "you may not list multikueueclusters") {
		t.Errorf("without the right to list them: %+v, %v", workers, err)
	}
}

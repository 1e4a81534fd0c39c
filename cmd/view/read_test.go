package view

import (
	"context"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestTheUserOfANamespaceAsksForNoOther and is informed about rights, never that Muster is down.
func TestTheUserOfANamespaceAsksForNoOther(t *testing.T) {
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		own     bool // may list in the own namespace
		summary string
	}{
		"with view":                   {true, "has no Workload yet"},
		"without rights to Workloads": {false, "is in a queue, and your rights do not show its state"},
	} {
		t.Run(name, func(t *testing.T) {
			var everywhere []string
			kube := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
				List: func(_ context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					o := client.ListOptions{}
					o.ApplyOptions(options)
					kind, err := apiutil.GVKForObject(list, scheme)
					if err != nil {
						return err
					}
					if o.Namespace == "" {
						everywhere = append(everywhere, kind.Kind)
					}
					if o.Namespace == "" || !tc.own {
						return apierrors.NewForbidden(schema.GroupResource{Resource: kind.Kind}, "", nil)
					}
					return nil
				},
			}).Build()
			settings, err := LoadSettings("")
			if err != nil {
				t.Fatal(err)
			}
			r, err := Read(t.Context(), kube, "team", settings.Kinds()...)
			if err != nil {
				t.Fatal(err)
			}
			for _, kind := range []string{"PodList", "LocalQueueList", "ProvisioningRequestList"} {
				if slices.Contains(everywhere, kind) {
					t.Errorf("%s was asked for in all namespaces", kind)
				}
			}
			p := New(clocktesting.NewFakePassiveClock(metav1.Now().Time), settings, r)
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train",
				Labels: map[string]string{"kueue.x-k8s.io/queue-name": "main"}}}
			e := p.ExplainJob(job)
			if e.Summary != tc.summary || len(e.Missing) == 0 {
				t.Errorf("it %s, missing %v", e.Summary, e.Missing)
			}
			if text := strings.Join(slices.Concat(e.Causes, e.Unblock), " "); strings.Contains(text, "down") ||
				!tc.own && !strings.Contains(text, "--clusterrole=view") {
				t.Errorf("it says %s", text)
			}
		})
	}
}

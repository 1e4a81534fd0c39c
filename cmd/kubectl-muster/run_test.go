package main

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-dev/muster/cmd/view"
)

// TestQueueFor checks that a typo in the name of a queue is refused at once. A user without the
// right to read queues can still submit to one by its name.
func TestQueueFor(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "localqueues"}, "", nil)
	for name, tc := range map[string]struct {
		queues      []client.Object
		list        error
		named, want string
		err         string
	}{
		"the only one":             {queues: []client.Object{localQueue("main", "team")}, want: "main"},
		"one of two":               {queues: []client.Object{localQueue("main", "team"), localQueue("night", "team")}, named: "night", want: "night"},
		"none of two":              {queues: []client.Object{localQueue("main", "team"), localQueue("night", "team")}, err: "--queue is missing: use one of main, night"},
		"a typo":                   {queues: []client.Object{localQueue("main", "team")}, named: "mian", err: "namespace default has no LocalQueue mian: --queue is one of main"},
		"no queue at all":          {named: "main", err: "namespace default has no LocalQueue, without which no job of it can queue"},
		"no right to read queues":  {list: forbidden, named: "main", want: "main"},
		"no right and no name":     {list: forbidden, err: "--queue is missing, and the LocalQueues of namespace default cannot be read: " + forbidden.Error()},
		"no answer from a cluster": {list: errors.New("refused"), named: "main", err: "reading the LocalQueues of namespace default: refused"},
	} {
		t.Run(name, func(t *testing.T) {
			scheme, err := view.NewScheme()
			if err != nil {
				t.Fatal(err)
			}
			kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.queues...).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if tc.list != nil {
						return tc.list
					}
					return c.List(ctx, list, opts...)
				},
			}).Build()
			got, err := queueFor(t.Context(), kube, "default", tc.named)
			if said := errorText(err); got != tc.want || said != tc.err {
				t.Errorf("queue %q, error %q", got, said)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

package kinds

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestFeaturesOfEveryKind: a limit of the run time, a priority, a prebuilt Workload and another
// manager mean the same for all kinds, and what a kind cannot do is refused.
func TestFeaturesOfEveryKind(t *testing.T) {
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	if err := kueue.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	class := &kueue.WorkloadPriorityClass{Value: 7}
	class.Name = "high"
	kube := fake.NewClientBuilder().WithScheme(s).WithObjects(class).Build()
	for _, k := range BuiltIn() {
		t.Run(k.Kind, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("../../../deploy/samples/kinds", strings.ToLower(k.Kind)+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			var sample *unstructured.Unstructured
			for _, part := range strings.Split(string(text), "\n---\n") {
				if o := object(t, part); o.GetKind() == k.Kind {
					sample = o
				}
			}
			of := func(change func(*unstructured.Unstructured)) *kueue.Workload {
				t.Helper()
				o := sample.DeepCopy()
				change(o)
				w, err := jobs.NewWorkload(context.Background(), kube, k, o, nil)
				if err != nil {
					t.Fatal(err)
				}
				return w
			}
			w := of(func(o *unstructured.Unstructured) {
				o.SetLabels(map[string]string{jobs.QueueLabel: "q", jobs.MaxExecTimeLabel: "90", jobs.PriorityClassLabel: "high"})
			})
			if ptr.Deref(w.Spec.MaximumExecutionTimeSeconds, 0) != 90 || ptr.Deref(w.Spec.Priority, 0) != 7 {
				t.Errorf("runs for %v at priority %v, want 90 s at 7", w.Spec.MaximumExecutionTimeSeconds, w.Spec.Priority)
			}
			if w := of(func(o *unstructured.Unstructured) {
				o.SetLabels(map[string]string{jobs.QueueLabel: "q", jobs.PrebuiltLabel: "mine", jobs.PriorityClassLabel: "high"})
			}); w.Spec.Priority != nil {
				t.Errorf("a prebuilt Workload gets the priority %d of its job", *w.Spec.Priority)
			}
			refused := func(about string, change func(*unstructured.Unstructured)) {
				t.Helper()
				if why := of(change).Annotations[workload.RefusedAnnotation]; !strings.Contains(why, about) {
					t.Errorf("refused because %q, want something about %s", why, about)
				}
			}
			elastic := func(o *unstructured.Unstructured) {
				o.SetAnnotations(map[string]string{workload.ElasticAnnotation: "true"})
			}
			if k.Elastic {
				if why := of(elastic).Annotations[workload.RefusedAnnotation]; why != "" {
					t.Errorf("it cannot be elastic: %s", why)
				}
			} else {
				refused("cannot change while it runs", elastic)
			}
			if k.managedBy == nil {
				return // SparkApplication has no such field
			}
			if k.ttl != nil {
				copied := sample.DeepCopy()
				k.ttl.set(copied.Object, int64(0))
				if k.Delegate(copied); strings.Contains(fmt.Sprint(copied.Object), "ttlSecondsAfterFinished") {
					t.Error("a copy in another cluster would be deleted before its end is observed")
				}
			}
			refused(`"example.com/other", so another controller runs it`, func(o *unstructured.Unstructured) {
				k.managedBy.set(o.Object, "example.com/other")
			})
			if why := of(func(o *unstructured.Unstructured) { k.managedBy.set(o.Object, k.Stanza.ManagedBy.Own) }).
				Annotations[workload.RefusedAnnotation]; strings.Contains(why, "another controller") {
				t.Errorf("refused although its own controller runs it: %s", why)
			}
		})
	}
}

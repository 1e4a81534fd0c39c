package cache

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// TestPlainWorkloads: their result depends only on what all Workloads of their equivalence class have.
func TestPlainWorkloads(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*kueue.Workload)
		want   bool
	}{
		"one that waits": {func(*kueue.Workload) {}, true},
		"one whose attempt has failed": {func(w *kueue.Workload) {
			w.Status.RequeueState = &kueue.RequeueState{Count: new(int32(1))}
		}, false},
		"one of which pods are over": {func(w *kueue.Workload) {
			w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}}
		}, false},
		"a slice": {func(w *kueue.Workload) {
			w.Annotations = map[string]string{workload.ReplacementAnnotation: "team/before"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			object := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train"}}
			w := (&Workload{}).WithObject(object)
			tt.change(object)
			if got := w.WithObject(object).Plain; got != tt.want {
				t.Errorf("it is plain: %v, want %v", got, tt.want)
			}
		})
	}
}

package cache

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/config"
)

// TestNothingIsKeptOfNamespacesThatAreGone, in whatever order the watches deliver the deletions.
func TestNothingIsKeptOfNamespacesThatAreGone(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	in := metav1.ObjectMeta{Namespace: "team", Name: "one"}
	objects := []metav1.Object{ns, &corev1.LimitRange{ObjectMeta: in}, &corev1.ResourceQuota{ObjectMeta: in}}
	for first := range objects {
		s := New(config.Config{})
		for _, o := range objects {
			s.Set(o)
		}
		for i := range objects {
			s.Delete(objects[(first+i)%len(objects)])
		}
		if len(s.Namespaces) > 0 {
			t.Errorf("%T deleted first, %v is left", objects[first], s.Namespaces["team"])
		}
	}
}

// TestAnswersAreNoMoreThanThoseThatWait by much: Workloads that can never be admitted may come and go for ever.
func TestAnswersAreNoMoreThanThoseThatWait(t *testing.T) {
	q := newQueue(&kueue.ClusterQueue{})
	w := &Workload{Object: &kueue.Workload{}}
	for shape := range uint64(10_000) {
		q.SetInadmissible(EquivalenceClass{Shape: shape}, w, Inadmissible{Reason: "no"})
		if q.Inadmissible[EquivalenceClass{Shape: shape}] == nil {
			t.Fatal("the last answer is lost")
		}
	}
	if len(q.Inadmissible) > 200 {
		t.Errorf("%d answers to no Workload", len(q.Inadmissible))
	}
}

package controller

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
)

// TestASlowWorkerHoldsUpNoOther: only a few of the concurrent reconciles wait for its responses.
func TestASlowWorkerHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, 2)
		jobs := concurrent + 1
		for i := range jobs {
			s.train(fmt.Sprint("train-", i))
		}
		s.copies.workers.byName[workerName(0)].slow = true
		answers := make(chan struct{})
		var mu sync.Mutex
		waiting := 0
		s.created = func(server string) {
			if server == workerName(0) {
				mu.Lock()
				waiting++
				mu.Unlock()
				<-answers
			}
		}
		// All but the last were given to it.
		for i := range jobs {
			w := &kueue.Workload{}
			key := client.ObjectKey{Namespace: "team-a", Name: fmt.Sprint("train-", i)}
			if err := s.manager.Get(t.Context(), key, w); err != nil {
				t.Fatal(err)
			}
			cluster := workerName(0)
			if i == jobs-1 {
				cluster = workerName(1)
			}
			record := dispatch.Record{In: []string{cluster}, At: s.clock.Now()}
			metav1.SetMetaDataAnnotation(&w.ObjectMeta, dispatch.Annotation, record.Encode())
			if err := s.manager.Update(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			s.status(s.manager, key.Name, func(w *kueue.Workload) { w.Status.NominatedClusterNames = []string{cluster} })
		}
		var all sync.WaitGroup
		look := func(i int) {
			all.Go(func() {
				request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "team-a", Name: fmt.Sprint("train-", i)}}
				if _, err := s.copies.Reconcile(t.Context(), request); err != nil {
					t.Error(err)
				}
			})
		}
		for i := range jobs - 1 {
			look(i)
			synctest.Wait()
		}
		look(jobs - 1)
		synctest.Wait()
		mu.Lock()
		if waiting != mostCalls {
			t.Errorf("%d Workloads wait for its answers", waiting)
		}
		mu.Unlock()
		if s.copyIn(1, fmt.Sprint("train-", jobs-1)) == nil {
			t.Error("the other cluster has no copy")
		}
		close(answers)
		all.Wait()
	})
}

package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/test/testbed"
)

// pairs is how many pairs of Jobs come at nearly the same moment.
var pairs = flag.Int("pairs", 24, "how many pairs of Jobs that fit together come at nearly the same moment")

// pairLanes are how many ClusterQueues pairs come to at a time.
const pairLanes = 4

// TestTwoJobsThatFitBothStart: a ClusterQueue of 5 CPUs gets a Job of 1 and one of 4 a few
// milliseconds apart, so that the second is judged while the admission of the first is
// being written. Neither may wait for the other to end.
func TestTwoJobsThatFitBothStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name}})
	var running sync.WaitGroup
	for lane := range pairLanes {
		queue := fmt.Sprintf("%s-%d", s.Name, lane)
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: queue}}
		cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
		cq.Spec.ResourceGroups = s.cpus("5", nil, nil)
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: queue}}
		lq.Spec.ClusterQueue = kueue.ClusterQueueReference(queue)
		s.Create(cq, lq)
		random := rand.New(rand.NewPCG(uint64(lane), 5))
		running.Go(func() {
			for i := range (*pairs + pairLanes - 1 - lane) / pairLanes {
				s.pair(queue, fmt.Sprintf("lane-%d-%d", lane, i), time.Duration(random.IntN(8))*time.Millisecond)
			}
		})
	}
	running.Wait()
}

// pair creates two Jobs that fill a queue, waits until both have started, and deletes
// them.
func (s *site) pair(queue, name string, apart time.Duration) {
	both := make([]*batchv1.Job, 2)
	for i, cpus := range []string{"1", "4"} {
		both[i] = s.newPlainJob(fmt.Sprintf("%s-%s", name, cpus), 1, "1h", func(j *batchv1.Job) {
			j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": queue}
			j.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": *amount(cpus)}
			// Started is enough: nothing has to run.
			j.Spec.Template.Spec.NodeSelector = map[string]string{testbed.SiteLabel: "none"}
		})
	}
	for i, j := range both {
		if i > 0 {
			time.Sleep(apart) //nolint:forbidigo // the distance is what the test is about
		}
		if err := s.Kube.Create(s.Context(), j); err != nil {
			s.Errorf("creating job %s: %v", j.Name, err)
			return
		}
	}
	uids := map[types.UID]bool{}
	for _, j := range both {
		uids[j.UID] = true
		s.soon("job "+j.Name+", which fits, starts", func() bool { return s.Get(j) && j.Spec.Suspend != nil && !*j.Spec.Suspend })
	}
	for _, j := range both {
		if err := s.Kube.Delete(s.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			s.Errorf("deleting job %s: %v", j.Name, err)
		}
	}
	s.soon("the queue of "+name+" is empty", func() bool {
		var list kueue.WorkloadList
		if s.Kube.List(s.Context(), &list, client.InNamespace(s.Name)) != nil {
			return false
		}
		for i := range list.Items {
			if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && uids[owner.UID] {
				return false
			}
		}
		return true
	})
}
